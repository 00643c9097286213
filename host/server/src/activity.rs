//! Tracks the bytes and requests of a connection, to tell idle, stalled and slow connections apart.
//!
//! hyper has only one timer for a head that has not arrived, and it also runs between requests. A timer short enough to
//! stop clients that send their head byte by byte would also cut idle connections, which kube-apiserver keeps for 90 s.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Time limit for a head, from its first byte to its last. A head is small and arrives in one piece.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);

/// Time without a byte in either direction, while an answer is due, after which the client counts as gone. The value is
/// twice the longest timeout of a request.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the handshake of a client that connects during the drain, and again for its request.
pub(super) const FRESH_TIMEOUT: Duration = Duration::from_secs(1);

/// The counters of one connection, shared by its transport, its requests and its watcher.
#[derive(Debug)]
pub(super) struct Activity {
    born: Instant,
    requests_in_flight: AtomicUsize,
    requests_begun: AtomicU64,
    /// Number of requests whose body has arrived.
    answering: AtomicUsize,
    /// Whether the connection has had a review answered.
    proven: AtomicBool,
    /// Start of the current period in which a request has always been in flight.
    busy_since_milliseconds: AtomicU64,
    /// When the last answer was sent.
    answered_milliseconds: AtomicU64,
    idle_since_milliseconds: AtomicU64,
    progress_milliseconds: AtomicU64,
    /// When the first byte arrived that belongs to no request yet; absent if there is none.
    head_since: OptionalMoment,
}

/// A moment that may be absent, in milliseconds since the connection was made. It takes one atomic word.
#[derive(Debug)]
struct OptionalMoment(AtomicU64);

/// The phase of the server's life.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// Accepts connections and requests.
    Serving,
    /// Has been told to stop, but still accepts connections.
    Draining,
    /// Accepts no connections and closes idle ones.
    Closing,
}

/// The conditions under which a connection is checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) phase: Phase,
    pub(super) idle_timeout: Duration,
    pub(super) multiplexed: bool,
}

/// The action to take on a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Keep the connection as it is.
    Keep,
    /// Close it in the protocol's own way, after the requests in flight.
    Retire,
    /// Drop it.
    Cut,
}

/// The state of a connection, which decides whether it can be evicted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// No review was answered on it, and it has no request. Its handshake may not be complete either.
    Unproven {
        /// The time since it entered this state.
        quiet: Duration,
    },
    /// At least one review was answered on it, and it has no request.
    Idle {
        /// The time since it entered this state.
        quiet: Duration,
    },
    /// All of its requests are waiting for their bodies.
    Receiving {
        /// The time since it entered this state, or since its last answer.
        quiet: Duration,
    },
    /// At least one of its requests is being answered.
    Busy,
}

// === impl Activity ===

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            born: Instant::now(),
            requests_in_flight: AtomicUsize::new(0),
            requests_begun: AtomicU64::new(0),
            answering: AtomicUsize::new(0),
            proven: AtomicBool::new(false),
            busy_since_milliseconds: AtomicU64::new(0),
            answered_milliseconds: AtomicU64::new(0),
            idle_since_milliseconds: AtomicU64::new(0),
            progress_milliseconds: AtomicU64::new(0),
            head_since: OptionalMoment::absent(),
        })
    }

    /// Notes that the handshake is complete.
    pub(super) fn established(&self) {
        self.idle_since_milliseconds.store(self.now(), Relaxed);
    }

    pub(super) fn request_began(&self) {
        if self.requests_in_flight.fetch_add(1, Relaxed) == 0 {
            self.busy_since_milliseconds.store(self.now(), Relaxed);
        }
        self.requests_begun.fetch_add(1, Relaxed);
        self.head_since.clear();
    }

    /// Notes that the body of a request has arrived.
    pub(super) fn answer_began(&self) {
        self.answering.fetch_add(1, Relaxed);
    }

    /// Notes that the request of an earlier [`Activity::answer_began`] has ended. `proves` tells whether its answer was
    /// a review.
    pub(super) fn answer_ended(&self, proves: bool) {
        self.answered_milliseconds.store(self.now(), Relaxed);
        self.answering.fetch_sub(1, Relaxed);
        if proves {
            self.proven.store(true, Relaxed);
        }
    }

    pub(super) fn request_ended(&self) {
        self.idle_since_milliseconds.store(self.now(), Relaxed);
        self.requests_in_flight.fetch_sub(1, Relaxed);
    }

    pub(super) fn verdict(&self, circumstances: Circumstances) -> Verdict {
        self.verdict_at(self.now(), circumstances)
    }

    /// The connection's current standing.
    pub(super) fn standing(&self) -> Standing {
        let now = self.now();
        let since = |then: u64| Duration::from_millis(now.saturating_sub(then));
        if self.answering.load(Relaxed) > 0 {
            return Standing::Busy;
        }
        if self.requests_in_flight.load(Relaxed) > 0 {
            let busy = self.busy_since_milliseconds.load(Relaxed);
            let quiet = since(busy.max(self.answered_milliseconds.load(Relaxed)));
            return Standing::Receiving { quiet };
        }
        let quiet = since(self.idle_since_milliseconds.load(Relaxed));
        if self.proven.load(Relaxed) {
            Standing::Idle { quiet }
        } else {
            Standing::Unproven { quiet }
        }
    }

    fn verdict_at(&self, now: u64, circumstances: Circumstances) -> Verdict {
        let since = |then: u64| Duration::from_millis(now.saturating_sub(then));
        let served = self.requests_begun.load(Relaxed) > 0;
        if self.requests_in_flight.load(Relaxed) > 0 {
            let stalled = since(self.progress_milliseconds.load(Relaxed)) >= STALL_TIMEOUT;
            return match circumstances {
                _ if stalled => Verdict::Cut,
                // After GOAWAY, the streams in flight finish, and the client sends the next ones elsewhere.
                Circumstances {
                    phase: Phase::Draining | Phase::Closing,
                    multiplexed: true,
                    ..
                } => Verdict::Retire,
                _ => Verdict::Keep,
            };
        }
        // HTTP/2 sends bytes that belong to no request, so a started head says nothing there.
        let head_since = self.head_since.get().filter(|_| !circumstances.multiplexed);
        if let Some(head_since) = head_since {
            return if since(head_since) >= HEAD_TIMEOUT {
                Verdict::Cut
            } else {
                Verdict::Keep
            };
        }
        let idle = since(self.idle_since_milliseconds.load(Relaxed));
        let retire = match circumstances.phase {
            Phase::Serving => idle >= circumstances.idle_timeout,
            Phase::Draining => served && circumstances.multiplexed,
            Phase::Closing => served || idle >= FRESH_TIMEOUT,
        };
        if retire {
            Verdict::Retire
        } else {
            Verdict::Keep
        }
    }

    /// Notes that bytes were read.
    pub(crate) fn read(&self) {
        let now = self.now();
        self.progress_milliseconds.store(now, Relaxed);
        if self.requests_in_flight.load(Relaxed) == 0 && self.head_since.get().is_none() {
            self.head_since.set(now);
        }
    }

    /// Notes that bytes were written.
    pub(super) fn wrote(&self) {
        self.progress_milliseconds.store(self.now(), Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

// === impl OptionalMoment ===

impl OptionalMoment {
    /// The word of an absent moment.
    const ABSENT: u64 = u64::MAX;

    fn absent() -> Self {
        Self(AtomicU64::new(Self::ABSENT))
    }

    fn get(&self) -> Option<u64> {
        let milliseconds = self.0.load(Relaxed);
        (milliseconds != Self::ABSENT).then_some(milliseconds)
    }

    fn set(&self, milliseconds: u64) {
        self.0.store(milliseconds.min(Self::ABSENT - 1), Relaxed);
    }

    fn clear(&self) {
        self.0.store(Self::ABSENT, Relaxed);
    }
}

#[cfg(test)]
impl Activity {
    /// Creates an activity that has had this standing since it was made.
    pub(super) fn standing_as(standing: Standing) -> Arc<Self> {
        let quiet = match standing {
            Standing::Unproven { quiet }
            | Standing::Idle { quiet }
            | Standing::Receiving { quiet } => quiet,
            Standing::Busy => Duration::ZERO,
        };
        let mut activity = Self::new();
        let inner = Arc::get_mut(&mut activity).expect("a new activity is not shared");
        inner.born = Instant::now()
            .checked_sub(quiet)
            .expect("the machine has been running for longer");
        inner.proven = AtomicBool::new(matches!(standing, Standing::Idle { .. }));
        match standing {
            Standing::Unproven { .. } | Standing::Idle { .. } => {}
            Standing::Receiving { .. } => inner.requests_in_flight = AtomicUsize::new(1),
            Standing::Busy => {
                inner.requests_in_flight = AtomicUsize::new(1);
                inner.answering = AtomicUsize::new(1);
            }
        }
        activity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVING: Circumstances = Circumstances {
        phase: Phase::Serving,
        idle_timeout: Duration::from_secs(120),
        multiplexed: false,
    };
    const CLOSING: Circumstances = Circumstances {
        phase: Phase::Closing,
        ..SERVING
    };

    #[test]
    fn optional_moment_is_absent_until_set() {
        let moment = OptionalMoment::absent();
        assert_eq!(moment.get(), None);
        for milliseconds in [0, 1, u64::MAX - 1] {
            moment.set(milliseconds);
            assert_eq!(moment.get(), Some(milliseconds));
        }
        moment.set(u64::MAX);
        assert!(moment.get().is_some());
        moment.clear();
        assert_eq!(moment.get(), None);
    }

    #[test]
    fn keeps_idle_connections_until_the_idle_timeout() {
        let activity = Activity::new();
        assert_eq!(activity.verdict_at(119_999, SERVING), Verdict::Keep);
        assert_eq!(activity.verdict_at(120_000, SERVING), Verdict::Retire);
    }

    #[test]
    fn connection_is_proven_by_review_and_busy_after_body() {
        let activity = Activity::new();
        let is = |expected: fn(Standing) -> bool| assert!(expected(activity.standing()));
        is(|standing| matches!(standing, Standing::Unproven { .. }));
        for proves in [false, true] {
            activity.request_began();
            is(|standing| matches!(standing, Standing::Receiving { .. }));
            activity.answer_began();
            is(|standing| standing == Standing::Busy);
            activity.answer_ended(proves);
            activity.request_ended();
            assert_eq!(matches!(activity.standing(), Standing::Idle { .. }), proves);
        }
    }

    #[test]
    fn closes_connection_for_slow_head_but_not_slow_body() {
        let activity = Activity::new();
        activity.read();
        assert_eq!(activity.verdict_at(2_500, SERVING), Verdict::Keep);
        assert_eq!(activity.verdict_at(3_500, SERVING), Verdict::Cut);
        activity.request_began();
        activity.read();
        assert_eq!(activity.verdict_at(30_000, SERVING), Verdict::Keep);
        assert_eq!(activity.verdict_at(61_000, SERVING), Verdict::Cut);
    }

    #[test]
    fn drain_closes_idle_connections_and_waits_for_busy_ones() {
        let activity = Activity::new();
        assert_eq!(activity.verdict_at(10, CLOSING), Verdict::Keep);
        assert_eq!(activity.verdict_at(1_000, CLOSING), Verdict::Retire);
        activity.request_began();
        assert_eq!(activity.verdict_at(1_000, CLOSING), Verdict::Keep);
        activity.request_ended();
        assert_eq!(activity.verdict_at(1_000, CLOSING), Verdict::Retire);
        activity.read();
        assert_eq!(activity.verdict_at(1_000, CLOSING), Verdict::Keep);
    }
}
