//! From the core module that a compiler leaves to a component that Tollgate takes.
//!
//! Rust needs none of this: `wit-bindgen` puts the contract into the module, and the host does the rest. Other
//! compilers know nothing of the component model, or cannot be kept from importing WASI:
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
