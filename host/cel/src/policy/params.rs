//! Finds the parameters of a binding among the objects of the settings.

use super::spec::{NotFoundAction, ParamKind, ParamRef};
use super::{Policy, Problem, matching};
use crate::eval::Source;
use crate::value::Value;

/// Checks a reference.
pub(super) fn check(reference: &ParamRef, at: &str, problems: &mut Vec<Problem>) {
    match (&reference.name, &reference.selector) {
        (Some(_), Some(_)) => {
            problems.push(Problem::new(at, "must not have both name and selector"))
        }
        (None, None) => problems.push(Problem::new(at, "must have one of name and selector")),
        _ => {}
    }
    if reference.parameter_not_found_action.is_none() {
        let at = format!("{at}/parameterNotFoundAction");
        problems.push(Problem::new(at, "must be Allow or Deny"));
    }
}

impl Policy {
    /// Returns the parameters of a binding. A policy without parameters is evaluated once, with null.
    pub(super) fn params_of(
        &self,
        reference: Option<&ParamRef>,
        source: &dyn Source,
    ) -> Result<Vec<Value>, String> {
        let (Some(kind), Some(reference)) = (&self.param_kind, reference) else {
            return Ok(vec![Value::Null]);
        };
        let of_kind: Vec<&Value> = self
            .params
            .iter()
            .filter(|object| is_of(object, kind))
            .collect();
        let has_namespace =
            |object: &&Value| namespace(object).is_some_and(|name| !name.is_empty());
        let is_namespaced = reference.namespace.is_some()
            || of_kind.iter().any(has_namespace)
            || of_kind.is_empty() && !kind.api_version.contains('/');
        let wanted = match &reference.namespace {
            _ if !is_namespaced => String::new(),
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            _ => {
                let namespace = matching::request_text(source, "/namespace");
                if namespace.is_empty() {
                    return Err(
                        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                            .to_owned(),
                    );
                }
                namespace
            }
        };
        let found: Vec<Value> = of_kind
            .into_iter()
            .filter(|object| !is_namespaced || namespace(object) == Some(&wanted))
            .filter(|object| match (&reference.name, &reference.selector) {
                (Some(name), _) => {
                    object.at("/metadata/name").and_then(Value::as_text) == Some(name)
                }
                (None, Some(selector)) => {
                    matching::selects(selector, object.at("/metadata/labels"))
                }
                (None, None) => false,
            })
            .cloned()
            .collect();
        if found.is_empty() && reference.parameter_not_found_action == Some(NotFoundAction::Deny) {
            return Err(
                "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
            );
        }
        Ok(found)
    }
}

fn is_of(object: &Value, kind: &ParamKind) -> bool {
    object.field("kind").and_then(Value::as_text) == Some(&kind.kind)
        && object.field("apiVersion").and_then(Value::as_text) == Some(&kind.api_version)
}

fn namespace(object: &Value) -> Option<&str> {
    object.at("/metadata/namespace").and_then(Value::as_text)
}
