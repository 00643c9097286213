//! Signs artifacts in real registries, and records what the registries answer about them.
//!
//! The CNCF's registry does not list referrers, so cosign writes their list under a tag. The registry of
//! go-containerregistry lists them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{COSIGNS, Cosign, Key, run};
use crate::image::layout::digest;
use crate::workspace::Workspace;

/// A registry on loopback. It ends when dropped.
pub(super) struct Registry {
    name: &'static str,
    base: String,
    host: String,
    child: Child,
}

const CNCF: &str = "CNCF distribution 3.1.2";
const CNCF_PACKAGE: &str = "github.com/distribution/distribution/v3/cmd/registry@v3.1.2";
const REFERRERS: &str = "go-containerregistry 0.21.7";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const ACCEPT: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json";
/// The query with which Tollgate asks for referrers.
const QUERY: &str = "artifactType=application%2Fvnd.dev.sigstore.bundle.v0.3%2Bjson";
const FORMS: [&str; 3] = ["tag", "bundle", "sbom"];
const START_LIMIT: Duration = Duration::from_secs(30);

/// Builds and starts both registries.
pub(super) fn start(workspace: &Workspace, tools: &Path) -> anyhow::Result<[Registry; 2]> {
    let cncf = tools.join("distribution-3.1.2/registry");
    if !cncf.is_file() {
        let mut build = super::go_install(CNCF_PACKAGE, &tools.join("distribution-3.1.2"));
        run(&mut build)?;
    }
    let referrers = tools.join("referrers");
    let mut build = Command::new("go");
    build.current_dir(workspace.root().join("tests/referrers"));
    build
        .args(["build", "-trimpath", "-o"])
        .arg(&referrers)
        .env("CGO_ENABLED", "0");
    run(&mut build)?;
    Ok([
        Registry::cncf(&cncf, tools)?,
        Registry::with_referrers(&referrers)?,
    ])
}

// === impl Registry ===

impl Registry {
    fn cncf(program: &Path, tools: &Path) -> anyhow::Result<Self> {
        // Nothing else takes the port between these two lines, or the registry says so and ends.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let file = tools.join("registry.yaml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{inmemory: {{}}}}\nhttp: {{addr: \"127.0.0.1:{port}\", secret: oracles}}\n"
        );
        std::fs::write(&file, text).context("cannot write the registry's configuration")?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(&file)
            .env("OTEL_TRACES_EXPORTER", "none");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Self::new(CNCF, port, child.context("cannot start the registry")?)
    }

    fn with_referrers(program: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the registry with referrers")?;
        let mut line = String::new();
        if let Some(stdout) = &mut child.stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let port = line
            .trim()
            .parse()
            .with_context(|| format!("the registry printed `{line}`, expected a port"))?;
        Self::new(REFERRERS, port, child)
    }

    fn new(name: &'static str, port: u16, child: Child) -> anyhow::Result<Self> {
        let host = format!("127.0.0.1:{port}");
        let registry = Self {
            name,
            base: format!("http://{host}/v2"),
            host,
            child,
        };
        let began = Instant::now();
        while std::net::TcpStream::connect(&registry.host).is_err() {
            anyhow::ensure!(began.elapsed() < START_LIMIT, "{name} does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(registry)
    }

    /// Signs in each form, each in a repository of its own, and records the answers.
    pub(super) fn record(
        &self,
        cosign: &Cosign,
        program: &Path,
        key: &Key,
    ) -> anyhow::Result<Vec<Value>> {
        FORMS
            .into_iter()
            .map(|form| self.record_one(cosign, program, key, form))
            .collect()
    }

    fn record_one(
        &self,
        cosign: &Cosign,
        program: &Path,
        key: &Key,
        form: &str,
    ) -> anyhow::Result<Value> {
        let repository = format!(
            "policies/{}-{}-{form}",
            cosign.name.replace(' ', "-"),
            key.name
        );
        let of_manifest = self.push(&repository)?;
        let (private, artifact) = (
            format!("{}.key", key.name),
            format!("{}/{repository}@{of_manifest}", self.host),
        );
        let mut command = Command::new(program);
        command.current_dir(&key.folder).env("COSIGN_PASSWORD", "");
        if form == "sbom" {
            let bom = r#"{"bomFormat": "CycloneDX", "specVersion": "1.5"}"#;
            std::fs::write(key.folder.join("bom.json"), bom)?;
            command.args(["attest", "--type", "cyclonedx", "--predicate", "bom.json"]);
        } else {
            command.arg("sign");
        }
        command.arg(format!("--new-bundle-format={}", form != "tag"));
        command
            .args(["--key", &private, "-y", "--allow-http-registry"])
            .args(cosign.offline)
            .arg(&artifact);
        run(&mut command)?;
        Ok(json!({
            "tool": cosign.name, "key": key.name, "form": form, "registry": self.name,
            "publicKey": key.public, "repository": repository,
            "answers": self.answers(&repository, &of_manifest)?,
        }))
    }

    /// Pushes an artifact with version 1.4.0. Returns the digest of its manifest.
    fn push(&self, repository: &str) -> anyhow::Result<String> {
        let (wasm, config) = (b"\0asm plugin".as_slice(), b"{}".as_slice());
        let agent = agent();
        for blob in [wasm, config] {
            let begun = agent
                .post(format!("{}/{repository}/blobs/uploads/", self.base))
                .send_empty()?;
            let at = begun
                .headers()
                .get("location")
                .context("the registry names no place for the upload")?
                .to_str()?;
            let at = match at.starts_with('/') {
                true => format!("http://{}{at}", self.host),
                false => at.to_owned(),
            };
            let separator = if at.contains('?') { '&' } else { '?' };
            let request = agent.put(format!("{at}{separator}digest={}", digest(blob)));
            request
                .content_type("application/octet-stream")
                .send(blob)?;
        }
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": part("application/vnd.wasm.config.v0+json", config),
            "layers": [part("application/wasm", wasm)],
            "annotations": {"org.opencontainers.image.version": "1.4.0"},
        });
        let manifest = manifest.to_string();
        let request = agent.put(format!("{}/{repository}/manifests/1", self.base));
        request.content_type(MANIFEST).send(manifest.as_bytes())?;
        Ok(digest(manifest.as_bytes()))
    }

    /// Asks as Tollgate asks, and returns the answers: the artifact, the tag of signatures, the referrers, their manifests
    /// and their layers.
    fn answers(&self, repository: &str, of_manifest: &str) -> anyhow::Result<Vec<Value>> {
        let mut answers = Vec::new();
        let mut get = |path: String| -> anyhow::Result<Option<Value>> {
            let request = agent().get(format!("{}/{repository}/{path}", self.base));
            let mut response = request.header("accept", ACCEPT).call()?;
            let status = response.status().as_u16();
            let kind = response
                .headers()
                .get("content-type")
                .and_then(|kind| kind.to_str().ok());
            let kind = kind.unwrap_or_default().to_owned();
            let body = match status {
                200 => response.body_mut().read_to_string()?,
                _ => String::new(),
            };
            let document = serde_json::from_str(&body).ok();
            answers.push(json!({"path": path, "status": status, "type": kind, "body": body}));
            Ok(document)
        };
        let tag = of_manifest.replace(':', "-");
        get("manifests/1".to_owned())?;
        let mut manifests: Vec<Value> = get(format!("manifests/{tag}.sig"))?.into_iter().collect();
        let listed = match get(format!("referrers/{of_manifest}?{QUERY}"))? {
            Some(list) => Some(list),
            None => get(format!("manifests/{tag}"))?,
        };
        let listed = listed.unwrap_or_default();
        for referrer in listed["manifests"].as_array().into_iter().flatten() {
            let named = referrer["digest"]
                .as_str()
                .context("a referrer has no digest")?;
            manifests.extend(get(format!("manifests/{named}"))?);
        }
        for layer in manifests
            .iter()
            .flat_map(|manifest| manifest["layers"].as_array())
            .flatten()
        {
            let named = layer["digest"].as_str().context("a layer has no digest")?;
            get(format!("blobs/{named}"))?;
        }
        Ok(answers)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A client that takes 404 as an answer.
fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into()
}

/// The folder for programs that take minutes to build. It outlives the target folder.
pub(super) fn tools() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.context("no folder for caches is known: set XDG_CACHE_HOME or HOME")?;
    Ok(cache.join("tollgate/oracles"))
}

const _: () = assert!(
    COSIGNS.len() == 2,
    "the tests expect signatures of two versions"
);
