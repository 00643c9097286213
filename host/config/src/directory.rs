//! Reads a folder of plugins in place of a configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::plugin::{PluginConfig, PluginName, Source};
use super::problem::{Collector, ConfigError, Problems};
use super::read::quoted;

/// Lists each `*.wasm` file of the folder, in the order of their names.
pub(crate) fn plugins(directory: &Path) -> Result<Vec<PluginConfig>, ConfigError> {
    let unreadable = |source| ConfigError::Read {
        what: "plugin folder",
        path: directory.to_owned(),
        source,
    };
    let invalid = |problems| ConfigError::Invalid {
        origin: directory.display().to_string(),
        problems,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_plugin(&path) {
            files.push(path);
        }
    }
    if files.is_empty() {
        let message = "no plugins: the folder has no file with a name like my-plugin.wasm";
        return Err(invalid(Problems::one("", message)));
    }
    files.sort();
    let problems = Collector::default();
    let mut first: BTreeMap<PluginName, PathBuf> = BTreeMap::new();
    let mut plugins = Vec::with_capacity(files.len());
    for path in files {
        let Some(name) = name_of(&path, &problems) else {
            continue;
        };
        if let Some(earlier) = first.insert(name.clone(), path.clone()) {
            problems.add(
                file_name(&path),
                format!(
                    "the file would be the plugin {name}, and so would {}; rename one of them",
                    file_name(&earlier)
                ),
            );
        }
        plugins.push(PluginConfig::new(name, Source::File(path)));
    }
    problems.finish(Some(plugins)).map_err(invalid)
}

/// Returns whether a file is a plugin. Hidden files are skipped: editors and volume mounts leave them behind.
fn is_plugin(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden
        && path
            .extension()
            .is_some_and(|extension| extension == "wasm")
        && path.is_file()
}

/// Derives the plugin's name from the file's stem. `_` becomes `-`, because cargo writes the crate `my-plugin` to
/// `my_plugin.wasm`.
fn name_of(path: &Path, problems: &Collector) -> Option<PluginName> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .replace('_', "-");
    let name = PluginName::parse(&stem);
    if let Err(error) = &name {
        problems.add(
            file_name(path),
            format!("cannot derive a plugin's name from the file's name: {error}; rename the file"),
        );
    }
    name.ok()
}

fn file_name(path: &Path) -> String {
    quoted(&path.file_name().unwrap_or_default().to_string_lossy())
}
