//! Where a configuration is read from, again and again while it is served.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Config;
use super::problem::ConfigError;

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// A folder of plugins, and every default.
    Directory(PathBuf),
}

// === impl Origin ===

impl Origin {
    /// Reads it as it is now.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or all that is wrong with it.
    pub fn load(&self) -> Result<Config, ConfigError> {
        match self {
            Self::File(path) => Config::load(path),
            Self::Directory(path) => Config::for_directory(path),
        }
    }

    /// The file or folder.
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
