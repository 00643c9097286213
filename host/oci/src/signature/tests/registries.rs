//! Signatures that cosign has pushed to registries, with and without a list of referrers: `cargo xtask oracles` records
//! the answers of the registries, and a server on loopback gives them again.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate_config::{Reference, Signatures};

use super::*;
use crate::{Order, Registry, RegistryError, Signed};

/// The layer of the recorded artifacts.
const LAYER: &str = "\0asm plugin";

/// The answers of a registry about one artifact with one signature or attestation.
#[derive(Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    tool: String,
    key: String,
    form: String,
    registry: String,
    public_key: String,
    repository: String,
    answers: Vec<Answer>,
}

#[derive(Clone, serde::Deserialize)]
struct Answer {
    /// The path below the repository, with the query.
    path: String,
    status: u16,
    #[serde(rename = "type")]
    kind: String,
    body: String,
}

fn recorded() -> Vec<Recorded> {
    serde_json::from_str(include_str!("registries.json")).unwrap()
}

/// Gives the recorded answers on loopback. Returns host and port. The server ends with the process.
fn serve(recorded: &Recorded) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let recorded = Arc::new(recorded.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone needs no answer.
            drop(recorded.answer(&stream));
        }
    });
    host
}

// === impl Recorded ===

impl Recorded {
    fn what(&self) -> String {
        format!(
            "{} | {} | {} | {}",
            self.tool, self.key, self.form, self.registry
        )
    }

    fn answer(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        while lines
            .next()
            .transpose()?
            .is_some_and(|line| !line.is_empty())
        {}
        let path = request.split(' ').nth(1).unwrap_or_default();
        let path = path.strip_prefix(&format!("/v2/{}/", self.repository));
        let answer = self
            .answers
            .iter()
            .find(|answer| path == Some(answer.path.as_str()));
        let (status, kind, body) = match answer {
            Some(answer) => (answer.status, answer.kind.as_str(), answer.body.as_str()),
            None => (404, "text/plain", ""),
        };
        write!(
            stream,
            "HTTP/1.1 {status} Recorded\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    /// The recorded body whose path begins so.
    fn body(&mut self, path: &str) -> &mut String {
        let mut answers = self.answers.iter_mut();
        let found = answers.find(|answer| answer.status == 200 && answer.path.starts_with(path));
        &mut found.unwrap().body
    }

    /// The same answers with another signature or bundle.
    fn forged(&self, from: &str, to: &str) -> Self {
        self.with("blobs/", |body| {
            assert!(body.contains(from), "{body}");
            body.replacen(from, to, 1)
        })
    }

    /// The same answers with another body at this path, and with every digest that leads to it corrected, as somebody who
    /// controls the registry would.
    fn with(&self, path: &str, change: impl FnOnce(&str) -> String) -> Self {
        let mut forged = self.clone();
        let body = forged.body(path);
        let changed = change(body);
        let mut renamed = vec![(digest_of(body), digest_of(&changed))];
        *body = changed;
        while let Some((old, new)) = renamed.pop() {
            for answer in &mut forged.answers {
                answer.path = answer.path.replace(&old, &new);
                let body = answer.body.replace(&old, &new);
                if body != answer.body {
                    renamed.push((digest_of(&answer.body), digest_of(&body)));
                    answer.body = body;
                }
            }
        }
        forged
    }

    /// The answers of a registry that lists the signature of this artifact as one of another artifact.
    fn moved(&self) -> Self {
        let mut moved = self.clone();
        let manifest = moved.body("manifests/1").replace("1.4.0", "1.4.1");
        let old = digest_of(moved.body("manifests/1"));
        let new = digest_of(&manifest);
        *moved.body("manifests/1") = manifest;
        for answer in &mut moved.answers {
            let tags = (old.replace(':', "-"), new.replace(':', "-"));
            answer.path = answer.path.replace(&old, &new).replace(&tags.0, &tags.1);
        }
        moved
    }

    /// The same answers, with a layer of the plugin.
    fn with_layer(&self, body: &str) -> Self {
        let mut with = self.clone();
        with.answers.push(Answer {
            path: format!("blobs/{}", digest_of(LAYER)),
            status: 200,
            kind: "application/wasm".to_owned(),
            body: body.to_owned(),
        });
        with
    }

    /// Pulls the plugin, with a key.
    fn pull(&self, key: &str) -> Result<Vec<u8>, RegistryError> {
        self.ask(key, "", |registry, reference, signatures, runtime| {
            let pulled = runtime.block_on(registry.pull(Order {
                reference,
                signatures,
                have: None,
                limit_bytes: 1000,
            }))?;
            Ok(pulled.bytes.unwrap_or_default())
        })
    }

    /// Asks the registry for the signatures of the artifact, with a key and further rules of a policy.
    fn judge(&self, key: &str, more: &str) -> Result<Signed, RegistryError> {
        self.ask(key, more, |registry, reference, signatures, runtime| {
            runtime.block_on(registry.signatures(reference, signatures))
        })
    }

    fn ask<T>(
        &self,
        key: &str,
        more: &str,
        ask: impl FnOnce(&Registry, &Reference, &Signatures, &Runtime) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cosign.pub");
        std::fs::write(&file, key).unwrap();
        let host = serve(self);
        let text = format!(
            "
registries: {{ hosts: [{{ host: '{host}', plainHTTP: true }}] }}
signatures:
  policies:
    - {{ name: guards, repositories: ['**'], signers: [{{ name: one, key: cosign.pub }}]{more} }}
plugins: [{{ name: a, source: 'oci://{host}/{}:1' }}]
",
            self.repository
        );
        let config = Config::parse(&text, folder.path()).unwrap();
        let tollgate_config::Source::Oci(reference) = &config.plugins[0].source else {
            panic!("the source is an artifact");
        };
        let registry = Registry::new(config.registries.clone()).without_cache();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        ask(
            &registry,
            reference,
            &config.plugins[0].signatures,
            &runtime,
        )
    }

    #[track_caller]
    fn accepted(&self, key: &str, more: &str) {
        let signed = self.judge(key, more).unwrap();
        assert!(signed.missing.is_empty(), "{}: {signed:#?}", self.what());
        println!("{} | accepted", self.what());
    }

    /// Checks that the artifact is refused, with this text among the reasons. Returns all reasons.
    #[track_caller]
    fn refused(&self, row: &str, key: &str, more: &str, reason: &str) -> String {
        let said = match self.judge(key, more) {
            Ok(signed) => {
                assert!(
                    !signed.missing.is_empty(),
                    "{}, {row}: {signed:#?}",
                    self.what()
                );
                let found = signed.found.iter().map(|found| found.text.as_str());
                let all: Vec<&str> = signed
                    .missing
                    .iter()
                    .map(String::as_str)
                    .chain(found)
                    .collect();
                all.join("; ")
            }
            Err(error) => tollgate_admission::chain(&error),
        };
        println!("{} | {row} | refused: {said}", self.what());
        assert!(said.contains(reason), "{}, {row}: {said}", self.what());
        said
    }
}

#[test]
fn accepts_what_cosign_pushes_to_every_registry() {
    let recorded = recorded();
    // Two tools, four kinds of keys, three forms, two registries.
    assert_eq!(recorded.len(), 2 * 4 * 3 * 2);
    for one in recorded.iter().filter(|one| one.form != "sbom") {
        one.accepted(&one.public_key, "");
        let pulled = one.with_layer(LAYER).pull(&one.public_key).unwrap();
        assert_eq!(pulled, LAYER.as_bytes());
    }
}

#[test]
fn refusal_tells_how_many_bundles_of_a_manifest_were_read() {
    let all = recorded();
    let one = all.iter().find(|one| one.form == "bundle").unwrap();
    let stranger = all.iter().find(|other| other.key != one.key).unwrap();
    let with_bundles = |count: usize| {
        one.with("manifests/sha256:", |body| {
            let mut manifest: Value = serde_json::from_str(body).unwrap();
            let layer = manifest["layers"][0].clone();
            manifest["layers"] = vec![layer; count].into();
            manifest.to_string()
        })
    };
    let key = &stranger.public_key;
    let said = with_bundles(5).refused(
        "too many bundles",
        key,
        "",
        "looked at 4 of the 5 signatures in the manifest sha256:",
    );
    assert!(said.contains("signers: expected"), "{said}");
    let said = with_bundles(4).refused("few bundles", key, "", "signers: expected");
    assert!(!said.contains("looked at"), "{said}");
    with_bundles(5).accepted(&one.public_key, "");
}

#[test]
fn refuses_what_does_not_fit_in_every_registry() {
    let all = recorded();
    // The number of refusals and the last text, by the row of the table.
    let mut table: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let mut add = |row: &'static str, said: String| {
        let (count, text) = table.entry(row).or_default();
        (*count, *text) = (*count + 1, said);
    };
    for one in &all {
        let key = &one.public_key;
        let refused = |row: &'static str, of: &Recorded, more: &str, reason: &str| {
            (row, of.refused(row, key, more, reason))
        };
        let stranger = all
            .iter()
            .find(|other| other.key == one.key && other.tool != one.tool)
            .unwrap();
        let said = one.refused(
            "wrong key",
            &stranger.public_key,
            "",
            "made with another key",
        );
        add("wrong key", said);
        if one.form == "sbom" {
            let (row, said) = refused("SBOM attestation only", one, "", "which is not a signature");
            add(row, said);
            continue;
        }
        let (row, said) = refused(
            "signature of another repository",
            one,
            ", bindRepository: true",
            "(bindRepository)",
        );
        add(row, said);
        let (row, said) = refused(
            "replayed older version",
            one,
            ", minimumVersion: 1.5.0",
            "expected 1.5.0 or later, found 1.4.0",
        );
        add(row, said);
        let tampered = one.with_layer(&LAYER.replace('n', "m"));
        let said = tampered.pull(key).unwrap_err();
        let said = tollgate_admission::chain(&said);
        println!("{} | tampered layer | refused: {said}", one.what());
        assert!(said.contains("the layer has the digest"), "{said}");
        add("tampered layer", said);
        // The first byte of the signed text, or of the encoded statement.
        let (from, to) = match one.form.as_str() {
            "tag" => ("{\"critical\"", "{\"Critical\""),
            _ => ("\"payload\":\"e", "\"payload\":\"f"),
        };
        let (row, said) = refused(
            "tampered bundle, with the digests corrected",
            &one.forged(from, to),
            "",
            "signers: expected",
        );
        add(row, said);
        let changed = |path: &str, from: &str, to: &str| {
            let mut changed = one.clone();
            let body = changed.body(path);
            assert!(body.contains(from), "{body}");
            *body = body.replacen(from, to, 1);
            changed
        };
        let (row, said) = refused(
            "tampered bundle",
            &changed("blobs/", "\"", " "),
            "",
            "has the digest",
        );
        add(row, said);
        // The artifact has another digest then, and nothing signs that one.
        let (row, said) = refused(
            "tampered manifest",
            &changed("manifests/1", "1.4.0", "1.4.1"),
            "",
            "signers: expected",
        );
        add(row, said);
        let (row, said) = refused(
            "wrong digest",
            &one.moved(),
            "",
            &format!("for {}", digest_of(one.clone().body("manifests/1"))),
        );
        add(row, said);
    }
    for (row, (count, said)) in &table {
        println!("table | {row} | refused in {count} | {said}");
        let expected = match *row {
            "wrong key" => 48,
            "SBOM attestation only" => 16,
            _ => 32,
        };
        assert_eq!(*count, expected, "{row}");
    }
}

fn digest_of(text: &str) -> String {
    crate::cache::digest_of(text.as_bytes())
}
