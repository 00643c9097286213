//! Signatures that cosign has pushed to registries, with and without a list of referrers: `cargo xtask oracles` records
//! the answers of the registries, and a server on loopback gives them again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::*;
use crate::{Registry, RegistryError, Signed};

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

    /// Asks the registry for the signatures of the artifact, with a key and further rules of a policy.
    fn judge(&self, key: &str, more: &str) -> Result<Signed, RegistryError> {
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
        runtime.block_on(registry.signatures(reference, &config.plugins[0].signatures))
    }

    #[track_caller]
    fn accepted(&self, key: &str, more: &str) {
        let signed = self.judge(key, more).unwrap();
        assert!(signed.missing.is_empty(), "{}: {signed:#?}", self.what());
        println!("{} | accepted", self.what());
    }

    /// Checks that the artifact is refused, with this text among the reasons.
    #[track_caller]
    fn refused(&self, row: &str, key: &str, more: &str, reason: &str) {
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
    }
}

#[test]
fn accepts_what_cosign_pushes_to_every_registry() {
    let recorded = recorded();
    // Two tools, four kinds of keys, three forms, two registries.
    assert_eq!(recorded.len(), 2 * 4 * 3 * 2);
    for one in recorded.iter().filter(|one| one.form != "sbom") {
        one.accepted(&one.public_key, "");
    }
}

#[test]
fn refuses_what_does_not_fit_in_every_registry() {
    let all = recorded();
    for one in &all {
        let key = &one.public_key;
        let stranger = all
            .iter()
            .find(|other| other.key == one.key && other.tool != one.tool)
            .unwrap();
        one.refused(
            "wrong key",
            &stranger.public_key,
            "",
            "made with another key",
        );
        if one.form == "sbom" {
            one.refused("SBOM attestation only", key, "", "which is not a signature");
            continue;
        }
        one.refused(
            "signature of another repository",
            key,
            ", bindRepository: true",
            "(bindRepository)",
        );
        one.refused(
            "replayed older version",
            key,
            ", minimumVersion: 1.5.0",
            "expected 1.5.0 or later, found 1.4.0",
        );
        let changed = |path: &str, from: &str, to: &str| {
            let mut changed = one.clone();
            let body = changed.body(path);
            assert!(body.contains(from), "{body}");
            *body = body.replacen(from, to, 1);
            changed
        };
        changed("blobs/", "\"", " ").refused("tampered signature", key, "", "has the digest");
        // The artifact has another digest then, and nothing signs that one.
        changed("manifests/1", "1.4.0", "1.4.1").refused(
            "tampered manifest",
            key,
            "",
            "signers: expected",
        );
    }
}

#[test]
fn signature_of_another_digest_counts_nowhere() {
    let all = recorded();
    for one in all.iter().filter(|one| one.form != "sbom") {
        // The registry lists the signature of this artifact as one of another artifact.
        let mut moved = one.clone();
        let manifest = moved.body("manifests/1").replace("1.4.0", "1.4.1");
        let old = digest_of(moved.body("manifests/1"));
        let new = digest_of(&manifest);
        *moved.body("manifests/1") = manifest;
        for answer in &mut moved.answers {
            let (old, new) = (old.replace(':', "-"), new.replace(':', "-"));
            answer.path = answer.path.replace(&old, &new);
        }
        for answer in &mut moved.answers {
            answer.path = answer.path.replace(&old, &new);
        }
        moved.refused("wrong digest", &one.public_key, "", &format!("for {old}"));
    }
}

fn digest_of(text: &str) -> String {
    crate::cache::digest_of(text.as_bytes())
}
