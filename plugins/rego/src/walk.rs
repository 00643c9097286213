//! Visits all expressions of a module.

use regorus::unstable::{Expr, Literal, Module, Query, Rule, RuleHead};

/// Gets what is visited.
pub(crate) trait Visitor {
    /// An expression. Outer ones come first.
    fn expression(&mut self, expression: &Expr);

    /// What a `with` replaces. It is visited as an expression, too.
    fn replaced(&mut self, _target: &Expr) {}
}

impl<F: FnMut(&Expr)> Visitor for F {
    fn expression(&mut self, expression: &Expr) {
        self(expression);
    }
}

/// Visits the expressions of a module, outer ones first. Defaults are constants, and are left out.
pub(crate) fn module(module: &Module, visit: &mut impl Visitor) {
    for rule in &module.policy {
        let Rule::Spec { head, bodies, .. } = &**rule else {
            continue;
        };
        let (refr, key, assign) = match head {
            RuleHead::Compr { refr, assign, .. } => (refr, None, assign.as_ref()),
            RuleHead::Func {
                refr, args, assign, ..
            } => {
                args.iter().for_each(|arg| inside(arg, visit));
                (refr, None, assign.as_ref())
            }
            RuleHead::Set { refr, key, .. } => (refr, key.as_ref(), None),
        };
        let values = assign.map(|assign| &assign.value);
        for expression in [refr].into_iter().chain(key).chain(values) {
            inside(expression, visit);
        }
        for body in bodies {
            if let Some(assign) = &body.assign {
                inside(&assign.value, visit);
            }
            query(&body.query, visit);
        }
    }
}

fn query(query: &Query, visit: &mut impl Visitor) {
    for statement in &query.stmts {
        match &statement.literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => {
                for part in key.iter().chain([value, collection]) {
                    inside(part, visit);
                }
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => inside(expr, visit),
            Literal::Every {
                domain, query: all, ..
            } => {
                inside(domain, visit);
                self::query(all, visit);
            }
        }
        for modifier in &statement.with_mods {
            visit.replaced(&modifier.refr);
            inside(&modifier.refr, visit);
            inside(&modifier.r#as, visit);
        }
    }
}

/// Visits an expression, and the expressions in it.
pub(crate) fn inside(expression: &Expr, visit: &mut impl Visitor) {
    visit.expression(expression);
    match expression {
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. }
        | Expr::Var { .. } => {}
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            items.iter().for_each(|item| inside(item, visit));
        }
        Expr::Object { fields, .. } => {
            for (_, key, value) in fields {
                inside(key, visit);
                inside(value, visit);
            }
        }
        Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
            inside(term, visit);
            self::query(query, visit);
        }
        Expr::ObjectCompr {
            key, value, query, ..
        } => {
            inside(key, visit);
            inside(value, visit);
            self::query(query, visit);
        }
        Expr::Call { fcn, params, .. } => {
            inside(fcn, visit);
            params.iter().for_each(|parameter| inside(parameter, visit));
        }
        Expr::UnaryExpr { expr, .. } => inside(expr, visit),
        Expr::RefDot { refr, .. } => inside(refr, visit),
        Expr::RefBrack { refr, index, .. } => {
            inside(refr, visit);
            inside(index, visit);
        }
        Expr::BinExpr { lhs, rhs, .. }
        | Expr::BoolExpr { lhs, rhs, .. }
        | Expr::ArithExpr { lhs, rhs, .. }
        | Expr::AssignExpr { lhs, rhs, .. } => {
            inside(lhs, visit);
            inside(rhs, visit);
        }
        Expr::Membership {
            key,
            value,
            collection,
            ..
        } => {
            for part in key.iter().chain([value, collection]) {
                inside(part, visit);
            }
        }
    }
}
