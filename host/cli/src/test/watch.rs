//! Repeats a run whenever one of its files changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::build::sources::Sources;
use crate::terminal::{FAINT, say};

/// Interval between two checks of the files, short enough for a person.
const INTERVAL: Duration = Duration::from_millis(300);

/// The files that a run depends on.
#[derive(Default)]
pub(crate) struct Watched {
    /// The files, as they were when the run began with them. An edit during the run counts as a change.
    files: BTreeMap<PathBuf, FileState>,
    /// The sources of projects, as they were before the run built them. An edit during a build counts as a change.
    sources: Vec<(Sources, Vec<State>)>,
}

type FileState = Option<(SystemTime, u64)>;
type State = (PathBuf, FileState);

/// Calls `run`, and again whenever something changes that it adds to its argument, until the process ends. `run` returns
/// whether it could add everything. If not, the additions of the previous run stay watched.
pub(crate) fn forever(mut run: impl FnMut(&mut Watched) -> bool) -> ! {
    let mut watched = Watched::default();
    loop {
        let earlier = std::mem::take(&mut watched);
        if !run(&mut watched) {
            watched.add_all(earlier);
        }
        let before = watched.before();
        say!(
            "{FAINT}waiting for a change of {} file(s); press Ctrl-C to stop{FAINT:#}\n",
            before.len()
        );
        let mut seen = before.clone();
        loop {
            std::thread::sleep(INTERVAL);
            let now = watched.now();
            // A file that is still being written may be incomplete. A change counts when it has been stable for one
            // interval.
            if now == seen && now != before {
                break;
            }
            seen = now;
        }
    }
}

// === impl Watched ===

impl Watched {
    /// Adds files, as they are now.
    pub(crate) fn add_files(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        for file in files {
            let state = state(&file);
            self.files.entry(file).or_insert(state);
        }
    }

    /// Adds files that the run itself has just written.
    pub(crate) fn add_built(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        for file in files {
            let state = state(&file);
            self.files.insert(file, state);
        }
    }

    /// Adds the sources of a project, as they are now.
    pub(crate) fn add_sources(&mut self, sources: Sources) {
        if self.sources.iter().all(|(known, _)| *known != sources) {
            let states = of_sources(&sources);
            self.sources.push((sources, states));
        }
    }

    fn add_all(&mut self, other: Self) {
        self.add_files(other.files.into_keys());
        for (sources, _) in other.sources {
            self.add_sources(sources);
        }
    }

    /// Returns the states that the run has seen.
    fn before(&self) -> Vec<State> {
        let files = self.files.iter();
        let files = files.map(|(file, state)| (file.clone(), *state));
        let sources = self.sources.iter().flat_map(|(_, states)| states.clone());
        sorted(files.chain(sources).collect())
    }

    fn now(&self) -> Vec<State> {
        let sources = self
            .sources
            .iter()
            .flat_map(|(sources, _)| of_sources(sources));
        let files = self.files.keys().map(|file| (file.clone(), state(file)));
        sorted(files.chain(sources).collect())
    }
}

/// Returns the states of sources without lock files, which the build may write itself.
fn of_sources(sources: &Sources) -> Vec<State> {
    let files = sources.files().into_values();
    files
        .filter(|file| !Sources::is_lock(file))
        .map(|file| (file.clone(), state(&file)))
        .collect()
}

fn sorted(mut states: Vec<State>) -> Vec<State> {
    states.sort();
    states.dedup();
    states
}

fn state(file: &Path) -> FileState {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_of_a_file_during_the_run_counts_as_change() {
        let folder = tempfile::tempdir().unwrap();
        let [configuration, component] =
            ["tollgate.yaml", "policy.wasm"].map(|name| folder.path().join(name));
        std::fs::write(&configuration, "plugins: []").unwrap();
        let mut watched = Watched::default();
        watched.add_files([configuration.clone(), component.clone()]);
        std::fs::write(&component, "written by the build").unwrap();
        watched.add_built([component]);
        assert_eq!(watched.before(), watched.now());
        std::fs::write(&configuration, "plugins: [a]").unwrap();
        // Another part of the run depends on the file, too.
        watched.add_files([configuration]);
        assert_ne!(watched.before(), watched.now());
    }

    #[test]
    fn edit_during_a_build_counts_as_change() {
        let folder = tempfile::tempdir().unwrap();
        let sources = || Sources::in_folder(folder.path());
        std::fs::write(folder.path().join("policy.c"), "int x;").unwrap();
        let mut watched = Watched::default();
        watched.add_sources(sources());
        assert_eq!(watched.before(), watched.now());
        std::fs::write(folder.path().join("go.sum"), "written by the build").unwrap();
        assert_eq!(watched.before(), watched.now());
        std::fs::write(folder.path().join("policy.c"), "int xy;").unwrap();
        std::fs::write(folder.path().join("new.c"), "").unwrap();
        assert_ne!(watched.before(), watched.now());
        // A run that fails before it gets to the sources keeps them, as they are.
        let mut next = Watched::default();
        next.add_all(watched);
        assert_eq!(next.before(), next.now());
        assert_eq!(next.now().len(), 2);
    }
}
