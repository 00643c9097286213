//! Runs something again whenever one of some files changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::cli::terminal::{FAINT, say};

/// How often the files are looked at: often enough for a person.
const INTERVAL: Duration = Duration::from_millis(300);

/// Runs it, and again whenever one of the files that it names changes, until the process is ended.
pub(super) fn forever(mut run: impl FnMut() -> Vec<PathBuf>) -> ! {
    loop {
        let files = run();
        let before = states(&files);
        say!(
            "{FAINT}waiting for a change of {} file(s); Ctrl-C ends it{FAINT:#}\n",
            before.len()
        );
        let mut seen = before.clone();
        loop {
            std::thread::sleep(INTERVAL);
            let now = states(&files);
            // What is being written still may be half there: a change counts when it has stood for an interval.
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
