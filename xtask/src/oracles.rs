//! `cargo xtask oracles`: records signatures of the real cosign, which the tests replay.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::terminal;
use crate::workspace::Workspace;

/// Record signatures of the real cosign.
///
/// Builds cosign 2.6 and 3 through the Go module proxy, which takes some minutes the first time, and keeps both in the
/// target folder. Signs a digest with each of them, with a key of each kind and in each format that goes to a file, and
/// attests an SBOM. Writes the results to a file of `host/oci`, which the tests replay. Needs Go and openssl. No signature
/// leaves this machine.
#[derive(Args, Debug)]
pub(crate) struct Oracles {}

/// A version of cosign.
struct Cosign {
    name: &'static str,
    package: &'static str,
    /// The flags that keep it offline.
    offline: &'static [&'static str],
    /// Whether it writes bundles to a file. cosign 2 writes them to a registry only.
    writes_bundles: bool,
}

const COSIGNS: [Cosign; 2] = [
    Cosign {
        name: "cosign 2.6.5",
        package: "github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5",
        offline: &["--tlog-upload=false"],
        writes_bundles: false,
    },
    Cosign {
        name: "cosign 3.1.3",
        package: "github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3",
        offline: &["--tlog-upload=false", "--use-signing-config=false"],
        writes_bundles: true,
    },
];

/// The kinds of keys, as `openssl genpkey` makes them.
const KEYS: [(&str, &[&str]); 4] = [
    ("p256", &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]),
    ("p384", &["EC", "-pkeyopt", "ec_paramgen_curve:P-384"]),
    ("ed25519", &["ED25519"]),
    ("rsa", &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
];

/// The digest that the tests expect.
const DIGEST: &str = "sha256:6709a7cac516f66eaafca9072c7eea2de1217ef62cb4f2043080c803b464ffa8";
/// The annotation that binds a bundle to a repository.
const ANNOTATION: &str = "dev.tollgate.repository=registry.example.com/policies/guard";
const RECORDED: &str = "host/oci/src/signature/tests/recorded.json";

// === impl Oracles ===

impl Oracles {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let tools = workspace.target().join("oracles");
        let folder = tools.join("signatures");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).context("cannot remove the earlier signatures")?;
        }
        std::fs::create_dir_all(&folder).context("cannot create a folder for signatures")?;
        let registry = empty_registry()?;
        let artifact = format!("{registry}/policies/guard@{DIGEST}");
        let mut recorded = Vec::new();
        for cosign in &COSIGNS {
            let program = cosign.program(&tools)?;
            for (key, kind) in KEYS {
                terminal::paragraph("  ", &format!("{}: signing with {key}", cosign.name));
                let key = Key::create(&folder, key, kind, &program)?;
                recorded.extend(cosign.signatures(&program, &key, &artifact)?);
            }
        }
        let path = workspace.root().join(RECORDED);
        std::fs::write(&path, format!("{:#}\n", Value::from(recorded)))
            .with_context(|| format!("cannot write {}", path.display()))?;
        terminal::paragraph("", &format!("wrote {RECORDED}"));
        Ok(ExitCode::SUCCESS)
    }
}

// === impl Cosign ===

impl Cosign {
    /// Builds the program, unless it was built before.
    fn program(&self, tools: &Path) -> anyhow::Result<PathBuf> {
        let folder = tools.join(self.name.replace(' ', "-"));
        let program = folder.join("cosign");
        if program.is_file() {
            return Ok(program);
        }
        terminal::paragraph("  ", &format!("building {} (minutes)", self.package));
        let mut build = Command::new("go");
        build
            .args(["install", self.package])
            .env("GOBIN", &folder)
            .env("CGO_ENABLED", "0");
        run(&mut build)?;
        Ok(program)
    }

    /// Signs in each format, and attests an SBOM.
    fn signatures(&self, program: &Path, key: &Key, artifact: &str) -> anyhow::Result<Vec<Value>> {
        let private = format!("{}.key", key.name);
        let cosign = |arguments: &[&str]| {
            let mut command = Command::new(program);
            command
                .current_dir(&key.folder)
                .env("COSIGN_PASSWORD", "")
                .args(arguments)
                .args(["--key", &private, "-y"])
                .args(self.offline)
                .arg(artifact);
            run(&mut command)
        };
        let read = |name: &str| {
            std::fs::read_to_string(key.folder.join(name))
                .with_context(|| format!("{} has not written {name}", self.name))
        };
        let record = |form: &str, layer: String| {
            json!({
                "tool": self.name, "key": key.name, "form": form, "publicKey": key.public, "layer": layer,
            })
        };
        let sign = ["sign", "--upload=false"];
        let tag = ["--new-bundle-format=false", "--output-payload", "payload"];
        let output = ["--output-signature", "signature"];
        cosign(&[&sign[..], &tag, &output].concat())?;
        let mut signature = record("tag", read("payload")?);
        signature["signature"] = read("signature")?.trim().into();
        let mut recorded = vec![signature];
        if self.writes_bundles {
            cosign(&[&sign[..], &["--bundle", "bundle", "-a", ANNOTATION]].concat())?;
            recorded.push(record("bundle", read("bundle")?));
            let bom = r#"{"bomFormat":"CycloneDX","specVersion":"1.5"}"#;
            std::fs::write(key.folder.join("bom.json"), bom)?;
            let attest = ["attest", "--no-upload", "--type", "cyclonedx"];
            cosign(
                &[
                    &attest[..],
                    &["--predicate", "bom.json", "--bundle", "sbom"],
                ]
                .concat(),
            )?;
            recorded.push(record("sbom", read("sbom")?));
        }
        Ok(recorded)
    }
}

/// A key in a folder of its own.
struct Key {
    name: &'static str,
    folder: PathBuf,
    public: String,
}

// === impl Key ===

impl Key {
    fn create(
        folder: &Path,
        name: &'static str,
        kind: &[&str],
        cosign: &Path,
    ) -> anyhow::Result<Self> {
        let folder = tempfile_in(folder, name)?;
        let mut openssl = Command::new("openssl");
        openssl
            .args(["genpkey", "-out", "key.pem", "-algorithm"])
            .args(kind)
            .current_dir(&folder);
        run(&mut openssl)?;
        let mut import = Command::new(cosign);
        import
            .args([
                "import-key-pair",
                "--key",
                "key.pem",
                "-y",
                "--output-key-prefix",
                name,
            ])
            .env("COSIGN_PASSWORD", "")
            .current_dir(&folder);
        run(&mut import)?;
        let public = std::fs::read_to_string(folder.join(format!("{name}.pub")))?;
        Ok(Self {
            name,
            folder,
            public,
        })
    }
}

/// Creates a folder that did not exist before.
fn tempfile_in(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let mut number = 0;
    loop {
        let path = folder.join(format!("{name}-{number}"));
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error).context("cannot create a folder for a key"),
        }
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} failed: {}", said.trim());
    Ok(())
}

/// Starts a registry on loopback that has nothing. cosign asks whether the artifact exists, and signs it nevertheless.
/// The registry ends with the process.
fn empty_registry() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone needs no answer.
            drop(answer(&stream));
        }
    });
    Ok(address)
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let status = match request.starts_with("GET /v2/ ") {
        true => "200 OK",
        false => "404 Not Found",
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}
