//! Reading a request's body under two caps: one for each body, one for all of them.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

use crate::server::budget::{Budget, Lease};

/// How much of an oversized body is kept: enough to hold `apiVersion`, `uid` and what else an
/// answer in kind needs, since Go writes the request before the object.
pub(super) const HEAD_BYTES: usize = 64 * 1024;

/// How much of the budget a body of unknown length takes at a time.
const STEP_BYTES: u64 = 256 * 1024;

/// What came of reading.
#[derive(Debug)]
pub(super) enum Received {
    /// The body.
    Whole(Bytes, Arc<Lease>),
    /// Its head; the rest is still to be drained.
    TooLarge(Bytes, Arc<Lease>),
    /// The budget has no room for it.
    Crowded,
    /// The client stopped sending.
    Broken,
}

/// Keeps the lease alive as long as the bytes.
struct Owned {
    bytes: Bytes,
    _lease: Arc<Lease>,
}

/// Reads `incoming`, at most `limit_bytes` of it.
pub(super) async fn receive(
    incoming: &mut Incoming,
    limit_bytes: u64,
    budget: &Arc<Budget>,
) -> Received {
    let declared = incoming.size_hint().exact();
    let oversized = declared.is_some_and(|bytes| bytes > limit_bytes);
    let first = match declared {
        Some(bytes) if !oversized => bytes,
        _ => HEAD_BYTES as u64,
    };
    let Some(mut lease) = budget.lease(first) else {
        return Received::Crowded;
    };
    let mut buffer = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else {
            return Received::Broken;
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if buffer.is_empty() && declared == Some(data.len() as u64) && !oversized {
            return whole(data, lease);
        }
        let length = (buffer.len() + data.len()) as u64;
        if oversized || length > limit_bytes {
            let missing = HEAD_BYTES.saturating_sub(buffer.len()).min(data.len());
            buffer.extend_from_slice(&data[..missing]);
            if oversized && buffer.len() < HEAD_BYTES {
                continue;
            }
            buffer.truncate(HEAD_BYTES);
            buffer.shrink_to_fit();
            lease.shrink(buffer.len() as u64);
            return too_large(buffer, lease);
        }
        if declared.is_none()
            && !lease.cover(length.next_multiple_of(STEP_BYTES).min(limit_bytes))
            && !lease.cover(length)
        {
            return Received::Crowded;
        }
        if buffer.is_empty() {
            buffer.reserve_exact(usize::try_from(declared.unwrap_or(length)).unwrap_or(0));
        }
        buffer.extend_from_slice(&data);
    }
    if oversized {
        return too_large(buffer, lease);
    }
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

fn whole(bytes: Bytes, lease: Lease) -> Received {
    let lease = Arc::new(lease);
    Received::Whole(owned(bytes, &lease), lease)
}

fn too_large(head: Vec<u8>, lease: Lease) -> Received {
    let lease = Arc::new(lease);
    Received::TooLarge(owned(head.into(), &lease), lease)
}

fn owned(bytes: Bytes, lease: &Arc<Lease>) -> Bytes {
    Bytes::from_owner(Owned {
        bytes,
        _lease: Arc::clone(lease),
    })
}

// === impl Owned ===

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
