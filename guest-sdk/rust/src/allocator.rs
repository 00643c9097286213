//! Memory for a plugin that lives for one review: a bump allocator over an arena that is part of the module.
//!
//! Growing linear memory costs the host two system calls and the other threads a TLB shootdown, several times what an
//! ordinary policy costs altogether. So the first [`ARENA`] bytes are a static, there from the start; only what does
//! not fit asks for more pages, and a review with a large object works all the same. Nothing is given back but the
//! newest block: the instance ends with the call, and all its memory with it.

#![expect(
    unsafe_code,
    reason = "an allocator hands out raw memory; what makes it sound stands at each place"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

/// 128 KiB: what a policy that reads fields needs, many times over. More is not free: the kernel looks at every page of
/// the memory to find those that were touched, and where it cannot (Linux before 6.7), the host clears them all.
#[cfg(target_arch = "wasm32")]
const ARENA: usize = 128 * 1024;

/// The size of a WebAssembly page.
const PAGE: usize = 64 * 1024;

/// When the arena is used up, 1 MiB is asked for at a time, so that a large object takes few growths.
const GROWTH: usize = 16;

/// Where memory beyond the arena comes from.
///
/// # Safety
/// The returned pages are valid for reads and writes until the program ends, and nobody else uses them.
pub(crate) unsafe trait Pages {
    /// Adjacent pages of [`PAGE`] bytes each; none when there are none left.
    fn grow(&self, count: usize) -> Option<NonNull<u8>>;
}

/// The linear memory of a plugin.
#[cfg(target_arch = "wasm32")]
pub(crate) struct LinearMemory;

/// The allocator.
pub(crate) struct Bump<const ARENA: usize, P> {
    chunk: Cell<Chunk>,
    arena: Arena<ARENA>,
    pages: P,
}

#[repr(align(16))]
struct Arena<const ARENA: usize>(UnsafeCell<[MaybeUninit<u8>; ARENA]>);

/// The piece of memory that blocks are cut from: `start..next` is handed out, `left` bytes from `next` are free.
#[derive(Clone, Copy)]
struct Chunk {
    start: *mut u8,
    next: *mut u8,
    left: usize,
}

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: Bump<ARENA, LinearMemory> = Bump::new(LinearMemory);

// === impl LinearMemory ===

// SAFETY: memory.grow appends zeroed pages that no one has an address of, and linear memory never shrinks.
#[cfg(target_arch = "wasm32")]
unsafe impl Pages for LinearMemory {
    fn grow(&self, count: usize) -> Option<NonNull<u8>> {
        match core::arch::wasm32::memory_grow::<0>(count) {
            usize::MAX => None,
            // The address comes from outside of the language: nothing else has provenance over these pages.
            before => NonNull::new(ptr::with_exposed_provenance_mut(before * PAGE)),
        }
    }
}

// === impl Bump ===

#[cfg(all(target_arch = "wasm32", target_feature = "atomics"))]
compile_error!(
    "the bump allocator is for plugins without threads: turn the feature `bump-allocator` off"
);

// SAFETY: the contract has no threads, and a module built for them is refused above.
#[cfg(target_arch = "wasm32")]
unsafe impl<const ARENA: usize, P> Sync for Bump<ARENA, P> {}

impl<const ARENA: usize, P: Pages> Bump<ARENA, P> {
    pub(crate) const fn new(pages: P) -> Self {
        Self {
            chunk: Cell::new(Chunk {
                start: ptr::null_mut(),
                next: ptr::null_mut(),
                left: 0,
            }),
            arena: Arena(UnsafeCell::new([MaybeUninit::uninit(); ARENA])),
            pages,
        }
    }

    fn chunk(&self) -> Chunk {
        let chunk = self.chunk.get();
        if !chunk.start.is_null() {
            return chunk;
        }
        // The arena's address is not known before the program runs.
        let start = self.arena.0.get().cast::<u8>();
        Chunk {
            start,
            next: start,
            left: ARENA,
        }
    }

    /// A chunk with room for a block; the rest of the present one is given up.
    fn more(&self, layout: Layout) -> Option<Chunk> {
        let pages = layout.size().checked_add(layout.align())?.div_ceil(PAGE);
        let (start, pages) = match self.pages.grow(pages.max(GROWTH)) {
            Some(start) => (start, pages.max(GROWTH)),
            // Near the plugin's memory limit less may still do.
            None => (self.pages.grow(pages)?, pages),
        };
        Some(Chunk {
            start: start.as_ptr(),
            next: start.as_ptr(),
            left: pages * PAGE,
        })
    }
}

impl Chunk {
    /// Cuts a block off; none when it does not fit.
    fn cut(self, layout: Layout) -> Option<(*mut u8, Self)> {
        let padding = self.next.addr().wrapping_neg() & (layout.align() - 1);
        let left = self.left.checked_sub(padding)?.checked_sub(layout.size())?;
        // SAFETY: padding and size together are at most `left`, so both places are within the chunk or at its end.
        let (block, next) = unsafe {
            (
                self.next.add(padding),
                self.next.add(padding + layout.size()),
            )
        };
        Some((block, Self { next, left, ..self }))
    }

    /// Whether a block is the one that was cut off last. (One at the end of an older chunk may end where this one
    /// starts.)
    fn ends_with(&self, block: *mut u8, size: usize) -> bool {
        block >= self.start && block.wrapping_add(size) == self.next
    }

    /// Makes the newest block shorter or longer; none when it cannot become that long.
    fn resize(self, block: *mut u8, size: usize, new_size: usize) -> Option<Self> {
        let left = (self.left + size).checked_sub(new_size)?;
        // SAFETY: the chunk has `size + left` bytes from `block` on, and `new_size` is not more.
        let next = unsafe { block.add(new_size) };
        Some(Self { next, left, ..self })
    }
}

// SAFETY: blocks are cut from memory that is used for nothing else, do not overlap, since `next` only moves back when
// the newest block ends, and are aligned by `cut`. No function panics: all arithmetic is checked or bounded by the
// size of the chunk.
unsafe impl<const ARENA: usize, P: Pages> GlobalAlloc for Bump<ARENA, P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let cut = self
            .chunk()
            .cut(layout)
            .or_else(|| self.more(layout)?.cut(layout));
        let Some((block, chunk)) = cut else {
            return ptr::null_mut();
        };
        self.chunk.set(chunk);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let chunk = self.chunk();
        if chunk.ends_with(block, layout.size())
            && let Some(shorter) = chunk.resize(block, layout.size(), 0)
        {
            self.chunk.set(shorter);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let chunk = self.chunk();
        if chunk.ends_with(block, layout.size()) {
            if let Some(resized) = chunk.resize(block, layout.size(), new_size) {
                self.chunk.set(resized);
                return block;
            }
        } else if new_size <= layout.size() {
            return block;
        }
        // SAFETY: the caller promises that `new_size`, rounded up to the alignment, does not overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller promises that `new_size` is not zero.
        let new_block = unsafe { self.alloc(new_layout) };
        if !new_block.is_null() {
            // SAFETY: both blocks are at least that long, and the new one was just cut from free memory.
            unsafe { ptr::copy_nonoverlapping(block, new_block, layout.size().min(new_size)) };
        }
        new_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that are leaked, as many as it is told.
    struct Leaked(Cell<usize>);

    // SAFETY: leaked memory is valid for ever and has no other user.
    unsafe impl Pages for Leaked {
        fn grow(&self, count: usize) -> Option<NonNull<u8>> {
            self.0.set(self.0.get().checked_sub(count)?);
            NonNull::new(vec![0_u8; count * PAGE].leak().as_mut_ptr())
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let bump = Bump::<4096, _>::new(Leaked(Cell::new(0)));
        let mut end = 0;
        for (size, align) in [(1, 1), (8, 8), (3, 1), (16, 16), (2, 2), (100, 64)] {
            // SAFETY: the size is not zero.
            let block = unsafe { bump.alloc(layout(size, align)) };
            assert!(!block.is_null());
            assert_eq!(block.addr() % align, 0);
            assert!(block.addr() >= end);
            end = block.addr() + size;
            // SAFETY: the block is that long.
            unsafe { block.write_bytes(0xAA, size) };
        }
    }

    #[test]
    fn the_newest_block_grows_and_shrinks_in_place() {
        let bump = Bump::<1024, _>::new(Leaked(Cell::new(0)));
        // SAFETY: every block is used with the size that it has at that time.
        unsafe {
            let block = bump.alloc(layout(16, 8));
            assert_eq!(bump.realloc(block, layout(16, 8), 512), block);
            assert_eq!(bump.realloc(block, layout(512, 8), 32), block);
            assert_eq!(bump.alloc(layout(8, 8)), block.add(32));
        }
    }

    #[test]
    fn the_newest_block_is_used_again() {
        let bump = Bump::<64, _>::new(Leaked(Cell::new(0)));
        // SAFETY: every block is given back once.
        unsafe {
            for _ in 0..1000 {
                let block = bump.alloc(layout(48, 16));
                assert!(!block.is_null());
                bump.dealloc(block, layout(48, 16));
            }
        }
    }

    #[test]
    fn an_older_block_is_copied_when_it_grows() {
        let bump = Bump::<1024, _>::new(Leaked(Cell::new(0)));
        // SAFETY: every block is used with the size that it has at that time.
        unsafe {
            let old = bump.alloc(layout(4, 4));
            old.copy_from(b"text".as_ptr(), 4);
            bump.alloc(layout(4, 4));
            let new = bump.realloc(old, layout(4, 4), 64);
            assert_ne!(new, old);
            assert_eq!(std::slice::from_raw_parts(new, 4), b"text");
        }
    }

    #[test]
    fn what_does_not_fit_into_the_arena_gets_pages() {
        let bump = Bump::<64, _>::new(Leaked(Cell::new(64)));
        // SAFETY: the sizes are not zero and the blocks are that long.
        unsafe {
            for size in [65, PAGE, 3 * PAGE, 20 * PAGE] {
                let block = bump.alloc(layout(size, 16));
                assert!(!block.is_null(), "{size}");
                block.write_bytes(0xAA, size);
            }
        }
    }

    #[test]
    fn without_pages_there_is_no_block() {
        let bump = Bump::<64, _>::new(Leaked(Cell::new(2)));
        // SAFETY: the sizes are not zero.
        unsafe {
            assert!(bump.alloc(layout(2 * PAGE + 1, 1)).is_null());
            assert!(
                !bump.alloc(layout(PAGE, 1)).is_null(),
                "less than a whole growth is left, and enough"
            );
            assert!(bump.alloc(layout(isize::MAX as usize, 1)).is_null());
        }
    }
}
