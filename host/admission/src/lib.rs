//! AdmissionReviews, and the types that the parts of Tollgate exchange about them.
//!
//! - [`review`] reads the wire format.
//! - [`Call`] and [`Reply`] are what the server and a [`Gate`] exchange.
//! - [`Denial`] is a plugin's denial in its own words, and [`Cost`] what a call took.
//! - [`access`] is what a user may do, and who knows.
//! - [`images`] is whether container images are signed as a policy requires, and who verifies them.
//! - [`namespaces`] is the Namespace of a request, and where it is looked up.
//! - [`canary`] are requests that show that a webhook is called.
//! - [`tokens`] are tokens of the cluster, and who verifies them.
//! - [`search`] selects some of the kept decisions, and [`scan`] results of the background scan.
//! - [`trace`] is the trace that a review belongs to, and who observes its calls.
//! - [`text`] makes text from plugins safe for its destination.

pub mod access;
mod call;
pub mod canary;
mod chain;
mod cost;
pub mod images;
mod instance;
pub mod namespaces;
pub mod review;
pub mod scan;
pub mod search;
pub mod text;
pub mod tokens;
pub mod trace;
mod verdict;

pub use call::{
    Body, Call, Endpoint, Gate, Readiness, Reloaded, Reply, RolloutAnswer, RolloutChange,
};
pub use chain::chain;
pub use cost::{Cost, Phase};
pub use instance::{COMPLETE, INSTANCE, Instance};
pub use verdict::{Cause, Denial};
