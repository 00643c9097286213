//! AdmissionReviews, and the types that the parts of Tollgate exchange about them.
//!
//! - [`review`] reads the wire format.
//! - [`Call`] and [`Reply`] are what the server and a [`Gate`] exchange.
//! - [`Denial`] is a plugin's denial in its own words, and [`Cost`] what a call took.
//! - [`namespaces`] is the Namespace of a request, and where it is looked up.
//! - [`tokens`] are tokens of the cluster, and who verifies them.
//! - [`text`] makes text from plugins safe for its destination.

mod call;
mod chain;
mod cost;
mod instance;
pub mod namespaces;
pub mod review;
pub mod text;
pub mod tokens;
mod verdict;

pub use call::{Body, Call, Endpoint, Gate, Readiness, Reloaded, Reply};
pub use chain::chain;
pub use cost::{Cost, Phase};
pub use instance::{COMPLETE, INSTANCE, Instance};
pub use verdict::{Cause, Denial};
