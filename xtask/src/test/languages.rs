//! Builds the plugins in languages other than Rust, and runs the tests of their SDKs.
//!
//! ```text
//! languages/NAME/needs   commands and Debian's packages for them
//! languages/NAME/build   into target/languages/NAME, when something that it is made of has changed
//! languages/NAME/test    the unit tests of its SDK
//! ```
//!
//! The scripts install further build tools of a language into `target/toolchains`, and report this.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::terminal::{self, NOTABLE};
use crate::toolchain;
use crate::workspace::Workspace;

/// The program that makes components of the modules of other compilers.
const COMPONENTIZE: &str = "tollgate-componentize";
/// The file with a hash of the sources of the last build.
const BUILT_FROM: &str = ".built-from";
/// Folders that builds create.
const MADE: [&str; 6] = [
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".venv",
    "dist",
    "target",
];

/// Exit code by which a script reports that a command is too old.
const TOO_OLD: i32 = 69;

/// The result of a script.
#[derive(Clone, Copy, PartialEq)]
enum Done {
    Well,
    TooOld,
}

/// A language whose plugins are built.
pub(crate) struct Built {
    pub(crate) name: String,
    /// The folder of its scripts and sources.
    folder: PathBuf,
    /// The folder of its components.
    pub(crate) output: PathBuf,
}

/// Builds and tests every language whose commands are installed.
pub(super) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    for Built { folder, .. } in built(workspace)? {
        if folder.join("test").is_file() {
            script(workspace, &folder.join("test"), None)?;
        }
    }
    Ok(())
}

/// Builds every language whose commands are installed, and reports the others.
pub(crate) fn built(workspace: &Workspace) -> anyhow::Result<Vec<Built>> {
    let mut built = Vec::new();
    super::announced(
        workspace
            .cargo()
            .args(["build", "--workspace", "--bin", COMPONENTIZE]),
    )?;
    for language in languages(workspace.root())? {
        let folder = workspace.root().join("languages").join(&language);
        if let Some(missing) = missing(&folder)? {
            anstream::println!(
                "  {NOTABLE}{language}: skipped, because `{missing}` cannot be run{NOTABLE:#}"
            );
            continue;
        }
        if build(workspace, &language, &folder)? == Done::TooOld {
            anstream::println!(
                "  {NOTABLE}{language}: skipped, because the installed version is too old{NOTABLE:#}"
            );
            continue;
        }
        built.push(Built {
            output: workspace.target().join("languages").join(&language),
            name: language,
            folder,
        });
    }
    Ok(built)
}

fn languages(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let folder = root.join("languages");
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    Ok(entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("build").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

/// Returns the first command that cannot be run, after trying to install it.
fn missing(folder: &Path) -> anyhow::Result<Option<String>> {
    let path = folder.join("needs");
    let needs = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    for line in needs.lines() {
        let (command, package) = line.split_once(' ').with_context(|| {
            format!(
                "{}: expected a command and a package, got `{line}`",
                path.display()
            )
        })?;
        if !toolchain::ensure_command(command, package) {
            return Ok(Some(command.to_owned()));
        }
    }
    Ok(None)
}

fn build(workspace: &Workspace, language: &str, folder: &Path) -> anyhow::Result<Done> {
    let output = workspace.target().join("languages").join(language);
    let stamp = output.join(BUILT_FROM);
    let sources = sources(workspace.root(), language)?;
    if std::fs::read_to_string(&stamp).is_ok_and(|last| last == sources) {
        println!("  {language} is built");
        return Ok(Done::Well);
    }
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let done = script(workspace, &folder.join("build"), Some(&output))?;
    if done == Done::Well {
        std::fs::write(&stamp, sources).with_context(|| stamp.display().to_string())?;
    }
    Ok(done)
}

/// Returns a hash of all sources of a language's plugins.
fn sources(root: &Path, language: &str) -> anyhow::Result<String> {
    let sdk = match language {
        "javascript" => "js",
        other => other,
    };
    let mut hasher = DefaultHasher::new();
    for folder in [
        format!("languages/{language}"),
        format!("guest-sdk/{sdk}"),
        "guest-sdk/componentize".to_owned(),
        "wit".to_owned(),
    ] {
        let mut files = Vec::new();
        walk(&root.join(&folder), &mut files)?;
        files.sort();
        for file in files {
            file.strip_prefix(root).unwrap_or(&file).hash(&mut hasher);
            std::fs::read(&file)
                .with_context(|| file.display().to_string())?
                .hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let is_made = MADE.iter().any(|made| entry.file_name() == *made);
        if is_made || path.extension().is_some_and(|ending| ending == "egg-info") {
            continue;
        }
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn script(workspace: &Workspace, script: &Path, output: Option<&Path>) -> anyhow::Result<Done> {
    let target = workspace.target();
    let shown = workspace.shown(script).to_string();
    terminal::paragraph("  ", &shown);
    let toolchains = target.join("toolchains");
    std::fs::create_dir_all(&toolchains).with_context(|| toolchains.display().to_string())?;
    let status = Command::new(script)
        .args(output)
        .env("CARGO_TARGET_DIR", target)
        .env("TOLLGATE_CACHE", &toolchains)
        .env(
            "TOLLGATE_COMPONENTIZE",
            target.join("debug").join(COMPONENTIZE),
        )
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    if status.code() == Some(TOO_OLD) {
        return Ok(Done::TooOld);
    }
    anyhow::ensure!(status.success(), "{shown} failed ({status})");
    Ok(Done::Well)
}
