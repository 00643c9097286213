//! The plugin's log: [`error!`](crate::error), [`warn!`](crate::warn), [`info!`](crate::info),
//! [`debug!`](crate::debug) and [`trace!`](crate::trace), written like `format!`.
//!
//! Leave out the object's values: they may be secret. Pointers say enough.

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

/// Logs that something failed.
#[macro_export]
macro_rules! error {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Error, ::core::format_args!($($message)+)) };
}

/// Logs that something is likely to be wrong. (What the user should read is for
/// [`Review::warn`](crate::Review::warn).)
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Warn, ::core::format_args!($($message)+)) };
}

/// Logs what is worth knowing in normal operation.
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

/// Logs for whoever looks for a fault.
#[macro_export]
macro_rules! debug {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Debug, ::core::format_args!($($message)+)) };
}

/// Logs every step.
#[macro_export]
macro_rules! trace {
    ($($message:tt)+) => { $crate::log::write($crate::log::Level::Trace, ::core::format_args!($($message)+)) };
}
