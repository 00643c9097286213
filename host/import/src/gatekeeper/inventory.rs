//! Lookups for templates that read `data.inventory`.
//!
//! Gatekeeper synchronises kinds for all templates. A plugin sees only the objects that its own lookups grant, so the kinds
//! of a template have to be known. The template says them itself (`requires-sync-data`), or the Config and the SyncSets do.

use serde_json::{Value, json};
use tollgate_config::kubernetes::{Kinds, resource_of};

use crate::{Document, Effect, Note};

/// What a template needs to read objects of the cluster.
#[derive(Default)]
pub(super) struct Inventory {
    /// The `lookups` of the entry.
    pub(super) lookups: Vec<Value>,
    /// The `inventoryFrom` of the settings.
    pub(super) sources: Vec<Value>,
}

/// A kind in a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Synced {
    group: String,
    version: String,
    kind: String,
}

/// Which of the objects the Rego can be about.
#[derive(Debug, PartialEq, Eq)]
enum Only {
    Everything,
    SameNamespace,
    /// The places of the keys in the other objects and in the reviewed object.
    SameKey(String, String),
}

const REQUIRES: &str = "/metadata/annotations/metadata.gatekeeper.sh~1requires-sync-data";
const DATA: &str = "data.inventory";
const OBJECT: &str = "input.review.object";
/// Members of objects that policies read, beside names. `metadata` as a whole would have the managed fields.
const METADATA: [&str; 4] = ["labels", "annotations", "ownerReferences", "finalizers"];
const MEMBERS: [&str; 14] = [
    "spec",
    "status",
    "data",
    "rules",
    "subjects",
    "roleRef",
    "provisioner",
    "parameters",
    "reclaimPolicy",
    "webhooks",
    "value",
    "type",
    "secrets",
    "imagePullSecrets",
];
/// Most lookups of an entry.
const MOST: usize = tollgate_config::lookup::MOST_LOOKUPS;

/// Returns the kinds that a Config or a SyncSet synchronises.
pub(super) fn synced(document: &Document) -> Vec<Synced> {
    let lists = ["/spec/sync/syncOnly", "/spec/gvks"];
    let lists = lists.iter().filter_map(|at| document.value.pointer(at));
    let elements = lists.filter_map(Value::as_array).flatten();
    let text = |element: &Value, key: &str| element[key].as_str().unwrap_or_default().to_owned();
    let kinds = elements.map(|element| Synced {
        group: text(element, "group"),
        version: text(element, "version"),
        kind: text(element, "kind"),
    });
    kinds.filter(|synced| !synced.kind.is_empty()).collect()
}

/// Returns what a template with this Rego needs. `all` are the kinds that are synchronised for all templates.
pub(super) fn of(
    template: &Document,
    rego: &str,
    all: &[Synced],
    notes: &mut Vec<Note>,
) -> Inventory {
    let mut inventory = Inventory::default();
    if !rego.contains(DATA) {
        return inventory;
    }
    let mut kinds = required(template);
    if kinds.is_empty() {
        let is_named = |synced: &&Synced| {
            let quoted = format!("\"{}\"", synced.kind);
            rego.contains(&quoted) || rego.contains(&format!(".{}", synced.kind))
        };
        kinds = all.iter().filter(is_named).cloned().collect();
        if kinds.is_empty() {
            kinds = all.to_vec();
        }
    }
    if kinds.is_empty() {
        let text = "reads data.inventory, and nothing says of which kinds: add a `lookups` and `settings.inventoryFrom`, or \
                    the objects under `settings.inventory`";
        notes.push(template.note_at(DATA, Effect::Differs, text));
        return inventory;
    }
    if kinds.len() > MOST {
        let count = kinds.len();
        let text = format!(
            "reads data.inventory of {count} kinds, and an entry has at most {MOST} lookups: the others are left out"
        );
        notes.push(template.note_at(DATA, Effect::Differs, text));
        kinds.truncate(MOST);
    }
    let only = only(rego);
    let fields = fields(rego);
    for synced in &kinds {
        let resource = Kinds::default().resource(&synced.group, &synced.kind);
        let name = name(&resource.plural, &synced.group, &inventory.lookups);
        let mut lookup = json!({
            "name": name,
            "resource": { "group": synced.group, "version": synced.version, "resource": resource.plural },
            "fields": fields,
        });
        let api_version = match synced.group.as_str() {
            "" => synced.version.clone(),
            group => format!("{group}/{}", synced.version),
        };
        let mut source = json!({ "lookup": name, "apiVersion": api_version, "kind": synced.kind });
        match &only {
            Only::SameNamespace if resource.namespaced => {
                source["only"] = json!({ "sameNamespace": {} });
            }
            Only::SameKey(theirs, own) => {
                lookup["indexes"] = json!({ "key": theirs });
                source["only"] = json!({ "sameKey": { "index": "key", "at": own } });
            }
            Only::Everything | Only::SameNamespace => {}
        }
        if synced.kind == "Secret" && synced.group.is_empty() {
            lookup["secrets"] = true.into();
        }
        inventory.lookups.push(lookup);
        inventory.sources.push(source);
    }
    let names: Vec<String> = kinds.iter().map(|synced| synced.kind.clone()).collect();
    let which = match only {
        Only::Everything => "",
        Only::SameNamespace => " in the namespace of the object",
        Only::SameKey(..) => " with the same key as the object",
    };
    let text = format!(
        "reads data.inventory: lookups of {}{which}, which keep {}; add other fields under `lookups[].fields`, and grant the \
         rights that `tollgate check` prints",
        names.join(", "),
        fields.join(" ")
    );
    notes.push(template.note_at(DATA, Effect::Differs, text));
    inventory
}

/// Returns the kinds that a template requires. Of equivalent ones, it takes one that Kubernetes has.
fn required(template: &Document) -> Vec<Synced> {
    let annotation = template.text_at(REQUIRES).trim();
    // The list is often a quoted text of several lines.
    let list = annotation.trim_matches('"');
    let read: Value = serde_json::from_str(list).unwrap_or_default();
    let mut kinds: Vec<Synced> = Vec::new();
    for equivalents in read.as_array().into_iter().flatten() {
        let mut options = Vec::new();
        for clause in equivalents.as_array().into_iter().flatten() {
            let texts = |key: &str| {
                let texts = clause[key].as_array().into_iter().flatten();
                let texts = texts.filter_map(Value::as_str).map(str::to_owned);
                texts.collect::<Vec<_>>()
            };
            let (groups, versions) = (texts("groups"), texts("versions"));
            for kind in texts("kinds") {
                for group in &groups {
                    // A stable version has no letters after its number.
                    let is_stable = |version: &&String| {
                        version
                            .trim_start_matches('v')
                            .bytes()
                            .all(|b| b.is_ascii_digit())
                    };
                    let version = versions.iter().rev().find(is_stable);
                    if let Some(version) = version.or(versions.last()) {
                        options.push(Synced {
                            group: group.clone(),
                            version: version.clone(),
                            kind: kind.clone(),
                        });
                    }
                }
            }
        }
        let known = |synced: &&Synced| resource_of(&synced.group, &synced.kind).is_some();
        let mut names: Vec<&str> = options.iter().map(|synced| &*synced.kind).collect();
        names.dedup();
        for name in names {
            let of_kind = || options.iter().filter(|synced| synced.kind == name);
            let best = of_kind().find(known).or_else(|| of_kind().next());
            let best = best.filter(|best| !kinds.contains(best)).cloned();
            kinds.extend(best);
        }
    }
    kinds
}

/// Returns the fields that the Rego may read.
fn fields(rego: &str) -> Vec<String> {
    let mentions =
        |name: &str| rego.contains(&format!(".{name}")) || rego.contains(&format!("\"{name}\""));
    let metadata = METADATA.iter().filter(|name| mentions(name));
    let metadata = metadata.map(|name| format!("/metadata/{name}"));
    let members = MEMBERS.iter().filter(|name| mentions(name));
    metadata
        .chain(members.map(|name| format!("/{name}")))
        .collect()
}

/// Finds out which of the objects the Rego can be about. In doubt, all.
fn only(rego: &str) -> Only {
    let lines: Vec<&str> = rego.lines().map(str::trim).collect();
    let lines: Vec<&str> = lines
        .into_iter()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let places: Vec<&str> = lines
        .iter()
        .flat_map(|line| {
            line.match_indices(DATA)
                .map(|(at, _)| &line[at + DATA.len()..])
        })
        .collect();
    if let ([_], Some((theirs, own))) = (places.as_slice(), same_key(&lines)) {
        return Only::SameKey(theirs, own);
    }
    let is_own = |place: &&str| {
        let index = place.strip_prefix(".namespace[").and_then(up_to_bracket);
        index.is_some_and(|index| is_namespace_of_object(index, &lines))
    };
    match places.iter().all(is_own) {
        true => Only::SameNamespace,
        false => Only::Everything,
    }
}

fn up_to_bracket(text: &str) -> Option<&str> {
    text.split_once(']').map(|(index, _)| index.trim())
}

/// The only value that the lines assign to a variable.
fn assigned<'l>(variable: &str, lines: &[&'l str]) -> Option<&'l str> {
    let values = lines.iter().filter_map(|line| {
        let (left, right) = line.split_once(":=")?;
        (left.trim() == variable).then_some(right.trim())
    });
    let mut values: Vec<&str> = values.collect();
    values.dedup();
    match values.as_slice() {
        [value] => Some(value),
        _ => None,
    }
}

fn is_namespace_of_object(index: &str, lines: &[&str]) -> bool {
    let is_it = |text: &str| {
        let of_variable = text.strip_suffix(".metadata.namespace");
        matches!(
            text,
            "input.review.namespace" | "input.review.object.metadata.namespace"
        ) || of_variable.is_some_and(|variable| assigned(variable, lines) == Some(OBJECT))
    };
    is_it(index) || assigned(index, lines).is_some_and(is_it)
}

/// Finds `other := data.inventory…` and `other.PATH == key` with `key := input.review.object.PATH`, as in a policy for
/// uniqueness. Without an equal key, such a rule cannot hold.
fn same_key(lines: &[&str]) -> Option<(String, String)> {
    let other = lines.iter().find_map(|line| {
        let (left, right) = line.split_once(":=")?;
        let is_inventory = right.trim().starts_with(DATA);
        is_inventory.then_some(left.trim())
    })?;
    lines.iter().find_map(|line| {
        let (left, right) = line.split_once("==")?;
        let (left, right) = (left.trim(), right.trim());
        let path = |text: &str| {
            text.strip_prefix(other)?
                .strip_prefix('.')
                .and_then(pointer)
        };
        let (theirs, key) = match (path(left), path(right)) {
            (Some(theirs), None) => (theirs, right),
            (None, Some(theirs)) => (theirs, left),
            _ => return None,
        };
        let own = assigned(key, lines).unwrap_or(key);
        let own = own
            .strip_prefix(OBJECT)?
            .strip_prefix('.')
            .and_then(pointer)?;
        Some((theirs, own))
    })
}

/// Translates a path such as `spec.rules[_].host`. None for anything else.
fn pointer(path: &str) -> Option<String> {
    let mut pointer = String::new();
    for part in path.split('.') {
        let (name, elements) = match part.strip_suffix("[_]") {
            Some(name) => (name, "/*"),
            None => (part, ""),
        };
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        pointer.push('/');
        pointer.push_str(name);
        pointer.push_str(elements);
    }
    Some(pointer)
}

/// The name of a lookup, unlike those of the others.
fn name(plural: &str, group: &str, others: &[Value]) -> String {
    let is_taken = |name: &str| others.iter().any(|lookup| lookup["name"] == name);
    match is_taken(plural) {
        false => plural.to_owned(),
        true => format!("{plural}-{}", group.replace('.', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIQUE: &str = r#"
violation[{"msg": msg}] {
  host := input.review.object.spec.rules[_].host
  other := data.inventory.namespace[_][version]["Ingress"][name]
  other.spec.rules[_].host == host
  not identical(other, input.review)
}"#;
    const BUDGET: &str = r#"
violation[{"msg": msg}] {
  pdb := input.review.object
}
violation[{"msg": msg}] {
  obj := input.review.object
  pdb := data.inventory.namespace[obj.metadata.namespace]["policy/v1"].PodDisruptionBudget[_]
}"#;
    const SELECTOR: &str = r#"
violation[{"msg": msg}] {
  own := flatten(input.review.object)
  other := data.inventory.namespace[namespace][_]["Service"][name]
  own == flatten(other)
}"#;

    #[test]
    fn narrows_only_what_the_rego_cannot_be_about() {
        let hosts = "/spec/rules/*/host".to_owned();
        assert_eq!(only(UNIQUE), Only::SameKey(hosts.clone(), hosts));
        assert_eq!(only(BUDGET), Only::SameNamespace);
        assert_eq!(only(SELECTOR), Only::Everything);
        // A second reading of the inventory may need other objects.
        let twice = format!("{UNIQUE}\nother_rule {{ data.inventory.cluster[_] }}");
        assert_eq!(only(&twice), Only::Everything);
        let negated = UNIQUE.replace("  other.spec", "  not other.spec");
        assert_eq!(only(&negated), Only::Everything);
        let assigned_twice = BUDGET.replace("  pdb := input", "  obj := data.x\n  pdb := input");
        assert_eq!(only(&assigned_twice), Only::Everything);
    }
}
