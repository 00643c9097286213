//! The expression of a group: which verdicts of its members allow a request.
//!
//! An expression is the part of CEL that takes members only: `member()`, `&&`, `||`, `!`, `? :`, `==`, `!=`, `true`,
//! `false` and parentheses. It is evaluated from left to right, and asks for a member when it needs its verdict.

use std::fmt;
use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr, LiteralValue};
use cel::parser::Expression;

use crate::condition::parse;
use crate::read::quoted;

/// The verdict of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberVerdict {
    /// The member has nothing against the request: `true`.
    Allowed,
    /// The member denies the request: `false`.
    Denied,
    /// The member failed to answer. Its verdict may be either.
    Faulted,
}

/// What an evaluation needs, or has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStep {
    /// The verdict of the member with this index is needed.
    Ask(usize),
    /// The result does not depend on any further member, nor on a member that failed.
    Settled(bool),
    /// The result depends on members that failed.
    Unknown,
}

/// A parsed expression. Cloning is cheap.
#[derive(Clone)]
pub struct GroupExpression {
    text: Arc<str>,
    tree: Arc<Tree>,
}

enum Tree {
    Member(usize),
    Constant(bool),
    Not(Box<Self>),
    All(Box<Self>, Box<Self>),
    Any(Box<Self>, Box<Self>),
    If(Box<Self>, Box<Self>, Box<Self>),
    Equal(Box<Self>, Box<Self>),
}

/// All members have to allow the request.
const ALL: &str = "all";
/// One member has to allow the request.
const ANY: &str = "any";
/// Longest expression, in bytes.
const LONGEST: usize = 2 * 1024;
/// Largest nesting. An evaluation is recursive.
const DEEPEST: usize = 64;

/// A value that may not be known. An error is a member that has to be asked first.
type Truth = Result<Option<bool>, usize>;

/// Returns the result of an expression whose result is the same for all verdicts of the members. A group has few members,
/// and the first verdicts that differ in their result end the search.
fn constant(tree: &Tree, members: usize) -> Option<bool> {
    let result = |bits: u32| {
        let verdict = |index: usize| match bits >> index & 1 {
            0 => MemberVerdict::Denied,
            _ => MemberVerdict::Allowed,
        };
        let verdicts: Vec<_> = (0..members).map(|index| Some(verdict(index))).collect();
        tree.evaluate(&verdicts).ok().flatten()
    };
    let all = 1_u32.checked_shl(u32::try_from(members).ok()?)?;
    let first = result(all - 1)?;
    // Members that all deny differ from members that all allow in nearly every expression.
    (members > 0 && (0..all).all(|bits| result(bits) == Some(first))).then_some(first)
}

// === impl GroupExpression ===

impl GroupExpression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The list of all problems.
    pub fn parse(text: &str, members: &[Arc<str>]) -> Result<Self, Vec<String>> {
        if text.len() > LONGEST {
            let length = text.len();
            return Err(vec![format!(
                "got {length} bytes, expected at most {LONGEST}"
            )]);
        }
        let tree = match text.trim() {
            ALL => chain(members.len(), true, Tree::All),
            ANY => chain(members.len(), false, Tree::Any),
            text => {
                let mut problems = Vec::new();
                let parsed = parse(text)?;
                let tree = read(parsed.expression(), members, 0, &mut problems);
                let Some(tree) = tree.filter(|_| problems.is_empty()) else {
                    return Err(problems);
                };
                let unused = members
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| !tree.names(*index));
                let unused: Vec<String> = unused
                    .map(|(_, name)| {
                        format!("does not name the member {name}, which would never be called")
                    })
                    .collect();
                if !unused.is_empty() {
                    return Err(unused);
                }
                tree
            }
        };
        if let Some(result) = constant(&tree, members.len()) {
            return Err(vec![format!(
                "is {result} whatever the members say, expected an expression that depends on them"
            )]);
        }
        Ok(Self {
            text: text.trim().into(),
            tree: Arc::new(tree),
        })
    }

    /// Evaluates the expression as far as the verdicts are known. `known` has a place for each member.
    #[must_use]
    pub fn step(&self, known: &[Option<MemberVerdict>]) -> GroupStep {
        match self.tree.evaluate(known) {
            Err(member) => GroupStep::Ask(member),
            Ok(Some(result)) => GroupStep::Settled(result),
            Ok(None) => GroupStep::Unknown,
        }
    }

    /// The expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for GroupExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for GroupExpression {}

impl fmt::Debug for GroupExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupExpression").field(&self.text).finish()
    }
}

// === impl Tree ===

impl Tree {
    /// Evaluates without looking at members that cannot change the result. A failed member does not end the evaluation,
    /// because a later one may settle the result.
    fn evaluate(&self, known: &[Option<MemberVerdict>]) -> Truth {
        Ok(match self {
            Self::Constant(value) => Some(*value),
            Self::Member(index) => match known.get(*index).copied().flatten() {
                None => return Err(*index),
                Some(MemberVerdict::Allowed) => Some(true),
                Some(MemberVerdict::Denied) => Some(false),
                Some(MemberVerdict::Faulted) => None,
            },
            Self::Not(inner) => inner.evaluate(known)?.map(|value| !value),
            Self::All(left, right) => joined(left, right, known, false)?,
            Self::Any(left, right) => joined(left, right, known, true)?,
            Self::If(condition, yes, no) => match condition.evaluate(known)? {
                Some(true) => yes.evaluate(known)?,
                Some(false) => no.evaluate(known)?,
                None => {
                    let (yes, no) = (yes.evaluate(known)?, no.evaluate(known)?);
                    yes.filter(|_| yes == no)
                }
            },
            Self::Equal(left, right) => {
                let (left, right) = (left.evaluate(known)?, right.evaluate(known)?);
                left.zip(right).map(|(left, right)| left == right)
            }
        })
    }

    fn names(&self, member: usize) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Member(index) => *index == member,
            Self::Not(inner) => inner.names(member),
            Self::All(left, right) | Self::Any(left, right) | Self::Equal(left, right) => {
                left.names(member) || right.names(member)
            }
            Self::If(condition, yes, no) => {
                condition.names(member) || yes.names(member) || no.names(member)
            }
        }
    }
}

/// Evaluates two operands of which one with the value `settles` settles the result.
fn joined(left: &Tree, right: &Tree, known: &[Option<MemberVerdict>], settles: bool) -> Truth {
    let left = left.evaluate(known)?;
    if left == Some(settles) {
        return Ok(left);
    }
    let right = right.evaluate(known)?;
    Ok(match (left, right) {
        (_, Some(right)) if right == settles => Some(settles),
        (Some(_), right) => right,
        (None, _) => None,
    })
}

fn chain(members: usize, empty: bool, join: fn(Box<Tree>, Box<Tree>) -> Tree) -> Tree {
    let mut members = (0..members).map(Tree::Member);
    let first = members.next().unwrap_or(Tree::Constant(empty));
    members.fold(first, |all, next| join(Box::new(all), Box::new(next)))
}

/// Reads the part of CEL that an expression may have. Notes what else there is.
fn read(
    expression: &Expression,
    members: &[Arc<str>],
    depth: usize,
    problems: &mut Vec<String>,
) -> Option<Tree> {
    if depth > DEEPEST {
        problems.push(format!("is nested deeper than {DEEPEST} levels"));
        return None;
    }
    match &expression.expr {
        Expr::Literal(LiteralValue::Boolean(value)) => Some(Tree::Constant(*value.inner())),
        Expr::Call(call) => read_call(call, members, depth, problems),
        Expr::Ident(name) if members.iter().any(|member| **member == **name) => {
            problems.push(format!(
                "names the member {name}, expected a call: {name}()"
            ));
            None
        }
        Expr::Ident(name) => {
            problems.push(unknown(name, members));
            None
        }
        _ => {
            problems.push(
                "expected calls of members with &&, ||, !, ==, != and ?: between them, and nothing else of CEL"
                    .to_owned(),
            );
            None
        }
    }
}

fn read_call(
    call: &CallExpr,
    members: &[Arc<str>],
    depth: usize,
    problems: &mut Vec<String>,
) -> Option<Tree> {
    let mut operand = |index: usize| {
        let tree = read(call.args.get(index)?, members, depth + 1, problems);
        tree.map(Box::new)
    };
    match (call.func_name.as_str(), call.args.len()) {
        ("_&&_", 2) => {
            let (left, right) = (operand(0), operand(1));
            Some(Tree::All(left?, right?))
        }
        ("_||_", 2) => {
            let (left, right) = (operand(0), operand(1));
            Some(Tree::Any(left?, right?))
        }
        ("_==_", 2) => {
            let (left, right) = (operand(0), operand(1));
            Some(Tree::Equal(left?, right?))
        }
        ("_!=_", 2) => {
            let (left, right) = (operand(0), operand(1));
            Some(Tree::Not(Box::new(Tree::Equal(left?, right?))))
        }
        ("!_", 1) => Some(Tree::Not(operand(0)?)),
        ("_?_:_", 3) => {
            let (condition, yes, no) = (operand(0), operand(1), operand(2));
            Some(Tree::If(condition?, yes?, no?))
        }
        (name, arguments) if call.target.is_none() => {
            let Some(index) = members.iter().position(|member| **member == *name) else {
                problems.push(unknown(name, members));
                return None;
            };
            if arguments > 0 {
                problems.push(format!(
                    "calls {name} with {arguments} argument(s), expected none: {name}()"
                ));
                return None;
            }
            Some(Tree::Member(index))
        }
        (name, _) => {
            problems.push(unknown(name, members));
            None
        }
    }
}

fn unknown(name: &str, members: &[Arc<str>]) -> String {
    let members: Vec<String> = members.iter().map(|member| format!("{member}()")).collect();
    format!(
        "names {}, expected members: {}",
        quoted(name),
        members.join(", ")
    )
}
