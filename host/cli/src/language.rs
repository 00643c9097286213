//! The languages that `tollgate new` and `tollgate build` support.
//!
//! Each language is a module that implements [`Language`], and a line in [`LANGUAGES`].

mod c;
mod go;
mod javascript;
mod python;
mod rust;
mod sdk;
mod tool;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

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

    /// Builds the project in a folder with the language's own tools. Intermediate files go into `scratch`.
    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built>;
}

/// The files and values of a new project, in addition to [`COMMON`].
pub(super) struct Template {
    /// Path and content of each file, with placeholders. The policy is the reference policy from `languages`. Its name
    /// is replaced by the project's name.
    files: &'static [(&'static str, &'static str)],
    /// The command that runs the policy's own tests, and a description of it.
    unit_tests: &'static str,
    /// Highest fuel of one call of the policy, with some room to spare.
    fuel: u64,
}

/// Template files that all languages share.
const COMMON: [(&str, &str); 3] = [
    (
        "README.md",
        include_str!("language/common/README.md.template"),
    ),
    (
        "policy.test.yaml",
        include_str!("language/common/policy.test.yaml.template"),
    ),
    (
        "tollgate.yaml",
        include_str!("language/common/tollgate.yaml.template"),
    ),
];

/// The reference policy's name, and the type name that some languages use for it.
const REFERENCE: (&str, &str) = ("trusted-registries", "TrustedRegistries");

/// The output of the language's own tools.
pub(super) struct Built {
    /// The policy's name.
    pub(super) name: String,
    /// The built file: a component, or a core module with its WIT embedded.
    pub(super) file: PathBuf,
}

/// A new project.
pub(super) struct Project<'a> {
    pub(super) name: &'a str,
    pub(super) folder: &'a Path,
    /// A clone of the repository. The project uses its SDK and gets no copy.
    pub(super) clone: Option<&'a Path>,
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

/// Lists the names for `--lang`.
pub(crate) fn names() -> Vec<&'static str> {
    LANGUAGES.iter().map(|language| language.name()).collect()
}

// === impl Project ===

impl Project<'_> {
    /// Writes the files of the language's template. The SDK is written too, unless a clone provides it.
    pub(crate) fn write(&self, language: &dyn Language) -> std::io::Result<Vec<PathBuf>> {
        let template = language.template();
        let mut written = Vec::new();
        for (file, content) in template.files.iter().chain(&COMMON) {
            let path = self.folder.join(file);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, self.fill(content, language))?;
            written.push(path);
        }
        if self.clone.is_none() {
            written.push(language.sdk().write(self.folder)?);
        }
        Ok(written)
    }

    fn fill(&self, content: &str, language: &dyn Language) -> String {
        let template = language.template();
        let sdk = match self.clone {
            Some(clone) => clone.join("guest-sdk").join(language.sdk().name),
            None => Path::new(".").join(sdk::FOLDER),
        };
        let (name, type_of_name) = REFERENCE;
        content
            .replace(name, self.name)
            .replace(type_of_name, &type_name(self.name))
            .replace("{{name}}", self.name)
            .replace("{{sdk}}", &sdk.display().to_string())
            .replace("{{version}}", env!("CARGO_PKG_VERSION"))
            .replace("{{unit tests}}", template.unit_tests)
            .replace("{{fuel}}", &template.fuel.to_string())
    }
}

/// Converts a name such as `trusted-registries` to `TrustedRegistries`.
fn type_name(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for word in name.split('-') {
        let mut characters = word.chars();
        text.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(characters.as_str());
    }
    text
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
    fn fills_every_placeholder_of_every_template() {
        for language in LANGUAGES {
            let folder = tempfile::tempdir().unwrap();
            let project = Project {
                name: "no-latest",
                folder: folder.path(),
                clone: None,
            };
            let written = project.write(*language).unwrap();
            for file in written.iter().filter(|path| path.is_file()) {
                let text = std::fs::read_to_string(file).unwrap();
                // Go code can open two braces on one line and close them on another.
                let is_left = |line: &str| line.contains("{{") && line.contains("}}");
                assert!(!text.lines().any(is_left), "{}:\n{text}", file.display());
                assert!(
                    !text.contains("rusted-registries"),
                    "{}:\n{text}",
                    file.display()
                );
            }
            // The generated `.gitignore` has to exclude the private key that `serve` creates.
            let ignored = std::fs::read_to_string(folder.path().join(".gitignore")).unwrap();
            assert!(ignored.contains("/dist\n") && ignored.contains("/tollgate-tls\n"));
            let policy = written.iter().any(|file| {
                std::fs::read_to_string(file).is_ok_and(|text| text.contains("must be from one of"))
            });
            assert!(policy, "{}: no file contains the policy", language.name());
            assert_eq!(of_project(folder.path()).unwrap().name(), language.name());
        }
        assert_eq!(type_name("no-latest"), "NoLatest");
    }

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
