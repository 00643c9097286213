//! The host's insides without its server: an engine, and plugins loaded into it as `tollgate serve` loads them.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate::config::Config;
use tollgate::engine::{Engine, EngineSettings};
use tollgate::metrics::Metrics;
use tollgate::plugin::{Loader, PluginSet, PluginState};
use tollgate_tests::{binary, guests};

/// An engine with plugins in it.
pub struct Setup {
    /// What they run on.
    pub runtime: Runtime,
    /// The engine.
    pub engine: Engine,
    loader: Loader,
    /// Keeps the compiled code for as long as it may be asked for.
    _code: TempDir,
}

// === impl Setup ===

impl Setup {
    /// With every default, or a pool for fewer calls at once.
    ///
    /// # Panics
    /// When there is no `tollgate` binary beside this program to prepare plugins with, or no room for the pool.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, runtime: Runtime, max_concurrent_calls: Option<u32>) -> Self {
        let code = tempfile::tempdir().expect("a temporary folder can be made");
        let defaults = configuration(&json!([]));
        let calls = max_concurrent_calls.unwrap_or(defaults.engine.max_concurrent_calls);
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: calls,
            max_wasm_stack_bytes: defaults.engine.max_wasm_stack_bytes,
            largest: tollgate::config::Limits::default(),
            cache_directory: code.path(),
        })
        .expect("the engine can be set up with its defaults");
        let loader = Loader::new(
            engine.clone(),
            binary::tollgate(),
            defaults.engine,
            code.path().to_owned(),
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
    /// When one cannot be loaded.
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

/// A configuration with these entries under `plugins`, and every default.
///
/// # Panics
/// When an entry is not valid.
#[must_use]
pub fn configuration(plugins: &Value) -> Config {
    let text = json!({ "allowEmpty": true, "plugins": plugins }).to_string();
    Config::parse(&text, Path::new(".")).expect("the benchmark's configuration is valid")
}

/// An entry under `plugins` for a package of the workspace, which is built where it is not up to date.
///
/// # Panics
/// When it does not build.
#[must_use]
pub fn entry(name: &str, package: &str, settings: &Value) -> Value {
    let file = guests::build(package);
    json!({ "name": name, "source": format!("file:{}", file.display()), "settings": settings })
}
