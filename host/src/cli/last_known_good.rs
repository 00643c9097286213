//! The configuration that was last in force, for a start at which the file is not valid or gone.

use std::path::{Path, PathBuf};

use clap::Args;

use super::host::{Folder, judge_folder};
use crate::config::{Config, Origin, cache_directories, folder_of};
use crate::registry::LastGood;

/// What a start may fall back to.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(super) struct LastKnownGood {
    /// Folder to find the last known good configuration in when the file cannot be read: its `registries.cacheDirectory`.
    /// By default it is looked for where the file names it, as far as the file can be read.
    #[arg(long, value_name = "FOLDER")]
    last_known_good: Option<PathBuf>,
    /// Exit when the configuration file is not valid, rather than serve the last known good configuration.
    #[arg(long)]
    no_last_known_good: bool,
}

// === impl LastKnownGood ===

impl LastKnownGood {
    /// The configuration that was last in force; none where there is none, or none is wanted.
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
    // Whoever may write there decides what is let through.
    if !matches!(judge_folder(folder), Ok(Folder::There)) {
        return None;
    }
    let document = LastGood::within(folder, path)?.configuration()?;
    match Config::of_document(&document, folder_of(path)) {
        Ok(config) => Some(config),
        Err(problems) => {
            tracing::warn!(%problems, folder = %folder.display(), "the last known good configuration cannot be read; it is not used");
            None
        }
    }
}
