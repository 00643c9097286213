//! The configurations in the documentation load as they are, beside the files of the plugins.

use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_tests::{binary, guests};

/// Returns the configurations on a page.
fn configurations(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    text.split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|example| example.contains("plugins:"))
        .map(str::to_owned)
        .collect()
}

/// Returns the README pages of the plugins.
fn pages_of_plugins() -> Vec<PathBuf> {
    let folder = binary::workspace().join("plugins");
    let entries = std::fs::read_dir(&folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut pages: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("README.md"))
        .collect();
    pages.sort();
    pages
}

/// Puts the plugins that a configuration names beside it, and checks it.
fn assert_loads(configuration: &str, folder: &Path) {
    for line in configuration.lines() {
        let Some((_, file)) = line.split_once("source: file:./") else {
            continue;
        };
        let (file, package) = (file.trim(), file.trim().trim_end_matches(".wasm"));
        let plugin = guests::build(&package.replace('_', "-"));
        std::fs::copy(&plugin, folder.join(file))
            .unwrap_or_else(|error| panic!("{}: {error}", plugin.display()));
    }
    let path = folder.join("tollgate.yaml");
    // A shared cache, so that each plugin is compiled only once.
    let text = format!("{configuration}\nengine: {{ cacheDirectory: ./code }}\n");
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let output = Command::new(binary::tollgate())
        .arg("check")
        .arg("--config")
        .arg(&path)
        .output()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    assert!(
        output.status.success(),
        "{configuration}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn documented_configurations_load() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let tutorial = configurations(&binary::workspace().join("docs/guides/classic-webhooks.md"));
    assert!(tutorial.len() > 3, "{}", tutorial.len());
    for configuration in tutorial {
        assert_loads(&configuration, folder.path());
    }
    for page in pages_of_plugins() {
        let own = configurations(&page);
        assert!(!own.is_empty(), "{} has no configuration", page.display());
        for configuration in own {
            assert_loads(&configuration, folder.path());
        }
    }
}
