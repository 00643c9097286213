//! Compiles modules to a plan. Names become indexes, and loops become steps.

mod statements;
mod terms;

use std::collections::{BTreeMap, BTreeSet};

use regorus::Value;
use regorus::unstable::{Expr, Module, Ref, RuleBody, RuleHead};

use super::names::{self, Named, Names, Scope, Variable};
use super::{Body, Definition, Kind, Plan, Reason, Rule, Term};
use crate::program::Extension;

/// The functions of this plugin, with the number of their parameters.
pub(crate) type Functions = BTreeMap<&'static str, (usize, Extension)>;

/// The most statements that are compiled, also those that are compiled again because they have to wait for others. A plan
/// for more of them would not fit beside the interpreter's program into the default `limits.memory`.
const MOST_STATEMENTS: usize = 4_000;

/// Why a statement has to wait for another one.
const NO_VALUE: Reason = "a variable without a value";

/// The rules that are compiled, or being compiled.
struct Builder<'m> {
    names: Names<'m>,
    functions: &'m Functions,
    /// None: the rule is being compiled.
    rules: Vec<Option<Rule>>,
    indexes: BTreeMap<Vec<String>, usize>,
    /// The number of statements so far.
    statements: usize,
    /// Whether there are patterns that are no constants.
    has_patterns: bool,
}

/// A name that is no variable.
enum Meaning<'m> {
    Input,
    Data,
    Rule(Vec<String>),
    Import(&'m Expr),
}

/// The compilation of one rule.
struct Frame<'b, 'm> {
    builder: &'b mut Builder<'m>,
    package: usize,
    scopes: Vec<Scope>,
    /// The variables that changed, with the index of the scope and the variable before.
    changes: Vec<(usize, String, Option<Variable>)>,
    /// The number of variables so far.
    slots: usize,
}

// === impl Plan ===

impl Plan {
    /// Compiles modules. The last one has the rule `violation`.
    pub(crate) fn compile(modules: &[Ref<Module>], functions: &Functions) -> Result<Self, Reason> {
        let names = Names::read(modules)?;
        let mut path = names.packages.last().ok_or("no module")?.path.clone();
        path.push("violation".to_owned());
        let mut builder = Builder {
            names,
            functions,
            rules: Vec::new(),
            indexes: BTreeMap::new(),
            statements: 0,
            has_patterns: false,
        };
        let main = builder.rule(&path)?;
        let rules: Option<Vec<Rule>> = builder.rules.into_iter().collect();
        Ok(Self {
            rules: rules.ok_or("a rule that is not finished")?,
            main,
            has_patterns: builder.has_patterns,
        })
    }
}

// === impl Builder ===

impl<'m> Builder<'m> {
    /// Returns the index of a rule, which is compiled if it is new.
    fn rule(&mut self, path: &[String]) -> Result<usize, Reason> {
        if let Some(&index) = self.indexes.get(path) {
            return match self.rules[index] {
                Some(_) => Ok(index),
                None => Err("recursion"),
            };
        }
        let index = self.rules.len();
        self.rules.push(None);
        self.indexes.insert(path.to_vec(), index);
        let Named {
            package,
            rules,
            default,
        } = self.names.rule(path).ok_or("a rule that does not exist")?;
        let (package, rules, default) = (*package, rules.clone(), *default);
        let of_default = default.map(|(_, parameters)| parameters);
        let default = match default {
            Some((value, _)) => Some(self.constant(package, value)?),
            None => None,
        };
        let all = |is_kind: fn(&RuleHead) -> bool| rules.iter().all(|(head, _)| is_kind(head));
        let kind = match () {
            () if all(is_complete) => Kind::Complete(default),
            () if all(is_function) => Kind::Function(default),
            () if default.is_some() => return Err("a default of a rule with several values"),
            () if all(is_set) => Kind::Set,
            () if all(is_object) => Kind::Object,
            () => return Err("rules of different kinds with one name"),
        };
        let mut definitions = Vec::with_capacity(rules.len());
        let mut arity = of_default;
        for (head, bodies) in rules {
            let own = parameters(head).len();
            if *arity.get_or_insert(own) != own {
                return Err("rules of one name with different parameters");
            }
            definitions.push(self.definition(package, head, bodies)?);
        }
        self.rules[index] = Some(Rule {
            is_constant: is_constant(&definitions),
            kind,
            definitions,
        });
        Ok(index)
    }

    fn constant(&mut self, package: usize, value: &'m Ref<Expr>) -> Result<Term, Reason> {
        let mut frame = Frame::new(self, package);
        let mut steps = Vec::new();
        let term = frame.term(value, &mut steps)?;
        match steps.is_empty() && frame.slots == 0 {
            true => Ok(term),
            false => Err("a default with variables"),
        }
    }

    fn definition(
        &mut self,
        package: usize,
        head: &'m RuleHead,
        bodies: &'m [RuleBody],
    ) -> Result<Definition, Reason> {
        let mut constants = Vec::new();
        let mut compiled = Vec::with_capacity(bodies.len().max(1));
        if bodies.is_empty() {
            compiled.push(self.body(package, head, None, &mut constants)?);
        }
        for (index, body) in bodies.iter().enumerate() {
            if body.is_else != (index > 0) {
                return Err("a rule with several bodies");
            }
            if body.is_else && (is_set(head) || is_object(head)) {
                return Err("`else` of a rule with several values");
            }
            compiled.push(self.body(package, head, Some(body), &mut constants)?);
        }
        Ok(Definition {
            constants,
            bodies: compiled,
        })
    }

    fn body(
        &mut self,
        package: usize,
        head: &'m RuleHead,
        body: Option<&'m RuleBody>,
        constants: &mut Vec<(usize, Value)>,
    ) -> Result<Body, Reason> {
        let (parameters, key, value) = match head {
            RuleHead::Func { args, assign, .. } => (args.as_slice(), None, assign.as_ref()),
            RuleHead::Compr { refr, assign, .. } => {
                let key = match &**refr {
                    Expr::RefBrack { index, .. } => Some(index),
                    _ => None,
                };
                (&[][..], key, assign.as_ref())
            }
            RuleHead::Set { .. } => (&[][..], None, None),
        };
        let value = match head {
            RuleHead::Set { key, .. } => Some(key.as_ref().ok_or("a set without an element")?),
            // The value of the head does not count for `else`.
            _ if body.is_some_and(|body| body.is_else) => None,
            _ => value.map(|assign| &assign.value),
        };
        let own = body.and_then(|body| body.assign.as_ref());
        let value = own.map_or(value, |assign| Some(&assign.value));

        let mut frame = Frame::new(self, package);
        let mut scope = BTreeSet::new();
        for part in parameters.iter().chain(key).chain(value) {
            names::of_expression(part, &mut scope);
        }
        if let Some(body) = body {
            names::of_query(&body.query, &mut scope);
        }
        frame.scopes[0].names = scope;
        constants.clear();
        let mut patterns = Vec::new();
        for parameter in parameters {
            let slot = frame.slot();
            match &**parameter {
                Expr::Var { .. } | Expr::Array { .. } | Expr::Object { .. } => {
                    patterns.push((parameter, slot));
                }
                other => {
                    let value = literal(other).ok_or("a parameter that is no pattern")?;
                    constants.push((slot, value));
                }
            }
        }
        let mut steps = Vec::new();
        for (parameter, slot) in patterns {
            frame.pattern(parameter, slot, true, &mut steps)?;
        }
        if let Some(body) = body {
            frame.query(&body.query, &mut steps)?;
        }
        let key = match key {
            Some(key) => Some(frame.term(key, &mut steps)?),
            None => None,
        };
        let value = match value {
            Some(value) => frame.term(value, &mut steps)?,
            None => Term::Literal(Value::Bool(true)),
        };
        Ok(Body {
            steps,
            slots: frame.slots,
            key,
            value,
        })
    }
}

fn parameters(head: &RuleHead) -> &[Ref<Expr>] {
    match head {
        RuleHead::Func { args, .. } => args,
        RuleHead::Compr { .. } | RuleHead::Set { .. } => &[],
    }
}

fn is_function(head: &RuleHead) -> bool {
    matches!(head, RuleHead::Func { .. })
}

fn is_set(head: &RuleHead) -> bool {
    matches!(head, RuleHead::Set { .. })
}

fn is_object(head: &RuleHead) -> bool {
    matches!(head, RuleHead::Compr { refr, assign: Some(_), .. } if matches!(**refr, Expr::RefBrack { .. }))
}

fn is_complete(head: &RuleHead) -> bool {
    matches!(head, RuleHead::Compr { refr, .. } if matches!(**refr, Expr::Var { .. }))
}

fn is_constant(definitions: &[Definition]) -> bool {
    let mut values = definitions
        .iter()
        .flat_map(|one| &one.bodies)
        .map(|body| match &body.value {
            Term::Literal(value) => Some(value),
            _ => None,
        });
    let first = values.next().flatten();
    first.is_some() && values.all(|value| value == first)
}

/// Returns the value of an expression that is a string, a number, a Boolean or null.
fn literal(expression: &Expr) -> Option<Value> {
    match expression {
        Expr::String { value, .. }
        | Expr::RawString { value, .. }
        | Expr::Number { value, .. }
        | Expr::Bool { value, .. } => Some(value.clone()),
        Expr::Null { .. } => Some(Value::Null),
        _ => None,
    }
}
