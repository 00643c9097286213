//! `cargo xtask release`: builds everything that a release has.
//!
//! ```text
//! sources ─▶ static binary, plugins, CAs
//!   → tollgate-VERSION-linux-ARCH.tar.gz        the binary and the licence
//!   → tollgate-VERSION-linux-ARCH.image.tar     the image as an OCI layout
//!   → plugins/NAME-VERSION.oci.tar              each plugin as `tollgate push` publishes it
//!   → tollgate-VERSION.tgz, …-manifests.tar.gz  the chart and the plain manifests
//!   → tollgate-VERSION.cdx.json, .spdx.json     the bill of materials
//!   → tollgate-VERSION.provenance.json          SLSA provenance of all files above
//!   → SHA256SUMS
//! ```
//!
//! The same sources, compilers and CAs give the same bytes. Signatures with an Ed25519 key do, too.

mod artifact;
mod assemble;
mod crates;
mod intake;
mod package;
mod provenance;
mod sbom;
mod sign;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

use self::assemble::Parts;
use self::crates::Crates;
use self::intake::Intake;
use self::sign::Key;
use crate::image::{self, Plugins, elf};
use crate::workspace::{WASM, Workspace};
use crate::{terminal, toolchain};

/// Build everything that a release has: binary, image, chart, manifests, plugins, SBOMs, provenance and checksums.
///
/// Compiles as `cargo xtask image` does, and needs a work tree without changes. `SOURCE_DATE_EPOCH` sets all times; the
/// default is that of the last commit. Runs the binary to push the plugins to a registry on loopback.
#[derive(Args, Debug)]
pub(crate) struct Release {
    /// Target to compile for.
    #[arg(long, default_value = "x86_64-unknown-linux-musl")]
    target: String,
    /// Package this static binary instead of compiling one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Take the plugins from this folder instead of compiling them.
    #[arg(long, value_name = "FOLDER")]
    plugins: Option<PathBuf>,
    /// A tollgate that runs on this machine [default: the packaged binary]
    #[arg(long, value_name = "FILE")]
    tollgate: Option<PathBuf>,
    /// PEM file with the CAs of public registries.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    ca_certificates: PathBuf,
    /// Folder for the files (default: release in the target folder). It must be empty or missing.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// PEM file with an unencrypted private key, Ed25519 or ECDSA P-256, that signs image, plugins and provenance.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Registry and path under which the artifacts will be published. Signatures name the repositories below it.
    #[arg(long, value_name = "REGISTRY/PATH", requires = "key")]
    publish_to: Option<String>,
    /// URI of the builder in the provenance.
    #[arg(
        long,
        value_name = "URI",
        default_value = concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/by-hand")
    )]
    builder: String,
    /// Build although the work tree has changes. The provenance then names a commit that does not have them.
    #[arg(long)]
    allow_changes: bool,
}

/// The facts that a release states about itself.
#[derive(Clone, Debug)]
struct Facts {
    version: String,
    target: String,
    /// Architecture, as images name it.
    architecture: &'static str,
    /// Seconds since 1970.
    time: u64,
    /// The commit of the sources.
    commit: String,
    /// The version of the Rust compiler.
    rust: String,
    /// URI of the builder.
    builder: String,
}

// === impl Release ===

impl Release {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let facts = self.facts(&workspace)?;
        let output = self.output.clone();
        let output = output.unwrap_or_else(|| workspace.target().join("release-files"));
        ensure_empty(&output)?;
        let key = self.key.as_deref().map(Key::read).transpose()?;
        let build = image::Build::new(&workspace, facts.time)?;
        let plugins = match &self.plugins {
            Some(folder) => plugins_in(folder, workspace.plugins())?,
            None => build.plugins()?,
        };
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => build.host(&self.target)?,
        };
        let program = image::read(&binary)?;
        elf::ensure_static(&program).with_context(|| binary.display().to_string())?;
        elf::ensure_stripped(&program).with_context(|| binary.display().to_string())?;
        let host = Crates::of(&workspace, &["tollgate-cli"], &self.target)?;
        let named = host.ensure_names_of(&program)?;
        let packages: Vec<&str> = workspace.plugins().iter().map(String::as_str).collect();
        let guests = Crates::of(&workspace, &packages, WASM)?;
        terminal::paragraph("  ", "pushing the plugins to a registry on loopback");
        let artifacts = push(
            self.tollgate.as_deref().unwrap_or(&binary),
            &plugins,
            &facts,
        )?;
        let parts = Parts {
            facts: &facts,
            program: &program,
            plugins: &plugins,
            cas: &image::read(&self.ca_certificates)?,
            artifacts: &artifacts,
            host: &host,
            guests: &guests,
            root: workspace.root(),
        };
        let files = parts.assemble(key.as_ref(), self.publish_to.as_deref())?;
        for (name, bytes) in &files {
            image::layout::write_file(&output.join(name), bytes)?;
        }
        println!(
            "  tollgate {} ({}), commit {}",
            facts.version, facts.architecture, facts.commit
        );
        println!("  files     {}", workspace.shown(&output));
        println!(
            "  crates    {} in the binary, {named} of them named in it",
            host.all.len()
        );
        println!(
            "  SHA256SUMS {}",
            image::layout::digest(&files[assemble::SUMS])
        );
        Ok(ExitCode::SUCCESS)
    }

    fn facts(&self, workspace: &Workspace) -> anyhow::Result<Facts> {
        let git = |arguments: &[&str]| -> anyhow::Result<String> {
            let output = Command::new("git")
                .current_dir(workspace.root())
                .args(arguments)
                .output();
            let output = output.context("cannot run git")?;
            anyhow::ensure!(
                output.status.success(),
                "git {} failed: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let changes = git(&["status", "--porcelain"])?;
        anyhow::ensure!(
            changes.is_empty() || self.allow_changes,
            "the work tree has changes, and the provenance would name a commit without them: commit them, or give \
             --allow-changes to try a release"
        );
        let rust = toolchain::rustc_version()?;
        Ok(Facts {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: self.target.clone(),
            architecture: image::architecture(&self.target)?,
            time: image::source_date(workspace)?,
            commit: git(&["rev-parse", "HEAD"])?,
            rust: rust.split(' ').nth(1).unwrap_or(&rust).to_owned(),
            builder: self.builder.clone(),
        })
    }
}

/// Checks that a folder has no files, which could look as if they were of this release.
fn ensure_empty(folder: &Path) -> anyhow::Result<()> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", folder.display())),
        Ok(mut entries) => {
            anyhow::ensure!(
                entries.next().is_none(),
                "{} has files: remove it, or give another --output",
                folder.display()
            );
            Ok(())
        }
    }
}

/// Reads plugins that were built before.
fn plugins_in(folder: &Path, packages: &[String]) -> anyhow::Result<Plugins> {
    let plugin = |package: &String| {
        let name = format!("{}.wasm", package.replace('-', "_"));
        let bytes = image::read(&folder.join(&name))?;
        Ok((name, bytes))
    };
    packages.iter().map(plugin).collect()
}

/// Pushes each plugin with a tollgate, and returns the artifacts by the names of the plugins.
fn push(tollgate: &Path, plugins: &Plugins, facts: &Facts) -> anyhow::Result<assemble::Artifacts> {
    let intake = Intake::start()?;
    let folder = std::env::temp_dir().join(format!("tollgate-release-{}", std::process::id()));
    let pushed = plugins.iter().map(|(file, bytes)| {
        let name = file.trim_end_matches(".wasm").replace('_', "-");
        // The folder has no project beside the plugin, whose annotations would depend on it.
        image::layout::write_file(&folder.join(file), bytes)?;
        let repository = format!("plugins/{name}");
        let mut command = Command::new(tollgate);
        command.arg("push").arg(folder.join(file));
        command.arg(format!(
            "oci://{}/{repository}:{}",
            intake.host(),
            facts.version
        ));
        command.args(["--plain-http", "--license", "Apache-2.0"]);
        command.args([
            "--source",
            env!("CARGO_PKG_REPOSITORY"),
            "--revision",
            &facts.commit,
        ]);
        let output = command.output();
        let output = output.with_context(|| format!("cannot run {}", tollgate.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        anyhow::ensure!(
            output.status.success() && !said.contains("the host rejects the plugin"),
            "cannot push {file}: {}{said}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok((name, intake.artifact(&repository)?))
    });
    let pushed = pushed.collect();
    // The folder is of this process alone, and the next one has another name.
    drop(std::fs::remove_dir_all(&folder));
    pushed
}
