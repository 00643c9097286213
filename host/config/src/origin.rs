//! The source of a configuration, which is read again while the configuration is served.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Config;
use super::problem::ConfigError;

/// The source of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// A folder of plugins. All other values are defaults.
    Directory(PathBuf),
}

// === impl Origin ===

impl Origin {
    /// Reads the current configuration.
    ///
    /// # Errors
    ///
    /// When the source cannot be read, or the list of all problems in it.
    pub fn load(&self) -> Result<Config, ConfigError> {
        match self {
            Self::File(path) => Config::load(path),
            Self::Directory(path) => Config::for_directory(path),
        }
    }

    /// Returns the file or folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Directory(path) => path,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path().display())
    }
}
