//! Finds out whether an object may have two members of the same name.

/// The names of all objects that have not ended, as hashes.
#[derive(Default)]
pub(super) struct Names {
    hashes: Vec<u32>,
}

/// The names of one object.
#[derive(Default)]
pub(super) struct Seen {
    /// Where the object's names begin among all.
    from: usize,
    /// A bit for each name, chosen by its hash.
    bits: u64,
    /// Whether two names have the same bit.
    is_unsure: bool,
}

/// An object with more names counts as one that repeats a name. This bounds the memory for names and the time to compare
/// them.
const MOST_NAMES: usize = 512;
/// Up to this number of names, comparing all of them is faster than sorting.
const FEW_NAMES: usize = 24;

// === impl Names ===

impl Names {
    /// Begins an object inside of the one before.
    #[inline]
    pub(super) fn begin(&self) -> Seen {
        Seen {
            from: self.hashes.len(),
            ..Seen::default()
        }
    }

    /// Adds a name, as it is written. Two names that are the same may be written differently, but not if both are
    /// written as the host would write them.
    #[inline]
    pub(super) fn add(&mut self, seen: &mut Seen, name: &[u8]) {
        let hash = hash(name);
        let bit = 1 << (hash % 64);
        seen.is_unsure |= seen.bits & bit != 0;
        seen.bits |= bit;
        if self.hashes.len() - seen.from < MOST_NAMES {
            self.hashes.push(hash);
        }
    }

    /// Ends an object. Returns whether it may repeat a name.
    #[inline]
    pub(super) fn end(&mut self, seen: Seen) -> bool {
        let repeats = seen.is_unsure && self.may_repeat(seen.from);
        self.hashes.truncate(seen.from);
        repeats
    }

    fn may_repeat(&mut self, from: usize) -> bool {
        let hashes = &mut self.hashes[from..];
        match hashes.len() {
            MOST_NAMES.. => true,
            0..=FEW_NAMES => hashes
                .iter()
                .enumerate()
                .any(|(index, hash)| hashes[..index].contains(hash)),
            _ => {
                hashes.sort_unstable();
                hashes.windows(2).any(|pair| pair[0] == pair[1])
            }
        }
    }
}

/// Hashes a name. Whoever makes names with the same hash makes the host build the object that has them, as if it had
/// been written with white space.
#[inline]
fn hash(name: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(FACTOR);
        product ^ (product >> 32)
    };
    let mut hash = name.len() as u64;
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    // What is left is read in words that overlap.
    let word = match (rest, name) {
        ([], _) => 0,
        (_, [.., a, b, c, d, e, f, g, h]) => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        ([first, second, third, fourth, ..], [.., a, b, c, d]) => {
            u64::from_le_bytes([*first, *second, *third, *fourth, *a, *b, *c, *d])
        }
        ([first, .., last], _) => {
            u64::from(*first) | u64::from(rest[rest.len() / 2]) << 8 | u64::from(*last) << 16
        }
        ([only], _) => u64::from(*only),
    };
    (mix(hash, word) >> 8) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeats(names: &[String]) -> bool {
        let mut all = Names::default();
        let mut outer = all.begin();
        all.add(&mut outer, b"outer");
        let mut seen = all.begin();
        for name in names {
            all.add(&mut seen, name.as_bytes());
        }
        let repeats = all.end(seen);
        assert!(!all.end(outer));
        repeats
    }

    #[test]
    fn finds_repeated_names_of_every_length_and_among_any_number() {
        for length in 0..40 {
            let name = "n".repeat(length);
            assert!(
                repeats(&[name.clone(), "other".to_owned(), name]),
                "{length}"
            );
        }
        for count in [2, 10, FEW_NAMES, FEW_NAMES + 1, 100, MOST_NAMES - 2] {
            let mut names: Vec<String> = (0..count).map(|index| format!("name-{index}")).collect();
            assert!(!repeats(&names), "{count}");
            names.push("name-0".to_owned());
            assert!(repeats(&names), "{count}");
        }
    }

    #[test]
    fn object_with_very_many_names_is_unsure() {
        let names: Vec<String> = (0..=MOST_NAMES).map(|index| index.to_string()).collect();
        assert!(repeats(&names));
    }
}
