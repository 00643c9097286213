//! Finds the ends of strings. Most bytes of a review are in strings, and most strings are short.
//!
//! The scan writes down the places of all special bytes of a window of the text before anybody asks for them. The ends of
//! strings are then read from a list. A search that reads bytes from the beginning of each string cannot begin before
//! the string before it has ended, so the processor would wait.

/// The special bytes of the part of a text that was scanned last.
pub(super) struct Window {
    /// Where that part ends.
    end: usize,
    /// Number of the first special byte that may still be asked for.
    next: usize,
    places: Places,
    /// Whether this or an earlier window has a byte that is not ASCII.
    beyond_ascii: bool,
}

/// A way to scan a part of a text. A value of a type is the proof that the processor can do it.
trait Look: Copy {
    fn look(self, bytes: &[u8; PART_BYTES]) -> Seen;

    /// Writes down the place of each bit behind the first `count` places. Returns how many places there are then. What
    /// follows after them has no meaning.
    #[inline(always)]
    fn write_down(self, mut bits: u64, start: u32, places: &mut Places, count: usize) -> usize {
        let all = count + bits.count_ones() as usize;
        if bits == 0 {
            return all;
        }
        // Eight at a time, because their number is hard to predict.
        for batch in places[count..].as_chunks_mut::<8>().0 {
            for place in batch {
                *place = start + bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
            }
            if bits == 0 {
                break;
            }
        }
        all
    }
}

/// The bytes that [`Look::look`] found, with a bit for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    special: u64,
    beyond_ascii: u64,
}

/// The places of the special bytes of a window in the text, in order, and [`NOWHERE`] behind them. There is room for a
/// part more, because parts are written down in batches.
type Places = [u32; WINDOW_BYTES + PART_BYTES];

/// Stands behind the last place of a window. No text has it.
const NOWHERE: u32 = u32::MAX;
const PART_BYTES: usize = 64;
const WINDOW_BYTES: usize = 1_024;

// === impl Window ===

impl Window {
    /// A window of no text.
    pub(super) const NONE: Self = Self {
        end: 0,
        next: 0,
        places: [NOWHERE; WINDOW_BYTES + PART_BYTES],
        beyond_ascii: false,
    };

    /// Returns the first place at or after `at` with a quote, a backslash or a control character, or the end of the text.
    ///
    /// Places before that of an earlier call are not found any more. The text has less than `u32::MAX` bytes.
    #[inline(always)]
    pub(super) fn plain_end(&mut self, text: &[u8], at: usize) -> usize {
        loop {
            let number = self.seek(at);
            let place = self.places[number];
            if place != NOWHERE {
                return place as usize;
            }
            if self.end >= text.len() {
                return text.len();
            }
            self.move_to(text, at.max(self.end));
        }
    }

    /// Returns the number of the first special byte at or after `at` in this window, or of [`NOWHERE`].
    #[inline(always)]
    pub(super) fn seek(&mut self, at: usize) -> usize {
        while (self.places[self.next] as usize) < at {
            self.next += 1;
        }
        self.next
    }

    /// Returns the places of a special byte and of the three after it. Behind the place [`NOWHERE`], they have no meaning.
    #[inline(always)]
    pub(super) fn four(&self, number: usize) -> Option<[usize; 4]> {
        let places = self.places.get(number..)?.first_chunk()?;
        Some(places.map(|place| place as usize))
    }

    /// Goes on to a special byte that [`Self::four`] has returned, or to the one after them.
    #[inline(always)]
    pub(super) fn go_on(&mut self, number: usize) {
        self.next = number;
    }

    /// Scans the text from a place on.
    #[inline(never)]
    fn move_to(&mut self, text: &[u8], at: usize) {
        let rest = text.get(at..).unwrap_or_default();
        let part = &rest[..rest.len().min(WINDOW_BYTES)];
        self.end = at + part.len();
        self.next = 0;
        self.beyond_ascii |= look_over(part, at as u32, &mut self.places);
    }

    /// Whether the scan found a byte that is not ASCII. It has scanned every byte of a string, except those of escapes at
    /// the end of a window. The pass has seen that these are ASCII.
    pub(super) fn has_seen_beyond_ascii(&self) -> bool {
        self.beyond_ascii
    }
}

/// Does what [`look_at`] does, in the best way that this processor has.
fn look_over(bytes: &[u8], start: u32, places: &mut Places) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(avx512) = Avx512::here() {
            avx512.look_at(bytes, start, places)
        } else if let Some(avx2) = Avx2::here() {
            avx2.look_at(bytes, start, places)
        } else {
            look_at(Sse2, bytes, start, places)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    look_at(Words, bytes, start, places)
}

/// Scans the bytes of a window that begins at a place of the text. Returns whether one is not ASCII.
#[inline(always)]
fn look_at(how: impl Look, bytes: &[u8], start: u32, places: &mut Places) -> bool {
    let mut beyond_ascii = 0;
    let mut count = 0;
    let (parts, rest) = bytes.as_chunks();
    let mut look = |part: &[u8; PART_BYTES], start| {
        let seen = how.look(part);
        count = how.write_down(seen.special, start, places, count);
        beyond_ascii |= seen.beyond_ascii;
    };
    let mut at = start;
    for part in parts {
        look(part, at);
        at += PART_BYTES as u32;
    }
    if !rest.is_empty() {
        let mut last = [b' '; PART_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        look(&last, at);
    }
    places[count] = NOWHERE;
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
use x86_64::{Avx2, Avx512, Sse2};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8, _mm512_add_epi32, _mm512_castsi512_si128, _mm512_cmpeq_epi8_mask,
        _mm512_cmple_epu8_mask, _mm512_cvtepu8_epi32, _mm512_maskz_compress_epi8,
        _mm512_maskz_compress_epi64, _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_set1_epi32,
    };

    use super::{Look, PART_BYTES, Places, Seen, look_at};

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
            let bytes = vector_128(*part);
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
        /// None if this processor does not have AVX2, and what came before it.
        #[inline]
        pub(super) fn here() -> Option<Self> {
            let is_here = std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("bmi1")
                && std::arch::is_x86_feature_detected!("popcnt");
            is_here.then_some(Self(()))
        }

        /// Does what [`look_at`] does. The compiler may use AVX2 for all of it.
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        pub(super) fn look_at(self, bytes: &[u8], start: u32, places: &mut Places) -> bool {
            // SAFETY: `here` has made this value, so the processor has these features.
            unsafe { look_at_with_avx2(self, bytes, start, places) }
        }
    }

    impl Look for Avx2 {
        #[inline(always)]
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        fn look(self, bytes: &[u8; PART_BYTES]) -> Seen {
            // SAFETY: `here` has made this value, so the processor has these features.
            unsafe { look_with_avx2(bytes) }
        }
    }

    #[target_feature(enable = "avx2,bmi1,popcnt")]
    fn look_at_with_avx2(avx2: Avx2, bytes: &[u8], start: u32, places: &mut Places) -> bool {
        look_at(avx2, bytes, start, places)
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
            let bytes = vector_256(*part);
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

    /// AVX-512 with VBMI2, which processors for servers have had since 2019 (Intel) and 2022 (AMD).
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    impl Avx512 {
        /// None if this processor does not have what it takes.
        #[inline]
        pub(super) fn here() -> Option<Self> {
            let is_here = std::arch::is_x86_feature_detected!("avx512vbmi2")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("popcnt");
            is_here.then_some(Self(()))
        }

        /// Does what [`look_at`] does. The compiler may use AVX-512 for all of it.
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        pub(super) fn look_at(self, bytes: &[u8], start: u32, places: &mut Places) -> bool {
            // SAFETY: `here` has made this value, so the processor has these features.
            unsafe { look_at_with_avx512(self, bytes, start, places) }
        }
    }

    impl Look for Avx512 {
        #[inline(always)]
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        fn look(self, bytes: &[u8; PART_BYTES]) -> Seen {
            // SAFETY: `here` has made this value, so the processor has these features.
            unsafe { look_with_avx512(bytes) }
        }

        #[inline(always)]
        #[expect(
            unsafe_code,
            reason = "the compiler asks for it wherever a function needs a feature"
        )]
        fn write_down(self, bits: u64, start: u32, places: &mut Places, count: usize) -> usize {
            // SAFETY: `here` has made this value, so the processor has these features.
            unsafe { write_down_with_avx512(bits, start, places, count) }
        }
    }

    #[target_feature(enable = "avx512bw,avx512vbmi2,popcnt")]
    fn look_at_with_avx512(avx512: Avx512, bytes: &[u8], start: u32, places: &mut Places) -> bool {
        look_at(avx512, bytes, start, places)
    }

    #[inline]
    #[target_feature(enable = "avx512bw,avx512vbmi2,popcnt")]
    fn look_with_avx512(part: &[u8; PART_BYTES]) -> Seen {
        let bytes = vector_512(*part);
        let quotes = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(QUOTE));
        let escapes = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(ESCAPE));
        let controls = _mm512_cmple_epu8_mask(bytes, _mm512_set1_epi8(LAST_CONTROL));
        Seen {
            special: quotes | escapes | controls,
            beyond_ascii: _mm512_movepi8_mask(bytes),
        }
    }

    /// The places in a part.
    const ALL_PLACES: [u8; PART_BYTES] = {
        let mut places = [0; PART_BYTES];
        let mut place = 0;
        while place < places.len() {
            places[place] = place as u8;
            place += 1;
        }
        places
    };

    /// Removes the places of bits that are not set from the list of all places.
    #[inline]
    #[target_feature(enable = "avx512bw,avx512vbmi2,popcnt")]
    fn write_down_with_avx512(bits: u64, start: u32, places: &mut Places, count: usize) -> usize {
        let mut inside = _mm512_maskz_compress_epi8(bits, vector_512(ALL_PLACES));
        let start = _mm512_set1_epi32(start.cast_signed());
        let new = bits.count_ones() as usize;
        let (batches, _) = places[count..].as_chunks_mut();
        for (batch, before) in batches.iter_mut().zip((0..).step_by(16)) {
            let first = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(inside));
            *batch = integers(_mm512_add_epi32(first, start));
            if new <= before + 16 {
                break;
            }
            inside = _mm512_maskz_compress_epi64(0b1111_1100, inside);
        }
        count + new
    }

    /// Defines conversions between arrays of integers and vectors of the same size.
    macro_rules! conversions {
        ($($name:ident: $from:ty => $to:ty;)*) => {
            $(
                #[inline(always)]
                #[expect(unsafe_code, reason = "the standard library has no safe way")]
                fn $name(from: $from) -> $to {
                    // SAFETY: all bits are allowed in both. The compiler checks that they have the same size.
                    unsafe { std::mem::transmute(from) }
                }
            )*
        };
    }

    conversions! {
        vector_128: [u8; 16] => __m128i;
        vector_256: [u8; 32] => __m256i;
        vector_512: [u8; 64] => __m512i;
        integers: __m512i => [u32; 16];
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
                match Avx512::here() {
                    Some(how) => $check(how),
                    None => eprintln!("SKIPPED: this processor has no AVX-512 with VBMI2"),
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
    fn every_way_writes_down_the_same() {
        fn check(how: impl Look) {
            let few = (0..64).flat_map(|first| (0..64).map(move |last| 1 << first | 1 << last));
            let some = (0..=64).map(|count| u64::MAX.checked_shr(count).unwrap_or(0));
            let many = (1..2_000).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for bits in few.chain(some).chain(many) {
                for count in [0, 1, 15, WINDOW_BYTES - 64, WINDOW_BYTES - 63, WINDOW_BYTES] {
                    let mut places = [NOWHERE; WINDOW_BYTES + PART_BYTES];
                    let all = how.write_down(bits, 1_000_000, &mut places, count);
                    let expected = (0..64).filter(|place| bits >> place & 1 == 1);
                    let expected: Vec<u32> = expected.map(|place| 1_000_000 + place).collect();
                    assert_eq!(places[count..all], expected, "{bits:b} behind {count}");
                    assert!(places[..count].iter().all(|place| *place == NOWHERE));
                }
            }
        }
        every_way!(check);
    }

    #[test]
    fn finds_the_places_of_windows_of_every_length() {
        fn check(how: impl Look) {
            let longest = WINDOW_BYTES;
            for length in (0..200).chain(longest - 130..=longest) {
                let text: Vec<u8> = (0..length)
                    .map(|at| b"ab\"c\\\n"[at * (at + 1) / 2 % 6])
                    .collect();
                for text in [text, vec![b'"'; length], vec![b'a'; length]] {
                    let mut places = [7; WINDOW_BYTES + PART_BYTES];
                    assert!(!look_at(how, &text, 5, &mut places));
                    let special = (5..).zip(&text).filter(|(_, byte)| is_special(**byte));
                    let mut expected: Vec<u32> = special.map(|(place, _)| place).collect();
                    expected.push(NOWHERE);
                    assert_eq!(places[..expected.len()], expected, "{length}");
                }
            }
        }
        every_way!(check);
    }

    #[test]
    fn finds_every_special_byte_at_every_place() {
        let lengths = (0..200).chain(2_000..2_200).chain(4_050..4_150);
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
                    // Places before the last one are never asked for.
                    for from in [length, length] {
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
