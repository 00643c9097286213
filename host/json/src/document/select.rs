//! Patterns: pointers in which `*` stands for any member or element.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use super::pointer::push_token;
use super::{Json, Pointer, PointerError};

/// A JSON Pointer in which a token `*` matches every element of an array and every member of an object.
pub struct Pattern<'p>(Vec<Cow<'p, str>>);

/// A place that a pattern matched.
pub struct Node<'d> {
    /// The pointer to the place.
    pub pointer: String,
    /// The value at the place.
    pub value: &'d Json,
}

// === impl Pattern ===

impl<'p> Pattern<'p> {
    /// Parses a pattern strictly.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub fn parse(text: &'p str) -> Result<Self, PointerError> {
        Pointer::check(text)?;
        Ok(Self(
            text.split('/')
                .skip(1)
                .map(|token| {
                    if token.contains('~') {
                        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
                    } else {
                        Cow::Borrowed(token)
                    }
                })
                .collect(),
        ))
    }

    /// Passes every matching place to `found`, in document order.
    ///
    /// `step` is called before each value that is visited, matching or not, and may end the walk. No value is visited
    /// twice, so the cost is linear in the document.
    pub fn select<'d, B>(
        &self,
        document: &'d Json,
        mut step: impl FnMut() -> ControlFlow<B>,
        mut found: impl FnMut(Node<'d>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        walk(&self.0, document, &mut String::new(), &mut step, &mut found)
    }
}

fn walk<'d, B>(
    tokens: &[Cow<'_, str>],
    here: &'d Json,
    pointer: &mut String,
    step: &mut impl FnMut() -> ControlFlow<B>,
    found: &mut impl FnMut(Node<'d>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    step()?;
    let Some((token, rest)) = tokens.split_first() else {
        return found(Node {
            pointer: pointer.clone(),
            value: here,
        });
    };
    let length = pointer.len();
    match here {
        Json::Array(elements) if token == "*" => {
            for (index, element) in elements.iter().enumerate() {
                write!(pointer, "/{index}").expect("a String takes every write");
                walk(rest, element, pointer, step, found)?;
                pointer.truncate(length);
            }
        }
        Json::Object(members) if token == "*" => {
            for (name, value) in members.iter() {
                push_token(pointer, name);
                walk(rest, value, pointer, step, found)?;
                pointer.truncate(length);
            }
        }
        _ => {
            if let Some(value) = here.child(token) {
                push_token(pointer, token);
                walk(rest, value, pointer, step, found)?;
                pointer.truncate(length);
            }
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(document: &serde_json::Value, pattern: &str) -> Vec<String> {
        let document = Json::from(document.clone());
        let mut places = Vec::new();
        let end: ControlFlow<()> = Pattern::parse(pattern).unwrap().select(
            &document,
            || ControlFlow::Continue(()),
            |node| {
                assert!(
                    document
                        .at(&node.pointer)
                        .unwrap()
                        .unwrap()
                        .is_same(node.value)
                );
                places.push(node.pointer);
                ControlFlow::Continue(())
            },
        );
        assert!(end.is_continue());
        places
    }

    #[test]
    fn star_matches_elements_and_members() {
        let pod = serde_json::json!({"spec": {
            "containers": [{"image": "a"}, {"name": "no image"}, {"image": "b"}],
            "a/b": {"image": "c"},
            "n": 1
        }});
        assert_eq!(
            select(&pod, "/spec/containers/*/image"),
            ["/spec/containers/0/image", "/spec/containers/2/image"]
        );
        assert_eq!(select(&pod, "/spec/*/image"), ["/spec/a~1b/image"]);
        assert_eq!(
            select(&pod, "/spec/containers/1/name"),
            ["/spec/containers/1/name"]
        );
        assert_eq!(select(&pod, "/spec/n/*"), Vec::<String>::new());
        assert_eq!(select(&pod, ""), [""]);
    }

    #[test]
    fn walk_ends_when_step_says_so() {
        let document = Json::from(serde_json::json!([[1, 2], [3, 4]]));
        let mut steps = 0;
        let end = Pattern::parse("/*/*").unwrap().select(
            &document,
            || {
                steps += 1;
                if steps > 3 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
            |_| ControlFlow::Continue(()),
        );
        assert!(end.is_break());
    }
}
