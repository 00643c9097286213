//! Hashes of values. Each container is hashed once.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::document::{Json, Number};

/// Hashes of values that stay in place for as long as this lives. Equal values have equal hashes.
///
/// The hasher is seeded per process. Numbering in alignment also compares values whose hashes are equal. All other
/// callers take equal hashes for equal values.
///
/// A budget can limit how many values are looked at. A long text counts as several. When the budget is spent, the hashes
/// mean nothing, and everybody ends what they do.
#[derive(Default)]
pub(in crate::patch) struct Fingerprints {
    state: RandomState,
    known: HashMap<usize, u64, RandomState>,
    /// How many more values may be looked at; `None` without a limit.
    left: Option<usize>,
}

/// This many bytes of a text cost as much as looking at one value.
const BYTES_PER_VALUE: usize = 256;

/// The length of a text or of a number's digits.
pub(super) fn own_bytes(value: &Json) -> usize {
    match value {
        Json::Text(text) | Json::Number(Number::Text(text)) => text.len(),
        _ => 0,
    }
}

// === impl Fingerprints ===

impl Fingerprints {
    /// Creates hashes that can be compared with those of every other `Fingerprints` with this state.
    pub(in crate::patch) fn seeded(state: &RandomState) -> Self {
        Self {
            state: state.clone(),
            ..Self::default()
        }
    }

    /// Creates hashes of at most this many values.
    pub(super) fn within(most_values: usize) -> Self {
        Self {
            left: Some(most_values),
            ..Self::default()
        }
    }

    /// Takes a number of values from the budget. Returns false if it is spent.
    pub(super) fn spend(&mut self, values: usize) -> bool {
        self.left = self.left.map(|left| left.saturating_sub(values));
        !self.are_spent()
    }

    /// Takes a value from the budget, with everything inside. Returns false if the budget is spent.
    pub(super) fn spend_whole(&mut self, value: &Json) -> bool {
        match self.left {
            Some(left) => self.spend(value.count_nodes(left)),
            None => true,
        }
    }

    pub(super) fn are_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// Returns the hash of a value. The value has to outlive `self`.
    pub(in crate::patch) fn of(&mut self, value: &Json) -> u64 {
        if !self.spend(1 + own_bytes(value) / BYTES_PER_VALUE) {
            return 0;
        }
        match value {
            Json::Null => self.state.hash_one(0_u8),
            Json::Bool(value) => self.state.hash_one((1_u8, value)),
            Json::Number(number) => self.state.hash_one((2_u8, Self::digits(number))),
            Json::Text(text) => self.state.hash_one((3_u8, text)),
            Json::Array(elements) => {
                let address = Arc::as_ptr(elements).addr();
                if let Some(hash) = self.known.get(&address) {
                    return *hash;
                }
                // Looking at them builds them.
                if !self.spend(elements.len()) {
                    return 0;
                }
                let mut hasher = self.state.build_hasher();
                hasher.write_u8(4);
                for element in elements.iter() {
                    hasher.write_u64(self.of(element));
                }
                let hash = hasher.finish();
                self.known.insert(address, hash);
                hash
            }
            Json::Object(members) => {
                let address = Arc::as_ptr(members).addr();
                if let Some(hash) = self.known.get(&address) {
                    return *hash;
                }
                if !self.spend(members.width()) {
                    return 0;
                }
                // The hash is a sum, because the order of members does not matter.
                let sum = members.iter().fold(0_u64, |sum, (name, value)| {
                    let value = self.of(value);
                    sum.wrapping_add(self.state.hash_one((name, value)))
                });
                let hash = self.state.hash_one((5_u8, members.len(), sum));
                self.known.insert(address, hash);
                hash
            }
        }
    }

    fn digits(number: &Number) -> (i64, Option<&str>) {
        match number {
            Number::Integer(integer) => (*integer, None),
            Number::Text(text) => (0, Some(text)),
        }
    }
}
