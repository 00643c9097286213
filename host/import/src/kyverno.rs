//! Kyverno's policies in CEL: ValidatingPolicy and MutatingPolicy.
//!
//! Their parts are those of Kubernetes' policies, so the plugin `cel-policy` runs them as such, with one binding. The
//! expressions are compiled first. Import names an expression that is beyond Kubernetes' CEL, with its line.

use serde_json::{Map, Value, json};
use tollgate_cel::policy::import::{Imported as Policy, import};
use tollgate_cel::policy::{Abilities, Problem, Settings};

use crate::entry::{access_of, plugin_name};
use crate::in_tree::rule;
use crate::{Dialect, Document, Effect, Entry, Imported, Matching, Note, Sources};

/// The dialect of Kyverno.
#[derive(Clone, Debug)]
pub struct Kyverno {
    /// The sources of the plugins.
    pub sources: Sources,
}

const CEL_GROUP: &str = "policies.kyverno.io";
const OLD_GROUP: &str = "kyverno.io";
const KUBERNETES: &str = "admissionregistration.k8s.io";
/// The label of every Namespace with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Parts of a policy that Kubernetes' policies have, too.
const SHARED: [&str; 8] = [
    "auditAnnotations",
    "failurePolicy",
    "matchConditions",
    "matchConstraints",
    "mutations",
    "reinvocationPolicy",
    "validations",
    "variables",
];
/// Names of Kyverno's own libraries.
const LIBRARIES: [&str; 9] = [
    "exceptions",
    "generator",
    "globalContext",
    "http",
    "image",
    "images",
    "json",
    "resource",
    "yaml",
];
/// Kinds of the group that are not translated, with the reason.
const OTHERS: [(&str, &str); 5] = [
    (
        "DeletingPolicy",
        "deleting objects on a schedule is not a goal",
    ),
    (
        "GeneratingPolicy",
        "generating objects is not a goal: a plugin only answers reviews",
    ),
    (
        "ImageValidatingPolicy",
        "verifying images is not available: a plugin has no network",
    ),
    (
        "PolicyException",
        "write an exception: `exceptions` in the configuration, or a PluginException",
    ),
    (
        "CELPolicyException",
        "write an exception: `exceptions` in the configuration, or a PluginException",
    ),
];
const OLD: &str = "is no CEL; convert it into a ValidatingPolicy or MutatingPolicy first, as Kyverno itself asks for";
const AUTOGEN: &str = "Kyverno also applies it to the templates of Deployments, Jobs and other controllers of Pods; \
    the plugin sees Pods alone until the entry has `match.podTemplates: true`";
/// Versions of Kyverno differ in what they do about a policy with several rules.
const AUTOGEN_OF_SEVERAL: &str = "some versions of Kyverno also apply this rule to the templates of Deployments, Jobs and \
    other controllers of Pods; the plugin sees Pods alone until the entry has `match.podTemplates: true`";
/// The resources of Pods.
const PODS: [&str; 2] = ["pods", "pods/ephemeralcontainers"];

// === impl Kyverno ===

impl Dialect for Kyverno {
    fn claims(&self, document: &Document) -> bool {
        [CEL_GROUP, OLD_GROUP].contains(&document.group())
    }

    fn translate(&self, documents: &[&Document], into: &mut Imported) {
        for document in documents {
            let kind = document.kind();
            let kind = kind.strip_prefix("Namespaced").unwrap_or(kind);
            let target = match (document.group(), kind) {
                (CEL_GROUP, "ValidatingPolicy") => "ValidatingAdmissionPolicy",
                (CEL_GROUP, "MutatingPolicy") => "MutatingAdmissionPolicy",
                (group, kind) => {
                    let reason = OTHERS.iter().find(|(other, _)| *other == kind);
                    let reason = match (group, reason) {
                        (_, Some((_, reason))) => *reason,
                        (OLD_GROUP, None) => OLD,
                        _ => "this kind is not known",
                    };
                    into.notes.push(document.note(Effect::Impossible, reason));
                    continue;
                }
            };
            self.policy(document, target, into);
        }
    }
}

impl Kyverno {
    fn policy(&self, document: &Document, target: &str, into: &mut Imported) {
        if document.value.pointer("/spec/evaluation/admission/enabled") == Some(&json!(false)) {
            let text = "applies to existing objects only, and not to requests";
            into.notes.push(document.note(Effect::Skipped, text));
            return;
        }
        let mut losses = beyond(document);
        let policy = match translated(document, target) {
            Ok(policy) => {
                losses.extend(problems(document, &policy));
                if policy.rules.is_empty() {
                    let text = "has no matchConstraints.resourceRules, so no request is for it";
                    losses.push((String::new(), text.to_owned()));
                }
                Some(policy)
            }
            Err(reason) => {
                losses.push((String::new(), reason));
                None
            }
        };
        let (Some(policy), true) = (policy, losses.is_empty()) else {
            for (part, text) in losses {
                let note = document.note_at(&part, Effect::Impossible, text);
                into.notes.push(note);
            }
            return;
        };
        let name = plugin_name(document.name(), &into.entries);
        let text = format!("as the plugin {name}");
        into.notes.push(document.note(Effect::Translated, text));
        into.notes.extend(differences(document, &policy));
        into.entries.push(Entry {
            name,
            source: self.sources.cel.clone(),
            matching: Matching {
                rules: policy.rules.iter().map(rule).collect(),
            },
            failure_policy: policy.failure_policy,
            access: access_of(&policy.settings),
            lookups: Vec::new(),
            settings: policy.settings,
            place: (document.file.clone(), document.line),
        });
    }
}

/// Returns the parts that Tollgate cannot do: a text of the line, and the reason.
fn beyond(document: &Document) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |part: &str, reason: &str| {
        let reason = format!("{part}: {reason}");
        found.push((format!("{part}:"), reason));
    };
    let is_on = |pointer: &str| document.value.pointer(pointer) == Some(&json!(true));
    let mode = document.text_at("/spec/evaluation/mode");
    if !["", "Kubernetes"].contains(&mode) {
        add("mode", "only Kubernetes objects are reviewed");
    }
    if is_on("/spec/evaluation/mutateExisting/enabled") {
        add("mutateExisting", "existing objects are not changed");
    }
    let spec = document.value["spec"].as_object();
    for (key, _) in spec.into_iter().flatten() {
        let is_read = [
            "validationActions",
            "autogen",
            "evaluation",
            "webhookConfiguration",
        ];
        if SHARED.contains(&key.as_str()) || is_read.contains(&key.as_str()) {
            continue;
        }
        match key.as_str() {
            "targetMatchConstraints" | "targetMatchConditions" => {
                add(key, "existing objects are not changed");
            }
            _ => add(key, "this field is not known"),
        }
    }
    found
}

/// Writes a policy of Kubernetes with a binding, and imports both.
fn translated(document: &Document, target: &str) -> Result<Policy, String> {
    let mut spec = Map::new();
    for key in SHARED {
        if let Some(value) = document.value["spec"].get(key) {
            spec.insert(key.to_owned(), value.clone());
        }
    }
    if document.kind().starts_with("Namespaced") {
        restrict(&mut spec, document.text_at("/metadata/namespace"));
    }
    let name = document.name();
    let mut binding = json!({ "policyName": name });
    if target == "ValidatingAdmissionPolicy" {
        let actions = &document.value["spec"]["validationActions"];
        let is_given = actions.as_array().is_some_and(|list| !list.is_empty());
        binding["validationActions"] = match is_given {
            true => actions.clone(),
            false => json!(["Deny"]),
        };
    }
    let version = format!("{KUBERNETES}/v1");
    let object = |kind: &str, spec: Value| {
        let metadata = json!({ "name": name });
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec })
    };
    let policy = object(target, Value::Object(spec));
    let binding = object(&format!("{target}Binding"), binding);
    let (mut policies, skipped) = import(&[policy, binding]);
    match (policies.pop(), skipped.into_iter().next()) {
        (Some(policy), None) => Ok(policy),
        (_, Some(skipped)) => Err(skipped.reason),
        (None, None) => Err("is no policy".to_owned()),
    }
}

/// Restricts a policy to its own namespace.
fn restrict(spec: &mut Map<String, Value>, namespace: &str) {
    let requirement = json!({ "key": NAME_LABEL, "operator": "In", "values": [namespace] });
    let constraints = spec.entry("matchConstraints").or_insert_with(|| json!({}));
    let expressions = &mut constraints["namespaceSelector"]["matchExpressions"];
    match expressions.as_array_mut() {
        Some(expressions) => expressions.push(requirement),
        None => *expressions = json!([requirement]),
    }
}

/// Compiles a policy as its plugin does. Returns the problems, each with a text of the line.
fn problems(document: &Document, policy: &Policy) -> Vec<(String, String)> {
    let settings: Settings = match serde_json::from_value(policy.settings.clone()) {
        Ok(settings) => settings,
        Err(error) => return vec![(String::new(), error.to_string())],
    };
    let abilities = Abilities {
        namespace: true,
        access: true,
    };
    let compiled = tollgate_cel::policy::Policy::new(settings, abilities);
    let problems = compiled.err().unwrap_or_default().into_iter();
    let told = |Problem { pointer, message }: Problem| {
        let place = pointer.strip_prefix("/policy").unwrap_or(&pointer);
        let written = document.text_at(place);
        let line = written.lines().next().unwrap_or_default().trim().to_owned();
        let library = LIBRARIES
            .iter()
            .find(|name| message.contains(&format!("'{name}'")));
        let library = match library {
            Some(name) => format!("; {name} is a library of Kyverno, which Tollgate does not have"),
            None => String::new(),
        };
        (line, format!("{place}: {message}{library}"))
    };
    problems.map(told).collect()
}

/// Returns what the plugin does otherwise than Kyverno.
fn differences(document: &Document, policy: &Policy) -> Vec<Note> {
    let mut found = Vec::new();
    let rules = document
        .value
        .pointer("/spec/matchConstraints/resourceRules");
    let rules = rules.and_then(Value::as_array).map(Vec::as_slice);
    let rules = rules.unwrap_or_default();
    if has_autogen(document, rules) {
        let text = match rules.len() {
            1 => AUTOGEN,
            _ => AUTOGEN_OF_SEVERAL,
        };
        let rules = 0..rules.len();
        found.extend(
            rules.map(|index| document.note_at_nth("resources:", index, Effect::Differs, text)),
        );
    }
    if document
        .value
        .pointer("/spec/webhookConfiguration/timeoutSeconds")
        .is_some()
    {
        let text = "timeoutSeconds is not translated; `limits` of the plugin bound its time";
        found.push(document.note_at("timeoutSeconds:", Effect::Differs, text));
    }
    let notes = policy.notes.iter();
    found.extend(notes.map(|note| document.note_at("failurePolicy:", Effect::Differs, note)));
    found
}

/// Whether Kyverno also makes rules for the controllers of Pods. All rules must be about Pods then.
fn has_autogen(document: &Document, rules: &[Value]) -> bool {
    let at = |pointer: &str| document.value.pointer(pointer);
    let controllers = at("/spec/autogen/podControllers/controllers").and_then(Value::as_array);
    let is_off = controllers.is_some_and(Vec::is_empty);
    let selector = at("/spec/matchConstraints/objectSelector").and_then(Value::as_object);
    let selects = selector.is_some_and(|selector| !selector.is_empty());
    let excludes = at("/spec/matchConstraints/excludeResourceRules").and_then(Value::as_array);
    let excludes = excludes.is_some_and(|rules| !rules.is_empty());
    !is_off && !selects && !excludes && !rules.is_empty() && rules.iter().all(is_about_pods)
}

fn is_about_pods(rule: &Value) -> bool {
    let names = rule["resourceNames"].as_array();
    let resources: Vec<&str> = rule["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    names.is_none_or(Vec::is_empty)
        && resources.contains(&PODS[0])
        && resources.iter().all(|resource| PODS.contains(resource))
}
