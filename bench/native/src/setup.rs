//! The host's insides without its server: an engine, and plugins loaded into it as `tollgate serve` loads them.

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

/// What an engine reserves addresses for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// As many calls at once as by default.
    Default,
    /// One call of a plugin with one memory: callgrind has few addresses to give. Code is compiled for every processor,
    /// because callgrind shows the host another one than the child that compiles, and kept for the next process.
    OneCall,
}

/// An engine with plugins in it.
pub struct Setup {
    /// What they run on.
    pub runtime: Runtime,
    /// The engine.
    pub engine: Engine,
    loader: Loader,
    /// Keeps the compiled code for as long as it may be asked for.
    _code: Option<TempDir>,
}

// === impl Setup ===

impl Setup {
    /// With every default but for the room.
    ///
    /// # Panics
    /// Panics if there is no `tollgate` binary beside this program to prepare plugins with, or no room for the pool.
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

    /// Loads plugins: `entries` are what stands under `plugins` in a configuration file.
    ///
    /// # Panics
    /// Panics if one cannot be loaded.
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

/// In the target folder, and nobody else's: what lies there is run.
fn kept_code() -> PathBuf {
    let folder = binary::profile_directory().join("instructions-code");
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.unwrap_or_else(|error| panic!("{} cannot be made: {error}", folder.display()));
    folder
}

/// A configuration with these entries under `plugins`, and every default.
///
/// # Panics
/// Panics if an entry is not valid.
#[must_use]
pub fn configuration(plugins: &Value) -> Config {
    let text = json!({ "allowEmpty": true, "plugins": plugins }).to_string();
    Config::parse(&text, Path::new(".")).expect("the benchmark's configuration is valid")
}

/// An entry under `plugins` for a package of the workspace, which is built where it is not up to date.
///
/// # Panics
/// Panics if it does not build.
#[must_use]
pub fn entry(name: &str, package: &str, settings: &Value) -> Value {
    let file = guests::build(package);
    json!({ "name": name, "source": format!("file:{}", file.display()), "settings": settings })
}
