//! What a connection is doing, so that idle, stalled and dawdling ones can be told apart.
//!
//! hyper has one timer for "no head yet", which runs between requests as well: short enough
//! against a client that sends its head byte by byte, it would cut the idle connections that
//! kube-apiserver keeps for 90 s. So the bytes and requests of a connection are watched here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A head is small and comes in one piece; whoever takes this long for it does not mean well.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Twice the longest timeout of a request: without a byte in either direction for so long, while
/// an answer is due, the client is gone.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection may be idle while others wait for its place.
const CROWDED_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client that has connected during the drain may take for its handshake, and then for
/// its request.
pub(super) const FRESH_TIMEOUT: Duration = Duration::from_secs(1);

/// One connection's counters; shared by its transport, its requests and its watcher.
#[derive(Debug)]
pub(super) struct Activity {
    born: Instant,
    requests_in_flight: AtomicUsize,
    requests_begun: AtomicU64,
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
    pub(super) crowded: bool,
    pub(super) multiplexed: bool,
}

/// What is to become of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// Close it in the protocol's own way, after what is in flight.
    Retire,
    /// The same, if it is still wanted that somebody makes room.
    MakeRoom,
    /// Drop it.
    Cut,
}

// === impl Activity ===

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            born: Instant::now(),
            requests_in_flight: AtomicUsize::new(0),
            requests_begun: AtomicU64::new(0),
            idle_since_milliseconds: AtomicU64::new(0),
            progress_milliseconds: AtomicU64::new(0),
            head_since_milliseconds: AtomicU64::new(NEVER),
        })
    }

    pub(super) fn request_began(&self) {
        self.requests_in_flight.fetch_add(1, Relaxed);
        self.requests_begun.fetch_add(1, Relaxed);
        self.head_since_milliseconds.store(NEVER, Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.idle_since_milliseconds.store(self.now(), Relaxed);
        self.requests_in_flight.fetch_sub(1, Relaxed);
    }

    pub(super) fn verdict(&self, circumstances: Circumstances) -> Verdict {
        self.verdict_at(self.now(), circumstances)
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
        match circumstances.crowded {
            _ if retire => Verdict::Retire,
            true if idle >= CROWDED_IDLE_TIMEOUT => Verdict::MakeRoom,
            _ => Verdict::Keep,
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
mod tests {
    use super::*;

    const SERVING: Circumstances = Circumstances {
        phase: Phase::Serving,
        idle_timeout: Duration::from_secs(120),
        crowded: false,
        multiplexed: false,
    };
    const CLOSING: Circumstances = Circumstances {
        phase: Phase::Closing,
        ..SERVING
    };

    #[test]
    fn keeps_idle_connections_until_the_idle_timeout_or_until_it_is_crowded() {
        let activity = Activity::new();
        assert_eq!(activity.verdict_at(119_999, SERVING), Verdict::Keep);
        assert_eq!(activity.verdict_at(120_000, SERVING), Verdict::Retire);
        let crowded = Circumstances {
            crowded: true,
            ..SERVING
        };
        assert_eq!(activity.verdict_at(500, crowded), Verdict::Keep);
        assert_eq!(activity.verdict_at(1_000, crowded), Verdict::MakeRoom);
    }

    #[test]
    fn cuts_a_head_that_takes_too_long_and_no_body_that_does() {
        let activity = Activity::new();
        activity.read();
        assert_eq!(activity.verdict_at(9_000, SERVING), Verdict::Keep);
        assert_eq!(activity.verdict_at(10_001, SERVING), Verdict::Cut);
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
