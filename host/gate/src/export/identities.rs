//! What exports leave out with `log.identities: false`: the names of objects, users and namespaces.
//!
//! The name of a plugin of a namespace begins with the namespace. Its exports have the rest of the name.

use serde_json::{Value, json};

use crate::decision::Decision;

/// The members of a decision that name objects and users.
const NAMES: [&str; 3] = ["namespace", "name", "user"];

/// Returns the name of a plugin, `with_names` with the namespace that it is of.
pub(super) fn plugin(name: &str, with_names: bool) -> &str {
    match name.split_once('/') {
        Some((_, own)) if !with_names => own,
        _ => name,
    }
}

/// Returns the decision as `/decisions` shows it.
pub(super) fn document(decision: &Decision, with_names: bool) -> Value {
    if with_names {
        return json!(decision);
    }
    let mut document = json!(without_namespaces(decision));
    if let Some(members) = document.as_object_mut() {
        for name in NAMES {
            members.remove(name);
        }
    }
    document
}

/// Returns the decision without namespaces in the names of plugins, and without messages that name the namespace. A
/// plugin of a namespace is called for requests of that namespace alone, so no other namespace can be in them.
fn without_namespaces(decision: &Decision) -> Decision {
    let mut decision = decision.clone();
    let hide = |name: &mut String| *name = plugin(name, false).to_owned();
    decision.only.iter_mut().for_each(hide);
    for one in &mut decision.not_called {
        hide(&mut one.name);
    }
    let namespace = decision.namespace.as_deref().unwrap_or_default();
    for called in &mut decision.plugins {
        called.name = plugin(&called.name, false).into();
        for conflict in &mut called.conflicts {
            hide(&mut conflict.with);
        }
        if let Some(fault) = called.fault.as_mut().filter(|_| !namespace.is_empty()) {
            let message = fault.message.take();
            fault.message = message.filter(|message| !message.contains(namespace));
        }
    }
    decision
}
