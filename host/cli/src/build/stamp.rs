//! The stamp beside a component: the sources that it was built from.
//!
//! The stamp of `dist/NAME.wasm` is `dist/NAME.wasm.stamp`, as JSON. It is no part of the component, so that equal
//! sources keep giving an equal digest.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::sources::{Hashes, Sources, differences, hash_of};

/// The stamp of a component.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stamp {
    /// Version of the `tollgate` that built the component.
    pub(super) tollgate: String,
    /// Name of the project's language.
    pub(super) language: String,
    /// The project's folder. A relative path starts at the stamp's folder.
    pub(super) project: PathBuf,
    /// SHA-256 of the component.
    pub(super) component: String,
    /// Files and folders outside the project's folder that its build read.
    pub(super) outside: Vec<PathBuf>,
    /// Keys of files in the project's folder that are no sources, such as results and the files of suites.
    pub(super) apart: BTreeSet<String>,
    pub(super) sources: Hashes,
}

/// The relation of a component to the sources of its project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The component is built from the sources as they are.
    Current,
    /// The sources have changed since the component was built. Holds what changed.
    Stale(Vec<String>),
    /// The component may be built from other sources, or in another way. Holds the reason.
    Unknown(&'static str),
    /// The component does not exist.
    Missing,
}

/// Version that writes and compares stamps.
pub(super) const TOLLGATE: &str = env!("CARGO_PKG_VERSION");
const ENDING: &str = ".stamp";

// === impl Stamp ===

impl Stamp {
    /// Reads the stamp of a component. A stamp that cannot be read counts as none.
    pub(super) fn read(component: &Path) -> Option<Self> {
        let text = std::fs::read(path_of(component)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(super) fn write(&self, component: &Path) -> anyhow::Result<()> {
        let path = path_of(component);
        let text = format!("{:#}\n", serde_json::to_value(self)?);
        super::component::write(&path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the folder of the component's project.
    pub(super) fn folder(&self, component: &Path) -> PathBuf {
        component
            .parent()
            .unwrap_or(Path::new(""))
            .join(&self.project)
    }

    /// Returns the sources that the stamp is about. `apart` are further files that are no sources.
    pub(super) fn sources_in(&self, folder: &Path, apart: &BTreeSet<String>) -> Sources {
        Sources {
            folder: folder.to_owned(),
            outside: self.outside.clone(),
            apart: self.apart.union(apart).cloned().collect(),
        }
    }
}

/// Compares a component with the sources in its project's folder. `apart` are files that are no sources.
pub(super) fn state(
    component: &Path,
    stamp: Option<&Stamp>,
    folder: &Path,
    apart: &BTreeSet<String>,
) -> anyhow::Result<State> {
    let Some(hash) = hash_of(component)? else {
        return Ok(State::Missing);
    };
    let Some(stamp) = stamp else {
        return Ok(State::Unknown("`tollgate build` did not build it"));
    };
    if hash != stamp.component {
        return Ok(State::Unknown(
            "something else than `tollgate build` wrote it",
        ));
    }
    let sources = stamp.sources_in(folder, apart);
    let mut before = stamp.sources.clone();
    before.retain(|key, _| !sources.apart.contains(key));
    let changed = differences(&before, &sources.hashes()?);
    Ok(match changed.is_empty() {
        true if stamp.tollgate != TOLLGATE => {
            State::Unknown("another version of `tollgate` built it")
        }
        true => State::Current,
        false => State::Stale(changed),
    })
}

/// Returns the path from one folder to another. Without a common folder above, it is the absolute path.
pub(super) fn relative(from: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    let canonical = |path: &Path| {
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        std::fs::canonicalize(path).with_context(|| path.display().to_string())
    };
    let (from, to) = (canonical(from)?, canonical(to)?);
    let common = from.components().zip(to.components());
    let common = common.take_while(|(from, to)| from == to).count();
    // Only the root is common.
    if common <= 1 {
        return Ok(to);
    }
    let up = from.components().skip(common).map(|_| Path::new(".."));
    let down = to
        .components()
        .skip(common)
        .map(|part| Path::new(part.as_os_str()));
    let path: PathBuf = up.chain(down).collect();
    Ok(match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path,
    })
}

fn path_of(component: &Path) -> PathBuf {
    let mut name = OsString::from(component.file_name().unwrap_or_default());
    name.push(ENDING);
    component.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a component in `dist` that is built from `policy.c`.
    fn built() -> (tempfile::TempDir, PathBuf, Stamp) {
        let folder = tempfile::tempdir().unwrap();
        let component = folder.path().join("dist/x.wasm");
        std::fs::create_dir(folder.path().join("dist")).unwrap();
        std::fs::write(&component, "component").unwrap();
        std::fs::write(folder.path().join("policy.c"), "int x;").unwrap();
        let sources = Sources::in_folder(folder.path());
        let stamp = Stamp {
            tollgate: TOLLGATE.to_owned(),
            language: "c".to_owned(),
            project: relative(&folder.path().join("dist"), folder.path()).unwrap(),
            component: hash_of(&component).unwrap().unwrap(),
            outside: Vec::new(),
            apart: BTreeSet::new(),
            sources: sources.hashes().unwrap(),
        };
        (folder, component, stamp)
    }

    #[test]
    fn component_is_current_until_a_source_changes() {
        let (folder, component, stamp) = built();
        stamp.write(&component).unwrap();
        let read = Stamp::read(&component).unwrap();
        assert_eq!(read, stamp);
        assert_eq!(read.project, Path::new(".."));
        let state = |apart: &BTreeSet<String>| state(&component, Some(&read), folder.path(), apart);
        assert_eq!(state(&BTreeSet::new()).unwrap(), State::Current);
        std::fs::write(folder.path().join("results.json"), "{}").unwrap();
        let stale = |name: &str| State::Stale(vec![name.to_owned()]);
        assert_eq!(state(&BTreeSet::new()).unwrap(), stale("results.json"));
        let apart = BTreeSet::from(["results.json".to_owned()]);
        assert_eq!(state(&apart).unwrap(), State::Current);
        std::fs::write(folder.path().join("policy.c"), "int y;").unwrap();
        assert_eq!(state(&apart).unwrap(), stale("policy.c"));
    }

    #[test]
    fn origin_of_a_component_built_by_hand_is_unknown() {
        let (folder, component, stamp) = built();
        let state =
            |stamp: Option<&Stamp>| state(&component, stamp, folder.path(), &BTreeSet::new());
        assert!(matches!(state(None).unwrap(), State::Unknown(_)));
        let mut older = stamp.clone();
        older.tollgate = "0.0.1".to_owned();
        assert!(matches!(state(Some(&older)).unwrap(), State::Unknown(_)));
        std::fs::write(&component, "another").unwrap();
        assert!(matches!(state(Some(&stamp)).unwrap(), State::Unknown(_)));
        std::fs::remove_file(&component).unwrap();
        assert_eq!(state(Some(&stamp)).unwrap(), State::Missing);
    }

    #[test]
    fn broken_stamp_counts_as_none() {
        let (_folder, component, _) = built();
        std::fs::write(path_of(&component), "{\"tollgate\": 1}").unwrap();
        assert_eq!(Stamp::read(&component), None);
    }

    #[test]
    fn relative_paths_lead_from_folder_to_folder() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a/dist", "b"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let path = |from: &str, to: &str| relative(&root.path().join(from), &root.path().join(to));
        assert_eq!(path("a/dist", "a").unwrap(), Path::new(".."));
        assert_eq!(path("a/dist", "b").unwrap(), Path::new("../../b"));
        assert_eq!(path("b", "b").unwrap(), Path::new("."));
    }
}
