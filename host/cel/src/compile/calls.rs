//! Operators and calls of functions.

use std::cmp::Ordering;

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use cel::parser::Expression;

use super::{Checked, Compiler, Problem, Typed, paths};
use crate::functions::{self, authz, regex};
use crate::node::{Arithmetic, Node, Passes, Search};
use crate::signatures;
use crate::types::{BOOL, Bindings, Type};
use crate::value::Value;

const TIMESTAMP: Type = Type::Named("google.protobuf.Timestamp");
const DURATION: Type = Type::Named("google.protobuf.Duration");

impl Compiler<'_> {
    pub(super) fn call(&mut self, call: &CallExpr) -> Checked<Typed> {
        match (&call.target, call.args.as_slice()) {
            (None, [one]) => {
                if let Some(node) = self.unary(&call.func_name, one)? {
                    return Ok(node);
                }
            }
            (None, [left, right]) => {
                if let Some(node) = self.binary(&call.func_name, left, right)? {
                    return Ok(node);
                }
            }
            (None, [condition, yes, no]) if call.func_name == operators::CONDITIONAL => {
                let condition = self.boolean(condition, "?")?;
                let (yes, no) = (self.node(yes)?, self.node(no)?);
                let kind = yes.kind.join(no.kind);
                let nodes = Box::new((condition, yes.node, no.node));
                return Ok(Typed::new(Node::Conditional(nodes), kind));
            }
            _ => {}
        }
        if let Some(expanded) = self.expanded(call)? {
            return Ok(expanded);
        }
        self.function(call)
    }

    /// Compiles a part that must be a boolean.
    pub(super) fn boolean(&mut self, expression: &Expression, word: &str) -> Checked<Node> {
        let typed = self.node(expression)?;
        if !Bindings::default().accept(&BOOL, &typed.kind) {
            let message = format!("expected type 'bool' but found '{}'", typed.kind);
            return Err(Problem::new(word, message));
        }
        Ok(typed.node)
    }

    fn unary(&mut self, name: &str, operand: &Expression) -> Checked<Option<Typed>> {
        Ok(Some(match name {
            operators::LOGICAL_NOT => {
                let operand = self.boolean(operand, "!")?;
                Typed::new(Node::Not(Box::new(operand)), BOOL)
            }
            operators::NEGATE => {
                let operand = self.node(operand)?;
                let is_known = matches!(
                    operand.kind,
                    Type::Dyn | Type::Named("int" | "double") | Type::Parameter(_)
                );
                if !is_known {
                    return Err(no_overload("-", "-_", &[operand.kind], false));
                }
                Typed::new(Node::Negate(Box::new(operand.node)), operand.kind)
            }
            _ => return Ok(None),
        }))
    }

    fn binary(
        &mut self,
        name: &str,
        left: &Expression,
        right: &Expression,
    ) -> Checked<Option<Typed>> {
        match name {
            operators::LOGICAL_AND => {
                let nodes = (self.boolean(left, "&&")?, self.boolean(right, "&&")?);
                return Ok(Some(Typed::new(Node::And(Box::new(nodes)), BOOL)));
            }
            operators::LOGICAL_OR => {
                let nodes = (self.boolean(left, "||")?, self.boolean(right, "||")?);
                return Ok(Some(Typed::new(Node::Or(Box::new(nodes)), BOOL)));
            }
            operators::OPT_SELECT => {
                let operand = self.node(left)?;
                let Expr::Literal(LiteralValue::String(field)) = &right.expr else {
                    return Err(Problem::new("?", "an optional selection has no field"));
                };
                return paths::select_optional(operand, field.inner()).map(Some);
            }
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
            | operators::INDEX
            | operators::OPT_INDEX => {}
            _ => return Ok(None),
        }
        let (left, right) = (self.node(left)?, self.node(right)?);
        let word = name.trim_matches(['_', '@']).to_owned();
        let word = if word.starts_with('[') { "[" } else { &word };
        let kind = operator_type(name, &left.kind, &right.kind)
            .ok_or_else(|| no_overload(word, name, &[left.kind, right.kind], false))?;
        let nodes = Box::new((left.node, right.node));
        let order = |nodes, test: fn(Ordering) -> bool, name| Node::Order(nodes, test, name);
        let node = match name {
            operators::ADD => Node::Arithmetic(nodes, Arithmetic::Add),
            operators::SUBSTRACT => Node::Arithmetic(nodes, Arithmetic::Subtract),
            operators::MULTIPLY => Node::Arithmetic(nodes, Arithmetic::Multiply),
            operators::DIVIDE => Node::Arithmetic(nodes, Arithmetic::Divide),
            operators::MODULO => Node::Arithmetic(nodes, Arithmetic::Modulo),
            operators::EQUALS => Node::Equal(nodes, true),
            operators::NOT_EQUALS => Node::Equal(nodes, false),
            operators::LESS => order(nodes, Ordering::is_lt, "_<_"),
            operators::LESS_EQUALS => order(nodes, Ordering::is_le, "_<=_"),
            operators::GREATER => order(nodes, Ordering::is_gt, "_>_"),
            operators::GREATER_EQUALS => order(nodes, Ordering::is_ge, "_>=_"),
            operators::IN => Node::In(nodes),
            operators::INDEX => Node::Index(nodes),
            _ => Node::IndexOptional(nodes),
        };
        Ok(Some(Typed::new(node, kind)))
    }

    /// Compiles the call of a function.
    fn function(&mut self, call: &CallExpr) -> Checked<Typed> {
        let name = call.func_name.trim_start_matches('.');
        let (name, target) = match call.target.as_deref() {
            None => (name.to_owned(), None),
            Some(target) => match &target.expr {
                Expr::Ident(namespace)
                    if signatures::is_namespace(namespace) && self.local(namespace).is_none() =>
                {
                    (format!("{namespace}.{name}"), None)
                }
                _ => (name.to_owned(), Some(target)),
            },
        };
        if name == "jsonpatch.escapeKey" && !self.environment.constructs {
            return Err(Problem::undeclared(&name));
        }
        let is_member = target.is_some();
        let key = (name, is_member);
        let environment = self.environment;
        let overloads = environment.functions.get(&key);
        let native = functions::lookup(&key.0, is_member);
        let (Some(overloads), Some(native)) = (overloads, native) else {
            // A problem of the target says more, such as a variable that plugins do not have.
            if let Some(target) = target {
                self.node(target)?;
            }
            return Err(Problem {
                word: call.func_name.clone(),
                ..Problem::undeclared(&key.0)
            });
        };
        let mut nodes = Vec::new();
        let mut kinds = Vec::new();
        for argument in target.into_iter().chain(&call.args) {
            let argument = self.node(argument)?;
            nodes.push(argument.node);
            kinds.push(argument.kind);
        }
        let mut result: Option<Type> = None;
        for overload in overloads {
            let mut bindings = Bindings::default();
            let fits = overload.arguments.len() == kinds.len()
                && overload
                    .arguments
                    .iter()
                    .zip(&kinds)
                    .all(|(wanted, given)| bindings.accept(wanted, given));
            if fits {
                let found = bindings.resolve(&overload.result);
                result = Some(match result {
                    None => found,
                    Some(result) => result.join(found),
                });
            }
        }
        let Some(result) = result else {
            return Err(no_overload(&call.func_name, &key.0, &kinds, is_member));
        };
        Ok(Typed::new(searched(&key.0, native, nodes)?, result))
    }
}

/// Compiles a literal pattern once, and a question about a right. Checks literal durations and timestamps.
fn searched(name: &str, native: functions::Native, mut nodes: Vec<Node>) -> Checked<Node> {
    if name == authz::CHECK {
        let mut nodes = nodes.into_iter();
        if let (Some(on), Some(verb)) = (nodes.next(), nodes.next()) {
            return Ok(Node::Check(Box::new((on, verb))));
        }
        return Err(Problem::undeclared(name));
    }
    let search = match name {
        "matches" => Some(Search::Matches),
        "find" => Some(Search::Find),
        "findAll" => Some(Search::FindAll),
        _ => None,
    };
    if let (Some(search), Some(Node::Constant(Value::String(pattern)))) = (search, nodes.get(1)) {
        let regex = regex::compile(pattern).map_err(|error| {
            Problem::new(
                name,
                format!("invalid matches argument: {error}: `{pattern}`"),
            )
        })?;
        nodes.remove(1);
        return Ok(Node::Search(search, regex, nodes));
    }
    if let ("timestamp" | "duration", [Node::Constant(constant @ Value::String(_))]) =
        (name, nodes.as_slice())
    {
        let mut meter = crate::meter::Meter::new(u64::MAX);
        let value = native(std::slice::from_ref(constant), &mut meter)
            .map_err(|error| Problem::new(name, format!("invalid {name} argument: {error}")))?;
        return Ok(Node::Constant(value));
    }
    let passes = match name {
        "optional.of" | "value" | "or" | "orValue" => Passes::Arguments,
        "hasValue" => Passes::Existence,
        "size" => Passes::Size,
        _ => Passes::Nothing,
    };
    Ok(Node::Call(native, passes, nodes))
}

fn no_overload(word: &str, name: &str, kinds: &[Type], is_member: bool) -> Problem {
    let (target, arguments) = match kinds {
        [target, arguments @ ..] if is_member => (format!("{target}."), arguments),
        arguments => (String::new(), arguments),
    };
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    Problem::new(
        word,
        format!(
            "found no matching overload for '{name}' applied to '{target}({})'",
            arguments.join(", ")
        ),
    )
}

/// Returns the result type of an operator. None if the types do not fit.
fn operator_type(name: &str, left: &Type, right: &Type) -> Option<Type> {
    let is_dyn = *left == Type::Dyn || *right == Type::Dyn;
    let both = |wanted: &Type| left == wanted && right == wanted;
    let is_number = |kind: &Type| matches!(kind, Type::Named("int" | "uint" | "double"));
    match name {
        operators::EQUALS | operators::NOT_EQUALS => {
            let null = Type::Named("null_type");
            let fits = Bindings::default().accept(left, right)
                || Bindings::default().accept(right, left)
                || *left == null
                || *right == null
                || is_number(left) && is_number(right);
            fits.then_some(BOOL)
        }
        operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS => {
            let is_ordered = matches!(left, Type::Named("string" | "bytes" | "bool"))
                || *left == TIMESTAMP
                || *left == DURATION;
            let fits = is_dyn || is_number(left) && is_number(right) || is_ordered && left == right;
            fits.then_some(BOOL)
        }
        operators::IN => {
            let element = match right {
                Type::Dyn => return Some(BOOL),
                Type::List(element) | Type::Map(element, _) => element,
                _ => return None,
            };
            let fits =
                Bindings::default().accept(element, left) || is_number(element) && is_number(left);
            fits.then_some(BOOL)
        }
        operators::INDEX | operators::OPT_INDEX => {
            let element = match left {
                Type::Dyn | Type::Parameter(_) | Type::Struct(_) => Type::Dyn,
                Type::List(element) => (**element).clone(),
                Type::Map(_, value) => (**value).clone(),
                Type::Optional(inner) => {
                    let element = operator_type(operators::INDEX, inner, right)?;
                    return Some(Type::Optional(Box::new(element)));
                }
                Type::Record(_) | Type::Named(_) => return None,
            };
            Some(if name == operators::OPT_INDEX {
                Type::Optional(Box::new(element))
            } else {
                element
            })
        }
        operators::ADD => match (left, right) {
            _ if is_dyn => Some(Type::Dyn),
            (Type::List(left), Type::List(right)) => Some(Type::List(Box::new(
                (**left).clone().join((**right).clone()),
            ))),
            (Type::Named("int" | "uint" | "double" | "string" | "bytes"), right)
                if left == right =>
            {
                Some(left.clone())
            }
            _ if both(&DURATION) => Some(DURATION),
            _ if *left == TIMESTAMP && *right == DURATION
                || *left == DURATION && *right == TIMESTAMP =>
            {
                Some(TIMESTAMP)
            }
            _ => None,
        },
        operators::SUBSTRACT => match (left, right) {
            _ if is_dyn => Some(Type::Dyn),
            (Type::Named("int" | "uint" | "double"), right) if left == right => Some(left.clone()),
            _ if both(&DURATION) || both(&TIMESTAMP) => Some(DURATION),
            _ if *left == TIMESTAMP && *right == DURATION => Some(TIMESTAMP),
            _ => None,
        },
        _ => {
            let has_fraction = name != operators::MODULO;
            match (left, right) {
                _ if is_dyn => Some(Type::Dyn),
                (Type::Named("int" | "uint"), right) if left == right => Some(left.clone()),
                (Type::Named("double"), right) if left == right && has_fraction => {
                    Some(left.clone())
                }
                _ => None,
            }
        }
    }
}
