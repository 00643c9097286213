//! The languages that `tollgate new` and `tollgate build` know. One is a module that implements [`Language`], and a line
//! in [`LANGUAGES`].

mod rust;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use super::terminal::plain;

/// A language that policies can be written in.
pub(super) trait Language: Sync {
    /// As `--lang` has it.
    fn name(&self) -> &'static str;

    /// The file by which a project of it is known.
    fn marker(&self) -> &'static str;

    /// The files of a new project: path and content, with placeholders.
    fn template(&self) -> &'static [(&'static str, &'static str)];

    /// What stands for `{{sdk}}`: the SDK of a clone, or the released one.
    fn sdk(&self, clone: Option<&Path>) -> String;

    /// Builds the project in a folder, with the language's own tools.
    fn build(&self, folder: &Path) -> anyhow::Result<Built>;
}

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
    pub(super) sdk: String,
}

pub(super) static LANGUAGES: &[&dyn Language] = &[&rust::Rust];

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
    /// Writes the files of the language's template.
    pub(super) fn write(&self, language: &dyn Language) -> std::io::Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        for (file, content) in language.template() {
            let path = self.folder.join(file);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, self.fill(content))?;
            written.push(path);
        }
        Ok(written)
    }

    fn fill(&self, content: &str) -> String {
        content
            .replace("{{name}}", self.name)
            .replace("{{identifier}}", &self.name.replace('-', "_"))
            .replace("{{type}}", &type_name(self.name))
            .replace("{{sdk}}", &self.sdk)
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
            let sdk = language.sdk(None);
            let project = Project {
                name: "no-latest",
                folder: folder.path(),
                sdk,
            };
            for file in project.write(*language).unwrap() {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(!text.contains("{{"), "{}:\n{text}", file.display());
            }
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
                .contains("there are rust")
        );
    }
}
