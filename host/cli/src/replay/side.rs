//! One answer to a review, recorded or replayed, and the difference between two of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tollgate::setup::Examination;
use tollgate_gate::decision::Called;
use tollgate_json::document::{Json, Pointer};
use tollgate_json::patch::{ApplyLimits, Operation, apply};
use tollgate_recording::{CallNote, Record, is_content};

/// One answer to a review.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub(super) allowed: bool,
    pub(super) code: Option<u64>,
    pub(super) message: String,
    pub(super) warnings: Vec<String>,
    pub(super) calls: Vec<CallNote>,
    /// The object after the patch. None if there is no object, or if it is not known.
    pub(super) after: Option<Json>,
    /// Whether `calls` is known.
    pub(super) knows_calls: bool,
    /// Whether `after`, `message` and `warnings` are known.
    pub(super) knows_texts: bool,
}

/// A kind of difference between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Category {
    /// The request was allowed, and is denied now.
    Denied,
    /// The request was denied, and is allowed now.
    Allowed,
    /// The mutators make another object.
    Patched,
    /// A plugin fails that did not.
    Faulted,
    /// Only messages, codes or warnings differ.
    Reworded,
}

/// Limits for a patch of the host, which has been checked.
const UNLIMITED: ApplyLimits = ApplyLimits {
    max_depth: u32::MAX,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};

// === impl Category ===

impl Category {
    /// The categories that change what happens to a request, and the one that does not.
    pub(super) const ALL: [Self; 5] = [
        Self::Denied,
        Self::Allowed,
        Self::Patched,
        Self::Faulted,
        Self::Reworded,
    ];

    /// Returns the key in JSON, and the word on the command line.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Faulted => "faulted",
            Self::Reworded => "reworded",
        }
    }

    /// Returns the words for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Denied => "newly denied",
            Self::Allowed => "newly allowed",
            Self::Patched => "patched differently",
            Self::Faulted => "newly faulted",
            Self::Reworded => "answered in other words",
        }
    }
}

// === impl Side ===

impl Side {
    /// The answer as it was recorded.
    pub(super) fn recorded(record: &Record, is_approximate: bool) -> Self {
        let answer = &record.answer;
        let status = answer.member("status");
        let text = |member: &str| {
            let text = status.and_then(|status| status.member(member)?.as_text());
            text.unwrap_or_default().to_owned()
        };
        let code = status.and_then(|status| status.member("code"));
        let patch = answer.member("patch").filter(|patch| !patch.is_null());
        let patch = patch.map(|patch| Operation::parse_all(patch).unwrap_or_default());
        let warnings = answer.member("warnings").and_then(Json::as_array);
        Self {
            allowed: answer.member("allowed").and_then(Json::as_bool) == Some(true),
            code: code.and_then(|code| code.to_text().parse().ok()),
            message: text("message"),
            warnings: warnings
                .unwrap_or_default()
                .iter()
                .filter_map(|warning| Some(warning.as_text()?.to_owned()))
                .collect(),
            calls: record.calls.clone(),
            after: after(&record.review, &patch.unwrap_or_default()),
            knows_calls: !is_approximate,
            knows_texts: !is_approximate,
        }
    }

    /// The answer of one endpoint.
    pub(super) fn replayed(examination: &Examination, review: &Json) -> Self {
        let response: Value = serde_json::from_slice(&examination.response).unwrap_or_default();
        let response = &response["response"];
        let warnings = response["warnings"].as_array();
        let outcome = &examination.outcome;
        Self {
            allowed: outcome.allowed,
            code: response["status"]["code"].as_u64(),
            message: response["status"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            warnings: warnings
                .into_iter()
                .flatten()
                .filter_map(|warning| Some(warning.as_str()?.to_owned()))
                .collect(),
            calls: examination.decision.plugins.iter().map(note).collect(),
            after: after(review, &outcome.patch),
            knows_calls: true,
            knows_texts: true,
        }
    }

    /// The answer to a review that calls no plugin.
    pub(super) fn not_called(review: &Json) -> Self {
        Self {
            allowed: true,
            after: after(review, &[]),
            knows_calls: true,
            knows_texts: true,
            ..Self::default()
        }
    }

    /// Combines the answers of both endpoints.
    pub(super) fn followed_by(mut self, validated: Self) -> Self {
        self.allowed &= validated.allowed;
        self.code = self.code.or(validated.code);
        if self.message.is_empty() {
            self.message = validated.message;
        }
        self.warnings.extend(validated.warnings);
        self.calls.extend(validated.calls);
        self
    }

    /// Returns the verdict in the words of `tollgate test`.
    pub(super) fn verdict(&self) -> &'static str {
        match (self.allowed, self.code) {
            (true, _) => "allow",
            (false, Some(500..)) => "fault",
            (false, _) => "deny",
        }
    }

    fn faults(&self) -> impl Iterator<Item = (&str, &str)> {
        let faults = self.calls.iter();
        faults.filter_map(|call| Some((call.plugin.as_str(), call.fault.as_deref()?)))
    }

    fn faults_of(&self, plugin: &str) -> impl Iterator<Item = &str> {
        let own = self.faults().filter(move |(name, _)| *name == plugin);
        own.map(|(_, kind)| kind)
    }
}

/// Compares two answers to the same review.
pub(super) fn compare(old: &Side, new: &Side, is_secret: bool) -> Option<Category> {
    if old.knows_calls
        && new
            .faults()
            .any(|(plugin, kind)| !old.faults_of(plugin).any(|known| known == kind))
    {
        return Some(Category::Faulted);
    }
    match (old.allowed, new.allowed) {
        (true, false) if new.verdict() == "fault" => return Some(Category::Faulted),
        (true, false) => return Some(Category::Denied),
        (false, true) => return Some(Category::Allowed),
        _ => {}
    }
    if !old.knows_texts {
        return None;
    }
    if old.allowed {
        // The content of a Secret was replaced when it was recorded. What a plugin makes of it now is something else.
        let same = match (is_secret, &old.after, &new.after) {
            (true, Some(old), Some(new)) => outside(old, "") == outside(new, ""),
            (_, old, new) => old == new,
        };
        if !same {
            return Some(Category::Patched);
        }
    }
    let is_same = is_secret
        || old.code == new.code && old.message == new.message && old.warnings == new.warnings;
    (!is_same).then_some(Category::Reworded)
}

/// Returns the calls that make the difference, by name of the plugin and index of the rule.
pub(super) fn responsible(
    category: Category,
    old: &Side,
    new: &Side,
) -> BTreeMap<String, Option<usize>> {
    let named = |calls: Vec<&CallNote>| -> BTreeMap<String, Option<usize>> {
        let calls = calls.into_iter();
        calls.map(|call| (call.plugin.clone(), call.rule)).collect()
    };
    let select = |side: &Side, other: &Side, is: &dyn Fn(&CallNote) -> bool| {
        let all: Vec<CallNote> = side.calls.iter().filter(|call| is(call)).cloned().collect();
        let new_ones: Vec<&CallNote> = all
            .iter()
            .filter(|call| {
                let mut others = other.calls.iter();
                !others.any(|other| other.plugin == call.plugin && is(other))
            })
            .collect();
        match new_ones.is_empty() {
            true => named(all.iter().collect()),
            false => named(new_ones),
        }
    };
    match category {
        Category::Denied => select(new, old, &|call| call.denies()),
        Category::Allowed => {
            let denied = select(old, new, &|call| call.denies());
            match denied.is_empty() {
                true => select(old, new, &|call| call.fault.is_some()),
                false => denied,
            }
        }
        Category::Faulted => select(new, old, &|call| call.fault.is_some()),
        Category::Patched => {
            let new_ones = select(new, old, &|call| call.ended == "patched");
            match new_ones.is_empty() {
                true => select(old, new, &|call| call.ended == "patched"),
                false => new_ones,
            }
        }
        Category::Reworded => select(new, old, &|call| call.denies()),
    }
}

fn note(called: &Called) -> CallNote {
    CallNote {
        plugin: called.name.to_string(),
        ended: called.ended.to_string(),
        mode: called.mode.to_string(),
        fault: called.fault.as_ref().map(|fault| fault.kind.to_string()),
        rule: called.rule,
        fuel: called.fuel,
    }
}

/// Returns the object of a review after a patch.
fn after(review: &Json, patch: &[Operation]) -> Option<Json> {
    let object = review.member("request")?.member("object")?;
    if object.is_null() {
        return None;
    }
    apply(object, patch, &UNLIMITED).ok()
}

/// Returns a Secret without the values that a recording replaces.
fn outside(json: &Json, pointer: &str) -> Json {
    match json {
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let token = Pointer::from_tokens([&**name]);
                let value = outside(value, &format!("{pointer}{}", token.as_str()));
                (name.clone(), value)
            });
            Json::Object(Arc::new(members.collect()))
        }
        _ if is_content(pointer) => Json::Null,
        _ => json.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(plugin: &str, ended: &str, fault: Option<&str>) -> CallNote {
        CallNote {
            plugin: plugin.to_owned(),
            ended: ended.to_owned(),
            mode: "enforce".to_owned(),
            fault: fault.map(str::to_owned),
            rule: Some(0),
            fuel: 10,
        }
    }

    fn side(allowed: bool, calls: Vec<CallNote>) -> Side {
        Side {
            allowed,
            code: (!allowed).then_some(403),
            calls,
            knows_calls: true,
            knows_texts: true,
            ..Side::default()
        }
    }

    fn names(category: Category, old: &Side, new: &Side) -> Vec<String> {
        responsible(category, old, new).into_keys().collect()
    }

    #[test]
    fn classifies_verdicts_and_names_who_changed_them() {
        let allowed = side(
            true,
            vec![call("a", "allowed", None), call("b", "allowed", None)],
        );
        let denied = side(
            false,
            vec![call("a", "allowed", None), call("b", "denied", None)],
        );
        assert_eq!(compare(&allowed, &allowed, false), None);
        assert_eq!(compare(&allowed, &denied, false), Some(Category::Denied));
        assert_eq!(names(Category::Denied, &allowed, &denied), ["b"]);
        assert_eq!(compare(&denied, &allowed, false), Some(Category::Allowed));
        assert_eq!(names(Category::Allowed, &denied, &allowed), ["b"]);
    }

    #[test]
    fn fault_counts_even_if_the_request_is_allowed() {
        let old = side(
            true,
            vec![call("a", "fault", Some("trap")), call("b", "allowed", None)],
        );
        let mut new = old.clone();
        assert_eq!(compare(&old, &new, false), None);
        new.calls[1] = call("b", "fault", Some("out-of-fuel"));
        assert_eq!(compare(&old, &new, false), Some(Category::Faulted));
        assert_eq!(names(Category::Faulted, &old, &new), ["b"]);
        new.calls[1] = call("b", "allowed", None);
        new.calls[0] = call("a", "fault", Some("memory"));
        assert_eq!(compare(&old, &new, false), Some(Category::Faulted));
    }

    #[test]
    fn compares_objects_but_not_the_content_of_secrets() {
        let object = |value: serde_json::Value| Some(Json::from(value));
        let mut old = side(true, vec![call("a", "patched", None)]);
        let mut new = old.clone();
        old.after = object(serde_json::json!({"data": {"a": "x"}, "metadata": {"labels": {}}}));
        new.after = object(serde_json::json!({"data": {"a": "y"}, "metadata": {"labels": {}}}));
        assert_eq!(compare(&old, &new, false), Some(Category::Patched));
        assert_eq!(compare(&old, &new, true), None);
        new.after =
            object(serde_json::json!({"data": {"a": "y"}, "metadata": {"labels": {"n": "1"}}}));
        assert_eq!(compare(&old, &new, true), Some(Category::Patched));
        new.after = old.after.clone();
        new.warnings = vec!["a: old".to_owned()];
        assert_eq!(compare(&old, &new, false), Some(Category::Reworded));
    }
}
