//! The path of a review through the plugins.
//!
//! ```text
//! decode → snapshot of the plugin set
//!   mutate:   for each mutator in order: match → call → apply → check → compare → the next one sees it
//!   validate: all that match, on the object as it came; every denial is collected
//! → merge (pure) → respond;  audited plugins and shadows run after that
//! ```

pub(crate) mod audit;
mod blocking;
mod canary;
mod compare;
mod gate;
mod identity;
pub mod matching;
pub mod merge;
mod mutate;
pub mod outcome;
pub mod passed_over;
mod record;
pub mod respond;
mod rollout;
mod template;
mod turn;
mod unserved;
mod validate;

pub(crate) use gate::Reviewed;
pub use gate::{Examined, Pipeline};
#[doc(hidden)]
pub use validate::fuzzing;
