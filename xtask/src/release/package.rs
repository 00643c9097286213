//! Packs folders into archives whose bytes depend on their content alone.

use std::path::Path;

use anyhow::Context as _;

use crate::image::layout::compressed;
use crate::image::tar::Tar;

/// Names that no package has, as `deploy/chart/.helmignore` says.
const IGNORED: [&str; 4] = [".DS_Store", ".git", ".helmignore", ".gitkeep"];
const IGNORED_ENDS: [&str; 3] = [".orig", ".swp", ".tgz"];

/// Packs a folder as a compressed archive with one folder at its top.
pub(super) fn folder(from: &Path, top: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut files = Vec::new();
    collect(from, top, &mut files)?;
    files.sort();
    let mut archive = Tar::new(time);
    for (name, path) in files {
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        archive.file(&name, 0o644, &bytes)?;
    }
    compressed(&archive.finish())
}

/// Packs files with their modes.
pub(super) fn files(files: &[(&str, u32, &[u8])], time: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = Tar::new(time);
    for (name, mode, bytes) in files {
        archive.file(name, *mode, bytes)?;
    }
    compressed(&archive.finish())
}

fn collect(
    folder: &Path,
    name: &str,
    files: &mut Vec<(String, std::path::PathBuf)>,
) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let own = entry.file_name().to_string_lossy().into_owned();
        if IGNORED.contains(&own.as_str()) || IGNORED_ENDS.iter().any(|end| own.ends_with(end)) {
            continue;
        }
        let name = format!("{name}/{own}");
        let kind = entry.file_type()?;
        match kind.is_dir() {
            true => collect(&entry.path(), &name, files)?,
            false => {
                anyhow::ensure!(kind.is_file(), "{} is no file", entry.path().display());
                files.push((name, entry.path()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_depend_on_names_and_content_alone() {
        let made = |names: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("templates")).unwrap();
            for name in names {
                std::fs::write(folder.path().join(name), name).unwrap();
            }
            super::folder(folder.path(), "tollgate", 1_700_000_000).unwrap()
        };
        let first = made(&["Chart.yaml", "templates/a.yaml", "values.yaml"]);
        let second = made(&["values.yaml", "templates/a.yaml", "Chart.yaml", "old.orig"]);
        assert_eq!(first, second);
        assert_ne!(first, made(&["Chart.yaml"]));
    }
}
