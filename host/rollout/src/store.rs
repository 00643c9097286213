//! The files of rollouts: one for each rollout of a configuration, in `rollouts/<configuration>/` beside the artifacts.
//!
//! A file is created by renaming, and only its owner can read it. Processes that share the folder read each other's
//! files, see [`State::yields_to`].

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_config::PluginName;

use crate::identity::Identity;
use crate::state::State;

/// The files of one configuration.
#[derive(Clone, Debug)]
pub struct Store {
    all: PathBuf,
    folder: PathBuf,
}

/// Why a file of a state cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// The file cannot be read. Its state may still be there.
    Unreadable {
        /// Path of the file or the folder.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file has no state.
    Damaged {
        /// Path of the file.
        path: PathBuf,
    },
}

/// The file format.
#[derive(Deserialize, Serialize)]
struct Document {
    version: u32,
    state: State,
}

const FOLDER: &str = "rollouts";
/// Version of the file format. A host ignores files of other versions.
const VERSION: u32 = 1;
/// Prefix of a file's name until the file is complete.
const UNFINISHED: &str = ".new-";
/// Separates the plugin's name from the identity. No name of a plugin contains it.
const SEPARATOR: char = '.';
/// Longest file that is read. A state with all of its changes has a tenth of it.
const LONGEST_FILE_BYTES: u64 = 64 << 10;
/// A file of another rollout of the plugin goes after this time.
const LONGEST_UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// An unfinished file that is older than this is abandoned.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

// === impl Store ===

impl Store {
    /// The files of a configuration within a cache folder; none if the path of the configuration cannot be made
    /// absolute.
    #[must_use]
    pub fn within(cache: &Path, origin: &Path) -> Option<Self> {
        let all = cache.join(FOLDER);
        let origin = std::path::absolute(origin).ok()?;
        let mut name = format!(
            "{:x}",
            Sha256::digest(origin.as_os_str().as_encoded_bytes())
        );
        name.truncate(16);
        let folder = all.join(name);
        Some(Self { all, folder })
    }

    /// Reads the state of a rollout; none if there is no file.
    ///
    /// Without the new version's bytes, this is the latest state of the same plan. With them, a state that was written
    /// without them counts, too.
    ///
    /// # Errors
    /// When there is a file and no state can be read from it.
    pub fn read(
        &self,
        plugin: &PluginName,
        identity: &Identity,
    ) -> Result<Option<State>, Unusable> {
        let mut paths = vec![self.path(plugin, &Identity::stored(identity.plan()))];
        if identity.has_bytes() {
            paths.push(self.path(plugin, identity));
        } else {
            paths.extend(self.paths_of_plan(plugin, identity)?);
        }
        let (mut best, mut unusable) = (None::<State>, None);
        for path in paths {
            match read(&path) {
                Ok(None) => {}
                Ok(Some(state)) => {
                    let Some(state) = state.about(identity) else {
                        unusable = Some(Unusable::Damaged { path });
                        continue;
                    };
                    if best.as_ref().is_none_or(|best| is_later(best, &state)) {
                        best = Some(state);
                    }
                }
                Err(error) => unusable = Some(error),
            }
        }
        match (best, unusable) {
            (None, Some(error)) => Err(error),
            (best, _) => Ok(best),
        }
    }

    /// The files of all rollouts with this plan.
    fn paths_of_plan(
        &self,
        plugin: &PluginName,
        identity: &Identity,
    ) -> Result<Vec<PathBuf>, Unusable> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let path = self.folder.clone();
                return Err(Unusable::Unreadable { path, error });
            }
        };
        let prefix = format!("{plugin}{SEPARATOR}{}", identity.plan());
        let paths = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with(&prefix))
        });
        Ok(paths.map(|entry| entry.path()).collect())
    }

    /// Writes the state of a rollout by renaming.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, plugin: &PluginName, state: &State) -> io::Result<()> {
        for folder in [&self.all, &self.folder] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?,
            }
        }
        let document = Document {
            version: VERSION,
            state: state.clone(),
        };
        let text = serde_json::to_vec_pretty(&document)?;
        // Temporary files can be read by their owner alone.
        let mut file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(&self.folder)?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(self.path(plugin, &state.identity))?;
        if state.identity.has_bytes() {
            // Now the state has a file of its own. The other file may be missing.
            let vague = Identity::stored(state.identity.plan());
            drop(fs::remove_file(self.path(plugin, &vague)));
        }
        Ok(())
    }

    /// Deletes the files of plugins that have no rollout any more, unfinished files of a killed host, and old files of
    /// other rollouts of the same plugins. The identity is None for a rollout whose version is not loaded.
    pub fn retain(&self, rollouts: &BTreeMap<&PluginName, Option<&Identity>>) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let goes = if name.starts_with(UNFINISHED) {
                is_older(&path, LONGEST_WRITE)
            } else {
                let (plugin, rest) = name.split_once(SEPARATOR).unwrap_or((name, ""));
                let mut all = rollouts.iter();
                match all.find(|(name, _)| name.as_str() == plugin) {
                    None => true,
                    Some((_, None)) => false,
                    Some((_, Some(identity))) => {
                        rest != format!("{identity}.json") && is_older(&path, LONGEST_UNUSED)
                    }
                }
            };
            if goes {
                // The file may be gone already.
                drop(fs::remove_file(&path));
            }
        }
    }

    fn path(&self, plugin: &PluginName, identity: &Identity) -> PathBuf {
        self.folder
            .join(format!("{plugin}{SEPARATOR}{identity}.json"))
    }
}

/// Reads one file; none if there is none.
fn read(path: &Path) -> Result<Option<State>, Unusable> {
    let unreadable = |error| Unusable::Unreadable {
        path: path.to_owned(),
        error,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = Vec::new();
    let read = file.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut text);
    read.map_err(unreadable)?;
    let document = Some(&text)
        .filter(|text| text.len() as u64 <= LONGEST_FILE_BYTES)
        .and_then(|text| serde_json::from_slice::<Document>(text).ok());
    let state = document
        .filter(|document| document.version == VERSION)
        .map(|document| document.state)
        .filter(State::is_plausible);
    match state {
        Some(state) => Ok(Some(state)),
        None => Err(Unusable::Damaged {
            path: path.to_owned(),
        }),
    }
}

/// Whether `other` counts, and not `state`. States of different bytes are compared by the time of their last change.
fn is_later(state: &State, other: &State) -> bool {
    if state.identity == other.identity {
        return state.yields_to(other);
    }
    let at = |state: &State| state.last().map(|change| change.at);
    at(other) > at(state)
}

fn is_older(path: &Path, limit: Duration) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > limit)
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                write!(f, "{} cannot be read: {error}", path.display())
            }
            Self::Damaged { path } => write!(
                f,
                "{} is damaged or has another format version",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Unusable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            Self::Damaged { .. } => None,
        }
    }
}
