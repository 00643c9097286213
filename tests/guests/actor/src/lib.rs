//! A policy that changes and denies objects as its settings say, so that a suite can make several plugins conflict.

use std::collections::BTreeMap;

use tollgate_sdk::prelude::*;

/// The policy, which consists of its settings.
struct Actor(Settings);

/// The settings as they appear in the configuration.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    /// Texts by pointer. Each is set if the place holds something else.
    set: BTreeMap<String, String>,
    /// Values by pointer. Each is set if the place holds something else.
    set_values: BTreeMap<String, serde_json::Value>,
    /// Texts by pattern. Each matching place is set if it holds something else.
    set_all: BTreeMap<String, String>,
    /// Elements by the pointer of a list. Each is appended if no element has its name.
    inject: BTreeMap<String, serde_json::Value>,
    /// Texts by the pointer of a list. Each is appended every time.
    append: BTreeMap<String, String>,
    /// Texts by pattern. Each matching place with this text is denied, with a cause.
    forbid: BTreeMap<String, String>,
    /// Texts by pointer. A place with this text is denied, without a cause.
    forbid_at_all: BTreeMap<String, String>,
    /// Texts by pointer into the Namespace. An object is denied if its namespace has all of them.
    forbid_namespace: BTreeMap<String, String>,
    /// If set, every request is denied with this text.
    deny: Option<String>,
    /// If set, only this user may change an object.
    only: Option<Only>,
    /// If set, every validate call logs this text.
    log: Option<String>,
    /// If set, every validate call returns this warning.
    warn: Option<String>,
}

/// The user who may change an object.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Only {
    /// The user's name.
    user: String,
    /// The field of the cause. If empty, the denial has no causes.
    #[serde(default)]
    field: String,
    /// Places that the plugin reads before it denies.
    #[serde(default)]
    looks_at: Vec<String>,
}

// === impl Actor ===

impl Policy for Actor {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self(settings))
    }
}

impl Mutate for Actor {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let object = review.object();
        let mut patch = Patch::new();
        for (pointer, text) in &self.0.set {
            if object.text(pointer).as_ref() != Some(text) {
                patch = patch.set(object, pointer.as_str(), text.as_str());
            }
        }
        for (pointer, value) in &self.0.set_values {
            let there = object.read::<serde_json::Value>(pointer).ok().flatten();
            if there.as_ref() != Some(value) {
                patch = patch.set(object, pointer.as_str(), value.clone());
            }
        }
        for (pattern, text) in &self.0.set_all {
            for node in object.select(pattern) {
                if node.value.as_text() != Some(text) {
                    patch = patch.replace(node.pointer, text.as_str());
                }
            }
        }
        for (list, element) in &self.0.inject {
            let name = element["name"].as_str().unwrap_or_default();
            let mut names = object.select(format!("{list}/*/name")).into_iter();
            if !names.any(|node| node.value.as_text() == Some(name)) {
                patch = patch.add(format!("{list}/-"), element.clone());
            }
        }
        for (list, text) in &self.0.append {
            patch = patch.add(format!("{list}/-"), text.as_str());
        }
        Ok(patch.into())
    }
}

impl Validate for Actor {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let object = review.object();
        if let Some(text) = &self.0.warn {
            review.warn(text);
        }
        if let Some(text) = &self.0.log {
            tollgate_sdk::info!("{text}");
        }
        if let Some(text) = &self.0.deny {
            return Err(Denial::new(text));
        }
        if let Some(only) = &self.0.only {
            only.check(review)?;
        }
        let unwanted = &self.0.forbid_namespace;
        if !unwanted.is_empty() {
            let found = review.namespace().get_many(unwanted.keys());
            let mut pairs = found.iter().zip(unwanted.values());
            if pairs.all(|(value, text)| value.as_ref().and_then(Value::as_text) == Some(text)) {
                return Err(Denial::new("objects in this namespace are not wanted"));
            }
        }
        for (pointer, text) in &self.0.forbid_at_all {
            if object.text(pointer).as_ref() == Some(text) {
                return Err(Denial::new(format!("{text} is not wanted")));
            }
        }
        let mut findings = Findings::new("there is something that is not wanted");
        for (pattern, text) in &self.0.forbid {
            for node in object.select(pattern) {
                if node.value.as_text() == Some(text) {
                    findings.at(node.pointer, format!("{text} is not wanted"));
                }
            }
        }
        findings.verdict()
    }
}

// === impl Only ===

impl Only {
    fn check(&self, review: &Review) -> Result<(), Denial> {
        for place in &self.looks_at {
            review.object().get(place);
        }
        let user = review.request_document().text("/userInfo/username");
        if user.as_ref() == Some(&self.user) {
            return Ok(());
        }
        let denial = Denial::new(format!("only {} may change this", self.user));
        Err(if self.field.is_empty() {
            denial
        } else {
            denial.at(self.field.as_str(), "is not yours")
        })
    }
}

tollgate_sdk::plugin! {
    Actor,
    rules: [Rule {
        operations: vec!["CREATE".to_owned(), "UPDATE".to_owned()],
        api_groups: vec![String::new()],
        api_versions: vec!["v1".to_owned()],
        resources: vec!["pods".to_owned()],
        scope: None,
    }],
}
