//! Rust: cargo builds a core module with the WIT embedded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

use super::sdk::{self, Sdk};
use super::{Built, Language, Pipeline, Template, last_lines};
use crate::terminal::{FAINT, tell};

/// Rust with the SDK, for `wasm32-unknown-unknown`.
pub(super) struct Rust;

const TARGET: &str = "wasm32-unknown-unknown";
static TEMPLATE: Template = Template {
    files: &[
        ("Cargo.toml", include_str!("rust/Cargo.toml.template")),
        (
            ".cargo/config.toml",
            include_str!("rust/config.toml.template"),
        ),
        (".gitignore", include_str!("rust/gitignore.template")),
    ],
    sample: &[
        (
            "src/lib.rs",
            include_str!("../../../../languages/rust/trusted-registries/src/lib.rs"),
        ),
        (
            "src/image.rs",
            include_str!("../../../../languages/rust/trusted-registries/src/image.rs"),
        ),
    ],
    empty: &[("src/lib.rs", include_str!("empty/lib.rs.template"))],
    unit_tests: "cargo test                          # the policy, without WebAssembly",
    fuel: 30_000,
    pipeline: Pipeline {
        github: "      - run: rustup target add wasm32-unknown-unknown\n",
        debian: "    - rustup target add wasm32-unknown-unknown",
        unit_tests: Some("cargo test"),
    },
};

// === impl Rust ===

impl Language for Rust {
    fn name(&self) -> &'static str {
        "rust"
    }

    fn marker(&self) -> &'static str {
        "Cargo.toml"
    }

    fn template(&self) -> &'static Template {
        &TEMPLATE
    }

    fn sdk(&self) -> &'static Sdk {
        &sdk::RUST
    }

    fn is_policy(&self, folder: &Path) -> bool {
        let manifest = std::fs::read_to_string(folder.join(self.marker()));
        manifest.is_ok_and(|text| text.contains("[package]") && text.contains("cdylib"))
    }

    fn build(&self, folder: &Path, _: &Path) -> anyhow::Result<Built> {
        check_target(folder)?;
        let manifest = folder.join("Cargo.toml");
        let Package { name, workspace } = Package::read(&manifest)?;
        tell!("{FAINT}$ cargo build --release --target {TARGET}{FAINT:#}");
        let output = cargo()
            .args([
                "build",
                "--release",
                "--target",
                TARGET,
                "--message-format",
                "json-render-diagnostics",
                "--manifest-path",
            ])
            .arg(&manifest)
            // cargo reads the project's `.cargo/config.toml` only when it runs in the project's folder.
            .current_dir(folder)
            .stderr(Stdio::inherit())
            .output()
            .map_err(no_cargo)?;
        ensure!(
            output.status.success(),
            "`cargo build` failed with {}; see its output above",
            output.status
        );
        let file = artifact(&output.stdout, &manifest).ok_or_else(|| {
            anyhow!("cargo built {name}, but no .wasm file: add `[lib] crate-type = [\"cdylib\", \"rlib\"]` to its Cargo.toml")
        })?;
        let mut inputs = dependencies(&file);
        inputs.extend(["Cargo.toml", "Cargo.lock"].map(|name| workspace.join(name)));
        Ok(Built { name, file, inputs })
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn no_cargo(error: std::io::Error) -> anyhow::Error {
    anyhow!(error).context("cannot run cargo; install Rust from https://rustup.rs")
}

/// Checks that the compiler has the target's standard library. rustc is asked, because the library can be installed in
/// several ways.
fn check_target(folder: &Path) -> anyhow::Result<()> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(folder)
        .output()
        .context("cannot run rustc; install Rust from https://rustup.rs")?;
    let folder = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(folder.trim()).is_dir() {
        return Ok(());
    }
    bail!(
        "Rust's target {TARGET} is not installed: run `rustup target add {TARGET}`, or without rustup install your \
         distribution's package for it (Debian: libstd-rust-dev-wasm32)"
    )
}

/// The parts of a package's metadata that a build needs.
struct Package {
    name: String,
    /// Folder of the workspace, which has the profiles and the lock file. It may be the package's own folder.
    workspace: PathBuf,
}

// === impl Package ===

impl Package {
    fn read(manifest: &Path) -> anyhow::Result<Self> {
        let output = cargo()
            .args([
                "metadata",
                "--no-deps",
                "--format-version",
                "1",
                "--manifest-path",
            ])
            .arg(manifest)
            .output()
            .map_err(no_cargo)?;
        ensure!(
            output.status.success(),
            "cargo cannot read {}:\n  {}",
            manifest.display(),
            last_lines(&output.stderr, 10)
        );
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .context("cannot parse the output of `cargo metadata`")?;
        let wanted = std::fs::canonicalize(manifest)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let mut own = packages.filter(|package| is_at(&package["manifest_path"], &wanted));
        let name = own.find_map(|package| package["name"].as_str());
        let name = name.ok_or_else(|| {
            anyhow!(
                "{}: a workspace without a root package; name the folder of the policy",
                manifest.display()
            )
        })?;
        let workspace = metadata["workspace_root"].as_str().unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            workspace: PathBuf::from(workspace),
        })
    }
}

/// Lists the files that cargo read for an artifact, from the file that cargo writes beside it for `make`. They are the
/// sources of the package and of its dependencies by path, and the files that these include. Generated files are left
/// out.
fn dependencies(artifact: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(artifact.with_extension("d")).unwrap_or_default();
    // The artifact is in TARGET/wasm32-unknown-unknown/release.
    let target = artifact.ancestors().nth(3).unwrap_or(artifact);
    let files = text
        .lines()
        .filter_map(|line| Some(line.split_once(": ")?.1))
        .flat_map(words);
    let files = files.map(PathBuf::from);
    files
        .filter(|file| file.is_absolute() && !file.starts_with(target))
        .collect()
}

/// Splits a line of a make file at its spaces. A backslash makes the next space a part of a word.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&' ') => {
                words.last_mut().into_iter().for_each(|word| word.push(' '));
                characters.next();
            }
            ' ' => words.push(String::new()),
            other => words
                .last_mut()
                .into_iter()
                .for_each(|word| word.push(other)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Finds the `.wasm` file that cargo reports for this package.
fn artifact(messages: &[u8], manifest: &Path) -> Option<PathBuf> {
    let wanted = std::fs::canonicalize(manifest).ok()?;
    let messages = serde_json::Deserializer::from_slice(messages).into_iter::<Value>();
    let own = messages.filter_map(Result::ok).filter(|message| {
        message["reason"] == "compiler-artifact" && is_at(&message["manifest_path"], &wanted)
    });
    own.filter_map(|message| {
        let files = message["filenames"].as_array()?;
        let mut files = files.iter().filter_map(Value::as_str);
        files
            .find(|file| file.ends_with(".wasm"))
            .map(PathBuf::from)
    })
    .last()
}

fn is_at(path: &Value, wanted: &Path) -> bool {
    let path = path
        .as_str()
        .and_then(|path| std::fs::canonicalize(path).ok());
    path.is_some_and(|path| path == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dependencies_of_artifact() {
        let target = tempfile::tempdir().unwrap();
        let folder = target.path().join(TARGET).join("release");
        std::fs::create_dir_all(&folder).unwrap();
        let artifact = folder.join("policy.wasm");
        let generated = target.path().join("out/generated.rs");
        let text = format!(
            "{}: /home/a\\ b/src/lib.rs {} /sdk/src/lib.rs\n",
            artifact.display(),
            generated.display()
        );
        std::fs::write(folder.join("policy.d"), text).unwrap();
        assert_eq!(
            dependencies(&artifact),
            ["/home/a b/src/lib.rs", "/sdk/src/lib.rs"].map(PathBuf::from)
        );
        assert!(dependencies(&folder.join("other.wasm")).is_empty());
    }

    #[test]
    fn workspace_is_not_a_policy() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        std::fs::write(&manifest, "[workspace]\nmembers = [\"policies/*\"]\n").unwrap();
        assert!(!Rust.is_policy(folder.path()));
        let policy = "[package]\nname = \"x\"\n[lib]\ncrate-type = [\"cdylib\"]\n";
        std::fs::write(&manifest, policy).unwrap();
        assert!(Rust.is_policy(folder.path()));
    }
}
