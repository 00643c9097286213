//! The host without its server: an engine, with plugins loaded as `tollgate serve` loads them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate::config::{Config, Limits};
use tollgate::engine::{Engine, EngineSettings, Tier};
use tollgate::metrics::Metrics;
use tollgate::plugin::{Loader, PluginSet, PluginState};
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
    loader: Loader,
    /// The folder of the compiled code, which must live as long as the loader.
    _code: Option<TempDir>,
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
        let defaults = configuration(&json!([]));
        let mut largest = Limits::default();
        let mut max_concurrent_calls = defaults.engine.max_concurrent_calls;
        let (folder, code, tier) = match room {
            Room::Default => {
                let code = tempfile::tempdir().expect("a temporary folder can be created");
                (code.path().to_owned(), Some(code), Tier::Serving)
            }
            Room::OneCall => {
                (max_concurrent_calls, largest.memories) = (1, 1);
                (kept_code(), None, Tier::Portable)
            }
        };
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls,
            max_wasm_stack_bytes: defaults.engine.max_wasm_stack_bytes,
            largest,
            tier,
        })
        .expect("the engine can be set up with its defaults");
        let loader = Loader::new(
            engine.clone(),
            binary::tollgate(),
            defaults.engine,
            folder,
            metrics,
        );
        Self {
            runtime,
            engine,
            loader,
            _code: code,
        }
    }

    /// Loads plugins. `entries` are the entries under `plugins` in a configuration file.
    ///
    /// # Panics
    /// Panics if a plugin cannot be loaded.
    #[must_use]
    pub fn load(&self, entries: &[Value]) -> PluginSet {
        let plugins = configuration(&json!(entries)).plugins;
        let set = self.runtime.block_on(self.loader.load_all(plugins));
        for plugin in set.iter() {
            if let PluginState::Failed { reason } = &plugin.state {
                panic!("cannot load {}: {reason}", plugin.config.name);
            }
        }
        set
    }
}

/// Returns a private folder in the target folder. The folder is private because the host runs the code in it.
fn kept_code() -> PathBuf {
    let folder = binary::profile_directory().join("instructions-code");
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    folder
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
