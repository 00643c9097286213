//! The harness that the end-to-end suites share.
//!
//! The suites know the host only as an operator does. The suites start the `tollgate` binary with a configuration file,
//! send AdmissionReviews over TLS, and read answers, logs, metrics and exit codes. Nothing here links the host, so no
//! test can pass because of something that a user could not see.
//!
//! ```text
//! wat ──────┐
//! hostile ──┼─→ *.wasm ─→ configuration ─→ server ──(TLS)─→ answer ─→ checker
//! guests ───┘                             ↑    └──→ logs, /metrics, /plugins
//!                              reviews ───┘
//! ```

pub mod binary;
pub mod chart;
pub mod checker;
pub mod cli;
pub mod collector;
pub mod configuration;
pub mod floods;
pub mod guests;
pub mod hostile;
pub mod kubernetes;
pub mod languages;
pub mod playground;
pub mod pod;
pub mod port;
pub mod process;
pub mod registry;
pub mod reviews;
pub mod server;
pub mod wat;

/// Reports a skipped test past the test harness, which hides the output of a passing test. `cargo xtask test` counts
/// these lines.
///
/// # Panics
/// Panics if standard error is closed.
pub fn left_out(what: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {what}").expect("stderr takes it");
}
