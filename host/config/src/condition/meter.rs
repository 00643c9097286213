//! Rewrites an expression so that its evaluation counts its own cost.
//!
//! - Each iteration of a comprehension begins with `@turn(@budget) ? … : false`. This is an error once the budget is
//!   spent.
//! - The cost of a comparison, a concatenation, a function or a copy depends on the size of its values. Such values
//!   pass through `@text`, `@whole` or `@container`. These functions charge for the value and return it.
//! - Functions whose cost is the product of two sizes are replaced by the host's own functions, which know the budget.
//!
//! The evaluator recognises some shapes, which are kept: the steps of `map` and `filter`, where it appends in place.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, SelectExpr, operators,
};
use cel::parser::Expression;

use super::budget;
use super::functions::{self, Regexes};

/// How a value is charged.
#[derive(Clone, Copy)]
enum Weight {
    /// Text, by its length.
    Text,
    /// A value with everything in it.
    Whole,
    /// The right side of `in`.
    Container,
}

/// Returns the metered expression. Literal patterns in it are compiled once and kept in `regexes`.
pub(super) fn meter(expression: &Expression, regexes: &mut Regexes) -> Expression {
    let expr = match &expression.expr {
        Expr::Call(call) => meter_call(call, regexes),
        Expr::Comprehension(comprehension) => {
            Expr::Comprehension(Box::new(meter_comprehension(comprehension, regexes)))
        }
        Expr::List(list) => Expr::List(ListExpr {
            elements: weigh_all(&list.elements, Weight::Whole, regexes),
            optional_indices: list.optional_indices.clone(),
        }),
        Expr::Map(map) => {
            let mut map = map.clone();
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    entry.key = weigh(&entry.key, Weight::Text, regexes);
                    entry.value = weigh(&entry.value, Weight::Whole, regexes);
                }
            }
            Expr::Map(map)
        }
        Expr::Select(select) => Expr::Select(SelectExpr {
            operand: Box::new(meter(&select.operand, regexes)),
            field: select.field.clone(),
            test: select.test,
        }),
        other => other.clone(),
    };
    with_expr(expression, expr)
}

/// Returns the nesting depth of an expression.
pub(super) fn depth(expression: &Expression) -> usize {
    let parts: Vec<&Expression> = match &expression.expr {
        Expr::Call(call) => call
            .target
            .as_deref()
            .into_iter()
            .chain(&call.args)
            .collect(),
        Expr::Comprehension(comprehension) => vec![
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some([&entry.key, &entry.value]),
                EntryExpr::StructField(_) => None,
            });
            entries.flatten().collect()
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => Vec::new(),
    };
    1 + parts.into_iter().map(depth).max().unwrap_or(0)
}

fn meter_call(call: &CallExpr, regexes: &mut Regexes) -> Expr {
    let name = call.func_name.as_str();
    let Some(target) = &call.target else {
        return match (name, call.args.as_slice()) {
            (functions::MATCHES, [text, pattern]) => matches(text, pattern, regexes),
            _ => operation(name, &call.args, regexes),
        };
    };
    match (name, call.args.as_slice()) {
        (functions::MATCHES, [pattern]) => return matches(target, pattern, regexes),
        _ if functions::is_own(name) => {
            let mut args = vec![ident(budget::VARIABLE), meter(target, regexes)];
            args.extend(call.args.iter().map(|arg| meter(arg, regexes)));
            return global(&functions::own_name(name), args);
        }
        _ => {}
    }
    let is_namespace = functions::is_namespace(&target.expr);
    let weight = if is_namespace || functions::is_of_optionals(name) {
        Weight::Whole
    } else {
        Weight::Text
    };
    let target = if is_namespace {
        (**target).clone()
    } else {
        weigh(target, weight, regexes)
    };
    Expr::Call(CallExpr {
        func_name: call.func_name.clone(),
        target: Some(Box::new(target)),
        args: weigh_all(&call.args, weight, regexes),
    })
}

/// Meters an operator, or a function that is called without a target.
fn operation(name: &str, args: &[Expression], regexes: &mut Regexes) -> Expr {
    use operators::{
        ADD, CONDITIONAL, DIVIDE, EQUALS, IN, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, MODULO,
        MULTIPLY, NEGATE, NOT_EQUALS, NOT_STRICTLY_FALSE, OPT_INDEX, OPT_SELECT, SUBSTRACT,
    };
    let args = match (name, args) {
        (
            CONDITIONAL | LOGICAL_AND | LOGICAL_OR | LOGICAL_NOT | NOT_STRICTLY_FALSE | NEGATE
            | SUBSTRACT | MULTIPLY | DIVIDE | MODULO,
            _,
        ) => args.iter().map(|arg| meter(arg, regexes)).collect(),
        // A comparison with a literal reads no more of the value than the literal's length.
        (EQUALS | NOT_EQUALS, [left, right]) if is_literal(left) || is_literal(right) => {
            weigh_all(args, Weight::Text, regexes)
        }
        (EQUALS | NOT_EQUALS | ADD, _) => weigh_all(args, Weight::Whole, regexes),
        (IN, [value, container]) => vec![
            weigh(value, Weight::Whole, regexes),
            weigh(container, Weight::Container, regexes),
        ],
        (operators::INDEX, [value, index]) => {
            vec![meter(value, regexes), weigh(index, Weight::Text, regexes)]
        }
        // The value that is found is copied into the optional.
        (OPT_INDEX | OPT_SELECT, [value, index]) => vec![
            weigh(value, Weight::Whole, regexes),
            weigh(index, Weight::Text, regexes),
        ],
        _ => weigh_all(args, Weight::Text, regexes),
    };
    global(name, args)
}

fn matches(text: &Expression, pattern: &Expression, regexes: &mut Regexes) -> Expr {
    let pattern = match &pattern.expr {
        Expr::Literal(LiteralValue::String(literal)) => {
            regexes.keep(literal.inner()).map(|name| ident(&name))
        }
        _ => None,
    }
    .unwrap_or_else(|| meter(pattern, regexes));
    let args = vec![ident(budget::VARIABLE), meter(text, regexes), pattern];
    global(&functions::own_name(functions::MATCHES), args)
}

fn meter_comprehension(
    comprehension: &ComprehensionExpr,
    regexes: &mut Regexes,
) -> ComprehensionExpr {
    let mut metered = ComprehensionExpr {
        // Every element is copied when it gets its name.
        iter_range: weigh(&comprehension.iter_range, Weight::Whole, regexes),
        accu_init: weigh(&comprehension.accu_init, Weight::Whole, regexes),
        result: meter(&comprehension.result, regexes),
        ..comprehension.clone()
    };
    match append_step(comprehension) {
        Some((guard, items)) => {
            let mut items = weigh_all(items, Weight::Whole, regexes);
            let guard = match guard {
                Some(guard) => Some(turn(meter(guard, regexes))),
                None => {
                    items = items.into_iter().map(turn).collect();
                    None
                }
            };
            let accumulator = || ident(&comprehension.accu_var);
            let list = plain(Expr::List(ListExpr::new(items)));
            let step = plain(global(operators::ADD, vec![accumulator(), list]));
            metered.loop_step = match guard {
                Some(guard) => plain(global(
                    operators::CONDITIONAL,
                    vec![guard, step, accumulator()],
                )),
                None => step,
            };
        }
        None => {
            metered.loop_cond = turn(meter(&comprehension.loop_cond, regexes));
            metered.loop_step = meter(&comprehension.loop_step, regexes);
        }
    }
    metered
}

/// Returns the condition and the elements of a `map` or `filter` step.
fn append_step(comprehension: &ComprehensionExpr) -> Option<(Option<&Expression>, &[Expression])> {
    let is_accumulator = |expression: &Expression| matches!(&expression.expr, Expr::Ident(name) if *name == comprehension.accu_var);
    fn call<'e>(expression: &'e Expression, name: &str) -> Option<&'e [Expression]> {
        match &expression.expr {
            Expr::Call(call) if call.func_name == name && call.target.is_none() => Some(&call.args),
            _ => None,
        }
    }
    fn items(
        step: &Expression,
        is_accumulator: impl Fn(&Expression) -> bool,
    ) -> Option<&[Expression]> {
        match call(step, operators::ADD)? {
            [left, right] if is_accumulator(left) => match &right.expr {
                Expr::List(list) if list.optional_indices.is_empty() => Some(&list.elements),
                _ => None,
            },
            _ => None,
        }
    }
    if !is_accumulator(&comprehension.result) || !is_literal(&comprehension.loop_cond) {
        return None;
    }
    let step = &comprehension.loop_step;
    match call(step, operators::CONDITIONAL) {
        Some([guard, step, otherwise]) if is_accumulator(otherwise) => {
            Some((Some(guard), items(step, is_accumulator)?))
        }
        Some(_) => None,
        None => Some((None, items(step, is_accumulator)?)),
    }
}

/// Puts a charge for one iteration before an expression. If the budget is spent, the expression is not evaluated.
fn turn(expression: Expression) -> Expression {
    let charge = plain(global(functions::TURN, vec![ident(budget::VARIABLE)]));
    let never = plain(Expr::Literal(LiteralValue::Boolean(false.into())));
    plain(global(
        operators::CONDITIONAL,
        vec![charge, expression, never],
    ))
}

fn weigh_all(expressions: &[Expression], weight: Weight, regexes: &mut Regexes) -> Vec<Expression> {
    let weighed = expressions.iter().map(|one| weigh(one, weight, regexes));
    weighed.collect()
}

fn weigh(expression: &Expression, weight: Weight, regexes: &mut Regexes) -> Expression {
    let metered = meter(expression, regexes);
    // The cost of a literal, a list or a map is limited by the length of the expression.
    if matches!(
        expression.expr,
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_)
    ) {
        return metered;
    }
    let function = match weight {
        Weight::Text => functions::TEXT,
        Weight::Whole => functions::WHOLE,
        Weight::Container => functions::CONTAINER,
    };
    plain(global(function, vec![ident(budget::VARIABLE), metered]))
}

fn is_literal(expression: &Expression) -> bool {
    matches!(expression.expr, Expr::Literal(_))
}

fn global(name: &str, args: Vec<Expression>) -> Expr {
    Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    })
}

fn ident(name: &str) -> Expression {
    plain(Expr::Ident(name.to_owned()))
}

/// Creates an expression that has no place in the text.
fn plain(expr: Expr) -> Expression {
    Expression { id: 0, expr }
}

fn with_expr(of: &Expression, expr: Expr) -> Expression {
    Expression { id: of.id, expr }
}
