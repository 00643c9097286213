//! Writes tar archives (ustar) whose bytes depend on their content alone.

use anyhow::ensure;

/// Size of a block. Every entry begins at a multiple of it.
const BLOCK: usize = 512;

/// An archive that is being written. All entries belong to root and have the same time.
pub(crate) struct Tar {
    bytes: Vec<u8>,
    time: u64,
}

// === impl Tar ===

impl Tar {
    pub(crate) fn new(time: u64) -> Self {
        Self {
            bytes: Vec::new(),
            time,
        }
    }

    /// Adds a folder. Its name ends with `/`.
    pub(crate) fn folder(&mut self, name: &str, mode: u32) -> anyhow::Result<()> {
        self.header(name, b'5', mode, 0)
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.header(name, b'0', mode, content.len())?;
        self.bytes.extend_from_slice(content);
        let end = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(end, 0);
        Ok(())
    }

    /// Ends the archive with two empty blocks.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    fn header(&mut self, name: &str, kind: u8, mode: u32, size: usize) -> anyhow::Result<()> {
        ensure!(name.len() <= 100, "`{name}` is too long for an archive");
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        let octal = |value: u64, digits: usize| format!("{value:0digits$o}\0").into_bytes();
        put(0, name.as_bytes());
        put(100, &octal(u64::from(mode), 7));
        put(108, &octal(0, 7));
        put(116, &octal(0, 7));
        ensure!(size < 1 << 33, "`{name}` is too large for an archive");
        put(124, &octal(size as u64, 11));
        put(136, &octal(self.time, 11));
        // While the sum is computed, its own field counts as spaces.
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        header[148..155].copy_from_slice(&octal(sum, 6));
        self.bytes.extend_from_slice(&header);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn system_tar_reads_the_archive() {
        let mut tar = Tar::new(1_700_000_000);
        tar.folder("etc/", 0o755).unwrap();
        tar.folder("tmp/", 0o1777).unwrap();
        tar.file("etc/passwd", 0o644, b"root\n").unwrap();
        tar.file("tollgate", 0o755, &[7; 1000]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, tar.finish()).unwrap();
        let listed = Command::new("tar")
            .args([
                "--list",
                "--verbose",
                "--numeric-owner",
                "--utc",
                "--full-time",
                "--file",
            ])
            .arg(&path)
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let listed = String::from_utf8(listed.stdout).unwrap();
        let words: Vec<Vec<&str>> = listed
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let day = "2023-11-14";
        let time = "22:13:20";
        assert_eq!(
            words,
            [
                ["drwxr-xr-x", "0/0", "0", day, time, "etc/"],
                ["drwxrwxrwt", "0/0", "0", day, time, "tmp/"],
                ["-rw-r--r--", "0/0", "5", day, time, "etc/passwd"],
                ["-rwxr-xr-x", "0/0", "1000", day, time, "tollgate"],
            ]
        );
    }

    #[test]
    fn refuses_long_names() {
        assert!(Tar::new(0).folder(&"a".repeat(101), 0o755).is_err());
    }
}
