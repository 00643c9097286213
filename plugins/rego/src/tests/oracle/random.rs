//! Pseudo-random numbers (SplitMix64). The same seed gives the same objects in every version of every crate.

pub(in crate::tests) struct Random(u64);

// === impl Random ===

impl Random {
    /// Starts from a seed and a name, so that each template has numbers of its own.
    pub(in crate::tests) fn new(seed: u64, name: &str) -> Self {
        Self(seed ^ fingerprint(name))
    }

    pub(in crate::tests) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(in crate::tests) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// Whether an event happens that happens `times` in a hundred.
    pub(in crate::tests) fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    /// Returns an element. None of an empty list.
    pub(in crate::tests) fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        (!list.is_empty()).then(|| &list[self.below(list.len())])
    }
}

/// Returns the FNV-1a hash of a text.
pub(in crate::tests) fn fingerprint(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}
