//! Asks the kernel which pages of a memory have been written, and writes to them. Only this file has unsafe code.

use std::cell::Cell;
use std::ffi::c_long;
use std::fs::File;
use std::ops::Range;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Finds written pages of this process. Needs Linux 6.7 or later.
pub(super) struct Pages {
    /// `/proc/self/pagemap`.
    map: File,
    /// Whether a thread that writes to a page for the first time has one more page fault.
    counts_faults: bool,
}

/// The number of page faults that a thread had at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Faults(c_long);

thread_local! {
    /// What this thread read last.
    static FAULTS: Cell<Option<Faults>> = const { Cell::new(None) };
}

/// `struct page_region` of Linux.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of Linux.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
/// The page is the unchanged page of a file.
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
pub(super) const PAGE_BYTES: u64 = 4096;
/// Maximum number of separate regions. wasmtime's pool leaves up to 32 in a memory that it gives to the next instance.
const MOST_REGIONS: usize = 64;

// === impl Pages ===

impl Pages {
    /// Returns `None` if the kernel cannot tell which pages have been written.
    pub(super) fn open() -> Option<Self> {
        let pages = Self {
            map: File::open("/proc/self/pagemap").ok()?,
            counts_faults: no_page_is_made_without_a_fault()
                && Faults::of(UsageWho::RUSAGE_SELF).is_some_and(|faults| faults.0 > 0),
        };
        if rustix::param::page_size() as u64 != PAGE_BYTES {
            return None;
        }
        let probe = [0_u8; 2 * PAGE_BYTES as usize];
        let start = probe.as_ptr().addr() as u64;
        let start = start.next_multiple_of(PAGE_BYTES);
        let written = pages.written(start..start + PAGE_BYTES, PAGE_BYTES);
        written.is_some().then_some(pages)
    }

    /// The number of page faults that this thread had, at some time up to now. `None` if it says nothing about writes.
    pub(super) fn faults_so_far(&self) -> Option<Faults> {
        if !self.counts_faults {
            return None;
        }
        FAULTS.get().or_else(Faults::of_this_thread)
    }

    /// The number of page faults that this thread has had. If it had as many before, no page became a written one since then. The
    /// first write to a page has at least one fault. This takes a fifth of the time of [`Pages::written`]. `None` if the number says nothing about writes.
    pub(super) fn faults_now(&self) -> Option<Faults> {
        let now = self.counts_faults.then(Faults::of_this_thread).flatten();
        FAULTS.set(now);
        now
    }

    /// Finds the regions of a range of addresses whose pages this process has written, as distances from its start. A page
    /// stays written when its content is reset. A page of zeros that was only read counts as written, too: the kernel can
    /// put such a page in the place of one that was written (KSM). Returns nothing if there are too many, or if the kernel fails.
    #[expect(
        unsafe_code,
        reason = "no safe interface has this system call; it reads page tables, and writes into the regions only"
    )]
    pub(super) fn written(&self, range: Range<u64>, most_bytes: u64) -> Option<Vec<Range<u64>>> {
        let mut regions = [PageRegion::default(); MOST_REGIONS];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: range.start,
            end: range.end,
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            regions_length: MOST_REGIONS as u64,
            max_pages: most_bytes / PAGE_BYTES,
            category_inverted: IS_FILE,
            category_mask: IS_FILE,
            category_any_of_mask: IS_PRESENT | IS_SWAPPED,
            ..Scan::default()
        };
        // SAFETY: the opcode takes a `pm_scan_arg`, which `Scan` is. The kernel reads page tables of the addresses and writes
        // at most `regions_length` regions to `regions`, which live until it returns. It changes no page, because `flags` is
        // 0. An address that is not mapped is an error or a page that was not written.
        let scanned = unsafe {
            let update = Updater::<PAGEMAP_SCAN, Scan>::new(&mut scan);
            ioctl(&self.map, update)
        };
        if scanned.is_err() || scan.walk_end != range.end {
            return None;
        }
        let regions = regions.iter().take_while(|region| region.end > 0);
        let written = regions.map(|region| {
            let is_within = region.start >= range.start && region.end <= range.end;
            let is_one = is_within && region.start < region.end;
            is_one.then(|| region.start - range.start..region.end - range.start)
        });
        written.collect()
    }
}

/// Writes to the memory of a plugin that does not run. `memory` are its addresses.
///
/// # Panics
/// When the memory does not have these bytes.
#[expect(
    unsafe_code,
    reason = "wasmtime has no safe way to write to the memory of a component, except through the component"
)]
pub(super) fn restore(memory: &Range<u64>, at: usize, contents: &[u8]) {
    let to = place(memory, at, contents.len());
    // SAFETY: `place` has checked that the memory has all of the bytes, and says why nobody else uses them. The contents are
    // in memory of the host.
    unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), to, contents.len()) };
}

/// Writes zeros to the memory of a plugin that does not run. `memory` are its addresses.
///
/// # Panics
/// When the memory does not have these bytes.
#[expect(unsafe_code, reason = "as for `restore`")]
pub(super) fn clear(memory: &Range<u64>, at: usize, bytes: usize) {
    let to = place(memory, at, bytes);
    // SAFETY: as in `restore`.
    unsafe { to.write_bytes(0, bytes) };
}

/// Returns the place of some bytes in the memory of a plugin that does not run.
///
/// The caller has the addresses from wasmtime, which has checked that the memory of the running store has all of them, and that
/// they can be written. The memory exists as long as the store, which the caller holds. It is not shared, and its plugin waits
/// for the caller, so that nothing else reads or writes there. No reference to it is in use.
///
/// # Panics
/// When the memory does not have these bytes.
fn place(memory: &Range<u64>, at: usize, bytes: usize) -> *mut u8 {
    let memory_bytes = usize::try_from(memory.end - memory.start).unwrap_or(0);
    let is_within = at.checked_add(bytes).is_some_and(|end| end <= memory_bytes);
    assert!(is_within, "{bytes} bytes at {at} of {memory_bytes}");
    let start = usize::try_from(memory.start).unwrap_or(0);
    std::ptr::with_exposed_provenance_mut::<u8>(start + at)
}

// === impl Faults ===

impl Faults {
    fn of_this_thread() -> Option<Self> {
        Self::of(UsageWho::RUSAGE_THREAD)
    }

    fn of(who: UsageWho) -> Option<Self> {
        let usage = getrusage(who).ok()?;
        let faults = usage.minor_page_faults() + usage.major_page_faults();
        Some(Self(faults))
    }
}

/// Switches off what makes written pages without a fault of the thread that writes: the kernel can put a huge page in the
/// place of pages of which some were never written. Holds for this process and its children.
fn no_page_is_made_without_a_fault() -> bool {
    let disabled = rustix::thread::disable_transparent_huge_pages(true);
    disabled.is_ok() && rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What asks the kernel, and a memory with 130 pages that nobody has touched. `None` if the kernel does not tell.
    fn untouched() -> Option<(Pages, Memory)> {
        let Some(pages) = Pages::open() else {
            eprintln!("SKIPPED: the kernel has no PAGEMAP_SCAN");
            return None;
        };
        // The allocator always asks the system for as much.
        let bytes = vec![0; 40 << 20];
        let start = (bytes.as_ptr().addr() as u64).next_multiple_of(PAGE_BYTES);
        let first = usize::try_from(start).unwrap() - bytes.as_ptr().addr();
        Some((
            pages,
            Memory {
                bytes,
                start,
                first,
            },
        ))
    }

    struct Memory {
        bytes: Vec<u8>,
        /// Address of the first page.
        start: u64,
        /// Place of the first page.
        first: usize,
    }

    impl Memory {
        fn range(&self) -> Range<u64> {
            self.start..self.start + 130 * PAGE_BYTES
        }

        fn write(&mut self, page: usize) {
            self.bytes[self.first + page * 4096 + 7] += 1;
        }
    }

    #[test]
    fn finds_pages_that_were_written_and_no_others() {
        let Some((pages, mut memory)) = untouched() else {
            return;
        };
        let range = memory.range();
        assert_eq!(pages.written(range.clone(), 1 << 20), Some(Vec::new()));
        for page in [3, 4, 9] {
            memory.write(page);
        }
        let two = vec![3 * 4096..5 * 4096, 9 * 4096..10 * 4096];
        assert_eq!(pages.written(range.clone(), 1 << 20), Some(two));
        assert_eq!(pages.written(range, 2 * 4096), None, "more than two pages");
    }

    #[test]
    fn reports_too_many_regions() {
        let Some((pages, mut memory)) = untouched() else {
            return;
        };
        for page in 0..MOST_REGIONS {
            memory.write(2 * page);
        }
        let regions = pages.written(memory.range(), 1 << 20);
        assert_eq!(regions.map(|regions| regions.len()), Some(MOST_REGIONS));
        memory.write(2 * MOST_REGIONS);
        assert_eq!(pages.written(memory.range(), 1 << 20), None);
    }

    #[test]
    fn first_write_to_a_page_is_a_fault_and_the_second_is_none() {
        let Some((pages, mut memory)) = untouched() else {
            return;
        };
        let mut has_fault_if = |write: &mut dyn FnMut(&mut Memory)| {
            // Another fault of this thread, such as one of its stack, is possible. It does not come again and again.
            (0..20).all(|_| {
                let before = pages.faults_so_far();
                write(&mut memory);
                pages.faults_now() != before || before.is_none()
            })
        };
        let mut page = 10;
        assert!(has_fault_if(&mut |memory| {
            page += 1;
            memory.write(page);
        }));
        assert!(!has_fault_if(&mut |memory| memory.write(11)));
        assert!(!has_fault_if(&mut |_| {}));
    }

    #[test]
    fn another_thread_does_not_answer_for_this_one() {
        let Some((pages, _)) = untouched() else {
            return;
        };
        let here = pages.faults_now();
        let there = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                // Many faults, so that both numbers differ.
                std::hint::black_box(vec![1_u8; 40 << 20]);
                let there = pages.faults_now();
                assert_eq!(there.is_some(), pages.counts_faults);
                there.is_some() && there == here
            });
            there.join().unwrap()
        });
        assert!(!there);
    }
}
