//! The functions for expressions: CEL's standard library, Kubernetes' strings library, and the host's own functions.
//!
//! The host's own functions charge the budget. Their names begin with `@`, so that no expression can contain them.
//! Functions that replace functions of the strings library return the same results, and charge before they do the
//! work.

use std::any::Any;
use std::collections::BTreeMap;

use cel::common::ast::Expr;
use cel::common::functions::Function;
use cel::common::types::{CelBool, CelInt, CelList, CelString, DYN_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Context, Env, ExecutionError, extensions};
use regex::{Regex, RegexBuilder};

use super::budget::Budget;

pub(super) const TURN: &str = "@turn";
pub(super) const TEXT: &str = "@text";
pub(super) const WHOLE: &str = "@whole";
pub(super) const CONTAINER: &str = "@container";
pub(super) const MATCHES: &str = "matches";

/// Functions of the strings library that cost more than the length of their arguments. The host replaces them.
const OWN: [&str; 5] = ["indexOf", "join", "lastIndexOf", "replace", "split"];
/// Functions that keep a value or pass it on as a whole.
const OF_OPTIONALS: [&str; 4] = ["hasValue", "or", "orValue", "value"];
/// Functions with a qualified name.
const QUALIFIED: [(&str, &str); 4] = [
    ("optional", "none"),
    ("optional", "of"),
    ("optional", "ofNonZeroValue"),
    ("strings", "quote"),
];
/// All other functions. Operators have names that nobody can write.
const OTHERS: [&str; 34] = [
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "int",
    "lowerAscii",
    "matches",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "substring",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// Cost of one iteration of a loop.
const TURN_UNITS: usize = 5;
/// Maximum length of a pattern that comes from the data.
const LONGEST_PATTERN_BYTES: usize = 1024;
/// Maximum size of a compiled pattern: for a literal pattern, and below for one from the data.
const LARGEST_PATTERN_BYTES: usize = 1 << 20;
const LARGEST_FOREIGN_PATTERN_BYTES: usize = 1 << 18;
/// Base cost of compiling a pattern from the data, and below the cost per byte. Compiling can take milliseconds.
const PATTERN_UNITS: usize = 20_000;
const PATTERN_UNITS_PER_BYTE: usize = 200;
/// Length of text that costs one unit to search, for each 16 bytes of the pattern.
const SEARCHED_BYTES_PER_UNIT: usize = 16;

static PATTERN_TYPE: Type = Type::new_unspecified_type("@pattern");

/// The literal patterns of an expression, compiled once.
#[derive(Default)]
pub(super) struct Regexes(BTreeMap<String, Pattern>);

#[derive(Clone, Debug)]
struct Pattern(Regex);

/// Creates the environment in which CEL evaluates expressions.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings)
        .expect("the strings library is added only once");
    let one = || vec![DYN_TYPE];
    let two = || vec![DYN_TYPE, DYN_TYPE];
    let three = || vec![DYN_TYPE, DYN_TYPE, DYN_TYPE];
    let four = || vec![DYN_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE];
    let five = || vec![DYN_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE, DYN_TYPE];
    let own: [(&str, Vec<Type>, Function); 15] = [
        (TURN, one(), turn),
        (TEXT, two(), |args| weighed(args, Budget::weigh_text)),
        (WHOLE, two(), |args| weighed(args, Budget::weigh)),
        (CONTAINER, two(), |args| {
            weighed(args, Budget::weigh_container)
        }),
        ("@matches", three(), matches),
        ("@indexOf", three(), |args| position(&args, Side::First)),
        ("@indexOf", four(), |args| position(&args, Side::First)),
        ("@lastIndexOf", three(), |args| position(&args, Side::Last)),
        ("@lastIndexOf", four(), |args| position(&args, Side::Last)),
        ("@replace", four(), |args| replace(&args)),
        ("@replace", five(), |args| replace(&args)),
        ("@join", two(), |args| join(&args)),
        ("@join", three(), |args| join(&args)),
        ("@split", three(), |args| split(&args)),
        ("@split", four(), |args| split(&args)),
    ];
    for (name, types, function) in own {
        let id = format!("{name}/{}", types.len());
        env.add_overload(name, &id, types, function)
            .expect("no two functions have the same name and number of arguments");
    }
    env
}

/// Returns whether a function can be called, on a value or without one.
pub(super) fn is_known(name: &str) -> bool {
    OTHERS.contains(&name) || is_own(name)
}

/// Returns whether `target.name` is the qualified name of a function.
pub(super) fn is_qualified(target: &str, name: &str) -> bool {
    QUALIFIED.contains(&(target, name))
}

/// Returns whether the target of a call is the first part of a qualified function name.
pub(super) fn is_namespace(target: &Expr) -> bool {
    matches!(target, Expr::Ident(name) if QUALIFIED.iter().any(|(namespace, _)| name == namespace))
}

/// Returns whether the host replaces this function of the strings library.
pub(super) fn is_own(name: &str) -> bool {
    OWN.contains(&name)
}

pub(super) fn is_of_optionals(name: &str) -> bool {
    OF_OPTIONALS.contains(&name)
}

/// Returns the name of the host's replacement.
pub(super) fn own_name(name: &str) -> String {
    format!("@{name}")
}

/// Compiles a literal pattern.
pub(super) fn pattern(text: &str) -> Result<Regex, regex::Error> {
    pattern_within(text, LARGEST_PATTERN_BYTES)
}

fn pattern_within(text: &str, bytes: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(bytes).build()
}

// === impl Regexes ===

impl Regexes {
    /// Compiles a pattern and returns the name of its variable. None if the pattern is invalid.
    pub(super) fn keep(&mut self, text: &str) -> Option<String> {
        let name = format!("@pattern{}", self.0.len());
        self.0.insert(name.clone(), Pattern(pattern(text).ok()?));
        Some(name)
    }

    pub(super) fn bind(&self, context: &mut Context<'_, '_>) {
        for (name, pattern) in &self.0 {
            context.add_variable_as_val(name, Box::new(pattern.clone()));
        }
    }
}

// === impl Pattern ===

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN_TYPE
    }

    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The occurrence that a search returns.
#[derive(Clone, Copy)]
enum Side {
    First,
    Last,
}

fn turn<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    budget(&args)?.charge(TURN_UNITS)?;
    Ok(CowVal::owned(CelBool::from(true)))
}

fn weighed<'b, 'v>(
    mut args: Args<'b, 'v>,
    weigh: impl Fn(&Budget, &dyn Val) -> Result<(), ExecutionError>,
) -> Answer<'b, 'v> {
    let [budget, value] = args.as_slice() else {
        return Err(ExecutionError::invalid_argument_count(2, args.len()));
    };
    weigh(own::<Budget>(budget.as_ref())?, value.as_ref())?;
    Ok(args.swap_remove(1))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let budget = budget(&args)?;
    let (subject, regex) = (text(&args, 1, MATCHES)?, args[2].as_ref());
    let search = |pattern_bytes: usize| {
        budget.charge((1 + subject.len() / SEARCHED_BYTES_PER_UNIT) * (1 + pattern_bytes / 16))
    };
    let found = match regex.downcast_ref::<Pattern>() {
        Some(Pattern(regex)) => {
            search(regex.as_str().len())?;
            regex.is_match(subject)
        }
        None => {
            let written = text(&args, 2, MATCHES)?;
            if written.len() > LONGEST_PATTERN_BYTES {
                return Err(ExecutionError::function_error(
                    MATCHES,
                    "the pattern is too long",
                ));
            }
            budget.charge(PATTERN_UNITS + written.len() * PATTERN_UNITS_PER_BYTE)?;
            search(written.len())?;
            let regex = pattern_within(written, LARGEST_FOREIGN_PATTERN_BYTES)
                .map_err(|_| ExecutionError::function_error(MATCHES, "not a regular expression"))?;
            regex.is_match(subject)
        }
    };
    Ok(CowVal::owned(CelBool::from(found)))
}

/// Implements `indexOf` and `lastIndexOf`, in characters.
fn position<'b, 'v>(args: &Args<'b, 'v>, side: Side) -> Answer<'b, 'v> {
    let function = match side {
        Side::First => "indexOf",
        Side::Last => "lastIndexOf",
    };
    let (subject, wanted) = (text(args, 1, function)?, text(args, 2, function)?);
    let budget = budget(args)?;
    budget.weigh_text(args[1].as_ref())?;
    budget.weigh_text(args[2].as_ref())?;
    let characters = subject.chars().count();
    let offset = match args.get(3) {
        None => None,
        Some(offset) => {
            let offset = *integer(offset.as_ref(), function)?;
            let within = usize::try_from(offset).ok();
            let within = within.filter(|offset| *offset < characters || wanted.is_empty());
            let out_of_range = || ExecutionError::function_error(function, "out of range");
            Some(within.ok_or_else(out_of_range)?)
        }
    };
    let byte_at = |character: usize| {
        let mut places = subject.char_indices().map(|(at, _)| at);
        places.nth(character).unwrap_or(subject.len())
    };
    let found = match side {
        Side::First => {
            let from = byte_at(offset.unwrap_or(0));
            subject[from..].find(wanted).map(|at| from + at)
        }
        Side::Last => {
            // A match may begin at the offset and extend beyond it.
            let until = offset.map_or(subject.len(), |offset| {
                let end = byte_at(offset) + wanted.len();
                subject.floor_char_boundary(end)
            });
            subject[..until].rfind(wanted)
        }
    };
    let index = found.map_or(-1, |at| {
        i64::try_from(subject[..at].chars().count()).unwrap_or(i64::MAX)
    });
    Ok(CowVal::owned(CelInt::from(index)))
}

fn replace<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    const FUNCTION: &str = "replace";
    let subject = text(args, 1, FUNCTION)?;
    let (from, to) = (text(args, 2, FUNCTION)?, text(args, 3, FUNCTION)?);
    let count = match args.get(4) {
        None => None,
        Some(count) => usize::try_from(*integer(count.as_ref(), FUNCTION)?).ok(),
    };
    let at_most = subject.len() / from.len().max(1) + 1;
    let longest = subject.len()
        + at_most
            .min(count.unwrap_or(at_most))
            .saturating_mul(to.len());
    budget(args)?.charge(1 + longest / 64)?;
    let replaced = match count {
        Some(count) => subject.replacen(from, to, count),
        None => subject.replace(from, to),
    };
    Ok(CowVal::owned(CelString::from(replaced)))
}

fn join<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    const FUNCTION: &str = "join";
    let budget = budget(args)?;
    let separator = match args.get(2) {
        Some(_) => text(args, 2, FUNCTION)?,
        None => "",
    };
    // A map can be iterated, too, but kube-apiserver has no `join` for maps.
    let list = args
        .get(1)
        .filter(|value| value.downcast_ref::<CelList<'_>>().is_some())
        .and_then(|list| list.as_iterable());
    let list = list.ok_or_else(|| ExecutionError::function_error(FUNCTION, "not a list"))?;
    let mut elements = list.iter();
    let mut parts = Vec::new();
    while let Some(element) = elements.next() {
        budget.weigh_text(element)?;
        budget.charge(1 + separator.len() / 64)?;
        let part = element.downcast_ref::<CelString<'_>>();
        let part = part.ok_or_else(|| ExecutionError::function_error(FUNCTION, "not a string"))?;
        parts.push(part.inner());
    }
    Ok(CowVal::owned(CelString::from(parts.join(separator))))
}

/// Implements `split`. An empty separator splits between characters.
fn split<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    const FUNCTION: &str = "split";
    let budget = budget(args)?;
    budget.weigh_text(args[1].as_ref())?;
    let (subject, separator) = (text(args, 1, FUNCTION)?, text(args, 2, FUNCTION)?);
    let most = match args.get(3) {
        None => None,
        Some(most) => usize::try_from(*integer(most.as_ref(), FUNCTION)?).ok(),
    };
    let mut parts: Vec<Box<dyn Val + 'v>> = Vec::new();
    let mut rest = Some(subject).filter(|rest| !(rest.is_empty() && separator.is_empty()));
    while let Some(text) = rest.filter(|_| most != Some(0)) {
        budget.charge(1)?;
        let end = if separator.is_empty() {
            let end = text.chars().next().map_or(0, char::len_utf8);
            Some((end, end)).filter(|(end, _)| *end < text.len())
        } else {
            text.find(separator).map(|at| (at, at + separator.len()))
        };
        let (part, behind) = match end {
            Some((end, next)) if most != Some(parts.len() + 1) => {
                (&text[..end], Some(&text[next..]))
            }
            _ => (text, None),
        };
        parts.push(Box::new(CelString::from(part.to_owned())));
        rest = behind;
    }
    Ok(CowVal::owned(CelList::from(parts)))
}

fn budget<'a>(args: &'a Args<'_, '_>) -> Result<&'a Budget, ExecutionError> {
    let first = args
        .first()
        .ok_or_else(ExecutionError::missing_argument_or_target)?;
    own(first.as_ref())
}

fn own<'a, T: StaticVal>(value: &'a (dyn Val + '_)) -> Result<&'a T, ExecutionError> {
    value
        .as_any()
        .and_then(|value| value.downcast_ref())
        .ok_or_else(ExecutionError::missing_argument_or_target)
}

fn text<'a>(
    args: &'a Args<'_, '_>,
    index: usize,
    function: &str,
) -> Result<&'a str, ExecutionError> {
    args.get(index)
        .and_then(|arg| arg.downcast_ref::<CelString<'_>>())
        .map(CelString::inner)
        .ok_or_else(|| ExecutionError::function_error(function, "not a string"))
}

fn integer<'a>(value: &'a (dyn Val + '_), function: &str) -> Result<&'a i64, ExecutionError> {
    value
        .downcast_ref::<CelInt>()
        .map(CelInt::inner)
        .ok_or_else(|| ExecutionError::function_error(function, "not an integer"))
}
