//! `tollgate new`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use tollgate_config::PluginName;

use super::language::{self, Ci, Project, Resource, Start};
use super::terminal::{FAINT, STRONG, say};

/// Create a policy project from a template, with unit tests and a test suite.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct New {
    /// Name of the policy and of the new folder: at most 40 of a-z, 0-9 and -, beginning with a letter.
    name: String,
    /// Language to write the policy in.
    #[arg(long, value_name = "LANGUAGE", value_parser = PossibleValuesParser::new(language::names()))]
    lang: String,
    /// Policy to begin with [default: sample, or empty with --resource]
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<Start>,
    /// Resource that an empty policy is for, such as apps/v1/deployments [default: v1/pods]
    #[arg(long, value_name = "GROUP/VERSION/RESOURCE")]
    resource: Option<Resource>,
    /// Description of the policy, in one line.
    #[arg(long, value_name = "TEXT", value_parser = description)]
    description: Option<String>,
    /// CI system to write a pipeline for: it builds, tests and publishes the policy.
    #[arg(long, value_name = "SYSTEM")]
    ci: Option<Ci>,
    /// Folder to create the project in.
    #[arg(long = "in", value_name = "FOLDER", default_value = ".")]
    parent: PathBuf,
    /// Clone of Tollgate's repository. The project uses the SDK in it instead of a copy.
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
}

const LONGEST_DESCRIPTION_BYTES: usize = 500;

const EXAMPLES: &str = "\
Examples:
  tollgate new trusted-registries --lang rust
  tollgate new trusted-registries --lang ts
  tollgate new trusted-registries --lang go --sdk ../tollgate
  tollgate new replicas --lang rust --resource apps/v1/deployments --ci github

Then, in the folder:
  tollgate build && tollgate test";

// === impl New ===

impl New {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        check_name(&self.name)?;
        let language = language::named(&self.lang)?;
        let folder = self.parent.join(&self.name);
        let folder = folder.strip_prefix(".").unwrap_or(&folder);
        ensure!(
            !folder.exists(),
            "{}: already exists; choose another name, or remove it",
            folder.display()
        );
        ensure!(
            self.template != Some(Start::Sample) || self.resource.is_none(),
            "--resource: the sample is about Pods; use --template empty"
        );
        let empty = self.resource.as_ref().map(|_| Start::Empty);
        let resource = self.resource.unwrap_or_default();
        let sdk = self.sdk.as_deref().map(clone).transpose()?;
        let project = Project {
            name: &self.name,
            folder,
            clone: sdk.as_deref(),
            start: self.template.or(empty).unwrap_or_default(),
            resource: &resource,
            description: self.description.as_deref(),
            ci: self.ci,
        };
        let files = project
            .write(language)
            .with_context(|| format!("cannot write {}", folder.display()))?;
        say!(
            "{STRONG}{}{STRONG:#}: a policy in {}",
            folder.display(),
            language.name()
        );
        for file in files {
            say!("  {FAINT}{}{FAINT:#}", file.display());
        }
        if resource.is_guessed {
            say!(
                "\nKubernetes itself does not have {}: correct the kind {} in policy.test.yaml if it is another one",
                resource.name,
                resource.kind
            );
        }
        say!(
            "\nNext:\n  cd {}\n  tollgate build\n  tollgate test",
            folder.display()
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a description. It becomes part of comments and of one-line strings.
fn description(text: &str) -> Result<String, String> {
    let is_line = !text.trim().is_empty() && !text.chars().any(char::is_control);
    match is_line && text.len() <= LONGEST_DESCRIPTION_BYTES {
        true => Ok(text.trim().to_owned()),
        false => Err(format!(
            "expected one line of at most {LONGEST_DESCRIPTION_BYTES} bytes"
        )),
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if let Err(error) = PluginName::parse(name) {
        bail!(
            "{name:?} cannot be the name of a policy: {error}; choose a name such as trusted-registries"
        );
    }
    // In source code, the policy's name has to begin with a letter.
    ensure!(
        name.starts_with(|first: char| first.is_ascii_lowercase()),
        "{name:?} cannot be the name of a policy: it must begin with a letter; choose a name such as \
         trusted-registries"
    );
    Ok(())
}

/// Returns the absolute path of the clone, so that it is valid wherever the project is.
fn clone(folder: &Path) -> anyhow::Result<PathBuf> {
    let folder =
        std::fs::canonicalize(folder).with_context(|| format!("--sdk: {}", folder.display()))?;
    if folder.join("guest-sdk").is_dir() {
        return Ok(folder);
    }
    Err(anyhow!(
        "--sdk: {} is not a clone of Tollgate's repository: it has no folder guest-sdk",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_is_one_line() {
        assert_eq!(description(" no latest "), Ok("no latest".to_owned()));
        for text in ["", "  ", "a\nb", "a\u{1b}[1m", &"a".repeat(501)] {
            assert!(
                description(text).unwrap_err().contains("one line"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn suggests_valid_name_for_invalid_one() {
        for name in ["Trusted", "a_b", "-a", "1st", "", "../up", &"a".repeat(41)] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("such as trusted-registries"), "{error}");
        }
        assert!(check_name("trusted-registries").is_ok());
    }
}
