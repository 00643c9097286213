//! Prints the description of a plugin in the manifest of its artifact.

use serde_json::{Value, json};
use tollgate_config::{ManifestRule, Match};
use tollgate_oci::Described;

use crate::registry::metadata;
use crate::terminal::{FAINT, STRONG, grouped, plain, say};

/// An artifact, as its manifest describes it.
pub(crate) struct Remote {
    pub(crate) source: String,
    pub(crate) described: Described,
}

/// The annotations of which `inspect` prints the text, in this order.
const TEXTS: [(&str, &str); 8] = [
    ("title", metadata::TITLE),
    ("version", metadata::VERSION),
    ("description", metadata::DESCRIPTION),
    ("licence", metadata::LICENCES),
    ("source", metadata::SOURCE),
    ("revision", metadata::REVISION),
    ("phases", metadata::PHASES),
    ("capabilities", metadata::CAPABILITIES),
];

// === impl Remote ===

impl Remote {
    /// Returns an annotation that is not empty.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        let text = self.described.annotations.get(key)?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    /// Returns the rules, one line each. None if there are none, or if they are not valid.
    pub(crate) fn rules(&self) -> Option<Vec<String>> {
        let rules: Vec<Value> = serde_json::from_str(self.text(metadata::RULES)?).ok()?;
        let rules: Vec<ManifestRule> = rules.iter().map(rule).collect();
        let rules = Match::from_manifest_rules(&rules).ok()?;
        Some(rules.rules().iter().map(ToString::to_string).collect())
    }

    /// Returns the schema of the settings, if it is JSON.
    pub(crate) fn settings_schema(&self) -> Option<Value> {
        serde_json::from_str(self.text(metadata::SETTINGS_SCHEMA)?).ok()
    }

    pub(super) fn print(&self) {
        say!("{STRONG}{}{STRONG:#}", plain(&self.source));
        say!("  digest       {}", self.described.digest);
        say!(
            "  size         {} bytes",
            grouped(self.described.size_bytes)
        );
        for (label, key) in TEXTS {
            if let Some(text) = self.text(key) {
                say!("  {label:<12} {}", plain(text));
            }
        }
        if let Some(rules) = self.rules() {
            say!("  rules        {}", plain(&rules.join("; ")));
        }
        if let Some(schema) = self.settings_schema() {
            say!("  settings");
            for line in format!("{schema:#}").lines() {
                let text = line.trim_start();
                let indent = line.len() - text.len();
                say!("    {:indent$}{}", "", plain(text));
            }
        }
        let is_known = |key: &str| {
            TEXTS.iter().any(|(_, known)| *known == key)
                || key == metadata::RULES
                || key == metadata::SETTINGS_SCHEMA
        };
        for (key, value) in &self.described.annotations {
            if !is_known(key) {
                say!("  annotation   {}: {}", plain(key), plain(value));
            }
        }
        say!(
            "  {FAINT}as pushed; `tollgate inspect` without --metadata asks the plugin itself{FAINT:#}"
        );
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "source": self.source,
            "digest": self.described.digest,
            "size": self.described.size_bytes,
            "annotations": self.described.annotations,
            "rules": self.rules(),
            "settingsSchema": self.settings_schema(),
        })
    }
}

/// Reads a rule as `push` writes it.
fn rule(rule: &Value) -> ManifestRule {
    let texts = |key: &str| {
        let texts = rule[key].as_array().into_iter().flatten();
        let texts = texts.filter_map(Value::as_str).map(ToOwned::to_owned);
        texts.collect()
    };
    ManifestRule {
        operations: texts("operations"),
        api_groups: texts("apiGroups"),
        api_versions: texts("apiVersions"),
        resources: texts("resources"),
        scope: rule["scope"].as_str().map(ToOwned::to_owned),
    }
}

#[cfg(test)]
pub(crate) fn sample(annotations: &[(&str, &str)]) -> Remote {
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Remote {
        source: "oci://registry.example.com/a:1".to_owned(),
        described: Described {
            digest: format!("sha256:{}", "0".repeat(64)),
            size_bytes: 1000,
            annotations: annotations.collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rules_as_push_writes_them() {
        let rules = r#"[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"],"scope":null}]"#;
        let remote = sample(&[(metadata::RULES, rules)]);
        assert_eq!(
            remote.rules().unwrap(),
            ["operations=CREATE apiGroups=apps apiVersions=v1 resources=deployments"]
        );
    }

    #[test]
    fn annotations_of_others_may_be_anything() {
        for text in ["", "x", "{}", "[5]", r#"[{"operations":5}]"#] {
            let remote = sample(&[(metadata::RULES, text), (metadata::SETTINGS_SCHEMA, "{")]);
            assert_eq!(remote.rules(), None, "{text}");
            assert_eq!(remote.settings_schema(), None);
            assert_eq!(remote.json()["rules"], Value::Null);
        }
    }
}
