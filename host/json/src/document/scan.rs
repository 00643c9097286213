//! Finds the end of a string, sixteen bytes at a time. Most bytes of a review are in strings.

/// Returns the first place at or after `at` with a quote, a backslash or a control character, or the end of the text.
#[inline(always)]
pub(super) fn plain_end(text: &[u8], mut at: usize) -> usize {
    if let Some(last) = text.len().checked_sub(BLOCK_BYTES) {
        while at <= last {
            let found = special(&text[at..at + BLOCK_BYTES]);
            if found != 0 {
                return at + found.trailing_zeros() as usize / BITS_PER_BYTE;
            }
            at += BLOCK_BYTES;
        }
    }
    plain_end_of_rest(text, at)
}

/// Does the same close to the end of the text.
#[cold]
fn plain_end_of_rest(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let found = rest.iter().position(|byte| is_special(*byte));
    at + found.unwrap_or(rest.len())
}

/// Whether a string cannot hold this byte as it is.
fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

#[cfg(target_arch = "x86_64")]
use sse2::{BITS_PER_BYTE, BLOCK_BYTES, special};
#[cfg(not(target_arch = "x86_64"))]
use words::{BITS_PER_BYTE, BLOCK_BYTES, special};

/// SSE2, which every x86-64 has.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi8,
    };

    pub(super) const BLOCK_BYTES: usize = 16;
    /// Bits of a result for each byte.
    pub(super) const BITS_PER_BYTE: usize = 1;

    /// Returns a bit for each special byte, the lowest for the first.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "the compiler asks for it wherever a function needs a feature"
    )]
    pub(super) fn special(block: &[u8]) -> u32 {
        // SAFETY: every x86-64 has SSE2.
        unsafe { special_with_sse2(block) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn special_with_sse2(block: &[u8]) -> u32 {
        let [low, high] = [0, 8].map(|from| {
            let mut word = [0; 8];
            word.copy_from_slice(&block[from..from + 8]);
            i64::from_le_bytes(word)
        });
        let bytes = _mm_set_epi64x(high, low);
        let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"'.cast_signed()));
        let escapes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\'.cast_signed()));
        let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        let found = _mm_or_si128(_mm_or_si128(quotes, escapes), controls);
        _mm_movemask_epi8(found).cast_unsigned()
    }
}

/// Eight bytes in one integer, for every other processor.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    pub(super) const BLOCK_BYTES: usize = 8;
    /// Bits of a result for each byte.
    pub(super) const BITS_PER_BYTE: usize = 8;

    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;

    /// Returns the highest bit of every special byte. Only the first bit counts: a borrow can set further ones.
    #[inline]
    pub(super) fn special(block: &[u8]) -> u64 {
        let mut word = [0; BLOCK_BYTES];
        word.copy_from_slice(block);
        let word = u64::from_le_bytes(word);
        let zeros = |word: u64| word.wrapping_sub(LOW) & !word;
        let controls = word.wrapping_sub(LOW * u64::from(b' ')) & !word;
        let quotes = zeros(word ^ (LOW * u64::from(b'"')));
        let escapes = zeros(word ^ (LOW * u64::from(b'\\')));
        (controls | quotes | escapes) & HIGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_special_byte_at_every_place() {
        for byte in 0..=u8::MAX {
            for length in 0..40 {
                let mut text = vec![b'a'; length];
                text.push(byte);
                text.extend_from_slice("é".repeat(20).as_bytes());
                let expected = if is_special(byte) { length } else { text.len() };
                assert_eq!(plain_end(&text, 0), expected, "{byte} at {length}");
                assert_eq!(plain_end(&text, text.len()), text.len());
            }
        }
    }

    #[test]
    fn words_find_the_first_special_byte() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                for place in 0..7 {
                    let mut block = [0xff; 8];
                    block[place] = first;
                    block[place + 1] = second;
                    let expected = block.iter().position(|byte| is_special(*byte));
                    let found = words::special(&block);
                    let found = (found != 0)
                        .then(|| found.trailing_zeros() as usize / words::BITS_PER_BYTE);
                    assert_eq!(found, expected, "{block:?}");
                }
            }
        }
    }
}
