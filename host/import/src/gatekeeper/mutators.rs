//! Mutators: all of them become one plugin, as Gatekeeper applies them together until nothing changes.

use serde_json::{Value, json};
use tollgate_gatekeeper::mutation::Mutator;
use tollgate_gatekeeper::{Pointer, Problems};

use super::rules;
use crate::entry::plugin_name;
use crate::{Document, Effect, Entry, Imported, Matching};

/// The name of the plugin.
const NAME: &str = "gatekeeper-mutators";
/// Gatekeeper changes objects in these requests only.
const OPERATIONS: [&str; 2] = ["CREATE", "UPDATE"];

/// Translates the mutators. Notes the mutators that Tollgate or Gatekeeper cannot apply, with their
/// lines.
pub(super) fn translate(documents: &[&Document], source: &str, into: &mut Imported) {
    let mut read: Vec<(&Document, Mutator)> = Vec::new();
    for document in documents {
        let mut problems = Problems::new();
        let mutator = Mutator::read(&document.value, &Pointer::root(), &mut problems);
        read.extend(mutator.map(|mutator| (*document, mutator)));
        for problem in problems {
            let place = problem.pointer.as_str();
            let text = format!("{place}: {}", problem.message);
            let key = last_key(place);
            let note = document.note_at(&key, Effect::Impossible, text.trim_start_matches(": "));
            into.notes.push(note);
        }
    }
    let mut selected: Vec<&Document> = Vec::new();
    for (index, (document, mutator)) in read.iter().enumerate() {
        let others = read.iter().enumerate().filter(|(other, _)| *other != index);
        let conflict = others
            .map(|(_, (_, other))| other)
            .find(|other| mutator.conflicts_with(other));
        match conflict {
            None => selected.push(document),
            Some(other) => {
                let text = format!(
                    "conflicts with {other}: the locations take a field for different types, and Gatekeeper applies neither"
                );
                let note = document.note_at("location:", Effect::Impossible, text);
                into.notes.push(note);
            }
        }
    }
    let Some(first) = selected.first() else {
        return;
    };
    let name = plugin_name(NAME, &into.entries);
    let (rules, unknown) = rules::of(&selected, &OPERATIONS);
    for document in &selected {
        let text = format!("a mutator of plugin {name}");
        into.notes.push(document.note(Effect::Translated, text));
    }
    for (document, kind) in unknown {
        let text = format!(
            "the resource of {kind} is not known; the plugin is called for every resource of its group"
        );
        into.notes
            .push(document.note_at(kind, Effect::Differs, text));
    }
    let mutators: Vec<&Value> = selected.iter().map(|document| &document.value).collect();
    into.entries.push(Entry {
        name,
        source: source.to_owned(),
        matching: Matching { rules },
        // Gatekeeper's webhook lets requests pass when it cannot answer.
        failure_policy: "Ignore",
        access: None,
        lookups: Vec::new(),
        settings: json!({ "mutators": mutators }),
        place: (first.file.clone(), first.line),
    });
}

/// Returns the text that the line of a place has: the last name in it that is no index.
fn last_key(place: &str) -> String {
    let mut names = place.rsplit('/');
    let name = names.find(|name| !name.is_empty() && name.parse::<usize>().is_err());
    name.map_or_else(|| "kind:".to_owned(), |name| format!("{name}:"))
}
