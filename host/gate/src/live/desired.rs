//! The sources of the desired plugins: a file or a folder, and additions such as custom resources.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tollgate_config::{Config, ConfigError, Origin, Serving};

use super::rollout::Link;

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

    /// The state to desire while [`Desired::read`] fails. None keeps the previously desired state.
    fn meanwhile(&self) -> Option<Config> {
        None
    }
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

/// A source of entries beside the configuration file.
pub struct Additions {
    /// Adds the entries to the configuration that the file holds. May block.
    pub add: Arc<dyn Fn(Config) -> Config + Send + Sync>,
    /// Notified when `add` would return something else.
    pub changed: Arc<Notify>,
    /// Receives the plugins of this replica after every change.
    pub serving: watch::Sender<Arc<Serving>>,
    /// The rollouts that all replicas share.
    pub rollouts: Link,
}

/// A file or folder, with additions.
pub(super) struct Extended {
    origin: Origin,
    add: Arc<dyn Fn(Config) -> Config + Send + Sync>,
    /// The last valid configuration of the file, without additions. Additions may change while the file is not valid.
    last: Mutex<Option<Config>>,
}

impl Extended {
    pub(super) fn new(origin: Origin, additions: &Additions) -> Self {
        Self {
            origin,
            add: additions.add.clone(),
            last: Mutex::new(None),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Config>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desired for Extended {
    fn name(&self) -> String {
        self.origin.to_string()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.origin.files()
    }

    fn read(&self) -> Result<Config, ConfigError> {
        let file = self.origin.read()?;
        *self.last() = Some(file.clone());
        Ok((self.add)(file))
    }

    fn meanwhile(&self) -> Option<Config> {
        let file = self.last().clone();
        file.map(&*self.add)
    }
}

impl fmt::Debug for Additions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Additions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_change_while_file_is_not_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tollgate.yaml");
        std::fs::write(&path, "plugins: [{ name: one, source: 'file:one.wasm' }]").unwrap();
        let mode = Arc::new(Mutex::new(tollgate_config::Mode::Warn));
        let additions = Additions {
            add: Arc::new({
                let mode = mode.clone();
                move |mut config: Config| {
                    config.plugins[0].set_mode(*mode.lock().unwrap());
                    config
                }
            }),
            changed: Arc::default(),
            serving: watch::Sender::new(Arc::default()),
            rollouts: Link {
                commons: watch::Sender::new(Arc::default()).subscribe(),
                reports: watch::Sender::new(Arc::default()),
            },
        };
        let source = Extended::new(Origin::File(path.clone()), &additions);
        assert!(source.meanwhile().is_none());
        assert_eq!(source.read().unwrap().plugins[0].mode.as_str(), "warn");
        std::fs::write(&path, "plugins: nonsense").unwrap();
        *mode.lock().unwrap() = tollgate_config::Mode::Audit;
        source.read().unwrap_err();
        assert_eq!(
            source.meanwhile().unwrap().plugins[0].mode.as_str(),
            "audit"
        );
    }
}
