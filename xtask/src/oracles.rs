//! `cargo xtask oracles`: records answers of cosign, python-tuf and OPA, which the tests replay, and compares Tollgate with
//! OPA.

pub(crate) mod opa;

mod registries;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::terminal;
use crate::workspace::Workspace;

/// Record answers of cosign, python-tuf and OPA, and compare the plugin `rego` with OPA.
///
/// Builds cosign 2.6 and 3 and the CNCF's registry through the Go module proxy, which takes some minutes the first time, and
/// keeps them in $XDG_CACHE_HOME/tollgate/oracles (~/.cache/tollgate/oracles). Signs with each of them, with a key of each
/// kind and in each format, to files and to two registries on loopback, and attests an SBOM. Writes the results to files of
/// `host/oci`, which the tests replay. Needs Go and openssl. No signature leaves this machine.
///
/// Installs python-tuf from PyPI, and writes a TUF repository with it to a file of `host/oci`. Needs Python.
///
/// Builds OPA in the same way. Evaluates random objects with each template of Gatekeeper's library, with OPA and with
/// the plugin `rego` as a native library, and prints a table and an example of each difference. Fails on a difference
/// that docs/reference/rego.md does not explain. Writes the answers for a smaller set to a file of `plugins/rego`, which
/// the tests replay.
#[derive(Args, Debug)]
pub(crate) struct Oracles {
    /// Ask only this oracle.
    #[arg(long, value_enum)]
    only: Option<Oracle>,
    /// Number of random objects for each template.
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000)]
    objects: u32,
    /// Seed of the random objects.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// A program whose answers count as right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Oracle {
    Cosign,
    Opa,
    Tuf,
}

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
const RECORDED_REPOSITORY: &str = "host/oci/src/tuf/tests/python-tuf.json";
const PYTHON_TUF: [&str; 2] = ["tuf==6.0.0", "securesystemslib[crypto]==1.6.0"];
const RECORDED_REGISTRIES: &str = "host/oci/src/signature/tests/registries.json";

// === impl Oracles ===

impl Oracles {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let asks = |oracle| self.only.is_none_or(|only| only == oracle);
        if asks(Oracle::Opa) {
            opa::compare(&workspace, self.objects, self.seed)?;
        }
        if asks(Oracle::Cosign) {
            record_signatures(&workspace)?;
        }
        if asks(Oracle::Tuf) {
            record_repository(&workspace)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a TUF repository with python-tuf to the file that the tests replay.
fn record_repository(workspace: &Workspace) -> anyhow::Result<()> {
    let environment = registries::tools()?.join("python-tuf-6.0.0");
    let python = environment.join("bin/python");
    if !python.is_file() {
        run(Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment))?;
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet"])
            .args(PYTHON_TUF))?;
    }
    let script = workspace.root().join("xtask/src/oracles/tuf_repository.py");
    let output = Command::new(&python)
        .arg(&script)
        .output()
        .context("cannot run python-tuf")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "python-tuf failed: {}",
        said.trim()
    );
    let path = workspace.root().join(RECORDED_REPOSITORY);
    std::fs::write(&path, output.stdout)
        .with_context(|| format!("cannot write {}", path.display()))?;
    terminal::paragraph("", &format!("wrote {RECORDED_REPOSITORY}"));
    Ok(())
}

/// Signs with each cosign, and writes the signatures to the file that the tests replay.
fn record_signatures(workspace: &Workspace) -> anyhow::Result<()> {
    let tools = registries::tools()?;
    let folder = workspace.target().join("oracles");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("cannot remove the earlier signatures")?;
    }
    std::fs::create_dir_all(&folder).context("cannot create a folder for signatures")?;
    let registry = empty_registry()?;
    let artifact = format!("{registry}/policies/guard@{DIGEST}");
    let (mut recorded, mut answers) = (Vec::new(), Vec::new());
    let registries = registries::start(workspace, &tools)?;
    for cosign in &COSIGNS {
        let program = cosign.program(&tools)?;
        for (key, kind) in KEYS {
            terminal::paragraph("  ", &format!("{}: signing with {key}", cosign.name));
            let key = Key::create(&folder, key, kind, &program)?;
            recorded.extend(cosign.signatures(&program, &key, &artifact)?);
            for registry in &registries {
                answers.extend(registry.record(cosign, &program, &key)?);
            }
        }
    }
    for (name, recorded) in [(RECORDED, recorded), (RECORDED_REGISTRIES, answers)] {
        let path = workspace.root().join(name);
        std::fs::write(&path, format!("{:#}\n", Value::from(recorded)))
            .with_context(|| format!("cannot write {}", path.display()))?;
        terminal::paragraph("", &format!("wrote {name}"));
    }
    Ok(())
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
        run(&mut go_install(self.package, &folder))?;
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

/// A command that builds a program into a folder, without delaying other work.
fn go_install(package: &str, folder: &Path) -> Command {
    let mut build = Command::new("nice");
    build.args(["-n", "10", "go", "install", "-trimpath", package]);
    build.env("GOBIN", folder).env("CGO_ENABLED", "0");
    build
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
