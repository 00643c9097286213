//! Runs the Pods with which Kubernetes tests its own admission controller, for some versions.
//!
//! These Pods are not part of this repository. The tests look for them in the folder in `TOLLGATE_SHARED`, or in
//! `shared` beside the repository. Without them, the unit tests still cover each check at each of its versions.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use pod_security::PodSecurity;
use serde_json::{Value as Json, json};
use tollgate_sdk::testing::TestReview;

/// Prints a skipped test past the test harness, which swallows the output of passing tests.
macro_rules! skipped {
    ($($message:tt)*) => {
        writeln!(std::io::stderr(), "SKIPPED: {}", format_args!($($message)*)).expect("stderr takes it")
    };
}

#[test]
fn every_fixture_gets_the_verdict_of_its_folder() {
    let shared = std::env::var_os("TOLLGATE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("conformance/pod-security");
    if !folder.is_dir() {
        skipped!(
            "the fixtures of the Pod Security Standards are not in {}; set TOLLGATE_SHARED to the folder of `conformance`",
            folder.display()
        );
        return;
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    for level in ["baseline", "restricted"] {
        for version in entries(&folder.join(level)) {
            for (verdict, is_allowed) in [("pass", true), ("fail", false)] {
                for file in entries(&version.join(verdict)) {
                    let outcome = TestReview::create(pod(&file))
                        .settings(json!({"level": level, "version": name(&version)}))
                        .validate::<PodSecurity>();
                    checked += 1;
                    if outcome.is_allowed() != is_allowed {
                        wrong.push(format!("{}: {:?}", file.display(), outcome.answer()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 300, "only {checked} fixtures are there");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{} cannot be read: {error}", folder.display()));
    let mut entries: Vec<_> = entries
        .map(|entry| entry.expect("it was listed").path())
        .collect();
    entries.sort();
    entries
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("the names are ASCII")
}

fn pod(file: &Path) -> Json {
    let text = std::fs::read_to_string(file).expect("it was listed");
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
