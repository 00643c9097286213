//! Finds out which parts of `input` the modules of a template read, so that a review reads no others.
//!
//! References that begin with `input` are places. A local variable that is declared with `:=` or in `some … in`, and a
//! parameter of a function, hold the places that are assigned to them anywhere. A value that goes elsewhere, such as into
//! a comparison, a builtin, a list, or the head of a rule, is read as a whole. In doubt the analysis takes too much.

mod functions;

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{
    AssignOp, Expr, Literal, LiteralStmt, Module, Query, Ref, Rule, RuleBody, RuleHead,
    WithModifier,
};
use tollgate_shape::{Place, Places, Shape};

use functions::{Called, Functions, Path, RuleNumber, path};

/// The places that a value can come from.
type Flow = BTreeSet<Place>;

/// A name that stands for any value each time, and is no variable.
const ANONYMOUS: &str = "_";
const INPUT: &str = "input";

struct Analysis<'m> {
    places: Places,
    input: Place,
    /// The places of local variables.
    variables: BTreeMap<(RuleNumber, String), Flow>,
    /// The functions of all modules.
    functions: Functions<'m>,
    /// The places of imported names. Modules of the same package share them.
    imports: BTreeMap<(Path, String), Flow>,
    /// The package of the current module.
    package: Path,
    rule: RuleNumber,
    has_changed: bool,
}

/// Returns what the modules read of `input.review`.
pub(crate) fn review(modules: &[Ref<Module>]) -> Shape {
    let mut places = Places::new();
    let input = places.root();
    let mut analysis = Analysis {
        places,
        input,
        variables: BTreeMap::new(),
        functions: Functions::of(modules),
        imports: BTreeMap::new(),
        package: Path::new(),
        rule: 0,
        has_changed: true,
    };
    while analysis.has_changed {
        analysis.has_changed = false;
        analysis.modules(modules);
        analysis.has_changed |= analysis.places.take_changed();
    }
    let input = analysis.places.shape(input);
    if input.is_whole() {
        return Shape::whole();
    }
    input.member("review").cloned().unwrap_or_default()
}

/// The text of a variable's name, a field or a literal string.
fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Var { value, .. } | Expr::String { value, .. } | Expr::RawString { value, .. } => {
            value.as_string().ok().map(ToString::to_string)
        }
        _ => None,
    }
}

fn is_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::String { .. } | Expr::RawString { .. })
}

/// The names of a path that is written as literals: a string, or a list of strings.
fn literals(path: &Expr) -> Option<Vec<String>> {
    let literal = |one: &Expr| text(one).filter(|_| is_literal(one));
    match path {
        Expr::Array { items, .. } => items.iter().map(|item| literal(item)).collect(),
        other => Some(vec![literal(other)?]),
    }
}

// === impl Analysis ===

impl<'m> Analysis<'m> {
    fn modules(&mut self, modules: &'m [Ref<Module>]) {
        self.rule = 0;
        for module in modules {
            self.package = path(&module.package.refr);
            for import in &module.imports {
                let flow = self.flow(&import.refr);
                if let Some(alias) = functions::alias(import).filter(|_| !flow.is_empty()) {
                    self.look(&flow);
                    let key = (self.package.clone(), alias);
                    let known = self.imports.entry(key).or_default();
                    let before = known.len();
                    known.extend(&flow);
                    self.has_changed |= known.len() > before;
                }
            }
            for rule in &module.policy {
                self.one(rule);
                self.rule += 1;
            }
        }
    }

    fn one(&mut self, rule: &'m Rule) {
        match rule {
            Rule::Spec { head, bodies, .. } => {
                self.head(head);
                for RuleBody { assign, query, .. } in bodies {
                    if let Some(assign) = assign {
                        self.whole(&assign.value);
                    }
                    self.query(query);
                }
            }
            Rule::Default { value, .. } => self.whole(value),
        }
    }

    fn head(&mut self, head: &'m RuleHead) {
        let (refr, key, assign) = match head {
            RuleHead::Compr { refr, assign, .. } => (refr, None, assign.as_ref()),
            RuleHead::Set { refr, key, .. } => (refr, key.as_ref(), None),
            RuleHead::Func {
                refr, args, assign, ..
            } => {
                // A parameter that is no variable is compared with the argument, so a reference in it is read.
                let patterns = args
                    .iter()
                    .filter(|arg| !matches!(&***arg, Expr::Var { .. }));
                patterns.for_each(|pattern| self.whole(pattern));
                (refr, None, assign.as_ref())
            }
        };
        let mut name = refr;
        loop {
            match &**name {
                Expr::RefBrack { refr, index, .. } => {
                    self.whole(index);
                    name = refr;
                }
                Expr::RefDot { refr, .. } => name = refr,
                _ => break,
            }
        }
        for value in key.into_iter().chain(assign.map(|assign| &assign.value)) {
            self.whole(value);
        }
    }

    fn query(&mut self, query: &'m Query) {
        for LiteralStmt {
            literal, with_mods, ..
        } in &query.stmts
        {
            for WithModifier { r#as, .. } in with_mods {
                // Another document, or another function, gets what nobody follows here.
                self.places.take(self.input);
                self.whole(r#as);
            }
            self.literal(literal);
        }
    }

    fn literal(&mut self, literal: &'m Literal) {
        match literal {
            Literal::SomeVars { .. } => {}
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => {
                let elements = self.elements(collection);
                if let Some(key) = key {
                    self.whole(key);
                }
                self.bind(value, elements);
            }
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => {
                let flow = self.flow(expr);
                self.look(&flow);
            }
            Literal::Every {
                value,
                domain,
                query,
                ..
            } => {
                let elements = self.elements(domain);
                self.look(&elements);
                self.hold(self.rule, value.text().to_owned(), &elements);
                self.query(query);
            }
        }
    }

    fn elements(&mut self, collection: &'m Expr) -> Flow {
        let flow = self.flow(collection);
        self.look(&flow);
        flow.iter().map(|place| self.places.each(*place)).collect()
    }

    /// Gives a value to a variable. Any other pattern looks into the value.
    fn bind(&mut self, pattern: &'m Expr, flow: Flow) {
        match pattern {
            Expr::Var { .. } => {
                self.look(&flow);
                if let Some(name) = text(pattern) {
                    self.hold(self.rule, name, &flow);
                }
            }
            _ => {
                self.take(&flow);
                self.whole(pattern);
            }
        }
    }

    fn hold(&mut self, rule: RuleNumber, name: String, flow: &Flow) {
        if name == ANONYMOUS {
            return;
        }
        let known = self.variables.entry((rule, name)).or_default();
        let before = known.len();
        known.extend(flow);
        self.has_changed |= known.len() > before;
    }

    fn look(&mut self, flow: &Flow) {
        flow.iter().for_each(|place| self.places.look(*place));
    }

    fn take(&mut self, flow: &Flow) {
        flow.iter().for_each(|place| self.places.take(*place));
    }

    /// Visits an expression whose value goes where nobody follows it.
    fn whole(&mut self, expression: &'m Expr) {
        let flow = self.flow(expression);
        self.take(&flow);
    }

    /// Visits an expression, and returns the places that its value can come from.
    fn flow(&mut self, expression: &'m Expr) -> Flow {
        match expression {
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. } => {}
            Expr::Var { .. } => {
                let Some(name) = text(expression) else {
                    return Flow::new();
                };
                // A variable can have the name of the input or of an import.
                let input = (name == INPUT).then_some(&self.input).into_iter();
                let imported = self.imports.get(&(self.package.clone(), name.clone()));
                let local = self.variables.get(&(self.rule, name));
                let known = local.into_iter().chain(imported).flatten();
                return known.chain(input).copied().collect();
            }
            Expr::RefDot { refr, field, .. } => {
                let flow = self.flow(refr);
                let name = field.1.as_string().map(ToString::to_string);
                return self.members(&flow, &name.unwrap_or_default());
            }
            Expr::RefBrack { refr, index, .. } => {
                let flow = self.flow(refr);
                if is_literal(index) {
                    let name = text(index).unwrap_or_default();
                    return self.members(&flow, &name);
                }
                self.whole(index);
                return flow.iter().map(|place| self.places.each(*place)).collect();
            }
            Expr::Call { fcn, params, .. } => return self.call(fcn, params),
            Expr::Array { items, .. } | Expr::Set { items, .. } => {
                items.iter().for_each(|item| self.whole(item));
            }
            Expr::Object { fields, .. } => {
                for (_, key, value) in fields {
                    self.whole(key);
                    self.whole(value);
                }
            }
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.query(query);
                self.whole(term);
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => {
                self.query(query);
                self.whole(key);
                self.whole(value);
            }
            Expr::UnaryExpr { expr, .. } => self.whole(expr),
            Expr::BinExpr { lhs, rhs, .. }
            | Expr::BoolExpr { lhs, rhs, .. }
            | Expr::ArithExpr { lhs, rhs, .. } => {
                self.whole(lhs);
                self.whole(rhs);
            }
            Expr::AssignExpr { op, lhs, rhs, .. } => match op {
                AssignOp::ColEq => {
                    let flow = self.flow(rhs);
                    self.bind(lhs, flow);
                }
                // A variable may have a value already, which is compared.
                AssignOp::Eq => {
                    self.whole(lhs);
                    self.whole(rhs);
                }
            },
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                for part in key.iter().chain([value, collection]) {
                    self.whole(part);
                }
            }
        }
        Flow::new()
    }

    fn members(&mut self, flow: &Flow, name: &str) -> Flow {
        let member = |place: &Place| self.places.member(*place, name);
        flow.iter().map(member).collect()
    }

    fn call(&mut self, function: &'m Expr, arguments: &'m [Ref<Expr>]) -> Flow {
        // The brackets of a name.
        self.flow(function);
        let flows: Vec<Flow> = arguments.iter().map(|one| self.flow(one)).collect();
        // A call with an undefined argument is undefined.
        flows.iter().for_each(|flow| self.look(flow));
        match self.functions.called(&self.package, function) {
            Called::Rules(rules) => {
                for (rule, parameters) in rules {
                    for (index, flow) in flows.iter().enumerate() {
                        match functions::name(parameters, index) {
                            Some(name) => self.hold(rule, name, flow),
                            None => self.take(flow),
                        }
                    }
                }
                Flow::new()
            }
            Called::Builtin(name) => self.builtin(&name, arguments, &flows),
            Called::Unknown => {
                flows.iter().for_each(|flow| self.take(flow));
                Flow::new()
            }
        }
    }

    /// The builtins that do not look at all of their arguments.
    fn builtin(&mut self, name: &str, arguments: &'m [Ref<Expr>], flows: &[Flow]) -> Flow {
        match (name, flows, arguments) {
            // Members have to be there to be counted.
            ("count", [collection], _) => {
                for place in collection {
                    let each = self.places.each(*place);
                    self.places.look(each);
                }
            }
            (
                "is_array" | "is_object" | "is_string" | "is_number" | "is_boolean" | "is_null",
                [_],
                _,
            ) => {}
            ("object.get", [object, _, default], [_, key, _]) if literals(key).is_some() => {
                let mut found = object.clone();
                for name in literals(key).unwrap_or_default() {
                    found = self.members(&found, &name);
                    // Without the member, the default takes its place.
                    self.look(&found);
                }
                return found.union(default).copied().collect();
            }
            _ => flows.iter().for_each(|flow| self.take(flow)),
        }
        Flow::new()
    }
}
