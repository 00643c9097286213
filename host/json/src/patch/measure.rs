//! Measures how large a value is when written out, without writing it.
//!
//! A `copy` shares the value that it copies, so thirty copies can describe a gigabyte in a kilobyte of memory. Shared
//! containers are therefore measured once, and counted as often as they occur.

use std::collections::HashMap;
use std::sync::Arc;

use crate::document::{Json, Number};

/// The size of a value as a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Number of values, including containers.
    pub(super) nodes: usize,
    /// Bytes of names, strings and digits, before escaping.
    pub(super) bytes: usize,
    /// Levels of nested containers at the deepest place.
    pub(super) depth: u32,
}

/// Returns the size of `value`, and the number of values that were visited to measure it. Gives up before it visits more than
/// `most_visited` values; then the number is larger, and the size means nothing.
pub(super) fn measure(value: &Json, most_visited: usize) -> (Size, usize) {
    let mut measure = Measure {
        known: HashMap::default(),
        visited: 1,
        most_visited,
    };
    let size = measure.value(value);
    (size, measure.visited)
}

struct Measure {
    known: HashMap<usize, Size, foldhash::fast::RandomState>,
    /// With those that are still to be visited in containers that were begun.
    visited: usize,
    most_visited: usize,
}

// === impl Measure ===

impl Measure {
    fn value(&mut self, value: &Json) -> Size {
        match value {
            Json::Null | Json::Bool(_) => Size {
                nodes: 1,
                bytes: 5,
                depth: 0,
            },
            Json::Number(Number::Integer(_)) => Size {
                nodes: 1,
                bytes: 20,
                depth: 0,
            },
            Json::Number(Number::Text(text)) | Json::Text(text) => Size {
                nodes: 1,
                bytes: text.len() + 2,
                depth: 0,
            },
            Json::Array(elements) => {
                self.container(elements, elements.len(), |measure, elements| {
                    elements.iter().fold(Size::default(), |sum, element| {
                        sum.plus(measure.value(element))
                    })
                })
            }
            Json::Object(members) => {
                self.container(members, members.width(), |measure, members| {
                    members.iter().fold(Size::default(), |sum, (name, value)| {
                        let mut size = measure.value(value);
                        size.bytes = size.bytes.saturating_add(name.len() + 3);
                        sum.plus(size)
                    })
                })
            }
        }
    }

    fn container<C>(
        &mut self,
        container: &Arc<C>,
        width: usize,
        content: impl FnOnce(&mut Self, &C) -> Size,
    ) -> Size {
        // A container with a single owner cannot occur twice.
        let key = (Arc::strong_count(container) > 1).then(|| Arc::as_ptr(container).addr());
        if let Some(size) = key.and_then(|key| self.known.get(&key)) {
            return *size;
        }
        // The values inside count before anybody looks at them, which builds them.
        self.visited = self.visited.saturating_add(width);
        if self.visited > self.most_visited {
            return Size::default();
        }
        let content = content(self, container);
        let size = Size {
            nodes: content.nodes.saturating_add(1),
            bytes: content.bytes.saturating_add(2),
            depth: content.depth.saturating_add(1),
        };
        if let Some(key) = key {
            self.known.insert(key, size);
        }
        size
    }
}

// === impl Size ===

impl Size {
    fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            bytes: self.bytes.saturating_add(other.bytes),
            depth: self.depth.max(other.depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::document::{Account, index_within};

    #[test]
    fn counts_shared_content_per_occurrence_but_visits_it_once() {
        let mut value = Json::from(serde_json::json!(["x"]));
        for _ in 0..100 {
            value = Json::from(vec![value.clone(), value]);
        }
        let (size, visited) = measure(&value, usize::MAX);
        assert_eq!(
            (size.nodes, size.bytes, size.depth),
            (usize::MAX, usize::MAX, 101)
        );
        assert!(visited < 250, "{visited}");
    }

    #[test]
    fn gives_up_before_it_looks_at_too_much() {
        let value = Json::from(serde_json::json!([["a", "b"], {"c": [1, 2, 3]}]));
        let (size, visited) = measure(&value, 10);
        assert_eq!((size.nodes, visited), (9, 9));
        for most_visited in 0..9 {
            assert!(
                measure(&value, most_visited).1 > most_visited,
                "{most_visited}"
            );
        }
    }

    #[test]
    fn values_that_wait_on_outer_levels_count() {
        let text = (0..100).fold("[]".to_owned(), |inner, _| {
            format!("[{inner}{}]", ",0".repeat(999))
        });
        let deep = index_within(&Bytes::from(text), 200, &Account::unlimited()).unwrap();
        let (_, visited) = measure(&deep, 10_000);
        assert!((10_001..=11_001).contains(&visited), "{visited}");
        // The level that would have exceeded the limit is still text, and so is all below.
        let mut level = &deep;
        for _ in 0..9 {
            level = &level.as_array().unwrap()[0];
        }
        assert!(level.unbuilt_range().is_some());
        let (size, visited) = measure(&deep, usize::MAX);
        assert_eq!((size.nodes, visited), (100_001, 100_001));
    }

    #[test]
    fn size_is_close_to_text_size() {
        let value =
            Json::from(serde_json::json!({"name": "text", "list": ["a", "b", {}], "flag": true}));
        let (size, visited) = measure(&value, usize::MAX);
        assert_eq!((size.nodes, visited, size.depth), (7, 7, 3));
        assert!(
            size.bytes.abs_diff(value.to_text().len()) < 10,
            "{}",
            size.bytes
        );
    }
}
