//! Every way in which a plugin can fail to answer, and how each is told from the others.
//!
//! A fault is read off typed values: a [`wasmtime::Trap`], a [`Stop`] that this host raised itself, an error type that
//! wasmtime makes public. The one type that it keeps to itself is recognised by an error of that type that the host has
//! provoked ([`Exhaustion`]). What is recognised as nothing is `engine-error`: no fault is found by elimination.

mod kinds;

use std::fmt;
use std::time::Duration;

pub(crate) use kinds::{UNLOADED, kinds};
use wasmtime::component::ResourceTableError;
use wasmtime::{GcHeapOutOfMemory, ThrownException, Trap};

use super::exhaustion::Exhaustion;
use super::meter::Spent;

/// The ways in which a plugin can fail to answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It used up its fuel.
    OutOfFuel {
        /// What it had.
        limit: u64,
    },
    /// It used up its CPU time.
    CpuDeadline {
        /// What it had.
        limit: Duration,
    },
    /// The time by the clock was up.
    Deadline {
        /// What there was for this call.
        allowed: Duration,
        /// What became of it; none when the plugin did not get to run.
        spent: Option<Spent>,
    },
    /// It wanted more memory, or table elements, than it may have.
    Memory(Stop),
    /// It trapped.
    Trap {
        /// The code that WebAssembly has for it; none when the plugin ended the call itself.
        code: Option<Trap>,
        /// What the plugin said before.
        abort: Option<Abort>,
    },
    /// It threw a WebAssembly exception that nothing caught.
    Exception,
    /// It handed more to the host than it may.
    OutputTooLarge {
        /// Which limit it went past.
        what: String,
    },
    /// It did not keep to the contract.
    ContractViolation {
        /// What it did.
        what: String,
    },
    /// Its patch cannot be applied, or makes something that Kubernetes could not take.
    BadPatch {
        /// Which operation, where, and why.
        what: String,
    },
    /// The whole object that it answered with has lost something.
    LossyObject {
        /// What is missing.
        what: String,
    },
    /// It could not be loaded, so it cannot be asked.
    NotLoaded {
        /// Why not.
        reason: String,
    },
    /// The object could not be shown to it: it is beyond a limit of the host's.
    Unreadable {
        /// Which limit.
        what: String,
    },
    /// Whether it is for the request could not be told.
    MatchCondition {
        /// Which condition, and why.
        what: String,
    },
    /// It changed what an earlier plugin wrote, and may not.
    Conflict {
        /// Where, and whose.
        what: String,
    },
    /// Called again on the final object it would change it once more.
    NotConverging {
        /// Where.
        what: String,
    },
    /// The engine ended the call with an error that this host does not know.
    EngineError {
        /// The engine's words.
        what: String,
    },
}

/// What a plugin said when it ended its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Its words.
    pub message: String,
    /// File, line and column in its own source.
    pub location: Option<(String, u32, u32)>,
}

/// Why the host ended a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The CPU time was used up.
    #[error("the CPU time is used up")]
    Cpu,
    /// The time by the clock was up.
    #[error("the time is up")]
    Wall,
    /// Too much memory was asked for.
    #[error(
        "it asked for {wanted_bytes} bytes of memory and may have {limit_bytes} (limits.memory)"
    )]
    Memory {
        /// What it would have had.
        wanted_bytes: u64,
        /// What it may have.
        limit_bytes: u64,
    },
    /// Too much memory, or too many table elements, were asked for; how much is not repeated.
    #[error("{}", super::WITHHELD)]
    Withheld,
    /// The heap for exceptions and other references was full.
    #[error("its heap for exceptions and references is full")]
    Heap,
    /// The system would not give the memory.
    #[error("the system did not give it the memory that it asked for")]
    System,
    /// A table was to have too many elements.
    #[error(
        "it asked for a table of {wanted_elements} elements and may have {limit_elements} (limits.tableElements)"
    )]
    Table {
        /// What it would have had.
        wanted_elements: u64,
        /// What it may have.
        limit_elements: u32,
    },
    /// Too much was handed to the host.
    #[error("it handed over more than {limit_bytes} bytes (limits.output)")]
    Output {
        /// What it may hand over.
        limit_bytes: u64,
    },
    /// The plugin ended the call.
    #[error("the plugin ended the call: {}", .0.message)]
    Abort(Abort),
    /// A host function was called with something that the contract forbids.
    #[error("{0}")]
    Contract(String),
}

// === impl Fault ===

impl Fault {
    /// Every kind that there is.
    pub const KINDS: [&str; 15] = [
        "out-of-fuel",
        "cpu-deadline",
        "deadline",
        "memory",
        "trap",
        "output-too-large",
        "contract-violation",
        "bad-patch",
        "lossy-object",
        "not-loaded",
        "unreadable",
        "match-condition",
        "conflict",
        "not-converging",
        "engine-error",
    ];

    /// The fault's name, as metrics, annotations and documentation have it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OutOfFuel { .. } => "out-of-fuel",
            Self::CpuDeadline { .. } => "cpu-deadline",
            Self::Deadline { .. } => "deadline",
            Self::Memory(_) => "memory",
            Self::Trap { .. } | Self::Exception => "trap",
            Self::OutputTooLarge { .. } => "output-too-large",
            Self::ContractViolation { .. } => "contract-violation",
            Self::BadPatch { .. } => "bad-patch",
            Self::LossyObject { .. } => "lossy-object",
            Self::NotLoaded { .. } => "not-loaded",
            Self::Unreadable { .. } => "unreadable",
            Self::MatchCondition { .. } => "match-condition",
            Self::Conflict { .. } => "conflict",
            Self::NotConverging { .. } => "not-converging",
            Self::EngineError { .. } => "engine-error",
        }
    }

    /// The same fault without anything that the plugin chose: a word, or a number made of what it has read.
    #[must_use]
    pub fn without_plugins_words(self) -> Self {
        let what = super::WITHHELD.to_owned();
        match self {
            Self::Trap {
                code,
                abort: Some(_),
            } => Self::Trap {
                code,
                abort: Some(Abort {
                    message: what,
                    location: None,
                }),
            },
            Self::Memory(_) => Self::Memory(Stop::Withheld),
            Self::OutputTooLarge { .. } => Self::OutputTooLarge { what },
            Self::ContractViolation { .. } => Self::ContractViolation { what },
            Self::BadPatch { .. } => Self::BadPatch { what },
            Self::LossyObject { .. } => Self::LossyObject { what },
            Self::EngineError { .. } => Self::EngineError { what },
            other => other,
        }
    }

    /// Reads an error that a guest's call ended with. `ended` is about the call, `exhaustion` knows wasmtime's private
    /// error.
    pub(super) fn read(error: &wasmtime::Error, ended: &Ended, exhaustion: &Exhaustion) -> Self {
        if let Some(stop) = error.downcast_ref::<Stop>() {
            return Self::stopped(stop, ended);
        }
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return match trap {
                Trap::OutOfFuel => Self::OutOfFuel { limit: ended.fuel },
                Trap::Interrupt => Self::CpuDeadline {
                    limit: ended.cpu_time,
                },
                // The heap could not grow as far as the allocation needs: what the limiter said of it is lost on the way.
                Trap::AllocationTooLarge => {
                    Self::Memory(ended.refused.clone().unwrap_or(Stop::Heap))
                }
                other => Self::Trap {
                    code: Some(*other),
                    abort: None,
                },
            };
        }
        if error.is::<ThrownException>() {
            return Self::Exception;
        }
        if error.is::<GcHeapOutOfMemory<()>>() {
            return Self::Memory(ended.refused.clone().unwrap_or(Stop::Heap));
        }
        if is_for_want_of_memory(error) {
            return Self::Memory(Stop::System);
        }
        if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
            let abort = Abort {
                message: format!("it exited with status {}", exit.0),
                location: None,
            };
            return Self::Trap {
                code: None,
                abort: Some(abort),
            };
        }
        if let Some(error) = error.downcast_ref::<ResourceTableError>() {
            return Self::ContractViolation {
                what: format!("it misused a WASI resource: {error}"),
            };
        }
        if error.is::<std::str::Utf8Error>() {
            return Self::ContractViolation {
                what: "it handed over text that is not UTF-8".to_owned(),
            };
        }
        let is_message = error.is::<&'static str>() || error.is::<String>();
        // In a call, a bare message is what the component model says of a value that the guest handed over. While an
        // instance is made, it can be about the pool as well.
        if is_message && !error.is::<Instantiating>() {
            return Self::ContractViolation {
                what: format!("what it returned cannot be read: {error}"),
            };
        }
        if !is_message && exhaustion.is(error) {
            return Self::OutputTooLarge {
                what: Stop::Output {
                    limit_bytes: ended.output_bytes,
                }
                .to_string(),
            };
        }
        Self::EngineError {
            what: format!("{error:#}"),
        }
    }

    fn stopped(stop: &Stop, ended: &Ended) -> Self {
        match stop {
            Stop::Cpu => Self::CpuDeadline {
                limit: ended.cpu_time,
            },
            Stop::Wall => Self::Deadline {
                allowed: ended.allowed,
                spent: Some(ended.spent),
            },
            Stop::Memory { .. }
            | Stop::Table { .. }
            | Stop::Heap
            | Stop::System
            | Stop::Withheld => Self::Memory(stop.clone()),
            Stop::Output { .. } => Self::OutputTooLarge {
                what: stop.to_string(),
            },
            Stop::Abort(abort) => Self::Trap {
                code: None,
                abort: Some(abort.clone()),
            },
            Stop::Contract(what) => Self::ContractViolation { what: what.clone() },
        }
    }
}

/// Whether the system refused memory, or what comes of it. In a call that is the host's trouble, not the plugin's.
pub(super) fn is_for_want_of_memory(error: &wasmtime::Error) -> bool {
    error
        .downcast_ref::<wasmtime::error::OutOfMemory>()
        .is_some()
        || error.downcast_ref::<std::io::Error>().is_some()
        || error.downcast_ref::<rustix::io::Errno>().is_some()
}

/// What a call had, and what it used: for the texts of its fault.
pub(super) struct Ended {
    pub(super) fuel: u64,
    pub(super) cpu_time: Duration,
    pub(super) spent: Spent,
    pub(super) allowed: Duration,
    pub(super) output_bytes: u64,
    /// The last growth of a memory that was refused.
    pub(super) refused: Option<Stop>,
}

/// Context of an error: it arose while an instance was made, before any function of the contract was called.
#[derive(Debug)]
pub(super) struct Instantiating;

impl fmt::Display for Instantiating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it cannot be instantiated")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfFuel { limit } => {
                write!(f, "out of fuel: it used all of its {limit} (limits.fuel)")
            }
            Self::CpuDeadline { limit } => {
                write!(
                    f,
                    "CPU time used up: it ran for {} (limits.cpuTime)",
                    Milliseconds(*limit)
                )
            }
            Self::Deadline {
                allowed,
                spent: Some(spent),
            } => write!(
                f,
                "deadline passed: of the {} that there were for it, {spent}",
                Milliseconds(*allowed)
            ),
            Self::Deadline {
                allowed,
                spent: None,
            } => {
                write!(
                    f,
                    "deadline passed: it could not be started in the {} that there were for it",
                    Milliseconds(*allowed)
                )
            }
            Self::Memory(stop) => write!(f, "too much memory: {stop}"),
            Self::Trap {
                abort: Some(abort), ..
            } => {
                write!(f, "it gave up: {}", abort.message)?;
                match &abort.location {
                    Some((file, line, column)) => write!(f, " (at {file}:{line}:{column})"),
                    None => Ok(()),
                }
            }
            Self::Trap {
                code: Some(code),
                abort: None,
            } => write!(f, "{code}"),
            Self::Trap {
                code: None,
                abort: None,
            } => f.write_str("trap"),
            Self::Exception => f.write_str("it threw an exception that nothing caught"),
            Self::OutputTooLarge { what } => write!(f, "output too large: {what}"),
            Self::ContractViolation { what } => write!(f, "contract violation: {what}"),
            Self::BadPatch { what } => write!(f, "bad patch: {what}"),
            Self::LossyObject { what } => write!(f, "lossy object: {what}"),
            Self::NotLoaded { reason } => write!(f, "not loaded: {reason}"),
            Self::Unreadable { what } => write!(f, "cannot be reviewed: {what}"),
            Self::MatchCondition { what } => f.write_str(what),
            Self::Conflict { what } => write!(f, "conflict: {what}"),
            Self::NotConverging { what } => write!(f, "not converging: {what}"),
            Self::EngineError { what } => write!(f, "engine error: {what}"),
        }
    }
}

/// A duration as people compare them: `3 ms`, `0.4 ms`.
pub(super) struct Milliseconds(pub(super) Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_secs_f64() * 1000.0;
        if milliseconds >= 10.0 {
            write!(f, "{milliseconds:.0} ms")
        } else {
            write!(f, "{milliseconds:.1} ms")
        }
    }
}

/// An error and everything that it was caused by, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
