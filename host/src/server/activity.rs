//! What a connection is doing, so that idle, stalled and dawdling ones can be told apart.
//!
//! hyper has one timer for "no head yet", which runs between requests as well: short enough
//! against a client that sends its head byte by byte, it would cut the idle connections that
//! kube-apiserver keeps for 90 s. So the bytes and requests of a connection are watched here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The time for a head, from its first byte to its last. A head is small and comes in one piece.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);

/// Twice the longest timeout of a request: without a byte in either direction for so long, while
/// an answer is due, the client is gone.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client that has connected during the drain may take for its handshake, and then for
/// its request.
pub(super) const FRESH_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection's counters; shared by its transport, its requests and its watcher.
#[derive(Debug)]
pub(super) struct Activity {
    born: Instant,
    requests_in_flight: AtomicUsize,
    requests_begun: AtomicU64,
    /// Requests whose body has come.
    answering: AtomicUsize,
    /// Whether a review was answered on it.
    proven: AtomicBool,
    /// Since when there has always been a request in flight.
    busy_since_milliseconds: AtomicU64,
    /// When the last answer went.
    answered_milliseconds: AtomicU64,
    idle_since_milliseconds: AtomicU64,
    progress_milliseconds: AtomicU64,
    /// When the first byte came that no request has claimed; [`NEVER`] when there is none.
    head_since_milliseconds: AtomicU64,
}

/// The mark for "no such moment".
const NEVER: u64 = u64::MAX;

/// Where the server stands in its life.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// Open for everything.
    Serving,
    /// Told to stop, and still accepting.
    Draining,
    /// No longer accepting; idle connections are closed.
    Closing,
}

/// How the watcher looks at a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) phase: Phase,
    pub(super) idle_timeout: Duration,
    pub(super) multiplexed: bool,
}

/// What is to become of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// Close it in the protocol's own way, after what is in flight.
    Retire,
    /// Drop it.
    Cut,
}

/// What a connection has shown of itself, for the choice of those that give up their place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// No review was answered on it and it has no request: perhaps not even a handshake.
    Unproven {
        /// For how long.
        quiet: Duration,
    },
    /// It has had a review answered and has no request.
    Idle {
        /// For how long.
        quiet: Duration,
    },
    /// All of its requests wait for their bodies.
    Receiving {
        /// For how long.
        quiet: Duration,
    },
    /// A request of it is being answered.
    Busy,
}

// === impl Activity ===

impl Activity {
    pub(super) fn new() -> Arc<Self> {
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
            head_since_milliseconds: AtomicU64::new(NEVER),
        })
    }

    /// The handshake is done.
    pub(super) fn established(&self) {
        self.idle_since_milliseconds.store(self.now(), Relaxed);
    }

    pub(super) fn request_began(&self) {
        if self.requests_in_flight.fetch_add(1, Relaxed) == 0 {
            self.busy_since_milliseconds.store(self.now(), Relaxed);
        }
        self.requests_begun.fetch_add(1, Relaxed);
        self.head_since_milliseconds.store(NEVER, Relaxed);
    }

    /// The body of a request has come.
    pub(super) fn answer_began(&self) {
        self.answering.fetch_add(1, Relaxed);
    }

    /// The request that [`Activity::answer_began`] was called for has ended; `proves` when its answer was a
    /// review.
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

    /// What it has shown of itself by now.
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
                // GOAWAY lets the streams in flight finish and sends the next ones elsewhere.
                Circumstances {
                    phase: Phase::Draining | Phase::Closing,
                    multiplexed: true,
                    ..
                } => Verdict::Retire,
                _ => Verdict::Keep,
            };
        }
        let head_since = self.head_since_milliseconds.load(Relaxed);
        // An HTTP/2 connection has bytes of its own, so only its silence says something.
        if head_since != NEVER && !circumstances.multiplexed {
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

    /// Bytes came.
    pub(super) fn read(&self) {
        let now = self.now();
        self.progress_milliseconds.store(now, Relaxed);
        if self.requests_in_flight.load(Relaxed) == 0
            && self.head_since_milliseconds.load(Relaxed) == NEVER
        {
            self.head_since_milliseconds.store(now, Relaxed);
        }
    }

    /// Bytes went.
    pub(super) fn wrote(&self) {
        self.progress_milliseconds.store(self.now(), Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(NEVER - 1)
    }
}

#[cfg(test)]
impl Activity {
    /// One that has stood like this since it was made.
    pub(super) fn standing_as(standing: Standing) -> Arc<Self> {
        let quiet = match standing {
            Standing::Unproven { quiet }
            | Standing::Idle { quiet }
            | Standing::Receiving { quiet } => quiet,
            Standing::Busy => Duration::ZERO,
        };
        let mut activity = Self::new();
        let inner = Arc::get_mut(&mut activity).expect("it is not shared yet");
        inner.born = Instant::now()
            .checked_sub(quiet)
            .expect("the machine runs for longer");
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
    fn keeps_idle_connections_until_the_idle_timeout() {
        let activity = Activity::new();
        assert_eq!(activity.verdict_at(119_999, SERVING), Verdict::Keep);
        assert_eq!(activity.verdict_at(120_000, SERVING), Verdict::Retire);
    }

    #[test]
    fn a_connection_is_proven_by_a_review_and_busy_from_the_end_of_the_body() {
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
    fn cuts_a_head_that_takes_too_long_and_no_body_that_does() {
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
    fn closes_idle_connections_in_the_drain_and_waits_for_busy_ones() {
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
