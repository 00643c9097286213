//! Finds the ends of strings. Most bytes of a review are in strings, and most strings are short.
//!
//! The scan marks all special bytes of a window of the text before anybody asks for them. The end of a string is then the
//! next bit of an integer. A search that reads bytes from the beginning of each string cannot begin before the string
//! before it has ended, so the processor would wait.

/// The special bytes of a part of a text, which was scanned last.
pub(super) struct Window {
    start: usize,
    special: Special,
    /// Whether this or an earlier window has a byte that is not ASCII.
    beyond_ascii: bool,
}

/// A way to scan a part of a text. A value of a type is the proof that the processor can do it.
trait Look: Copy {
    fn look(self, bytes: &[u8; PART_BYTES]) -> Seen;
}

/// The bytes that [`Look::look`] found, with a bit for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    special: u64,
    beyond_ascii: u64,
}

/// A bit for each special byte of a window, the lowest of the first integer for the first byte.
type Special = [u64; WINDOW_BYTES / PART_BYTES];

const PART_BYTES: usize = 64;
const WINDOW_BYTES: usize = 4_096;

// === impl Window ===

impl Window {
    /// A window of no text.
    pub(super) const NONE: Self = Self {
        // No place in a text is behind this one.
        start: usize::MAX / 2,
        special: [0; WINDOW_BYTES / PART_BYTES],
        beyond_ascii: false,
    };

    /// Returns the first place at or after `at` with a quote, a backslash or a control character, or the end of the text.
    #[inline(always)]
    pub(super) fn plain_end(&mut self, text: &[u8], mut at: usize) -> usize {
        loop {
            let inside = at.wrapping_sub(self.start);
            let Some(special) = self.special.get(inside / PART_BYTES) else {
                if at >= text.len() {
                    return text.len();
                }
                self.move_to(text, at);
                continue;
            };
            let rest = special >> (inside % PART_BYTES);
            if rest != 0 {
                return at + rest.trailing_zeros() as usize;
            }
            at += PART_BYTES - inside % PART_BYTES;
        }
    }

    /// Scans the text from a place on.
    #[inline(never)]
    fn move_to(&mut self, text: &[u8], at: usize) {
        self.start = at;
        let rest = &text[at..];
        let part = &rest[..rest.len().min(WINDOW_BYTES)];
        #[cfg(target_arch = "x86_64")]
        let beyond_ascii = match Avx2::here() {
            Some(avx2) => avx2.look_at(part, &mut self.special),
            None => look_at(Sse2, part, &mut self.special),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let beyond_ascii = look_at(Words, part, &mut self.special);
        self.beyond_ascii |= beyond_ascii;
    }

    /// Whether the scan found a byte that is not ASCII. It has scanned every byte of a string.
    pub(super) fn has_seen_beyond_ascii(&self) -> bool {
        self.beyond_ascii
    }
}

/// Scans the bytes of a window. Returns whether one is not ASCII. All bytes behind the end of the text count as special.
#[inline(always)]
fn look_at(how: impl Look, bytes: &[u8], special: &mut Special) -> bool {
    let mut beyond_ascii = 0;
    let (parts, rest) = bytes.as_chunks();
    let mut places = special.iter_mut();
    for (part, place) in parts.iter().zip(&mut places) {
        let seen = how.look(part);
        *place = seen.special;
        beyond_ascii |= seen.beyond_ascii;
    }
    if let Some(place) = places.next() {
        // Zeros are control characters.
        let mut last = [0; PART_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let seen = how.look(&last);
        *place = seen.special;
        beyond_ascii |= seen.beyond_ascii;
    }
    for place in places {
        *place = u64::MAX;
    }
    beyond_ascii != 0
}

/// Eight bytes at a time, for every processor.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[derive(Clone, Copy)]
struct Words;

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Look for Words {
    #[inline(always)]
    fn look(self, bytes: &[u8; PART_BYTES]) -> Seen {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        // The highest bit of each byte that is zero.
        let zeros = |word: u64| !(((word & !HIGH) + !HIGH) | word) & HIGH;
        // The highest bits of all bytes, together.
        let gather = |bits: u64| ((bits >> 7).wrapping_mul(0x0102_0408_1020_4080)) >> 56;
        let mut seen = Seen {
            special: 0,
            beyond_ascii: 0,
        };
        let (words, _) = bytes.as_chunks();
        for (index, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let controls = zeros(word & (LOW * 0xe0));
            let quotes = zeros(word ^ (LOW * u64::from(b'"')));
            let escapes = zeros(word ^ (LOW * u64::from(b'\\')));
            seen.special |= gather(controls | quotes | escapes) << (8 * index);
            seen.beyond_ascii |= gather(word & HIGH) << (8 * index);
        }
        seen
    }
}

#[cfg(target_arch = "x86_64")]
use x86_64::{Avx2, Sse2};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set_epi64x, _mm256_set1_epi8,
    };

    use super::{Look, PART_BYTES, Seen, Special, look_at};

    const QUOTE: i8 = b'"'.cast_signed();
    const ESCAPE: i8 = b'\\'.cast_signed();
    const LAST_CONTROL: i8 = 0x1f;

    /// SSE2, which every x86-64 has.
    #[derive(Clone, Copy)]
    pub(super) struct Sse2;

    impl Look for Sse2 {
        #[inline(always)]
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        fn look(self, bytes: &[u8; PART_BYTES]) -> Seen {
            // SAFETY: every x86-64 has SSE2.
            unsafe { look_with_sse2(bytes) }
        }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn look_with_sse2(bytes: &[u8; PART_BYTES]) -> Seen {
        let mut seen = Seen {
            special: 0,
            beyond_ascii: 0,
        };
        let (parts, _) = bytes.as_chunks::<16>();
        for (index, part) in parts.iter().enumerate() {
            let bytes = _mm_set_epi64x(word(part, 1), word(part, 0));
            let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(QUOTE));
            let escapes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(ESCAPE));
            let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(LAST_CONTROL)), bytes);
            let found = _mm_or_si128(_mm_or_si128(quotes, escapes), controls);
            let bits = |mask: i32| u64::from(mask.cast_unsigned()) << (16 * index);
            seen.special |= bits(_mm_movemask_epi8(found));
            seen.beyond_ascii |= bits(_mm_movemask_epi8(bytes));
        }
        seen
    }

    /// AVX2, which most x86-64 have.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    impl Avx2 {
        /// None if this processor does not have AVX2.
        #[inline]
        pub(super) fn here() -> Option<Self> {
            std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
        }

        /// Does what [`look_at`] does. The compiler may use AVX2 for all of it.
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        pub(super) fn look_at(self, bytes: &[u8], special: &mut Special) -> bool {
            // SAFETY: `here` has made this value, so the processor has AVX2.
            unsafe { look_at_with_avx2(self, bytes, special) }
        }
    }

    impl Look for Avx2 {
        #[inline(always)]
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        fn look(self, bytes: &[u8; PART_BYTES]) -> Seen {
            // SAFETY: `here` has made this value, so the processor has AVX2.
            unsafe { look_with_avx2(bytes) }
        }
    }

    #[target_feature(enable = "avx2")]
    fn look_at_with_avx2(avx2: Avx2, bytes: &[u8], special: &mut Special) -> bool {
        look_at(avx2, bytes, special)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn look_with_avx2(bytes: &[u8; PART_BYTES]) -> Seen {
        let mut seen = Seen {
            special: 0,
            beyond_ascii: 0,
        };
        let (parts, _) = bytes.as_chunks::<32>();
        for (index, part) in parts.iter().enumerate() {
            let bytes =
                _mm256_set_epi64x(word(part, 3), word(part, 2), word(part, 1), word(part, 0));
            let quotes = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(QUOTE));
            let escapes = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(ESCAPE));
            let lower = _mm256_min_epu8(bytes, _mm256_set1_epi8(LAST_CONTROL));
            let controls = _mm256_cmpeq_epi8(lower, bytes);
            let found = _mm256_or_si256(_mm256_or_si256(quotes, escapes), controls);
            let bits = |mask: i32| u64::from(mask.cast_unsigned()) << (32 * index);
            seen.special |= bits(_mm256_movemask_epi8(found));
            seen.beyond_ascii |= bits(_mm256_movemask_epi8(bytes));
        }
        seen
    }

    #[inline(always)]
    fn word(part: &[u8], index: usize) -> i64 {
        let (words, _) = part.as_chunks();
        i64::from_le_bytes(words[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls a function with every way to look that this processor has.
    macro_rules! every_way {
        ($check:ident) => {
            $check(Words);
            #[cfg(target_arch = "x86_64")]
            {
                $check(Sse2);
                match Avx2::here() {
                    Some(how) => $check(how),
                    None => eprintln!("SKIPPED: this processor has no AVX2"),
                }
            }
        };
    }

    fn is_special(byte: u8) -> bool {
        byte < b' ' || byte == b'"' || byte == b'\\'
    }

    fn bits(bytes: &[u8], is_set: impl Fn(u8) -> bool) -> u64 {
        let bytes = bytes.iter().enumerate();
        bytes.fold(0, |bits, (place, byte)| {
            bits | u64::from(is_set(*byte)) << place
        })
    }

    #[test]
    fn every_way_sees_the_same() {
        fn check(how: impl Look) {
            for first in 0..=u8::MAX {
                for second in 0..=u8::MAX {
                    let mut bytes = [b'a'; PART_BYTES];
                    for (place, byte) in (0..).zip(&mut bytes) {
                        match place % 5 {
                            0 => *byte = first,
                            1 => *byte = second,
                            4 => *byte = first.wrapping_add(place),
                            _ => {}
                        }
                    }
                    let expected = Seen {
                        special: bits(&bytes, is_special),
                        beyond_ascii: bits(&bytes, |byte| !byte.is_ascii()),
                    };
                    assert_eq!(how.look(&bytes), expected, "{bytes:?}");
                }
            }
        }
        every_way!(check);
    }

    #[test]
    fn end_of_text_is_special_wherever_it_is_in_a_window() {
        fn check(how: impl Look) {
            for length in [0, 1, 63, 64, 65, 4_031, 4_032, 4_095, 4_096] {
                let mut special = [7; WINDOW_BYTES / PART_BYTES];
                assert!(!look_at(how, &vec![b'a'; length], &mut special));
                for place in 0..WINDOW_BYTES {
                    let is_set = special[place / PART_BYTES] >> (place % PART_BYTES) & 1 == 1;
                    assert_eq!(is_set, place >= length, "{place} of {length}");
                }
            }
        }
        every_way!(check);
    }

    #[test]
    fn finds_every_special_byte_at_every_place() {
        let lengths = (0..200).chain(4_000..4_200).chain(8_150..8_200);
        for length in lengths {
            for byte in [
                0, 0x1f, b' ', b'!', b'"', b'#', b'[', b'\\', b']', 0x7f, 0xff,
            ] {
                let mut text = vec![b'a'; length];
                text.push(byte);
                text.extend_from_slice("é".repeat(100).as_bytes());
                let end = if is_special(byte) { length } else { text.len() };
                for from in [0, length / 2, length] {
                    let mut window = Window::NONE;
                    assert_eq!(window.plain_end(&text, from), end, "{byte} at {length}");
                    for from in [length / 2, length] {
                        // Places before the window are never asked for.
                        assert_eq!(window.plain_end(&text, from), end, "{byte} at {length}");
                    }
                    for from in [length + 1, length + 100, text.len(), text.len() + 9] {
                        let found = window.plain_end(&text, from);
                        assert!(found >= text.len(), "{byte} at {length}");
                    }
                }
            }
        }
    }

    #[test]
    fn sees_every_byte_beyond_ascii_before_the_end() {
        let sees = |text: &[u8]| {
            let mut window = Window::NONE;
            window.plain_end(text, 0);
            window.has_seen_beyond_ascii()
        };
        for length in (1..200).chain(4_090..4_170) {
            let mut text = "a".repeat(length).into_bytes();
            assert!(!sees(&text));
            for place in [0, length / 3, length - 1] {
                for byte in [0x80, 0xff] {
                    text[place] = byte;
                    assert!(sees(&text), "at {place} of {length}");
                }
                text[place] = b'a';
            }
        }
    }
}
