//! Finds the last known good configuration, for a start at which the file is invalid or missing.

use std::path::{Path, PathBuf};

use clap::Args;
use tollgate::setup::{Folder, check_folder};
use tollgate_config::{Config, Origin, cache_directories, folder_of};
use tollgate_oci::LastGood;

/// Flags for the last known good configuration.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(super) struct LastKnownGood {
    /// Folder that holds the last known good configuration: the configuration's `registries.cacheDirectory`. Needed
    /// when the configuration file cannot be read. By default, Tollgate takes the folder from as much of the file as it
    /// can read.
    #[arg(long, value_name = "FOLDER")]
    last_known_good: Option<PathBuf>,
    /// Exit when the configuration file is invalid, instead of serving the last known good configuration.
    #[arg(long)]
    no_last_known_good: bool,
}

// === impl LastKnownGood ===

impl LastKnownGood {
    /// Returns the last known good configuration. None if there is none or if `--no-last-known-good` is given.
    pub(super) fn find(&self, origin: &Origin) -> Option<Config> {
        let Origin::File(path) = origin else {
            return None;
        };
        if self.no_last_known_good {
            return None;
        }
        let folders = match &self.last_known_good {
            Some(folder) => vec![folder.clone()],
            None => cache_directories(path),
        };
        folders.iter().find_map(|folder| recorded(folder, path))
    }
}

fn recorded(folder: &Path, path: &Path) -> Option<Config> {
    // A folder that other users can write to is ignored: its content decides which requests are allowed.
    if !matches!(check_folder(folder), Ok(Folder::Exists)) {
        return None;
    }
    let document = LastGood::within(folder, path)?.configuration()?;
    match Config::of_document(&document, folder_of(path)) {
        Ok(config) => Some(config),
        Err(problems) => {
            tracing::warn!(%problems, folder = %folder.display(), "cannot read the last known good configuration; ignoring it");
            None
        }
    }
}
