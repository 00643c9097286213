//! Compiles expressions. A loop in an expression becomes a step before it.

use regorus::Value;
use regorus::unstable::{BUILTINS, BuiltinFcn, Expr, Query, Ref, RuleHead, must_cache};

use super::super::names::{self, Base, Key};
use super::super::{Builtin, Collection, Comprehension, Each, Kind, Reason, Step, Term};
use super::super::{prepare, walk};
use super::{Frame, Meaning, NO_VALUE, literal, parameters};
use crate::program::Extension;

/// The builtins that a plan leaves to the interpreter.
const OTHER_BUILTINS: [&str; 2] = ["print", "trace"];
/// The builtins that compile a regular expression, with the index of the argument.
const PATTERNS: [(&str, usize); 6] = [
    ("regex.find_all_string_submatch_n", 0),
    ("regex.find_n", 0),
    ("regex.is_valid", 0),
    ("regex.match", 0),
    ("regex.replace", 1),
    ("regex.split", 0),
];

/// The function that a call names, with the number of its parameters.
pub(super) enum Called {
    Rule(Vec<String>, usize),
    Own(Extension, usize),
    Walk,
    Builtin(BuiltinFcn, String),
}

// === impl Called ===

impl Called {
    pub(super) fn arity(&self) -> usize {
        match self {
            Self::Rule(_, arity) | Self::Own(_, arity) => *arity,
            Self::Walk => 1,
            Self::Builtin((_, arity), _) => usize::from(*arity),
        }
    }
}

// === impl Frame ===

impl<'m> Frame<'_, 'm> {
    /// Compiles an expression. Its loops become steps.
    pub(super) fn term(
        &mut self,
        expression: &'m Ref<Expr>,
        steps: &mut Vec<Step>,
    ) -> Result<Term, Reason> {
        let mut all = |frame: &mut Self, parts: &'m [Ref<Expr>]| {
            let terms = parts.iter().map(|part| frame.term(part, steps));
            terms.collect::<Result<Vec<Term>, Reason>>()
        };
        match &**expression {
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. } => literal(expression)
                .map(Term::Literal)
                .ok_or("a literal of a new kind"),
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                let (base, keys) = names::split(expression);
                self.reference(base, keys, steps)
            }
            Expr::Array { items, .. } => Ok(Term::Array(all(self, items)?)),
            Expr::Set { items, .. } => Ok(Term::Set(all(self, items)?)),
            Expr::Object { fields, .. } => {
                let mut members = Vec::with_capacity(fields.len());
                for (_, key, value) in fields {
                    let key = self.term(key, steps)?;
                    members.push((key, self.term(value, steps)?));
                }
                Ok(Term::Object(members))
            }
            Expr::ArrayCompr { term, query, .. } => {
                self.comprehension(Collection::Array, None, term, query)
            }
            Expr::SetCompr { term, query, .. } => {
                self.comprehension(Collection::Set, None, term, query)
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => self.comprehension(Collection::Object, Some(key), value, query),
            Expr::Call { fcn, params, .. } => {
                let called = self.called(fcn)?;
                self.call(expression, called, params, steps)
            }
            Expr::UnaryExpr { expr, .. } => {
                let Expr::Number { value, .. } = &**expr else {
                    return Err("the negative of a value that is no literal");
                };
                let (_, subtract) = self.function("tollgate_subtract")?;
                let zero = Value::from(0_u64);
                Ok(Term::Literal(subtract(vec![zero, value.clone()])))
            }
            Expr::BoolExpr { op, lhs, rhs, .. } => {
                let left = self.term(lhs, steps)?;
                let right = self.term(rhs, steps)?;
                Ok(Term::Compare(op.clone(), Box::new([left, right])))
            }
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                let key = match key {
                    Some(key) => Some(Box::new(self.term(key, steps)?)),
                    None => None,
                };
                let value = self.term(value, steps)?;
                let collection = self.term(collection, steps)?;
                Ok(Term::Contains(key, Box::new([value, collection])))
            }
            Expr::BinExpr { .. } | Expr::ArithExpr { .. } => {
                Err("an operator that is not rewritten")
            }
            Expr::AssignExpr { .. } => Err("an assignment inside of an expression"),
        }
    }

    pub(super) fn function(&self, name: &str) -> Result<(usize, Extension), Reason> {
        let functions = self.builder.functions;
        functions.get(name).copied().ok_or("an unknown function")
    }

    pub(super) fn comprehension(
        &mut self,
        kind: Collection,
        key: Option<&'m Ref<Expr>>,
        value: &'m Ref<Expr>,
        query: &'m Query,
    ) -> Result<Term, Reason> {
        let parts: Vec<&Ref<Expr>> = key.into_iter().chain([value]).collect();
        self.enter(query, &parts);
        let mut steps = Vec::new();
        self.query(query, &mut steps)?;
        let key = match key {
            Some(key) => Some(self.term(key, &mut steps)?),
            None => None,
        };
        let value = self.term(value, &mut steps)?;
        self.scopes.pop();
        Ok(Term::Comprehension(Box::new(Comprehension {
            kind,
            steps,
            key,
            value,
        })))
    }

    pub(super) fn reference(
        &mut self,
        base: Base<'m>,
        keys: Vec<Key<'m>>,
        steps: &mut Vec<Step>,
    ) -> Result<Term, Reason> {
        let name = match base {
            Base::Expression(expression) => {
                let term = self.term(expression, steps)?;
                return self.keys(term, &keys, steps);
            }
            Base::Variable(name) => name,
        };
        if let Some((variable, _)) = self.variable(&name) {
            return match variable.is_bound {
                true => self.keys(Term::Local(variable.slot), &keys, steps),
                false => Err(NO_VALUE),
            };
        }
        match self.meaning(&name).ok_or(NO_VALUE)? {
            Meaning::Input => self.keys(Term::Input, &keys, steps),
            Meaning::Data => self.data(&keys, steps),
            Meaning::Rule(path) => {
                let term = self.rule(&path)?;
                self.keys(term, &keys, steps)
            }
            Meaning::Import(import) => {
                let mut path = names::path(import).ok_or("an import with a computed name")?;
                let root = path.remove(0);
                let mut all: Vec<Key> = path.into_iter().map(Key::Field).collect();
                all.extend(keys);
                match root.as_str() {
                    "input" => self.keys(Term::Input, &all, steps),
                    "data" => self.data(&all, steps),
                    _ => Err("an import of neither `input` nor `data`"),
                }
            }
        }
    }

    pub(super) fn rule(&mut self, path: &[String]) -> Result<Term, Reason> {
        let index = self.builder.rule(path)?;
        match &self.builder.rules[index] {
            Some(rule) if !matches!(rule.kind, Kind::Function(_)) => Ok(Term::Rule(index)),
            _ => Err("a function as a value"),
        }
    }

    /// Compiles a reference below `data`: to a rule, or into the inventory.
    pub(super) fn data(&mut self, keys: &[Key<'m>], steps: &mut Vec<Step>) -> Result<Term, Reason> {
        let fields = keys.iter().map_while(|key| match key {
            Key::Field(field) => Some(field.clone()),
            Key::Expression(_) => None,
        });
        let fields: Vec<String> = fields.collect();
        let lengths = (1..=fields.len()).rev();
        let found = lengths
            .map(|length| &fields[..length])
            .find(|path| self.builder.names.rule(path).is_some());
        if let Some(path) = found {
            let term = self.rule(path)?;
            return self.keys(term, &keys[path.len()..], steps);
        }
        if keys.is_empty() || self.builder.names.leads_to_rules(keys) {
            return Err("a package as a value");
        }
        self.keys(Term::Data, keys, steps)
    }

    /// Compiles keys into a value. A key that is a variable without a value becomes a loop.
    pub(super) fn keys(
        &mut self,
        base: Term,
        keys: &[Key<'m>],
        steps: &mut Vec<Step>,
    ) -> Result<Term, Reason> {
        let (mut base, mut path) = (base, Vec::new());
        for key in keys {
            let expression = match key {
                Key::Field(field) => {
                    path.push(Term::Literal(Value::from(field.as_str())));
                    continue;
                }
                Key::Expression(expression) => expression,
            };
            if !self.is_free(expression) {
                path.push(self.term(expression, steps)?);
                continue;
            }
            let key = match &***expression {
                Expr::Var { span, .. } if span.text() == "_" => None,
                Expr::Var { span, .. } => self.unbound(span.text())?,
                _ => Some(self.slot()),
            };
            let value = self.slot();
            steps.push(Step::Each(Each {
                collection: joined(base, path),
                key,
                value,
            }));
            if let (Some(key), Expr::Array { .. } | Expr::Object { .. }) = (key, &***expression) {
                self.pattern(expression, key, false, steps)?;
            }
            (base, path) = (Term::Local(value), Vec::new());
        }
        Ok(joined(base, path))
    }

    /// Compiles a call. A call of `walk` becomes a loop.
    pub(super) fn call(
        &mut self,
        expression: &'m Ref<Expr>,
        called: Called,
        params: &'m [Ref<Expr>],
        steps: &mut Vec<Step>,
    ) -> Result<Term, Reason> {
        if called.arity() != params.len() {
            return Err("a call with another number of arguments");
        }
        let arguments = params.iter().map(|part| self.term(part, steps));
        let arguments = arguments.collect::<Result<Vec<Term>, Reason>>()?;
        Ok(match called {
            Called::Rule(path, _) => Term::Call(self.builder.rule(&path)?, arguments),
            Called::Own(function, _) => Term::Own(function, arguments),
            Called::Walk => {
                let value = self.slot();
                steps.push(Step::Each(Each {
                    collection: Term::Own(walk::pairs, arguments),
                    key: None,
                    value,
                }));
                Term::Local(value)
            }
            Called::Builtin(function, name) => {
                let pattern = PATTERNS.iter().find(|(known, _)| *known == name);
                match pattern.and_then(|(_, index)| arguments.get(*index)) {
                    Some(Term::Literal(Value::String(pattern))) => prepare(pattern),
                    Some(_) => self.builder.has_patterns = true,
                    None => {}
                }
                Term::Builtin(Box::new(Builtin {
                    function,
                    arguments,
                    span: expression.span().clone(),
                    expressions: params.to_vec(),
                }))
            }
        })
    }

    /// Finds what a call names.
    pub(super) fn called(&self, function: &Expr) -> Result<Called, Reason> {
        let path = names::path(function).ok_or("a call of a computed function")?;
        if let Some(path) = self.called_rule(&path)? {
            let named = self.builder.names.rule(&path);
            return match named.and_then(|named| named.rules.first()) {
                Some((head @ RuleHead::Func { .. }, _)) => {
                    let arity = parameters(head).len();
                    Ok(Called::Rule(path, arity))
                }
                _ => Err("a call of a rule that is no function"),
            };
        }
        let name = path.join(".");
        if let Some(&(arity, function)) = self.builder.functions.get(name.as_str()) {
            return Ok(Called::Own(function, arity));
        }
        match BUILTINS.get(name.as_str()) {
            _ if name == "walk" => Ok(Called::Walk),
            _ if OTHER_BUILTINS.contains(&name.as_str()) || must_cache(&name).is_some() => {
                Err("a builtin that the interpreter has to call")
            }
            Some(&function) => Ok(Called::Builtin(function, name)),
            None => Err("an unknown function"),
        }
    }

    /// Returns the path of the rule that a call names. None: the call is one of a builtin.
    pub(super) fn called_rule(&self, path: &[String]) -> Result<Option<Vec<String>>, Reason> {
        let names = &self.builder.names;
        let (root, rest) = path.split_first().ok_or("a call without a name")?;
        if root == "data" {
            let rule = names.rule(rest).map(|_| rest.to_vec());
            return Ok(rule);
        }
        if let Some(import) = names.import(self.package, root) {
            let mut target = names::path(import).ok_or("an import with a computed name")?;
            if target.remove(0) == "data" {
                target.extend_from_slice(rest);
                if names.rule(&target).is_some() {
                    return Ok(Some(target));
                }
            }
        }
        let mut own = names.packages[self.package].path.clone();
        own.extend_from_slice(path);
        Ok(names.rule(&own).map(|_| own))
    }
}

fn joined(base: Term, path: Vec<Term>) -> Term {
    match path.is_empty() {
        true => base,
        false => Term::Path(Box::new(base), path),
    }
}
