//! The check of `required-labels` on a typed Pod.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use regex::Regex;
use serde_json::Value;

/// The required labels, each with the pattern of its whole value.
#[derive(Debug)]
pub(crate) struct RequiredLabels {
    demands: Vec<(String, Option<Regex>)>,
}

// === impl RequiredLabels ===

impl RequiredLabels {
    /// Reads the settings of the only plugin in a configuration of Tollgate.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let configuration: Value = serde_json::from_str(&text)
            .with_context(|| format!("cannot parse {}, which must be JSON", file.display()))?;
        let plugins = configuration["plugins"].as_array().map(Vec::as_slice);
        let Some([plugin]) = plugins else {
            anyhow::bail!(
                "{} has {} plugins; expected one, because this webhook has one check",
                file.display(),
                plugins.map_or(0, <[Value]>::len)
            );
        };
        Self::new(&plugin["settings"])
    }

    fn new(settings: &Value) -> anyhow::Result<Self> {
        let labels = settings["labels"].as_object();
        let labels = labels
            .filter(|labels| !labels.is_empty())
            .context("expected at least one label in the settings")?;
        let demands = labels.iter().map(|(label, pattern)| {
            let pattern = pattern
                .as_str()
                .map(|text| Regex::new(&format!("^(?:{text})$")));
            let pattern = pattern
                .transpose()
                .with_context(|| format!("the pattern of label {label}"))?;
            Ok((label.clone(), pattern))
        });
        Ok(Self {
            demands: demands.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Checks a Pod. The error is the text for the user.
    pub(crate) fn check(&self, pod: &Pod) -> Result<(), String> {
        let labels = pod.metadata.labels.as_ref();
        let problems = self.demands.iter().filter_map(|(label, pattern)| {
            let value = labels.and_then(|labels| labels.get(label));
            match (value, pattern) {
                (None, _) => Some(format!("label {label} is required")),
                (Some(value), Some(pattern)) if !pattern.is_match(value) => {
                    Some(format!("label {label} must match {pattern}"))
                }
                (Some(_), _) => None,
            }
        });
        let problems: Vec<String> = problems.collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> anyhow::Result<RequiredLabels> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tollgate.yaml");
        std::fs::write(&file, text)?;
        RequiredLabels::read(&file)
    }

    #[test]
    fn reports_every_missing_or_malformed_label() {
        let policy = RequiredLabels::new(&json!({"labels": {"app": null, "team": "[a-z]{1,10}"}}));
        let policy = policy.unwrap();
        for (labels, expected) in [
            (json!({"app": "", "team": "blue"}), Ok(())),
            (json!({"team": "blue"}), Err("label app is required")),
            (
                json!({"app": "", "team": "Blue"}),
                Err("label team must match ^(?:[a-z]{1,10})$"),
            ),
            (
                json!(null),
                Err("label app is required; label team is required"),
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels},
            }))
            .unwrap();
            assert_eq!(
                policy.check(&pod),
                expected.map_err(str::to_owned),
                "{labels}"
            );
        }
    }

    #[test]
    fn rejects_configuration_that_it_cannot_check() {
        for (text, problem) in [
            ("plugins:", "must be JSON"),
            (r#"{"plugins": []}"#, "has 0 plugins"),
            (r#"{"plugins": [{}, {}]}"#, "has 2 plugins"),
            (r#"{"plugins": [{}]}"#, "at least one label"),
            (
                r#"{"plugins": [{"settings": {"labels": {"team": "[a-"}}}]}"#,
                "the pattern of label team",
            ),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
