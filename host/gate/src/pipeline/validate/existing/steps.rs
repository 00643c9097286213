//! Counts the work on two objects that the user chose.

use tollgate_json::document::Json;

/// The steps that are left. A step is a value that is read, a name that is looked up, or 64 bytes of text.
#[derive(Debug)]
pub(super) struct Steps(usize);

/// Enough steps for the largest object that etcd takes, which has less than a million values. All of them take some
/// tens of milliseconds.
const MOST: usize = 2_000_000;
const BYTES_PER_STEP: usize = 64;

// === impl Steps ===

impl Steps {
    #[cfg(test)]
    pub(super) fn new(steps: usize) -> Self {
        Self(steps)
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.0
    }

    /// Takes steps off. Returns none if too few are left.
    pub(super) fn take(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }

    /// Takes one step for a text, and further steps for a long text.
    pub(super) fn take_text(&mut self, text: &str) -> Option<()> {
        self.take(1 + text.len() / BYTES_PER_STEP)
    }

    /// Whether two values are equal, in the sense of `==`.
    pub(super) fn is_equal(&mut self, one: &Json, other: &Json) -> Option<bool> {
        self.take(1)?;
        if one.is_same(other) {
            return Some(true);
        }
        Some(match (one, other) {
            (Json::Text(one), Json::Text(other)) => {
                one.len() == other.len() && {
                    self.take_text(one)?;
                    one == other
                }
            }
            (Json::Array(one), Json::Array(other)) => {
                if one.len() != other.len() {
                    return Some(false);
                }
                for (one, other) in one.iter().zip(other.iter()) {
                    if !self.is_equal(one, other)? {
                        return Some(false);
                    }
                }
                true
            }
            (Json::Object(_), Json::Object(_)) => self.is_equal_but(one, other, &[])?,
            _ => false,
        })
    }

    /// Whether two objects have the same members, except those in `but`. False if one of the values is not an object.
    pub(super) fn is_equal_but(&mut self, one: &Json, other: &Json, but: &[&str]) -> Option<bool> {
        let (Some(members), Some(others)) = (one.as_object(), other.as_object()) else {
            return Some(false);
        };
        let excepted = |object: &tollgate_json::document::Object| {
            let names = but.iter().filter(|name| object.contains_key(**name));
            names.count()
        };
        if members.len() - excepted(members) != others.len() - excepted(others) {
            return Some(false);
        }
        for (name, value) in members {
            self.take_text(name)?;
            if but.contains(&&**name) {
                continue;
            }
            let Some(other) = others.get(name) else {
                return Some(false);
            };
            if !self.is_equal(value, other)? {
                return Some(false);
            }
        }
        Some(true)
    }
}

impl Default for Steps {
    fn default() -> Self {
        Self(MOST)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compares_like_equality_and_counts_steps() {
        let values = [
            json!(null),
            json!(1),
            json!("a"),
            json!("b"),
            json!([1, 2]),
            json!([2, 1]),
            json!({"a": 1, "b": {"c": "d"}}),
            json!({"b": {"c": "d"}, "a": 1}),
            json!({"a": 1, "b": {"c": "e"}}),
            json!({"a": 1}),
            json!({"a": 1, "c": {"c": "d"}}),
        ]
        .map(Json::from);
        for one in &values {
            for other in &values {
                let mut steps = Steps::default();
                assert_eq!(steps.is_equal(one, other), Some(one == other));
                assert!(steps.left() < MOST);
                assert_eq!(Steps::new(0).is_equal(one, other), None);
            }
        }
    }

    #[test]
    fn ignores_excluded_members_on_both_sides() {
        let object = |value| Json::from(value);
        let one = object(json!({"a": 1, "b": 2}));
        for (other, expected) in [
            (json!({"a": 1}), true),
            (json!({"a": 1, "b": 3}), true),
            (json!({"a": 2, "b": 2}), false),
            (json!({"a": 1, "c": 1}), false),
            (json!([]), false),
        ] {
            let found = Steps::default().is_equal_but(&one, &object(other.clone()), &["b"]);
            assert_eq!(found, Some(expected), "{other}");
        }
    }

    #[test]
    fn large_comparison_ends_when_steps_run_out() {
        let list = |last: u32| {
            let mut list: Vec<u32> = (0..100_000).collect();
            list.push(last);
            Json::from(json!(list))
        };
        let mut steps = Steps::new(1_000);
        assert_eq!(steps.is_equal(&list(1), &list(2)), None);
        assert_eq!(Steps::default().is_equal(&list(1), &list(2)), Some(false));
    }
}
