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

/// The bytes of a part that a way to look has found, with a bit for each byte. The lowest bit is that of the first byte.
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
        self.beyond_ascii |= best()(part, at as u32, &mut self.places);
    }

    /// Whether the scan found a byte that is not ASCII. It has scanned every byte of a string, except those of escapes at
    /// the end of a window. The pass has seen that these are ASCII.
    pub(super) fn has_seen_beyond_ascii(&self) -> bool {
        self.beyond_ascii
    }
}

/// Writes down the special bytes of a window that begins at a place of the text. Returns whether a byte is not ASCII.
type Scan = fn(window: &[u8], start: u32, &mut Places) -> bool;

/// The best way to scan that this processor has.
fn best() -> Scan {
    #[cfg(target_arch = "x86_64")]
    let best = x86_64::avx512().or_else(x86_64::avx2).or_else(x86_64::sse2);
    #[cfg(not(target_arch = "x86_64"))]
    let best = None;
    best.unwrap_or(scan_words)
}

/// Scans a window with one way to look at a part, and one to write its special bytes down.
#[inline(always)]
fn scan_with(
    bytes: &[u8],
    start: u32,
    places: &mut Places,
    look: impl Fn(&[u8; PART_BYTES]) -> Seen,
    write_down: impl Fn(u64, u32, &mut Places, usize) -> usize,
) -> bool {
    let mut beyond_ascii = 0;
    let mut count = 0;
    let mut at = start;
    let (parts, rest) = bytes.as_chunks();
    for part in parts {
        let seen = look(part);
        count = write_down(seen.special, at, places, count);
        beyond_ascii |= seen.beyond_ascii;
        at += PART_BYTES as u32;
    }
    if !rest.is_empty() {
        let mut last = [b' '; PART_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let seen = look(&last);
        count = write_down(seen.special, at, places, count);
        beyond_ascii |= seen.beyond_ascii;
    }
    places[count] = NOWHERE;
    beyond_ascii != 0
}

/// Writes down the place of each bit behind the first `count` places. Returns how many places there are then. What follows
/// after them has no meaning.
#[inline(always)]
fn write_down(mut bits: u64, start: u32, places: &mut Places, count: usize) -> usize {
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

/// Scans eight bytes at a time, on every processor.
fn scan_words(bytes: &[u8], start: u32, places: &mut Places) -> bool {
    scan_with(bytes, start, places, look_at_words, write_down)
}

#[inline(always)]
fn look_at_words(bytes: &[u8; PART_BYTES]) -> Seen {
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

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8, _mm512_add_epi32, _mm512_castsi512_si128, _mm512_cmpeq_epi8_mask,
        _mm512_cmple_epu8_mask, _mm512_cvtepu8_epi32, _mm512_maskz_compress_epi8,
        _mm512_maskz_compress_epi64, _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_set1_epi32,
    };

    use super::{PART_BYTES, Places, Scan, Seen, scan_with, write_down};

    const QUOTE: i8 = b'"'.cast_signed();
    const ESCAPE: i8 = b'\\'.cast_signed();
    const LAST_CONTROL: i8 = 0x1f;

    /// Defines ways to scan. Each function returns its way if this processor has the features.
    macro_rules! ways {
        ($(
            $(#[$about:meta])*
            $name:ident needs $($feature:tt),+: $look:expr, $write_down:expr;
        )+) => {
            $(
                $(#[$about])*
                pub(super) fn $name() -> Option<Scan> {
                    $(#[target_feature(enable = $feature)])+
                    fn scan(window: &[u8], start: u32, places: &mut Places) -> bool {
                        scan_with(window, start, places, $look, $write_down)
                    }
                    let is_here = $(is_x86_feature_detected!($feature))&&+;
                    #[expect(unsafe_code, reason = "this function needs features of the processor")]
                    is_here.then_some(|window, start, places| {
                        // SAFETY: the processor has the features that the function needs.
                        unsafe { scan(window, start, places) }
                    })
                }
            )+
        };
    }

    ways! {
        /// Every x86-64 has it.
        sse2 needs "sse2": |part| look_with_sse2(part), write_down;
        /// Most x86-64 have it.
        avx2 needs "avx2", "bmi1", "popcnt": |part| look_with_avx2(part), write_down;
        /// Processors for servers have had it since 2019 (Intel) and 2022 (AMD).
        avx512 needs "avx512f", "avx512bw", "avx512vbmi2", "popcnt":
            |part| look_with_avx512(part),
            |bits, start, places, count| write_down_with_avx512(bits, start, places, count);
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

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
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
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
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

    /// Calls a function with every way to scan that this processor has.
    fn every_way(check: impl Fn(Scan)) {
        check(scan_words);
        #[cfg(target_arch = "x86_64")]
        for (name, way) in [
            ("SSE2", x86_64::sse2()),
            ("AVX2", x86_64::avx2()),
            ("AVX-512 with VBMI2", x86_64::avx512()),
        ] {
            match way {
                Some(scan) => check(scan),
                None => eprintln!("SKIPPED: this processor has no {name}"),
            }
        }
    }

    fn is_special(byte: u8) -> bool {
        byte < b' ' || byte == b'"' || byte == b'\\'
    }

    /// Checks what a way finds in a window that begins at a place of a text.
    fn check(scan: Scan, window: &[u8]) {
        const START: u32 = 1_000_000;
        let mut places = [7; WINDOW_BYTES + PART_BYTES];
        assert_eq!(
            scan(window, START, &mut places),
            !window.is_ascii(),
            "{window:?}"
        );
        let special = (START..).zip(window).filter(|(_, byte)| is_special(**byte));
        let mut expected: Vec<u32> = special.map(|(place, _)| place).collect();
        expected.push(NOWHERE);
        assert_eq!(places[..expected.len()], expected, "{window:?}");
    }

    #[test]
    fn every_way_finds_every_byte_at_every_place() {
        every_way(|scan| {
            for byte in 0..=u8::MAX {
                for place in 0..PART_BYTES {
                    let mut window = [b'a'; PART_BYTES];
                    window[place] = byte;
                    check(scan, &window);
                    check(scan, &window[..=place]);
                }
            }
        });
    }

    #[test]
    fn every_way_finds_all_bytes_beside_each_other() {
        every_way(|scan| {
            for first in 0..=u8::MAX {
                for second in 0..=u8::MAX {
                    let bytes = [first, second, b'a', first, first.wrapping_add(second)];
                    check(scan, &bytes.repeat(13)[..PART_BYTES]);
                }
            }
        });
    }

    /// A part can have any number of special bytes, anywhere. They are written down in batches.
    #[test]
    fn every_way_writes_down_any_number_of_places() {
        every_way(|scan| {
            let few = (0..64).flat_map(|first| (0..64).map(move |last| 1 << first | 1 << last));
            let runs = (0..=64).map(|count| u64::MAX.checked_shr(count).unwrap_or(0));
            let many = (1..2_000).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for bits in few.chain(runs).chain(many) {
                let quotes = (0..64).map(|place| match bits >> place & 1 {
                    0 => b'a',
                    _ => b'"',
                });
                let part: Vec<u8> = quotes.collect();
                check(scan, &[&part[..], &part, &[b'"'; 64], &part].concat());
            }
        });
    }

    #[test]
    fn every_way_scans_windows_of_every_length() {
        every_way(|scan| {
            for length in (0..200).chain(WINDOW_BYTES - 130..=WINDOW_BYTES) {
                let mixed = (0..length).map(|at| b"ab\"c\\\n"[(at + at / 6) % 6]);
                check(scan, &mixed.collect::<Vec<u8>>());
                check(scan, &vec![b'"'; length]);
                check(scan, &vec![b'a'; length]);
            }
        });
    }

    #[test]
    fn finds_every_special_byte_at_every_place() {
        let lengths = (0..200)
            .chain(WINDOW_BYTES - 100..WINDOW_BYTES + 100)
            .chain(2_000..2_100);
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
                    // Asking again finds the same. Places before the last one are never asked for.
                    for from in [length, length] {
                        assert_eq!(window.plain_end(&text, from), end, "{byte} at {length}");
                    }
                    for from in [length + 1, length + 100, text.len(), text.len() + 9] {
                        let found = window.plain_end(&text, from);
                        assert_eq!(found, text.len(), "{byte} at {length}");
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
        for length in (1..200).chain(WINDOW_BYTES - 10..WINDOW_BYTES + 70) {
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
