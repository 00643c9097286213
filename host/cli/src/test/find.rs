//! Finds the suites in folders.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::gator;

/// Endings of a suite's file name.
const ENDINGS: [&str; 2] = [".test.yaml", ".test.yml"];
/// Folders whose content was downloaded or built.
const NOT_THE_AUTHORS: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// Lists the suites that the paths name or contain, in the order of their names. A suite is listed only once.
///
/// # Errors
/// When there is no suite, a path does not exist, or a folder cannot be read.
pub(super) fn suites(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let suites = all(paths)?;
    if suites.is_empty() {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        bail!(
            "no suites in {}: expected a file with a name like policy.test.yaml, or a suite of gator",
            paths.join(", ")
        );
    }
    Ok(suites)
}

/// Lists the suites like [`suites`], of which there may be none.
///
/// # Errors
/// When a path does not exist, or a folder cannot be read.
pub(super) fn all(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut suites = Vec::new();
    for path in paths {
        if path.is_dir() {
            walk(path, &mut suites)?;
        } else if path.exists() {
            suites.push(path.clone());
        } else {
            bail!("{}: no such file or folder", path.display());
        }
    }
    suites.sort();
    suites.dedup();
    Ok(suites)
}

/// Lists the suites directly in a folder by their names, without those of gator.
pub(super) fn suites_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut suites: Vec<PathBuf> = names
        .filter(|name| !name.starts_with('.'))
        .filter(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
        .map(|name| folder.join(name))
        .map(|path| path.strip_prefix("./").map(Path::to_owned).unwrap_or(path))
        .collect();
    suites.sort();
    suites
}

fn walk(folder: &Path, suites: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let unreadable = || format!("cannot read the folder {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links to folders are not followed, because they may lead back here.
        if entry.file_type().with_context(unreadable)?.is_dir() {
            if !name.starts_with('.') && !NOT_THE_AUTHORS.contains(&&*name) {
                walk(&path, suites)?;
            }
        } else if !name.starts_with('.') && is_suite(&path, &name) {
            suites.push(path.strip_prefix("./").unwrap_or(&path).to_owned());
        }
    }
    Ok(())
}

fn is_suite(path: &Path, name: &str) -> bool {
    let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
    ENDINGS.iter().any(|ending| name.ends_with(ending)) || (is_yaml && gator::is_suite(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_suites_outside_build_folders() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "b.test.yaml",
            "a/x.test.yml",
            "target/t.test.yaml",
            ".git/g.test.yaml",
            "policy.yaml",
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = suites(&[folder.path().to_owned(), folder.path().join("b.test.yaml")]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap())
            .collect();
        assert_eq!(names, [Path::new("a/x.test.yml"), Path::new("b.test.yaml")]);
    }

    #[test]
    fn finds_suites_of_gator_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let suite = "kind: Suite\napiVersion: test.gatekeeper.sh/v1alpha1\n";
        std::fs::write(folder.path().join("suite.yaml"), suite).unwrap();
        std::fs::write(folder.path().join("template.yaml"), "kind: Suite\n").unwrap();
        let found = suites(&[folder.path().to_owned()]).unwrap();
        assert_eq!(found, [folder.path().join("suite.yaml")]);
    }

    #[test]
    fn rejects_folder_without_suites() {
        let folder = tempfile::tempdir().unwrap();
        let error = suites(&[folder.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("a name like policy.test.yaml"), "{error}");
        let error = suites(&[folder.path().join("none.test.yaml")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("no such file"), "{error}");
    }
}
