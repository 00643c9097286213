//! Defines all faults, and tells which fault a failed call ended with.
//!
//! A fault is derived from a typed value:
//!
//! - A [`wasmtime::Trap`].
//! - A [`Stop`] that this host raised.
//! - An error type that wasmtime makes public.
//! - The one relevant error type that wasmtime keeps private. The host compares it with an error of that type that it
//!   has provoked itself ([`Exhaustion`]).
//!
//! Any other error becomes `engine-error`. The host never finds a fault kind by elimination.

mod kinds;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use kinds::{UNLOADED, kinds};
use wasmtime::component::ResourceTableError;
use wasmtime::{GcHeapOutOfMemory, ThrownException, Trap};

use super::exhaustion::Exhaustion;
use super::meter::Spent;

/// A plugin's failure to answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The plugin used up its fuel.
    OutOfFuel {
        /// Fuel limit of the call.
        limit: u64,
    },
    /// The plugin used up its CPU time.
    CpuDeadline {
        /// CPU time limit of the call.
        limit: Duration,
    },
    /// The wall-clock deadline passed.
    Deadline {
        /// Wall-clock time that the call was allowed.
        allowed: Duration,
        /// How the call spent its time; `None` if the plugin did not start to run.
        spent: Option<Spent>,
    },
    /// The plugin wanted more memory or table elements than it may have.
    Memory(Stop),
    /// The plugin trapped.
    Trap {
        /// WebAssembly trap code; `None` if the plugin ended the call itself.
        code: Option<Trap>,
        /// The plugin's message when it ended the call.
        abort: Option<Abort>,
    },
    /// The plugin threw a WebAssembly exception that nothing caught.
    Exception,
    /// The plugin handed more to the host than its limit allows.
    OutputTooLarge {
        /// The limit that the plugin exceeded.
        what: String,
    },
    /// The plugin violated the contract.
    ContractViolation {
        /// How the plugin violated the contract.
        what: String,
    },
    /// The plugin's patch cannot be applied, or its result is not acceptable to Kubernetes.
    BadPatch {
        /// The operation, its place and the reason.
        what: String,
    },
    /// The plugin answered with a whole object that has lost data.
    LossyObject {
        /// The data that is missing.
        what: String,
    },
    /// The plugin could not be loaded, so it cannot be called.
    NotLoaded {
        /// The reason why it could not be loaded.
        reason: String,
    },
    /// The host cannot show the object to the plugin, because the object exceeds a limit of the host.
    Unreadable {
        /// The limit that the object exceeds.
        what: String,
    },
    /// A match condition could not be evaluated, so the host cannot tell whether the plugin applies to the request.
    MatchCondition {
        /// The condition, and the reason why it failed.
        what: String,
    },
    /// The plugin, its `namespaceSelector` or one of its conditions needs the Namespace of the request, and the host
    /// cannot find out about it.
    NamespaceUnavailable {
        /// The namespace, and the reason.
        what: String,
    },
    /// The plugin asked what a user may do, and kube-apiserver has not answered before the call's time limit.
    AccessUnavailable {
        /// The reason.
        what: String,
    },
    /// The call could not begin, because the plugin's namespace, or all namespaces together, have used up their budget.
    TenantBudget {
        /// The budget.
        what: String,
    },
    /// The plugin changed a value that an earlier plugin wrote, which its configuration forbids.
    Conflict {
        /// The place, and the plugin that wrote the value.
        what: String,
    },
    /// When called again on the final object, the plugin would change the object once more.
    NotConverging {
        /// The place of the further change.
        what: String,
    },
    /// A member of a group failed, and the verdict of the group depends on it. The kind is that of the member's fault.
    OfMember {
        /// The name of the member.
        member: Arc<str>,
        /// The fault of the member.
        fault: Box<Self>,
    },
    /// The engine ended the call with an error that this host does not know.
    EngineError {
        /// The engine's error message.
        what: String,
    },
}

/// A plugin's message when it ended its call itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The plugin's text.
    pub message: String,
    /// File, line and column in the plugin's source.
    pub location: Option<(String, u32, u32)>,
}

/// Why the host ended a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The CPU time was used up.
    #[error("the CPU time is used up")]
    Cpu,
    /// The wall-clock deadline passed.
    #[error("the deadline has passed")]
    Wall,
    /// The plugin asked for too much memory.
    #[error("the plugin asked for {wanted_bytes} bytes and may have {limit_bytes} (limits.memory)")]
    Memory {
        /// Memory that the plugin would have had, in bytes.
        wanted_bytes: u64,
        /// Memory that the plugin may have, in bytes.
        limit_bytes: u64,
    },
    /// The plugin asked for too much memory or too many table elements. The amount is withheld.
    #[error("{}", super::WITHHELD)]
    Withheld,
    /// The plugin's heap for exceptions and other references was full.
    #[error("the plugin's heap for exceptions and references is full")]
    Heap,
    /// The system refused to give the memory.
    #[error("the system refused the memory that the plugin asked for")]
    System,
    /// The plugin asked for a table with too many elements.
    #[error(
        "the plugin asked for a table of {wanted_elements} elements and may have {limit_elements} (limits.tableElements)"
    )]
    Table {
        /// Number of elements that the table would have had.
        wanted_elements: u64,
        /// Number of elements that a table may have.
        limit_elements: u32,
    },
    /// The plugin handed too much to the host.
    #[error("the plugin's output in this call exceeds {limit_bytes} bytes (limits.output)")]
    Output {
        /// Number of bytes that the plugin may hand over.
        limit_bytes: u64,
    },
    /// The plugin ended the call.
    #[error("the plugin aborted the call: {}", .0.message)]
    Abort(Abort),
    /// The plugin called a host function in a way that the contract forbids.
    #[error("{0}")]
    Contract(String),
    /// The plugin asked for the Namespace of the request, which the host could not look up.
    #[error("{0}")]
    Namespace(String),
    /// The plugin asked for the Namespace of the request, which nobody has looked up yet. The host makes the call again
    /// after the lookup.
    #[error("the namespace has to be looked up first")]
    AwaitsNamespace,
    /// The plugin asked about a right that nobody has looked up yet. The host makes the call again after the answer.
    #[error("kube-apiserver has to be asked about a right first")]
    AwaitsAccess,
    /// The plugin asked about images that nobody has verified yet. The host makes the call again after the answers.
    #[error("registries have to be asked about images first")]
    AwaitsImages,
}

// === impl Fault ===

impl Fault {
    /// Names of all fault kinds.
    pub const KINDS: [&str; 18] = [
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
        "namespace-unavailable",
        "access-unavailable",
        "tenant-budget",
        "conflict",
        "not-converging",
        "engine-error",
    ];

    /// The fault's name in metrics, annotations and the documentation.
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
            Self::NamespaceUnavailable { .. } => "namespace-unavailable",
            Self::AccessUnavailable { .. } => "access-unavailable",
            Self::TenantBudget { .. } => "tenant-budget",
            Self::Conflict { .. } => "conflict",
            Self::NotConverging { .. } => "not-converging",
            Self::OfMember { fault, .. } => fault.kind(),
            Self::EngineError { .. } => "engine-error",
        }
    }

    /// Removes everything that the plugin chose: its words, and numbers that may be derived from data that it read.
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
            Self::OfMember { member, fault } => Self::OfMember {
                member,
                fault: Box::new(fault.without_plugins_words()),
            },
            other => other,
        }
    }

    /// Derives the fault from the error that a guest's call ended with.
    ///
    /// `ended` describes the call. `exhaustion` recognises wasmtime's private error.
    pub(crate) fn read(error: &wasmtime::Error, ended: &Ended, exhaustion: &Exhaustion) -> Self {
        if let Some(stop) = error.downcast_ref::<Stop>() {
            return Self::stopped(stop, ended);
        }
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return match trap {
                Trap::OutOfFuel => Self::OutOfFuel { limit: ended.fuel },
                Trap::Interrupt => Self::CpuDeadline {
                    limit: ended.cpu_time,
                },
                // The heap could not grow enough for the allocation. wasmtime loses the limiter's reason on the way, so
                // use the recorded one.
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
                message: format!("exit status {}", exit.0),
                location: None,
            };
            return Self::Trap {
                code: None,
                abort: Some(abort),
            };
        }
        if let Some(error) = error.downcast_ref::<ResourceTableError>() {
            return Self::ContractViolation {
                what: format!("the plugin misused a WASI resource: {error}"),
            };
        }
        if error.is::<std::str::Utf8Error>() {
            return Self::ContractViolation {
                what: "the plugin passed text that is not UTF-8".to_owned(),
            };
        }
        let is_message = error.is::<&'static str>() || error.is::<String>();
        // During a call, a bare message is the component model's complaint about a value that the guest handed over.
        // During instantiation, a bare message can also be about the pool.
        if is_message && !error.is::<Instantiating>() {
            return Self::ContractViolation {
                what: format!("a value that the plugin passed cannot be read: {error}"),
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
            Stop::Namespace(what) => Self::NamespaceUnavailable { what: what.clone() },
            Stop::AwaitsNamespace => Self::NamespaceUnavailable {
                what: stop.to_string(),
            },
            Stop::AwaitsAccess => Self::AccessUnavailable {
                what: stop.to_string(),
            },
            // The host makes the call again, so nobody sees this.
            Stop::AwaitsImages => Self::EngineError {
                what: stop.to_string(),
            },
        }
    }
}

/// Whether the system refused memory, or the error is a consequence of that. During a call this is the host's problem,
/// not the plugin's.
pub(super) fn is_for_want_of_memory(error: &wasmtime::Error) -> bool {
    error
        .downcast_ref::<wasmtime::error::OutOfMemory>()
        .is_some()
        || error.downcast_ref::<std::io::Error>().is_some()
        || error.downcast_ref::<rustix::io::Errno>().is_some()
}

/// The limits of a call and its use of them, for the texts of its fault.
pub(super) struct Ended {
    pub(super) fuel: u64,
    pub(super) cpu_time: Duration,
    pub(super) spent: Spent,
    pub(super) allowed: Duration,
    pub(super) output_bytes: u64,
    /// The last memory growth that the host refused.
    pub(super) refused: Option<Stop>,
}

/// Error context: the error occurred during instantiation, before any function of the contract was called.
#[derive(Debug)]
pub(super) struct Instantiating;

impl fmt::Display for Instantiating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the plugin cannot be instantiated")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfFuel { limit } => {
                write!(
                    f,
                    "out of fuel: the plugin used all {limit} units (limits.fuel)"
                )
            }
            Self::CpuDeadline { limit } => {
                write!(
                    f,
                    "CPU time used up: the plugin ran for {} (limits.cpuTime)",
                    Milliseconds(*limit)
                )
            }
            Self::Deadline {
                allowed,
                spent: Some(spent),
            } => write!(
                f,
                "deadline passed after {}: {spent}",
                Milliseconds(*allowed)
            ),
            Self::Deadline {
                allowed,
                spent: None,
            } => {
                write!(
                    f,
                    "deadline passed: the call could not start within {}",
                    Milliseconds(*allowed)
                )
            }
            Self::OfMember { member, fault } => write!(f, "member {member}: {fault}"),
            Self::Memory(stop) => write!(f, "too much memory: {stop}"),
            Self::Trap {
                abort: Some(abort), ..
            } => {
                write!(f, "the plugin aborted: {}", abort.message)?;
                match &abort.location {
                    // Some languages know the line only.
                    Some((file, line, 0)) => write!(f, " (at {file}:{line})"),
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
            Self::Exception => f.write_str("the plugin threw an exception that nothing caught"),
            Self::OutputTooLarge { what } => write!(f, "output too large: {what}"),
            Self::ContractViolation { what } => write!(f, "contract violation: {what}"),
            Self::BadPatch { what } => write!(f, "bad patch: {what}"),
            Self::LossyObject { what } => write!(f, "lossy object: {what}"),
            Self::NotLoaded { reason } => write!(f, "not loaded: {reason}"),
            Self::Unreadable { what } => write!(f, "unreadable review: {what}"),
            Self::MatchCondition { what } => f.write_str(what),
            Self::NamespaceUnavailable { what } => write!(f, "namespace unavailable: {what}"),
            Self::AccessUnavailable { what } => write!(f, "access unavailable: {what}"),
            Self::TenantBudget { what } => write!(f, "tenant budget: {what}"),
            Self::Conflict { what } => write!(f, "conflict: {what}"),
            Self::NotConverging { what } => write!(f, "not converging: {what}"),
            Self::EngineError { what } => write!(f, "engine error: {what}"),
        }
    }
}

/// Displays a duration in milliseconds for people: `30 ms`, `0.4 ms`.
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

#[cfg(test)]
mod tests;
