//! The languages that `tollgate new` and `tollgate build` know. One is a module that implements [`Language`], and a line
//! in [`LANGUAGES`].

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
    /// As `--lang` has it.
    fn name(&self) -> &'static str;

    /// The file by which a project of it is known.
    fn marker(&self) -> &'static str;

    /// What a new project is made of.
    fn template(&self) -> &'static Template;

    /// The SDK that a new project gets.
    fn sdk(&self) -> &'static Sdk;

    /// Builds the project in a folder, with the language's own tools. `scratch` is a folder for what lies between.
    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built>;
}

/// What a new project is made of, beside [`COMMON`].
pub(super) struct Template {
    /// Path and content, with placeholders. The policy itself is the reference policy of `languages`, whose name stands
    /// for the project's.
    files: &'static [(&'static str, &'static str)],
    /// The command for the policy's own tests, and what it does.
    unit_tests: &'static str,
    /// The most that one call of the policy uses, with some to spare.
    fuel: u64,
}

/// What is the same in every language.
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

/// The name of the reference policy, and its type where a language has one.
const REFERENCE: (&str, &str) = ("trusted-registries", "TrustedRegistries");

/// What the language's own tools left.
pub(super) struct Built {
    /// The name of the policy.
    pub(super) name: String,
    /// A component, or a core module with its WIT embedded.
    pub(super) file: PathBuf,
}

/// A new project.
pub(super) struct Project<'a> {
    pub(super) name: &'a str,
    pub(super) folder: &'a Path,
    /// A clone of the repository whose SDK is used in place of a copy of its own.
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

/// The language of a name.
pub(super) fn named(name: &str) -> anyhow::Result<&'static dyn Language> {
    match LANGUAGES.iter().find(|language| language.name() == name) {
        Some(language) => Ok(*language),
        None => bail!(
            "there is no language {name:?}; there are {}",
            names().join(", ")
        ),
    }
}

/// The language of a project, by what lies in its folder.
pub(super) fn of_project(folder: &Path) -> anyhow::Result<&'static dyn Language> {
    ensure!(
        folder.is_dir(),
        "{}: there is no such folder",
        folder.display()
    );
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
                "{}: no project is here; expected {}. `tollgate new NAME --lang {}` makes one",
                folder.display(),
                markers.join(" or "),
                LANGUAGES[0].name()
            )
        }
        _ => {
            let names: Vec<&str> = known.iter().map(|language| language.name()).collect();
            bail!(
                "{}: the project could be {}; say which with --lang",
                folder.display(),
                names.join(" or ")
            )
        }
    }
}

/// As `--lang` has them.
pub(super) fn names() -> Vec<&'static str> {
    LANGUAGES.iter().map(|language| language.name()).collect()
}

// === impl Project ===

impl Project<'_> {
    /// Writes the files of the language's template, and the SDK unless it is a clone's.
    pub(super) fn write(&self, language: &dyn Language) -> std::io::Result<Vec<PathBuf>> {
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

/// `trusted-registries` as `TrustedRegistries`.
fn type_name(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for word in name.split('-') {
        let mut characters = word.chars();
        text.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(characters.as_str());
    }
    text
}

/// Whether what a project asks for has changed since it was installed.
fn is_newer(asked: &Path, installed: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified());
    match (changed(asked), changed(installed)) {
        (Ok(asked), Ok(installed)) => asked > installed,
        (_, installed) => installed.is_err(),
    }
}

/// What a tool printed, for an error: the end of it, on one line each.
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
    fn every_placeholder_of_every_template_is_filled() {
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
                // Go opens two braces of its own, and closes them elsewhere.
                let is_left = |line: &str| line.contains("{{") && line.contains("}}");
                assert!(!text.lines().any(is_left), "{}:\n{text}", file.display());
                assert!(
                    !text.contains("rusted-registries"),
                    "{}:\n{text}",
                    file.display()
                );
            }
            // The key that `serve` makes is in there.
            let ignored = std::fs::read_to_string(folder.path().join(".gitignore")).unwrap();
            assert!(ignored.contains("/dist\n") && ignored.contains("/tollgate-tls\n"));
            let policy = written.iter().any(|file| {
                std::fs::read_to_string(file).is_ok_and(|text| text.contains("must be from one of"))
            });
            assert!(policy, "{}: there is no policy", language.name());
            assert_eq!(of_project(folder.path()).unwrap().name(), language.name());
        }
        assert_eq!(type_name("no-latest"), "NoLatest");
    }

    #[test]
    fn a_folder_without_a_project_says_how_to_make_one() {
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
                .contains("there are rust, go, ts, js, python, c")
        );
    }
}
