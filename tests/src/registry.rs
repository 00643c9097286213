//! Registries on loopback: CNCF distribution, a token server for it, and a registry that misbehaves on demand.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::binary::{profile_directory, tollgate};
use crate::{left_out, port};

pub mod misbehaving;
pub mod proxy;
pub mod tokens;

use tokens::Tokens;

/// The program to build, and its version.
const PROGRAM: &str = "github.com/distribution/distribution/v3/cmd/registry@v3.0.0";
/// `user:secret`, as `htpasswd -B` writes it.
const PASSWORDS: &str = "user:$2b$05$7XAhSp8mfv0vupocya6YGu56UwS1hsliZcecn8kYq0mIv6t/4xnKG\n";
const START_LIMIT: Duration = Duration::from_secs(30);

/// CNCF distribution's registry, with TLS and basic authentication, or in plain HTTP with tokens. It ends when dropped.
pub struct Registry {
    folder: TempDir,
    program: PathBuf,
    address: SocketAddr,
    child: Option<Child>,
}

// === impl Registry ===

impl Registry {
    /// Starts a registry with TLS and a password. If it cannot be built, reports that and returns none.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with(|root| {
            format!(
                "  tls: {{certificate: {root}/tls.crt, key: {root}/tls.key}}\n\
                 auth: {{htpasswd: {{realm: tests, path: {root}/passwords}}}}\n"
            )
        })
    }

    /// Starts a registry in plain HTTP that requires tokens. If it cannot be built, reports that and returns none.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    pub fn with_tokens(tokens: &Tokens) -> Option<Self> {
        let (realm, service, issuer) = (tokens.realm(), tokens::SERVICE, tokens::ISSUER);
        let roots = tokens.certificate().display().to_string();
        Self::start_with(|_| {
            format!(
                "auth: {{token: {{realm: \"{realm}\", service: {service}, issuer: {issuer}, rootcertbundle: {roots}}}}}\n"
            )
        })
    }

    /// Starts a registry. `access` returns its configuration of TLS and authentication for a given folder.
    fn start_with(access: impl FnOnce(&str) -> String) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::Builder::new()
            .prefix("tollgate-registry-")
            .tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let registry = Self {
            folder,
            program,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port::free())),
            child: None,
        };
        registry.write_certificate();
        let write = |name: &str, text: &str| {
            std::fs::write(registry.path(name), text)
                .expect("a temporary folder can be written to");
        };
        write("passwords", PASSWORDS);
        // user:secret
        let address = registry.address;
        let auths = format!(r#"{{"auths": {{"{address}": {{"auth": "dXNlcjpzZWNyZXQ="}}}}}}"#);
        write("docker.json", &auths);
        let root = registry.folder.path().display().to_string();
        let access = access(&root);
        write(
            "registry.yaml",
            &format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {root}/data}}}}\n\
                 http:\n  addr: {address}\n  secret: tests\n{access}"
            ),
        );
        Some(registry.again())
    }

    /// Starts the registry again with its data.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    pub fn again(mut self) -> Self {
        let child = Command::new(&self.program)
            .arg("serve")
            .arg(self.path("registry.yaml"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("the registry can be started");
        let began = Instant::now();
        while std::net::TcpStream::connect(self.address).is_err() {
            let ended = child.try_wait().expect("a child can be asked");
            assert_eq!(ended, None, "the registry has ended");
            assert!(
                began.elapsed() < START_LIMIT,
                "the registry does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child = Some(child);
        self
    }

    /// Starts the registry again with another CA and a new certificate of that CA, in the same files.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    pub fn with_another_ca(mut self) -> Self {
        self.kill();
        self.write_certificate();
        self.again()
    }

    /// Kills the registry at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Errors mean that the process has already ended.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Stops the registry from answering, until [`Registry::resume`]. Connections are still accepted.
    ///
    /// # Panics
    /// Panics if the registry does not run.
    pub fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets a paused registry answer again.
    ///
    /// # Panics
    /// Panics if the registry does not run.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = self.child.as_ref().map(std::process::Child::id);
        let id = id.and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(rustix::process::Pid::from_raw);
        let id = id.expect("the registry runs");
        rustix::process::kill_process(id, signal).expect("the registry runs");
    }

    /// Host and port, as references write them.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The CA certificate of the registry.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// A docker config file with credentials that the registry accepts.
    #[must_use]
    pub fn credentials(&self) -> PathBuf {
        self.path("docker.json")
    }

    /// Pushes a plugin with `tollgate push`, and returns the artifact's digest.
    ///
    /// # Panics
    /// Panics if the registry rejects it.
    pub fn push(&self, wasm: &[u8], reference: &str) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("plugin.wasm");
        std::fs::write(&file, wasm).expect("a file can be written");
        let output = Command::new(tollgate())
            .arg("push")
            .args([&file, Path::new(reference)])
            .arg("--ca")
            .arg(self.ca())
            .arg("--credentials")
            .arg(self.credentials())
            .output()
            .expect("tollgate can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let source = text.lines().find_map(|line| line.strip_prefix("source: "));
        let digest = source.and_then(|source| source.rsplit('@').next());
        digest.unwrap_or_else(|| panic!("{output:?}")).to_owned()
    }

    /// Stores a signature for an artifact in cosign's layout. `key` comes from [`Key::new`].
    ///
    /// # Panics
    /// Panics if the registry rejects it.
    pub async fn sign(&self, repository: &str, digest: &str, key: &Key) {
        self.put_signature(repository, digest, &payload(digest), key)
            .await;
    }

    /// Stores a signature over any text, like `Registry::sign`.
    ///
    /// # Panics
    /// Panics if the registry rejects it.
    pub async fn put_signature(&self, repository: &str, digest: &str, payload: &[u8], key: &Key) {
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest_of(bytes), "size": bytes.len()});
        let mut layer = part("application/vnd.dev.cosign.simplesigning.v1+json", payload);
        let signature = BASE64.encode(key.sign(payload));
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": part("application/vnd.oci.image.config.v1+json", b"{}"),
            "layers": [layer],
        });
        let tag = format!("{}.sig", digest.replace(':', "-"));
        self.put_manifest(repository, &tag, &manifest, &[b"{}", payload])
            .await;
    }

    /// Signs an artifact in the format of cosign 3: a bundle in a referrer. This registry does not list referrers, so
    /// the index is under a tag.
    ///
    /// # Panics
    /// Panics if the registry rejects it.
    pub async fn attest(&self, repository: &str, digest: &str, statement: &Value, key: &Key) {
        let bundle = bundle(statement, key);
        let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest_of(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": kind,
            "config": part("application/vnd.oci.empty.v1+json", b"{}"),
            "layers": [part(kind, &bundle)],
            "subject": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1},
        });
        let bytes = manifest.to_string();
        let of_manifest = digest_of(bytes.as_bytes());
        self.put_manifest(repository, &of_manifest, &manifest, &[b"{}", &bundle])
            .await;
        let mut referrer = part(
            "application/vnd.oci.image.manifest.v1+json",
            bytes.as_bytes(),
        );
        referrer["artifactType"] = kind.into();
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [referrer],
        });
        self.put_manifest(repository, &digest.replace(':', "-"), &index, &[])
            .await;
    }

    /// Pushes blobs, and then a manifest under a tag or its digest.
    async fn put_manifest(&self, repository: &str, name: &str, manifest: &Value, blobs: &[&[u8]]) {
        let ca = std::fs::read(self.ca()).expect("the CA has been written");
        let ca = reqwest::Certificate::from_pem(&ca).expect("it is a certificate");
        let client = reqwest::Client::builder()
            .add_root_certificate(ca)
            .no_proxy()
            .build();
        let client = client.expect("the client can be set up");
        let base = format!("https://{}/v2/{repository}", self.host());
        let send = async |request: reqwest::RequestBuilder| {
            let response = request.basic_auth("user", Some("secret")).send().await;
            response
                .and_then(reqwest::Response::error_for_status)
                .expect("the registry takes it")
        };
        for blob in blobs {
            let begun = send(client.post(format!("{base}/blobs/uploads/"))).await;
            let at = begun.headers()["location"]
                .to_str()
                .expect("a location is text");
            let mut at = begun.url().join(at).expect("a location is a URL");
            at.query_pairs_mut().append_pair("digest", &digest_of(blob));
            send(client.put(at).body(blob.to_vec())).await;
        }
        let kind = manifest["mediaType"]
            .as_str()
            .expect("a manifest has a type");
        let request = client
            .put(format!("{base}/manifests/{name}"))
            .header("content-type", kind)
            .body(manifest.to_string());
        send(request).await;
    }

    /// Changes stored content under a digest. The registry does not notice this.
    ///
    /// # Panics
    /// Panics if it has nothing under that digest.
    pub fn tamper(&self, digest: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        let hex = digest.trim_start_matches("sha256:");
        let path = self.path(&format!(
            "data/docker/registry/v2/blobs/sha256/{}/{hex}/data",
            &hex[..2]
        ));
        let bytes = std::fs::read(&path).expect("the registry has stored it");
        std::fs::write(path, change(bytes)).expect("a temporary folder can be written to");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_certificate(&self) {
        let fits = "a certificate can be made";
        let authority_key = KeyPair::generate().expect(fits);
        let mut parameters = CertificateParams::new(Vec::new()).expect(fits);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&authority_key).expect(fits);
        let issuer = Issuer::new(parameters, authority_key);
        let key = KeyPair::generate().expect(fits);
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect(fits);
        let leaf = leaf.signed_by(&key, &issuer).expect(fits);
        for (name, text) in [
            ("ca.crt", authority.pem()),
            ("tls.crt", leaf.pem()),
            ("tls.key", key.serialize_pem()),
        ] {
            std::fs::write(self.path(name), text).expect("a temporary folder can be written to");
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A key pair for signatures. openssl makes them, so that the host does not verify its own work.
pub struct Key {
    folder: TempDir,
    /// The hash for its signatures, as openssl names it.
    hash: &'static str,
}

/// Returns cosign's signed text about an artifact.
#[must_use]
pub fn payload(digest: &str) -> Vec<u8> {
    let text = json!({
        "critical": {
            "identity": {"docker-reference": ""},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": null,
    });
    text.to_string().into_bytes()
}

/// Returns the statement that cosign signs about an artifact, or one with another predicate type.
#[must_use]
pub fn statement(digest: &str, predicate_type: &str) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "", "digest": {"sha256": digest.trim_start_matches("sha256:")}}],
        "predicateType": predicate_type,
        "predicate": {},
    })
}

/// Returns a bundle over a statement, as cosign 3 writes it.
fn bundle(statement: &Value, key: &Key) -> Vec<u8> {
    let (kind, payload) = ("application/vnd.in-toto+json", statement.to_string());
    // The lengths and the type are signed with the payload: the pre-authentication encoding of DSSE.
    let signed = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": "tests"}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": BASE64.encode(&payload),
            "payloadType": kind,
            "signatures": [{"sig": BASE64.encode(key.sign(signed.as_bytes()))}],
        },
    });
    bundle.to_string().into_bytes()
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

// === impl Key ===

impl Key {
    /// Creates a key of a kind that `openssl genpkey` knows.
    ///
    /// # Panics
    /// Panics if openssl is missing.
    #[must_use]
    pub fn new(kind: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let key = Self {
            folder,
            hash: "-sha256",
        };
        key.openssl(&[&["genpkey", "-out", "key.pem", "-algorithm"], kind].concat());
        key.openssl(&["pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"]);
        key
    }

    /// Switches to signatures over SHA-384.
    #[must_use]
    pub fn over_sha384(self) -> Self {
        Self {
            hash: "-sha384",
            ..self
        }
    }

    /// Creates an ECDSA P-256 key, as `cosign generate-key-pair` does.
    #[must_use]
    pub fn p256() -> Self {
        Self::new(&["EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
    }

    /// Path of the public key, as PEM.
    #[must_use]
    pub fn public(&self) -> PathBuf {
        self.path("key.pub")
    }

    /// Path of the private key, as PEM.
    #[must_use]
    pub fn private(&self) -> PathBuf {
        self.path("key.pem")
    }

    /// Creates a self-signed certificate for the key, as PEM.
    ///
    /// # Panics
    /// Panics if openssl is missing.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        let subject = ["-subj", "/CN=tests", "-days", "1"];
        let files = ["req", "-x509", "-new", "-key", "key.pem", "-out", "key.crt"];
        self.openssl(&[&files[..], &subject].concat());
        self.path("key.crt")
    }

    /// Signs a text.
    ///
    /// # Panics
    /// Panics if openssl is missing.
    #[must_use]
    pub fn sign(&self, text: &[u8]) -> Vec<u8> {
        std::fs::write(self.path("text"), text).expect("a file can be written");
        self.openssl(&[
            "dgst",
            self.hash,
            "-sign",
            "key.pem",
            "-out",
            "signature",
            "text",
        ]);
        std::fs::read(self.path("signature")).expect("openssl has written it")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(self.folder.path())
            .output();
        let output = output.expect("openssl is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {said}");
    }
}

/// Returns the registry's program, which is built once and kept in the target folder.
fn program() -> Option<PathBuf> {
    let folder = profile_directory().join("go-tools");
    build(&folder, "registry", PROGRAM)
}

/// Builds a program through the Go module proxy. Returns none if Go or the proxy is missing.
fn build(folder: &Path, name: &str, what: &str) -> Option<PathBuf> {
    std::fs::create_dir_all(folder).expect("the target folder can be written to");
    let lock = File::create(folder.join(".lock")).expect("the target folder can be written to");
    lock.lock().expect("a file can be locked");
    let program = folder.join(name);
    if program.is_file() {
        return Some(program);
    }
    match Command::new("go")
        .args(["install", what])
        .env("GOBIN", folder)
        .output()
    {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            left_out(&format!(
                "{what} could not be built, so it was NOT tested against: {reason}"
            ));
            None
        }
        Err(error) => {
            left_out(&format!(
                "{what} was NOT tested against, as `go` does not run ({error}); install Go"
            ));
            None
        }
    }
}
