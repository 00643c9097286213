//! Fills contents into the places that code has for them.

use std::io;

use super::{Code, Store, Writing};

/// Number of bytes that are copied at once. The host never holds all code in memory.
const COPIED_AT_ONCE: u64 = 1 << 20;

// === impl Store ===

impl Store {
    /// Writes a copy of the code with other bytes at some places, which must be in order and lie within the code.
    pub fn fill<'c>(
        &self,
        code: &Code,
        contents: impl IntoIterator<Item = (u64, &'c [u8])>,
    ) -> io::Result<Code> {
        let length = code.bytes()?;
        let mut filled = self.write()?;
        for (place, content) in contents {
            let end = place.checked_add(content.len() as u64);
            if place < filled.bytes() || end.is_none_or(|end| end > length) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "{} bytes at {place} are outside the code of {length} bytes",
                        content.len()
                    ),
                ));
            }
            filled.copy(code, place)?;
            filled.write(content)?;
        }
        filled.copy(code, length)?;
        filled.end()
    }
}

// === impl Writing ===

impl Writing {
    /// Appends the same part of other code, up to `end`.
    pub(super) fn copy(&mut self, code: &Code, end: u64) -> io::Result<()> {
        while self.bytes() < end {
            let limit = usize::try_from(COPIED_AT_ONCE.min(end - self.bytes()))
                .map_err(io::Error::other)?;
            match code.read(self.bytes(), limit)? {
                piece if piece.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                piece => self.write(&piece)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn filled(code: &[u8], contents: &[(u64, &[u8])]) -> io::Result<Vec<u8>> {
        let folder = tempfile::tempdir()?;
        let store = Store::new(folder.path(), 1 << 30);
        let mut writing = store.write()?;
        writing.write(code)?;
        let code = writing.end()?;
        let before = code.digest.clone();
        let filled = store.fill(&code, contents.iter().copied())?;
        assert_eq!(filled.digest == before, contents.is_empty());
        fs::read(filled.path())
    }

    #[test]
    fn replaces_only_the_places() {
        let code = vec![1; 3 << 20];
        let (first, last) = ([2; 10], [3; 20]);
        let end = code.len() - last.len();
        let mut expected = code.clone();
        expected[5..15].copy_from_slice(&first);
        expected[end..].copy_from_slice(&last);
        let contents = [(5, &first[..]), (end as u64, &last[..])];
        assert_eq!(filled(&code, &contents).unwrap(), expected);
        assert_eq!(filled(&code, &[]).unwrap(), code);
    }

    #[test]
    fn refuses_places_outside_the_code_or_out_of_order() {
        let code = [0; 100];
        let outside: [&[(u64, &[u8])]; 4] = [
            &[(100, &[1])],
            &[(u64::MAX, &[1])],
            &[(10, &[1; 20]), (29, &[1])],
            &[(10, &[1]), (5, &[1])],
        ];
        for contents in outside {
            let error = filled(&code, contents).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{contents:?}");
        }
    }
}
