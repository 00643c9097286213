//! The source of the desired plugins: today a file or a folder.

use std::path::PathBuf;

use tollgate_config::{Config, ConfigError, Origin};

/// A source of the desired state. Tollgate reads it again whenever one of its files has changed.
pub(super) trait Desired: Send + Sync + 'static {
    /// The name of the source, as `/plugins` shows it.
    fn name(&self) -> String;

    /// The files or folders whose stamps change when [`Desired::read`] would return something else.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the current state of the source. May block.
    ///
    /// # Errors
    /// When the source cannot be read. For an invalid configuration, the error lists all problems.
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
