//! Gatekeeper: ConstraintTemplates with Rego, and their constraints.
//!
//! A template with its constraints becomes one plugin. The template and the constraints are its settings, unchanged. The
//! rules are those kinds of the constraints whose resources are known, so that the plugin is not called for others.

mod rules;

use serde_json::{Value, json};

use crate::entry::plugin_name;
use crate::{Dialect, Document, Effect, Entry, Imported, Matching, Note, Sources};

/// The dialect of Gatekeeper.
#[derive(Clone, Debug)]
pub struct Gatekeeper {
    /// The sources of the plugins.
    pub sources: Sources,
}

const TEMPLATES: &str = "templates.gatekeeper.sh";
const CONSTRAINTS: &str = "constraints.gatekeeper.sh";
const TARGET: &str = "admission.k8s.gatekeeper.sh";
/// The label that is equal to a namespace's name. A selector of this label alone needs no labels.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Groups whose objects cannot be expressed, with the reason.
const OTHERS: [(&str, &str); 5] = [
    (
        "mutations.gatekeeper.sh",
        "mutators cannot be expressed; write a mutator plugin",
    ),
    (
        "expansion.gatekeeper.sh",
        "expansion of workloads into Pods is not available",
    ),
    (
        "externaldata.gatekeeper.sh",
        "external data is not supported; use a plugin of your own",
    ),
    (
        "config.gatekeeper.sh",
        "exempt namespaces are not translated; write them under `match.excludeNamespaces`",
    ),
    (
        "syncset.gatekeeper.sh",
        "nothing is synchronised; list the objects under `settings.inventory`",
    ),
];
const NAMESPACE_SELECTOR: &str = "namespaceSelector needs the labels of namespaces, which a review does not contain; \
    list the Namespaces under `settings.namespaces`, or select by kubernetes.io/metadata.name";

// === impl Gatekeeper ===

impl Dialect for Gatekeeper {
    fn claims(&self, document: &Document) -> bool {
        let group = document.group();
        [TEMPLATES, CONSTRAINTS].contains(&group) || OTHERS.iter().any(|(other, _)| *other == group)
    }

    fn translate(&self, documents: &[&Document], into: &mut Imported) {
        let of_group = |group: &'static str| {
            let documents = documents.iter().copied();
            documents.filter(move |document| document.group() == group)
        };
        let mut kinds: Vec<&str> = Vec::new();
        for template in of_group(TEMPLATES) {
            let kind = template.text_at("/spec/crd/spec/names/kind");
            if kinds.contains(&kind) {
                let text = format!("another template defines {kind} already");
                into.notes.push(template.note(Effect::Impossible, text));
                continue;
            }
            kinds.push(kind);
            let constraints: Vec<&Document> = of_group(CONSTRAINTS)
                .filter(|constraint| constraint.kind() == kind)
                .collect();
            self.template(template, &constraints, into);
        }
        for constraint in of_group(CONSTRAINTS) {
            if !kinds.contains(&constraint.kind()) {
                let text = "its ConstraintTemplate is not among the documents";
                into.notes.push(constraint.note(Effect::Impossible, text));
            }
        }
        for (group, reason) in OTHERS {
            for document in of_group(group) {
                into.notes.push(document.note(Effect::Impossible, reason));
            }
        }
    }
}

impl Gatekeeper {
    fn template(&self, template: &Document, constraints: &[&Document], into: &mut Imported) {
        let rego = match rego(template) {
            Ok(rego) => rego,
            Err(reason) => {
                into.notes.push(template.note(Effect::Impossible, reason));
                for constraint in constraints {
                    let text = "its ConstraintTemplate cannot be translated";
                    into.notes.push(constraint.note(Effect::Impossible, text));
                }
                return;
            }
        };
        let (selected, left_out): (Vec<&Document>, Vec<&Document>) = constraints
            .iter()
            .copied()
            .partition(|constraint| !needs_namespaces(constraint));
        for constraint in left_out {
            let note =
                constraint.note_at("namespaceSelector", Effect::Impossible, NAMESPACE_SELECTOR);
            into.notes.push(note);
        }
        if selected.is_empty() {
            let text = match constraints.is_empty() {
                true => "has no constraints, so there is nothing to enforce",
                false => "has no constraint that can be translated",
            };
            into.notes.push(template.note(Effect::Skipped, text));
            return;
        }
        let operations = match rego.contains("\"DELETE\"") {
            true => vec!["CREATE", "UPDATE", "DELETE"],
            false => vec!["CREATE", "UPDATE"],
        };
        let mut notes = differences(template, &rego);
        let (rules, unknown) = rules::of(&selected, &operations);
        for (constraint, kind) in unknown {
            let text = format!(
                "the resource of {kind} is not known; the plugin is called for every resource of its group"
            );
            notes.push(constraint.note_at(kind, Effect::Differs, text));
        }
        let name = plugin_name(template.name(), &into.entries);
        let count = selected.len();
        let text = format!("plugin {name}, {count} constraint(s)");
        into.notes.push(template.note(Effect::Translated, text));
        for constraint in &selected {
            notes.extend(actions(constraint));
            let text = format!("a constraint of plugin {name}");
            into.notes.push(constraint.note(Effect::Translated, text));
        }
        into.notes.append(&mut notes);
        let constraints: Vec<&Value> = selected.iter().map(|one| &one.value).collect();
        into.entries.push(Entry {
            name,
            source: self.sources.rego.clone(),
            matching: Matching { rules },
            // Gatekeeper's webhook lets requests pass when it cannot answer.
            failure_policy: "Ignore",
            settings: json!({ "template": template.value, "constraints": constraints }),
            place: (template.file.clone(), template.line),
        });
    }
}

/// Returns the Rego of a template, or the reason why there is none that can run.
fn rego(template: &Document) -> Result<String, String> {
    let targets = template.value.pointer("/spec/targets");
    let mut targets = targets.and_then(Value::as_array).into_iter().flatten();
    let target = targets
        .find(|target| target["target"] == TARGET)
        .ok_or_else(|| format!("has no target {TARGET}"))?;
    let code = target["code"].as_array().into_iter().flatten();
    let code = code.filter(|code| code["engine"] == "Rego");
    let sources: Vec<&Value> = code.map(|code| &code["source"]).chain([target]).collect();
    let holder = sources
        .into_iter()
        .find(|source| source["rego"].is_string());
    let Some(holder) = holder else {
        return Err("has no Rego; templates with CEL alone cannot be translated".to_owned());
    };
    let libs = holder["libs"].as_array().into_iter().flatten();
    let texts = [&holder["rego"]].into_iter().chain(libs);
    let text: Vec<&str> = texts.filter_map(Value::as_str).collect();
    let text = text.join("\n");
    match text.contains("external_data(") {
        true => Err("uses external data, which is not supported".to_owned()),
        false => Ok(text),
    }
}

/// Returns what a plugin does otherwise than Gatekeeper.
fn differences(template: &Document, rego: &str) -> Vec<Note> {
    let mut notes = Vec::new();
    if rego.contains("data.inventory") {
        let text = "reads data.inventory, which has only the objects under `settings.inventory`";
        notes.push(template.note_at("data.inventory", Effect::Differs, text));
    }
    let targets = template
        .value
        .pointer("/spec/targets")
        .map(Value::to_string);
    if targets.is_some_and(|targets| targets.contains("\"K8sNativeValidation\"")) {
        let text = "has CEL, too, which Gatekeeper may prefer; the plugin runs the Rego";
        notes.push(template.note_at("K8sNativeValidation", Effect::Differs, text));
    }
    notes
}

/// Returns what the actions of a constraint do otherwise than in Gatekeeper.
fn actions(constraint: &Document) -> Option<Note> {
    match constraint.text_at("/spec/enforcementAction") {
        "dryrun" => {
            let text =
                "reports violations in the log and in the audit annotations, and not in its status";
            Some(constraint.note_at("enforcementAction", Effect::Differs, text))
        }
        "scoped" => {
            let text = "only the actions for validation.gatekeeper.sh have an effect";
            Some(constraint.note_at("enforcementAction", Effect::Differs, text))
        }
        _ => None,
    }
}

/// Whether the match of a constraint needs labels of namespaces.
fn needs_namespaces(constraint: &Document) -> bool {
    let selector = constraint.value.pointer("/spec/match/namespaceSelector");
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return false;
    };
    let labels = selector["matchLabels"].as_object();
    let labels = labels.into_iter().flatten().map(|(key, _)| key.as_str());
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    let expressions = expressions.map(|one| one["key"].as_str().unwrap_or_default());
    !labels.chain(expressions).all(|key| key == NAME_LABEL)
}
