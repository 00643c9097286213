//! JSON Schemas for editors, derived from the readers themselves.
//!
//! A reader asks for keys, and for a form of value at each key. [`derive()`] runs the reader over small documents. It
//! notes the keys that the reader asks for, and fills them in until there is no new key. A key is thus in the schema
//! exactly if the reader asks for it. Only the descriptions are written by hand, and tests compare them with the keys.

mod config;
mod descriptions;
mod render;
mod trace;
mod violations;

pub use config::config;
pub use descriptions::{CONFIG_DESCRIPTIONS, Description};
pub use render::{Head, described, render, require_alternative};
pub use trace::{Shape, Trace, Values, derive};
pub use violations::violations;

#[cfg(test)]
mod tests;

/// The address at which a schema is published.
#[must_use]
pub fn address(name: &str) -> String {
    format!("https://raw.githubusercontent.com/tollgate-dev/tollgate/main/docs/schemas/{name}.json")
}
