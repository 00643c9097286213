//! Kubernetes' own policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, with their bindings and parameters.

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate_cel::policy::import::{Imported as Policy, import};

use crate::entry::{access_of, plugin_name};
use crate::{Dialect, Document, Effect, Entry, Imported, Matching, Parsed, Rule, Sources};

/// Translates policies of kube-apiserver. The plugin `cel-policy` runs them.
#[derive(Clone, Debug)]
pub struct InTree {
    sources: Sources,
    /// `apiVersion` and `kind` of the objects that policies take parameters from.
    parameters: Vec<(Value, Value)>,
}

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: [&str; 2] = ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"];
const BINDINGS: [&str; 2] = [
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicyBinding",
];

// === impl InTree ===

impl InTree {
    /// Finds out which of the documents are parameters.
    #[must_use]
    pub fn new(sources: Sources, parsed: &Parsed) -> Self {
        let policies = parsed.documents.iter();
        let policies = policies.filter(|document| is_one_of(document, POLICIES));
        let parameters = policies.filter_map(|policy| {
            let kind = policy.value.pointer("/spec/paramKind")?;
            Some((kind["apiVersion"].clone(), kind["kind"].clone()))
        });
        Self {
            sources,
            parameters: parameters.collect(),
        }
    }

    fn is_parameter(&self, document: &Document) -> bool {
        let own = (&document.value["apiVersion"], &document.value["kind"]);
        self.parameters
            .iter()
            .any(|(version, kind)| own == (version, kind))
    }

    fn entry(&self, policy: &Policy, of: &Document, taken: &[Entry]) -> Entry {
        Entry {
            name: plugin_name(&policy.name, taken),
            source: self.sources.cel.clone(),
            matching: Matching {
                rules: policy.rules.iter().map(rule).collect(),
            },
            failure_policy: policy.failure_policy,
            access: access_of(&policy.settings),
            lookups: Vec::new(),
            settings: policy.settings.clone(),
            place: (of.file.clone(), of.line),
        }
    }
}

impl Dialect for InTree {
    fn claims(&self, document: &Document) -> bool {
        is_one_of(document, POLICIES)
            || is_one_of(document, BINDINGS)
            || self.is_parameter(document)
    }

    fn translate(&self, documents: &[&Document], into: &mut Imported) {
        let values: Vec<Value> = documents.iter().map(|one| one.value.clone()).collect();
        let (policies, skipped) = import(&values);
        let mut lost = Vec::new();
        for skip in skipped {
            if let Some(document) = documents.get(skip.index) {
                into.notes
                    .push(document.note(Effect::Impossible, skip.reason));
            }
            lost.push(skip.index);
        }
        let mut plugins = BTreeMap::new();
        for policy in &policies {
            let of = documents.iter().copied().find(|document| {
                is_one_of(document, POLICIES) && document.text_at("/metadata/name") == policy.name
            });
            let Some(of) = of else {
                continue;
            };
            let entry = self.entry(policy, of, &into.entries);
            if policy.notes.is_empty() {
                let text = format!("as the plugin {}", entry.name);
                into.notes.push(of.note(Effect::Translated, text));
            }
            for note in &policy.notes {
                let text = format!("as the plugin {}: {note}", entry.name);
                into.notes.push(of.note(Effect::Differs, text));
            }
            plugins.insert(policy.name.as_str(), entry.name.clone());
            into.entries.push(entry);
        }
        // What belongs to a policy.
        for (index, document) in documents.iter().enumerate() {
            if lost.contains(&index) || is_one_of(document, POLICIES) {
                continue;
            }
            let text = match is_one_of(document, BINDINGS) {
                true => match plugins.get(document.text_at("/spec/policyName")) {
                    Some(plugin) => format!("in the settings of the plugin {plugin}"),
                    None => "in the settings of its policy's plugin".to_owned(),
                },
                false => {
                    "is a parameter, copied into the settings of the policy's plugin".to_owned()
                }
            };
            into.notes.push(document.note(Effect::Translated, text));
        }
    }
}

fn is_one_of(document: &Document, kinds: [&str; 2]) -> bool {
    document.group() == GROUP && kinds.contains(&document.kind())
}

pub(crate) fn rule(written: &Value) -> Rule {
    let texts = |key: &str| -> Vec<String> {
        let items = written[key].as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    Rule {
        operations: texts("operations"),
        api_groups: texts("apiGroups"),
        api_versions: texts("apiVersions"),
        resources: texts("resources"),
        scope: written["scope"].as_str().map(str::to_owned),
    }
}
