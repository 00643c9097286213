//! Which of the objects of a lookup the Rego can be about.

use super::super::rego::{Body, Rego};

/// Which of the objects the Rego can be about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Only {
    Everything,
    SameNamespace,
    /// The places of the keys in the other objects and in the reviewed object.
    SameKey(String, String),
}

pub(super) const DATA: &str = "data.inventory";
const OBJECT: &str = "input.review.object";

/// The name that a text begins with.
pub(super) fn name_of(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// Returns the places where the Rego reads the inventory, or may read it.
pub(super) fn places(rego: &Rego) -> Vec<usize> {
    let places = rego.words("data");
    let reads = |at: &usize| {
        let after = rego.after(at + "data".len());
        match after.strip_prefix('.') {
            Some(member) => name_of(member) == "inventory",
            // The whole document goes somewhere.
            None => true,
        }
    };
    places.filter(reads).collect()
}

/// Finds out which of the objects the Rego can be about. In doubt, all.
///
/// All statements of a body must hold. So an object for which one of them cannot hold changes nothing, if nothing else reads
/// the inventory, and no `with` gives the body another input.
pub(super) fn only(rego: &Rego) -> Only {
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
pub(super) fn is_object(reference: &str) -> bool {
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
            format!("{UNIQUE}\nother_rule {{ sites(data) }}"),
            format!("{UNIQUE}\nother_rule {{ x := {{\"d\": data}} }}"),
            // The comparison does not decide alone, or not about this object.
            UNIQUE.replace(comparison, &format!("  same :=\n{comparison}  not same\n")),
            UNIQUE.replace(comparison, &format!("  not\n{comparison}")),
            UNIQUE.replace(
                "== host\n",
                "== host\n    | input.review.object.spec.more\n",
            ),
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
}
