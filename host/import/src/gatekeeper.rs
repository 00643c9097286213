//! Gatekeeper: ConstraintTemplates with Rego or CEL, their constraints, and mutators.
//!
//! A template with its constraints becomes one plugin. The template and the constraints are its settings, unchanged. The
//! rules are those kinds of the constraints whose resources are known, so that the plugin is not called for others. All
//! mutators become one plugin, because each of them sees the changes of the others.

mod inventory;
mod mutators;
mod rego;
mod rules;

use serde_json::{Value, json};

use crate::entry::plugin_name;
use crate::{Dialect, Document, Effect, Entry, Imported, Matching, Note, Sources};
use inventory::{Inventory, Synced};

/// The dialect of Gatekeeper.
#[derive(Clone, Debug)]
pub struct Gatekeeper {
    /// The sources of the plugins.
    pub sources: Sources,
}

const TEMPLATES: &str = "templates.gatekeeper.sh";
const CONSTRAINTS: &str = "constraints.gatekeeper.sh";
const MUTATIONS: &str = "mutations.gatekeeper.sh";
const TARGET: &str = "admission.k8s.gatekeeper.sh";
/// The engine of a template's CEL.
const CEL: &str = "K8sNativeValidation";

/// The enforcement point of Gatekeeper's webhook, whose actions the plugins take.
const WEBHOOK: &str = "validation.gatekeeper.sh";
/// All enforcement points.
const EVERYWHERE: &str = "*";
const DRY_RUN: &str =
    "reports violations in the log and in the audit annotations, and not in its status";

/// Objects that name the kinds which policies read.
const SYNC_SETS: &str = "syncset.gatekeeper.sh";
const SYNCED: &str = "its kinds are lookups of the templates that read data.inventory";

/// The actions that a constraint can have. Without one, it denies.
const ACTIONS: [&str; 3] = ["deny", "warn", "dryrun"];

/// The code of a template that runs.
struct Code {
    is_cel: bool,
    text: String,
}

/// Groups whose objects cannot be expressed, with the reason.
const OTHERS: [(&str, &str); 4] = [
    (
        "expansion.gatekeeper.sh",
        "expansion is not translated; write `match.podTemplates: true` in the entries of constraints for Pods",
    ),
    (
        "externaldata.gatekeeper.sh",
        "external data is not supported; use a plugin of your own",
    ),
    (
        "config.gatekeeper.sh",
        "exempt namespaces are not translated; write them under `match.excludeNamespaces`",
    ),
    (SYNC_SETS, "names no kind under `spec.gvks`"),
];
// === impl Gatekeeper ===

impl Dialect for Gatekeeper {
    fn claims(&self, document: &Document) -> bool {
        let group = document.group();
        [TEMPLATES, CONSTRAINTS, MUTATIONS].contains(&group)
            || OTHERS.iter().any(|(other, _)| *other == group)
    }

    fn translate(&self, documents: &[&Document], into: &mut Imported) {
        let of_group = |group: &'static str| {
            let documents = documents.iter().copied();
            documents.filter(move |document| document.group() == group)
        };
        let of_all = ["config.gatekeeper.sh", "syncset.gatekeeper.sh"].map(of_group);
        let synced = of_all.into_iter().flatten().flat_map(inventory::synced);
        let synced: Vec<Synced> = synced.collect();
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
            self.template(template, &constraints, &synced, into);
        }
        for constraint in of_group(CONSTRAINTS) {
            if !kinds.contains(&constraint.kind()) {
                let text = "its ConstraintTemplate is not among the documents";
                into.notes.push(constraint.note(Effect::Impossible, text));
            }
        }
        let mutators: Vec<&Document> = of_group(MUTATIONS).collect();
        mutators::translate(&mutators, &self.sources.cel, into);
        for (group, reason) in OTHERS {
            for document in of_group(group) {
                // The rest of such an object says which objects policies read.
                let is_only_sync = group == SYNC_SETS || document.value["spec"]["match"].is_null();
                let note = match inventory::synced(document).is_empty() || !is_only_sync {
                    true => document.note(Effect::Impossible, reason),
                    false => document.note(Effect::Skipped, SYNCED),
                };
                into.notes.push(note);
            }
        }
    }
}

impl Gatekeeper {
    fn template(
        &self,
        template: &Document,
        constraints: &[&Document],
        synced: &[Synced],
        into: &mut Imported,
    ) {
        let code = match code(template) {
            Ok(code) => code,
            Err(reason) => {
                into.notes.push(template.note(Effect::Impossible, reason));
                for constraint in constraints {
                    let text = "its ConstraintTemplate cannot be translated";
                    into.notes.push(constraint.note(Effect::Impossible, text));
                }
                return;
            }
        };
        let (constraints, wrong): (Vec<&Document>, Vec<&Document>) = constraints
            .iter()
            .partition(|one| wrong_action(one).is_none());
        for constraint in wrong {
            let text = wrong_action(constraint).unwrap_or_default();
            let note = constraint.note_at("enforcementAction", Effect::Impossible, text);
            into.notes.push(note);
        }
        if constraints.is_empty() {
            let text = "has no constraints that can be translated, so there is nothing to enforce";
            into.notes.push(template.note(Effect::Skipped, text));
            return;
        }
        let constraints = &constraints[..];
        let operations = operations(&code, constraints);
        let mut notes = Vec::new();
        let inventory = match code.is_cel {
            true => Inventory::default(),
            false => inventory::of(template, &code.text, synced, &mut notes),
        };
        let (rules, unknown) = rules::of(constraints, &operations);
        for (constraint, kind) in unknown {
            let text = format!(
                "the resource of {kind} is not known; the plugin is called for every resource of its group"
            );
            notes.push(constraint.note_at(kind, Effect::Differs, text));
        }
        let name = plugin_name(template.name(), &into.entries);
        let count = constraints.len();
        let language = match code.is_cel {
            true => ", with its CEL",
            false => "",
        };
        let text = format!("plugin {name}, {count} constraint(s){language}");
        into.notes.push(template.note(Effect::Translated, text));
        for constraint in constraints {
            notes.extend(actions(constraint));
            let text = format!("a constraint of plugin {name}");
            into.notes.push(constraint.note(Effect::Translated, text));
        }
        into.notes.append(&mut notes);
        let constraints: Vec<&Value> = constraints.iter().map(|one| &one.value).collect();
        let mut settings = json!({ "template": template.value, "constraints": constraints });
        if !inventory.sources.is_empty() {
            settings["inventoryFrom"] = inventory.sources.into();
        }
        into.entries.push(Entry {
            name,
            source: match code.is_cel {
                true => self.sources.cel.clone(),
                false => self.sources.rego.clone(),
            },
            matching: Matching { rules },
            // Gatekeeper's webhook lets requests pass when it cannot answer.
            failure_policy: "Ignore",
            access: None,
            lookups: inventory.lookups,
            settings,
            place: (template.file.clone(), template.line),
        });
    }
}

/// Returns the code of a template that runs, or the reason why there is none. Gatekeeper prefers CEL to Rego.
fn code(template: &Document) -> Result<Code, String> {
    let targets = template.value.pointer("/spec/targets");
    let mut targets = targets.and_then(Value::as_array).into_iter().flatten();
    let target = targets
        .find(|target| target["target"] == TARGET)
        .ok_or_else(|| format!("has no target {TARGET}"))?;
    let codes = target["code"].as_array().into_iter().flatten();
    if let Some(cel) = codes.clone().find(|code| code["engine"] == CEL) {
        return Ok(Code {
            is_cel: true,
            text: cel["source"].to_string(),
        });
    }
    let codes = codes.filter(|code| code["engine"] == "Rego");
    let sources: Vec<&Value> = codes.map(|code| &code["source"]).chain([target]).collect();
    let holder = sources
        .into_iter()
        .find(|source| source["rego"].is_string());
    let Some(holder) = holder else {
        return Err(format!("has no code for the engines Rego and {CEL}"));
    };
    let libs = holder["libs"].as_array().into_iter().flatten();
    let texts = [&holder["rego"]].into_iter().chain(libs);
    let text: Vec<&str> = texts.filter_map(Value::as_str).collect();
    let text = text.join("\n");
    match text.contains("external_data(") {
        true => Err("uses external data, which is not supported".to_owned()),
        false => Ok(Code {
            is_cel: false,
            text,
        }),
    }
}

/// Returns what is wrong with the actions of a constraint. The plugin would refuse the constraint, and all others with it.
fn wrong_action(constraint: &Document) -> Option<String> {
    let spec = &constraint.value["spec"];
    let is_known = |action: &Value| action.as_str().is_some_and(|one| ACTIONS.contains(&one));
    match &spec["enforcementAction"] {
        Value::Null => None,
        action if action == "scoped" => {
            let scoped = spec["scopedEnforcementActions"].as_array();
            let are_known =
                scoped.is_some_and(|all| all.iter().all(|one| is_known(&one["action"])));
            (!are_known).then(|| {
                format!(
                    "expected a list of actions in scopedEnforcementActions, each {}",
                    ACTIONS.join(", ")
                )
            })
        }
        action => (!is_known(action))
            .then(|| format!("got {action}, expected {}, scoped", ACTIONS.join(", "))),
    }
}

/// Returns what the actions of a constraint do otherwise than in Gatekeeper.
fn actions(constraint: &Document) -> Vec<Note> {
    match constraint.text_at("/spec/enforcementAction") {
        "dryrun" => vec![constraint.note_at("enforcementAction", Effect::Differs, DRY_RUN)],
        "scoped" => scoped_actions(constraint),
        _ => Vec::new(),
    }
}

/// Returns a note for each action that is for another enforcement point than the webhook.
fn scoped_actions(constraint: &Document) -> Vec<Note> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut notes = Vec::new();
    let mut is_enforced = false;
    // How often the text has each point, to find the line.
    let mut seen: Vec<String> = Vec::new();
    for scoped in list(&constraint.value["spec"]["scopedEnforcementActions"]) {
        let action = scoped["action"].as_str().unwrap_or_default();
        let mut is_here = false;
        for point in list(&scoped["enforcementPoints"]) {
            let point = point["name"].as_str().unwrap_or_default();
            if [WEBHOOK, EVERYWHERE].contains(&point) {
                is_here = true;
                continue;
            }
            let index = seen.iter().filter(|other| *other == point).count();
            seen.push(point.to_owned());
            let text = format!(
                "the action {action} for {point} has no effect: the plugin takes the actions for {WEBHOOK} and *"
            );
            notes.push(constraint.note_at_nth(point, index, Effect::Differs, text));
        }
        is_enforced |= is_here;
        if is_here && action == "dryrun" {
            notes.push(constraint.note_at("dryrun", Effect::Differs, DRY_RUN));
        }
    }
    if !is_enforced {
        let text = format!("no action is for {WEBHOOK}, so the plugin ignores this constraint");
        notes.push(constraint.note_at("enforcementAction", Effect::Differs, text));
    }
    notes
}

// === impl Code ===

impl Code {
    /// Whether the code has this operation as a text.
    fn names(&self, operation: &str) -> bool {
        let quoted = ["\"", "'", "\\\""].map(|quote| format!("{quote}{operation}{quote}"));
        quoted.iter().any(|word| self.text.contains(word))
    }
}

/// Returns the operations that a template is about. Gatekeeper's webhook sees deletions and connections only where it is
/// configured to.
fn operations(code: &Code, constraints: &[&Document]) -> Vec<&'static str> {
    let is_parameter = |operation: &str| {
        let quoted = format!("\"{operation}\"");
        constraints.iter().any(|constraint| {
            let parameters = constraint.value.pointer("/spec/parameters");
            parameters.is_some_and(|parameters| parameters.to_string().contains(&quoted))
        })
    };
    let named = ["DELETE", "CONNECT"];
    let named = named
        .into_iter()
        .filter(|operation| code.names(operation) || is_parameter(operation));
    ["CREATE", "UPDATE"].into_iter().chain(named).collect()
}
