//! Refuses expressions at load that could never be evaluated, mostly because of unknown names.
//!
//! kube-apiserver type-checks expressions. Here only `request` has a type, because the object's type is unknown. A
//! value of a wrong type is an error during evaluation.

use std::collections::BTreeSet;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};
use cel::parser::Expression;
use cel::{ParseErrors, Program};

use super::functions;
use super::needs::{NAMESPACE, OBJECT, OLD_OBJECT, REQUEST};

/// Names of types. CEL treats them as values.
const TYPES: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];
/// The fields of Kubernetes' AdmissionRequest. `object` and `oldObject` are variables instead.
const REQUEST_FIELDS: &[(&str, &[&str])] = &[
    ("uid", &[]),
    ("kind", &["group", "version", "kind"]),
    ("resource", &["group", "version", "resource"]),
    ("subResource", &[]),
    ("requestKind", &["group", "version", "kind"]),
    ("requestResource", &["group", "version", "resource"]),
    ("requestSubResource", &[]),
    ("name", &[]),
    ("namespace", &[]),
    ("operation", &[]),
    ("userInfo", &["username", "uid", "groups", "extra"]),
    ("dryRun", &[]),
    ("options", &[]),
];
/// A variable of Kubernetes that asks the API server.
const AUTHORIZER: &str = "authorizer";
/// Maximum nesting depth. Evaluation is recursive, on a thread's stack.
const DEEPEST: usize = 64;

struct Checker<'p> {
    program: &'p Program,
    /// Names that comprehensions define, innermost last.
    scope: Vec<&'p str>,
    problems: Vec<String>,
}

/// Formats the parser's errors with their places.
pub(super) fn syntax(errors: &ParseErrors) -> Vec<String> {
    let errors = errors.errors.iter().take(10).map(|error| {
        let (line, column) = error.pos;
        format!(
            "line {}, column {}: {}",
            line.max(1),
            column.max(0) + 1,
            error.msg
        )
    });
    errors.collect()
}

/// Returns all problems of a parsed expression.
pub(super) fn check(program: &Program) -> Result<(), Vec<String>> {
    let mut checker = Checker {
        program,
        scope: Vec::new(),
        problems: Vec::new(),
    };
    let expression = program.expression();
    checker.check(expression, 0);
    if let Some(found) = literal_type(&expression.expr) {
        checker.note(
            expression,
            format!("the result is always {found}, expected a boolean"),
        );
    }
    if checker.problems.is_empty() {
        Ok(())
    } else {
        Err(checker.problems)
    }
}

/// Returns an operator as it is written, or a function's name.
pub(super) fn operator(name: &str) -> &str {
    let name = name.trim_start_matches('@');
    match name {
        "_[_]" | "_[?_]" => "[]",
        "_._" | "_?._" => ".",
        "_?_:_" => "?:",
        _ => name.trim_matches('_'),
    }
}

/// Returns the names of all fields that an expression reads. None if a name depends on the data.
pub(super) fn fields(expression: &Expression) -> Option<BTreeSet<String>> {
    let mut fields = BTreeSet::new();
    let mut waiting = vec![expression];
    while let Some(expression) = waiting.pop() {
        match &expression.expr {
            Expr::Select(select) => {
                fields.insert(select.field.clone());
                waiting.push(&select.operand);
            }
            Expr::Call(call) => {
                if let ("_[_]" | "_[?_]" | "_?._", [_, index]) =
                    (call.func_name.as_str(), call.args.as_slice())
                {
                    match &index.expr {
                        Expr::Literal(LiteralValue::String(name)) => {
                            fields.insert(name.inner().to_owned());
                        }
                        Expr::Literal(_) => {}
                        _ => return None,
                    }
                }
                waiting.extend(call.target.as_deref());
                waiting.extend(&call.args);
            }
            Expr::List(list) => waiting.extend(&list.elements),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        waiting.extend([&entry.key, &entry.value]);
                    }
                }
            }
            Expr::Comprehension(comprehension) => waiting.extend([
                &comprehension.iter_range,
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ]),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
        }
    }
    Some(fields)
}

/// Maps the evaluator's name of an arithmetic operator to its sign.
pub(super) fn arithmetic_sign(name: &str) -> &str {
    match name {
        "add" => "+",
        "sub" => "-",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        other => other,
    }
}

// === impl Checker ===

impl<'p> Checker<'p> {
    fn check(&mut self, expression: &'p Expression, depth: usize) {
        if depth > DEEPEST {
            if depth == DEEPEST + 1 {
                self.note(
                    expression,
                    format!("the expression is nested deeper than {DEEPEST} levels"),
                );
            }
            return;
        }
        let below = depth + 1;
        match &expression.expr {
            Expr::Ident(name) => self.check_name(expression, name),
            Expr::Select(select) => {
                self.check_field(expression, &select.operand, &select.field);
                self.check(&select.operand, below);
            }
            Expr::Call(call) => self.check_call(expression, call, below),
            Expr::List(list) => list.elements.iter().for_each(|one| self.check(one, below)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.check(&entry.key, below);
                        self.check(&entry.value, below);
                    }
                }
            }
            Expr::Comprehension(comprehension) => {
                self.check(&comprehension.iter_range, below);
                self.check(&comprehension.accu_init, below);
                let outside = self.scope.len();
                self.scope.push(&comprehension.accu_var);
                self.check(&comprehension.result, below);
                self.scope.push(&comprehension.iter_var);
                self.scope.extend(comprehension.iter_var2.as_deref());
                self.check(&comprehension.loop_cond, below);
                self.check(&comprehension.loop_step, below);
                self.scope.truncate(outside);
            }
            Expr::Struct(made) => {
                self.note(expression, format!("unknown type `{}`", made.type_name));
            }
            Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn check_name(&mut self, expression: &Expression, name: &str) {
        if self.scope.contains(&name)
            || [OBJECT, OLD_OBJECT, REQUEST, NAMESPACE].contains(&name)
            || TYPES.contains(&name)
        {
            return;
        }
        let why = match name {
            AUTHORIZER => {
                "`authorizer` is not available here: it needs the API server; write this condition into the webhook \
                 configuration"
            }
            _ => "",
        };
        if why.is_empty() {
            self.note(
                expression,
                format!(
                    "unknown name `{name}`, expected object, oldObject, request or namespaceObject"
                ),
            );
        } else {
            self.note(expression, why.to_owned());
        }
    }

    fn check_call(&mut self, expression: &'p Expression, call: &'p CallExpr, below: usize) {
        let name = call.func_name.as_str();
        // Operators have internal names, which cannot be written in an expression.
        let is_operator = |name: &str| !name.starts_with(|first: char| first.is_ascii_alphabetic());
        let namespace = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(target)) if !self.scope.contains(&target.as_str()) => {
                functions::is_qualified(target, name)
            }
            _ => false,
        };
        if !namespace {
            // If a chain of calls begins with `authorizer`, the problem at its beginning is reported and is enough.
            let explained = call.target.as_deref().is_some_and(begins_with_authorizer);
            if !is_operator(name) && !functions::is_known(name) && !explained {
                self.note(expression, format!("unknown function `{name}`"));
            }
            if let Some(target) = &call.target {
                self.check(target, below);
            }
        }
        let pattern = match (name, call.args.as_slice()) {
            (functions::MATCHES, [pattern] | [_, pattern]) => Some(pattern),
            _ => None,
        };
        if let Some(Expr::Literal(LiteralValue::String(text))) =
            pattern.map(|pattern| &pattern.expr)
            && functions::pattern(text.inner()).is_err()
        {
            self.note(
                expression,
                "the pattern of `matches` is not a valid regular expression, or is too large"
                    .to_owned(),
            );
        }
        if let ("_[_]" | "_[?_]" | "_?._", [value, index]) = (name, call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(field)) = &index.expr
        {
            self.check_field(expression, value, field.inner());
        }
        call.args.iter().for_each(|arg| self.check(arg, below));
    }

    /// Reports a field that `request` does not have.
    fn check_field(&mut self, expression: &Expression, operand: &Expression, field: &str) {
        let is_request = |operand: &Expression| {
            matches!(&operand.expr, Expr::Ident(name) if name == REQUEST)
                && !self.scope.contains(&REQUEST)
        };
        if is_request(operand) {
            if REQUEST_FIELDS.iter().any(|(known, _)| *known == field) {
                return;
            }
            let why = if field == OBJECT || field == OLD_OBJECT {
                format!("`request` has no field `{field}`, expected the variable `{field}`")
            } else {
                let fields: Vec<&str> = REQUEST_FIELDS.iter().map(|(known, _)| *known).collect();
                format!(
                    "`request` has no field `{field}`, expected {}",
                    fields.join(", ")
                )
            };
            self.note(expression, why);
            return;
        }
        let Expr::Select(parent) = &operand.expr else {
            return;
        };
        if !is_request(&parent.operand) {
            return;
        }
        let known = REQUEST_FIELDS
            .iter()
            .find(|(known, _)| *known == parent.field);
        if let Some((parent, fields)) = known
            && !fields.is_empty()
            && !fields.contains(&field)
        {
            self.note(
                expression,
                format!(
                    "`request.{parent}` has no field `{field}`, expected {}",
                    fields.join(", ")
                ),
            );
        }
    }

    fn note(&mut self, at: &Expression, what: String) {
        let info = self.program.source_info();
        let problem = match info.offset_for(at.id) {
            Some((start, _)) => {
                let before: String = info.source.chars().take(start as usize).collect();
                let line = before.matches('\n').count() + 1;
                let column = before
                    .rsplit('\n')
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .count()
                    + 1;
                format!("line {line}, column {column}: {what}")
            }
            None => what,
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

fn begins_with_authorizer(expression: &Expression) -> bool {
    match &expression.expr {
        Expr::Ident(name) => name == AUTHORIZER,
        Expr::Call(call) => call.target.as_deref().is_some_and(begins_with_authorizer),
        _ => false,
    }
}

/// Returns the type of a literal, a list or a map. None for a boolean, and for all other expressions.
fn literal_type(expr: &Expr) -> Option<&'static str> {
    Some(match expr {
        Expr::Literal(LiteralValue::Boolean(_)) => return None,
        Expr::Literal(LiteralValue::Null) => "null",
        Expr::Literal(LiteralValue::String(_)) => "a string",
        Expr::Literal(LiteralValue::Bytes(_)) => "bytes",
        Expr::Literal(_) => "a number",
        Expr::List(_) => "a list",
        Expr::Map(_) => "a map",
        _ => return None,
    })
}
