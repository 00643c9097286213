//! Writes the files of the cache folder, each as a whole.

use std::io::{self, Write as _};
use std::path::Path;

/// The beginning of the names of files that are being written.
pub(super) const UNFINISHED: &str = ".new-";

/// Writes a file by renaming. Its folder must exist. Only the owner may read the file, and after a crash of the machine it
/// has either its old content or all of the new one.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn replaces_a_file_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A folder in its place: nothing is replaced, and no part of the file stays.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_private(&taken, b"new").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
