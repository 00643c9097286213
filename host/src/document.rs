//! The JSON document that a review turns on: parsed once, shared by every plugin, changed by path copying.
//!
//! Why not `serde_json::Value`: a clone of [`Json`] is one reference count, a change copies only the
//! containers on its path, and comparing two versions of an object skips everything they still share. So the
//! cost of a mutation, of the difference it made and of the merged patch follows what changed, not the
//! object's size. Members keep their order and numbers their exact text.

mod json;
mod parse;
mod pointer;
pub(crate) mod room;
mod select;
mod write;

pub use json::{Json, Number, Object, sensible_capacity};
pub use parse::{
    MAX_VALUES, ParseError, ParseErrorKind, parse, parse_prefix_member, parse_up_to, parse_within,
};
pub use pointer::{ArrayIndex, Pointer, PointerError, array_index};
pub use room::{Account, NoRoom, Room};
pub use select::{Node, Pattern};
