//! Bounded lists for the page: a part of the entries that a search selects. Pure functions of the gate's answers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_admission::search::contains;

use super::query::Query;

/// The parameters of a list.
pub(super) const PARAMETERS: &[&str] = &["limit", "after", "search", "state"];

/// Where a search looks, by the keys of entries.
const SEARCHED: &[&str] = &[
    "name",
    "plugin",
    "source",
    "digest",
    "mode",
    "state",
    "reason",
    "namespaces",
    "names",
    "users",
    "groups",
];
/// Most differences of one shadow in a list. `/shadows` without parameters has all that are kept.
const MOST_DIFFERENCES: usize = 20;

/// An entry with the key by which the list is sorted. Keys are unique in a list.
struct Entry {
    key: String,
    value: Value,
}

/// Returns a part of the plugins. The other fields of the answer stay.
pub(super) fn plugins(mut whole: Value, query: &Query) -> Result<Value, String> {
    let plugins = take(&mut whole, "plugins");
    let plugins = plugins.into_iter().enumerate().map(|(index, mut plugin)| {
        plugin["position"] = json!(index + 1);
        Entry {
            key: text(&plugin["name"]).to_owned(),
            value: plugin,
        }
    });
    list(whole, "plugins", plugins.collect(), query)
}

/// Returns a part of the exceptions of all plugins. `whole` is what the gate says about the plugins.
pub(super) fn exceptions(mut whole: Value, query: &Query) -> Result<Value, String> {
    let mut exceptions = Vec::new();
    for mut plugin in take(&mut whole, "plugins") {
        let own = take(&mut plugin, "exceptions");
        let own = own.into_iter().enumerate().map(|(index, mut exception)| {
            exception["plugin"] = plugin["name"].clone();
            Entry {
                // Zeroes keep the order of the configuration.
                key: format!("{}/{index:05}", text(&plugin["name"])),
                value: exception,
            }
        });
        exceptions.extend(own);
    }
    list(json!({}), "exceptions", exceptions, query)
}

/// Returns a part of the comparisons of shadows, each with its last differences.
pub(super) fn shadows(mut whole: Value, query: &Query) -> Result<Value, String> {
    let shadows = take(&mut whole, "shadows");
    let shadows = shadows.into_iter().map(|mut shadow| {
        if let Some(differences) = shadow["differences"].as_array_mut() {
            differences.truncate(MOST_DIFFERENCES);
        }
        Entry {
            key: text(&shadow["plugin"]).to_owned(),
            value: shadow,
        }
    });
    list(whole, "shadows", shadows.collect(), query)
}

/// Returns a part of the rollouts.
pub(super) fn rollouts(mut whole: Value, query: &Query) -> Result<Value, String> {
    let rollouts = take(&mut whole, "rollouts");
    let rollouts = rollouts.into_iter().map(|rollout| Entry {
        key: text(&rollout["plugin"]).to_owned(),
        value: rollout,
    });
    list(whole, "rollouts", rollouts.collect(), query)
}

/// Returns the most expensive of the selected plugins. The list is in order of cost and has no next part.
pub(super) fn costs(mut whole: Value, query: &Query) -> Result<Value, String> {
    let mut costs = take(&mut whole, "costs");
    whole["total"] = json!(costs.len());
    costs.retain(|cost| is_selected(cost, query));
    whole["matched"] = json!(costs.len());
    costs.truncate(query.limit()?);
    whole["costs"] = costs.into();
    Ok(whole)
}

/// Adds the part of the entries that the query selects to an answer.
fn list(
    mut answer: Value,
    name: &str,
    mut entries: Vec<Entry>,
    query: &Query,
) -> Result<Value, String> {
    let limit = query.limit()?;
    if !answer.is_object() {
        answer = json!({});
    }
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    answer["total"] = json!(entries.len());
    answer["states"] = json!(states(&entries));
    entries.retain(|entry| is_selected(&entry.value, query));
    answer["matched"] = json!(entries.len());
    let after = query.text("after").unwrap_or_default();
    let mut rest = entries.into_iter().filter(|entry| *entry.key > *after);
    let part = rest.by_ref().take(limit);
    let part: Vec<Value> = part
        .map(|Entry { key, mut value }| {
            value["key"] = key.into();
            value
        })
        .collect();
    let next = rest.next().and_then(|_| Some(part.last()?["key"].clone()));
    answer["next"] = json!(next);
    answer[name] = part.into();
    Ok(answer)
}

/// Counts the entries by their states.
fn states(entries: &[Entry]) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for entry in entries {
        if let Some(state) = entry.value["state"].as_str() {
            *states.entry(state.to_owned()).or_default() += 1;
        }
    }
    states
}

fn is_selected(value: &Value, query: &Query) -> bool {
    let state = query.text("state");
    let search = query.text("search");
    state.is_none_or(|state| value["state"] == state)
        && search.is_none_or(|part| SEARCHED.iter().any(|key| has(&value[*key], part)))
}

/// Whether a text, or one of a list of texts, contains a part.
fn has(value: &Value, part: &str) -> bool {
    match value {
        Value::String(text) => contains(text, part),
        Value::Array(list) => list.iter().any(|one| contains(text(one), part)),
        _ => false,
    }
}

fn take(value: &mut Value, list: &str) -> Vec<Value> {
    match value.get_mut(list).map(Value::take) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(Some(text), PARAMETERS).expect("valid")
    }

    fn whole() -> Value {
        json!({
            "state": "degraded",
            "plugins": [
                {"name": "c", "state": "loaded", "source": "oci://registry/c:1", "exceptions": [
                    {"state": "active", "reason": "moving house", "namespaces": ["shop"]},
                    {"state": "expired", "reason": "", "users": ["anna"]},
                ]},
                {"name": "a", "state": "failed", "source": "file:a.wasm", "reason": "no such file"},
                {"name": "b", "state": "loaded", "source": "file:b.wasm", "exceptions": [
                    {"state": "active", "reason": "incident 7"},
                ]},
            ],
        })
    }

    fn keys(answer: &Value, list: &str) -> Vec<String> {
        let list = answer[list].as_array().expect("a list").iter();
        list.map(|entry| text(&entry["key"]).to_owned()).collect()
    }

    #[test]
    fn pages_through_plugins_by_name() {
        let first = plugins(whole(), &query("limit=2")).expect("a page");
        assert_eq!(keys(&first, "plugins"), ["a", "b"]);
        assert_eq!((&first["next"], &first["total"]), (&json!("b"), &json!(3)));
        assert_eq!(first["states"], json!({"failed": 1, "loaded": 2}));
        assert_eq!(first["state"], "degraded");
        assert_eq!(first["plugins"][0]["position"], 2, "the order of the calls");
        let second = plugins(whole(), &query("limit=2&after=b")).expect("a page");
        assert_eq!(keys(&second, "plugins"), ["c"]);
        assert_eq!(second["next"], Value::Null);
    }

    #[test]
    fn selects_by_text_and_state() {
        let of = |text: &str| keys(&plugins(whole(), &query(text)).expect("a page"), "plugins");
        assert_eq!(of("search=REGISTRY"), ["c"]);
        assert_eq!(of("search=no+such"), ["a"]);
        assert_eq!(of("state=loaded&search=file"), ["b"]);
        assert_eq!(of("search=nothing"), [""; 0]);
        let found = plugins(whole(), &query("state=failed")).expect("a page");
        assert_eq!((&found["matched"], &found["total"]), (&json!(1), &json!(3)));
    }

    #[test]
    fn lists_exceptions_of_all_plugins() {
        let of = |text: &str| {
            let answer = exceptions(whole(), &query(text)).expect("a page");
            keys(&answer, "exceptions")
        };
        assert_eq!(of(""), ["b/00000", "c/00000", "c/00001"]);
        assert_eq!(of("search=shop"), ["c/00000"]);
        assert_eq!(of("search=anna"), ["c/00001"]);
        assert_eq!(of("state=active&after=b/00000"), ["c/00000"]);
    }

    #[test]
    fn bounds_differences_and_costs() {
        let differences: Vec<Value> = (0..100).map(|index| json!({ "uid": index })).collect();
        let whole =
            json!({ "shadows": [{ "plugin": "a", "differed": 100, "differences": differences }] });
        let answer = shadows(whole, &query("")).expect("a page");
        let shown = answer["shadows"][0]["differences"].as_array();
        assert_eq!(shown.map(Vec::len), Some(MOST_DIFFERENCES));
        assert_eq!(answer["shadows"][0]["differed"], 100);
        let whole = json!({ "decisions": 9, "costs": [{"plugin": "z"}, {"plugin": "a"}] });
        let answer = costs(whole.clone(), &query("limit=1")).expect("a page");
        assert_eq!(answer["costs"], json!([{"plugin": "z"}]), "keeps the order");
        let answer = costs(whole, &query("search=a")).expect("a page");
        assert_eq!(answer["costs"], json!([{"plugin": "a"}]));
    }

    #[test]
    fn answer_without_list_is_an_empty_page() {
        let answer = plugins(json!([]), &query(""));
        assert!(answer.is_ok_and(|answer| answer["total"] == 0));
    }
}
