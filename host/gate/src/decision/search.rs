//! Searches the kept decisions. A pure function of them.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_admission::search::{Search, Subject};

use super::{Decision, KeptDecision};

/// Returns the selected decisions, newest first, and how many there are. `overview` writes one of them.
#[must_use]
pub fn search(
    kept: &[(u64, Arc<KeptDecision>)],
    search: &Search,
    overview: impl Fn(&Decision) -> Value,
) -> Value {
    let selected: Vec<_> = kept
        .iter()
        .filter(|(_, decision)| is_selected(decision, search))
        .collect();
    let is_earlier = |number: u64| search.before.is_none_or(|before| number < before);
    let mut rest = selected.iter().filter(|(number, _)| is_earlier(*number));
    let decisions: Vec<Value> = rest
        .by_ref()
        .take(search.limit)
        .map(|(number, decision)| {
            let mut value = overview(&decision.whole());
            value["number"] = json!(number);
            value
        })
        .collect();
    let next = rest
        .next()
        .and_then(|_| decisions.last().map(|last| last["number"].clone()));
    json!({
        "decisions": decisions,
        "next": next,
        "matched": selected.len(),
        "kept": kept.len(),
        "since": since(kept),
    })
}

fn is_selected(kept: &KeptDecision, search: &Search) -> bool {
    let decision = kept.about();
    let subject = Subject {
        uid: &decision.uid,
        user: &decision.user,
        kind: &decision.kind,
        namespace: decision.namespace.as_deref(),
        name: &decision.name,
        verdict: &decision.verdict,
    };
    search.selects(&subject, kept.names().map(|name| &**name))
}

/// The time of the oldest kept decision.
pub(super) fn since(kept: &[(u64, Arc<KeptDecision>)]) -> Value {
    let oldest = kept.last();
    oldest.map_or(Value::Null, |(_, oldest)| {
        json!(oldest.about())["time"].take()
    })
}
