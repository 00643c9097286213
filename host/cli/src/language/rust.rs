//! Rust: cargo builds a core module with the WIT embedded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

use super::sdk::{self, Sdk};
use super::{Built, Language, Template, last_lines};
use crate::terminal::{FAINT, say};

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
        (
            "src/lib.rs",
            include_str!("../../../../languages/rust/trusted-registries/src/lib.rs"),
        ),
        (
            "src/image.rs",
            include_str!("../../../../languages/rust/trusted-registries/src/image.rs"),
        ),
    ],
    unit_tests: "cargo test                          # the policy, without WebAssembly",
    fuel: 30_000,
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

    fn build(&self, folder: &Path, _: &Path) -> anyhow::Result<Built> {
        check_target(folder)?;
        let manifest = folder.join("Cargo.toml");
        let name = package(&manifest)?;
        say!("{FAINT}$ cargo build --release --target {TARGET}{FAINT:#}");
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
        Ok(Built { name, file })
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

/// Returns the package's name.
fn package(manifest: &Path) -> anyhow::Result<String> {
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
    let own = packages.filter(|package| is_at(&package["manifest_path"], &wanted));
    own.filter_map(|package| package["name"].as_str().map(ToOwned::to_owned))
        .next()
        .ok_or_else(|| {
            anyhow!(
                "{}: a workspace without a root package; name the folder of the policy",
                manifest.display()
            )
        })
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
