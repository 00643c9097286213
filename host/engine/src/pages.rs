//! Asks the kernel which pages of a memory have been written.

use std::fs::File;
use std::ops::Range;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Finds written pages of this process. Needs Linux 6.7 or later.
pub(super) struct Pages {
    /// `/proc/self/pagemap`.
    map: File,
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
const PAGE_BYTES: u64 = 4096;
/// Maximum number of separate regions.
const MOST_REGIONS: usize = 32;

// === impl Pages ===

impl Pages {
    /// Returns `None` if the kernel cannot tell which pages have been written.
    pub(super) fn open() -> Option<Self> {
        let pages = Self {
            map: File::open("/proc/self/pagemap").ok()?,
        };
        if rustix::param::page_size() as u64 != PAGE_BYTES {
            return None;
        }
        let probe = [0_u8; 2 * PAGE_BYTES as usize];
        let start = probe.as_ptr().addr() as u64;
        let start = start.next_multiple_of(PAGE_BYTES);
        let mut written = Vec::new();
        pages
            .written(start..start + PAGE_BYTES, PAGE_BYTES, &mut written)
            .then_some(pages)
    }

    /// Finds the regions of a range of addresses whose pages this process has written, as distances from its start. A page
    /// stays written when its content is put back. A page of zeros that was only read counts as written, too: the kernel can
    /// put such a page in the place of one that was written (KSM). Returns false if there are too many, or if the kernel fails.
    #[expect(
        unsafe_code,
        reason = "no safe interface has this system call; it reads page tables, and writes into the regions only"
    )]
    pub(super) fn written(
        &self,
        range: Range<u64>,
        most_bytes: u64,
        written: &mut Vec<Range<u64>>,
    ) -> bool {
        written.clear();
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
            return false;
        }
        for region in regions.iter().take_while(|region| region.end > 0) {
            if region.start < range.start || region.end > range.end || region.start >= region.end {
                return false;
            }
            written.push(region.start - range.start..region.end - range.start);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 * PAGE_BYTES as usize;

    /// A range of whole pages within a vector.
    fn pages_of(memory: &[u8]) -> Range<u64> {
        let start = (memory.as_ptr().addr() as u64).next_multiple_of(PAGE_BYTES);
        start..start + (BYTES as u64 - PAGE_BYTES)
    }

    #[test]
    fn finds_pages_that_were_written_and_no_others() {
        let Some(pages) = Pages::open() else {
            eprintln!("SKIPPED: the kernel has no PAGEMAP_SCAN");
            return;
        };
        // Large allocations of zeros are pages that nobody has touched.
        let mut memory = vec![0_u8; BYTES << 4];
        let range = pages_of(&memory);
        let first = usize::try_from(range.start).unwrap() - memory.as_ptr().addr();
        let mut written = Vec::new();
        assert!(pages.written(range.clone(), 1 << 20, &mut written));
        assert!(written.is_empty(), "{written:?}");
        for page in [3, 4, 9] {
            memory[first + page * 4096 + 7] = 1;
        }
        assert!(pages.written(range.clone(), 1 << 20, &mut written));
        assert_eq!(written, [3 * 4096..5 * 4096, 9 * 4096..10 * 4096]);
        assert!(
            !pages.written(range, 2 * 4096, &mut written),
            "more than two pages"
        );
    }

    #[test]
    fn reports_too_many_regions() {
        let Some(pages) = Pages::open() else {
            eprintln!("SKIPPED: the kernel has no PAGEMAP_SCAN");
            return;
        };
        let mut memory = vec![0_u8; 2 * 70 * 4096];
        let start = (memory.as_ptr().addr() as u64).next_multiple_of(PAGE_BYTES);
        let first = usize::try_from(start).unwrap() - memory.as_ptr().addr();
        for page in 0..65 {
            memory[first + 2 * page * 4096] = 1;
        }
        let mut written = Vec::new();
        assert!(!pages.written(start..start + 130 * 4096, 1 << 20, &mut written));
    }
}
