//! A new project: the files of a template, filled.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tollgate_config::schema::address;

use super::resource::Resource;
use super::{Language, sdk};

/// Path and content of a file, with placeholders.
pub(crate) type File = (&'static str, &'static str);

/// The files and values of a new project in a language.
pub(crate) struct Template {
    /// The files of every project, such as the manifest of the package.
    pub(super) files: &'static [File],
    /// The reference policy from `languages`. Its name is replaced by the project's name.
    pub(super) sample: &'static [File],
    /// A policy without rules.
    pub(super) empty: &'static [File],
    /// The command that runs the policy's own tests, and a description of it.
    pub(super) unit_tests: &'static str,
    /// Highest fuel of one call of the policy, with some room to spare.
    pub(super) fuel: u64,
    /// The requirements of a CI job.
    pub(super) pipeline: Pipeline,
}

/// The steps of a CI job that depend on the language.
pub(crate) struct Pipeline {
    /// Steps of GitHub Actions that install the toolchain.
    pub(super) github: &'static str,
    /// The command that installs the toolchain in the image `rust`, which is based on Debian.
    pub(super) debian: &'static str,
    /// The command that runs the policy's own tests after a build.
    pub(super) unit_tests: Option<&'static str>,
}

/// The policy that a project begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    /// A policy about the images of Pods, which shows most of what a policy can do.
    #[default]
    Sample,
    /// A policy without rules.
    Empty,
}

/// A CI system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ci {
    /// GitHub Actions.
    Github,
    /// GitLab CI.
    Gitlab,
}

/// A new project.
pub(crate) struct Project<'a> {
    pub(crate) name: &'a str,
    pub(crate) folder: &'a Path,
    /// A clone of the repository. The project uses its SDK and gets no copy.
    pub(crate) clone: Option<&'a Path>,
    pub(crate) start: Start,
    /// The resource that an empty policy is for.
    pub(crate) resource: &'a Resource,
    pub(crate) description: Option<&'a str>,
    pub(crate) ci: Option<Ci>,
}

/// Files of the sample that all languages share.
const SAMPLE: [File; 3] = [
    ("README.md", include_str!("common/README.md.template")),
    (
        "policy.test.yaml",
        include_str!("common/policy.test.yaml.template"),
    ),
    (
        "tollgate.yaml",
        include_str!("common/tollgate.yaml.template"),
    ),
];
/// Files of an empty project that all languages share.
const EMPTY: [File; 3] = [
    ("README.md", include_str!("empty/README.md.template")),
    (
        "policy.test.yaml",
        include_str!("empty/policy.test.yaml.template"),
    ),
    (
        "tollgate.yaml",
        include_str!("empty/tollgate.yaml.template"),
    ),
];
const GITHUB: File = (
    ".github/workflows/policy.yaml",
    include_str!("ci/github.yaml.template"),
);
const GITLAB: File = (".gitlab-ci.yml", include_str!("ci/gitlab.yml.template"));

/// The reference policy's name, and the type name that some languages use for it.
const REFERENCE: (&str, &str) = ("trusted-registries", "TrustedRegistries");
/// The reference policy's description.
const DESCRIPTION: &str = "Lets Pods have images of trusted registries only";

// === impl Project ===

impl Project<'_> {
    /// Writes the files of the language's template. The SDK is written too, unless a clone provides it.
    pub(crate) fn write(&self, language: &dyn Language) -> std::io::Result<Vec<PathBuf>> {
        let template = language.template();
        let (own, common) = match self.start {
            Start::Sample => (template.sample, &SAMPLE),
            Start::Empty => (template.empty, &EMPTY),
        };
        let ci = self.ci.map(|ci| match ci {
            Ci::Github => GITHUB,
            Ci::Gitlab => GITLAB,
        });
        let files = own.iter().chain(template.files).chain(common).chain(&ci);
        let mut written = Vec::new();
        for (file, content) in files {
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
        let content = content
            .replace(name, self.name)
            .replace(type_of_name, &type_name(self.name))
            .replace("{{name}}", self.name)
            .replace("{{sdk}}", &sdk.display().to_string())
            .replace("{{version}}", env!("CARGO_PKG_VERSION"))
            .replace("{{repository}}", env!("CARGO_PKG_REPOSITORY"))
            .replace("{{unit tests}}", template.unit_tests)
            .replace("{{fuel}}", &template.fuel.to_string())
            .replace("{{config schema}}", &address("config"))
            .replace("{{suite schema}}", &address("suite"))
            .replace("{{group}}", &self.resource.group)
            .replace("{{resource version}}", &self.resource.version)
            .replace("{{resource}}", &self.resource.name)
            .replace("{{api version}}", &self.resource.api_version())
            .replace("{{kind}}", &self.resource.kind);
        let content = template.pipeline.fill(&content);
        // The author's words come last: they may look like a placeholder.
        self.describe(&content)
    }

    /// Puts the description into a file.
    fn describe(&self, content: &str) -> String {
        let default = match self.start {
            Start::Sample => DESCRIPTION.to_owned(),
            Start::Empty => format!(
                "Reviews {} of {}",
                self.resource.name,
                self.resource.api_version()
            ),
        };
        let description = self.description.unwrap_or(&default);
        // A string of JSON means the same in every language of a template.
        let literal = serde_json::Value::from(description).to_string();
        let sample = match (self.start, self.description) {
            (Start::Sample, Some(description)) => format!("{description}\n\n"),
            _ => String::new(),
        };
        content
            .replace(&format!("\"{DESCRIPTION}\""), &literal)
            .replace(
                &format!("'{DESCRIPTION}'"),
                &literal_for_javascript(description),
            )
            .replace("{{description}}", &literal)
            .replace("{{sample about}}", &sample)
            .replace("{{about}}", &in_comment(description))
    }
}

// === impl Pipeline ===

impl Pipeline {
    fn fill(&self, content: &str) -> String {
        let step = |before: &str| {
            let command = self.unit_tests;
            command.map_or_else(String::new, |command| format!("{before}{command}\n"))
        };
        content
            .replace("{{github toolchain}}\n", self.github)
            .replace("{{github unit tests}}\n", &step("      - run: "))
            .replace("{{gitlab toolchain}}", self.debian)
            .replace("{{gitlab unit tests}}\n", &step("    - "))
    }
}

/// Returns a text in the quotes that the JavaScript of the templates uses.
fn literal_for_javascript(text: &str) -> String {
    match text.contains(['\'', '\\']) {
        false => format!("'{text}'"),
        true => serde_json::Value::from(text).to_string(),
    }
}

/// Returns a text that ends no comment in any language.
fn in_comment(text: &str) -> String {
    text.replace("*/", "* /").replace("\"\"\"", "'''")
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

#[cfg(test)]
mod tests;
