//! Finds where a policy's sources write a place that it reads.
//!
//! The host learns which place a plugin reads, and not from which line. Most policies write places as literals, in every
//! language, so the text of the literal leads to the line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tollgate_config::{PluginConfig, PluginName, Source};

use crate::build::fresh::Project;
use crate::build::sources::Sources;

/// Characters that literals are written between.
const QUOTES: [char; 3] = ['"', '\'', '`'];
/// The folder of the SDK in a project. Its comments have places as examples.
const SDK: &str = "sdk/";
/// Larger files are not searched.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Most lines that a message names.
const MOST_NAMED: usize = 3;

/// The sources of components, by the components' files.
#[derive(Default)]
pub(in crate::test) struct Written(BTreeMap<PathBuf, Sources>);

// === impl Written ===

impl Written {
    pub(in crate::test) fn of(projects: &[Project]) -> Self {
        let projects = projects.iter();
        let sources = projects.map(|project| (absolute(project.component()), project.sources()));
        Self(sources.collect())
    }

    /// Returns the lines with the place as a literal, such as `src/lib.rs:12:20`. There are none if the plugin's sources
    /// are not known, or if the plugin puts the place together.
    pub(super) fn lines(
        &self,
        plugins: &[PluginConfig],
        plugin: &PluginName,
        at: &str,
    ) -> Vec<String> {
        let component = plugins.iter().find(|config| config.name == *plugin);
        let sources = component.and_then(|config| match &config.source {
            Source::File(path) => self.0.get(&absolute(path)),
            Source::Oci(_) => None,
        });
        let Some(sources) = sources.filter(|_| !at.is_empty()) else {
            return Vec::new();
        };
        let files = sources.files().into_iter();
        let files = files.filter(|(key, _)| !key.starts_with(SDK));
        let lines = files.flat_map(|(_, path)| lines_of(&path, at));
        lines.take(MOST_NAMED).collect()
    }
}

fn absolute(path: &Path) -> PathBuf {
    // A path that cannot be resolved is compared as it is written.
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn lines_of(path: &Path, at: &str) -> Vec<String> {
    let is_small = std::fs::metadata(path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
    let text = is_small
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
        .unwrap_or_default();
    let shown = path.strip_prefix("./").unwrap_or(path).display();
    let place = |(number, line): (usize, &str)| {
        let column = column_of(line, at)?;
        Some(format!("{shown}:{}:{column}", number + 1))
    };
    text.lines().enumerate().filter_map(place).collect()
}

/// The column of the literal's first quote, counted in characters from 1.
fn column_of(line: &str, at: &str) -> Option<usize> {
    let literals = QUOTES.map(|quote| format!("{quote}{at}{quote}"));
    let begin = literals
        .iter()
        .filter_map(|literal| line.find(literal))
        .min()?;
    Some(line[..begin].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_in_the_sources_of_their_plugin() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let component = write("dist/policy.wasm", "component with \"/spec/replica\"");
        let source = write(
            "src/lib.rs",
            "// reads /spec/replica\nlet größe = object.get(\"/spec/replica\");\nget('/spec/replica/0')\n",
        );
        let other = write("src/other.py", "get('/spec/replica')\nget(\"/data\")\n");
        write("sdk/lib.rs", "get(\"/spec/replica\")");
        let written = Written(BTreeMap::from([(
            absolute(&component),
            Sources::in_folder(folder.path()),
        )]));
        let config = format!(
            "plugins: [{{ name: a, source: 'file:{0}' }}, {{ name: b, source: 'file:/nowhere.wasm' }}]",
            component.display()
        );
        let plugins = tollgate_config::Config::parse(&config, folder.path())
            .unwrap()
            .plugins;
        let lines = |plugin: &str, at: &str| {
            let plugin = PluginName::parse(plugin).unwrap();
            written.lines(&plugins, &plugin, at)
        };
        assert_eq!(
            lines("a", "/spec/replica"),
            [
                format!("{}:2:24", source.display()),
                format!("{}:1:5", other.display()),
            ]
        );
        assert_eq!(lines("a", "/data"), [format!("{}:2:5", other.display())]);
        for (plugin, at) in [("a", ""), ("a", "/spec"), ("b", "/spec/replica")] {
            assert!(lines(plugin, at).is_empty(), "{plugin} {at}");
        }
    }
}
