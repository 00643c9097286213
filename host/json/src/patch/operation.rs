//! The operations of RFC 6902, read strictly and written compactly.

use crate::document::{Json, Pointer, PointerError};

/// One operation of a JSON Patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds a member or an array element. An existing member is replaced.
    Add {
        /// The place to add the value at.
        path: Pointer,
        /// The value to add.
        value: Json,
    },
    /// Removes a member or an array element.
    Remove {
        /// The place of the value to remove.
        path: Pointer,
    },
    /// Replaces an existing value.
    Replace {
        /// The place of the value to replace.
        path: Pointer,
        /// The new value.
        value: Json,
    },
    /// Moves a value to another place.
    Move {
        /// The place to move the value from.
        from: Pointer,
        /// The place to move the value to.
        path: Pointer,
    },
    /// Copies a value to a second place.
    Copy {
        /// The place to copy the value from.
        from: Pointer,
        /// The place to copy the value to.
        path: Pointer,
    },
    /// Fails the whole patch unless the value at the place is equal.
    Test {
        /// The place to test.
        path: Pointer,
        /// The expected value.
        value: Json,
    },
}

/// Why a value is not a JSON Patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} of the patch cannot be read")]
pub struct OperationError {
    /// The operation's index, starting at 0. Also 0 if the patch as a whole is not an array.
    pub index: usize,
    /// The problem with the operation.
    #[source]
    pub kind: OperationErrorKind,
}

/// A problem with an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationErrorKind {
    /// The patch is not an array.
    #[error("expected a JSON Patch, which is an array of operations; found type {0}")]
    NotAnArray(&'static str),
    /// The operation is not an object.
    #[error("expected an operation, which is an object; found type {0}")]
    NotAnObject(&'static str),
    /// A required member is missing.
    #[error("it has no member `{0}`; add one")]
    Missing(&'static str),
    /// A member that has to be a string is not one.
    #[error("its member `{member}` must be a string, but is of type {found}")]
    NotAString {
        /// The name of the member.
        member: &'static str,
        /// The type that was found.
        found: &'static str,
    },
    /// RFC 6902 does not define the operation.
    #[error(
        "its `op` must be one of `add`, `remove`, `replace`, `move`, `copy` and `test` (in lower case)"
    )]
    UnknownName,
    /// A path is not a JSON Pointer.
    #[error("its member `{member}` is not a JSON Pointer")]
    BadPointer {
        /// The member's name, `path` or `from`.
        member: &'static str,
        /// The reason why it is not a pointer.
        #[source]
        source: PointerError,
    },
}

// === impl Operation ===

impl Operation {
    /// Returns the place that the operation is about. For a move or copy, this is the destination.
    #[must_use]
    pub fn path(&self) -> &Pointer {
        match self {
            Self::Add { path, .. }
            | Self::Remove { path }
            | Self::Replace { path, .. }
            | Self::Move { path, .. }
            | Self::Copy { path, .. }
            | Self::Test { path, .. } => path,
        }
    }

    /// Returns the operation's value, if it has one.
    #[must_use]
    pub fn value(&self) -> Option<&Json> {
        match self {
            Self::Add { value, .. } | Self::Replace { value, .. } | Self::Test { value, .. } => {
                Some(value)
            }
            Self::Remove { .. } | Self::Move { .. } | Self::Copy { .. } => None,
        }
    }

    /// Returns the operation's name in RFC 6902.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Remove { .. } => "remove",
            Self::Replace { .. } => "replace",
            Self::Move { .. } => "move",
            Self::Copy { .. } => "copy",
            Self::Test { .. } => "test",
        }
    }

    /// Appends the operation's JSON text.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"op\":\"");
        out.extend_from_slice(self.name().as_bytes());
        out.push(b'"');
        if let Self::Move { from, .. } | Self::Copy { from, .. } = self {
            write_pointer("from", from, out);
        }
        write_pointer("path", self.path(), out);
        if let Some(value) = self.value() {
            out.extend_from_slice(b",\"value\":");
            value.write(out);
        }
        out.push(b'}');
    }

    /// Reads a JSON Patch as defined by RFC 6902. Unknown members are ignored, and the members that an operation uses
    /// are required.
    ///
    /// # Errors
    /// Names the first operation that cannot be read.
    pub fn parse_all(patch: &Json) -> Result<Vec<Self>, OperationError> {
        let Some(elements) = patch.as_array() else {
            let kind = OperationErrorKind::NotAnArray(patch.type_name());
            return Err(OperationError { index: 0, kind });
        };
        elements
            .iter()
            .enumerate()
            .map(|(index, element)| {
                Self::parse(element).map_err(|kind| OperationError { index, kind })
            })
            .collect()
    }

    fn parse(element: &Json) -> Result<Self, OperationErrorKind> {
        if element.as_object().is_none() {
            return Err(OperationErrorKind::NotAnObject(element.type_name()));
        }
        let name = string(element, "op")?;
        let path = || pointer(element, "path");
        let from = || pointer(element, "from");
        let value = || {
            element
                .member("value")
                .cloned()
                .ok_or(OperationErrorKind::Missing("value"))
        };
        Ok(match name {
            "add" => Self::Add {
                path: path()?,
                value: value()?,
            },
            "remove" => Self::Remove { path: path()? },
            "replace" => Self::Replace {
                path: path()?,
                value: value()?,
            },
            "move" => Self::Move {
                from: from()?,
                path: path()?,
            },
            "copy" => Self::Copy {
                from: from()?,
                path: path()?,
            },
            "test" => Self::Test {
                path: path()?,
                value: value()?,
            },
            _ => return Err(OperationErrorKind::UnknownName),
        })
    }
}

/// Appends a whole JSON Patch.
pub fn write_all(operations: &[Operation], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, operation) in operations.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        operation.write(out);
    }
    out.push(b']');
}

fn write_pointer(member: &str, pointer: &Pointer, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(out, pointer.as_str()).expect("a string always serialises into a Vec");
}

fn string<'j>(element: &'j Json, member: &'static str) -> Result<&'j str, OperationErrorKind> {
    let value = element
        .member(member)
        .ok_or(OperationErrorKind::Missing(member))?;
    value.as_text().ok_or(OperationErrorKind::NotAString {
        member,
        found: value.type_name(),
    })
}

fn pointer(element: &Json, member: &'static str) -> Result<Pointer, OperationErrorKind> {
    Pointer::parse(string(element, member)?)
        .map_err(|source| OperationErrorKind::BadPointer { member, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(patch: serde_json::Value) -> Result<Vec<Operation>, OperationErrorKind> {
        Operation::parse_all(&Json::from(patch)).map_err(|error| error.kind)
    }

    #[test]
    fn operations_survive_round_trip() {
        let text = concat!(
            r#"[{"op":"add","path":"/a~1b","value":null},{"op":"remove","path":"/\"\n"},"#,
            r#"{"op":"replace","path":"","value":{"x":[1.0]}},{"op":"move","from":"/a","path":"/b"},"#,
            r#"{"op":"copy","from":"","path":"/-"},{"op":"test","path":"/ü","value":"<"}]"#
        );
        let patch = crate::document::parse(text.as_bytes(), 8).unwrap();
        let mut written = Vec::new();
        write_all(&Operation::parse_all(&patch).unwrap(), &mut written);
        assert_eq!(String::from_utf8(written).unwrap(), text);
    }

    #[test]
    fn ignores_members_that_rfc_6902_does_not_define() {
        let operations =
            parse(serde_json::json!([{"op": "remove", "path": "/a", "value": 1, "why": "b"}]))
                .unwrap();
        assert_eq!(
            operations,
            [Operation::Remove {
                path: Pointer::parse("/a").unwrap()
            }]
        );
    }

    #[test]
    fn rejects_values_that_are_not_patches() {
        use OperationErrorKind as Kind;
        for (patch, kind) in [
            (serde_json::json!({}), Kind::NotAnArray("object")),
            (serde_json::json!([1]), Kind::NotAnObject("number")),
            (serde_json::json!([{"path": ""}]), Kind::Missing("op")),
            (
                serde_json::json!([{"op": "Add", "path": "", "value": 1}]),
                Kind::UnknownName,
            ),
            (
                serde_json::json!([{"op": "add", "value": 1}]),
                Kind::Missing("path"),
            ),
            (
                serde_json::json!([{"op": "add", "path": "/a"}]),
                Kind::Missing("value"),
            ),
            (
                serde_json::json!([{"op": "move", "path": "/a"}]),
                Kind::Missing("from"),
            ),
            (
                serde_json::json!([{"op": "remove", "path": 1}]),
                Kind::NotAString {
                    member: "path",
                    found: "number",
                },
            ),
            (
                serde_json::json!([{"op": "remove", "path": "a"}]),
                Kind::BadPointer {
                    member: "path",
                    source: PointerError::NoLeadingSlash,
                },
            ),
        ] {
            assert_eq!(parse(patch.clone()), Err(kind), "{patch}");
        }
    }
}
