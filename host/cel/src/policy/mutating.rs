//! MutatingAdmissionPolicy: ApplyConfiguration and JSONPatch.

use super::matching::{read, request_text};
use super::spec::{FailurePolicy, PatchType, PolicySpec};
use super::validating::Denial;
use super::{Body, Compilation, Matched, OUT_OF_BUDGET, Policy, resulted};
use crate::apply;
use crate::compile::Program;
use crate::eval::{Found, Scope, Source, seen};
use crate::meter::POLICY_LIMIT;
use crate::node::Document;
use crate::patch::{self, Operation, PatchError, plain};
use crate::types::Type;
use crate::value::Value;
use tollgate_shape::Look;

/// A compiled change.
pub(super) struct Mutator {
    kind: PatchType,
    pub(super) program: Program,
}

/// The result of a policy that changes objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutated {
    /// The mutation changes nothing.
    Unchanged,
    /// The object changes by these operations.
    Patch(Vec<Operation>),
    /// The policy fails, and denies the request.
    Denied(Denial),
}

/// The review with the object as earlier changes left it.
struct Overlay<'a> {
    source: &'a dyn Source,
    object: &'a Value,
}

/// Compiles the changes.
pub(super) fn compile(compilation: &mut Compilation, spec: &PolicySpec) -> Vec<Mutator> {
    for (name, is_empty) in [
        ("validations", spec.validations.is_empty()),
        ("auditAnnotations", spec.audit_annotations.is_empty()),
    ] {
        if !is_empty {
            let message = format!("a MutatingAdmissionPolicy has no {name}");
            compilation.add(&format!("/policy/spec/{name}"), message);
        }
    }
    if spec.mutations.is_empty() {
        compilation.add("/policy/spec/mutations", "must have at least one mutation");
    }
    let mut mutators = Vec::new();
    for (index, written) in spec.mutations.iter().enumerate() {
        let at = format!("/policy/spec/mutations/{index}");
        let (name, expression, wanted) = match written.patch_type {
            PatchType::ApplyConfiguration => (
                "applyConfiguration",
                &written.apply_configuration,
                Type::Struct("Object".to_owned()),
            ),
            PatchType::JSONPatch => (
                "jsonPatch",
                &written.json_patch,
                Type::List(Box::new(Type::Struct("JSONPatch".to_owned()))),
            ),
        };
        let Some(expression) = expression else {
            let message = format!("must be set for the patchType {:?}", written.patch_type);
            compilation.add(&format!("{at}/{name}"), message);
            continue;
        };
        let other = match written.patch_type {
            PatchType::ApplyConfiguration => written.json_patch.is_some(),
            PatchType::JSONPatch => written.apply_configuration.is_some(),
        };
        if other {
            let message = format!(
                "must have only {name} for the patchType {:?}",
                written.patch_type
            );
            compilation.add(&at, message);
        }
        // The elements of a list that is joined from parts may be unknown before evaluation.
        let any_list = Type::List(Box::new(Type::Dyn));
        let wanted = if wanted == Type::Struct("Object".to_owned()) {
            vec![wanted]
        } else {
            vec![wanted, any_list]
        };
        let at = format!("{at}/{name}/expression");
        let program = compilation.compile(&at, &expression.expression, &wanted);
        mutators.extend(program.map(|program| Mutator {
            kind: written.patch_type,
            program,
        }));
    }
    mutators
}

impl Policy {
    /// Changes the object of a review. A policy that only validates changes nothing.
    #[must_use]
    pub fn mutate(&self, source: &dyn Source) -> Mutated {
        let Body::Mutating(mutators) = &self.body else {
            return Mutated::Unchanged;
        };
        let applies = self.applies(source);
        if applies == Ok(false) || !source.exists(Document::Object, "/metadata") {
            return Mutated::Unchanged;
        }
        if let Err(unknown) = applies {
            let name = &self.name;
            let error =
                format!("policy {name:?} denied request: failed to configure policy: {unknown}");
            return self
                .failed(error, "Forbidden")
                .unwrap_or(Mutated::Unchanged);
        }
        let mut before: Option<Value> = None;
        let mut object: Option<Value> = None;
        let mut first_error = None;
        for binding in &self.bindings {
            let params = match self.is_bound(binding, source) {
                Ok(true) => self.params_of(binding.spec.param_ref.as_ref(), source),
                Ok(false) => continue,
                Err(unknown) => Err(unknown.to_string()),
            };
            let mut failed = |error: String, reason| {
                let message = format!(
                    "policy '{}' with binding '{}' denied request: {error}",
                    self.name, binding.metadata.name
                );
                first_error.get_or_insert((message, reason));
            };
            let params = match params {
                Ok(params) => params,
                Err(error) => {
                    failed(format!("failed to configure binding: {error}"), "Forbidden");
                    continue;
                }
            };
            for params in params {
                let matched = with_object(source, object.as_ref(), |source| {
                    self.matched(&self.documents(source)[0], &params)
                });
                match matched {
                    Matched::Yes => {}
                    Matched::No => continue,
                    Matched::Failed(error) => {
                        failed(error, "Invalid");
                        continue;
                    }
                }
                for mutator in mutators {
                    let current = match &object {
                        Some(object) => object.clone(),
                        None => {
                            let Some(whole) = read(source, Document::Object, "") else {
                                return Mutated::Unchanged;
                            };
                            before = Some(whole.clone());
                            whole
                        }
                    };
                    let changed = with_object(source, object.as_ref(), |source| {
                        self.change(mutator, source, &params, &current)
                    });
                    match changed {
                        Ok(changed) => object = Some(changed),
                        Err(error) => failed(error, "Invalid"),
                    }
                }
            }
        }
        if let Some(denied) = first_error.and_then(|(message, reason)| self.failed(message, reason))
        {
            return denied;
        }
        let (Some(before), Some(after)) = (before, object) else {
            return Mutated::Unchanged;
        };
        let operations = patch::difference(&before, &after);
        if operations.is_empty() {
            Mutated::Unchanged
        } else {
            Mutated::Patch(operations)
        }
    }

    /// Returns the denial of a policy that fails. None if it fails open. The reason is that of kube-apiserver, with the status
    /// of that reason.
    fn failed(&self, message: String, reason: &'static str) -> Option<Mutated> {
        (self.failure_policy == FailurePolicy::Fail).then_some(Mutated::Denied(Denial {
            message,
            reason,
            code: if reason == "Forbidden" { 403 } else { 422 },
        }))
    }

    /// Evaluates one change and applies it to the object.
    fn change(
        &self,
        mutator: &Mutator,
        source: &dyn Source,
        params: &Value,
        object: &Value,
    ) -> Result<Value, String> {
        let [_, documents] = self.documents(source);
        let scope = Scope::over(documents, params.clone(), &self.variables);
        let (result, cost) = scope.evaluate(&mutator.program);
        if cost > POLICY_LIMIT {
            return Err(OUT_OF_BUDGET.to_owned());
        }
        let result = result.map_err(|error| resulted(&mutator.program, &error))?;
        match mutator.kind {
            PatchType::ApplyConfiguration => {
                let Value::Struct(_) = &result else {
                    return Err(format!(
                        "unsupported return type from ApplyConfiguration expression: {}",
                        result.type_name()
                    ));
                };
                check_types(&result, "Object")?;
                let text = |pointer: &str| request_text(source, pointer);
                let (group, version, kind) = (
                    text("/kind/group"),
                    text("/kind/version"),
                    text("/kind/kind"),
                );
                apply::apply(&group, &version, &kind, object, &result)
                    .map_err(|error| format!("error applying patch: {error}"))
            }
            PatchType::JSONPatch => match patch::apply(object, &operations(&result)?) {
                Ok(changed) => Ok(changed),
                Err(PatchError::Test) => Ok(object.clone()),
                Err(PatchError::Message(error)) => Err(format!("JSON Patch: {error}")),
            },
        }
    }
}

/// Calls a function with the review, in which the object is that of earlier changes.
fn with_object<T>(
    source: &dyn Source,
    object: Option<&Value>,
    call: impl FnOnce(&dyn Source) -> T,
) -> T {
    match object {
        None => call(source),
        Some(object) => call(&Overlay { source, object }),
    }
}

/// Reads the operations that an expression returns.
fn operations(result: &Value) -> Result<Vec<Operation>, String> {
    let Value::List(list) = result else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    list.iter()
        .map(|element| {
            let Value::Struct(object) = element else {
                return Err(format!(
                    "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: cannot convert {} \
                     to JSONPatch",
                    element.type_name()
                ));
            };
            let text = |name: &str| {
                let found = object.field(name).and_then(Value::as_text);
                found.unwrap_or_default().to_owned()
            };
            if let Some(value @ Value::Struct(constructed)) = object.field("value") {
                check_types(value, &constructed.name)?;
            }
            Ok(Operation {
                op: text("op"),
                path: text("path"),
                from: text("from"),
                value: object.field("value").cloned().map(plain),
            })
        })
        .collect()
}

/// Checks that the names of the types of constructed objects follow the names of the fields.
fn check_types(value: &Value, wanted: &str) -> Result<(), String> {
    match value {
        Value::Struct(object) => {
            if *object.name != *wanted {
                return Err(format!(
                    "type mismatch: unexpected type name {:?}, expected {wanted:?}, which matches field name path from \
                     root Object type",
                    object.name
                ));
            }
            object
                .fields
                .iter()
                .try_for_each(|(name, value)| check_types(value, &format!("{wanted}.{name}")))
        }
        Value::List(list) => list.iter().try_for_each(|value| check_types(value, wanted)),
        Value::Map(map) => map
            .iter()
            .try_for_each(|(_, value)| check_types(value, wanted)),
        _ => Ok(()),
    }
}

// === impl Overlay ===

impl Source for Overlay<'_> {
    fn value(&self, document: Document, pointer: &str) -> Option<Found> {
        if document == Document::Object {
            return self.object.at(pointer).cloned().map(Found::Value);
        }
        self.source.value(document, pointer)
    }

    fn look(&self, document: Document, pointers: &[String]) -> Vec<Option<Look<Value>>> {
        if document == Document::Object {
            let found = pointers.iter().map(|pointer| self.object.at(pointer));
            return found.map(|value| Some(seen(value?))).collect();
        }
        self.source.look(document, pointers)
    }

    fn keys(&self, document: Document, pointer: &str) -> Vec<String> {
        if document == Document::Object {
            return self.object.at(pointer).map_or_else(Vec::new, Value::names);
        }
        self.source.keys(document, pointer)
    }

    fn exists(&self, document: Document, pointer: &str) -> bool {
        if document == Document::Object {
            return self.object.at(pointer).is_some();
        }
        self.source.exists(document, pointer)
    }
}
