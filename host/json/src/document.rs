//! The JSON document of a review: parsed once, shared by every plugin, and changed by copying paths.
//!
//! [`Json`] has three advantages over `serde_json::Value`:
//!
//! - A clone costs one reference count.
//! - A change copies only the containers on its path.
//! - A comparison of two versions of an object skips everything that they still share.
//!
//! So the cost of a mutation, of its diff and of the merged patch depends on what changed, not on the object's size.
//! Members keep their order, and numbers keep their exact text.

mod build;
mod index;
mod json;
mod lazy;
mod level;
mod parse;
mod pointer;
pub(crate) mod room;
mod scan;
mod select;
mod write;

pub(crate) use json::is_same_name;
pub use json::{Json, Number, Object, sensible_capacity};
pub use lazy::index_within;
pub use level::{Level, Shown};
pub use parse::{
    MAX_VALUES, ParseError, ParseErrorKind, parse, parse_prefix_member, parse_up_to, parse_within,
};
pub use pointer::{ArrayIndex, Pointer, PointerError, array_index};
pub use room::{Account, NoRoom, Room};
pub use select::{Node, Pattern};
