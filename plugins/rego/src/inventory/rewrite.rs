//! Rewrites Rego to read the inventory from the input. `data` belongs to the prepared program.

use std::collections::BTreeSet;

use regorus::unstable::{Expr, Import, Module, Span};

use super::MEMBER;
use crate::syntax::parsed;
use crate::walk::{self, Visitor};

const DATA: &str = "data";
const INPUT: &str = "input";
const INVENTORY: &str = "inventory";

/// A module that reads the inventory from the input. Lines stay as they are.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// Whether it reads the inventory.
    pub(crate) reads: bool,
    /// What cannot be rewritten, with the place.
    pub(crate) problems: Vec<String>,
}

/// Finds the references to the inventory.
struct Finder {
    /// Bytes of the text, and what they become.
    edits: Vec<(usize, usize, String)>,
    /// The places of `data` that are the beginning of a reference.
    roots: BTreeSet<u32>,
    /// The names of the input.
    inputs: BTreeSet<String>,
    problems: Vec<String>,
}

fn name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Var { span, .. } => Some(span.text()),
        _ => None,
    }
}

fn problem(span: &Span, text: &str) -> String {
    format!("line {}, column {}: {text}", span.line, span.col)
}

// === impl Rewritten ===

impl Rewritten {
    /// Rewrites a module. A text that cannot be parsed stays as it is.
    pub(crate) fn of(text: String, is_v1: bool) -> Self {
        let mut finder = Finder {
            edits: Vec::new(),
            roots: BTreeSet::new(),
            inputs: BTreeSet::from([INPUT.to_owned()]),
            problems: Vec::new(),
        };
        if let Some(mut engine) = parsed(&text, is_v1) {
            for module in engine.get_modules() {
                finder.module(module);
            }
        }
        let mut edits = finder.edits;
        edits.sort();
        let mut out = String::with_capacity(text.len());
        let mut copied = 0;
        for (from, to, new) in &edits {
            out.push_str(&text[copied..*from]);
            out.push_str(new);
            copied = *to;
        }
        out.push_str(&text[copied..]);
        Self {
            text: out,
            reads: !edits.is_empty(),
            problems: finder.problems,
        }
    }
}

// === impl Finder ===

impl Finder {
    fn module(&mut self, module: &Module) {
        for Import { refr, r#as, .. } in &module.imports {
            if let Some(alias) = r#as
                && name(refr) == Some(INPUT)
            {
                self.inputs.insert(alias.text().to_owned());
            }
            let before = self.edits.len();
            walk::inside(refr, self);
            let is_inventory = self.edits.get(before).is_some_and(|(from, to, _)| {
                (*from, *to) == (refr.span().start as usize, refr.span().end as usize)
            });
            if is_inventory && r#as.is_none() {
                self.edits[before].2 += " as inventory";
            }
        }
        walk::module(module, self);
    }

    /// A reference that begins with `data`, and has a name after it, or a computed one.
    fn reference(&mut self, root: &Expr, whole: &Span, member: Option<&str>) {
        if name(root) != Some(DATA) {
            return;
        }
        self.roots.insert(root.span().start);
        match member {
            Some(INVENTORY) => {
                let edit = (whole.start as usize, whole.end as usize);
                let new = format!("{INPUT}.{MEMBER}");
                self.edits.push((edit.0, edit.1, new));
            }
            Some(_) => {}
            None => self.problems.push(problem(
                root.span(),
                "`data` with a computed name is not supported beside inventoryFrom: write data.inventory",
            )),
        }
    }
}

impl Visitor for Finder {
    fn expression(&mut self, expression: &Expr) {
        match expression {
            Expr::RefDot {
                span, refr, field, ..
            } => self.reference(refr, span, field.1.as_string().ok().map(|name| &**name)),
            Expr::RefBrack {
                span, refr, index, ..
            } => {
                let member = match &**index {
                    Expr::String { value, .. } | Expr::RawString { value, .. } => {
                        value.as_string().ok()
                    }
                    _ => None,
                };
                self.reference(refr, span, member.map(|name| &**name));
            }
            Expr::Var { span, .. } if span.text() == DATA && !self.roots.contains(&span.start) => {
                self.problems.push(problem(
                    span,
                    "`data` alone is not supported beside inventoryFrom: write data.inventory",
                ));
            }
            _ => {}
        }
    }

    fn replaced(&mut self, target: &Expr) {
        if name(target).is_some_and(|name| self.inputs.contains(name)) {
            self.problems.push(problem(
                target.span(),
                "`with input as` would hide the inventory of inventoryFrom: replace a part of the input, such as \
                 `with input.review as`",
            ));
        }
    }
}
