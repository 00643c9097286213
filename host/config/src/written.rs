//! Keeps a configuration as it was written, so that it can be recorded and read again.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Config;
use super::plugin::{PluginConfig, PluginName, Source};
use super::problem::{Collector, Problems};

/// A part of a configuration as it was written, with the defaults of its file.
///
/// The same meaning can be written in different ways. So comparisons of configurations ignore this type.
#[derive(Clone)]
pub struct Written(Arc<Value>);

/// Keys that an entry takes from the file if the entry does not set them.
const DEFAULTS: [&str; 2] = ["conflicts", "signatures"];
const PLUGINS: &str = "plugins";
/// The keys of `signatures` that name a trusted root.
const ROOTS: [&str; 2] = ["trustedRoot", "tuf"];

// === impl Written ===

impl Written {
    /// Keeps the file without its plugins.
    pub(super) fn of_file(document: &Value) -> Self {
        let mut document = document.clone();
        if let Some(keys) = document.as_object_mut() {
            keys.remove(PLUGINS);
            keys.insert("allowEmpty".to_owned(), true.into());
        }
        Self(Arc::new(document))
    }

    /// Keeps an entry under `plugins` of a file.
    pub(super) fn of_entry(entry: &Value, file: &Value) -> Self {
        let mut entry = entry.clone();
        if !entry.is_object() {
            return Self(Arc::new(entry));
        }
        let is_artifact = |node: &Value| {
            let source = node["source"].as_str();
            source.is_some_and(|source| source.starts_with("oci://"))
        };
        if let Some(limits) = file.get("limits") {
            entry["limits"] = over(limits, entry.get("limits"));
        }
        for key in DEFAULTS {
            let Some(value) = file.get(key) else {
                continue;
            };
            // Only artifacts are signed.
            let takes = |node: &Value| {
                node.get(key).is_none() && (key != "signatures" || is_artifact(node))
            };
            // A group only validates, and its members have the sources.
            if entry.get("group").is_some() {
                let members = entry.pointer_mut("/group/members");
                let members = members.and_then(Value::as_array_mut).into_iter().flatten();
                for member in members.filter(|member| key == "signatures" && takes(member)) {
                    member[key] = value.clone();
                }
                continue;
            }
            if takes(&entry) {
                entry[key] = value.clone();
            }
            // A shadow version takes the signature keys of its plugin, if the plugin has any.
            let is_shadows = key == "signatures" && !is_artifact(&entry);
            let shadow = entry.get_mut("shadow").filter(|node| node.is_object());
            if let Some(shadow) = shadow.filter(|node| is_shadows && takes(node)) {
                shadow[key] = value.clone();
            }
        }
        Self(Arc::new(entry))
    }

    /// Returns the document.
    pub(super) fn value(&self) -> &Value {
        &self.0
    }

    /// Creates an entry with only a name and a source.
    pub(super) fn of_source(name: &PluginName, source: &Source) -> Self {
        let entry = json!({ "name": name.as_str(), "source": source.to_string() });
        Self(Arc::new(entry))
    }

    /// Returns the same part with another value under a key.
    pub(super) fn with(&self, key: &str, value: Value) -> Self {
        let mut written = Value::clone(&self.0);
        written[key] = value;
        Self(Arc::new(written))
    }
}

impl Written {
    /// Returns the same part without a key.
    pub(super) fn without(&self, key: &str) -> Self {
        let mut written = Value::clone(&self.0);
        if let Some(keys) = written.as_object_mut() {
            keys.remove(key);
        }
        Self(Arc::new(written))
    }
}

/// Merges `own` over `defaults`, key by key.
fn over(defaults: &Value, own: Option<&Value>) -> Value {
    let mut all: Map<String, Value> = defaults.as_object().cloned().unwrap_or_default();
    let own = own.and_then(Value::as_object);
    all.extend(
        own.into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    all.into()
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Hides the content, because settings may be secret.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written")
    }
}

// === impl Config ===

impl Config {
    /// Returns a document that reads as this configuration, with these entries instead of the file's. Plugins of
    /// namespaces are left out.
    pub fn document<'c>(&self, entries: impl Iterator<Item = &'c PluginConfig>) -> Value {
        let mut groups = BTreeSet::new();
        let entries: Vec<Value> = entries
            // A file cannot have an entry that is confined to a namespace.
            .filter(|entry| !entry.is_shadow() && entry.name.namespace().is_none())
            // Each member of a group has the entry of the group.
            .filter(|entry| {
                entry
                    .group
                    .as_ref()
                    .is_none_or(|group| groups.insert(&group.name))
            })
            .map(|entry| Value::clone(&entry.written.0))
            .collect();
        let mut document = Value::clone(&self.written.0);
        document[PLUGINS] = entries.into();
        // Each entry already contains the values that it takes from these keys.
        if let Some(keys) = document.as_object_mut() {
            for key in ["limits"].iter().chain(&DEFAULTS) {
                let value = keys.remove(*key);
                // Images of any entry take the trusted root from here.
                let roots = value.iter().filter_map(Value::as_object).flatten();
                let roots: Map<String, Value> = roots
                    .filter(|(key, _)| ROOTS.contains(&key.as_str()))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                if !roots.is_empty() {
                    keys.insert((*key).to_owned(), roots.into());
                }
            }
        }
        document
    }

    /// Reads a document from [`Config::document`], for a file in `folder`.
    ///
    /// # Errors
    /// The list of all problems in the document.
    pub fn of_document(document: &Value, folder: &Path) -> Result<Self, Problems> {
        let problems = Collector::default();
        let config = super::read_config(document, folder, true, &problems);
        problems.finish(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with every value that an entry may take from its file, and every value that an entry may set itself.
    const FILE: &str = "
listen: 127.0.0.1:0
limits: { fuel: 5M, memory: 16Mi }
conflicts: deny
signatures: { keys: [keys/a.pem] }
plugins:
  - name: guard
    source: file:./guard.wasm
    limits: { fuel: 7M }
    shadow: { source: 'oci://registry.example.com/guard:2' }
  - name: rewrite
    source: oci://registry.example.com/rewrite:1
    conflicts: last
    mode: warn
    match:
      rules: [{ operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] }]
      namespaces: [shop]
      objectSelector: { matchLabels: { a: b } }
      matchConditions: [{ name: c, expression: object.metadata.name == 'x' }]
    exceptions: [{ users: [a], until: 2026-12-31, reason: because }]
    shadow: { source: file:./rewrite-2.wasm, settings: { a: 1 } }
  - name: pinned
    source: oci://registry.example.com/pinned:1
    signatures: { keys: [] }
    enabled: false
    settings: { a: [1.0, 12345678901234567890, \"\\u0001\"] }
    failurePolicy: Ignore
    capabilities: [clock]
    allowRemovals: true
  - name: either
    limits: { fuel: 9M }
    mode: warn
    group:
      members:
        - { name: signed, source: 'oci://registry.example.com/signed:1', limits: { memory: 8Mi } }
        - { name: own, source: file:./own.wasm, settings: { a: 1 }, capabilities: [clock] }
      expression: signed() || own()
      message: neither signed nor our own
";

    #[test]
    fn written_document_reads_back_unchanged() {
        let config = Config::parse(FILE, Path::new("/etc/tollgate")).unwrap();
        let document = config.document(config.plugins.iter());
        let text = document.to_string();
        let document = serde_json::from_str(&text).unwrap();
        let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
        assert_eq!(again.plugins, config.plugins);
        assert_eq!(again.shadows, config.shadows);
        assert_eq!(again, config);
    }

    #[test]
    fn merged_entries_keep_settings_of_their_files() {
        let other = FILE
            .replace("fuel: 5M", "fuel: 6M")
            .replace("conflicts: deny", "conflicts: last");
        let [one, other] =
            [FILE, &other].map(|text| Config::parse(text, Path::new("/etc/tollgate")).unwrap());
        let mut warned = other.plugins[0].clone();
        warned.set_mode(crate::Mode::Warn);
        let entries = [&one.plugins[1], &warned];
        let document = one.document(entries.into_iter());
        let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
        assert_eq!(again.plugins.iter().collect::<Vec<_>>(), entries);
        assert_eq!(again.plugins[1].mode, crate::Mode::Warn);
    }
}
