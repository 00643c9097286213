//! `tollgate schema`: the schemas that editors use, and the files that name them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tollgate_config::schema::{address, violations};
use tollgate_tests::binary::{tollgate, workspace};

const KINDS: [&str; 3] = ["config", "suite", "custom-resources"];
/// What editors look for in a file.
const LINE: &str = "# yaml-language-server: $schema=";
/// Folders whose content is downloaded or built.
const LEFT_OUT: [&str; 4] = ["target", "node_modules", ".git", ".venv"];

fn schema(kind: &str) -> Value {
    let output = Command::new(tollgate()).args(["schema", kind]).output();
    let output = output.expect("tollgate can be run");
    assert!(output.status.success(), "{kind}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("a schema is JSON")
}

/// Lists the YAML files and pages below a folder.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !LEFT_OUT.contains(&&*name) {
                files(&path, into);
            }
        } else if name.ends_with(".yaml") || name.ends_with(".md") {
            into.push(path);
        }
    }
}

/// The kind of schema that a text names in its first line.
fn named(text: &str) -> Option<&'static str> {
    let line = text.lines().next()?.strip_prefix(LINE)?;
    let kind = KINDS.into_iter().find(|kind| line == address(kind));
    assert!(
        kind.is_some() || line.starts_with("./"),
        "{line} is not published"
    );
    kind
}

fn assert_valid(schemas: &[(&str, Value)], text: &str, place: &str) {
    let Some(kind) = named(text) else { return };
    let (_, schema) = schemas
        .iter()
        .find(|(name, _)| *name == kind)
        .expect("a known kind");
    let document: Value =
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(violations(schema, &document), [""; 0], "{place}");
}

#[test]
fn prints_the_published_schemas() {
    for kind in KINDS {
        let path = workspace().join(format!("docs/schemas/{kind}.json"));
        let published = std::fs::read_to_string(&path).expect("a published schema can be read");
        let published: Value = serde_json::from_str(&published).expect("a schema is JSON");
        assert!(
            schema(kind) == published,
            "write {} with `tollgate schema {kind}`",
            path.display()
        );
        assert_eq!(published["$id"], address(kind));
    }
    let output = Command::new(tollgate()).args(["schema", "plugin"]).output();
    let output = output.expect("tollgate can be run");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn files_that_name_a_schema_are_valid() {
    let schemas = KINDS.map(|kind| (kind, schema(kind)));
    let mut all = Vec::new();
    files(workspace(), &mut all);
    let mut count = 0;
    for path in all {
        let text = std::fs::read_to_string(&path).expect("a file can be read");
        let place = path.display().to_string();
        let is_page = place.ends_with(".md");
        let texts: Vec<&str> = match is_page {
            false => vec![&text],
            true => text
                .split("```yaml\n")
                .skip(1)
                .filter_map(|rest| rest.split("```").next())
                .collect(),
        };
        let is_suite = place.ends_with(".test.yaml");
        assert!(
            !is_suite || named(&text) == Some("suite"),
            "{place} names no schema"
        );
        for text in texts {
            count += usize::from(named(text).is_some());
            assert_valid(&schemas, text, &place);
        }
    }
    assert!(count > 8, "{count}");
}

#[test]
fn new_projects_name_schemas_and_are_valid() {
    let schemas = KINDS.map(|kind| (kind, schema(kind)));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for language in ["rust", "go", "ts", "js", "python", "c"] {
        for template in ["sample", "empty"] {
            let name = format!("{language}-{template}");
            let output = Command::new(tollgate())
                .args(["new", &name, "--lang", language, "--template", template])
                .current_dir(folder.path())
                .output()
                .expect("tollgate can be run");
            assert!(output.status.success(), "{output:?}");
            for (file, kind) in [("tollgate.yaml", "config"), ("policy.test.yaml", "suite")] {
                let path = folder.path().join(&name).join(file);
                let text = std::fs::read_to_string(&path).expect("a file can be read");
                assert_eq!(named(&text), Some(kind), "{}", path.display());
                assert_valid(&schemas, &text, &path.display().to_string());
            }
        }
    }
}
