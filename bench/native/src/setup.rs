//! The host without its server: an engine, with plugins loaded like in `tollgate serve`.

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

/// The address space that an engine reserves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// Room for the default number of concurrent calls.
    Default,
    /// Room for one call of a plugin with one memory, because callgrind has few addresses. Code is compiled for every
    /// processor, because callgrind emulates another one than the child sees. It is kept for the next process.
    OneCall,
}

/// An engine with loaded plugins.
pub struct Setup {
    /// The async runtime.
    pub runtime: Runtime,
    /// The engine.
    pub engine: Engine,
    loader: Loader,
    /// The folder of the compiled code, which must outlive the engine.
    _code: Option<TempDir>,
}

// === impl Setup ===

impl Setup {
    /// Creates an engine with defaults except for the room.
    ///
    /// # Panics
    /// If there is no `tollgate` binary beside this program to prepare plugins, or no room for the pool.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, runtime: Runtime, room: Room) -> Self {
        let defaults = configuration(&json!([]));
        let mut largest = Limits::default();
        let mut max_concurrent_calls = defaults.engine.max_concurrent_calls;
        let (folder, code, tier) = match room {
            Room::Default => {
                let code = tempfile::tempdir().expect("a temporary folder can be made");
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
    /// If a plugin cannot be loaded.
    #[must_use]
    pub fn load(&self, entries: &[Value]) -> PluginSet {
        let plugins = configuration(&json!(entries)).plugins;
        let set = self.runtime.block_on(self.loader.load_all(plugins));
        for plugin in set.iter() {
            if let PluginState::Failed { reason } = &plugin.state {
                panic!("{} cannot be loaded: {reason}", plugin.config.name);
            }
        }
        set
    }
}

/// Returns a private folder in the target folder. It has to be private, because the host runs the code in it.
fn kept_code() -> PathBuf {
    let folder = binary::profile_directory().join("instructions-code");
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.unwrap_or_else(|error| panic!("{} cannot be made: {error}", folder.display()));
    folder
}

/// Creates a configuration with these entries under `plugins`, and defaults for everything else.
///
/// # Panics
/// If an entry is invalid.
#[must_use]
pub fn configuration(plugins: &Value) -> Config {
    let text = json!({ "allowEmpty": true, "plugins": plugins }).to_string();
    Config::parse(&text, Path::new(".")).expect("the benchmark's configuration is valid")
}

/// Creates an entry under `plugins` for a package of the workspace, and builds the package if necessary.
///
/// # Panics
/// If the build fails.
#[must_use]
pub fn entry(name: &str, package: &str, settings: &Value) -> Value {
    let file = guests::build(package);
    json!({ "name": name, "source": format!("file:{}", file.display()), "settings": settings })
}
