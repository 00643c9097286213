//! The paths of the workspace. All of them come from cargo, and none is guessed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

/// The target that plugins are built for.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// The profile that plugins are built with.
pub(crate) const PLUGIN_PROFILE: &str = "plugin";

/// The workspace that this program is part of.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    guests: Vec<String>,
    plugins: Vec<String>,
}

// === impl Workspace ===

impl Workspace {
    /// Asks cargo for the workspace.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let output = cargo_in(Path::new(env!("CARGO_MANIFEST_DIR")))
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("cannot run cargo")?;
        anyhow::ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata did not print JSON")?;
        let path = |key: &str| {
            let text = metadata[key].as_str();
            text.map(PathBuf::from)
                .with_context(|| format!("cargo metadata does not say `{key}`"))
        };
        let root = path("workspace_root")?;
        Ok(Self {
            target: path("target_directory")?,
            guests: guests(&metadata, &root),
            plugins: guests(&metadata, &root.join("plugins")),
            root,
        })
    }

    /// The folder of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that cargo builds into.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The packages that can be built as plugins.
    pub(crate) fn guests(&self) -> &[String] {
        &self.guests
    }

    /// The packages of the folder `plugins/`. The name of a package may differ from that of its folder.
    pub(crate) fn plugins(&self) -> &[String] {
        &self.plugins
    }

    /// Path of a package's built plugin.
    pub(crate) fn guest_file(&self, package: &str) -> PathBuf {
        let name = format!("{}.wasm", package.replace('-', "_"));
        self.target.join(WASM).join(PLUGIN_PROFILE).join(name)
    }

    /// Creates a cargo command in the workspace.
    pub(crate) fn cargo(&self) -> Command {
        cargo_in(&self.root)
    }

    /// Creates a command for a program that cargo built, with the variables that cargo sets for it.
    pub(crate) fn program(&self, program: &Path, package: &Path) -> Command {
        let mut command = Command::new(program);
        without_own_variables(&mut command);
        command
            .current_dir(package)
            .env("CARGO", cargo_program())
            .env("CARGO_MANIFEST_DIR", package)
            .env("CARGO_MANIFEST_PATH", package.join("Cargo.toml"));
        command
    }

    /// Shortens a path relative to the workspace's folder.
    pub(crate) fn shown<'p>(&self, path: &'p Path) -> std::path::Display<'p> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

/// Returns the packages below a folder that have a `cdylib`, because all of these are plugins.
fn guests(metadata: &Value, folder: &Path) -> Vec<String> {
    let is_below = |package: &&Value| {
        let manifest = package["manifest_path"].as_str();
        manifest.is_some_and(|manifest| Path::new(manifest).starts_with(folder))
    };
    let is_guest = |package: &&Value| {
        let mut targets = package["targets"].as_array().into_iter().flatten();
        targets.any(|target| {
            let kinds = target["kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"))
        })
    };
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names = packages
        .filter(is_guest)
        .filter(is_below)
        .filter_map(|package| package["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Creates a command for the cargo that runs this program.
fn cargo_in(folder: &Path) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(folder);
    without_own_variables(&mut command);
    command
}

fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Removes this package's variables from the environment, because they would make other packages' build scripts run
/// again.
fn without_own_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let about_this_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if about_this_package {
            command.env_remove(name);
        }
    }
}
