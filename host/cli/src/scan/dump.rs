//! Reads the objects of a dump: files with lists or documents, or folders of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tollgate_admission::namespaces::{FixedNamespaces, Namespace, Namespaces};
use tollgate_cluster::Served;
use tollgate_config::kubernetes::{Kinds, Known};
use tollgate_json::document::Json;

use crate::review::input::{self, Document};
use crate::review::request::in_namespace;

/// The resource of a document.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) resource: Served,
    /// Whether neither Kubernetes nor the dump defines the kind.
    pub(super) is_guessed: bool,
}

/// The ends of the names of files that a folder is searched for.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// The namespace of a namespaced object that names none.
const NAMESPACE: &str = "default";

/// Reads all documents. Files of a folder come in the order of their paths.
///
/// # Errors
/// When a file or folder cannot be read, or a folder has no file with objects.
pub(crate) fn documents(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        for file in files(path)? {
            documents.extend(input::read(&file)?);
        }
    }
    Ok(documents)
}

/// Lists the files with objects below a path, in the order of their paths. For a path that is not a folder, the list
/// has only the path.
///
/// # Errors
/// When a folder cannot be read, or has no file with objects.
pub(crate) fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    find(path, &mut files)?;
    files.sort();
    ensure!(
        !files.is_empty(),
        "{}: contains no file that ends with .yaml, .yml or .json",
        path.display()
    );
    Ok(files)
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

/// Returns the kinds that CustomResourceDefinitions among the documents define.
pub(super) fn kinds(documents: &[Document]) -> Kinds {
    let mut kinds = Kinds::default();
    for document in documents {
        kinds.learn(&document.content);
    }
    kinds
}

/// Returns the resource of an object, and the object in its namespace.
///
/// # Errors
/// When the document is not a Kubernetes object.
pub(super) fn kind(kinds: &Kinds, content: Json) -> anyhow::Result<(Kind, Json)> {
    ensure!(
        content.as_object().is_some(),
        "got a JSON {}, expected a Kubernetes object",
        content.type_name()
    );
    let text = |name: &str| {
        let text = content.member(name).and_then(Json::as_text);
        text.filter(|text| !text.is_empty())
    };
    let kind = text("kind").context("missing `kind`, expected one such as Pod")?;
    ensure!(
        kind != "AdmissionReview",
        "an AdmissionReview is a request and no object: use `tollgate review`"
    );
    let api_version =
        text("apiVersion").context("missing `apiVersion`, expected one such as v1 or apps/v1")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let found = kinds.resource(group, kind);
    let metadata = |name: &str| content.member("metadata")?.member(name)?.as_text();
    let is_guessed = found.known == Known::Guessed;
    // kube-apiserver gives every object a uid, and every namespaced object its namespace.
    let is_cluster_scoped = metadata("uid").is_some() && metadata("namespace").is_none();
    let resource = Served {
        group: group.to_owned(),
        plural: found.plural,
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespaced: found.namespaced && !(is_guessed && is_cluster_scoped),
        is_preferred: true,
    };
    let content = match resource.namespaced {
        true => in_namespace(&content, NAMESPACE),
        false => content,
    };
    let kind = Kind {
        resource,
        is_guessed,
    };
    Ok((kind, content))
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
    fn kind_is_known_defined_or_guessed() {
        let definition = Document {
            file: String::new(),
            number: 1,
            content: Json::from(serde_json::json!({
                "kind": "CustomResourceDefinition",
                "spec": {"group": "acme.dev", "scope": "Cluster", "names": {"kind": "Octopus", "plural": "octopi"}},
            })),
        };
        let kinds = kinds(&[definition]);
        let read = |api_version: &str, kind: &str, metadata: serde_json::Value| {
            let object =
                serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
            let (kind, content) = super::kind(&kinds, Json::from(object)).unwrap();
            let namespace = content
                .member("metadata")
                .unwrap()
                .member("namespace")
                .cloned();
            let resource = (kind.resource.plural, kind.resource.namespaced);
            (
                resource,
                kind.is_guessed,
                namespace.and_then(|name| name.as_text().map(str::to_owned)),
            )
        };
        let named = || serde_json::json!({"name": "a"});
        let (pods, is_guessed, namespace) = read("v1", "Pod", named());
        assert_eq!(pods, ("pods".to_owned(), true));
        assert_eq!((is_guessed, namespace.as_deref()), (false, Some("default")));
        let (octopi, is_guessed, _) = read("acme.dev/v1", "Octopus", named());
        assert_eq!((octopi, is_guessed), (("octopi".to_owned(), false), false));
        let (_, is_guessed, _) = read("acme.dev/v1", "Squid", named());
        assert!(is_guessed);
        let from_cluster = serde_json::json!({"name": "a", "uid": "1"});
        let ((_, namespaced), _, _) = read("acme.dev/v1", "Squid", from_cluster);
        assert!(!namespaced);
        for wrong in [
            serde_json::json!([]),
            serde_json::json!({"kind": "Pod"}),
            serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
        ] {
            assert!(super::kind(&kinds, Json::from(wrong)).is_err());
        }
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
