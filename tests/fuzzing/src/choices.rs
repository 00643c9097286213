//! A source of decisions: the bytes of a fuzzer's input, followed by pseudo-random numbers derived from them.
//!
//! Eight bytes are therefore a seed for a whole plugin. A fuzzer that changes one byte changes one decision.

/// A sequence of decisions. The same bytes always give the same decisions.
#[derive(Debug)]
pub struct Choices<'d> {
    data: &'d [u8],
    state: u64,
}

// === impl Choices ===

impl<'d> Choices<'d> {
    /// Derives decisions from `data`.
    #[must_use]
    pub fn new(data: &'d [u8]) -> Self {
        // FNV-1a: every byte of the input affects all numbers that follow it.
        let state = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { data, state }
    }

    /// Derives decisions that are pseudo-random from the first one on.
    #[must_use]
    pub fn seeded(seed: u64) -> Choices<'static> {
        Choices {
            data: &[],
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        if let Some((first, rest)) = self.data.split_first() {
            self.data = rest;
            return *first;
        }
        (self.random() >> 32) as u8
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit <= 1 {
            return 0;
        }
        if limit <= 256 {
            return usize::from(self.byte()) % limit;
        }
        self.long() as usize % limit
    }

    /// Returns true with a probability of `percent` percent.
    pub fn chance(&mut self, percent: u8) -> bool {
        // The lowest values of the first byte are the rare events, so an input of zeros triggers all of them.
        self.below(100) < usize::from(percent)
    }

    /// Picks one of several values.
    pub fn pick<'p, T>(&mut self, from: &'p [T]) -> &'p T {
        &from[self.below(from.len())]
    }

    /// Picks one of several texts.
    pub fn word(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    /// Returns a small number, a number at a limit of its type, or any number.
    pub fn long(&mut self) -> u64 {
        match self.byte() {
            0..100 => u64::from(self.byte()),
            100..130 => u64::from(self.byte()).wrapping_neg(),
            130..150 => 1 << (self.byte() % 64),
            150..170 => (1_u64 << (self.byte() % 64)).wrapping_sub(1),
            170..180 => i64::MIN.cast_unsigned(),
            180..190 => u64::from(u32::MAX),
            _ => {
                let bytes = std::array::from_fn(|_| self.byte());
                u64::from_le_bytes(bytes)
            }
        }
    }

    /// Returns the next number of splitmix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
