//! Entries that come from another source than the file. The file's defaults apply to them.

use std::path::Path;

use serde_json::Value;

use super::plugin::{Defaults, PluginConfig};
use super::problem::{Collector, Problems};
use super::read::Node;
use super::{Config, Signatures, Written, read_defaults};

impl Config {
    /// Returns what the file requires of the artifacts of registries. Entries without `signatures` take it. `folder` is
    /// that of the file.
    #[must_use]
    pub fn signatures(&self, folder: &Path) -> Signatures {
        let unused = Collector::default();
        let default = Signatures::kept_in(self.registries.cache_directory.as_deref());
        let fields = Node::root(self.written.value(), &unused).object();
        let read = fields
            .map(|mut fields| Signatures::read(fields.section("signatures"), folder, &default));
        read.unwrap_or_default()
    }

    /// Reads an entry that is not in the file: the plugin or the members of the group, and the plugin's shadow version if
    /// there is one. Relative paths start at `folder`. Paths of problems begin with `place`.
    ///
    /// # Errors
    /// The list of all problems in the entry.
    pub fn read_entry(
        &self,
        entry: &Value,
        place: &str,
        folder: &Path,
    ) -> Result<(Vec<PluginConfig>, Option<PluginConfig>), Problems> {
        let max_calls = self.engine.max_concurrent_calls;
        let file = self.written.value();
        let defaults = self.defaults(folder);
        let problems = Collector::default();
        let node = Node::at(place, entry, &problems);
        let read = PluginConfig::read(&node, folder, &defaults, max_calls, &problems);
        let written = Written::of_entry(entry, file);
        let read = read.map(|(plugins, shadow)| {
            let plugins = plugins.into_iter();
            let plugins = plugins.map(|plugin| plugin.written_as(&written));
            let shadow = shadow.map(|shadow| shadow.written_as(&written));
            (plugins.collect(), shadow)
        });
        problems.finish(read)
    }

    /// Reads the values that entries take from the file.
    pub(crate) fn defaults(&self, folder: &Path) -> Defaults {
        let max_calls = self.engine.max_concurrent_calls;
        let cache = self.registries.cache_directory.as_deref();
        // The file was read without problems, so its defaults have none.
        let unused = Collector::default();
        Node::root(self.written.value(), &unused)
            .object()
            .map(|mut fields| read_defaults(&mut fields, folder, max_calls, cache))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "
cluster: { enabled: true }
limits: { fuel: 5M }
conflicts: deny
log: { identities: false }
";

    #[test]
    fn entry_takes_defaults_of_file() {
        let folder = Path::new("/etc/tollgate");
        let config = Config::parse(FILE, folder).unwrap();
        assert!(config.cluster.enabled);
        assert_eq!(config.cluster.installation, "tollgate");
        let entry = json!({
            "name": "guard", "source": "file:guard.wasm", "shadow": { "source": "file:new.wasm" },
        });
        let (plugins, shadow) = config.read_entry(&entry, "spec", folder).unwrap();
        let shadow = shadow.unwrap();
        let same = FILE.to_owned()
            + "plugins: [{ name: guard, source: 'file:guard.wasm', shadow: { source: 'file:new.wasm' } }]";
        let same = Config::parse(&same, folder).unwrap();
        assert_eq!(plugins, same.plugins);
        assert_eq!(shadow, same.shadows[0]);
        let document = config.document(plugins.iter());
        assert_eq!(
            Config::of_document(&document, folder).unwrap().plugins,
            plugins
        );
    }

    #[test]
    fn problems_of_entry_have_its_place() {
        let config = Config::parse(FILE, Path::new("/")).unwrap();
        let entry =
            json!({ "name": "guard", "source": "guard.wasm", "limits": { "fuel": "many" } });
        let problems = config
            .read_entry(&entry, "spec", Path::new("/"))
            .unwrap_err();
        let places: Vec<_> = problems
            .iter()
            .map(|problem| problem.place.as_str())
            .collect();
        assert_eq!(places, ["spec.source", "spec.limits.fuel"]);
    }
}
