//! Lookups for templates that read `data.inventory`.
//!
//! Gatekeeper synchronises kinds for all templates. A plugin sees only the objects that its own lookups grant, so the kinds
//! of a template have to be known. The template says them itself (`requires-sync-data`), or the Config and the SyncSets do.

mod only;

use serde_json::{Value, json};
use tollgate_config::kubernetes::{Kinds, resource_of};

use super::rego::Rego;
use crate::{Document, Effect, Note};
use only::{DATA, Only, is_object, name_of, only, places};

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

const REQUIRES: &str = "/metadata/annotations/metadata.gatekeeper.sh~1requires-sync-data";
/// Members of objects that policies read, beside names. `metadata` as a whole would have the managed fields.
const METADATA: [&str; 10] = [
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "uid",
    "generateName",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "resourceVersion",
];
const MEMBERS: [&str; 19] = [
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
    "binaryData",
    "immutable",
    "subsets",
    "endpoints",
    "aggregationRule",
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
    let rego = &Rego::new(rego);
    if places(rego).is_empty() {
        return inventory;
    }
    let text = rego.after(0);
    let mut kinds = required(template);
    if kinds.is_empty() {
        let is_named = |synced: &&Synced| {
            let quoted = format!("\"{}\"", synced.kind);
            text.contains(&quoted) || text.contains(&format!(".{}", synced.kind))
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
fn fields(rego: &Rego) -> Vec<String> {
    let text = rego.after(0);
    let mentions =
        |name: &str| text.contains(&format!(".{name}")) || text.contains(&format!("\"{name}\""));
    let metadata = METADATA.iter().filter(|name| mentions(name));
    let metadata = metadata.map(|name| format!("/metadata/{name}"));
    let members = MEMBERS.iter().filter(|name| mentions(name));
    let mut fields: Vec<String> = metadata
        .chain(members.map(|name| format!("/{name}")))
        .collect();
    for field in fields_of_variables(rego) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    fields
}

/// Returns the fields that the Rego reads of a variable with an object of the inventory.
fn fields_of_variables(rego: &Rego) -> Vec<String> {
    let mut fields = Vec::new();
    for body in rego.bodies() {
        let statements = body.statements.iter();
        let others = statements.filter_map(|one| one.split_once(":="));
        for (other, _) in others.filter(|(_, value)| is_object(value.trim())) {
            let other = other.trim();
            for at in rego.words(other).filter(|at| body.range.contains(at)) {
                let mut names = rego.after(at + other.len()).split('.').skip(1).map(name_of);
                let field = match (names.next(), names.next()) {
                    (None | Some("" | "apiVersion" | "kind"), _)
                    | (Some("metadata"), None | Some("" | "name" | "namespace")) => continue,
                    (Some("metadata"), Some(name)) => format!("/metadata/{name}"),
                    (Some(name), _) => format!("/{name}"),
                };
                if rego.after(at + other.len()).starts_with('.') {
                    fields.push(field);
                }
            }
        }
    }
    fields
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

    #[test]
    fn keeps_fields_that_the_rego_reads_of_other_objects() {
        let rego = r#"violation[{"msg": msg}] {
  other := data.inventory.cluster["v1"].Node[_]
  other.custom.x == other.metadata.selfLink
  other.kind; other.metadata.name; another.unread; other["dynamic"]
  x := other.metadata.creationTimestamp
}"#;
        assert_eq!(
            fields(&Rego::new(rego)),
            [
                "/metadata/creationTimestamp",
                "/custom",
                "/metadata/selfLink"
            ]
        );
    }
}
