//! What Tollgate says about itself: [`metrics`] for Prometheus, and [`logs`] without any content of objects.

pub mod logs;
pub mod metrics;
