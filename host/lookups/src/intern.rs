//! Shares equal texts.

use std::collections::HashSet;
use std::sync::Arc;

/// The texts of one table. Each distinct text is held once.
///
/// Texts that nobody uses any more go in a sweep, which comes when there may be as many of them as there are others.
#[derive(Default)]
pub(crate) struct Interner {
    texts: HashSet<Arc<str>>,
    /// The memory of the texts without the set, in bytes.
    bytes: usize,
    /// Number of texts after the last sweep.
    swept: usize,
}

/// The counters in front of a shared text, and what an allocator adds on average.
const HEADER_BYTES: usize = 16;
/// Allocators round up to multiples of this.
const GRAIN_BYTES: usize = 8;
/// The least number of texts that makes a sweep worthwhile.
const FEW: usize = 1024;

// === impl Interner ===

impl Interner {
    /// Returns the shared text.
    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let shared: Arc<str> = Arc::from(text);
        self.bytes += allocated(text);
        self.texts.insert(shared.clone());
        shared
    }

    /// Drops the texts that nobody else holds, if there may be many of them.
    pub(crate) fn sweep_if_due(&mut self) {
        if self.texts.len() > self.swept.saturating_mul(2).max(FEW) {
            self.sweep();
        }
    }

    /// Drops the texts that nobody else holds.
    pub(crate) fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.texts.retain(|text| {
            let is_used = Arc::strong_count(text) > 1;
            if !is_used {
                *bytes -= allocated(text);
            }
            is_used
        });
        self.texts.shrink_to_fit();
        self.swept = self.texts.len();
    }

    /// An estimate of the memory that the texts and the set take.
    pub(crate) fn bytes(&self) -> usize {
        // A hash table has eight places for seven elements, and a control byte for each place.
        let places = self.texts.capacity() * 8 / 7;
        self.bytes + places * (size_of::<Arc<str>>() + 1)
    }
}

fn allocated(text: &str) -> usize {
    (HEADER_BYTES + text.len()).next_multiple_of(GRAIN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_equal_texts_once_and_drops_unused_ones() {
        let mut interner = Interner::default();
        let one = interner.text("shop");
        assert!(Arc::ptr_eq(&one, &interner.text("shop")));
        let bytes = interner.bytes;
        for number in 0..10_000 {
            interner.text(&format!("text {number}"));
            interner.sweep_if_due();
        }
        assert!(interner.texts.len() <= FEW + 1, "{}", interner.texts.len());
        interner.sweep();
        assert_eq!((interner.texts.len(), interner.bytes), (1, bytes));
    }
}
