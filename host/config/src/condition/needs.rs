//! Finds the places of a review that an expression reads. Only these places become CEL values.
//!
//! For example, `object.metadata.labels['app'] == 'web'` needs one label of an object that can have a hundred thousand
//! values.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::common::types::CelNull;
use cel::common::value::Val;
use cel::parser::Expression;
use cel::{Context, ExecutionError};
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::Json;

use super::budget::Budget;
use super::values;

pub(super) const OBJECT: &str = "object";
pub(super) const OLD_OBJECT: &str = "oldObject";
pub(super) const REQUEST: &str = "request";
pub(super) const NAMESPACE: &str = "namespaceObject";

/// The needed parts of each variable. Variables that the expression does not name are missing.
#[derive(Debug, Default)]
pub(super) struct Needs {
    variables: BTreeMap<&'static str, Need>,
}

/// The needed parts of a value. An empty need asks only for the existence and the type of the value.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Need {
    /// Whether the whole value is needed.
    pub(super) whole: bool,
    /// The needed members.
    pub(super) members: BTreeMap<Box<str>, Need>,
}

// === impl Needs ===

impl Needs {
    pub(super) fn of(expression: &Expression) -> Self {
        let mut needs = Self::default();
        needs.read(expression, true);
        needs
    }

    /// Whether the expression names the Namespace of the request.
    pub(super) fn namespace(&self) -> bool {
        self.variables.contains_key(NAMESPACE)
    }

    /// Adds the variables to the context. `namespace` is the Namespace of the request, if it has one.
    pub(super) fn bind<'v>(
        &self,
        context: &mut Context<'_, 'v>,
        request: &'v AdmissionRequest,
        object: Option<&'v Json>,
        namespace: Option<&'v Json>,
        budget: &Budget,
    ) -> Result<(), ExecutionError> {
        for (name, need) in &self.variables {
            let value = match *name {
                OBJECT => value_or_null(object, need, budget)?,
                OLD_OBJECT => value_or_null(request.old_object.as_ref(), need, budget)?,
                NAMESPACE => value_or_null(namespace, need, budget)?,
                _ => values::request(request, need, budget)?,
            };
            context.add_variable_as_val(*name, value);
        }
        Ok(())
    }

    /// Records the places that an expression reads. `whole` says whether the value itself is needed, or only its
    /// existence.
    fn read(&mut self, expression: &Expression, whole: bool) {
        if let Some((variable, path)) = place(expression) {
            self.note(variable, &path, whole);
            return;
        }
        match &expression.expr {
            Expr::Select(select) => {
                // `has()` only asks whether the field exists.
                if let (true, Some((variable, mut path))) = (select.test, place(&select.operand)) {
                    path.push(&select.field);
                    self.note(variable, &path, false);
                } else {
                    self.read(&select.operand, true);
                }
            }
            Expr::Call(call) => self.read_call(call),
            Expr::Comprehension(comprehension) => {
                for part in [
                    &comprehension.iter_range,
                    &comprehension.accu_init,
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ] {
                    self.read(part, true);
                }
            }
            Expr::List(list) => list.elements.iter().for_each(|one| self.read(one, true)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.read(&entry.key, true);
                        self.read(&entry.value, true);
                    }
                }
            }
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
        }
    }

    fn read_call(&mut self, call: &CallExpr) {
        let compares =
            [operators::EQUALS, operators::NOT_EQUALS].contains(&call.func_name.as_str());
        let with_null = call
            .args
            .iter()
            .any(|arg| matches!(arg.expr, Expr::Literal(LiteralValue::Null)));
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            self.read(part, !(compares && with_null));
        }
    }

    fn note(&mut self, variable: &'static str, path: &[&str], whole: bool) {
        let mut need = self.variables.entry(variable).or_default();
        for name in path {
            need = need.members.entry(Box::from(*name)).or_default();
        }
        need.whole |= whole;
    }
}

/// Returns the variable and the names after it. None for any other expression.
fn place(expression: &Expression) -> Option<(&'static str, Vec<&str>)> {
    match &expression.expr {
        Expr::Ident(name) => {
            let variables = [OBJECT, OLD_OBJECT, REQUEST, NAMESPACE];
            let variable = variables.into_iter().find(|variable| name == variable)?;
            Some((variable, Vec::new()))
        }
        Expr::Select(select) if !select.test => {
            let (variable, mut path) = place(&select.operand)?;
            path.push(&select.field);
            Some((variable, path))
        }
        Expr::Call(call) => {
            let indexes = [
                operators::INDEX,
                operators::OPT_INDEX,
                operators::OPT_SELECT,
            ];
            match call.args.as_slice() {
                [value, index] if indexes.contains(&call.func_name.as_str()) => {
                    let Expr::Literal(LiteralValue::String(name)) = &index.expr else {
                        return None;
                    };
                    let (variable, mut path) = place(value)?;
                    path.push(name.inner());
                    Some((variable, path))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn value_or_null<'v>(
    json: Option<&'v Json>,
    need: &Need,
    budget: &Budget,
) -> Result<Box<dyn Val + 'v>, ExecutionError> {
    match json {
        Some(json) => values::value(json, need, budget),
        None => Ok(Box::new(CelNull)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(text: &str) -> String {
        fn write(need: &Need, path: &str, all: &mut Vec<String>) {
            if need.whole {
                all.push(path.to_owned());
            } else if need.members.is_empty() {
                all.push(format!("{path}?"));
            }
            for (name, need) in &need.members {
                write(need, &format!("{path}/{name}"), all);
            }
        }
        let program = super::super::ENVIRONMENT.compile(text).unwrap();
        let mut all = Vec::new();
        for (variable, need) in &Needs::of(program.expression()).variables {
            write(need, variable, &mut all);
        }
        all.join(" ")
    }

    #[test]
    fn needs_only_what_expression_names() {
        for (text, expected) in [
            ("true", ""),
            ("object.metadata.name == 'a'", "object/metadata/name"),
            (
                "object.metadata.labels['a/b'] == 'a'",
                "object/metadata/labels/a/b",
            ),
            ("has(object.spec.template)", "object/spec/template?"),
            ("object == null || oldObject != null", "object? oldObject?"),
            (
                "object.spec == oldObject.spec",
                "object/spec oldObject/spec",
            ),
            (
                "object.?metadata.?labels[?'a'].hasValue()",
                "object/metadata/labels/a",
            ),
            (
                "object.spec.containers.all(c, c.image.startsWith(request.namespace))",
                "object/spec/containers request/namespace",
            ),
            ("object[request.name] == 1", "object request/name"),
            (
                "object.spec.containers[0].image == 'a'",
                "object/spec/containers",
            ),
            (
                "size(object) > 3 && has(object.spec)",
                "object object/spec?",
            ),
            ("has(object.spec.a) && object.spec.a.b", "object/spec/a/b"),
            ("[1].exists(x, has(object.a[x].b))", "object/a"),
            (
                "namespaceObject.metadata.labels['team'] == 'a'",
                "namespaceObject/metadata/labels/team",
            ),
        ] {
            assert_eq!(needs(text), expected, "{text}");
        }
    }
}
