//! The review as the source of expressions, and patches as the host takes them.

use tollgate_cel::patch::Operation;
use tollgate_cel::{Decision, Document, Found, On, Question, Source, Value, json};
use tollgate_sdk::access::{Action, OrFault as _};
use tollgate_sdk::prelude::{Patch, Pointer, Review};
use tollgate_sdk::{Document as Part, NewValue, Value as HostValue};

/// The prefix of the places of the request that are in another document.
const OPTIONS: &str = "/options";

/// The review that the host passes.
pub(crate) struct HostReview<'a>(pub(crate) &'a Review);

// === impl HostReview ===

impl HostReview<'_> {
    /// Returns the document of the host and the pointer in it.
    fn place<'p>(&self, document: Document, pointer: &'p str) -> (Part, &'p str) {
        match document {
            Document::Object | Document::AnyObject => (self.0.object(), pointer),
            Document::OldObject => (self.0.old_object(), pointer),
            Document::Request => match pointer.strip_prefix(OPTIONS) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => (self.0.options(), rest),
                _ => (self.0.request_document(), pointer),
            },
            Document::Namespace => (self.0.namespace(), pointer),
        }
    }
}

impl Source for HostReview<'_> {
    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        let (part, pointer) = self.place(document, pointer);
        Some(Found::Value(match part.get(pointer)? {
            HostValue::Null => Value::Null,
            HostValue::Boolean(value) => Value::Bool(value),
            HostValue::Integer(value) => Value::Int(value),
            HostValue::Number(value) => Value::Double(value),
            HostValue::Text(text) => Value::text(text),
            HostValue::Array(_) | HostValue::Object(_) => {
                return part.json(pointer).map(Found::Json);
            }
        }))
    }

    /// Asks the host.
    ///
    /// # Panics
    /// If there is no answer: a fault of the plugin, so that the failure policy of the configuration decides. An error of
    /// the expression could be swallowed by an `||`.
    fn authorize(&self, question: &Question) -> Result<Decision, String> {
        let verb = &*question.verb;
        let action = match &question.on {
            On::Path(path) => Action::path(verb, &**path),
            On::Resource(on) => Action::resource(verb, &*on.group, &*on.resource)
                .subresource(&*on.subresource)
                .namespace(&*on.namespace)
                .name(&*on.name),
        };
        let answer = match &question.account {
            None => action.check(),
            Some(account) => action.check_service_account(&account.namespace, &account.name),
        };
        let decision = answer.or_fault();
        Ok(Decision {
            allowed: decision.allowed,
            reason: decision.reason.into(),
            error: decision.error.map(Into::into),
        })
    }

    fn exists(&self, document: Document, pointer: &str) -> bool {
        let (part, pointer) = self.place(document, pointer);
        part.get(pointer).is_some()
    }
}

/// Appends an operation of a difference to a patch.
///
/// # Panics
/// If a value has no JSON form, which is a fault of the policy.
pub(crate) fn append(patch: Patch, operation: &Operation) -> Patch {
    let path = Pointer::from(&operation.path);
    if operation.op == "remove" {
        return patch.remove(path);
    }
    let value = operation.value.as_ref().unwrap_or(&Value::Null);
    let value = match value {
        Value::String(text) => NewValue::Text(text.to_string()),
        other => NewValue::Json(json::write(other).unwrap_or_else(|error| {
            panic!(
                "the policy sets a value of the type {}, which has no JSON form",
                error.0
            )
        })),
    };
    if operation.op == "add" {
        patch.add(path, value)
    } else {
        patch.replace(path, value)
    }
}
