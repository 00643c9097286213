//! Where the desired plugins come from: a file or a folder today.

use std::path::PathBuf;

use crate::config::{Config, ConfigError, Origin};

/// A source of the desired state. It is read again whenever one of its files has changed.
pub(super) trait Desired: Send + Sync + 'static {
    /// What people call it.
    fn name(&self) -> String;

    /// The files or folders whose stamps change when [`Desired::read`] has something new to say.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads it as it is now. May block.
    ///
    /// # Errors
    /// When it cannot be read, or all that is wrong with it.
    fn read(&self) -> Result<Config, ConfigError>;
}

impl Desired for Origin {
    fn name(&self) -> String {
        self.to_string()
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    fn read(&self) -> Result<Config, ConfigError> {
        self.load()
    }
}
