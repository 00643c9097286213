//! The files of rollouts: one for each rollout of a configuration, in `rollouts/<configuration>/` beside the artifacts.
//!
//! A file is created by renaming, and only its owner can read it. Processes that share the folder read each other's
//! files, see [`State::yields_to`].

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_config::PluginName;

use crate::state::{Identity, State};

/// The files of one configuration.
#[derive(Clone, Debug)]
pub struct Store {
    all: PathBuf,
    folder: PathBuf,
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

    /// Reads the state of a rollout; none if there is none that can be used.
    #[must_use]
    pub fn read(&self, plugin: &PluginName, identity: &Identity) -> Option<State> {
        let path = self.path(plugin, identity);
        let mut text = Vec::new();
        let file = File::open(&path).ok()?;
        let read = file.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut text);
        let document = read
            .ok()
            .filter(|_| text.len() as u64 <= LONGEST_FILE_BYTES)
            .and_then(|_| serde_json::from_slice::<Document>(&text).ok());
        let state = document
            .filter(|document| document.version == VERSION)
            .map(|document| document.state)
            .filter(|state| state.identity == *identity);
        if state.is_none() {
            tracing::warn!(file = %path.display(), "ignoring the state of the rollout, because it is damaged or has another format version");
        }
        state
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

fn is_older(path: &Path, limit: Duration) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > limit)
}
