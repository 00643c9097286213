//! Checks that the disk has room. Without it, a run would fail only after an hour.

use std::env::temp_dir;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::statvfs;

use crate::workspace::Workspace;

const GIB: u64 = 1 << 30;
/// Room for an empty target folder. The caches of cargo and Go take as much again in an empty home, which is not counted here.
const FIRST_RUN_GIB: u64 = 10;
/// Room for what a later run builds again.
const LATER_RUN_GIB: u64 = 4;
/// Room for the folders of the tests, which are temporary.
const TEMPORARY_GIB: u64 = 1;

/// Prints the room on the disk of the target folder.
///
/// # Errors
/// When a disk has too little room for the run.
pub(super) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    let target = workspace.target();
    // Only a run that has built all suites makes this folder. `cargo xtask demo` does not.
    let was_built = target.join("languages").exists();
    let wanted = if was_built {
        LATER_RUN_GIB
    } else {
        FIRST_RUN_GIB
    };
    let free = free_bytes(target)?;
    println!("  disk    {} GiB free", free / GIB);
    has_room(target, free, wanted, "CARGO_TARGET_DIR")?;
    let temporary = temp_dir();
    has_room(&temporary, free_bytes(&temporary)?, TEMPORARY_GIB, "TMPDIR")
}

fn has_room(folder: &Path, free_bytes: u64, wanted_gib: u64, variable: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        free_bytes >= wanted_gib * GIB,
        "the disk of {} has {:.1} GiB free, and this run needs {wanted_gib} GiB: remove what you do not need, such \
         as `incremental` folders of old builds, or set {variable} to a folder on another disk",
        folder.display(),
        free_bytes as f64 / GIB as f64,
    );
    Ok(())
}

/// Returns the bytes that this user may still write to the disk of a folder.
fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    let disk = statvfs(folder)
        .with_context(|| format!("cannot find out how much room {} has", folder.display()))?;
    Ok(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_tells_the_folder_the_room_and_what_to_do() {
        let folder = Path::new("/builds/target");
        assert!(has_room(folder, 4 * GIB, 4, "CARGO_TARGET_DIR").is_ok());
        let error = has_room(folder, GIB / 2, 4, "CARGO_TARGET_DIR").unwrap_err();
        let message = error.to_string();
        for part in [
            "/builds/target",
            "0.5 GiB free",
            "needs 4 GiB",
            "CARGO_TARGET_DIR",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn disk_of_the_temporary_folder_has_a_size() {
        assert!(free_bytes(&temp_dir()).unwrap() > 0);
        let error = free_bytes(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }
}
