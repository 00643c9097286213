//! The SDK's allocator, whose tests Miri runs: `cargo +nightly miri test`.
//!
//! Plugins are built with this same file. Miri finds errors that the tests cannot detect: reads and writes outside of a
//! block, reads of uninitialized memory, accesses through invalid pointers, and unintended leaks.
#![cfg(test)]

#[path = "../../../guest-sdk/rust/src/allocator.rs"]
mod allocator;
