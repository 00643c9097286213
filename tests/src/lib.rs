//! The harness of the end-to-end suites.
//!
//! The suites use the host like an operator. They start the `tollgate` binary with a configuration file, send
//! AdmissionReviews over TLS, and read answers, logs, metrics and exit codes. This crate does not link the host, so no
//! test can pass because of something that a user could not see.
//!
//! ```text
//! wat ──────┐
//! hostile ──┼─→ *.wasm ─→ configuration ─→ server ──(TLS)─→ answer ─→ checker
//! guests ───┘                             ↑    └──→ logs, /metrics, /plugins
//!                              reviews ───┘
//! ```

pub mod binary;
pub mod checker;
pub mod configuration;
pub mod floods;
pub mod guests;
pub mod hostile;
pub mod kubernetes;
pub mod languages;
pub mod port;
pub mod registry;
pub mod reviews;
pub mod server;
pub mod wat;

/// Prints that a test was skipped, past the harness, which swallows the output of passing tests. `cargo xtask test`
/// counts it as skipped.
///
/// # Panics
/// If standard error is closed.
pub fn left_out(what: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {what}").expect("stderr takes it");
}
