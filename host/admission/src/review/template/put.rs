//! Puts a changed Pod back into the template that it came from.
//!
//! A template keeps a Pod's spec, labels, annotations and finalizers. The controller sets or drops everything else:
//! other metadata, and the status. A change of these is ignored, because no template can hold it, and because the plugin
//! sees each Pod again when the controller creates it. A whole object of a typed client often has such members without
//! meaning them, such as `creationTimestamp: null` and `status: {}`. The identity of the Pod is checked before, as for
//! any mutation: another name or namespace is a fault.
//!
//! A Pod that is no Pod any more is an error.

use std::sync::Arc;

use tollgate_json::document::{Json, Object};

use super::{COPIED, Workload};

/// A changed Pod that does not fit into a template. Holds nothing of the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The plugin changed `apiVersion` or `kind`.
    #[error(
        "cannot put the Pod back into the pod template: its apiVersion and kind must stay v1 and Pod"
    )]
    OtherKind,
    /// A member has the wrong type.
    #[error("cannot put the Pod back into the pod template: its {0} must be an object")]
    NotAnObject(&'static str),
    /// The Pod has a member that no Pod has.
    #[error(
        "cannot put the Pod back into the pod template: a Pod has no other members than apiVersion, kind, metadata, \
         spec and status"
    )]
    UnknownMember,
    /// The workload has no template at the place.
    #[error("cannot put the Pod back into the pod template: the workload has no template")]
    NoTemplate,
}

/// The members of a Pod.
const MEMBERS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

// === impl Workload ===

impl Workload {
    /// Returns `object` with the template that the Pod came from changed like the Pod.
    ///
    /// # Errors
    /// When the Pod is no Pod any more.
    pub fn put(&self, object: &Json, pod: &Json) -> Result<Json, PutError> {
        let members = pod.as_object().ok_or(PutError::NotAnObject("root"))?;
        let is = |name: &str, text: &str| members.get(name).and_then(Json::as_text) == Some(text);
        if !is("apiVersion", "v1") || !is("kind", "Pod") {
            return Err(PutError::OtherKind);
        }
        if members.keys().any(|name| !MEMBERS.contains(&&**name)) {
            return Err(PutError::UnknownMember);
        }
        let spec = members
            .get("spec")
            .filter(|spec| spec.as_object().is_some());
        let spec = spec.ok_or(PutError::NotAnObject("spec"))?;
        let metadata = match members.get("metadata") {
            None | Some(Json::Null) => None,
            Some(Json::Object(metadata)) => Some(&***metadata),
            Some(_) => return Err(PutError::NotAnObject("metadata")),
        };
        changed(object, self.path, &|template| {
            changed_template(template, metadata, spec)
        })
        .ok_or(PutError::NoTemplate)
    }
}

/// Returns the object with the member at the path changed. Everything beside the path is shared.
fn changed(json: &Json, path: &[&str], change: &dyn Fn(&Object) -> Json) -> Option<Json> {
    let members = json.as_object()?;
    let Some((first, rest)) = path.split_first() else {
        return Some(change(members));
    };
    let inner = changed(members.get(*first)?, rest, change)?;
    let mut members = members.clone();
    members.insert(Arc::from(*first), inner);
    Some(Json::from(members))
}

fn changed_template(template: &Object, metadata: Option<&Object>, spec: &Json) -> Json {
    let mut members = template.clone();
    let empty = Object::default();
    let before = template.get("metadata").and_then(Json::as_object);
    let mut after = before.unwrap_or(&empty).clone();
    let mut is_changed = false;
    for name in COPIED {
        let set = |json: &&Json| !json.is_null();
        let old = after.get(name).filter(set);
        let new = metadata.and_then(|metadata| metadata.get(name)).filter(set);
        if old == new {
            continue;
        }
        is_changed = true;
        match new.cloned() {
            Some(new) => {
                after.insert(Arc::from(name), new);
            }
            None => {
                after.shift_remove(name);
            }
        }
    }
    if is_changed {
        members.insert(Arc::from("metadata"), Json::from(after));
    }
    members.insert(Arc::from("spec"), spec.clone());
    Json::from(members)
}
