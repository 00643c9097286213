//! The host without its server: an engine, with plugins loaded as `tollgate serve` loads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tollgate::Preparer;
use tollgate::setup::Options;
use tollgate_config::{Config, Limits};
use tollgate_engine::{Engine, Tier};
use tollgate_gate::plugin::{PluginSet, PluginState};
use tollgate_telemetry::metrics::Metrics;
use tollgate_tests::{binary, guests};

/// The amount of address space that an engine reserves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// The default number of parallel calls.
    Default,
    /// One call of a plugin with one memory, because callgrind offers little address space. The code is compiled for
    /// every processor, because callgrind shows the host another processor than the child that compiles. Tollgate keeps
    /// this code for the next process.
    OneCall,
}

/// An engine with plugins.
pub struct Setup {
    /// The runtime of the engine and the plugins.
    pub runtime: Runtime,
    /// The engine.
    pub engine: Engine,
    parts: tollgate::setup::Setup,
}

// === impl Setup ===

impl Setup {
    /// Creates a setup with defaults, except for the room.
    ///
    /// # Panics
    /// Panics if there is no `tollgate` binary beside this program to prepare plugins, or no address space for the
    /// pool.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, runtime: Runtime, room: Room) -> Self {
        let mut config = configuration(&json!([]));
        let mut options = Options {
            preparer: Preparer::program(binary::tollgate()),
            metrics: Some(metrics),
            ..Options::default()
        };
        if room == Room::OneCall {
            config.engine.max_concurrent_calls = 1;
            config.engine.cache_directory = Some(kept_code());
            options.tier = Tier::Portable;
            options.layout = Some(Limits {
                memories: 1,
                ..Limits::default()
            });
        }
        let parts = tollgate::setup::Setup::new(&config, &options)
            .expect("the engine can be set up with its defaults");
        Self {
            runtime,
            engine: parts.engine.clone(),
            parts,
        }
    }

    /// Loads plugins. `entries` are the entries under `plugins` in a configuration file.
    ///
    /// # Panics
    /// Panics if a plugin cannot be loaded.
    #[must_use]
    pub fn load(&self, entries: &[Value]) -> PluginSet {
        let plugins = configuration(&json!(entries)).plugins;
        let set = self.runtime.block_on(self.parts.loader.load_all(plugins));
        for plugin in set.iter() {
            if let PluginState::Failed { reason } = &plugin.state {
                panic!("cannot load {}: {reason}", plugin.config.name);
            }
        }
        set
    }
}

/// Returns a folder in the target folder. The setup makes it private, because the host runs the code in it.
fn kept_code() -> PathBuf {
    binary::profile_directory().join("instructions-code")
}

/// Creates a configuration with these entries under `plugins`, and defaults for the rest.
///
/// # Panics
/// Panics if an entry is not valid.
#[must_use]
pub fn configuration(plugins: &Value) -> Config {
    let text = json!({ "allowEmpty": true, "plugins": plugins }).to_string();
    Config::parse(&text, Path::new(".")).expect("the benchmark's configuration is valid")
}

/// Creates an entry under `plugins` for a package of the workspace, and builds the package if needed.
///
/// # Panics
/// Panics if the build fails.
#[must_use]
pub fn entry(name: &str, package: &str, settings: &Value) -> Value {
    let file = guests::build(package);
    json!({ "name": name, "source": format!("file:{}", file.display()), "settings": settings })
}
