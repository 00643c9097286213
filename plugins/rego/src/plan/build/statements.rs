//! Compiles the statements of a body, and keeps its variables.

use std::collections::BTreeSet;

use regorus::Value;
use regorus::unstable::{AssignOp, BoolOp, Expr, Literal, LiteralStmt, Query, Ref};

use super::super::names::{self, Scope, Variable};
use super::super::{Each, Reason, Step, Term};
use super::{Builder, Frame, MOST_STATEMENTS, Meaning, NO_VALUE, literal};

// === impl Frame ===

impl<'b, 'm> Frame<'b, 'm> {
    pub(super) fn new(builder: &'b mut Builder<'m>, package: usize) -> Self {
        Self {
            builder,
            package,
            scopes: vec![Scope::default()],
            changes: Vec::new(),
            slots: 0,
        }
    }

    pub(super) fn slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    pub(super) fn scope(&mut self) -> Result<&mut Scope, Reason> {
        self.scopes.last_mut().ok_or("no scope")
    }

    /// Declares a variable with a value in the innermost query. `_` is a new variable wherever it stands.
    pub(super) fn declare(&mut self, name: &str, slot: usize) -> Result<(), Reason> {
        if name == "_" {
            return Ok(());
        }
        self.insert(name, slot, true)
    }

    fn insert(&mut self, name: &str, slot: usize, is_bound: bool) -> Result<(), Reason> {
        match self.change(name, Variable { slot, is_bound })? {
            None => Ok(()),
            Some(_) => Err("a variable that is declared twice"),
        }
    }

    /// Changes a variable of the innermost query. Returns the variable before.
    fn change(&mut self, name: &str, variable: Variable) -> Result<Option<Variable>, Reason> {
        let variables = &mut self.scope()?.variables;
        let before = variables.insert(name.to_owned(), variable);
        let scope = self.scopes.len() - 1;
        self.changes.push((scope, name.to_owned(), before));
        Ok(before)
    }

    /// Takes back what a statement changed. `scopes` and `changes` are the numbers before it.
    fn undo(&mut self, scopes: usize, changes: usize) {
        self.scopes.truncate(scopes);
        for (scope, name, before) in self.changes.drain(changes..).rev() {
            let Some(scope) = self.scopes.get_mut(scope) else {
                continue;
            };
            match before {
                Some(variable) => scope.variables.insert(name, variable),
                None => scope.variables.remove(&name),
            };
        }
    }

    /// Finds a variable, and whether it belongs to the innermost query.
    pub(super) fn variable(&self, name: &str) -> Option<(Variable, bool)> {
        let mut scopes = self.scopes.iter().rev().enumerate();
        scopes.find_map(|(distance, scope)| {
            let variable = scope.variables.get(name)?;
            Some((*variable, distance == 0))
        })
    }

    /// Returns the meaning of a name without a variable so far. As in OPA, an import goes before a rule, and both before
    /// `input` and `data`. A name that a query declares is a variable in the whole query: None.
    pub(super) fn meaning(&self, name: &str) -> Option<Meaning<'m>> {
        if self
            .scopes
            .iter()
            .any(|scope| scope.declared.contains_key(name))
        {
            return None;
        }
        if let Some(import) = self.builder.names.import(self.package, name) {
            return Some(Meaning::Import(import));
        }
        let path = self.path_of(name);
        if self.builder.names.rule(&path).is_some() {
            return Some(Meaning::Rule(path));
        }
        match name {
            "input" => Some(Meaning::Input),
            "data" => Some(Meaning::Data),
            _ => None,
        }
    }

    pub(super) fn path_of(&self, name: &str) -> Vec<String> {
        let mut path = self.builder.names.packages[self.package].path.clone();
        path.push(name.to_owned());
        path
    }

    /// Returns the variable that a name without a value gets one for. None if the name has a value.
    pub(super) fn unbound(&mut self, name: &str) -> Result<Option<usize>, Reason> {
        if name == "_" {
            return Ok(Some(self.slot()));
        }
        match self.variable(name) {
            Some((variable, _)) if variable.is_bound => return Ok(None),
            Some((variable, true)) => {
                let slot = variable.slot;
                let is_bound = true;
                self.change(name, Variable { slot, is_bound })?;
                return Ok(Some(slot));
            }
            Some((_, false)) => return Err("a variable of an outer query that has no value yet"),
            None => {}
        }
        if self.meaning(name).is_some() {
            return Ok(None);
        }
        let scope = self.scope()?;
        if scope.declared.contains_key(name) {
            return Err(NO_VALUE);
        }
        let outer = self.scopes.len() - 1;
        if self.scopes[..outer]
            .iter()
            .any(|scope| scope.names.contains(name) && !scope.declares_later(name))
        {
            return Err("a variable of an outer query that has no value yet");
        }
        let slot = self.slot();
        self.declare(name, slot)?;
        Ok(Some(slot))
    }

    pub(super) fn query(&mut self, query: &'m Query, steps: &mut Vec<Step>) -> Result<(), Reason> {
        let declared = names::declared(query);
        self.scope()?.declared =
            declared.ok_or("a variable that is used before its declaration")?;
        let mut waiting: Vec<(usize, &LiteralStmt)> = query.stmts.iter().enumerate().collect();
        while !waiting.is_empty() {
            let before = waiting.len();
            let mut later = Vec::new();
            for (index, statement) in waiting {
                self.scope()?.statement = index;
                let (scopes, changes) = (self.scopes.len(), self.changes.len());
                let (slots, length) = (self.slots, steps.len());
                match self.statement(statement, steps) {
                    Ok(()) => {}
                    // As in OPA, a statement comes after those that give its variables their values.
                    Err(NO_VALUE) => {
                        self.undo(scopes, changes);
                        self.slots = slots;
                        steps.truncate(length);
                        later.push((index, statement));
                    }
                    Err(reason) => return Err(reason),
                }
            }
            if later.len() == before {
                return Err(NO_VALUE);
            }
            waiting = later;
        }
        // The terms of a comprehension or a head come after all statements.
        self.scope()?.statement = query.stmts.len();
        Ok(())
    }

    pub(super) fn statement(
        &mut self,
        statement: &'m LiteralStmt,
        steps: &mut Vec<Step>,
    ) -> Result<(), Reason> {
        if !statement.with_mods.is_empty() {
            return Err("`with`");
        }
        self.builder.statements += 1;
        if self.builder.statements > MOST_STATEMENTS {
            return Err("too many statements");
        }
        match &statement.literal {
            Literal::SomeVars { vars, .. } => {
                for name in vars {
                    let slot = self.slot();
                    self.insert(name.text(), slot, false)?;
                }
                Ok(())
            }
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => self.some_in(key.as_ref(), value, collection, steps),
            Literal::Expr { expr, .. } => match &**expr {
                Expr::AssignExpr { op, lhs, rhs, .. } => match op {
                    AssignOp::ColEq => self.assignment(lhs, rhs, steps),
                    AssignOp::Eq => self.unification(lhs, rhs, steps),
                },
                Expr::Call { fcn, params, .. } => self.condition(expr, fcn, params, steps),
                _ => {
                    let term = self.term(expr, steps)?;
                    steps.push(Step::Holds(term));
                    Ok(())
                }
            },
            Literal::NotExpr { expr, .. } => {
                let mut loops = Vec::new();
                let term = self.term(expr, &mut loops)?;
                if !loops.is_empty() {
                    return Err("a loop in a negation");
                }
                steps.push(Step::Fails(term));
                Ok(())
            }
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                let collection = self.term(domain, steps)?;
                self.enter(query, &[]);
                let slot = self.slot();
                self.declare(value.text(), slot)?;
                let key = match key {
                    Some(key) => {
                        let slot = self.slot();
                        self.declare(key.text(), slot)?;
                        Some(slot)
                    }
                    None => None,
                };
                let each = Each {
                    collection,
                    key,
                    value: slot,
                };
                let mut inner = Vec::new();
                self.query(query, &mut inner)?;
                self.scopes.pop();
                steps.push(Step::Every(each, inner));
                Ok(())
            }
        }
    }

    /// Compiles a call as a statement. A parameter more than the function has is for its value: `count(x, n)`.
    pub(super) fn condition(
        &mut self,
        expression: &'m Ref<Expr>,
        function: &'m Expr,
        params: &'m [Ref<Expr>],
        steps: &mut Vec<Step>,
    ) -> Result<(), Reason> {
        let called = self.called(function)?;
        match params.split_last() {
            Some((result, params)) if called.arity() == params.len() => {
                let term = self.call(expression, called, params, steps)?;
                let slot = self.slot();
                steps.push(Step::Set(slot, term));
                self.pattern(result, slot, false, steps)
            }
            _ => {
                let term = self.call(expression, called, params, steps)?;
                steps.push(Step::Holds(term));
                Ok(())
            }
        }
    }

    /// Begins a query inside of another one. `terms` are evaluated with its variables.
    pub(super) fn enter(&mut self, query: &Query, terms: &[&Ref<Expr>]) {
        let mut scope = Scope::default();
        names::of_query(query, &mut scope.names);
        for term in terms {
            names::of_expression(term, &mut scope.names);
        }
        self.scopes.push(scope);
    }

    pub(super) fn some_in(
        &mut self,
        key: Option<&'m Ref<Expr>>,
        value: &'m Ref<Expr>,
        collection: &'m Ref<Expr>,
        steps: &mut Vec<Step>,
    ) -> Result<(), Reason> {
        let collection = self.term(collection, steps)?;
        let key = key.map(|key| (key, self.slot()));
        let slot = self.slot();
        steps.push(Step::Each(Each {
            collection,
            key: key.map(|(_, slot)| slot),
            value: slot,
        }));
        if let Some((key, slot)) = key {
            self.pattern(key, slot, true, steps)?;
        }
        self.pattern(value, slot, true, steps)
    }

    pub(super) fn assignment(
        &mut self,
        target: &'m Ref<Expr>,
        value: &'m Ref<Expr>,
        steps: &mut Vec<Step>,
    ) -> Result<(), Reason> {
        let term = self.term(value, steps)?;
        let slot = self.slot();
        steps.push(Step::Set(slot, term));
        self.pattern(target, slot, true, steps)
    }

    /// Takes the value of a variable apart. `declares` is whether the names in the pattern are new variables.
    pub(super) fn pattern(
        &mut self,
        pattern: &'m Ref<Expr>,
        slot: usize,
        declares: bool,
        steps: &mut Vec<Step>,
    ) -> Result<(), Reason> {
        let part = |key: Value| Term::Path(Box::new(Term::Local(slot)), vec![Term::Literal(key)]);
        match &**pattern {
            Expr::Var { span, .. } if span.text() == "_" => Ok(()),
            Expr::Var { span, .. } if declares => self.declare(span.text(), slot),
            Expr::Array { items, .. } if declares || self.is_free(pattern) => {
                steps.push(Step::IsArray(slot, items.len()));
                for (index, item) in items.iter().enumerate() {
                    let own = self.slot();
                    steps.push(Step::Set(own, part(Value::from(index))));
                    self.pattern(item, own, declares, steps)?;
                }
                Ok(())
            }
            Expr::Object { fields, .. } if declares || self.is_free(pattern) => {
                steps.push(Step::IsObject(slot, fields.len()));
                let mut keys = BTreeSet::new();
                for (_, key, value) in fields {
                    let own = self.slot();
                    let key = literal(key).ok_or("a pattern with a computed key")?;
                    if !keys.insert(key.clone()) {
                        return Err("a pattern with a key twice");
                    }
                    steps.push(Step::Set(own, part(key)));
                    self.pattern(value, own, declares, steps)?;
                }
                Ok(())
            }
            Expr::Var { span, .. } if self.is_free(pattern) => {
                let own = self.unbound(span.text())?;
                let own = own.ok_or("a variable that gets its value from its own statement")?;
                steps.push(Step::Set(own, Term::Local(slot)));
                Ok(())
            }
            _ => {
                let mut loops = Vec::new();
                let term = self.term(pattern, &mut loops)?;
                if !loops.is_empty() {
                    return Err("a loop in a pattern");
                }
                steps.push(equal(Term::Local(slot), term));
                Ok(())
            }
        }
    }

    pub(super) fn unification(
        &mut self,
        left: &'m Ref<Expr>,
        right: &'m Ref<Expr>,
        steps: &mut Vec<Step>,
    ) -> Result<(), Reason> {
        let (left_is_free, right_is_free) = (self.is_free(left), self.is_free(right));
        let (target, value) = match (left_is_free, right_is_free) {
            (true, true) => return Err("two variables without values"),
            (true, false) => (left, right),
            (false, true) => (right, left),
            (false, false) => {
                let left = self.term(left, steps)?;
                let right = self.term(right, steps)?;
                steps.push(equal(left, right));
                return Ok(());
            }
        };
        let term = self.term(value, steps)?;
        let slot = self.slot();
        steps.push(Step::Set(slot, term));
        self.pattern(target, slot, false, steps)
    }

    /// Whether an expression is a variable without a value, or a pattern with one.
    pub(super) fn is_free(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Var { span, .. } => match self.variable(span.text()) {
                Some((variable, _)) => !variable.is_bound,
                None => span.text() == "_" || self.meaning(span.text()).is_none(),
            },
            Expr::Array { items, .. } => items.iter().any(|item| self.is_free(item)),
            Expr::Object { fields, .. } => fields.iter().any(|(_, _, value)| self.is_free(value)),
            _ => false,
        }
    }
}

fn equal(left: Term, right: Term) -> Step {
    Step::Holds(Term::Compare(BoolOp::Eq, Box::new([left, right])))
}
