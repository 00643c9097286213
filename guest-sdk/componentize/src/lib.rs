//! Turns a compiler's core module into a component that Tollgate accepts.
//!
//! Rust does not need this crate: `wit-bindgen` puts the contract into the module, and the host does the rest. Other
//! compilers don't know the component model, or always import WASI:
//!
//! ```text
//! core module ─→ which interfaces of the contract does it import and export?   contract
//!             ─→ does it import WASI's first preview? then with a stub for it  wasi
//!             ─→ component, without a single import outside of the contract    component
//! ```

mod component;
mod contract;
mod wasi;

pub use component::{ComponentizeError, componentize};
pub use contract::CONTRACT_VERSION;
