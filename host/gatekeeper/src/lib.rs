//! Gatekeeper's constraints and mutators, without the languages of templates.
//!
//! ```text
//! constraint  parameters checked and completed by the template's schema, match, action   constraint, schema, matching
//! verdict     violations of several constraints → denial, warnings, dry-run reports      verdict
//! mutators    Assign, AssignMetadata, ModifySet, AssignImage → a changed object          mutation
//! ```
//!
//! The crate is pure: it has no input and output, and it builds for `wasm32-unknown-unknown`. The plugins `rego` and
//! `cel-policy` use it, and so does `tollgate import`.

mod constraint;
mod matching;
pub mod mutation;
mod namespaces;
mod problem;
pub mod schema;
mod selector;
mod verdict;

pub use constraint::{Action, Constraint, Kind};
pub use matching::{Match, NamespaceLabels, Subject, UnknownNamespace};
pub use namespaces::Namespaces;
pub use problem::{Pointer, Problem, Problems};
pub use selector::LabelSelector;
pub use verdict::{Denied, Verdict, Violation};

#[cfg(test)]
mod tests;
