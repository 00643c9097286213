//! Writes code to a file in which pages of zeros take no memory.
//!
//! A large part of a plugin's file is zeros: its stack, and memory that `configure` has freed. Linux maps a file in
//! pieces of many pages around the page that is read, but only pages that it has in memory. A page that nobody has
//! written, and nobody reads, is in no process's memory. So the host leaves out pages of zeros: they become holes of
//! the file, and read as zeros. It also does not read them when it copies the file.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::Code;

/// Size of the pieces in which code is written. Linux maps a file in the pieces in which it was written: with small
/// pieces, code that never runs takes no memory.
const PAGE: usize = 4096;

/// Code that is being written.
#[derive(Debug)]
pub struct Writing {
    file: NamedTempFile,
    digest: Sha256,
    /// Number of bytes in the file, with those of its holes.
    written: u64,
    /// The beginning of a page that is not complete yet.
    page: Vec<u8>,
    holes: Holes,
}

/// The parts of a file that are holes, in order.
#[derive(Debug, Default)]
pub(super) struct Holes(Vec<Range<u64>>);

// === impl Writing ===

impl Writing {
    pub(super) fn to(file: NamedTempFile) -> Self {
        Self {
            file,
            digest: Sha256::new(),
            written: 0,
            page: Vec::with_capacity(PAGE),
            holes: Holes::default(),
        }
    }

    /// Appends bytes to the code.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = PAGE - self.page.len();
            let (part, more) = rest.split_at(room.min(rest.len()));
            rest = more;
            if part.len() == PAGE {
                self.put(part)?;
                continue;
            }
            self.page.extend_from_slice(part);
            if self.page.len() == PAGE {
                self.put_page()?;
            }
        }
        Ok(())
    }

    /// Number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.page.len() as u64
    }

    /// Finishes writing.
    pub fn end(mut self) -> io::Result<Code> {
        self.put_page()?;
        // The code can end with a hole.
        self.file.as_file().set_len(self.written)?;
        Ok(Code {
            file: self.file,
            digest: format!("{:x}", self.digest.finalize()),
            holes: self.holes,
        })
    }

    fn put_page(&mut self) -> io::Result<()> {
        let mut page = std::mem::take(&mut self.page);
        self.put(&page)?;
        page.clear();
        self.page = page;
        Ok(())
    }

    /// Writes a page, or leaves it out.
    fn put(&mut self, page: &[u8]) -> io::Result<()> {
        let end = self.written + page.len() as u64;
        if page.iter().all(|byte| *byte == 0) {
            self.holes.add(self.written..end);
        } else {
            self.file.as_file().write_all_at(page, self.written)?;
        }
        self.written = end;
        Ok(())
    }
}

// === impl Holes ===

impl Holes {
    fn add(&mut self, hole: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end == hole.start => last.end = hole.end,
            _ if hole.is_empty() => {}
            _ => self.0.push(hole),
        }
    }

    /// Returns how many of the next `limit` bytes from `offset` on are all in a hole, or all outside of holes, and
    /// whether it is a hole.
    pub(super) fn next(&self, offset: u64, limit: usize) -> (usize, bool) {
        let following = self.0.partition_point(|hole| hole.end <= offset);
        let (end, is_hole) = match self.0.get(following) {
            Some(hole) if hole.start <= offset => (hole.end, true),
            Some(hole) => (hole.start, false),
            None => (u64::MAX, false),
        };
        let bytes = usize::try_from(end - offset).unwrap_or(usize::MAX);
        (bytes.min(limit), is_hole)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// Writes the content in parts of these sizes, again and again.
    fn written(content: &[u8], sizes: &[usize]) -> Code {
        let mut writing = Writing::to(NamedTempFile::new().unwrap());
        let mut rest = content;
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, more) = rest.split_at((*size).min(rest.len()));
            writing.write(part).unwrap();
            rest = more;
            assert_eq!(writing.bytes(), (content.len() - rest.len()) as u64);
        }
        writing.end().unwrap()
    }

    /// Reads the code as a child gets it.
    fn read(code: &Code, limit: usize) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match code.read(all.len() as u64, limit).unwrap() {
                piece if piece.is_empty() => return all,
                piece => all.extend(piece),
            }
        }
    }

    /// Pages of ones where the text has `#`, of zeros elsewhere, and a part of a page at the end.
    fn pages(text: &str, end: &[u8]) -> Vec<u8> {
        let page = |page| [u8::from(page == '#'); PAGE];
        let mut content: Vec<u8> = text.chars().flat_map(page).collect();
        content.extend(end);
        content
    }

    #[test]
    fn content_does_not_depend_on_holes_or_parts() {
        for (text, end) in [
            ("", &[][..]),
            ("", &[0; 3]),
            ("#.#", &[1; 7]),
            ("..##..", &[]),
            ("#...", &[0; 100]),
            ("....", &[]),
        ] {
            let content = pages(text, end);
            for sizes in [&[1 << 20][..], &[1], &[PAGE], &[100, 5000], &[PAGE - 1, 1]] {
                let code = written(&content, sizes);
                assert!(
                    fs::read(code.path()).unwrap() == content,
                    "{text} {sizes:?}"
                );
                assert_eq!(code.digest, format!("{:x}", Sha256::digest(&content)));
                assert_eq!(code.bytes().unwrap(), content.len() as u64);
                for limit in [PAGE, 100, 1 << 20] {
                    assert!(read(&code, limit) == content, "{text} {sizes:?} {limit}");
                }
            }
        }
    }

    #[test]
    fn pages_of_zeros_are_holes() {
        let code = written(&pages("#..#....#", &[]), &[10_000]);
        let pages = [1..3, 4..8].map(|hole| hole.start * PAGE as u64..hole.end * PAGE as u64);
        assert_eq!(code.holes.0, pages);
        // Some file systems give a file more than it needs.
        let on_disk = code.file.as_file().metadata().unwrap().blocks() * 512;
        assert!(on_disk < 6 * PAGE as u64, "{on_disk}");
    }

    #[test]
    fn next_part_ends_where_holes_begin_and_end() {
        let mut holes = Holes::default();
        holes.add(10..20);
        holes.add(20..30);
        holes.add(50..60);
        for (offset, limit, expected) in [
            (0, 100, (10, false)),
            (0, 5, (5, false)),
            (10, 100, (20, true)),
            (25, 3, (3, true)),
            (30, 100, (20, false)),
            (59, 100, (1, true)),
            (60, 100, (100, false)),
        ] {
            assert_eq!(holes.next(offset, limit), expected, "{offset} {limit}");
        }
    }
}
