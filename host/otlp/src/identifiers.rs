//! Ids of traces and spans, and the decision whether a review is traced.

use std::sync::atomic::{AtomicU64, Ordering};

use ring::rand::{SecureRandom as _, SystemRandom};
use tollgate_admission::trace::TraceParent;

/// Makes ids. An id is unique and need not be secret, so one random seed for each process is enough.
#[derive(Debug)]
pub struct Identifiers {
    counter: AtomicU64,
    seeds: [u64; 3],
}

/// Decides at the start of a review whether it is traced.
#[derive(Debug)]
pub struct Sampler {
    share_percent: u32,
}

/// The place of a review's span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace_id: [u8; 16],
    /// The id of the review's span.
    pub span_id: [u8; 8],
    /// The id of the caller's span, if there is one.
    pub parent: Option<[u8; 8]>,
}

/// The increment of `SplitMix64`: odd, so that the counter takes every value before it repeats.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

// === impl Identifiers ===

impl Identifiers {
    /// Takes the seed from the system.
    #[must_use]
    pub fn new() -> Self {
        let mut bytes = [0; 32];
        // Without randomness, ids of different processes could be equal, which mixes up their traces and nothing else.
        let _: Result<(), _> = SystemRandom::new().fill(&mut bytes);
        let mut words = bytes.chunks_exact(8).map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let mut word = || words.next().unwrap_or_default();
        Self {
            counter: AtomicU64::new(word()),
            seeds: [word(), word(), word()],
        }
    }

    /// Makes the id of a trace.
    #[must_use]
    pub fn trace_id(&self) -> [u8; 16] {
        let count = self.count();
        let high = u128::from(mixed(count ^ self.seeds[0]));
        let low = u128::from(mixed(count ^ self.seeds[1]));
        let id = (high << 64) | low;
        // An id of zero is not valid.
        id.max(1).to_be_bytes()
    }

    /// Makes the id of a span.
    #[must_use]
    pub fn span_id(&self) -> [u8; 8] {
        let id = mixed(self.count() ^ self.seeds[2]);
        id.max(1).to_be_bytes()
    }

    fn count(&self) -> u64 {
        self.counter.fetch_add(STEP, Ordering::Relaxed)
    }
}

impl Default for Identifiers {
    fn default() -> Self {
        Self::new()
    }
}

/// The output function of `SplitMix64`: a permutation, so distinct counts give distinct values.
fn mixed(count: u64) -> u64 {
    let count = (count ^ (count >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let count = (count ^ (count >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    count ^ (count >> 31)
}

// === impl Sampler ===

impl Sampler {
    /// Creates a sampler that traces a share of the reviews.
    #[must_use]
    pub fn new(share_percent: u32) -> Self {
        Self { share_percent }
    }

    /// Decides about one review. A caller that is in a trace decides for the whole trace. Returns none if the review is
    /// not traced.
    #[must_use]
    pub fn sample(
        &self,
        identifiers: &Identifiers,
        parent: Option<TraceParent>,
    ) -> Option<TraceContext> {
        let (trace_id, parent) = match parent {
            Some(parent) => {
                let sampled = parent.is_sampled.then_some(parent)?;
                (sampled.trace_id, Some(sampled.span_id))
            }
            None => {
                let trace_id = identifiers.trace_id();
                self.is_in_share(trace_id).then_some((trace_id, None))?
            }
        };
        Some(TraceContext {
            trace_id,
            span_id: identifiers.span_id(),
            parent,
        })
    }

    /// Whether a trace is in the share, by the low 63 bits of its id as OpenTelemetry's `TraceIdRatioBased` does it.
    fn is_in_share(&self, trace_id: [u8; 16]) -> bool {
        let low = u128::from_be_bytes(trace_id) & u128::from(u64::MAX >> 1);
        low * 100 < (u128::from(self.share_percent) << 63)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PARENT: TraceParent = TraceParent {
        trace_id: [7; 16],
        span_id: [9; 8],
        is_sampled: true,
    };

    #[test]
    fn ids_differ() {
        let identifiers = Identifiers::new();
        let traces: HashSet<_> = (0..10_000).map(|_| identifiers.trace_id()).collect();
        let spans: HashSet<_> = (0..10_000).map(|_| identifiers.span_id()).collect();
        assert_eq!((traces.len(), spans.len()), (10_000, 10_000));
        assert_ne!(identifiers.trace_id(), Identifiers::new().trace_id());
    }

    #[test]
    fn caller_decides_for_its_trace() {
        let identifiers = Identifiers::new();
        let never = Sampler::new(0);
        let context = never.sample(&identifiers, Some(PARENT)).unwrap();
        assert_eq!(context.trace_id, [7; 16]);
        assert_eq!(context.parent, Some([9; 8]));
        assert_ne!(context.span_id, [9; 8]);
        let unsampled = TraceParent {
            is_sampled: false,
            ..PARENT
        };
        let always = Sampler::new(100);
        assert_eq!(always.sample(&identifiers, Some(unsampled)), None);
    }

    #[test]
    fn traces_share_of_other_reviews() {
        let identifiers = Identifiers::new();
        let traced = |percent| {
            let sampler = Sampler::new(percent);
            let sampled = (0..10_000).filter_map(|_| sampler.sample(&identifiers, None));
            sampled.filter(|context| context.parent.is_none()).count()
        };
        assert_eq!((traced(0), traced(100)), (0, 10_000));
        let some = traced(25);
        assert!((2_000..3_000).contains(&some), "{some}");
    }
}
