//! Compares two versions of a plugin on the same review, and runs each on the output of the other.
//!
//! During a rolling update both versions serve. One version may then change an object that the other evaluates.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::{Value, json};
use tollgate_admission::Endpoint;
use tollgate_config::problem::Collector;
use tollgate_config::{PluginConfig, Requests, Source, yaml};
use tollgate_gate::pipeline::Pipeline;

use super::actual::Actual;
use super::compare::Failure;
use crate::review::examine::{Finding, examine, step};
use crate::review::request::{Prepared, with_object};

/// Another version of one plugin.
#[derive(Clone, Debug)]
pub(super) struct Against {
    /// The plugin's name. None if the suite has only one plugin.
    plugin: Option<String>,
    file: PathBuf,
    /// Settings that replace those of the suite and its cases, with the file that they come from.
    settings: Option<(PathBuf, Value)>,
}

/// The differences between two versions.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) old: Value,
    pub(super) new: Value,
    /// Total fuel of all calls, for the old and the new version.
    pub(super) fuel: (u64, u64),
    /// Denials by one version's validators of an object that the other version's mutators made.
    pub(super) mixed: Vec<String>,
}

/// Runs a review that `new` has answered through `old` too. Each version's validators also get the object that the
/// other version's mutators made.
pub(super) async fn compare(
    new: &Pipeline,
    old: &Pipeline,
    requests: &Requests,
    found: &Finding,
    prepared: &Prepared,
) -> anyhow::Result<Comparison> {
    let before = examine(old, requests, found.document.clone(), Ok(prepared.clone())).await;
    if let Some(error) = &before.error {
        bail!("the version to compare with failed: {error}");
    }
    let (was, is) = (Actual::of(&before), Actual::of(found));
    let mut mixed = Vec::new();
    let refuses = |finding: &Finding| finding.steps.iter().any(|step| !step.outcome.allowed);
    // If one version denies the request by itself, the comparison shows that already.
    if !refuses(&before) && !refuses(found) {
        for (words, mutated, validators) in [
            (
                "the new version denies the output of the old one",
                &before,
                new,
            ),
            (
                "the old version denies the output of the new one",
                found,
                old,
            ),
        ] {
            let Some(object) = &mutated.after else {
                continue;
            };
            let review = with_object(&prepared.review, object.clone());
            let validated = step(validators, requests, Endpoint::Validate, &review).await?;
            if let Some(status) = &validated.outcome.status {
                mixed.push(format!("{words}: {}", status.message));
            }
        }
    }
    Ok(Comparison {
        old: was.to_json(),
        new: is.to_json(),
        fuel: (was.fuel(), is.fuel()),
        mixed,
    })
}

// === impl Against ===

impl Against {
    /// Adds settings for the other version, read from a file.
    pub(super) fn with_settings(mut self, file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("--against-settings: cannot read {shown}"))?;
        let problems = Collector::default();
        let settings = yaml::read(&text, &problems);
        let settings = problems
            .finish(settings)
            .map_err(|problems| anyhow!("--against-settings: {shown}: {problems}"))?;
        ensure!(
            settings.is_object(),
            "--against-settings: {shown}: expected an object such as `maxReplicas: 10`"
        );
        self.settings = Some((file.to_owned(), settings));
        Ok(self)
    }

    /// Lists the files that the other version depends on.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let settings = self.settings.iter().map(|(file, _)| file.clone());
        settings.chain([self.file.clone()]).collect()
    }

    /// Replaces the version in the suite's configuration by the other version.
    pub(super) fn put_into(&self, configs: &mut [PluginConfig]) -> anyhow::Result<()> {
        ensure!(
            self.file.is_file(),
            "--against: {} is not a file",
            self.file.display()
        );
        let put = |config: &mut PluginConfig| {
            config.source = Source::File(self.file.clone());
            if let Some((_, settings)) = &self.settings {
                config.settings = settings.clone();
            }
        };
        match (&self.plugin, configs) {
            (None, [only]) => put(only),
            (None, _) => bail!(
                "--against: the suite has several plugins; name one, as in --against NAME={}",
                self.file.display()
            ),
            (Some(name), configs) => {
                let config = configs
                    .iter_mut()
                    .find(|config| config.name.as_str() == name);
                match config {
                    Some(config) => put(config),
                    None => bail!("--against: the suite has no plugin {name:?}"),
                }
            }
        }
        Ok(())
    }
}

impl FromStr for Against {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            Some((name, file)) => Self {
                plugin: Some(name.to_owned()),
                file: file.into(),
                settings: None,
            },
            None => Self {
                plugin: None,
                file: text.into(),
                settings: None,
            },
        })
    }
}

// === impl Comparison ===

impl Comparison {
    pub(super) fn is_changed(&self) -> bool {
        self.old != self.new
    }

    /// Returns the failures of a comparison. A different result may be intended. A denial of the other version's output
    /// never is.
    pub(super) fn failures(&self) -> Vec<Failure> {
        let failures = self.mixed.iter();
        failures
            .map(|what| Failure::new(format!("against: while both versions serve, {what}")))
            .collect()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "changed": self.is_changed(),
            "old": self.old,
            "new": self.new,
            "fuel": { "old": self.fuel.0, "new": self.fuel.1 },
            "mixed": self.mixed,
        })
    }
}
