//! Takes a review from the suite of a plugin, for `tollgate bench`.

use std::path::Path;
use std::sync::Arc;

use tollgate_admission::namespaces::Namespaces;
use tollgate_config::Source;
use tollgate_json::document::Json;

use super::expect::{Expectation, Verdict};
use super::find;
use super::run::{documents, namespaces, prepare};
use super::suite::{Case, Suite};
use crate::terminal::{NOTABLE, plain, tell};

/// A review to measure a plugin with.
pub(crate) struct Example {
    pub(crate) review: Json,
    /// The Namespaces of the cluster, if the review comes with them.
    pub(crate) namespaces: Option<Arc<dyn Namespaces>>,
    /// The place that the review is from, for a person.
    pub(crate) from: String,
}

/// Returns the review of the first case that calls the plugin, in a suite directly in the folder. A suite that cannot
/// be read is reported.
pub(crate) fn example_for(folder: &Path, source: &Source) -> Option<Example> {
    for path in find::suites_in(folder) {
        let suite = match Suite::load(&path) {
            Ok(suite) => suite,
            Err(error) => {
                let error = format!("{error:#}");
                tell!(
                    "{NOTABLE}the object is not from a suite:{NOTABLE:#} {}",
                    plain(&error)
                );
                continue;
            }
        };
        let plugins = &suite.config.plugins;
        if !plugins.iter().any(|plugin| is_same(&plugin.source, source)) {
            continue;
        }
        let mut examples = suite.cases.iter().filter(|case| calls(&case.expect));
        if let Some(example) = examples.find_map(|case| of_case(&path, case)) {
            return Some(example);
        }
    }
    None
}

/// Whether the case expects the plugin to be called and to answer.
fn calls(expect: &Expectation) -> bool {
    expect.not_loaded.is_none()
        && expect.fault.is_none()
        && !matches!(expect.verdict, Some(Verdict::NotCalled | Verdict::Fault))
}

/// Returns the review of a case. A case that cannot be run has none, and `tollgate test` says why.
fn of_case(suite: &Path, case: &Case) -> Option<Example> {
    let (name, document) = documents(case).into_iter().next()?;
    let prepared = prepare(case, document.ok()?).ok()?;
    let has_namespaces = case.review.namespaces.is_some();
    Some(Example {
        review: prepared.review,
        namespaces: match has_namespaces {
            true => Some(namespaces(&case.review).ok()?),
            false => None,
        },
        from: format!("{}: {}: {name}", suite.display(), case.place),
    })
}

fn is_same(one: &Source, other: &Source) -> bool {
    match (one, other) {
        (Source::File(one), Source::File(other)) => {
            let canonical = |path: &Path| std::fs::canonicalize(path).ok();
            one == other || canonical(one).is_some_and(|one| canonical(other) == Some(one))
        }
        (one, other) => one.to_string() == other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_first_case_that_calls_the_plugin() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        let source = |name: &str| Source::File(folder.path().join(name));
        write(
            "a.test.yaml",
            "plugins: [{ name: other, source: file:other.wasm }]
cases: [{ name: a, object: { kind: Pod, apiVersion: v1, metadata: { name: other } }, expect: allow }]
",
        );
        write("b.test.yaml", "plugins: [");
        write(
            "c.test.yaml",
            "plugins: [{ name: x, source: file:x.wasm }]
defaults: { object: { kind: Deployment, apiVersion: apps/v1, metadata: { name: web } } }
cases:
  - { name: none, operation: DELETE, expect: not-called }
  - { name: broken, object: none.yaml, expect: allow }
  - { name: fits, set: { /spec/replicas: 3 }, namespaces: [{ metadata: { name: default } }], expect: allow }
",
        );
        let example = example_for(folder.path(), &source("x.wasm")).unwrap();
        assert!(
            example.from.ends_with("c.test.yaml: cases[2]: fits"),
            "{}",
            example.from
        );
        let object = example.review.at("/request/object/spec/replicas").unwrap();
        assert_eq!(object.unwrap().to_text(), "3");
        assert!(example.namespaces.is_some());
        assert!(example_for(folder.path(), &source("y.wasm")).is_none());
    }
}
