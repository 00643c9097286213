//! A bump allocator for a plugin that lives for one review: it cuts blocks off the free memory, one after the other.
//!
//! Growing linear memory costs the host two system calls and the other threads a TLB shootdown. That is several times
//! the cost of an ordinary policy. So `configure` leaves [`RESERVE`] free bytes behind its own memory, and reviews
//! start with them. Only a request that does not fit asks for more pages, so a review with a large object still works.
//! A review frees only the newest block, because the instance and all its memory end with the call.
//!
//! Every review starts with the memory that `configure` leaves, and the host keeps it for every instance. So while
//! `configure` runs, the allocator reuses freed blocks. At its end it clears the ones that are left, and the stack: the
//! host keeps no empty memory, and has less to reset.

#![expect(
    unsafe_code,
    reason = "an allocator hands out raw memory; what makes it sound stands at each place"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};

/// Free bytes for a review: 128 KiB, many times the need of a policy that reads fields. A larger reserve has a cost:
/// the kernel looks at every page of the memory to find the touched ones. Where the kernel cannot (Linux before 6.7),
/// the host clears all pages.
const RESERVE: usize = 128 * 1024;

/// The size of a WebAssembly page.
const PAGE: usize = 64 * 1024;

/// The pages to ask for when the reserve is used up: 1 MiB at a time, so that a large object needs few growths.
const GROWTH: usize = 16;

/// The part of the stack that is cleared at the end of `configure`, of the 64 KiB that a plugin has.
#[cfg(target_arch = "wasm32")]
const CLEARED_STACK: usize = 16 * 1024;

/// The unit of block sizes. Every block is a multiple, so that it has room for a [`Gap`] when it is freed.
const UNIT: usize = 16;

/// The number of gap lists. A list has the gaps whose sizes have the same highest bit. The last list also has all
/// larger gaps.
const BINS: usize = 16;

/// The number of gaps to look at in one list before the allocator takes a larger one.
const LOOKS: usize = 8;

/// A source of memory.
///
/// # Safety
/// The returned memory is valid for reads and writes until the program ends, and nobody else uses it.
pub(crate) unsafe trait Pages {
    /// The memory that is free at the start, as its place and length.
    fn initial(&self) -> (*mut u8, usize);

    /// Returns `count` adjacent pages of [`PAGE`] bytes each, or none when no pages are left.
    fn grow(&self, count: usize) -> Option<NonNull<u8>>;
}

/// The linear memory of a plugin.
#[cfg(target_arch = "wasm32")]
pub(crate) struct LinearMemory;

/// The bump allocator over a source of pages.
pub(crate) struct Bump<P> {
    chunk: Cell<Chunk>,
    /// The freed blocks, while `configure` runs. In a review there are none, so that its blocks lie together in few
    /// pages.
    gaps: UnsafeCell<Option<Gaps>>,
    /// Whether `configure` has ended.
    is_settled: Cell<bool>,
    pages: P,
}

/// The piece of memory that blocks are cut from: `start..next` is in use, and `left` bytes from `next` on are free.
#[derive(Clone, Copy)]
struct Chunk {
    start: *mut u8,
    next: *mut u8,
    left: usize,
}

/// The freed blocks, by size.
struct Gaps {
    first: [*mut Gap; BINS],
    /// One bit for each list that is not empty.
    filled: u16,
}

/// The head that the allocator writes into a freed block.
#[derive(Clone, Copy)]
struct Gap {
    next: *mut Gap,
    size: usize,
}

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: Bump<LinearMemory> = Bump::new(LinearMemory);

/// Runs `configure`. Every review starts with the memory that it allocates and keeps.
#[cfg(target_arch = "wasm32")]
pub(crate) fn configuring<T>(work: impl FnOnce() -> T) -> T {
    let done = ALLOCATOR.configuring(work);
    clear_stack();
    done
}

/// Writes zeros where the frames of functions were that have returned.
#[cfg(target_arch = "wasm32")]
#[inline(never)]
fn clear_stack() {
    // The frame of this function is there now.
    std::hint::black_box(&mut [0_u8; CLEARED_STACK]);
}

/// The host calls this function to get a block for what it hands over. It takes the place of wit-bindgen's weak symbol,
/// which reaches the allocator through three more functions. Each function costs fuel and time.
///
/// # Safety
/// `old_bytes` is 0, or `old` is a block of this allocator with that size and alignment.
#[cfg(target_arch = "wasm32")]
#[unsafe(export_name = "cabi_realloc")]
unsafe extern "C" fn cabi_realloc(
    old: *mut u8,
    old_bytes: usize,
    align: usize,
    bytes: usize,
) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(bytes, align) else {
        core::arch::wasm32::unreachable();
    };
    if bytes == 0 {
        return ptr::without_provenance_mut(align);
    }
    let block = if old_bytes == 0 {
        // SAFETY: the size is not zero.
        unsafe { ALLOCATOR.alloc(layout) }
    } else {
        // SAFETY: the caller's promise. The size is not zero, and valid as that of a layout.
        unsafe {
            let old_layout = Layout::from_size_align_unchecked(old_bytes, align);
            ALLOCATOR.realloc(old, old_layout, bytes)
        }
    };
    if block.is_null() {
        core::arch::wasm32::unreachable();
    }
    block
}

// === impl LinearMemory ===

// SAFETY: what lies between the heap's base and the end of the memory belongs to nobody else: this is the only allocator.
// memory.grow appends zeroed pages that no one has an address of, and linear memory never shrinks.
#[cfg(target_arch = "wasm32")]
unsafe impl Pages for LinearMemory {
    fn initial(&self) -> (*mut u8, usize) {
        unsafe extern "C" {
            /// The linker's symbol for the end of statics and stack.
            static __heap_base: u8;
        }
        let start = (&raw const __heap_base).expose_provenance();
        let end = core::arch::wasm32::memory_size::<0>() * PAGE;
        (
            ptr::with_exposed_provenance_mut(start),
            end.saturating_sub(start),
        )
    }

    fn grow(&self, count: usize) -> Option<NonNull<u8>> {
        match core::arch::wasm32::memory_grow::<0>(count) {
            usize::MAX => None,
            // The address comes from outside of the language. No other pointer has provenance over these pages.
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
unsafe impl<P> Sync for Bump<P> {}

impl<P: Pages> Bump<P> {
    pub(crate) const fn new(pages: P) -> Self {
        Self {
            chunk: Cell::new(Chunk {
                start: ptr::null_mut(),
                next: ptr::null_mut(),
                left: 0,
            }),
            gaps: UnsafeCell::new(None),
            is_settled: Cell::new(false),
            pages,
        }
    }

    /// Reuses freed blocks while this work runs, and leaves room for a review after it.
    pub(crate) fn configuring<T>(&self, work: impl FnOnce() -> T) -> T {
        self.set_gaps(Some(Gaps::new()));
        let done = work();
        self.clear_gaps();
        self.set_gaps(None);
        self.is_settled.set(true);
        let chunk = self.chunk();
        if chunk.left < RESERVE
            && let Some(longer) = self.more(chunk, RESERVE / PAGE)
        {
            self.chunk.set(longer);
        }
        done
    }

    /// Writes zeros into the freed blocks that were not used again.
    fn clear_gaps(&self) {
        // SAFETY: the reference ends with this function, which allocates nothing.
        if let Some(gaps) = unsafe { self.gaps() } {
            gaps.clear();
        }
    }

    fn chunk(&self) -> Chunk {
        let chunk = self.chunk.get();
        if !chunk.start.is_null() {
            return chunk;
        }
        // The place is not known before the program runs.
        let (start, left) = self.pages.initial();
        Chunk {
            start,
            next: start,
            left,
        }
    }

    /// Extends a chunk by `pages` pages. Returns a new chunk if the pages are not adjacent.
    fn more(&self, chunk: Chunk, pages: usize) -> Option<Chunk> {
        let start = self.pages.grow(pages)?.as_ptr();
        if chunk.next.wrapping_add(chunk.left) == start {
            return Some(Chunk {
                left: chunk.left + pages * PAGE,
                ..chunk
            });
        }
        Some(Chunk {
            start,
            next: start,
            left: pages * PAGE,
        })
    }

    /// Returns a chunk with room for a block. The rest of the present chunk may be lost.
    #[cold]
    #[inline(never)]
    fn room(&self, chunk: Chunk, layout: Layout) -> Option<Chunk> {
        let pages = layout.size().checked_add(layout.align())?.div_ceil(PAGE);
        let at_once = if self.is_settled.get() {
            GROWTH
        } else {
            RESERVE / PAGE
        };
        self.more(chunk, pages.max(at_once))
            // Near the plugin's memory limit, fewer pages may still suffice.
            .or_else(|| self.more(chunk, pages))
    }
}

/// The short ways of a review, in which no block is reused. Almost every call takes one of them.
impl<P> Bump<P> {
    /// Cuts a block off the chunk.
    #[inline]
    fn cut_off(&self, layout: Layout) -> Option<*mut u8> {
        let chunk = self.chunk.get();
        let size = units(layout.size());
        let is_simple = self.is_settled.get()
            && layout.align() <= UNIT
            && chunk.next.addr() & (UNIT - 1) == 0
            && size <= chunk.left;
        is_simple.then(|| {
            self.chunk.set(Chunk {
                // Within the chunk or at its end, because the size is at most `left`.
                next: chunk.next.wrapping_add(size),
                left: chunk.left - size,
                ..chunk
            });
            chunk.next
        })
    }

    /// Changes the length of a block. None if the block has to move.
    #[inline]
    fn resized(&self, block: *mut u8, layout: Layout, new_size: usize) -> Option<*mut u8> {
        let chunk = self.chunk.get();
        let (size, new_size) = (units(layout.size()), units(new_size));
        if !self.is_settled.get() || layout.align() > UNIT {
            return None;
        }
        if size == new_size {
            return Some(block);
        }
        if !chunk.ends_with(block, size) {
            return (new_size < size).then_some(block);
        }
        let left = (chunk.left + size).checked_sub(new_size)?;
        self.chunk.set(Chunk {
            next: block.wrapping_add(new_size),
            left,
            ..chunk
        });
        Some(block)
    }
}

impl<P> Bump<P> {
    /// The gaps, if the allocator reuses blocks.
    ///
    /// # Safety
    /// The caller drops the reference before the next call of this function or of `set_gaps`.
    #[expect(clippy::mut_from_ref, reason = "that is what the caller promises")]
    unsafe fn gaps(&self) -> Option<&mut Gaps> {
        // SAFETY: nobody else has a reference, by the callers' promise, and there is one thread.
        unsafe { (*self.gaps.get()).as_mut() }
    }

    fn set_gaps(&self, gaps: Option<Gaps>) {
        // SAFETY: nobody has a reference, by the promise that callers of `gaps` give, and there is one thread.
        unsafe { *self.gaps.get() = gaps };
    }

    /// Returns a freed block that fits.
    fn reuse(&self, layout: Layout) -> Option<*mut u8> {
        // SAFETY: the reference ends with this function, which allocates nothing.
        let gaps = unsafe { self.gaps() }?;
        if layout.align() > UNIT {
            return None;
        }
        gaps.cut(layout.size())
    }

    /// Writes zeros into a freed block, if the allocator reuses blocks. In a review, nobody looks at it again.
    ///
    /// # Safety
    /// `block` is `size` bytes long, and nobody uses it any more.
    unsafe fn clear(&self, block: *mut u8, size: usize) {
        // SAFETY: the reference ends with this statement.
        if unsafe { self.gaps() }.is_some() {
            // SAFETY: the caller's promise.
            unsafe { block.write_bytes(0, size) };
        }
    }

    /// Turns a block into a gap, if the allocator reuses blocks.
    ///
    /// # Safety
    /// As for [`Gaps::put`].
    unsafe fn give_back(&self, block: *mut u8, size: usize) {
        // SAFETY: the reference ends with this function, which allocates nothing.
        if let Some(gaps) = unsafe { self.gaps() } {
            // SAFETY: the caller's promise.
            unsafe { gaps.put(block, size) };
        }
    }
}

impl Chunk {
    /// Cuts a block off the chunk. None if it does not fit.
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

    /// Whether a block is the one that was cut off last. (A block at the end of an older chunk may end where this chunk
    /// starts.)
    fn ends_with(&self, block: *mut u8, size: usize) -> bool {
        block >= self.start && block.wrapping_add(size) == self.next
    }

    /// Changes the length of the newest block. None if there is not enough room.
    fn resize(self, block: *mut u8, size: usize, new_size: usize) -> Option<Self> {
        let left = (self.left + size).checked_sub(new_size)?;
        // SAFETY: the chunk has `size + left` bytes from `block` on, and `new_size` is not more.
        let next = unsafe { block.add(new_size) };
        Some(Self { next, left, ..self })
    }
}

impl Gaps {
    const fn new() -> Self {
        Self {
            first: [ptr::null_mut(); BINS],
            filled: 0,
        }
    }

    fn bin(size: usize) -> usize {
        let units = (size / UNIT).max(1);
        (units.ilog2() as usize).min(BINS - 1)
    }

    /// # Safety
    /// `block` is `size` bytes long, aligned to a unit, at least one long, and nobody uses it any more.
    #[cold]
    #[inline(never)]
    unsafe fn put(&mut self, block: *mut u8, size: usize) {
        let gap = block.cast::<Gap>();
        let bin = Self::bin(size);
        // SAFETY: a unit is as long as a gap's head, and aligned for one.
        unsafe {
            gap.write(Gap {
                next: self.first[bin],
                size,
            })
        };
        self.first[bin] = gap;
        self.filled |= 1 << bin;
    }

    /// Takes a block of `size` bytes, in whole units, from the beginning of a gap. The rest stays a gap.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, size: usize) -> Option<*mut u8> {
        let mut bins = self.filled & (u16::MAX << Self::bin(size));
        while bins != 0 {
            let bin = bins.trailing_zeros() as usize;
            if let Some((block, had)) = self.take(bin, size) {
                if had > size {
                    // SAFETY: the gap was `had` long and belongs to nobody; all sizes are multiples of a unit.
                    unsafe { self.put(block.add(size), had - size) };
                }
                return Some(block);
            }
            bins &= bins - 1;
        }
        None
    }

    /// Writes zeros into all gaps, and forgets them.
    fn clear(&mut self) {
        for first in &mut self.first {
            while !first.is_null() {
                // SAFETY: what is in a list was written by `put`, and nobody else uses it.
                let gap = unsafe { first.read() };
                // SAFETY: the gap has that many bytes.
                unsafe { first.cast::<u8>().write_bytes(0, gap.size) };
                *first = gap.next;
            }
        }
        self.filled = 0;
    }

    /// Removes a gap with at least `size` bytes from a list, and returns it with its length.
    fn take(&mut self, bin: usize, size: usize) -> Option<(*mut u8, usize)> {
        let mut before: *mut Gap = ptr::null_mut();
        let mut at = self.first[bin];
        for _ in 0..LOOKS {
            if at.is_null() {
                return None;
            }
            // SAFETY: what is in a list was written by `put`, and nobody else uses it.
            let gap = unsafe { at.read() };
            if gap.size < size {
                before = at;
                at = gap.next;
                continue;
            }
            if before.is_null() {
                self.first[bin] = gap.next;
            } else {
                // SAFETY: as above.
                unsafe { (*before).next = gap.next };
            }
            if self.first[bin].is_null() {
                self.filled &= !(1 << bin);
            }
            return Some((at.cast(), gap.size));
        }
        None
    }
}

/// Rounds a size up to whole units. A size that has none is more than any chunk has left.
#[inline]
const fn units(size: usize) -> usize {
    size.saturating_add(UNIT - 1) & !(UNIT - 1)
}

/// Rounds the layout up to whole units. None if it is too large.
fn in_units(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_next_multiple_of(UNIT)?;
    Layout::from_size_align(size, layout.align().max(UNIT)).ok()
}

// SAFETY: blocks are cut from memory that is used for nothing else, or are gaps, which are in one list only and leave it
// when they are handed out. They do not overlap, since `next` only moves back when the newest block ends, and that one is
// no gap; and they are aligned by `cut`, or, as all sizes are multiples of a unit, as the gap's own block was. No function
// panics: all arithmetic is checked or bounded by the size of the chunk.
unsafe impl<P: Pages> GlobalAlloc for Bump<P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.cut_off(layout) {
            Some(block) => block,
            None => self.find(layout),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.is_settled.get() && layout.align() <= UNIT {
            let chunk = self.chunk.get();
            let size = units(layout.size());
            if chunk.ends_with(block, size) {
                self.chunk.set(Chunk {
                    next: block,
                    left: chunk.left + size,
                    ..chunk
                });
            }
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.free(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match self.resized(block, layout, new_size) {
            Some(block) => block,
            // SAFETY: the caller's promise.
            None => unsafe { self.change(block, layout, new_size) },
        }
    }
}

impl<P: Pages> Bump<P> {
    /// Returns a block, as `alloc` does.
    #[cold]
    #[inline(never)]
    fn find(&self, layout: Layout) -> *mut u8 {
        let Some(layout) = in_units(layout) else {
            return ptr::null_mut();
        };
        if let Some(block) = self.reuse(layout) {
            return block;
        }
        let chunk = self.chunk();
        let cut = chunk
            .cut(layout)
            .or_else(|| self.room(chunk, layout)?.cut(layout));
        let Some((block, chunk)) = cut else {
            return ptr::null_mut();
        };
        self.chunk.set(chunk);
        block
    }

    /// Takes a block back, as `dealloc` does.
    ///
    /// # Safety
    /// As for `dealloc`.
    #[cold]
    #[inline(never)]
    unsafe fn free(&self, block: *mut u8, layout: Layout) {
        // This layout is valid, because the block was allocated with it.
        let Some(layout) = in_units(layout) else {
            return;
        };
        let chunk = self.chunk();
        if chunk.ends_with(block, layout.size()) {
            if let Some(shorter) = chunk.resize(block, layout.size(), 0) {
                self.chunk.set(shorter);
                // SAFETY: the caller gives the block back, which has that many bytes.
                unsafe { self.clear(block, layout.size()) };
            }
        } else {
            // SAFETY: the caller gives the block back, which has that many bytes, at least a unit.
            unsafe { self.give_back(block, layout.size()) };
        }
    }

    /// Changes the length of a block, as `realloc` does.
    ///
    /// # Safety
    /// As for `realloc`.
    #[cold]
    #[inline(never)]
    unsafe fn change(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (Some(old), Ok(new)) = (
            in_units(layout),
            Layout::from_size_align(new_size, layout.align()),
        ) else {
            return ptr::null_mut();
        };
        let Some(wanted) = in_units(new) else {
            return ptr::null_mut();
        };
        if wanted.size() == old.size() {
            return block;
        }
        let chunk = self.chunk();
        if chunk.ends_with(block, old.size()) {
            if let Some(resized) = chunk.resize(block, old.size(), wanted.size()) {
                self.chunk.set(resized);
                return block;
            }
        } else if let Some(rest) = old.size().checked_sub(wanted.size()) {
            // SAFETY: the caller gives back what lies behind the new size, whole units of it.
            unsafe { self.give_back(block.add(wanted.size()), rest) };
            return block;
        }
        // SAFETY: the caller promises that `new_size` is not zero.
        let new_block = unsafe { self.alloc(new) };
        if !new_block.is_null() {
            // SAFETY: both blocks are at least that long, and the new one belongs to nobody else.
            unsafe { ptr::copy_nonoverlapping(block, new_block, layout.size().min(new_size)) };
            // SAFETY: the caller has no use for it any more, and it was handed out with this layout.
            unsafe { self.dealloc(block, layout) };
        }
        new_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaked memory for tests: a number of bytes at the start, and a number of pages later on.
    struct Leaked {
        initial: usize,
        pages: Cell<usize>,
    }

    // SAFETY: leaked memory is valid for ever and has no other user.
    unsafe impl Pages for Leaked {
        fn initial(&self) -> (*mut u8, usize) {
            // The linker lets the heap begin at a multiple of this.
            (leaked(self.initial, UNIT), self.initial)
        }

        fn grow(&self, count: usize) -> Option<NonNull<u8>> {
            self.pages.set(self.pages.get().checked_sub(count)?);
            NonNull::new(leaked(count * PAGE, PAGE))
        }
    }

    fn leaked(size: usize, align: usize) -> *mut u8 {
        // SAFETY: the size is not zero.
        unsafe { std::alloc::alloc_zeroed(layout(size, align)) }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn bump(initial: usize, pages: usize) -> Bump<Leaked> {
        let pages = Cell::new(pages);
        Bump::new(Leaked { initial, pages })
    }

    /// An allocator while `configure` runs.
    fn loading(initial: usize, pages: usize) -> Bump<Leaked> {
        let bump = bump(initial, pages);
        bump.set_gaps(Some(Gaps::new()));
        bump
    }

    /// An allocator in a review, with an empty reserve.
    fn settled(initial: usize, pages: usize) -> Bump<Leaked> {
        let bump = bump(initial, pages);
        bump.is_settled.set(true);
        bump
    }

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        for bump in [bump(4096, 0), loading(4096, 0), settled(4096, 0)] {
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
    }

    #[test]
    fn the_newest_block_grows_and_shrinks_in_place() {
        let bump = settled(1024, 0);
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
        let bump = settled(64 + UNIT, 0);
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
        let bump = settled(1024, 0);
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
    fn what_was_given_back_is_used_again_while_settings_are_read() {
        let bump = bump(2048, 4);
        // SAFETY: every block is used with the size that it has, and given back once.
        unsafe {
            // The text of the settings is allocated before `configure`.
            let text = bump.alloc(layout(500, 8));
            let second = bump.configuring(|| {
                let second = bump.alloc(layout(40, 8));
                bump.dealloc(text, layout(500, 8));
                assert_eq!(bump.alloc(layout(200, 4)), text, "the beginning of it");
                assert_eq!(bump.alloc(layout(290, 4)), text.add(208), "and the rest");
                bump.dealloc(second, layout(40, 8));
                assert_eq!(bump.alloc(layout(33, 1)), second);
                bump.dealloc(second, layout(33, 1));
                second
            });
            assert_ne!(bump.alloc(layout(33, 1)), second);
        }
    }

    #[test]
    fn used_again_and_again_no_blocks_overlap() {
        let bump = loading(4096, 64);
        take_turns(&bump);
        let left = bump.pages.pages.get();
        assert!(left > 50, "what is given back is not used again: {left}");
    }

    #[test]
    fn in_a_review_no_blocks_overlap() {
        take_turns(&settled(4096, 1_000));
    }

    #[test]
    fn what_is_larger_than_any_memory_is_refused() {
        let bump = settled(1024, 4);
        // SAFETY: the size is not zero.
        let block = unsafe { bump.alloc(layout(16, 8)) };
        assert_eq!(bump.resized(block, layout(16, 8), usize::MAX), None);
        assert_eq!(
            bump.cut_off(layout(isize::MAX as usize & !(UNIT - 1), 16)),
            None
        );
        // SAFETY: the size is not zero.
        assert_eq!(unsafe { bump.alloc(layout(16, 8)) }, block.wrapping_add(16));
    }

    /// Allocates, changes and gives back blocks in turn, and checks that each keeps its content.
    fn take_turns(bump: &Bump<Leaked>) {
        let mut held: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let mut random = 7_u32;
        // Miri takes a thousand times as long.
        let turns = if cfg!(miri) { 3000 } else { 20_000_u32 };
        for turn in 0..turns {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let size = 1 + (random >> 8) as usize % (16 << ((random >> 4) % 8));
            let mark = turn.to_le_bytes()[0];
            let filled = |(block, layout, mark): &(*mut u8, Layout, u8)| {
                // SAFETY: the block is held, and was filled.
                let bytes = unsafe { std::slice::from_raw_parts(*block, layout.size()) };
                // Compares the block as a whole. Byte by byte, Miri would take minutes.
                assert!(bytes == vec![*mark; layout.size()]);
            };
            // SAFETY: every block is used with the size that it has, and given back once.
            unsafe {
                match random % 3 {
                    0 if !held.is_empty() => {
                        let gone = held.swap_remove((random >> 12) as usize % held.len());
                        filled(&gone);
                        bump.dealloc(gone.0, gone.1);
                    }
                    1 if !held.is_empty() => {
                        let changed = held.swap_remove((random >> 12) as usize % held.len());
                        filled(&changed);
                        let block = bump.realloc(changed.0, changed.1, size);
                        assert!(!block.is_null());
                        let kept = size.min(changed.1.size());
                        let bytes = std::slice::from_raw_parts(block, kept);
                        assert!(bytes == vec![changed.2; kept]);
                        block.write_bytes(mark, size);
                        held.push((block, layout(size, changed.1.align()), mark));
                    }
                    _ if held.len() < 200 => {
                        let layout = layout(size, 1 << (random % 5));
                        let block = bump.alloc(layout);
                        assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                        block.write_bytes(mark, size);
                        held.push((block, layout, mark));
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn what_configure_frees_is_empty_memory() {
        let bump = bump(4096, 0);
        // SAFETY: blocks are used with the sizes that they have, and given back once.
        let blocks = bump.configuring(|| unsafe {
            let blocks = [112, 32, 208].map(|size| {
                let block = bump.alloc(layout(size, 8));
                block.write_bytes(0xAA, size);
                (block, size)
            });
            bump.dealloc(blocks[0].0, layout(112, 8));
            bump.dealloc(blocks[2].0, layout(208, 8));
            blocks
        });
        for ((block, size), content) in blocks.into_iter().zip([0, 0xAA, 0]) {
            // SAFETY: the memory stays valid, and nobody has allocated it again.
            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
            assert_eq!(bytes, vec![content; size]);
        }
    }

    #[test]
    fn a_review_begins_with_a_reserve() {
        for (initial, used) in [
            (64, 16),
            (4096, 4000),
            (PAGE, 100),
            (2 * PAGE, 100),
            (4 * PAGE, PAGE),
        ] {
            let bump = bump(initial, 6);
            // SAFETY: the size is not zero.
            bump.configuring(|| assert!(!unsafe { bump.alloc(layout(used, 1)) }.is_null()));
            let pages = bump.pages.pages.get();
            // SAFETY: the size is not zero.
            assert!(!unsafe { bump.alloc(layout(RESERVE, 1)) }.is_null());
            assert_eq!(bump.pages.pages.get(), pages, "{initial}, {used}");
        }
    }

    #[test]
    fn what_does_not_fit_gets_pages() {
        for bump in [bump(64, 64), loading(64, 64), settled(64, 64)] {
            // SAFETY: the sizes are not zero and the blocks are that long.
            unsafe {
                for size in [65, PAGE, 3 * PAGE, 20 * PAGE] {
                    let block = bump.alloc(layout(size, 16));
                    assert!(!block.is_null(), "{size}");
                    block.write_bytes(0xAA, size);
                }
            }
        }
    }

    #[test]
    fn without_pages_there_is_no_block() {
        let bump = settled(64, 2);
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
