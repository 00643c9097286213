//! `memcpy` and `memmove` for static binaries.
//!
//! musl copies with `rep movsq`, which takes tens of cycles to begin. Nearly all copies of a server are shorter than that. With
//! musl's functions, a tenth of the CPU time of a review was copies. Its `memmove` needs its `memcpy`, so both are replaced.

#![expect(
    unsafe_code,
    reason = "a `memcpy` works on raw memory; what makes it sound stands at each place"
)]

use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};

/// Up to this length, a copy fits into registers.
const SHORT: usize = 128;

/// From this length on, the processor's own copy is as fast as a loop.
const LONG: usize = 1024;

/// The C function. The linker prefers it to that of the libc.
///
/// # Safety
/// `from` is valid for reads of `length` bytes and `to` for writes, and the two do not overlap.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the promise of the caller.
    unsafe { copy(to, from, length) };
    to
}

/// The C function. The linker prefers it to that of the libc.
///
/// # Safety
/// `from` is valid for reads of `length` bytes and `to` for writes.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the promise of the caller.
    unsafe { shift(to, from, length) };
    to
}

/// Copies between places that do not overlap. Calls no function, because the compiler makes calls of `memcpy` out of copies.
///
/// # Safety
/// As for `memcpy`.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promise, and the lengths that the functions ask for. The instruction copies upwards, because the
    // direction flag is clear by the ABI.
    unsafe {
        if length <= SHORT {
            short(to, from, length);
        } else if length < LONG {
            upwards(to, from, length);
        } else {
            asm!(
                "rep movsb",
                inout("rcx") length => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies between places that may overlap.
///
/// # Safety
/// As for `memmove`.
#[inline(always)]
unsafe fn shift(to: *mut u8, from: *const u8, length: usize) {
    // A distance that is not less than the length means that upwards, no byte is written before it is read.
    let is_ahead = to.addr().wrapping_sub(from.addr()) < length;
    // SAFETY: the caller's promise, and the lengths that the functions ask for.
    unsafe {
        if length <= SHORT {
            short(to, from, length);
        } else if is_ahead {
            downwards(to, from, length);
        } else {
            upwards(to, from, length);
        }
    }
}

/// Copies at most [`SHORT`] bytes. Reads all before it writes.
///
/// # Safety
/// As for `memmove`.
#[inline(always)]
unsafe fn short(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: in each branch, the places are within the length: blocks from the beginning on and blocks up to the end, which may
    // overlap each other.
    unsafe {
        if length > 64 {
            let (first, last) = (block(from), block(from.add(length - 64)));
            put(to, first);
            put(to.add(length - 64), last);
        } else if length > 32 {
            let (first, second) = (load(from), load(from.add(16)));
            let (before, last) = (load(from.add(length - 32)), load(from.add(length - 16)));
            store(to, first);
            store(to.add(16), second);
            store(to.add(length - 32), before);
            store(to.add(length - 16), last);
        } else if length >= 16 {
            let (first, last) = (load(from), load(from.add(length - 16)));
            store(to, first);
            store(to.add(length - 16), last);
        } else if length >= 8 {
            ends::<u64>(to, from, length);
        } else if length >= 4 {
            ends::<u32>(to, from, length);
        } else if length >= 2 {
            ends::<u16>(to, from, length);
        } else if length == 1 {
            *to = *from;
        }
    }
}

/// Copies more than 64 bytes, from the beginning to the end.
///
/// # Safety
/// As for `memmove`, and `to` is not between the beginning and the end of `from`.
#[inline(always)]
unsafe fn upwards(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the loop copies 64 bytes as long as more than 64 are left. It writes below what it has still to read. The last 64
    // bytes were read before it, because it may write over some of them.
    unsafe {
        let last = block(from.add(length - 64));
        asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "sub {left}, 64",
            "cmp {left}, 64",
            "ja 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            left = inout(reg) length => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack)
        );
        put(to.add(length - 64), last);
    }
}

/// Copies more than 64 bytes, from the end to the beginning.
///
/// # Safety
/// As for `memmove`, and `to` is not below `from`, unless they do not overlap.
#[inline(always)]
unsafe fn downwards(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the loop copies the last 64 bytes as long as more than 64 are left. It writes above what it has still to read. The
    // first 64 bytes were read before it, because it may write over some of them.
    unsafe {
        let first = block(from);
        asm!(
            "2:",
            "movups {a}, [{from} + {left} - 64]",
            "movups {b}, [{from} + {left} - 48]",
            "movups {c}, [{from} + {left} - 32]",
            "movups {d}, [{from} + {left} - 16]",
            "movups [{to} + {left} - 64], {a}",
            "movups [{to} + {left} - 48], {b}",
            "movups [{to} + {left} - 32], {c}",
            "movups [{to} + {left} - 16], {d}",
            "sub {left}, 64",
            "cmp {left}, 64",
            "ja 2b",
            from = in(reg) from,
            to = in(reg) to,
            left = inout(reg) length => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack)
        );
        put(to, first);
    }
}

/// Reads 64 bytes.
///
/// # Safety
/// `from` is valid for reads of 64 bytes.
#[inline(always)]
unsafe fn block(from: *const u8) -> [__m128i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        [
            load(from),
            load(from.add(16)),
            load(from.add(32)),
            load(from.add(48)),
        ]
    }
}

/// Writes 64 bytes.
///
/// # Safety
/// `to` is valid for writes of 64 bytes.
#[inline(always)]
unsafe fn put(to: *mut u8, block: [__m128i; 4]) {
    let [a, b, c, d] = block;
    // SAFETY: the caller's promise.
    unsafe {
        store(to, a);
        store(to.add(16), b);
        store(to.add(32), c);
        store(to.add(48), d);
    }
}

/// Copies the beginning and the end, which may overlap.
///
/// # Safety
/// As for `memmove`, and `length` is between the size of `T` and twice that.
#[inline(always)]
unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, length: usize) {
    let behind = length - size_of::<T>();
    // SAFETY: both places are within the length.
    unsafe {
        let first = from.cast::<T>().read_unaligned();
        let last = from.add(behind).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(first);
        to.add(behind).cast::<T>().write_unaligned(last);
    }
}

/// # Safety
/// `from` is valid for reads of 16 bytes.
#[inline(always)]
unsafe fn load(from: *const u8) -> __m128i {
    // SAFETY: the caller's promise; the instruction needs no alignment.
    unsafe { _mm_loadu_si128(from.cast()) }
}

/// # Safety
/// `to` is valid for writes of 16 bytes.
#[inline(always)]
unsafe fn store(to: *mut u8, block: __m128i) {
    // SAFETY: the caller's promise; the instruction needs no alignment.
    unsafe { _mm_storeu_si128(to.cast(), block) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 2048;

    fn lengths() -> impl Iterator<Item = usize> {
        (0..700).chain([1023, 1024, 1025, 1500])
    }

    fn numbered() -> Vec<u8> {
        (0..=250).cycle().take(ROOM).collect()
    }

    #[test]
    fn every_length_at_every_alignment_is_copied_and_nothing_else() {
        let source = numbered();
        for length in lengths() {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (7, 3), (16, 9), (31, 17)] {
                let mut target = vec![255; ROOM];
                // SAFETY: both vectors are longer than the largest place and length together.
                unsafe {
                    copy(
                        target.as_mut_ptr().add(to),
                        source.as_ptr().add(from),
                        length,
                    )
                };
                let mut expected = vec![255; ROOM];
                expected[to..to + length].copy_from_slice(&source[from..from + length]);
                assert!(target == expected, "{length} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn overlapping_bytes_are_moved_in_both_directions() {
        for length in lengths() {
            for (from, to) in [
                (200, 200),
                (201, 200),
                (200, 201),
                (263, 200),
                (200, 263),
                (264, 200),
                (0, 300),
                (300, 0),
            ] {
                let mut bytes = numbered();
                let start = bytes.as_mut_ptr();
                // SAFETY: the vector is longer than the largest place and length together.
                unsafe { shift(start.add(to), start.add(from), length) };
                let mut expected = numbered();
                expected.copy_within(from..from + length, to);
                assert!(bytes == expected, "{length} bytes from {from} to {to}");
            }
        }
    }
}
