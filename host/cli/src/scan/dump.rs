//! Reads the objects of a dump: files with lists or documents, or folders of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tollgate_admission::namespaces::{FixedNamespaces, Namespace, Namespaces};
use tollgate_json::document::Json;

use crate::review::input::{self, Document};

/// The ends of the names of files that a folder is searched for.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Reads all documents. Files of a folder come in the order of their paths.
///
/// # Errors
/// When a file or folder cannot be read, or a folder has no file with objects.
pub(super) fn documents(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if !path.is_dir() {
            documents.extend(input::read(path)?);
            continue;
        }
        let mut files = Vec::new();
        find(path, &mut files)?;
        files.sort();
        ensure!(
            !files.is_empty(),
            "{}: contains no file that ends with .yaml, .yml or .json",
            path.display()
        );
        for file in files {
            documents.extend(input::read(&file)?);
        }
    }
    Ok(documents)
}

/// Returns the Namespaces among the documents. None if there are none: nothing is known about namespaces then.
///
/// # Errors
/// When a Namespace has no name, or a label that is not a string.
pub(super) fn namespaces(documents: &[Document]) -> anyhow::Result<Option<Arc<dyn Namespaces>>> {
    let mut names = std::collections::BTreeSet::new();
    let objects = documents.iter().map(|document| &document.content);
    // A folder may contain the same object twice, such as in two dumps.
    let objects = objects.filter(|object| {
        let is_namespace = object.member("kind").and_then(Json::as_text) == Some("Namespace");
        let name = Namespace::of(object).name().map(str::to_owned);
        !is_namespace || name.is_none_or(|name| names.insert(name))
    });
    let namespaces = FixedNamespaces::from_objects("in the dump", objects)?;
    Ok((!namespaces.is_empty()).then(|| Arc::new(namespaces) as Arc<dyn Namespaces>))
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let path = entry.path();
        // Links are not followed into folders, so there are no circles.
        if entry.file_type().with_context(cannot)?.is_dir() {
            find(&path, files)?;
        } else if path.is_file() && path.extension().is_some_and(is_searched) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_searched(extension: &std::ffi::OsStr) -> bool {
    EXTENSIONS.iter().any(|one| extension == *one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_and_folders_in_the_order_of_paths() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::create_dir(folder.path().join("shop")).unwrap();
        write(
            "b.json",
            r#"{"kind":"List","apiVersion":"v1","items":[{"kind":"A"},{"kind":"B"}]}"#,
        );
        write("shop/c.yaml", "kind: C\n---\nkind: D\n");
        write("a.yml", "kind: Z\n");
        write("README.md", "# not an object");
        let kinds = |paths: &[PathBuf]| -> Vec<String> {
            let documents = documents(paths).unwrap();
            let kinds = documents
                .iter()
                .map(|document| document.content.member("kind"));
            kinds
                .map(|kind| kind.and_then(Json::as_text).unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            kinds(&[folder.path().to_owned()]),
            ["Z", "A", "B", "C", "D"]
        );
        assert_eq!(kinds(&[folder.path().join("b.json")]), ["A", "B"]);
        let empty = tempfile::tempdir().unwrap();
        assert!(documents(&[empty.path().to_owned()]).is_err());
    }

    #[test]
    fn namespaces_may_be_there_twice_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
        std::fs::write(&file, format!("{namespace}---\n{namespace}")).unwrap();
        let documents = documents(&[file]).unwrap();
        assert!(namespaces(&documents).unwrap().is_some());
        assert!(namespaces(&[]).unwrap().is_none());
    }
}
