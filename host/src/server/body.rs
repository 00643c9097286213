//! Reading a request's body under two caps: one for each body, one for all of them. A body has to keep
//! coming.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::server::budget::{Budget, Lease};

/// How much of an oversized body is kept: enough to hold `apiVersion`, `uid` and what else an
/// answer in kind needs, since Go writes the request before the object.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

/// The least that a buffer for a body in several pieces takes.
const FIRST_BYTES: usize = 16 * 1024;

/// A piece that is smaller than this is copied out of the connection's buffer, which it would keep alive.
const COPY_BYTES: usize = 64 * 1024;

/// For how long nothing may come of a body, its first byte included.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The slowest rate at which a body may come, after [`STALL_TIMEOUT`]. At this rate kube-apiserver would
/// send less than 2 MiB before it gives up.
const LEAST_BYTES_PER_SECOND: u64 = 64 * 1024;

/// What came of reading.
#[derive(Debug)]
pub(super) enum Received {
    /// The body.
    Whole(Bytes, Arc<Lease>),
    /// Its head; the rest is still to be drained.
    TooLarge(Bytes, Arc<Lease>),
    /// The budget has no room for it.
    Crowded,
    /// It came too slowly.
    Slow,
    /// The client stopped sending.
    Broken,
}

/// Keeps the lease alive as long as the bytes.
struct Owned {
    bytes: Bytes,
    _lease: Arc<Lease>,
}

/// How a body has come so far.
struct Pace {
    began: Instant,
    last: Instant,
    received_bytes: u64,
}

/// Reads `incoming`, at most `limit_bytes` of it.
pub(super) async fn receive(
    incoming: &mut Incoming,
    limit_bytes: u64,
    budget: &Arc<Budget>,
    peer: IpAddr,
) -> Received {
    let declared = incoming.size_hint().exact();
    let oversized = declared.is_some_and(|bytes| bytes > limit_bytes);
    let mut lease = budget.lease(peer);
    let evicted = lease.evicted();
    let mut pace = Pace::new();
    let mut buffer = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            frame = incoming.frame() => frame,
            () = evicted.cancelled() => return Received::Crowded,
            () = sleep_until(pace.due()) => return Received::Slow,
        };
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else {
            return Received::Broken;
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = buffer.len() + data.len();
        if oversized || length as u64 > limit_bytes {
            let wanted = length.min(HEAD_BYTES);
            if !lease
                .cover_in_time(wanted.max(buffer.capacity()) as u64)
                .await
            {
                return Received::Crowded;
            }
            let missing = wanted.saturating_sub(buffer.len());
            buffer.extend_from_slice(&data[..missing]);
            if !oversized || length >= HEAD_BYTES {
                buffer.truncate(HEAD_BYTES);
                return too_large(buffer, lease);
            }
        } else if buffer.is_empty() && declared == Some(data.len() as u64) {
            if !lease.cover_in_time(data.len() as u64).await {
                return Received::Crowded;
            }
            return whole(unpinned(data), lease);
        } else {
            if length > buffer.capacity() {
                let most = declared.unwrap_or(limit_bytes);
                let capacity = grown(length, usize::try_from(most).unwrap_or(usize::MAX));
                if !lease.cover_in_time(capacity as u64).await
                    && !lease.cover_in_time(length as u64).await
                {
                    return Received::Crowded;
                }
                buffer.reserve_exact(capacity - buffer.len());
            }
            buffer.extend_from_slice(&data);
        }
        pace.advance(data.len());
    }
    if oversized {
        return too_large(buffer, lease);
    }
    buffer.shrink_to_fit();
    lease.shrink(buffer.len() as u64);
    whole(buffer.into(), lease)
}

/// Reads and forgets until the end, `limit_bytes` or `until`; true at the end.
///
/// A client that is still writing when the connection closes gets a reset and never sees the
/// answer; one whose body was taken reads it, and can go on using the connection.
pub(super) async fn drain(incoming: &mut Incoming, limit_bytes: u64, until: Instant) -> bool {
    let to_the_end = async {
        let mut drained_bytes = 0;
        while let Some(frame) = incoming.frame().await {
            let Ok(frame) = frame else {
                return false;
            };
            drained_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if drained_bytes > limit_bytes {
                return false;
            }
        }
        true
    };
    timeout_at(until, to_the_end).await.unwrap_or(false)
}

/// The capacity for a buffer that is to hold `length` bytes now and up to `most` in the end: at most twice
/// what has arrived.
fn grown(length: usize, most: usize) -> usize {
    let doubled = length.checked_next_power_of_two().unwrap_or(length);
    doubled.max(FIRST_BYTES).min(most).max(length)
}

/// The bytes, without a buffer around them that is much larger.
fn unpinned(data: Bytes) -> Bytes {
    if data.len() < COPY_BYTES {
        Bytes::copy_from_slice(&data)
    } else {
        data
    }
}

fn whole(bytes: Bytes, mut lease: Lease) -> Received {
    lease.complete();
    let lease = Arc::new(lease);
    Received::Whole(owned(bytes, &lease), lease)
}

fn too_large(mut head: Vec<u8>, mut lease: Lease) -> Received {
    head.shrink_to_fit();
    lease.shrink(head.len() as u64);
    lease.complete();
    let lease = Arc::new(lease);
    Received::TooLarge(owned(head.into(), &lease), lease)
}

fn owned(bytes: Bytes, lease: &Arc<Lease>) -> Bytes {
    Bytes::from_owner(Owned {
        bytes,
        _lease: Arc::clone(lease),
    })
}

// === impl Pace ===

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            last: now,
            received_bytes: 0,
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.last = Instant::now();
        self.received_bytes += bytes as u64;
    }

    /// When the next piece is too late.
    fn due(&self) -> Instant {
        let earned = self.received_bytes.saturating_mul(1_000) / LEAST_BYTES_PER_SECOND;
        let at_least_rate = self.began + STALL_TIMEOUT + Duration::from_millis(earned);
        at_least_rate.min(self.last + STALL_TIMEOUT)
    }
}

// === impl Owned ===

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_grows_to_twice_what_has_arrived_and_never_past_the_announced_length() {
        const MIB: usize = 1 << 20;
        assert_eq!(grown(1, 40 * MIB), FIRST_BYTES);
        assert_eq!(grown(1, 100), 100);
        assert_eq!(grown(MIB + 1, 40 * MIB), 2 * MIB);
        assert_eq!(grown(33 * MIB, 40 * MIB), 40 * MIB);
    }

    #[test]
    fn a_body_has_to_keep_coming_at_a_rate() {
        let mut pace = Pace::new();
        let began = pace.began;
        assert_eq!(pace.due(), began + STALL_TIMEOUT);
        pace.last = began + Duration::from_secs(2);
        pace.received_bytes = 128;
        let earned = Duration::from_millis(1);
        assert_eq!(
            pace.due(),
            began + STALL_TIMEOUT + earned,
            "a few bytes earn little"
        );
        pace.received_bytes = 10 << 20;
        assert_eq!(
            pace.due(),
            pace.last + STALL_TIMEOUT,
            "many excuse no silence"
        );
    }
}
