//! `cargo xtask image`: builds the image of the host.
//!
//! The image has one layer with a static binary, the plugins of `plugins/`, the CAs of public registries and the names of
//! two users. Nothing in it depends on the time or the folder of the build: the same sources, compiler and CAs give the
//! same digest.

pub(crate) mod elf;
pub(crate) mod layout;
pub(crate) mod tar;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

use self::layout::Contents;
use self::tar::Tar;
use crate::workspace::{PLUGIN_PROFILE, WASM, Workspace};
use crate::{cargo, terminal, toolchain};

/// Where rustls and most other programs look for the CAs of public registries.
const CAS: &str = "etc/ssl/certs/ca-certificates.crt";

const PASSWD: &str = "root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";

/// Build the image of the host as an OCI layout, and as an archive for docker, podman, containerd and kind.
///
/// Compiles a static binary, which takes some fifteen minutes on two processors the first time. Installs the target with
/// rustup, and musl's compiler with apt-get when running as root on Debian. `SOURCE_DATE_EPOCH` sets the time of the
/// image; the default is that of the last commit.
#[derive(Args, Debug)]
pub(crate) struct Image {
    /// Target to compile for. aarch64-unknown-linux-musl is not tested.
    #[arg(long, default_value = "x86_64-unknown-linux-musl")]
    target: String,
    /// Package this static binary instead of compiling one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// PEM file with the CAs of public registries.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    ca_certificates: PathBuf,
    /// Folder for the OCI layout `layout` and the archive `image.tar` (default: image in the target folder).
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Name of the image. Its tag is the version.
    #[arg(long, default_value = "localhost/tollgate")]
    name: String,
}

// === impl Image ===

impl Image {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let architecture = architecture(&self.target)?;
        let time = source_date(&workspace)?;
        let build = Build::new(&workspace, time)?;
        let plugins = build.plugins()?;
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => build.host(&self.target)?,
        };
        let program = read(&binary)?;
        elf::ensure_static(&program).with_context(|| binary.display().to_string())?;
        let cas = read(&self.ca_certificates)?;
        let contents = Contents {
            name: format!("{}:{}", self.name, env!("CARGO_PKG_VERSION")),
            version: env!("CARGO_PKG_VERSION"),
            architecture,
            time,
            layer: root(&program, &plugins, &cas, time)?,
        };
        let output = self
            .output
            .unwrap_or_else(|| workspace.target().join("image"));
        let digest = contents.write(&output)?;
        let shown = |name: &str| workspace.shown(&output.join(name)).to_string();
        println!("  {} ({architecture})", contents.name);
        println!("  manifest  {digest}");
        println!("  binary    {} MB", program.len() / 1_000_000);
        println!("  layout    {}", shown("layout"));
        println!("  archive   {}", shown("image.tar"));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the name of the architecture in an image.
pub(crate) fn architecture(target: &str) -> anyhow::Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => anyhow::bail!("no image is known for {target}: expected x86_64-… or aarch64-…"),
    }
}

/// The root file system of the image.
pub(crate) fn root(
    program: &[u8],
    plugins: &Plugins,
    cas: &[u8],
    time: u64,
) -> anyhow::Result<Vec<u8>> {
    let mut root = Tar::new(time);
    for folder in ["etc/", "etc/ssl/", "etc/ssl/certs/"] {
        root.folder(folder, 0o755)?;
    }
    root.file("etc/group", 0o644, GROUP.as_bytes())?;
    root.file("etc/passwd", 0o644, PASSWD.as_bytes())?;
    root.file(CAS, 0o644, cas)?;
    root.folder("plugins/", 0o755)?;
    for (name, plugin) in plugins {
        root.file(&format!("plugins/{name}"), 0o644, plugin)?;
    }
    root.folder("tmp/", 0o1777)?;
    root.file("tollgate", 0o755, program)?;
    Ok(root.finish())
}

/// The bytes of plugins by the names of their files.
pub(crate) type Plugins = BTreeMap<String, Vec<u8>>;

/// Compiles what is in the image. The paths of this machine are not in it.
pub(crate) struct Build<'w> {
    workspace: &'w Workspace,
    into: PathBuf,
    time: u64,
    /// Paths of this machine, and what replaces them.
    maps: [(String, &'static str); 3],
}

// === impl Build ===

impl<'w> Build<'w> {
    pub(crate) fn new(workspace: &'w Workspace, time: u64) -> anyhow::Result<Self> {
        let root = workspace.root().display().to_string();
        let home = cargo_home()?.display().to_string();
        let into = workspace.target().join("image-build");
        // Generated code names its file in this folder, which may be outside of the workspace. The last match counts.
        let built = into.display().to_string();
        Ok(Self {
            workspace,
            into,
            time,
            maps: [(root, "/tollgate"), (home, "/cargo"), (built, "/build")],
        })
    }

    /// Compiles the host.
    pub(crate) fn host(&self, target: &str) -> anyhow::Result<PathBuf> {
        let mut command = self.host_command(target)?;
        terminal::paragraph("  ", &format!("compiling for {target}"));
        cargo::run(&mut command)?;
        Ok(self.host_file(target))
    }

    /// The command that compiles the host. Installs what it needs.
    pub(crate) fn host_command(&self, target: &str) -> anyhow::Result<Command> {
        toolchain::ensure_target(target)?;
        let compiler = compiler(target)?;
        let name = target.replace('-', "_");
        let flags = self
            .maps
            .iter()
            .map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
        let flags: Vec<String> = flags.collect();
        let mut command = self.cargo(target, "release");
        command
            .args(["-p", "tollgate-cli", "--bin", "tollgate"])
            .env(format!("CC_{name}"), compiler)
            .env(format!("CFLAGS_{name}"), flags.join(" "));
        if target.starts_with("aarch64") {
            let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
            command.env(linker, compiler);
        }
        Ok(command)
    }

    /// The program that [`Self::host_command`] compiles.
    pub(crate) fn host_file(&self, target: &str) -> PathBuf {
        self.into.join(target).join("release/tollgate")
    }

    /// Compiles the plugins of `plugins/`.
    pub(crate) fn plugins(&self) -> anyhow::Result<Plugins> {
        toolchain::ensure_wasm_target()?;
        let mut command = self.cargo(WASM, PLUGIN_PROFILE);
        let packages = self.workspace.plugins();
        for package in packages {
            command.args(["-p", package]);
        }
        terminal::paragraph("  ", "compiling the plugins");
        cargo::run(&mut command)?;
        let built = self.into.join(WASM).join(PLUGIN_PROFILE);
        let plugin = |package: &String| -> anyhow::Result<(String, Vec<u8>)> {
            let name = format!("{}.wasm", package.replace('-', "_"));
            let bytes = read(&built.join(&name))?;
            Ok((name, bytes))
        };
        packages.iter().map(plugin).collect()
    }

    fn cargo(&self, target: &str, profile: &str) -> Command {
        let maps = self.maps.iter();
        let maps = maps.map(|(from, to)| format!("\"--remap-path-prefix={from}={to}\""));
        let maps: Vec<String> = maps.collect();
        // Cargo adds these flags to those of `.cargo/config.toml`. Flags in the environment would replace both.
        let flags = format!("target.{target}.rustflags=[{}]", maps.join(","));
        let mut command = self.workspace.cargo();
        command
            .args(["build", "--locked", "--profile", profile])
            .args(["--target", target, "--config", &flags])
            .env("CARGO_TARGET_DIR", &self.into)
            .env("CARGO_INCREMENTAL", "0")
            .env("SOURCE_DATE_EPOCH", self.time.to_string())
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }
}

/// Returns the C compiler of a target.
fn compiler(target: &str) -> anyhow::Result<&'static str> {
    let (compiler, package) = if target.starts_with("aarch64") {
        ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
    } else {
        ("musl-gcc", "musl-tools")
    };
    anyhow::ensure!(
        toolchain::ensure_command(compiler, package),
        "the C compiler {compiler} is not installed: install it (Debian: {package}) and run this again"
    );
    Ok(compiler)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    home("CARGO_HOME")
        .or_else(|| Some(home("HOME")?.join(".cargo")))
        .context("cargo's folder is not known: set CARGO_HOME")
}

/// Returns the time of the image in seconds since 1970.
pub(crate) fn source_date(workspace: &Workspace) -> anyhow::Result<u64> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return given.parse().with_context(|| {
            format!("SOURCE_DATE_EPOCH is `{given}`: expected seconds since 1970")
        });
    }
    let git = Command::new("git")
        .current_dir(workspace.root())
        .args(["log", "-1", "--format=%ct"])
        .output();
    let committed = git.ok().and_then(|output| {
        let text = String::from_utf8(output.stdout).ok()?;
        text.trim().parse().ok()
    });
    // Sources without a history still give one digest.
    Ok(committed.unwrap_or(0))
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_the_names_of_images() {
        assert_eq!(architecture("x86_64-unknown-linux-musl").unwrap(), "amd64");
        assert_eq!(architecture("aarch64-unknown-linux-musl").unwrap(), "arm64");
        assert!(architecture("wasm32-unknown-unknown").is_err());
    }

    #[test]
    fn equal_parts_give_equal_images() {
        let folder = tempfile::tempdir().unwrap();
        let plugins = Plugins::from([("a.wasm".to_owned(), vec![1, 2, 3])]);
        let digest = |name: &str, program: &[u8]| {
            let contents = Contents {
                name: "localhost/tollgate:1".to_owned(),
                version: "1",
                architecture: "amd64",
                time: 1_700_000_000,
                layer: root(program, &plugins, b"CAs", 1_700_000_000).unwrap(),
            };
            contents.write(&folder.path().join(name)).unwrap()
        };
        assert_eq!(digest("a", b"program"), digest("b", b"program"));
        assert_ne!(digest("a", b"program"), digest("c", b"other"));
        let archive = |name: &str| std::fs::read(folder.path().join(name).join("image.tar"));
        assert_eq!(archive("a").unwrap(), archive("b").unwrap());
    }
}
