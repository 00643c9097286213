//! Why a patch does not apply.

use crate::document::{NoRoom, Pointer};
use crate::patch::Shown;

/// An operation that could not be applied; none of the patch was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} of the patch (`{operation}` at {}) does not apply", Shown(.path))]
pub struct ApplyError {
    /// Which operation, from 0.
    pub index: usize,
    /// Its name.
    pub operation: &'static str,
    /// Its path.
    pub path: Pointer,
    /// What was wrong.
    #[source]
    pub kind: ApplyErrorKind,
}

/// Why an operation does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyErrorKind {
    /// A container on the way is not there.
    #[error("there is nothing at {}; add that first", Shown(.0))]
    ParentMissing(Pointer),
    /// A value on the way has neither members nor elements.
    #[error("{} is of type {found} and holds nothing; an object or an array was expected", Shown(.at))]
    NotAContainer {
        /// Where.
        at: Pointer,
        /// Its type.
        found: &'static str,
    },
    /// The last token names no place in the array.
    #[error("{} is an array: its places are `0`, `1`, … and, for `add` only, `-`", Shown(.array))]
    NotAnIndex {
        /// The array.
        array: Pointer,
    },
    /// The index lies behind the end.
    #[error("{} has {length} elements; the index lies behind its end", Shown(.array))]
    IndexOutOfBounds {
        /// The array.
        array: Pointer,
        /// Its length.
        length: usize,
    },
    /// The object has no such member.
    #[error("there is no member {}", Shown(.0))]
    MemberMissing(Pointer),
    /// A `test` found another value.
    #[error("another value stands there than the one tested for")]
    TestFailed,
    /// A value was to move into itself.
    #[error("{} cannot move into itself", Shown(.from))]
    MoveIntoOwnChild {
        /// The value.
        from: Pointer,
    },
    /// The whole document was to be removed.
    #[error("the root cannot be removed; replace it instead")]
    RemoveRoot,
    /// The result would be nested too deep.
    #[error("the result would be nested deeper than {max_depth} levels (`max_depth`)")]
    TooDeep {
        /// The limit.
        max_depth: u32,
    },
    /// The patch puts too many values in.
    #[error("the patch puts in more than {max_added_nodes} values (`max_added_nodes`)")]
    TooManyNodes {
        /// The limit.
        max_added_nodes: usize,
    },
    /// The patch puts too much text in.
    #[error("the patch puts in more than {max_added_bytes} bytes (`max_added_bytes`)")]
    TooManyBytes {
        /// The limit.
        max_added_bytes: usize,
    },
    /// There is no memory for the containers that it copies.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// The patch is too much work.
    #[error(
        "applying the patch takes more than {max_steps} steps, which is fixed; use fewer operations"
    )]
    TooManySteps {
        /// The limit.
        max_steps: usize,
    },
}
