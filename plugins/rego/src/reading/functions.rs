//! Which function a call is about, as regorus resolves it.

use std::collections::BTreeMap;

use regorus::unstable::{Expr, Import, Module, Ref, Rule, RuleHead};

use super::{ANONYMOUS, text};
use crate::walk;

/// The parts of a name: `data.lib.f` has three.
pub(super) type Path = Vec<String>;

/// A rule, by its number among the rules of all modules.
pub(super) type RuleNumber = usize;

/// A rule of a function, with its parameters.
type FunctionRule<'m> = (RuleNumber, &'m [Ref<Expr>]);

const DATA: &str = "data";

/// The functions of all modules.
pub(super) struct Functions<'m> {
    /// The rules of functions, by their full names.
    rules: BTreeMap<Path, Vec<FunctionRule<'m>>>,
    /// The full names of functions with a default.
    defaults: Vec<Path>,
    /// The full names that imports stand for, by package and alias.
    imports: BTreeMap<(Path, String), Vec<Path>>,
}

/// What a call calls.
pub(super) enum Called<'m> {
    /// A function of the modules.
    Rules(Vec<FunctionRule<'m>>),
    /// A builtin, by its name with dots.
    Builtin(String),
    /// Something that may be either.
    Unknown,
}

/// The parts of a name that are written down.
pub(super) fn path(name: &Expr) -> Path {
    let (before, last) = match name {
        Expr::RefDot { refr, field, .. } => (Some(refr), field.1.as_string().ok()),
        Expr::RefBrack { refr, index, .. } => match &**index {
            Expr::String { value, .. } => (Some(refr), value.as_string().ok()),
            _ => (Some(refr), None),
        },
        Expr::Var { value, .. } => (None, value.as_string().ok()),
        _ => (None, None),
    };
    let mut path = before.map_or_else(Path::new, |before| self::path(before));
    path.extend(last.map(ToString::to_string));
    path
}

/// The name that an import gives. None if it has none.
pub(super) fn alias(import: &Import) -> Option<String> {
    match &import.r#as {
        Some(alias) => Some(alias.text().to_owned()),
        None => path(&import.refr).pop(),
    }
}

/// The name of a parameter that takes any value. None for a pattern, which the argument is compared with.
pub(super) fn name(parameters: &[Ref<Expr>], index: usize) -> Option<String> {
    let Expr::Var { .. } = &**parameters.get(index)? else {
        return None;
    };
    let name = text(&parameters[index])?;
    let mut count = 0;
    for parameter in parameters {
        walk::inside(parameter, &mut |one: &Expr| {
            let is_it = matches!(one, Expr::Var { .. }) && text(one).as_ref() == Some(&name);
            count += usize::from(is_it);
        });
    }
    (count == 1 || name == ANONYMOUS).then_some(name)
}

/// The full name of what a module defines.
fn full(package: &Path, name: &Path) -> Path {
    let data = [DATA.to_owned()];
    data.iter().chain(package).chain(name).cloned().collect()
}

// === impl Functions ===

impl<'m> Functions<'m> {
    /// Finds the functions. Rules are numbered in the order of the modules.
    pub(super) fn of(modules: &'m [Ref<Module>]) -> Self {
        let mut functions = Self {
            rules: BTreeMap::new(),
            defaults: Vec::new(),
            imports: BTreeMap::new(),
        };
        let mut number = 0;
        for module in modules {
            let package = path(&module.package.refr);
            for import in &module.imports {
                if let Some(alias) = alias(import) {
                    let targets = functions.imports.entry((package.clone(), alias));
                    targets.or_default().push(path(&import.refr));
                }
            }
            for rule in &module.policy {
                match &**rule {
                    Rule::Spec {
                        head: RuleHead::Func { refr, args, .. },
                        ..
                    } => {
                        let rules = functions.rules.entry(full(&package, &path(refr)));
                        rules.or_default().push((number, args.as_slice()));
                    }
                    Rule::Default { refr, args, .. } if !args.is_empty() => {
                        functions.defaults.push(full(&package, &path(refr)));
                    }
                    _ => {}
                }
                number += 1;
            }
        }
        functions
    }

    /// Finds out what a call in a module calls.
    ///
    /// A function of the own package goes before a builtin. An import goes before both if its target is a function. A name
    /// that could mean several functions means none for sure.
    pub(super) fn called(&self, package: &Path, function: &Expr) -> Called<'m> {
        let name = path(function);
        let Some((root, rest)) = name.split_first() else {
            return Called::Unknown;
        };
        let mut candidates = vec![name.clone(), full(package, &name)];
        let imported = self.imports.get(&(package.clone(), root.clone()));
        for target in imported.into_iter().flatten() {
            candidates.push(target.iter().chain(rest).cloned().collect());
        }
        let mut known = candidates.iter().filter_map(|one| self.rules.get(one));
        let has_default = candidates.iter().any(|one| self.defaults.contains(one));
        match (known.next(), known.next()) {
            (Some(rules), None) => Called::Rules(rules.clone()),
            (None, _) if imported.is_none() && !has_default => Called::Builtin(name.join(".")),
            _ => Called::Unknown,
        }
    }
}
