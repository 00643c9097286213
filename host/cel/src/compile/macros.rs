//! Macros: loops over lists and maps, and the macros of optional values.
//!
//! The parser expands the macros of standard CEL to general comprehensions. They are recognised here and become loops
//! of their own kind, which are cheaper to evaluate. The other macros reach this file as calls.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};
use cel::parser::Expression;

use super::{Checked, Compiler, Problem, Typed};
use crate::node::{Fold, Loop, Node};
use crate::types::{BOOL, INT, Type};

/// The parts of a loop before compilation.
struct Parts<'a> {
    fold: Fold,
    range: &'a Expression,
    variables: &'a [&'a str],
    filter: Option<&'a Expression>,
    step: &'a Expression,
}

impl Compiler<'_> {
    /// Compiles a comprehension that the parser made of a macro.
    pub(super) fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Checked<Typed> {
        let unknown = || Problem::new("", "the expression has an unknown kind of loop");
        let Expr::Call(step) = &comprehension.loop_step.expr else {
            return Err(unknown());
        };
        let variables = [comprehension.iter_var.as_str()];
        let parts = |fold, filter, step| Parts {
            fold,
            range: &comprehension.iter_range,
            variables: &variables,
            filter,
            step,
        };
        let parts = match (&comprehension.accu_init.expr, step.args.as_slice()) {
            (Expr::Literal(LiteralValue::Boolean(_)), [_, predicate]) => {
                let fold = if step.func_name == operators::LOGICAL_OR {
                    Fold::Exists
                } else {
                    Fold::All
                };
                parts(fold, None, predicate)
            }
            (Expr::Literal(LiteralValue::Int(_)), [predicate, _, _]) => {
                parts(Fold::ExistsOne, None, predicate)
            }
            (Expr::List(_), [_, element]) => {
                parts(Fold::List, None, single(element).ok_or_else(unknown)?)
            }
            (Expr::List(_), [filter, addition, _]) => {
                let Expr::Call(addition) = &addition.expr else {
                    return Err(unknown());
                };
                let element = addition.args.get(1).and_then(single);
                parts(Fold::List, Some(filter), element.ok_or_else(unknown)?)
            }
            _ => return Err(unknown()),
        };
        self.looped(&parts)
    }

    /// Compiles a macro that the parser leaves as a call. None if the call is not a macro.
    pub(super) fn expanded(&mut self, call: &CallExpr) -> Checked<Option<Typed>> {
        let Some(range) = call.target.as_deref() else {
            return Ok(None);
        };
        let name = call.func_name.as_str();
        let fold = match (name, call.args.len()) {
            ("all", 3) => Fold::All,
            ("exists", 3) => Fold::Exists,
            ("existsOne" | "exists_one", 3) => Fold::ExistsOne,
            ("transformList", 3 | 4) => Fold::List,
            ("transformMap", 3 | 4) => Fold::Map,
            ("transformMapEntry", 3 | 4) => Fold::Entries,
            ("sortBy", 2) => Fold::SortBy,
            ("optMap" | "optFlatMap", 2) => return self.map_optional(range, call).map(Some),
            _ => return Ok(None),
        };
        let has_two = fold != Fold::SortBy;
        let (variables, rest) = call.args.split_at(if has_two { 2 } else { 1 });
        let names: Vec<&str> = variables
            .iter()
            .map(|variable| identifier(variable, name))
            .collect::<Checked<_>>()?;
        if let [first, second] = names[..]
            && first == second
        {
            return Err(Problem::new(
                name,
                format!("duplicate variable name: {first}"),
            ));
        }
        let (filter, step) = match rest {
            [step] => (None, step),
            [filter, step] => (Some(filter), step),
            _ => return Ok(None),
        };
        let parts = Parts {
            fold,
            range,
            variables: &names,
            filter,
            step,
        };
        self.looped(&parts).map(Some)
    }

    fn looped(&mut self, parts: &Parts<'_>) -> Checked<Typed> {
        let range = self.node(parts.range)?;
        let has_two = parts.variables.len() == 2;
        let (first, second) = match &range.kind {
            Type::List(element) if has_two => (INT, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Parameter(_) => (Type::Dyn, Type::Dyn),
            other => {
                let word = parts.variables.first().copied().unwrap_or_default();
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(Problem::new(word, message));
            }
        };
        let slot = self.slots;
        self.slots += 2;
        let outside = self.scope.len();
        for (index, (name, kind)) in parts
            .variables
            .iter()
            .zip([first.clone(), second])
            .enumerate()
        {
            self.scope.push(((*name).to_owned(), slot + index, kind));
        }
        let filter = match parts.filter {
            Some(filter) => Some(self.boolean(filter, "filter")?),
            None => None,
        };
        let (step, kind) = match parts.fold {
            Fold::All | Fold::Exists | Fold::ExistsOne => {
                let word = match parts.fold {
                    Fold::All => "all",
                    Fold::Exists => "exists",
                    _ => "existsOne",
                };
                (self.boolean(parts.step, word)?, BOOL)
            }
            Fold::List => {
                let step = self.node(parts.step)?;
                (step.node, Type::List(Box::new(step.kind)))
            }
            Fold::Map => {
                let step = self.node(parts.step)?;
                (step.node, Type::Map(Box::new(first), Box::new(step.kind)))
            }
            Fold::Entries => {
                let step = self.node(parts.step)?;
                (step.node, step.kind)
            }
            Fold::SortBy => (self.node(parts.step)?.node, range.kind.clone()),
        };
        self.scope.truncate(outside);
        let compiled = Loop {
            fold: parts.fold,
            range: range.node,
            slot,
            has_two,
            filter,
            step,
        };
        Ok(Typed::new(Node::Loop(Box::new(compiled)), kind))
    }

    fn map_optional(&mut self, range: &Expression, call: &CallExpr) -> Checked<Typed> {
        let range = self.node(range)?;
        let content = match range.kind {
            Type::Optional(content) => *content,
            _ => Type::Dyn,
        };
        let name = identifier(&call.args[0], &call.func_name)?.to_owned();
        let slot = self.slots;
        self.slots += 1;
        self.scope.push((name, slot, content));
        let step = self.node(&call.args[1])?;
        self.scope.pop();
        let is_flat = call.func_name == "optFlatMap";
        let kind = if is_flat {
            step.kind
        } else {
            Type::Optional(Box::new(step.kind))
        };
        let nodes = Box::new((range.node, step.node));
        Ok(Typed::new(Node::MapOptional(nodes, slot, is_flat), kind))
    }
}

/// Returns the element of a list literal with one element.
fn single(expression: &Expression) -> Option<&Expression> {
    match &expression.expr {
        Expr::List(list) => list.elements.first(),
        _ => None,
    }
}

fn identifier<'a>(expression: &'a Expression, word: &str) -> Checked<&'a str> {
    match &expression.expr {
        Expr::Ident(name) => Ok(name),
        _ => Err(Problem::new(word, "argument must be a simple name")),
    }
}
