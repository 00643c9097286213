//! The canary's part of a webhook entry. Does no IO.
//!
//! An entry is called for its own canary and for no other: its condition compares the name. So one dry run calls one
//! entry, and an error of kube-apiserver is about that entry.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_admission::Endpoint;
use tollgate_admission::canary::{GROUP, RESOURCE, VERSION};
use tollgate_config::condition::MOST_CONDITIONS;
use tollgate_registration::DOMAIN;

/// The condition that leaves Tollgate's own group out.
const EXCLUDE: &str = "exclude-tollgate";
/// The name of a plugin's condition has the plugin's name before this.
const OF_PLUGIN: char = '/';
/// The value of a label that only has to exist.
const ANY_VALUES: [&str; 3] = ["canary", "canary-2", "canary-3"];
/// kube-apiserver's default.
const TIMEOUT_SECONDS: u64 = 10;

/// One webhook of a configuration, with what a canary needs to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name of the webhook.
    pub(crate) webhook: String,
    /// The name of its canary.
    pub(crate) canary: String,
    /// The path that kube-apiserver calls.
    pub(crate) path: String,
    /// Whether the webhook mutates. A mutating one proves itself by its patch.
    pub(crate) endpoint: Endpoint,
    /// The plugins that are registered with it.
    pub(crate) plugins: Vec<String>,
    /// The labels that the entry's `objectSelector` asks for. None if no object can have them.
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// The longest time that kube-apiserver waits.
    pub(crate) timeout_seconds: u64,
    /// Whether kube-apiserver denies requests while the webhook does not answer.
    pub(crate) must_answer: bool,
}

/// Returns the name of a webhook's canary. None if the webhook is not named as Tollgate names webhooks.
fn canary_of(webhook: &Value) -> Option<&str> {
    webhook["name"]
        .as_str()?
        .strip_suffix(&format!(".{DOMAIN}"))
}

/// Adds the rule of the canary to a webhook, and lets the conditions pass it.
///
/// The conditions mean the same as before for every other request: `true || error` is true in CEL, and no other request
/// is about the group.
pub(crate) fn add(webhook: &mut Value) {
    let Some(canary) = canary_of(webhook).map(str::to_owned) else {
        return;
    };
    let rule = json!({
        "operations": ["CREATE"],
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "resources": [RESOURCE],
        "scope": "Cluster",
    });
    if let Some(rules) = webhook["rules"].as_array_mut() {
        rules.push(rule);
    }
    let mut conditions = webhook["matchConditions"].take();
    let conditions = conditions.as_array_mut().map(std::mem::take);
    let mut conditions = conditions.unwrap_or_default();
    let is_excluding = |condition: &Value| condition["name"] == EXCLUDE;
    let is_of_plugin = |condition: &Value| {
        condition["name"]
            .as_str()
            .is_some_and(|name| name.contains(OF_PLUGIN))
    };
    let excluding = json!({
        "name": EXCLUDE,
        "expression": format!(
            "request.resource.group != '{GROUP}' || request.resource.resource == '{RESOURCE}' && request.name == '{canary}'"
        ),
    });
    match conditions.iter().position(is_excluding) {
        Some(index) => conditions[index] = excluding,
        None => {
            let index = conditions.iter().position(is_of_plugin);
            conditions.insert(index.unwrap_or(conditions.len()), excluding);
        }
    }
    // The host evaluates the plugin's conditions in any case.
    if conditions.len() > MOST_CONDITIONS {
        conditions.retain(|condition| !is_of_plugin(condition));
    }
    for condition in conditions.iter_mut().filter(|one| is_of_plugin(one)) {
        let expression = condition["expression"].as_str().unwrap_or_default();
        // A line break ends a comment at the end of the expression.
        let end = if expression.contains("//") { "\n" } else { "" };
        let expression = format!("request.resource.group == '{GROUP}' || ({expression}{end})");
        condition["expression"] = json!(expression);
    }
    webhook["matchConditions"] = json!(conditions);
}

/// Lists the webhooks of a configuration that this process applied, with the plugins of its record.
pub(crate) fn entries(endpoint: Endpoint, applied: &Value, plugins: &[&str]) -> Vec<Entry> {
    let webhooks = applied["webhooks"].as_array();
    let entry = |webhook: &Value| {
        let path = webhook["clientConfig"]["service"]["path"].as_str()?;
        let only = path.split('/').nth(2);
        let plugins = plugins
            .iter()
            .filter(|name| only.is_none_or(|only| only == **name));
        Some(Entry {
            webhook: webhook["name"].as_str()?.to_owned(),
            canary: canary_of(webhook)?.to_owned(),
            path: path.to_owned(),
            endpoint,
            plugins: plugins.map(|&name| name.to_owned()).collect(),
            labels: labels(&webhook["objectSelector"]),
            timeout_seconds: webhook["timeoutSeconds"]
                .as_u64()
                .unwrap_or(TIMEOUT_SECONDS),
            must_answer: webhook["failurePolicy"] != "Ignore",
        })
    };
    webhooks.into_iter().flatten().filter_map(entry).collect()
}

/// Returns labels that a selector selects. None if there are none. The selector is as the registrar writes it: with
/// `matchExpressions` only.
fn labels(selector: &Value) -> Option<BTreeMap<String, String>> {
    let expressions = selector["matchExpressions"].as_array();
    let expressions: Vec<&Value> = expressions.into_iter().flatten().collect();
    let mut labels = BTreeMap::new();
    for expression in &expressions {
        let key = expression["key"].as_str()?;
        if labels.contains_key(key) {
            continue;
        }
        let of_key = || expressions.iter().filter(|one| one["key"] == key);
        let values = of_key().filter(|one| one["operator"] == "In");
        let values = values.flat_map(|one| one["values"].as_array().into_iter().flatten());
        let values = values.filter_map(Value::as_str).map(Some);
        let candidates = std::iter::once(None)
            .chain(values)
            .chain(ANY_VALUES.into_iter().map(Some));
        let value = candidates
            .into_iter()
            .find(|value| of_key().all(|one| holds(one, *value)))?;
        if let Some(value) = value {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    Some(labels)
}

/// Whether a requirement of a label selector holds for a label with this value, or without the label.
fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let is_listed = || {
        let values = requirement["values"].as_array();
        let mut values = values.into_iter().flatten();
        value.is_some_and(|value| values.any(|one| one == value))
    };
    match requirement["operator"].as_str() {
        Some("In") => is_listed(),
        Some("NotIn") => !is_listed(),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(conditions: &Value) -> Value {
        json!({
            "name": "guard.validate.gate.tollgate.dev",
            "clientConfig": { "service": { "path": "/validate/guard" } },
            "rules": [{ "resources": ["pods"] }],
            "matchConditions": conditions,
            "failurePolicy": "Fail",
            "timeoutSeconds": 3,
        })
    }

    fn expressions(webhook: &Value) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = webhook["matchConditions"].as_array().expect("conditions");
        conditions
            .iter()
            .map(|one| (text(&one["name"]), text(&one["expression"])))
            .collect()
    }

    #[test]
    fn entry_is_called_for_its_own_canary_and_no_other_object_of_the_group() {
        let mut alone = webhook(&Value::Null);
        add(&mut alone);
        let rules = alone["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[1]["resources"], json!(["canaries"]));
        assert_eq!(rules[1]["scope"], "Cluster");
        let expected = "request.resource.group != 'tollgate.dev' || request.resource.resource == 'canaries' && \
                        request.name == 'guard.validate.gate'";
        assert_eq!(
            expressions(&alone),
            [("exclude-tollgate".to_owned(), expected.to_owned())]
        );
        let mut wide = webhook(&json!([
            {"name": "exclude-leases", "expression": "a"},
            {"name": "exclude-tollgate", "expression": "request.resource.group != 'tollgate.dev'"},
        ]));
        add(&mut wide);
        let texts = expressions(&wide);
        assert_eq!(texts[0], ("exclude-leases".to_owned(), "a".to_owned()));
        assert_eq!(
            texts[1],
            ("exclude-tollgate".to_owned(), expected.to_owned())
        );
        assert_eq!(texts.len(), 2);
    }

    #[test]
    fn conditions_of_the_plugin_pass_the_canary() {
        let mut webhook = webhook(&json!([
            {"name": "exclude-break-glass", "expression": "a"},
            {"name": "guard/team", "expression": "object.metadata.labels.team == 'x' // why"},
            {"name": "guard/other", "expression": "b || c"},
        ]));
        add(&mut webhook);
        let texts = expressions(&webhook);
        let names: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "exclude-break-glass",
                "exclude-tollgate",
                "guard/team",
                "guard/other"
            ]
        );
        assert_eq!(
            texts[2].1,
            "request.resource.group == 'tollgate.dev' || (object.metadata.labels.team == 'x' // why\n)"
        );
        assert_eq!(
            texts[3].1,
            "request.resource.group == 'tollgate.dev' || (b || c)"
        );
    }

    #[test]
    fn conditions_stay_within_what_kube_apiserver_accepts() {
        let own = (0..MOST_CONDITIONS)
            .map(|index| json!({"name": format!("guard/{index}"), "expression": "a"}));
        let mut full = webhook(&own.collect());
        add(&mut full);
        assert_eq!(expressions(&full).len(), 1);
        let one_less = (1..MOST_CONDITIONS)
            .map(|index| json!({"name": format!("guard/{index}"), "expression": "a"}));
        let mut fits = webhook(&one_less.collect());
        add(&mut fits);
        assert_eq!(expressions(&fits).len(), MOST_CONDITIONS);
    }

    #[test]
    fn entries_have_their_plugins() {
        let mut shared = webhook(&Value::Null);
        shared["name"] = json!("validate.gate.tollgate.dev");
        shared["clientConfig"]["service"]["path"] = json!("/validate");
        let applied = json!({"webhooks": [webhook(&Value::Null), shared]});
        let entries = entries(Endpoint::Validate, &applied, &["guard", "labels"]);
        assert_eq!(entries[0].canary, "guard.validate.gate");
        assert_eq!(entries[0].plugins, ["guard"]);
        assert_eq!(
            (entries[0].timeout_seconds, entries[0].must_answer),
            (3, true)
        );
        assert_eq!(entries[1].canary, "validate.gate");
        assert_eq!(entries[1].plugins, ["guard", "labels"]);
        assert_eq!(entries[1].labels, Some(BTreeMap::new()));
    }

    #[test]
    fn labels_satisfy_the_selector_or_there_are_none() {
        let requirement = |operator: &str, values: &[&str]| json!({"key": "team", "operator": operator, "values": values});
        let of = |expressions: &[Value]| labels(&json!({"matchExpressions": expressions}));
        let team = |value: &str| Some(BTreeMap::from([("team".to_owned(), value.to_owned())]));
        assert_eq!(of(&[]), Some(BTreeMap::new()));
        assert_eq!(of(&[requirement("In", &["a", "b"])]), team("a"));
        assert_eq!(
            of(&[requirement("In", &["a", "b"]), requirement("NotIn", &["a"])]),
            team("b")
        );
        assert_eq!(of(&[requirement("Exists", &[])]), team("canary"));
        assert_eq!(
            of(&[
                requirement("Exists", &[]),
                requirement("NotIn", &["canary"])
            ]),
            team("canary-2")
        );
        assert_eq!(of(&[requirement("NotIn", &["a"])]), Some(BTreeMap::new()));
        assert_eq!(
            of(&[requirement("DoesNotExist", &[])]),
            Some(BTreeMap::new())
        );
        for impossible in [
            [requirement("In", &["a"]), requirement("In", &["b"])],
            [requirement("Exists", &[]), requirement("DoesNotExist", &[])],
        ] {
            assert_eq!(of(&impossible), None);
        }
    }
}
