//! The names that rules, packages and imports give to values, and the variables of a body.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{AssignOp, Expr, Literal, Module, Query, Ref, Rule, RuleBody, RuleHead};

use super::Reason;

/// The modules of a template with their rules.
pub(super) struct Names<'m> {
    pub(super) packages: Vec<Package<'m>>,
    /// The rules by their path without `data`.
    rules: BTreeMap<Vec<String>, Named<'m>>,
}

pub(super) struct Package<'m> {
    pub(super) path: Vec<String>,
    imports: BTreeMap<String, &'m Expr>,
}

/// The rules of one path.
pub(super) struct Named<'m> {
    /// The index of the package.
    pub(super) package: usize,
    pub(super) rules: Vec<(&'m RuleHead, &'m [RuleBody])>,
    /// The default, and the number of parameters that it is for.
    pub(super) default: Option<(&'m Ref<Expr>, usize)>,
}

/// The beginning of a reference.
pub(super) enum Base<'m> {
    Variable(String),
    Expression(&'m Ref<Expr>),
}

/// A key in a reference.
#[derive(Clone)]
pub(super) enum Key<'m> {
    Field(String),
    Expression(&'m Ref<Expr>),
}

/// The variables of a query, and of the queries around it.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) variables: BTreeMap<String, Variable>,
    /// The names in the query, without those of comprehensions in it.
    pub(super) names: BTreeSet<String>,
    /// The names that the query declares, with the index of the statement.
    pub(super) declared: BTreeMap<String, usize>,
    /// The index of the statement that is being compiled.
    pub(super) statement: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Variable {
    pub(super) slot: usize,
    pub(super) is_bound: bool,
}

// === impl Names ===

impl<'m> Names<'m> {
    pub(super) fn read(modules: &'m [Ref<Module>]) -> Result<Self, Reason> {
        let mut names = Self {
            packages: Vec::new(),
            rules: BTreeMap::new(),
        };
        for module in modules {
            let path = path(&module.package.refr).ok_or("a package with a computed name")?;
            if names.packages.iter().any(|package| package.path == path) {
                return Err("two modules of one package");
            }
            let mut imports = BTreeMap::new();
            for import in &module.imports {
                let target = self::path(&import.refr).ok_or("an import with a computed name")?;
                if matches!(target.first().map(String::as_str), Some("future" | "rego")) {
                    continue;
                }
                let alias = match &import.r#as {
                    Some(alias) => alias.text().to_owned(),
                    None => target.last().cloned().unwrap_or_default(),
                };
                imports.insert(alias, &*import.refr);
            }
            for rule in &module.policy {
                names.add(rule, &path)?;
            }
            names.packages.push(Package { path, imports });
        }
        let is_inside = |package: &Package| {
            let longer = (1..=package.path.len()).map(|length| &package.path[..length]);
            longer
                .into_iter()
                .any(|path| names.rules.contains_key(path))
        };
        if names.packages.iter().any(is_inside) {
            return Err("a rule and a package of one name");
        }
        Ok(names)
    }

    fn add(&mut self, rule: &'m Rule, package: &[String]) -> Result<(), Reason> {
        let (refr, spec, default) = match rule {
            Rule::Spec { head, bodies, .. } => {
                let refr = match head {
                    RuleHead::Compr { refr, .. } => match &**refr {
                        Expr::RefBrack { refr, .. } => refr,
                        _ => refr,
                    },
                    RuleHead::Func { refr, .. } | RuleHead::Set { refr, .. } => refr,
                };
                (refr, Some((head, bodies.as_slice())), None)
            }
            Rule::Default {
                refr, args, value, ..
            } => (refr, None, Some((value, args.len()))),
        };
        let Expr::Var { span, .. } = &**refr else {
            return Err("a rule whose name has several parts");
        };
        let mut path = package.to_vec();
        path.push(span.text().to_owned());
        let named = self.rules.entry(path).or_insert_with(|| Named {
            package: self.packages.len(),
            rules: Vec::new(),
            default: None,
        });
        named.rules.extend(spec);
        if default.is_some() && named.default.is_some() {
            return Err("two defaults of one rule");
        }
        named.default = named.default.or(default);
        Ok(())
    }

    pub(super) fn rule(&self, path: &[String]) -> Option<&Named<'m>> {
        self.rules.get(path)
    }

    /// Returns the expression that a package imports under a name.
    pub(super) fn import(&self, package: usize, alias: &str) -> Option<&'m Expr> {
        self.packages[package].imports.get(alias).copied()
    }

    /// Whether a path below `data` can lead to rules.
    pub(super) fn leads_to_rules(&self, keys: &[Key]) -> bool {
        self.packages.iter().any(|package| {
            let parts = package.path.iter().zip(keys);
            let mut parts = parts.map(|(part, key)| match key {
                Key::Field(field) => field == part,
                Key::Expression(_) => true,
            });
            parts.all(|is_same| is_same)
        })
    }
}

// === impl Scope ===

impl Scope {
    /// Whether the query declares a name only in the statement that is being compiled, or in a later one. A query inside of
    /// this statement then has a variable of its own with that name.
    pub(super) fn declares_later(&self, name: &str) -> bool {
        let index = self.declared.get(name);
        index.is_some_and(|index| *index >= self.statement)
    }
}

/// The components of a reference without computed keys.
pub(super) fn path(expression: &Expr) -> Option<Vec<String>> {
    match expression {
        Expr::Var { span, .. } => Some(vec![span.text().to_owned()]),
        Expr::RefDot { refr, field, .. } => {
            let mut path = path(refr)?;
            path.push(field.0.text().to_owned());
            Some(path)
        }
        Expr::RefBrack { refr, index, .. } => {
            let mut path = path(refr)?;
            let Expr::String { value, .. } = &**index else {
                return None;
            };
            path.push(value.as_string().ok()?.to_string());
            Some(path)
        }
        _ => None,
    }
}

/// Splits a reference into its base and its keys.
pub(super) fn split<'m>(expression: &'m Ref<Expr>) -> (Base<'m>, Vec<Key<'m>>) {
    let (mut keys, mut rest) = (Vec::new(), expression);
    loop {
        match &**rest {
            Expr::RefDot { refr, field, .. } => {
                keys.push(Key::Field(field.0.text().to_owned()));
                rest = refr;
            }
            Expr::RefBrack { refr, index, .. } => {
                keys.push(match &**index {
                    Expr::String { value, .. } => match value.as_string() {
                        Ok(text) => Key::Field(text.to_string()),
                        Err(_) => Key::Expression(index),
                    },
                    _ => Key::Expression(index),
                });
                rest = refr;
            }
            other => {
                keys.reverse();
                let base = match other {
                    Expr::Var { span, .. } => Base::Variable(span.text().to_owned()),
                    _ => Base::Expression(rest),
                };
                return (base, keys);
            }
        }
    }
}

/// Collects the names in a query, without those of comprehensions in it.
pub(super) fn of_query(query: &Query, into: &mut BTreeSet<String>) {
    for statement in &query.stmts {
        of_statement(&statement.literal, into);
    }
}

pub(super) fn of_statement(statement: &Literal, into: &mut BTreeSet<String>) {
    match statement {
        Literal::SomeVars { vars, .. } => {
            into.extend(vars.iter().map(|name| name.text().to_owned()));
        }
        Literal::SomeIn {
            key,
            value,
            collection,
            ..
        } => {
            let parts = key.iter().chain([value, collection]);
            parts.for_each(|part| of_expression(part, into));
        }
        Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => of_expression(expr, into),
        Literal::Every { domain, .. } => of_expression(domain, into),
    }
}

/// Returns the variables that a query declares, with the index of the statement. None if the query uses one before, which
/// OPA rejects.
pub(super) fn declared(query: &Query) -> Option<BTreeMap<String, usize>> {
    let (mut before, mut all) = (BTreeSet::new(), BTreeMap::new());
    for (index, statement) in query.stmts.iter().enumerate() {
        let mut names = BTreeSet::new();
        match &statement.literal {
            Literal::Expr { expr, .. } => {
                if let Expr::AssignExpr {
                    op: AssignOp::ColEq,
                    lhs,
                    ..
                } = &**expr
                {
                    of_expression(lhs, &mut names);
                }
            }
            Literal::SomeIn { key, value, .. } => {
                let parts = key.iter().chain([value]);
                parts.for_each(|part| of_expression(part, &mut names));
            }
            Literal::SomeVars { .. } => of_statement(&statement.literal, &mut names),
            Literal::NotExpr { .. } | Literal::Every { .. } => {}
        }
        names.remove("_");
        if !names.is_disjoint(&before) {
            return None;
        }
        all.extend(names.into_iter().map(|name| (name, index)));
        of_statement(&statement.literal, &mut before);
    }
    Some(all)
}

pub(super) fn of_expression(expression: &Expr, into: &mut BTreeSet<String>) {
    let mut all = |parts: &mut dyn Iterator<Item = &Ref<Expr>>| {
        parts.for_each(|part| of_expression(part, into));
    };
    match expression {
        Expr::Var { span, .. } => {
            into.insert(span.text().to_owned());
        }
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. }
        | Expr::ArrayCompr { .. }
        | Expr::SetCompr { .. }
        | Expr::ObjectCompr { .. } => {}
        Expr::Array { items, .. } | Expr::Set { items, .. } => all(&mut items.iter()),
        Expr::Object { fields, .. } => {
            all(&mut fields.iter().flat_map(|(_, key, value)| [key, value]));
        }
        Expr::Call { fcn, params, .. } => all(&mut [fcn].into_iter().chain(params)),
        Expr::UnaryExpr { expr, .. } => all(&mut [expr].into_iter()),
        Expr::RefDot { refr, .. } => all(&mut [refr].into_iter()),
        Expr::RefBrack { refr, index, .. } => all(&mut [refr, index].into_iter()),
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => all(&mut [lhs, rhs].into_iter()),
        Expr::Membership {
            key,
            value,
            collection,
            ..
        } => all(&mut key.iter().chain([value, collection])),
    }
}
