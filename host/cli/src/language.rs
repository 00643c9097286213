//! The languages that `tollgate new` and `tollgate build` support.
//!
//! Each language is a module that implements [`Language`], and a line in [`LANGUAGES`].

mod c;
mod go;
mod javascript;
mod project;
mod python;
mod resource;
mod rust;
mod sdk;
mod tool;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

pub(super) use self::project::{Ci, Project, Start};
pub(super) use self::resource::Resource;

use self::project::{Pipeline, Template};
use self::sdk::Sdk;
use super::terminal::plain;

/// A language that policies can be written in.
pub(super) trait Language: Sync {
    /// Returns the name for `--lang`.
    fn name(&self) -> &'static str;

    /// Returns the file that identifies a project in this language.
    fn marker(&self) -> &'static str;

    /// Returns the template for a new project.
    fn template(&self) -> &'static Template;

    /// Returns the SDK that a new project gets.
    fn sdk(&self) -> &'static Sdk;

    /// Returns whether a component in the folder's `dist` is probably built from the folder. The folder of a whole
    /// repository can contain the marker and no policy.
    fn is_policy(&self, folder: &Path) -> bool {
        folder.join(self.marker()).is_file()
    }

    /// Builds the project in a folder with the language's own tools. Intermediate files go into `scratch`.
    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built>;
}

/// The output of the language's own tools.
pub(super) struct Built {
    /// The policy's name.
    pub(super) name: String,
    /// The built file: a component, or a core module with its WIT embedded.
    pub(super) file: PathBuf,
    /// Other files and folders that the build read, such as the SDK in a clone. They may include files of the
    /// project's folder.
    pub(super) inputs: Vec<PathBuf>,
}

pub(super) static LANGUAGES: &[&dyn Language] = &[
    &rust::Rust,
    &go::Go,
    &javascript::TYPESCRIPT,
    &javascript::JAVASCRIPT,
    &python::Python,
    &c::C,
];

/// Finds a language by its name.
pub(super) fn named(name: &str) -> anyhow::Result<&'static dyn Language> {
    match LANGUAGES.iter().find(|language| language.name() == name) {
        Some(language) => Ok(*language),
        None => bail!(
            "unknown language {name:?}, expected one of {}",
            names().join(", ")
        ),
    }
}

/// Detects the language of a project by the files in its folder.
pub(super) fn of_project(folder: &Path) -> anyhow::Result<&'static dyn Language> {
    ensure!(folder.is_dir(), "{}: no such folder", folder.display());
    let known = LANGUAGES
        .iter()
        .filter(|language| folder.join(language.marker()).is_file());
    let known: Vec<&&dyn Language> = known.collect();
    match known[..] {
        [language] => Ok(*language),
        [] => {
            let markers: Vec<String> = LANGUAGES
                .iter()
                .map(|language| format!("{} ({})", language.marker(), language.name()))
                .collect();
            bail!(
                "{}: found no project, expected {}; create one with `tollgate new NAME --lang {}`",
                folder.display(),
                markers.join(" or "),
                LANGUAGES[0].name()
            )
        }
        _ => {
            let names: Vec<&str> = known.iter().map(|language| language.name()).collect();
            bail!(
                "{}: the project could be {}; choose one with --lang",
                folder.display(),
                names.join(" or ")
            )
        }
    }
}

/// Finds the language of the policy in a folder. Returns none if there is no policy, or if it could be in several
/// languages.
pub(super) fn of_policy(folder: &Path) -> Option<&'static dyn Language> {
    let mut languages = LANGUAGES
        .iter()
        .filter(|language| language.is_policy(folder));
    match (languages.next(), languages.next()) {
        (Some(only), None) => Some(*only),
        _ => None,
    }
}

/// Lists the names for `--lang`.
pub(crate) fn names() -> Vec<&'static str> {
    LANGUAGES.iter().map(|language| language.name()).collect()
}

/// Returns whether the project's requirements changed after they were installed.
fn is_newer(asked: &Path, installed: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified());
    match (changed(asked), changed(installed)) {
        (Ok(asked), Ok(installed)) => asked > installed,
        (_, installed) => installed.is_err(),
    }
}

/// Returns the last lines of a tool's output, for an error message. Blank lines are left out.
fn last_lines(output: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let first = lines.len().saturating_sub(count);
    let lines: Vec<String> = lines[first..].iter().map(|line| plain(line)).collect();
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_tollgate_new_for_folder_without_project() {
        let folder = tempfile::tempdir().unwrap();
        let error = of_project(folder.path()).err().unwrap().to_string();
        assert!(
            error.contains("Cargo.toml (rust)") && error.contains("tollgate new NAME"),
            "{error}"
        );
        assert!(
            named("cobol")
                .err()
                .unwrap()
                .to_string()
                .contains("expected one of rust, go, ts, js, python, c")
        );
    }
}
