//! JSON documents, and the patches between them.
//!
//! - [`document`] reads documents within a bounded amount of memory, and finds values by JSON pointer.
//! - [`patch`] defines what a mutation may change, and how kube-apiserver is told.

pub mod document;
pub mod patch;
