//! Describes the place of a reason in a form that stays the same when the object changes elsewhere.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tollgate_admission::Cause;
use tollgate_json::document::{ArrayIndex, Json, Pointer, array_index};

use super::steps::Steps;

/// The place of a cause, and the value there.
pub(super) struct Place<'o> {
    pub(super) path: String,
    /// Whether the place is within the object.
    pub(super) is_within: bool,
    pub(super) value: Option<&'o Json>,
}

/// The places of one object. The names in a list are counted once, when the list is first reached.
pub(super) struct Places<'o> {
    object: &'o Json,
    /// Keyed by the address of the first element. The object does not change, so no two lists share an address.
    names: HashMap<*const Json, HashMap<&'o str, usize>>,
}

// === impl Places ===

impl<'o> Places<'o> {
    pub(super) fn new(object: &'o Json) -> Self {
        Self {
            object,
            names: HashMap::new(),
        }
    }

    /// Returns the place of a cause. The place stays the same while the object changes elsewhere. For example, the
    /// place names a list element by its unique name, because a container inserted before it would change its index.
    /// The whole object does not count as a place within it, and neither does a text that is not a pointer.
    pub(super) fn of(&mut self, cause: &Cause, steps: &mut Steps) -> Option<Place<'o>> {
        let field = cause.field.as_deref().unwrap_or_default();
        steps.take_text(field)?;
        let pointer = match Pointer::parse(field) {
            Ok(pointer) if !pointer.is_root() => pointer,
            _ => {
                return Some(Place {
                    path: field.to_owned(),
                    is_within: false,
                    value: None,
                });
            }
        };
        let mut here = Some(self.object);
        let mut path = String::new();
        for token in pointer.tokens() {
            steps.take(1)?;
            let elements = here.and_then(Json::as_array);
            here = here.and_then(|json| json.child(&token));
            let name = here
                .and_then(|json| json.member("name"))
                .and_then(Json::as_text);
            path.push('/');
            match (elements, name, array_index(&token)) {
                (Some(elements), Some(name), Some(ArrayIndex::At(_)))
                    if self.is_unique(elements, name, steps)? =>
                {
                    // No member can have this token, because a `~` in a member name is written `~0`.
                    path.push_str(&format!("~[name={name:?}]"));
                }
                _ => path.push_str(&token.replace('~', "~0").replace('/', "~1")),
            }
        }
        Some(Place {
            path,
            is_within: true,
            value: here,
        })
    }

    /// Whether exactly one element has this name.
    fn is_unique(&mut self, elements: &'o [Json], name: &str, steps: &mut Steps) -> Option<bool> {
        steps.take_text(name)?;
        let counts = match self.names.entry(elements.as_ptr()) {
            Entry::Occupied(counted) => counted.into_mut(),
            Entry::Vacant(vacant) => {
                let mut counts: HashMap<&str, usize> = HashMap::new();
                for element in elements {
                    let name = element.member("name").and_then(Json::as_text);
                    steps.take_text(name.unwrap_or_default())?;
                    if let Some(name) = name {
                        *counts.entry(name).or_default() += 1;
                    }
                }
                vacant.insert(counts)
            }
        };
        Some(counts.get(name) == Some(&1))
    }
}
