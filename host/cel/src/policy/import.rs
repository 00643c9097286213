//! Translates policies of a cluster into settings of plugins.
//!
//! The functions are pure: an importer reads the files, and calls [`import`] with their documents.

use serde_json::{Value as Json, json};

use super::spec::{Binding, FailurePolicy, Kind, NamedRule, ParamKind, Settings, WrittenPolicy};

/// One plugin that replaces a policy.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The name of the plugin, which is the policy's name.
    pub name: String,
    /// The settings of the plugin `cel-policy`.
    pub settings: Json,
    /// The rules of the plugin, as the configuration writes them.
    pub rules: Vec<Json>,
    /// The failure policy of the plugin.
    pub failure_policy: &'static str,
    /// The differences of the plugin from kube-apiserver.
    pub notes: Vec<String>,
}

/// A document that is not translated.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// The index of the document.
    pub index: usize,
    /// The reason.
    pub reason: String,
}

/// Translates documents. Documents of other kinds are parameters if a policy's `paramKind` names them, and are
/// otherwise ignored.
#[must_use]
pub fn import(documents: &[Json]) -> (Vec<Imported>, Vec<Skipped>) {
    let mut skipped = Vec::new();
    let mut policies: Vec<(usize, WrittenPolicy)> = Vec::new();
    let mut bindings: Vec<(usize, Binding)> = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let kind = document["kind"].as_str().unwrap_or_default();
        let read = match kind {
            "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
                WrittenPolicy::read(document).map(|policy| policies.push((index, policy)))
            }
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
                Binding::read(document).map(|binding| bindings.push((index, binding)))
            }
            _ => Ok(()),
        };
        if let Err(reason) = read {
            skipped.push(Skipped { index, reason });
        }
    }
    for (index, binding) in &bindings {
        let has_policy = policies.iter().any(|(_, policy)| binding.is_of(policy));
        if !has_policy {
            let reason = format!(
                "the binding {:?} is of the policy {:?}, which is not in the files",
                binding.metadata.name, binding.spec.policy_name
            );
            skipped.push(Skipped {
                index: *index,
                reason,
            });
        }
    }
    let mut imported = Vec::new();
    for (index, policy) in policies {
        let own: Vec<Binding> = bindings
            .iter()
            .filter(|(_, binding)| binding.is_of(&policy))
            .map(|(_, binding)| binding.clone())
            .collect();
        if own.is_empty() {
            let reason = format!(
                "the policy {:?} has no binding in the files, and does nothing without one",
                policy.metadata.name
            );
            skipped.push(Skipped { index, reason });
            continue;
        }
        imported.push(translated(policy, own, documents));
    }
    skipped.sort_by_key(|skipped| skipped.index);
    (imported, skipped)
}

fn translated(policy: WrittenPolicy, bindings: Vec<Binding>, documents: &[Json]) -> Imported {
    let params: Vec<Json> = match &policy.spec.param_kind {
        None => Vec::new(),
        Some(kind) => documents
            .iter()
            .filter(|document| is_of(document, kind))
            .cloned()
            .collect(),
    };
    let constraints = policy.spec.match_constraints.clone().unwrap_or_default();
    let mut notes = Vec::new();
    let rules = rules(&constraints.resource_rules);
    if policy.spec.failure_policy == Some(FailurePolicy::Ignore) {
        notes.push(
            "failurePolicy Ignore covers expressions that fail; a fault of the plugin itself is ignored, too"
                .to_owned(),
        );
    }
    if policy.spec.param_kind.is_some() {
        notes.push(
            "the parameters are copied into the settings; a change in the cluster has no effect until they are \
             imported again"
                .to_owned(),
        );
    }
    notes.extend(missing(&bindings, &params));
    let failure_policy = match policy.spec.failure_policy.unwrap_or_default() {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    };
    let name = policy.metadata.name.clone();
    let settings = Settings {
        policy,
        bindings,
        params,
    };
    Imported {
        name,
        settings: serde_json::to_value(settings).unwrap_or(Json::Null),
        rules,
        failure_policy,
        notes,
    }
}

/// Returns a note for each binding whose parameters are not in the files.
fn missing(bindings: &[Binding], params: &[Json]) -> Vec<String> {
    let text = |object: &Json, pointer: &str| {
        let text = object.pointer(pointer).and_then(Json::as_str);
        text.map(str::to_owned)
    };
    let mut notes = Vec::new();
    for binding in bindings {
        let Some(wanted) = &binding.spec.param_ref else {
            continue;
        };
        let fits = |object: &Json| {
            let is_named = |name: &String| text(object, "/metadata/name").as_ref() == Some(name);
            let is_in = |namespace: &String| {
                text(object, "/metadata/namespace").as_ref() == Some(namespace)
            };
            wanted.name.as_ref().is_none_or(is_named) && wanted.namespace.as_ref().is_none_or(is_in)
        };
        if !params.iter().any(fits) {
            let named = wanted.name.as_deref().unwrap_or("of its selector");
            notes.push(format!(
                "the binding {:?} wants parameters ({named}) that are not in the files; without them, its \
                 parameterNotFoundAction applies to every request",
                binding.metadata.name
            ));
        }
    }
    notes
}

/// Returns the rules as the configuration writes them. The plugin matches names and excluded rules itself.
fn rules(written: &[NamedRule]) -> Vec<Json> {
    let mut rules: Vec<Json> = Vec::new();
    for rule in written {
        let mut translated = json!({
            "apiGroups": rule.api_groups,
            "apiVersions": rule.api_versions,
            "operations": rule.operations,
            "resources": rule.resources,
        });
        if let Some(scope) = &rule.scope {
            translated["scope"] = json!(scope);
        }
        if !rules.contains(&translated) {
            rules.push(translated);
        }
    }
    rules
}

fn is_of(document: &Json, kind: &ParamKind) -> bool {
    document["kind"] == kind.kind.as_str() && document["apiVersion"] == kind.api_version.as_str()
}

impl WrittenPolicy {
    fn read(document: &Json) -> Result<Self, String> {
        serde_json::from_value(document.clone()).map_err(|error| error.to_string())
    }
}

impl Binding {
    fn read(document: &Json) -> Result<Self, String> {
        serde_json::from_value(document.clone()).map_err(|error| error.to_string())
    }

    fn is_of(&self, policy: &WrittenPolicy) -> bool {
        let kind = match policy.kind {
            Kind::MutatingAdmissionPolicy => Kind::MutatingAdmissionPolicyBinding,
            _ => Kind::ValidatingAdmissionPolicyBinding,
        };
        self.kind == kind && self.spec.policy_name == policy.metadata.name
    }
}
