//! Kubernetes' LabelSelector.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::namespaces::NAME_LABEL;

/// A label selector. Without requirements, it selects everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Whether every key is the label with the namespace's own name. No labels need to be known then.
    pub fn is_about_names_only(&self) -> bool {
        self.match_labels.keys().all(|key| key == NAME_LABEL)
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.key == NAME_LABEL)
    }

    /// Whether the selector selects these labels.
    pub fn selects(&self, labels: &Map<String, Json>) -> bool {
        self.selects_by(|key| labels.get(key).and_then(Json::as_str))
    }

    /// Whether the selector selects a namespace of which only the name is known.
    pub fn selects_name(&self, name: &str) -> bool {
        self.selects_by(|key| (key == NAME_LABEL).then_some(name))
    }

    /// Returns a description of the selector's mistake, if it has one.
    pub fn problem(&self) -> Option<String> {
        self.match_expressions.iter().find_map(|requirement| {
            let (key, empty) = (&requirement.key, requirement.values.is_empty());
            match &*requirement.operator {
                "In" | "NotIn" if empty => Some(format!("the expression for {key} needs `values`")),
                "Exists" | "DoesNotExist" if !empty => {
                    Some(format!("the expression for {key} must not have `values`"))
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
                _ => Some(format!(
                    "the operator for {key} must be In, NotIn, Exists or DoesNotExist"
                )),
            }
        })
    }

    fn selects_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let value = label(&requirement.key);
                let listed =
                    value.is_some_and(|value| requirement.values.iter().any(|one| one == value));
                match &*requirement.operator {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => value.is_some(),
                    _ => value.is_none(),
                }
            })
    }
}
