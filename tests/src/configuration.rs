//! Configuration files for the suites. They are written as JSON, which is valid YAML.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guests;

/// A configuration, with the folder that holds its file, plugins, certificate and compiled code.
#[derive(Debug)]
pub struct Configuration {
    folder: TempDir,
    root: Value,
}

// === impl Configuration ===

impl Default for Configuration {
    fn default() -> Self {
        Self::new()
    }
}

impl Configuration {
    /// Creates a configuration without plugins, with free ports on loopback and defaults for the rest.
    ///
    /// # Panics
    /// Panics if no temporary folder can be created.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("tollgate-tests-").tempdir();
        let folder = folder.expect("a temporary folder can be made: is TMPDIR writable?");
        let root = json!({
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "probes": {"listen": "127.0.0.1:0"},
            "tls": {"selfSigned": {"directory": folder.path().join("tls")}},
            "engine": {"cacheDirectory": folder.path().join("code")},
            "plugins": [],
        });
        Self { folder, root }
    }

    /// Sets a key by its path, such as `requests.maxDepth`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let pointer = format!("/{}", key.replace('.', "/"));
        let (parent, _) = pointer.rsplit_once('/').unwrap_or_default();
        let mut here = &mut self.root;
        for token in parent.split('/').skip(1) {
            here = &mut here[token];
        }
        here[key.rsplit('.').next().unwrap_or(key)] = value.into();
        self
    }

    /// Removes a top-level key.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        if let Some(root) = self.root.as_object_mut() {
            root.remove(key);
        }
        self
    }

    /// Adds a plugin from a file. `more` holds further keys of its entry.
    ///
    /// # Panics
    /// Panics if `more` is not an object.
    pub fn plugin(&mut self, name: &str, file: &Path, more: Value) {
        self.plugin_from(name, &format!("file:{}", file.display()), more);
    }

    /// Adds a plugin from a source.
    ///
    /// # Panics
    /// Panics if `more` is not an object.
    pub fn plugin_from(&mut self, name: &str, source: &str, more: Value) {
        let mut entry = json!({"name": name, "source": source});
        let Value::Object(more) = more else {
            panic!("the keys of the plugin {name} are not an object: {more}")
        };
        for (key, value) in more {
            entry[&key] = value;
        }
        let plugins = self.root["plugins"].as_array_mut();
        plugins
            .expect("`plugins` is a list from the beginning")
            .push(entry);
    }

    /// Adds a plugin of the workspace by the name of its package.
    ///
    /// # Panics
    /// Panics if it does not build.
    pub fn sample(&mut self, package: &str, settings: &Value) {
        let file = guests::build(package);
        self.plugin(package, &file, json!({"settings": settings}));
    }

    /// Adds a plugin from bytes.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn plugin_of(&mut self, name: &str, wasm: &[u8], more: Value) {
        let path = self.folder.path().join(format!("{name}.wasm"));
        std::fs::write(&path, wasm).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.plugin(name, &path, more);
    }

    /// The folder of the configuration's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the configuration file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("tollgate.yaml")
    }

    /// Writes the file and returns its path.
    ///
    /// # Panics
    /// Panics if it cannot be written.
    #[must_use]
    pub fn write(&self) -> PathBuf {
        let path = self.path();
        std::fs::write(&path, format!("{:#}\n", self.root))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}
