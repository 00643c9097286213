//! Translates policies that other engines run into entries of Tollgate's configuration.
//!
//! ```text
//! text → documents, each with its file and line → dialects → entries of `plugins`, and notes for the report
//! ```
//!
//! A pure function: it reads no files and loads no plugins. Nothing is dropped silently. Every document is in an entry or
//! in a note, and a document that cannot be parsed loses no other.

mod document;
mod entry;
mod gatekeeper;
mod in_tree;
mod kyverno;
mod note;
#[cfg(test)]
mod tests;

pub use document::{Document, Parsed, parse};
pub use entry::{Access, Entry, Matching, Rule, write};
pub use gatekeeper::Gatekeeper;
pub use in_tree::InTree;
pub use kyverno::Kyverno;
pub use note::{Effect, Note};

/// A kind of policies that can be translated.
pub trait Dialect {
    /// Whether the dialect is about this document, even if it cannot translate it.
    fn claims(&self, document: &Document) -> bool;

    /// Translates all documents that the dialect claims. Every one of them must lead to an entry or a note.
    fn translate(&self, documents: &[&Document], into: &mut Imported);
}

/// The result of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// The plugins, in the order of their policies.
    pub entries: Vec<Entry>,
    /// The result for each document, in the order of the documents.
    pub notes: Vec<Note>,
}

/// The sources of the plugins that run imported policies.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The plugin for ConstraintTemplates, such as `file:./rego.wasm`.
    pub rego: String,
    /// The plugin for Kubernetes' own policies, such as `file:./cel_policy.wasm`.
    pub cel: String,
}

/// Translates documents with all dialects. A document that no dialect claims is noted as skipped.
#[must_use]
pub fn import(parsed: &Parsed, dialects: &[&dyn Dialect]) -> Imported {
    let mut imported = Imported {
        notes: parsed.broken.clone(),
        ..Imported::default()
    };
    for dialect in dialects {
        let claimed = parsed
            .documents
            .iter()
            .filter(|document| dialect.claims(document));
        dialect.translate(&claimed.collect::<Vec<_>>(), &mut imported);
    }
    let is_unclaimed = |document: &&Document| !dialects.iter().any(|one| one.claims(document));
    for document in parsed.documents.iter().filter(is_unclaimed) {
        let text = "is no policy that can be imported";
        imported.notes.push(document.note(Effect::Skipped, text));
    }
    imported
        .notes
        .sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    imported
}
