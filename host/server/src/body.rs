//! Reads a request's body under two caps, one for each body and one for all bodies, and at a minimum rate.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::budget::{Budget, Lease, SMALL_BYTES};

/// Bytes kept of an oversized body. This is enough for `apiVersion`, `uid` and the other fields that an AdmissionReview
/// answer needs, because Go writes the request before the object.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

/// Capacity of a buffer, as a multiple of the bytes that have arrived.
const GROWTH: usize = 4;

/// Smallest capacity of a buffer for a body that arrives in several pieces.
const FIRST_BYTES: usize = 16 * 1024;

/// Pieces smaller than this are copied, because they would keep the connection's larger buffer alive.
const COPY_BYTES: usize = 64 * 1024;

/// Longest time without a byte of the body, also before the first byte.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Lowest rate of a body, enforced after [`STALL_TIMEOUT`]. At this rate, kube-apiserver sends less than 2 MiB before
/// it gives up.
const LEAST_BYTES_PER_SECOND: u64 = 64 * 1024;

/// Result of reading a body.
#[derive(Debug)]
pub(super) enum Received {
    /// The complete body.
    Whole(Bytes, Arc<Lease>),
    /// The first bytes of an oversized body. The caller still has to drain the rest.
    TooLarge(Bytes, Arc<Lease>),
    /// The budget has no room for the body.
    Crowded,
    /// The body arrived too slowly.
    Slow,
    /// The client stopped sending.
    Broken,
}

/// Bytes that keep their lease alive.
struct Owned {
    bytes: Bytes,
    _lease: Arc<Lease>,
}

/// The progress of a body that is arriving.
struct Pace {
    began: Instant,
    last: Instant,
    received_bytes: u64,
}

/// Reads `incoming` up to `limit_bytes`.
pub(super) async fn receive(
    incoming: &mut Incoming,
    limit_bytes: u64,
    budget: &Arc<Budget>,
    peer: IpAddr,
) -> Received {
    let declared = incoming.size_hint().exact();
    let oversized = declared.is_some_and(|bytes| bytes > limit_bytes);
    let mut lease = budget.lease(peer);
    let mut pace = Pace::new();
    let mut buffer = Vec::new();
    loop {
        // Most bodies arrive with their head. They need neither a timer nor a place among those that can be evicted.
        let frame = match incoming.frame().now_or_never() {
            Some(frame) => frame,
            None => tokio::select! {
                biased;
                frame = incoming.frame() => frame,
                () = lease.evicted().cancelled() => return Received::Crowded,
                () = sleep_until(pace.due()) => return Received::Slow,
            },
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
            let most = declared.unwrap_or(limit_bytes);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if length <= buffer.capacity() {
                if may_be_whole(buffer.capacity(), length, most) && lease.cover(most as u64) {
                    buffer.reserve_exact(most - buffer.len());
                }
            } else {
                let Some(capacity) = covered_capacity(&mut lease, length, most).await else {
                    return Received::Crowded;
                };
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

/// Reads and discards up to the end of the body, `limit_bytes` or `until`. Returns true at the end of the body.
///
/// If the connection closes while a client is still writing, the client gets a reset and never sees the answer. If the
/// body was drained, the client reads the answer and can reuse the connection.
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

/// Grows the lease, and returns a capacity that it covers: the one for a buffer that grows, or just enough for the bytes that
/// have arrived. None if there is no room for these either.
async fn covered_capacity(lease: &mut Lease, length: usize, most: usize) -> Option<usize> {
    for capacity in [grown(length, most), length] {
        if lease.cover_in_time(capacity as u64).await {
            return Some(capacity);
        }
    }
    None
}

/// Whether a buffer with room for `length` bytes may have its final size by now. It gets it early, because it would copy more
/// later.
fn may_be_whole(capacity: usize, length: usize, most: usize) -> bool {
    capacity < most && grown(length, most) == most
}

/// Capacity for a buffer that holds `length` bytes now and at most `most` at the end. The result is at most four times the
/// bytes that have arrived, or 16 KiB if that is more. With less room, a body would be copied more often. A small body does
/// not ask for more than the reserve for small bodies has.
fn grown(length: usize, most: usize) -> usize {
    const SMALL: usize = SMALL_BYTES as usize;
    let mut larger = length.saturating_mul(GROWTH).max(FIRST_BYTES);
    if length <= SMALL {
        larger = larger.min(SMALL);
    }
    larger.min(most).max(length)
}

/// Returns the bytes without a much larger buffer behind them.
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

    /// When the next piece must have arrived.
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
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn buffer_gets_its_final_size_when_a_quarter_has_arrived() {
        const KIB: usize = 1024;
        assert!(!may_be_whole(64 * KIB, 20 * KIB, 93 * KIB));
        assert!(may_be_whole(64 * KIB, 24 * KIB, 93 * KIB));
        assert!(!may_be_whole(93 * KIB, 93 * KIB, 93 * KIB));
        assert!(!may_be_whole(64 * KIB, 64 * KIB, usize::MAX));
    }

    #[test]
    fn buffer_grows_to_four_times_received_up_to_announced_length() {
        const MIB: usize = 1 << 20;
        assert_eq!(grown(1, 40 * MIB), FIRST_BYTES);
        assert_eq!(grown(1, 100), 100);
        assert_eq!(grown(8_000, MIB), 32_000);
        assert_eq!(grown(100_000, MIB), 256 << 10);
        assert_eq!(grown(300_000, 2 * MIB), 1_200_000);
        assert_eq!(grown(MIB, 40 * MIB), 4 * MIB);
        assert_eq!(grown(33 * MIB, 40 * MIB), 40 * MIB);
        assert_eq!(grown(usize::MAX, usize::MAX), usize::MAX);
    }

    #[tokio::test]
    async fn lease_covers_the_buffer_even_if_it_cannot_grow() {
        const MIB: usize = 1 << 20;
        let budget = Budget::new(10 * MIB as u64, 0, Gauge::default());
        let peer = IpAddr::from([10, 0, 0, 1]);
        let mut lease = budget.lease(peer);
        assert_eq!(
            covered_capacity(&mut lease, MIB, 9 * MIB).await,
            Some(4 * MIB)
        );
        let mut others = budget.lease(peer);
        assert!(others.cover_in_time(3 * MIB as u64).await);
        // 16 MiB do not fit, and 5 MiB do.
        let capacity = covered_capacity(&mut lease, 5 * MIB, 9 * MIB).await;
        assert_eq!(capacity, Some(5 * MIB));
        assert_eq!(lease.covered_bytes(), 5 * MIB as u64);
        assert_eq!(covered_capacity(&mut lease, 8 * MIB, 9 * MIB).await, None);
    }

    #[test]
    fn body_must_keep_minimum_rate() {
        let mut pace = Pace::new();
        let began = pace.began;
        assert_eq!(pace.due(), began + STALL_TIMEOUT);
        pace.last = began + Duration::from_secs(2);
        pace.received_bytes = 128;
        let earned = Duration::from_millis(1);
        assert_eq!(
            pace.due(),
            began + STALL_TIMEOUT + earned,
            "few bytes extend the time only a little"
        );
        pace.received_bytes = 10 << 20;
        assert_eq!(
            pace.due(),
            pace.last + STALL_TIMEOUT,
            "many bytes do not allow a long silence"
        );
    }
}
