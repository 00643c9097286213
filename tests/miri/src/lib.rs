//! The SDK's allocator, whose tests Miri runs: `cargo +nightly miri test`.
//!
//! It is the very file that plugins are built with. Miri finds what its tests cannot see of themselves: reads and writes
//! outside of a block, of memory that nobody has written, through pointers that may not be used any more, and leaks of what
//! the tests do not mean to leak.
#![cfg(test)]

#[path = "../../../guest-sdk/rust/src/allocator.rs"]
mod allocator;
