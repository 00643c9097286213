//! Signals about Tollgate itself: [`metrics`] for Prometheus, and [`logs`] without any content of objects.

pub mod logs;
pub mod metrics;
