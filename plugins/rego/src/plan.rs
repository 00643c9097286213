//! A plan: the rules of a template, compiled for the evaluation of many reviews.
//!
//! regorus looks up every name of a call at every call, by the text of its path. A plan has indexes in place of names. Its
//! builtins are those of regorus. It knows the part of Rego that most templates are written in. The interpreter of regorus
//! evaluates the others, and whatever a plan finds to be an error: a plan never gives an error as an answer.
//!
//! ```text
//! configure  modules → Plan, or the reason why there is none
//! review     Plan → violations      `Unsure`: the interpreter evaluates the review again
//! ```

mod build;
mod names;
mod run;
mod walk;

use regorus::Value;
use regorus::unstable::{BUILTINS, BoolOp, BuiltinFcn, Expr, Ref, Span};

use crate::program::Extension;
pub(crate) use build::Functions;

/// The compiled rules.
pub(crate) struct Plan {
    rules: Vec<Rule>,
    /// The index of the rule `violation`.
    main: usize,
    /// Whether there are patterns that are no constants.
    has_patterns: bool,
}

/// The evaluation met a case that only the interpreter decides, such as two results of one function.
#[derive(Debug)]
pub(crate) struct Unsure;

/// Why there is no plan for some modules.
pub(crate) type Reason = &'static str;

/// All rules of one name.
struct Rule {
    kind: Kind,
    definitions: Vec<Definition>,
    /// All definitions have the same constant value, so that the first that holds decides.
    is_constant: bool,
}

enum Kind {
    /// A rule with one value, or its default.
    Complete(Option<Term>),
    /// A function, and its default.
    Function(Option<Term>),
    Set,
    Object,
}

/// One rule of a name.
struct Definition {
    /// The constants among the parameters. Parameters have the first slots.
    constants: Vec<(usize, Value)>,
    /// The body, and the bodies of `else`.
    bodies: Vec<Body>,
}

struct Body {
    steps: Vec<Step>,
    /// The number of variables, with the parameters.
    slots: usize,
    /// The key of an element of an object.
    key: Option<Term>,
    /// The value, or the element of a set.
    value: Term,
}

/// A step of a query. A step that does not hold ends the query for the values that the variables have.
enum Step {
    /// The term is neither false nor undefined.
    Holds(Term),
    /// The term is false or undefined.
    Fails(Term),
    /// The variable gets a value, which must be defined.
    Set(usize, Term),
    /// The variable has a list of this length.
    IsArray(usize, usize),
    /// The variable has an object with this number of members.
    IsObject(usize, usize),
    /// The steps after this one are taken for each element.
    Each(Each),
    /// The steps hold for each element.
    Every(Each, Vec<Step>),
}

/// A loop over the elements of a collection. A value without elements has none.
struct Each {
    collection: Term,
    /// The variable for the index, the key, or the element of a set.
    key: Option<usize>,
    /// The variable for the element.
    value: usize,
}

/// An expression without loops.
enum Term {
    Literal(Value),
    /// A variable.
    Local(usize),
    Input,
    Data,
    /// The value of a rule.
    Rule(usize),
    /// A value with keys into it.
    Path(Box<Term>, Vec<Term>),
    Call(usize, Vec<Term>),
    Builtin(Box<Builtin>),
    /// A function of this plugin in place of a builtin.
    Own(Extension, Vec<Term>),
    Compare(BoolOp, Box<[Term; 2]>),
    /// Whether a collection has a value, at a key if there is one.
    Contains(Option<Box<Term>>, Box<[Term; 2]>),
    Array(Vec<Term>),
    Set(Vec<Term>),
    Object(Vec<(Term, Term)>),
    Comprehension(Box<Comprehension>),
}

struct Builtin {
    function: BuiltinFcn,
    arguments: Vec<Term>,
    /// For the errors of regorus, which are undefined.
    span: Span,
    expressions: Vec<Ref<Expr>>,
}

struct Comprehension {
    kind: Collection,
    steps: Vec<Step>,
    key: Option<Term>,
    value: Term,
}

#[derive(Clone, Copy)]
enum Collection {
    Array,
    Set,
    Object,
}

// === impl Plan ===

impl Plan {
    /// Compiles the patterns among the parameters of a constraint, so that they are in the snapshot.
    pub(crate) fn prepare(&self, parameters: &Value) {
        if self.has_patterns {
            let mut texts = Vec::new();
            strings(parameters, &mut texts);
            let texts = texts.iter().filter(|text| text.len() <= LONGEST_PATTERN);
            texts.take(MOST_PATTERNS).for_each(|text| prepare(text));
        }
    }
}

/// The most parameters that are compiled as patterns, and the longest one in bytes. Each takes memory in the snapshot.
const MOST_PATTERNS: usize = 8;
const LONGEST_PATTERN: usize = 256;

/// Compiles a pattern for regorus' cache. A text that is no pattern changes nothing.
fn prepare(pattern: &str) {
    if let Some((matches, _)) = BUILTINS.get("regex.match")
        && let Some(place) = crate::arithmetic::place()
    {
        let arguments = [Value::from(pattern), Value::from("")];
        let _ = matches(
            place.span(),
            &[place.clone(), place.clone()],
            &arguments,
            false,
        );
    }
}

fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.to_string()),
        Value::Array(elements) => elements.iter().for_each(|one| strings(one, into)),
        Value::Object(members) => members.values().for_each(|one| strings(one, into)),
        _ => {}
    }
}
