//! Repeats a run whenever one of its files changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::terminal::{FAINT, say};

/// Interval between two checks of the files, short enough for a person.
const INTERVAL: Duration = Duration::from_millis(300);

/// Calls `run`, and again whenever one of the files that it returns changes, until the process ends.
pub(super) fn forever(mut run: impl FnMut() -> Vec<PathBuf>) -> ! {
    loop {
        let files = run();
        let before = states(&files);
        say!(
            "{FAINT}waiting for a change of {} file(s); press Ctrl-C to stop{FAINT:#}\n",
            before.len()
        );
        let mut seen = before.clone();
        loop {
            std::thread::sleep(INTERVAL);
            let now = states(&files);
            // A file that is still being written may be incomplete. A change counts when it has been stable for one
            // interval.
            if now == seen && now != before {
                break;
            }
            seen = now;
        }
    }
}

type State = (PathBuf, Option<(SystemTime, u64)>);

fn states(files: &[PathBuf]) -> Vec<State> {
    let mut states: Vec<State> = files
        .iter()
        .map(|file| (file.clone(), state(file)))
        .collect();
    states.sort();
    states.dedup();
    states
}

fn state(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
