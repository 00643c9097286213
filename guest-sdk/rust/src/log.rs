//! The plugin's log: [`error!`](crate::error), [`warn!`](crate::warn), [`info!`](crate::info),
//! [`debug!`](crate::debug) and [`trace!`](crate::trace), written like `format!`.
//!
//! Leave out the object's values, because they may be secret. Write pointers instead.

use std::fmt;

use crate::host;

pub use crate::bindings::imports::tollgate::admission::logging::Level;

/// Writes one message to the host's log.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    match message.as_str() {
        Some(text) => host::log(level, text),
        None => host::log(level, &message.to_string()),
    }
}

/// Logs a failure.
#[macro_export]
macro_rules! error {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Error, ::core::format_args!($($message)+)) };
}

/// Logs a likely problem. For a message to the user, use [`Review::warn`](crate::Review::warn).
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Warn, ::core::format_args!($($message)+)) };
}

/// Logs useful information in normal operation.
///
/// ```
/// # use tollgate_sdk::{Mutate, Mutation, Denial, Review};
/// # fn mutate(review: &Review) {
/// let pods = review.object().length("/items").unwrap_or(0);
/// tollgate_sdk::info!("looked at {pods} pods");
/// # }
/// ```
#[macro_export]
macro_rules! info {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Info, ::core::format_args!($($message)+)) };
}

/// Logs details for debugging.
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Debug, ::core::format_args!($($message)+)) };
}

/// Logs every single step.
#[macro_export]
macro_rules! trace {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Trace, ::core::format_args!($($message)+)) };
}
