//! Registries on loopback: the real one, CNCF distribution, and one that misbehaves as it is told.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::binary::profile_directory;

pub mod misbehaving;

/// What is built, and of which version.
const PROGRAM: &str = "github.com/distribution/distribution/v3/cmd/registry@v3.0.0";
/// `user:secret`, as `htpasswd -B` writes it.
const PASSWORDS: &str = "user:$2b$05$7XAhSp8mfv0vupocya6YGu56UwS1hsliZcecn8kYq0mIv6t/4xnKG\n";
const START_LIMIT: Duration = Duration::from_secs(30);

/// CNCF distribution's registry with TLS and basic authentication, until it is dropped.
pub struct Registry {
    folder: TempDir,
    program: PathBuf,
    address: SocketAddr,
    child: Option<Child>,
}

// === impl Registry ===

impl Registry {
    /// Starts one; none where it cannot be had, which is said.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let program = program()?;
        let folder = tempfile::Builder::new()
            .prefix("tollgate-registry-")
            .tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = address.expect("loopback has a free port");
        let registry = Self {
            folder,
            program,
            address,
            child: None,
        };
        registry.write_certificate();
        let write = |name: &str, text: &str| {
            std::fs::write(registry.path(name), text)
                .expect("a temporary folder can be written to");
        };
        write("passwords", PASSWORDS);
        // user:secret
        let auths = format!(r#"{{"auths": {{"{address}": {{"auth": "dXNlcjpzZWNyZXQ="}}}}}}"#);
        write("docker.json", &auths);
        let root = registry.folder.path().display();
        write(
            "registry.yaml",
            &format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {root}/data}}}}\n\
                 http:\n  addr: {address}\n  secret: tests\n  tls: {{certificate: {root}/tls.crt, key: {root}/tls.key}}\n\
                 auth: {{htpasswd: {{realm: tests, path: {root}/passwords}}}}\n"
            ),
        );
        Some(registry.again())
    }

    /// Starts it once more, with what it had.
    ///
    /// # Panics
    /// When it does not start.
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
        self.child = Some(child.expect("the registry can be started"));
        let began = Instant::now();
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(
                began.elapsed() < START_LIMIT,
                "the registry does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Errors mean that it is gone already.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Host and port, as references write them.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The CA to trust it by.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// A config file of docker's that it accepts.
    #[must_use]
    pub fn credentials(&self) -> PathBuf {
        self.path("docker.json")
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

/// The program, built once and kept in the target folder.
fn program() -> Option<PathBuf> {
    let folder = profile_directory().join("go-tools");
    build(&folder, "registry", PROGRAM)
}

/// Builds a program from the Go module proxy; none where there is no Go or no proxy.
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
            eprintln!("SKIPPED: {what} could not be built, so it was NOT tested against: {reason}");
            None
        }
        Err(error) => {
            eprintln!(
                "SKIPPED: {what} was NOT tested against, as `go` does not run ({error}); install Go"
            );
            None
        }
    }
}
