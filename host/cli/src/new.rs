//! `tollgate new`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use tollgate_config::PluginName;

use super::language::{self, Project};
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
    /// Folder to create the project in.
    #[arg(long = "in", value_name = "FOLDER", default_value = ".")]
    parent: PathBuf,
    /// Clone of Tollgate's repository. The project uses the SDK in it instead of a copy.
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate new trusted-registries --lang rust
  tollgate new trusted-registries --lang ts
  tollgate new trusted-registries --lang go --sdk ../tollgate

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
        let sdk = self.sdk.as_deref().map(clone).transpose()?;
        let project = Project {
            name: &self.name,
            folder,
            clone: sdk.as_deref(),
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
        say!(
            "\nNext:\n  cd {}\n  tollgate build\n  tollgate test",
            folder.display()
        );
        Ok(ExitCode::SUCCESS)
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
    fn suggests_valid_name_for_invalid_one() {
        for name in ["Trusted", "a_b", "-a", "1st", "", "../up", &"a".repeat(41)] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("such as trusted-registries"), "{error}");
        }
        assert!(check_name("trusted-registries").is_ok());
    }
}
