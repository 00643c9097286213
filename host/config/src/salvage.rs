//! Reads the cache folders from a configuration file that is invalid.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::yaml;

const KEY: &str = "cacheDirectory";

/// Returns the cache folders that a file names, even if the file is otherwise invalid. The content of the folders is
/// validated later.
#[must_use]
pub fn cache_directories(path: &Path) -> Vec<PathBuf> {
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(yaml::LONGEST_FILE_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let folder = yaml::folder_of(path);
    values(&text).map(|value| folder.join(value)).collect()
}

fn values(text: &str) -> impl Iterator<Item = &str> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines
        .flat_map(|line| line.split(KEY).skip(1))
        .filter_map(value)
}

/// Returns the value after a key: quoted text, or plain text up to its end.
fn value(rest: &str) -> Option<&str> {
    let rest = rest.trim_start_matches(['"', '\'']).trim_start();
    let rest = rest.strip_prefix(':')?.trim_start();
    let value = match rest.chars().next()? {
        quote @ ('"' | '\'') => rest[1..].split(quote).next()?,
        _ => rest.split([',', '}', '#']).next()?.trim_end(),
    };
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_cache_paths_in_invalid_files() {
        let rows: [(&str, &[&str]); 7] = [
            (
                "registries:\n  cacheDirectory: /var/cache/a\nplugins: [",
                &["/var/cache/a"],
            ),
            (
                "engine: { cacheDirectory: /code }\nregistries: { cacheDirectory: \"/a b\", pollInterval: 1s }\nfeul: 1",
                &["/code", "/a b"],
            ),
            (
                "{\"registries\":{\"cacheDirectory\":\"/json\"},",
                &["/json"],
            ),
            ("registries:\n  cacheDirectory: 'c' # here\n", &["c"]),
            ("# cacheDirectory: /not\n", &[]),
            ("cacheDirectory", &[]),
            ("cacheDirectory:\n", &[]),
        ];
        for (text, expected) in rows {
            let found: Vec<&str> = values(text).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn resolves_paths_from_folder_of_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tollgate.yaml");
        std::fs::write(&path, "registries: { cacheDirectory: cache }\nplugins: 7").unwrap();
        assert_eq!(cache_directories(&path), [folder.path().join("cache")]);
        assert!(cache_directories(&folder.path().join("gone.yaml")).is_empty());
    }
}
