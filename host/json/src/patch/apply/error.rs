//! The reasons why a patch does not apply.

use crate::document::{NoRoom, Pointer};
use crate::patch::Shown;

/// An operation that could not be applied. The whole patch is then not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} of the patch (`{operation}` at {}) does not apply", Shown(.path))]
pub struct ApplyError {
    /// The operation's index, starting at 0.
    pub index: usize,
    /// The operation's name.
    pub operation: &'static str,
    /// The operation's path.
    pub path: Pointer,
    /// The reason why it does not apply.
    #[source]
    pub kind: ApplyErrorKind,
}

/// Why an operation does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyErrorKind {
    /// A container on the path does not exist.
    #[error("nothing exists at {}; add it first", Shown(.0))]
    ParentMissing(Pointer),
    /// A value on the path has neither members nor elements.
    #[error("{} is of type {found}; expected an object or an array", Shown(.at))]
    NotAContainer {
        /// The place of the value.
        at: Pointer,
        /// The type of the value.
        found: &'static str,
    },
    /// The last token is not an index of the array.
    #[error("{} is an array: its indexes are `0`, `1`, … and, for `add` only, `-`", Shown(.array))]
    NotAnIndex {
        /// The place of the array.
        array: Pointer,
    },
    /// The index is beyond the end of the array.
    #[error("{} has {length} elements; the index is past its end", Shown(.array))]
    IndexOutOfBounds {
        /// The place of the array.
        array: Pointer,
        /// The length of the array.
        length: usize,
    },
    /// The object has no such member.
    #[error("there is no member {}", Shown(.0))]
    MemberMissing(Pointer),
    /// A `test` found another value.
    #[error("the value there differs from the tested one")]
    TestFailed,
    /// The operation would move a value into itself.
    #[error("{} cannot move into itself", Shown(.from))]
    MoveIntoOwnChild {
        /// The place of the value.
        from: Pointer,
    },
    /// The operation would remove the whole document.
    #[error("the root cannot be removed; replace it instead")]
    RemoveRoot,
    /// The result would be nested too deep.
    #[error("the result would be nested deeper than {max_depth} levels (`max_depth`)")]
    TooDeep {
        /// The limit that was exceeded.
        max_depth: u32,
    },
    /// The patch adds too many values.
    #[error("the patch adds more than {max_added_nodes} values (`max_added_nodes`)")]
    TooManyNodes {
        /// The limit that was exceeded.
        max_added_nodes: usize,
    },
    /// The patch adds too much text.
    #[error("the patch adds more than {max_added_bytes} bytes (`max_added_bytes`)")]
    TooManyBytes {
        /// The limit that was exceeded.
        max_added_bytes: usize,
    },
    /// The memory for containers that the patch copies is not available.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// Applying the patch takes too many steps.
    #[error(
        "applying the patch takes more than {max_steps} steps (a fixed limit); use fewer operations"
    )]
    TooManySteps {
        /// The limit that was exceeded.
        max_steps: usize,
    },
}
