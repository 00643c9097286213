//! The contract's imports: the host itself in a plugin, and a test review everywhere else.
//!
//! Only this file knows the difference. All other code uses these functions.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::imports::tollgate::admission::{
    logging::{abort, log},
    review::{annotate, get, get_json, get_many, keys, request, select, warn},
};

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::host::{
    annotate, get, get_json, get_many, keys, log, request, select, warn,
};

#[cfg(all(target_arch = "wasm32", feature = "clock"))]
pub(crate) use crate::bindings::clock::tollgate::admission::clock::now;

#[cfg(all(not(target_arch = "wasm32"), feature = "clock"))]
pub(crate) use crate::testing::host::now;

#[cfg(all(target_arch = "wasm32", feature = "access"))]
pub(crate) use crate::bindings::access::tollgate::admission::{
    access::check as check_access, grants::access as has_access,
};

#[cfg(all(not(target_arch = "wasm32"), feature = "access"))]
pub(crate) use crate::testing::access::{check_access, has_access};

#[cfg(all(target_arch = "wasm32", feature = "cluster"))]
pub(crate) use crate::bindings::cluster::tollgate::admission::cluster as lookups;

#[cfg(all(not(target_arch = "wasm32"), feature = "cluster"))]
pub(crate) use crate::testing::lookups;

#[cfg(all(target_arch = "wasm32", feature = "images"))]
pub(crate) use crate::bindings::images::tollgate::admission::images::verify as verify_images;

#[cfg(all(not(target_arch = "wasm32"), feature = "images"))]
pub(crate) use crate::testing::images::verify_images;
