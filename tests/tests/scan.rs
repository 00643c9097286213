//! `tollgate scan` judges what exists as admission would, and its reports, exit code and state file tell the same.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{pod, secret};
use tollgate_tests::{guests, wat};

const TRAP: &str =
    "(func (export \"tollgate:admission/validating@0.1.0#validate\") (result i32) unreachable)";

fn scan(configuration: &Configuration, arguments: &[&str]) -> Ran {
    let mut command = cli::command(&["scan", "--config"]);
    command.arg(configuration.write()).args(arguments);
    cli::run(command.env("NO_COLOR", "1"))
}

/// Scans and returns the exit code with the results.
fn json_of(configuration: &Configuration, arguments: &[&str]) -> (Option<i32>, Value) {
    let ran = scan(configuration, &[arguments, &["-o", "json"]].concat());
    (ran.code, ran.json())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of the tests are text")
}

/// A `match` for creations of these resources.
fn creations(resources: &[&str]) -> Value {
    json!({"rules": [{
        "operations": ["CREATE"], "apiGroups": ["", "apps"], "apiVersions": ["*"], "resources": resources,
    }]})
}

/// Adds a policy that denies objects without a label `team`, with further keys of its entry.
fn team(configuration: &mut Configuration, name: &str, more: Value) {
    let mut entry = json!({
        "match": creations(&["pods", "namespaces"]), "settings": {"labels": {"team": null}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    configuration.plugin(name, &guests::build("required-labels"), entry);
}

fn in_namespace(namespace: &str, name: &str, labels: Value) -> Value {
    let mut object = pod(name);
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["labels"] = labels;
    object["metadata"]["uid"] = json!(format!("uid-{namespace}-{name}"));
    object["metadata"]["resourceVersion"] = json!("7");
    object
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// Writes a dump as `kubectl get … -o json` prints it.
fn dump(folder: &TempDir, objects: &[Value]) -> PathBuf {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = folder.path().join("dump.json");
    std::fs::write(&file, list.to_string()).expect("written");
    file
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Returns the results for an object, as `plugin phase result`.
fn said(results: &Value, name: &str) -> Vec<String> {
    let all = results["results"].as_array().into_iter().flatten();
    let own = all.filter(|result| result["name"] == name);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    own.map(|result| {
        ["plugin", "phase", "result"]
            .map(|key| word(&result[key]))
            .join(" ")
    })
    .collect()
}

#[test]
fn judges_a_dump_by_modes_and_exceptions() {
    let folder = folder();
    let mut gone = in_namespace("shop", "gone", json!({}));
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let file = dump(
        &folder,
        &[
            namespace("shop", json!({"team": "a"})),
            in_namespace("shop", "good", json!({"team": "a"})),
            in_namespace("shop", "bad", json!({})),
            in_namespace("bank", "excepted", json!({})),
            gone,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}}),
        ],
    );
    let mut configuration = Configuration::new();
    let exception = json!([{"names": ["excepted"], "until": "2999-12-31", "reason": "legacy"}]);
    team(
        &mut configuration,
        "enforced",
        json!({"exceptions": exception}),
    );
    team(&mut configuration, "warned", json!({"mode": "warn"}));
    team(&mut configuration, "audited", json!({"mode": "audit"}));
    let (code, results) = json_of(&configuration, &[path(&file)]);
    assert_eq!(code, Some(1), "{results:#}");
    assert_eq!(
        said(&results, "bad"),
        [
            "enforced validate fail",
            "warned validate warn",
            "audited validate warn"
        ]
    );
    assert_eq!(
        said(&results, "excepted"),
        [
            "enforced validate skip",
            "warned validate warn",
            "audited validate warn"
        ]
    );
    assert_eq!(said(&results, "good"), [""; 0]);
    assert_eq!(said(&results, "gone"), [""; 0]);
    assert_eq!(
        (&results["objects"], &results["beingDeleted"]),
        (&json!(6), &json!(1))
    );
    assert_eq!(
        results["summary"],
        json!({"pass": 6, "fail": 1, "warn": 4, "error": 0, "skip": 1})
    );
    assert_eq!(results["plugins"]["enforced"]["fail"], 1);
    let all = results["results"].as_array().into_iter().flatten();
    let mut denials = all.filter(|result| result["result"] == "fail");
    let denial = denials.next().expect("a denial");
    assert!(
        denial["message"].as_str().expect("a text").contains("team"),
        "{denial}"
    );

    let ran = scan(&configuration, &[path(&file)]);
    assert_eq!(ran.code, Some(1));
    for words in [
        "fail Pod shop/bad (enforced, validate)",
        "12 results: 0 error, 1 fail, 4 warn, 1 skip, 6 pass",
        "1 objects are being deleted",
        "enforced exceptions[0] (legacy, until 2999-12-31)",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    // A dump without an object that would be denied.
    let good = folder.path().join("good.json");
    std::fs::write(
        &good,
        in_namespace("shop", "good", json!({"team": "a"})).to_string(),
    )
    .expect("written");
    assert_eq!(scan(&configuration, &[path(&good)]).code, Some(0));
}

#[test]
fn faults_and_plugins_that_do_not_load_are_results() {
    let folder = folder();
    let file = dump(
        &folder,
        &[
            in_namespace("shop", "a", json!({})),
            in_namespace("shop", "b", json!({"team": "a"})),
        ],
    );
    let mut configuration = Configuration::new();
    team(&mut configuration, "labels", json!({}));
    let more = || json!({"match": creations(&["pods"]), "failurePolicy": "Ignore"});
    configuration.plugin_of("trap", &wat::plugin("validator", TRAP), more());
    configuration.plugin_of("broken", b"no wasm", more());
    let (code, results) = json_of(&configuration, &[path(&file)]);
    assert_eq!(code, Some(2), "{results:#}");
    assert_eq!(
        said(&results, "a"),
        [
            "labels validate fail",
            "trap validate error",
            "broken validate error"
        ]
    );
    assert_eq!(
        said(&results, "b"),
        ["trap validate error", "broken validate error"]
    );
    let faults: Vec<_> = results["results"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert!(
        faults.iter().any(|result| result["fault"] == "trap"),
        "{results:#}"
    );
    assert!(
        faults.iter().any(|result| result["fault"] == "not-loaded"),
        "{results:#}"
    );
}

#[test]
fn mutators_see_the_object_as_it_exists_and_so_do_validators() {
    let folder = folder();
    let file = dump(
        &folder,
        &[
            in_namespace("shop", "old", json!({})),
            in_namespace("shop", "new", json!({"checked": "yes"})),
        ],
    );
    let mut configuration = Configuration::new();
    let more = json!({
        "match": creations(&["pods"]),
        "settings": {"set": {"/metadata/labels/checked": "yes"}, "forbid": {"/metadata/labels/checked": "yes"}},
    });
    configuration.plugin("actor", &guests::build("actor"), more);
    let (code, results) = json_of(&configuration, &[path(&file)]);
    assert_eq!(code, Some(1));
    assert_eq!(said(&results, "old"), ["actor mutate warn"], "{results:#}");
    let message = results["results"][1]["message"].clone();
    let messages = [&results["results"][0]["message"], &message];
    let changed = messages.iter().filter_map(|message| message.as_str());
    let changed: Vec<_> = changed
        .filter(|text| text.contains("would be changed at"))
        .collect();
    assert_eq!(changed.len(), 1, "{results:#}");
    // The pipeline of a request would have shown the mutated object to the validator.
    assert_eq!(
        said(&results, "new"),
        ["actor validate fail"],
        "{results:#}"
    );
}

#[test]
fn labels_of_namespaces_come_from_the_dump() {
    let folder = folder();
    let objects = [
        namespace("gold", json!({"tier": "gold"})),
        namespace("plain", json!({})),
        in_namespace("gold", "in-gold", json!({})),
        in_namespace("plain", "in-plain", json!({})),
        in_namespace("unknown", "lost", json!({})),
    ];
    let mut configuration = Configuration::new();
    let mut matching = creations(&["pods"]);
    matching["namespaceSelector"] = json!({"matchLabels": {"tier": "gold"}});
    team(&mut configuration, "labels", json!({"match": matching}));
    let (code, results) = json_of(&configuration, &[path(&dump(&folder, &objects))]);
    assert_eq!(code, Some(2));
    assert_eq!(said(&results, "in-gold"), ["labels validate fail"]);
    assert_eq!(said(&results, "in-plain"), [""; 0]);
    assert_eq!(said(&results, "lost"), ["labels validate error"]);
    let lost = results["results"].as_array().into_iter().flatten();
    let lost = lost.filter(|result| result["name"] == "lost");
    let faults: Vec<_> = lost.map(|result| result["fault"].clone()).collect();
    assert_eq!(faults, ["namespace-unavailable"]);
}

#[test]
fn second_scan_calls_no_plugin_for_unchanged_objects() {
    let folder = folder();
    let mut objects = vec![
        namespace("shop", json!({"team": "a"})),
        in_namespace("shop", "a", json!({})),
        in_namespace("shop", "b", json!({"team": "a"})),
        secret("s", "aHVudGVyMg==", "hunter2", "{}"),
    ];
    let state = folder.path().join("state.json");
    let configuration = |settings: Value, exceptions: Value| {
        let mut configuration = Configuration::new();
        let more = json!({"settings": settings, "exceptions": exceptions});
        team(&mut configuration, "one", more);
        team(&mut configuration, "two", json!({"mode": "warn"}));
        configuration
    };
    let counts = |objects: &[Value], configuration: &Configuration| {
        let file = dump(&folder, objects);
        let arguments = [path(&file), "--state", path(&state)];
        let (_, mut results) = json_of(configuration, &arguments);
        let calls = results["calls"].take();
        let reused = results["reused"].take();
        (calls, reused, results)
    };
    let settings = || json!({"labels": {"team": null}});
    let same = configuration(settings(), json!([]));
    let (calls, reused, first) = counts(&objects, &same);
    assert_eq!((calls, reused), (json!(6), json!(0)));
    let (calls, reused, second) = counts(&objects, &same);
    assert_eq!((calls, reused), (json!(0), json!(6)));
    assert_eq!(first, second);
    let text = std::fs::read_to_string(&state).expect("the state is written");
    assert!(!text.contains("hunter2"), "{text}");

    objects[1]["metadata"]["labels"] = json!({"team": "b"});
    let (calls, _, changed) = counts(&objects, &same);
    assert_eq!(calls, 2, "one object changed");
    assert_eq!(said(&changed, "a"), [""; 0]);
    objects[0]["metadata"]["labels"]["more"] = json!("x");
    let (calls, _, _) = counts(&objects, &same);
    assert_eq!(calls, 6, "the Namespace of every object changed");
    let other = configuration(json!({"labels": {"owner": null}}), json!([]));
    let (calls, reused, _) = counts(&objects, &other);
    assert_eq!(
        (calls, reused),
        (json!(3), json!(3)),
        "the settings of one plugin changed"
    );
    let exception = json!([{"names": ["b"], "until": "2999-12-31", "reason": "legacy"}]);
    let excepting = configuration(json!({"labels": {"owner": null}}), exception);
    let (calls, _, _) = counts(&objects, &excepting);
    // Two objects are judged with the plugin, and one without its exception.
    assert_eq!(calls, 3, "the exceptions of one plugin changed");
    let (calls, _, _) = counts(&objects, &excepting);
    assert_eq!(calls, 0);
}

#[test]
fn plugin_with_a_fault_is_called_again() {
    let folder = folder();
    let file = dump(&folder, &[in_namespace("shop", "a", json!({}))]);
    let state = folder.path().join("state.json");
    let mut configuration = Configuration::new();
    let more = json!({"match": creations(&["pods"])});
    configuration.plugin_of("trap", &wat::plugin("validator", TRAP), more);
    for _ in 0..2 {
        let arguments = [path(&file), "--state", path(&state)];
        let (code, results) = json_of(&configuration, &arguments);
        assert_eq!((code, &results["calls"]), (Some(2), &json!(1)));
    }
    std::fs::write(&state, "damaged").expect("written");
    let ran = scan(&configuration, &[path(&file), "--state", path(&state)]);
    assert!(ran.stderr.contains("judged again"), "{}", ran.stderr);
}

#[test]
fn says_which_exceptions_are_needed() {
    let folder = folder();
    let file = dump(
        &folder,
        &[
            in_namespace("shop", "legacy", json!({})),
            in_namespace("shop", "fine", json!({"team": "a"})),
            in_namespace("shop", "late", json!({})),
        ],
    );
    let exception = |name: &str, key: &str, value: &str, until: &str| {
        let mut exception = json!({"name": name, "until": until, "reason": format!("{name} it")});
        exception[key] = json!([value]);
        exception
    };
    let mut configuration = Configuration::new();
    let exceptions = json!([
        exception("needed", "names", "legacy", "2999-12-31"),
        exception("fixed", "names", "fine", "2999-12-31"),
        exception("unused", "names", "nobody", "2999-12-31"),
        exception("behind", "names", "legacy", "never"),
        exception("user", "users", "jane", "2999-12-31"),
        exception("over", "names", "late", "2020-01-01"),
    ]);
    team(
        &mut configuration,
        "labels",
        json!({"exceptions": exceptions}),
    );
    let (code, results) = json_of(&configuration, &[path(&file)]);
    assert_eq!(
        code,
        Some(1),
        "an expired exception covers nothing: {results:#}"
    );
    let rows = results["exceptions"].as_array().expect("a list");
    let states: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row["name"], row["state"]).replace('"', ""))
        .collect();
    assert_eq!(
        states,
        [
            "needed needed",
            "fixed not-needed",
            "unused unused",
            "behind unused",
            "user not-judged",
            "over expired",
        ]
    );
    assert_eq!(rows[0]["without"]["fail"], 1);
    assert_eq!(rows[1]["without"]["pass"], 1);
    assert_eq!(rows[5]["without"]["fail"], 1);
    assert_eq!(said(&results, "late"), ["labels validate fail"]);
    let legacy = results["results"].as_array().into_iter().flatten();
    let mut legacy = legacy.filter(|result| result["name"] == "legacy");
    assert_eq!(legacy.next().expect("a result")["without"], "fail");
    let ran = scan(&configuration, &[path(&file)]);
    for words in [
        "needed: without it, 1 of 1 objects would be refused",
        "not needed: the plugin has nothing against the 1 objects",
        "unused: earlier exceptions cover its 1 objects already",
        "expired, so it has no effect: delete it",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
}

#[test]
fn exception_ends_for_scan_and_review_in_the_same_second() {
    let folder = folder();
    let file = dump(&folder, &[in_namespace("shop", "legacy", json!({}))]);
    // The build may take minutes, so it comes before the exception.
    let _: PathBuf = guests::build("required-labels");
    let until = OffsetDateTime::now_utc() + std::time::Duration::from_secs(12);
    let until = until.replace_nanosecond(0).expect("a time");
    let text = until.format(&Rfc3339).expect("a time has a text");
    let state = folder.path().join("state.json");
    let mut configuration = Configuration::new();
    let exceptions = json!([{"names": ["legacy"], "until": text, "reason": "soon over"}]);
    team(
        &mut configuration,
        "labels",
        json!({"exceptions": exceptions}),
    );
    let arguments = [path(&file), "--state", path(&state)];
    let reviewed = || {
        let mut command = cli::command(&["review", "--config"]);
        command.arg(configuration.write()).arg(&file);
        cli::run(&mut command).code
    };
    let before = (scan(&configuration, &arguments).code, reviewed());
    if OffsetDateTime::now_utc() < until {
        assert_eq!(before, (Some(0), Some(0)));
    }
    while OffsetDateTime::now_utc() < until {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // The state file has the result with the exception, which must not be used any more.
    let after = (scan(&configuration, &arguments).code, reviewed());
    assert_eq!(after, (Some(1), Some(1)));
}

#[test]
fn reports_have_the_same_bytes_whatever_the_number_of_workers() {
    let folder = folder();
    let mut objects = vec![namespace("shop", json!({}))];
    for index in 0..40 {
        let labels = match index % 2 {
            0 => json!({}),
            _ => json!({"team": "a"}),
        };
        objects.push(in_namespace(
            ["shop", "bank"][index % 2],
            &format!("web-{index}"),
            labels,
        ));
    }
    let file = dump(&folder, &objects);
    let mut configuration = Configuration::new();
    team(&mut configuration, "labels", json!({}));
    let print = |more: &[&str]| {
        let ran = scan(
            &configuration,
            &[&[path(&file), "-o", "reports"], more].concat(),
        );
        assert_eq!(ran.code, Some(1));
        ran.stdout
    };
    let text = print(&["--jobs", "1"]);
    assert_eq!(text, print(&["--jobs", "4"]));
    let reports: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let places: Vec<String> = reports
        .iter()
        .map(|report| {
            let namespace = report["metadata"]["namespace"].as_str();
            let kind = report["kind"].as_str().expect("a kind");
            format!(
                "{kind} {}: {} fail",
                namespace.unwrap_or("-"),
                report["summary"]["fail"]
            )
        })
        .collect();
    assert_eq!(
        places,
        [
            "ClusterReport -: 1 fail",
            "Report bank: 0 fail",
            "Report shop: 20 fail"
        ]
    );
    assert_eq!(reports[1]["summary"]["pass"], 20);
    assert_eq!(reports[1]["results"], json!([]));
    let result = &reports[2]["results"][0];
    assert_eq!(result["policy"], "labels");
    assert_eq!(result["rule"], "validate");
    assert_eq!(result["resources"][0]["name"], "web-0");
    assert_eq!(result["resources"][0]["uid"], "uid-shop-web-0");
    let other = print(&["--format", "policyreport", "--name", "nightly", "--passes"]);
    let reports: Vec<Value> = serde_saphyr::from_multiple(&other).expect("YAML");
    assert_eq!(reports[1]["apiVersion"], "wgpolicyk8s.io/v1alpha2");
    assert_eq!(reports[1]["metadata"]["name"], "nightly");
    assert_eq!(reports[1]["results"].as_array().map(Vec::len), Some(20));
}

#[test]
fn content_of_secrets_is_in_no_result() {
    let folder = folder();
    let mut object = secret("s", "bWFya2VyLTdjNDFkOQ==", "marker-7c41d9", "{}");
    object["metadata"]["uid"] = json!("1");
    object["metadata"]["resourceVersion"] = json!("2");
    let file = dump(&folder, &[object]);
    let state = folder.path().join("state.json");
    let mut configuration = Configuration::new();
    let more = json!({
        "match": creations(&["secrets"]),
        "settings": {"forbid": {"/stringData/*": "marker-7c41d9"}},
    });
    configuration.plugin("actor", &guests::build("actor"), more);
    for output in ["text", "json", "reports"] {
        let arguments = [path(&file), "--state", path(&state), "-o", output];
        let ran = scan(&configuration, &arguments);
        assert!(!ran.stdout.contains("7c41d9"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("bWFya2Vy"), "{}", ran.stdout);
    }
    let text = std::fs::read_to_string(&state).expect("the state is written");
    assert!(
        !text.contains("7c41d9") && !text.contains("bWFya2Vy"),
        "{text}"
    );
}

#[test]
fn names_what_cannot_be_judged() {
    let folder = folder();
    let file = folder.path().join("mixed.yaml");
    let good = in_namespace("shop", "good", json!({"team": "a"}));
    let other = in_namespace("shop", "good", json!({"team": "b"}));
    std::fs::write(
        &file,
        format!("{good}\n---\nmetadata: {{name: x}}\n---\n{other}\n---\n{good}\n"),
    )
    .expect("written");
    let mut configuration = Configuration::new();
    team(&mut configuration, "labels", json!({}));
    let (code, results) = json_of(&configuration, &[path(&file)]);
    assert_eq!(code, Some(2));
    let unread = results["unread"].to_string();
    assert!(unread.contains("document 2: missing `kind`"), "{unread}");
    assert!(
        unread.contains("document 3: v1/Pod/shop/good is there twice"),
        "{unread}"
    );
    assert!(!unread.contains("document 4"), "{unread}");
    for (arguments, words) in [
        (vec!["/nowhere.yaml"], "cannot read /nowhere.yaml"),
        (vec![], "required arguments"),
        (vec!["--write", path(&file)], "--cluster"),
        (vec![path(&file), "--name", "No"], "such as tollgate"),
    ] {
        let ran = scan(&configuration, &arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}");
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn names_objects_whose_resource_can_only_be_guessed() {
    let folder = folder();
    let octopus = json!({
        "apiVersion": "acme.dev/v1", "kind": "Octopus",
        "metadata": {"name": "paul", "namespace": "sea", "uid": "1", "resourceVersion": "7"},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "octopi.acme.dev"},
        "spec": {"group": "acme.dev", "scope": "Namespaced", "names": {"kind": "Octopus", "plural": "octopi"}},
    });
    let mut configuration = Configuration::new();
    let octopi = json!({"rules": [{
        "operations": ["CREATE"], "apiGroups": ["acme.dev"], "apiVersions": ["*"], "resources": ["octopi"],
    }]});
    team(&mut configuration, "labels", json!({"match": octopi}));
    let guessed = dump(&folder, std::slice::from_ref(&octopus));
    let (code, results) = json_of(&configuration, &[path(&guessed)]);
    assert_eq!(code, Some(2), "{results:#}");
    let unread = results["unread"][0].as_str().expect("a reason");
    for words in [
        "Octopus.acme.dev",
        "rules, which name octopi",
        "CustomResourceDefinition",
    ] {
        assert!(unread.contains(words), "{words}: {unread}");
    }
    let defined = dump(&folder, &[octopus, definition]);
    let (code, results) = json_of(&configuration, &[path(&defined)]);
    assert_eq!((code, &results["unread"]), (Some(1), &json!([])));
    assert_eq!(said(&results, "paul"), ["labels validate fail"]);
}
