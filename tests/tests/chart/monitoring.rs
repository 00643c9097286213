//! The alerts and the dashboard ask for metrics that exist, and each alert has a runbook.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_tests::binary;
use tollgate_tests::chart::EVERYTHING;

use crate::chart_or_skip;

/// The metrics of `docs/reference/metrics.md`, with the series of histograms.
fn documented() -> BTreeSet<String> {
    let path = binary::workspace().join("docs/reference/metrics.md");
    let page = std::fs::read_to_string(path).expect("the page can be read");
    let mut names = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `tollgate_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        if cells[2] == "histogram" {
            for series in ["bucket", "count", "sum"] {
                names.insert(format!("{name}_{series}"));
            }
        } else {
            names.insert(name.to_owned());
        }
    }
    assert!(names.len() > 30, "{names:?}");
    names
}

/// The names of Tollgate's metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let names = words.filter(|word| word.starts_with("tollgate_"));
    names.map(str::to_owned).collect()
}

#[track_caller]
fn assert_documented(expression: &str) {
    let unknown: Vec<_> = metrics(expression)
        .difference(&documented())
        .cloned()
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} of {expression}");
}

/// Checks what a mistyped expression has wrong first: its brackets and braces.
#[track_caller]
fn assert_balanced(expression: &str) {
    for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
        let count = |wanted| expression.chars().filter(|char| *char == wanted).count();
        assert_eq!(count(open), count(close), "{expression}");
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn alerts_use_documented_metrics_and_have_runbooks() {
    let objects = chart_or_skip!().objects(EVERYTHING);
    let rules = &objects.get("PrometheusRule", "tollgate")["spec"]["groups"][0]["rules"];
    let rules = rules.as_array().expect("rules");
    let folder = binary::workspace().join("docs/runbooks");
    let mut pages = BTreeSet::from(["README.md".to_owned()]);
    for rule in rules {
        let expression = text(rule, "expr");
        assert_documented(expression);
        assert_balanced(expression);
        let scope = "namespace=\"tollgate-system\",job=\"tollgate\"";
        assert!(expression.contains(scope), "{expression}");
        assert!(["critical", "warning"].contains(&text(&rule["labels"], "severity")));
        for key in ["summary", "description"] {
            assert!(!text(&rule["annotations"], key).is_empty());
        }
        let page = format!("{}.md", text(rule, "alert"));
        assert!(
            text(&rule["annotations"], "runbook_url").ends_with(&format!("/docs/runbooks/{page}"))
        );
        pages.insert(page);
    }
    assert!(rules.len() >= 10, "{}", rules.len());
    let entries = std::fs::read_dir(&folder).expect("docs/runbooks can be read");
    let found: BTreeSet<String> = entries
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(
        found, pages,
        "each alert has a page in docs/runbooks, and each page an alert"
    );
}

#[test]
fn dashboard_uses_documented_metrics() {
    let objects = chart_or_skip!().objects(EVERYTHING);
    let map = objects.get("ConfigMap", "tollgate-dashboard");
    let dashboard: Value =
        serde_json::from_str(text(&map["data"], "tollgate.json")).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut identifiers = BTreeSet::new();
    let mut expressions = 0;
    for panel in panels {
        assert!(identifiers.insert(panel["id"].as_u64()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = text(target, "expr");
            assert!(!metrics(expression).is_empty(), "{expression}");
            assert_documented(expression);
            assert_balanced(expression);
            expressions += 1;
        }
    }
    assert!(expressions >= 20, "{expressions}");
    for variable in dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
    {
        if variable["type"] == "query" {
            assert_documented(text(variable, "definition"));
        }
    }
}

#[test]
fn prometheus_finds_every_replica() {
    let objects = chart_or_skip!().objects(EVERYTHING);
    let monitor = &objects.get("ServiceMonitor", "tollgate")["spec"];
    let wanted = monitor["selector"]["matchLabels"]
        .as_object()
        .expect("labels");
    let selected: Vec<&str> = objects
        .of_kind("Service")
        .filter(|service| {
            let labels = &service["metadata"]["labels"];
            wanted.iter().all(|(key, value)| &labels[key] == value)
        })
        .map(|service| text(&service["metadata"], "name"))
        .collect();
    assert_eq!(selected, ["tollgate-peers"]);
    let port = &objects.get("Service", "tollgate-peers")["spec"]["ports"][0]["name"];
    assert_eq!(&monitor["endpoints"][0]["port"], port);
    // The job of every series is the installation: the alerts select by it.
    assert_eq!(monitor["jobLabel"], "app.kubernetes.io/instance");
}
