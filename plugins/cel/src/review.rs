//! The review as the source of expressions, and patches as the host takes them.

use tollgate_cel::patch::Operation;
use tollgate_cel::{Decision, Document, Found, Look, On, Question, Source, Value, json};
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
    fn look(&self, document: Document, pointers: &[String]) -> Vec<Option<Look<Value>>> {
        let within = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let is_option = |pointer: &String| pointer.strip_prefix(OPTIONS).is_some_and(within);
        if document == Document::Request && pointers.iter().any(is_option) {
            // They are in two documents of the host.
            let one = |pointer: &String| {
                let (part, pointer) = self.place(document, pointer);
                Some(seen(part.get(pointer)?))
            };
            return pointers.iter().map(one).collect();
        }
        let (part, _) = self.place(document, "");
        let values = part.get_slice(pointers).into_iter();
        values.map(|value| Some(seen(value?))).collect()
    }

    fn keys(&self, document: Document, pointer: &str) -> Vec<String> {
        let (part, pointer) = self.place(document, pointer);
        part.keys(pointer).unwrap_or_default()
    }

    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        let (part, pointer) = self.place(document, pointer);
        match seen(part.get(pointer)?) {
            Look::Scalar(value) => Some(Found::Value(value)),
            Look::Array(_) | Look::Object => part.json(pointer).map(Found::Json),
        }
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

/// Returns what the host has shown of a value.
fn seen(value: HostValue) -> Look<Value> {
    match value {
        HostValue::Null => Look::Scalar(Value::Null),
        HostValue::Boolean(value) => Look::Scalar(Value::Bool(value)),
        HostValue::Integer(value) => Look::Scalar(Value::Int(value)),
        HostValue::Number(value) => Look::Scalar(Value::Double(value)),
        HostValue::Text(text) => Look::Scalar(Value::text(text)),
        HostValue::Array(length) => Look::Array(length as usize),
        HostValue::Object(_) => Look::Object,
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
