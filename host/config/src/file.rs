//! Reads files that the configuration names, and only regular files.
//!
//! Opening a named pipe waits for a writer, which may never come. A device such as `/dev/zero` has no end. Either would
//! block the thread that reads it, and with it a reload or a start.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a file for reading, without waiting.
///
/// # Errors
/// When the file cannot be opened, or is not a regular file. The message then names the kind of file.
pub fn open(path: &Path) -> io::Result<File> {
    // The flag has no effect on a regular file.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("expected a regular file, found {}", name_of(kind)),
    ))
}

/// Reads a whole file.
///
/// # Errors
/// The errors of [`open`], and errors while the file is read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        read(path)
            .expect_err("it is not a regular file")
            .to_string()
    }

    #[test]
    fn reads_files_and_names_other_kinds_in_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read(&path).unwrap(), b"text");
        assert_eq!(
            error(folder.path()),
            "expected a regular file, found a folder"
        );
        assert_eq!(
            error(Path::new("/dev/zero")),
            "expected a regular file, found a device"
        );
        let missing = read(&folder.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn does_not_wait_for_named_pipe_without_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(error(&path), "expected a regular file, found a named pipe");
    }
}
