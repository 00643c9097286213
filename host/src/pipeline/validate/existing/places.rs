//! Where a reason is, in a form that outlives changes elsewhere in the object.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::steps::Steps;
use crate::document::{ArrayIndex, Json, Pointer, array_index};
use crate::pipeline::outcome::Cause;

/// Where a cause is, and what stands there.
pub(super) struct Place<'o> {
    pub(super) path: String,
    /// Whether it is one within the object.
    pub(super) is_within: bool,
    pub(super) value: Option<&'o Json>,
}

/// The places of one object. How often a list has a name is counted once, when the list is first come by.
pub(super) struct Places<'o> {
    object: &'o Json,
    /// By the address of the first element, which no other list shares: the object is not changed.
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

    /// A place stays the same as long as the object changes elsewhere: elements with a name are known by it, as a
    /// container put before others moves them. The whole object is no place in it, and neither is what is no pointer.
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
                    // No member is called so: a `~` in a name is written `~0`.
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

    /// Whether one element alone has this name.
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
