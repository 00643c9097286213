//! Lookups for templates that read `data.inventory`.
//!
//! Gatekeeper synchronises kinds for all templates. A plugin sees only the objects that its own lookups grant, so the kinds
//! of a template have to be known. The template says them itself (`requires-sync-data`), or the Config and the SyncSets do.

use serde_json::{Value, json};
use tollgate_config::kubernetes::{Kinds, resource_of};

use super::rego::{Body, Rego};
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

/// The name that a text begins with.
fn name_of(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// Returns the places where the Rego reads the inventory, or may read it.
fn places(rego: &Rego) -> Vec<usize> {
    let places = rego.words("data");
    let reads = |at: &usize| {
        let after = rego.after(at + "data".len());
        match after.strip_prefix('.') {
            Some(member) => name_of(member) == "inventory",
            None => !after.starts_with(|c: char| matches!(c, ':' | '}' | ')')),
        }
    };
    places.filter(reads).collect()
}

/// Finds out which of the objects the Rego can be about. In doubt, all.
///
/// All statements of a body must hold. So an object for which one of them cannot hold changes nothing, if nothing else reads
/// the inventory, and no `with` gives the body another input.
fn only(rego: &Rego) -> Only {
    let places = places(rego);
    if rego.words("with").next().is_some() {
        return Only::Everything;
    }
    let bodies = rego.bodies();
    let in_body = |at: usize| bodies.iter().find(|body| body.range.contains(&at));
    if let [place] = places.as_slice()
        && let Some(body) = in_body(*place).filter(|body| body.rule == "violation")
        && let Some((theirs, own)) = same_key(rego, body)
    {
        return Only::SameKey(theirs, own);
    }
    let is_own = |at: &usize| {
        let after = rego.after(*at).strip_prefix(DATA);
        let index = after.and_then(|after| after.strip_prefix(".namespace["));
        let index = index.and_then(up_to_bracket);
        let body = in_body(*at);
        index
            .zip(body)
            .is_some_and(|(index, body)| is_namespace_of_object(rego, body, index))
    };
    match places.iter().all(is_own) {
        true => Only::SameNamespace,
        false => Only::Everything,
    }
}

fn up_to_bracket(text: &str) -> Option<&str> {
    text.split_once(']').map(|(index, _)| index.trim())
}

fn is_namespace_of_object(rego: &Rego, body: &Body<'_>, index: &str) -> bool {
    let is_it = |text: &str| {
        let of_variable = text.strip_suffix(".metadata.namespace");
        matches!(
            text,
            "input.review.namespace" | "input.review.object.metadata.namespace"
        ) || of_variable.is_some_and(|variable| body.assigned(rego, variable) == Some(OBJECT))
    };
    is_it(index) || body.assigned(rego, index).is_some_and(is_it)
}

/// Finds `other := data.inventory…` and `other.PATH == key` with `key := input.review.object.PATH`, as in a policy for
/// uniqueness. Without an equal key, such a body cannot hold.
fn same_key(rego: &Rego, body: &Body<'_>) -> Option<(String, String)> {
    let other = body.statements.iter().find_map(|statement| {
        let (left, right) = statement.split_once(":=")?;
        is_object(right.trim()).then_some(left.trim())
    })?;
    body.assigned(rego, other)?;
    body.statements.iter().find_map(|statement| {
        let (left, right) = statement.split_once("==")?;
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
        let own = body.assigned(rego, key).unwrap_or(key);
        let own = own
            .strip_prefix(OBJECT)?
            .strip_prefix('.')
            .and_then(pointer)?;
        Some((theirs, own))
    })
}

/// Whether a reference leads to an object of the inventory, and not to a part of one or to several.
fn is_object(reference: &str) -> bool {
    let Some(path) = reference.strip_prefix(DATA) else {
        return false;
    };
    let (mut rest, count) = match (
        path.strip_prefix(".namespace"),
        path.strip_prefix(".cluster"),
    ) {
        (Some(rest), _) => (rest, 4),
        (_, Some(rest)) => (rest, 3),
        _ => return false,
    };
    for _ in 0..count {
        let after = match rest.strip_prefix('.') {
            Some(member) if !name_of(member).is_empty() => member.strip_prefix(name_of(member)),
            Some(_) => None,
            // An index with brackets of its own is left.
            None => rest
                .strip_prefix('[')
                .and_then(|index| index.split_once(']'))
                .filter(|(index, _)| !index.contains('['))
                .map(|(_, after)| after),
        };
        let Some(after) = after else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
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

    fn narrowed(rego: &str) -> Only {
        only(&Rego::new(rego))
    }

    #[test]
    fn narrows_only_what_the_rego_cannot_be_about() {
        let hosts = "/spec/rules/*/host".to_owned();
        assert_eq!(
            narrowed(UNIQUE),
            Only::SameKey(hosts.clone(), hosts.clone())
        );
        assert_eq!(narrowed(BUDGET), Only::SameNamespace);
        assert_eq!(narrowed(SELECTOR), Only::Everything);
        let v1 = UNIQUE.replace(
            "violation[{\"msg\": msg}] {",
            "violation contains {\"msg\": msg} if {",
        );
        assert_eq!(narrowed(&v1), Only::SameKey(hosts.clone(), hosts.clone()));
        let on_a_line = UNIQUE.replace("\n  ", "; ").replace("{;", "{");
        assert_eq!(narrowed(&on_a_line), Only::SameKey(hosts.clone(), hosts));
    }

    #[test]
    fn lists_everything_in_doubt() {
        let place = "  other := data.inventory.namespace[_][version][\"Ingress\"][name]\n";
        let host = "  host := input.review.object.spec.rules[_].host\n";
        let comparison = "  other.spec.rules[_].host == host\n";
        let variants = [
            // Another reading of the inventory may need other objects.
            format!("{UNIQUE}\nother_rule {{ data.inventory.cluster[_] }}"),
            format!("{UNIQUE}\nother_rule {{ data[x].cluster[_] }}"),
            format!("{UNIQUE}\nother_rule {{ x := data }}"),
            UNIQUE.replace("data.inventory", "data[\"inventory\"]"),
            UNIQUE.replace("violation[", "import data.inventory\nviolation["),
            // The comparison does not decide alone, or not about this object.
            UNIQUE.replace("  other.spec", "  not other.spec"),
            UNIQUE.replace(
                comparison,
                "  count([1 | other.spec.rules[_].host == host]) == 0\n",
            ),
            UNIQUE.replace(
                comparison,
                &format!("}}\nviolation[{{\"msg\": msg}}] {{\n{comparison}"),
            ),
            UNIQUE.replace(comparison, &format!("}} {{\n{comparison}")),
            format!(
                "{}\nf(other, host) {{\n{comparison}}}",
                UNIQUE.replace(comparison, "")
            ),
            format!(
                "{}\nf(other) {{\n{host}{comparison}}}",
                UNIQUE.replace(comparison, "")
            ),
            UNIQUE.replace(comparison, "  # other.spec.rules[_].host == host\n"),
            UNIQUE.replace(
                comparison,
                "  x := `\n  other.spec.rules[_].host == host\n`\n",
            ),
            UNIQUE.replace("violation[{\"msg\": msg}]", "taken"),
            UNIQUE.replace("== host", "== host with input as {}"),
            // The key, or the object, is another one.
            UNIQUE.replace(host, ""),
            format!("{}\nother_rule {{\n{host}}}", UNIQUE.replace(host, "")),
            UNIQUE.replace(host, &format!("{host}  x := [1 | host := data.x]\n")),
            UNIQUE.replace("object.spec", "oldObject.spec"),
            UNIQUE.replace(
                place,
                &format!("{}\n", place.trim_end().to_owned() + ".spec"),
            ),
            UNIQUE.replace("[name]", ""),
            UNIQUE.replace(
                place,
                &format!("{place}  x := [other | other := data.x[_]]\n"),
            ),
            // The namespace is that of the object in one body alone.
            BUDGET
                .replace("  pdb := input", "  obj := data.x\n  pdb := input")
                .replace("  obj := input.review.object\n", ""),
            BUDGET.replace("  obj := input.review.object\n", "  some obj in data.x\n"),
            BUDGET.replace(
                "  obj := input.review.object\n",
                "  x := [1 | obj := input.review.object]\n",
            ),
            format!(
                "ns_of {{ ns := input.review.namespace }}\n{}",
                BUDGET.replace("obj.metadata.namespace", "ns")
            ),
            format!("{BUDGET}\nf(ns) {{ data.inventory.namespace[ns] }}"),
            format!("{BUDGET}\nx = data.inventory.cluster"),
        ];
        for variant in variants {
            assert_eq!(narrowed(&variant), Only::Everything, "{variant}");
        }
    }

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
