//! Calculations as OPA makes them: one with a value that is no number is undefined.
//!
//! regorus ends the evaluation there, even where builtins that fail are undefined. `a - b` therefore becomes a call of a
//! function of this plugin. Lines stay as they are.

use std::cell::RefCell;

use regorus::unstable::{ArithOp, BinOp, Expr, Ref, Rule, RuleHead, numbers, sets};
use regorus::{Engine, Value};

use crate::{syntax, walk};

/// The functions, by operator.
const FUNCTIONS: [(char, &str); 7] = [
    ('+', "tollgate_add"),
    ('-', "tollgate_subtract"),
    ('*', "tollgate_multiply"),
    ('/', "tollgate_divide"),
    ('%', "tollgate_remainder"),
    ('&', "tollgate_intersection"),
    ('|', "tollgate_union"),
];

/// An operator in a text.
struct Operator {
    /// The first byte of the left operand, with its parentheses.
    start: usize,
    /// The place of the operator.
    at: usize,
    /// The place after the right operand.
    end: usize,
    function: &'static str,
}

/// Replaces the operators of a text by calls. A text that cannot be parsed stays as it is.
pub(crate) fn adapted(text: &str, is_v1: bool) -> String {
    let Some(mut engine) = syntax::parsed(text, is_v1) else {
        return text.to_owned();
    };
    let mut operators = Vec::new();
    for module in engine.get_modules() {
        walk::module(module, &mut |expression: &Expr| {
            operators.extend(Operator::of(expression, text));
        });
    }
    // Outer expressions come first, so that their functions do, too.
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for Operator {
        start,
        at,
        end,
        function,
    } in operators
    {
        edits.push((start, start, format!("{function}(")));
        edits.push((at, at + 1, ",".to_owned()));
        edits.push((end, end, ")".to_owned()));
    }
    // An operand can end where the operator of the expression around it is: `a+b-c`. Its parenthesis comes first.
    edits.sort_by_key(|(from, to, _)| (*from, *to));
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (from, to, new) in edits {
        out.push_str(&text[copied..from]);
        out.push_str(&new);
        copied = to;
    }
    out.push_str(&text[copied..]);
    out
}

/// The functions with the implementations of regorus. An error is undefined.
pub(crate) fn functions() -> impl Iterator<Item = (&'static str, fn(Vec<Value>) -> Value)> {
    let implementations: [fn(Vec<Value>) -> Value; 7] = [
        |values| calculated(&ArithOp::Add, values),
        |values| calculated(&ArithOp::Sub, values),
        |values| calculated(&ArithOp::Mul, values),
        |values| calculated(&ArithOp::Div, values),
        |values| calculated(&ArithOp::Mod, values),
        |values| combined(&BinOp::Intersection, values),
        |values| combined(&BinOp::Union, values),
    ];
    let names = FUNCTIONS.iter().map(|(_, name)| *name);
    names.zip(implementations)
}

thread_local! {
    /// An expression for the errors of regorus, which nobody reads.
    static PLACE: RefCell<Option<Ref<Expr>>> = const { RefCell::new(None) };
}

/// An expression for errors that nobody reads. The first call makes it, so that it is in the snapshot.
pub(crate) fn place() -> Option<Ref<Expr>> {
    with_place(|_| ())?;
    PLACE.with_borrow(Clone::clone)
}

fn with_place<T>(use_it: impl FnOnce(&Expr) -> T) -> Option<T> {
    PLACE.with_borrow_mut(|place| {
        if place.is_none() {
            let mut engine = Engine::new();
            let text = "package tollgate\nplace := 0".to_owned();
            engine.add_policy("place".to_owned(), text).ok()?;
            let module = engine.get_modules().first()?;
            if let Some(Rule::Spec { head, .. }) = module.policy.first().map(|rule| &**rule)
                && let RuleHead::Compr {
                    assign: Some(assign),
                    ..
                } = head
            {
                *place = Some(assign.value.clone());
            }
        }
        place.as_deref().map(use_it)
    })
}

fn operands(values: Vec<Value>) -> Option<(Value, Value)> {
    let mut values = values.into_iter();
    Some((values.next()?, values.next()?))
}

fn calculated(operation: &ArithOp, values: Vec<Value>) -> Value {
    let Some((left, right)) = operands(values) else {
        return Value::Undefined;
    };
    let is_difference = matches!(
        (operation, &left, &right),
        (ArithOp::Sub, Value::Set(_), _) | (ArithOp::Sub, _, Value::Set(_))
    );
    let result = with_place(|place| match is_difference {
        true => sets::difference(place, place, left, right),
        false => {
            let span = place.span();
            numbers::arithmetic_operation(span, operation, place, place, left, right, false)
        }
    });
    result.and_then(Result::ok).unwrap_or(Value::Undefined)
}

fn combined(operation: &BinOp, values: Vec<Value>) -> Value {
    let Some((left, right)) = operands(values) else {
        return Value::Undefined;
    };
    let result = with_place(|place| match operation {
        BinOp::Intersection => sets::intersection(place, place, left, right),
        BinOp::Union => sets::union(place, place, left, right),
    });
    result.and_then(Result::ok).unwrap_or(Value::Undefined)
}

// === impl Operator ===

impl Operator {
    /// Finds the operator of an expression. None if the expression has none.
    fn of(expression: &Expr, text: &str) -> Option<Self> {
        let (span, left, right, symbol) = match expression {
            Expr::ArithExpr {
                span, op, lhs, rhs, ..
            } => {
                let symbol = match op {
                    ArithOp::Add => '+',
                    ArithOp::Sub => '-',
                    ArithOp::Mul => '*',
                    ArithOp::Div => '/',
                    ArithOp::Mod => '%',
                };
                (span, lhs, rhs, symbol)
            }
            Expr::BinExpr {
                span, op, lhs, rhs, ..
            } => {
                let symbol = match op {
                    BinOp::Intersection => '&',
                    BinOp::Union => '|',
                };
                (span, lhs, rhs, symbol)
            }
            _ => return None,
        };
        let place = |place: u32| usize::try_from(place).ok();
        let between = place(left.span().end)?..place(right.span().start)?;
        // Parentheses and comments can stand between an operand and the operator.
        let mut is_comment = false;
        let mut found = text
            .get(between.clone())?
            .char_indices()
            .filter(|(_, one)| {
                is_comment = (is_comment || *one == '#') && *one != '\n';
                !is_comment && *one == symbol
            });
        let at = between.start + found.next()?.0;
        let function = FUNCTIONS.iter().find(|(known, _)| *known == symbol)?.1;
        // regorus counts no quotes to a string.
        let is_quote = |at: usize| matches!(text.as_bytes().get(at), Some(b'"' | b'`'));
        let (start, end) = (place(span.start)?, place(span.end)?);
        Some(Self {
            start: start - usize::from(start > 0 && is_quote(start - 1)),
            at,
            end: end + usize::from(is_quote(end)),
            function,
        })
    }
}
