//! `record` and `tollgate replay`: recordings hold what the server was asked, and a replay names exactly what a change
//! would do.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod, secret};
use tollgate_tests::server::{Server, metric, until};
use tollgate_tests::{binary, guests, wat};

#[path = "replay/figures.rs"]
mod figures;

const MARKER: &str = "marker-7c41d9";

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn tollgate(arguments: &[&str]) -> Ran {
    let output = Command::new(binary::tollgate())
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    println!(
        "tollgate {}: {:?}\n{}",
        arguments.join(" "),
        ran.code,
        ran.stderr
    );
    ran
}

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of the tests are text")
}

/// Replays and returns the exit code with the results.
fn replay(recording: &TempDir, config: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let mut arguments = vec![
        "replay",
        path(recording.path()),
        "--config",
        path(config),
        "--json",
    ];
    arguments.extend(more);
    let ran = tollgate(&arguments);
    let json = serde_json::from_str(&ran.stdout);
    (
        ran.code,
        json.unwrap_or_else(|error| panic!("{error}: {}{}", ran.stdout, ran.stderr)),
    )
}

/// Creates a configuration with one policy that changes and denies by its settings.
fn configuration(settings: Value) -> Configuration {
    let mut configuration = Configuration::new();
    let everything = json!({"rules": [{
        "operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    }]});
    let more = json!({"settings": settings, "match": everything});
    configuration.plugin("policy", &guests::build("actor"), more);
    configuration
}

fn settings() -> Value {
    json!({
        "set": {"/metadata/labels/checked": "yes"},
        "forbid": {"/metadata/labels/tier": "forbidden"},
    })
}

fn tier_pod(index: usize) -> Value {
    let mut object = pod(&format!("web-{index}"));
    let tier = match index % 10 {
        3 | 7 => "cache",
        5 => "forbidden",
        _ => "front",
    };
    object["metadata"]["labels"]["tier"] = json!(tier);
    object
}

fn marked_secret(value: &str) -> Value {
    let marker = format!("{MARKER}-{value}");
    let applied = json!({"kind": "Secret", "apiVersion": "v1", "stringData": {"token": marker}});
    let mut object = secret(
        "s",
        &STANDARD.encode(&marker),
        &marker,
        &applied.to_string(),
    );
    object["metadata"]["labels"]["copy"] = json!(marker);
    object
}

/// Serves pods and Secrets, and returns the recording.
async fn recorded(pods: usize) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let configuration =
        configuration(settings()).with("record", json!({"directory": folder.path()}));
    let server = Server::start(configuration);
    for index in 0..pods {
        let review = Review::create(tier_pod(index)).uid(&format!("uid-{index:03}"));
        let review = review.build();
        let answer = server.mutate(&review).await;
        assert!(answer.checked(Endpoint::Mutate, &review).allowed);
        let review = Review::create(tier_pod(index)).uid(&format!("uid-v-{index:03}"));
        let review = review.build();
        let answer = server.validate(&review).await;
        let checked = answer.checked(Endpoint::Validate, &review);
        assert_eq!(checked.allowed, index % 10 != 5);
    }
    for review in [
        Review::create(marked_secret("one")).build(),
        Review::update(marked_secret("two"), marked_secret("one")).build(),
    ] {
        assert_eq!(server.mutate(&review).await.status, 200);
        assert_eq!(server.validate(&review).await.status, 200);
    }
    until("all reviews are in the recording", async || {
        let page = server.metrics().await;
        metric(&page, "tollgate_recorded_reviews_total", &[]) >= (2 * pods + 4) as f64
    })
    .await;
    let page = server.metrics().await;
    assert_eq!(metric(&page, "tollgate_recording_dropped_total", &[]), 0.0);
    assert!(metric(&page, "tollgate_recording_written_bytes_total", &[]) > 0.0);
    assert!(server.stop().status.success());
    folder
}

/// Returns all lines of a recording.
fn decompressed(recording: &Path) -> String {
    let mut text = Vec::new();
    for entry in std::fs::read_dir(recording).expect("the recording is there") {
        let file = std::fs::File::open(entry.expect("an entry").path()).expect("a segment");
        zstd::stream::copy_decode(file, &mut text).expect("whole frames");
    }
    String::from_utf8(text).expect("lines of text")
}

fn uids(results: &Value, category: &str) -> BTreeSet<String> {
    let differences = results["differences"].as_array().into_iter().flatten();
    differences
        .filter(|difference| difference["category"] == category)
        .map(|difference| difference["uid"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn expected_uids(prefix: &str, pods: usize, is: impl Fn(usize) -> bool) -> BTreeSet<String> {
    let indices = (0..pods).filter(|index| is(*index));
    indices.map(|index| format!("{prefix}{index:03}")).collect()
}

fn is_cache(index: usize) -> bool {
    matches!(index % 10, 3 | 7)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_of_the_same_configuration_finds_nothing_twice() {
    let recording = recorded(20).await;
    let same = configuration(settings());
    let config = same.write();
    let (code, results) = replay(&recording, &config, &[]);
    assert_eq!(
        (code, &results["differences"]),
        (Some(0), &json!([])),
        "{results:#}"
    );
    assert_eq!(results["reviews"], 44);
    assert!(results["fuel"]["policy"]["new"]["fuel"].as_u64() > Some(0));
    assert_eq!(
        results["fuel"]["policy"]["new"],
        results["fuel"]["policy"]["old"]
    );
    let again = |jobs: &str, against: &str| {
        let arguments = [
            "replay",
            path(recording.path()),
            "--config",
            path(&config),
            "--json",
            "--jobs",
            jobs,
            "--against",
            against,
        ];
        tollgate(&arguments).stdout
    };
    assert_eq!(again("1", "recorded"), again("4", "recorded"));
    let (code, results) = replay(&recording, &config, &["--against", path(&config)]);
    assert_eq!(
        (code, &results["differences"]),
        (Some(0), &json!([])),
        "{results:#}"
    );
    let shown = tollgate(&["recording", "show", path(recording.path())]);
    assert!(
        shown
            .stdout
            .contains("44 reviews: 22 at /mutate, 22 at /validate"),
        "{}",
        shown.stdout
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_of_secrets_is_in_no_byte_of_a_recording() {
    let recording = recorded(1).await;
    let text = decompressed(recording.path());
    assert!(
        text.contains("\"Secret\"") && text.contains("redacted-"),
        "{text}"
    );
    let encoded = STANDARD.encode(MARKER);
    let stem = &encoded[..encoded.len() - 4];
    assert!(!text.contains(MARKER) && !text.contains(stem), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_exactly_the_reviews_that_a_change_denies() {
    const PODS: usize = 60;
    let recording = recorded(PODS).await;
    let mut changed = settings();
    changed["forbid"] = json!({"/metadata/labels/tier": "cache"});
    let new = configuration(changed.clone());
    let config = new.write();
    let old = configuration(settings());
    let old_config = old.write();
    let denied = expected_uids("uid-v-", PODS, is_cache);
    let allowed = expected_uids("uid-v-", PODS, |index| index % 10 == 5);
    for against in ["recorded", path(&old_config)] {
        let (code, results) = replay(&recording, &config, &["--against", against]);
        assert_eq!(code, Some(1));
        assert_eq!(uids(&results, "denied"), denied);
        assert_eq!(uids(&results, "allowed"), allowed);
        assert_eq!(results["summary"]["patched"], 0);
        assert_eq!(
            results["groups"]["denied"]["plugin"]["policy"],
            denied.len()
        );
        assert_eq!(
            results["groups"]["denied"]["rule"]["policy rules[0]"],
            denied.len()
        );
        assert_eq!(
            results["groups"]["denied"]["namespace"]["default"],
            denied.len()
        );
        assert_eq!(results["groups"]["denied"]["user"]["jane"], denied.len());
    }
    let (code, _) = replay(&recording, &config, &["--fail-on", "faulted"]);
    assert_eq!(code, Some(0));

    // The texts for people, CI and a pull request.
    let folder = new.folder();
    let (junit, markdown) = (folder.join("results.xml"), folder.join("comment.md"));
    let ran = tollgate(&[
        "replay",
        path(recording.path()),
        "--config",
        path(&config),
        "--junit",
        path(&junit),
        "--markdown",
        path(&markdown),
        "--examples",
        "2",
    ]);
    assert_eq!(ran.code, Some(1));
    for part in [
        "12 newly denied",
        "by plugin: policy 12",
        "#8 CREATE Pod default/web-3 by jane (validate)",
    ] {
        assert!(
            ran.stdout.contains(part),
            "{part} is not in\n{}",
            ran.stdout
        );
    }
    let junit = std::fs::read_to_string(junit).expect("it was written");
    assert!(junit.contains("failures=\"2\""), "{junit}");
    let markdown = std::fs::read_to_string(markdown).expect("it was written");
    assert!(
        markdown.contains("| newly denied | 12 | `policy` 12 |"),
        "{markdown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suite_of_differences_fails_before_the_fix_and_passes_after_it() {
    let recording = recorded(10).await;
    let new = configuration(json!({
        "set": {"/metadata/labels/checked": "no"},
        "forbid": {"/metadata/labels/tier": "cache"},
    }));
    let old = configuration(settings());
    let old_config = old.write();
    let suite = new.folder().join("found.test.yaml");
    for (against, cases) in [
        ("recorded", "denied"),
        (path(&old_config), "denied,patched"),
    ] {
        let config = new.write();
        let ran = tollgate(&[
            "replay",
            path(recording.path()),
            "--config",
            path(&config),
            "--against",
            against,
            "--write-suite",
            path(&suite),
            "--cases",
            cases,
        ]);
        assert_eq!(ran.code, Some(1), "{}", ran.stdout);
        assert!(
            ran.stdout.contains("newly denied") && ran.stdout.contains("patched differently"),
            "{}",
            ran.stdout
        );
        let before = tollgate(&["test", path(&suite)]);
        assert_eq!(before.code, Some(1), "{}", before.stdout);
        assert!(!before.stdout.contains("0 failed"), "{}", before.stdout);
        std::fs::copy(&old_config, &config).expect("the fix can be written");
        let after = tollgate(&["test", path(&suite)]);
        assert_eq!(after.code, Some(0), "{}", after.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finds_other_patches_and_new_faults() {
    const PODS: usize = 5;
    let recording = recorded(PODS).await;
    let mut changed = settings();
    changed["set"] = json!({"/metadata/labels/checked": "no"});
    let new = configuration(changed);
    let (code, results) = replay(&recording, &new.write(), &[]);
    assert_eq!(code, Some(1));
    let mutated = expected_uids("uid-", PODS, |_| true);
    assert!(
        uids(&results, "patched").is_superset(&mutated),
        "{results:#}"
    );
    assert_eq!(results["summary"]["denied"], 0);
    let first = &results["differences"][0];
    assert_eq!(first["old"]["fields"]["/metadata/labels/checked"], "yes");
    assert_eq!(first["new"]["fields"]["/metadata/labels/checked"], "no");

    let trap =
        "(func (export \"tollgate:admission/validating@0.1.0#validate\") (result i32) unreachable)";
    let mut failing = Configuration::new();
    let more = json!({"failurePolicy": "Ignore"});
    failing.plugin_of("policy", &wat::plugin("validator", trap), more);
    let (code, results) = replay(&recording, &failing.write(), &[]);
    assert_eq!(code, Some(1));
    assert_eq!(results["summary"]["faulted"], PODS + 2, "{results:#}");
    let differences = results["differences"].as_array().expect("a list");
    let mut faulted = differences
        .iter()
        .filter(|difference| difference["category"] == "faulted");
    assert!(faulted.all(|difference| difference["new"]["faults"][0]["fault"] == "trap"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_what_does_not_fit_and_answers_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let record = json!({"directory": folder.path(), "maxQueue": "64Ki", "namespaces": ["default"]});
    let server = Server::start(configuration(settings()).with("record", record));
    let mut large = tier_pod(1);
    large["metadata"]["annotations"] = json!({"padding": "x".repeat(100_000)});
    let large = Review::create(large).build();
    for _ in 0..5 {
        assert_eq!(server.validate(&large).await.status, 200);
    }
    let mut elsewhere = Review::create(tier_pod(1)).build();
    elsewhere["request"]["namespace"] = json!("other");
    assert_eq!(server.validate(&elsewhere).await.status, 200);
    let small = Review::create(tier_pod(1)).build();
    assert_eq!(server.validate(&small).await.status, 200);
    until("the small review is in the recording", async || {
        metric(
            &server.metrics().await,
            "tollgate_recorded_reviews_total",
            &[],
        ) >= 1.0
    })
    .await;
    let page = server.metrics().await;
    let dropped = |reason| {
        metric(
            &page,
            "tollgate_recording_dropped_total",
            &[("reason", reason)],
        )
    };
    assert_eq!(
        (dropped("queue"), dropped("unreadable"), dropped("write")),
        (5.0, 0.0, 0.0)
    );
    assert_eq!(metric(&page, "tollgate_recorded_reviews_total", &[]), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_of_a_killed_server_can_be_replayed() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let config = configuration(settings()).with("record", json!({"directory": folder.path()}));
    let server = Server::start(config);
    for round in 1..=2 {
        let review = Review::create(tier_pod(round)).build();
        assert_eq!(server.validate(&review).await.status, 200);
        until("the review is in the recording", async || {
            metric(
                &server.metrics().await,
                "tollgate_recorded_reviews_total",
                &[],
            ) >= round as f64
        })
        .await;
    }
    let config = server.kill();
    let segments = std::fs::read_dir(folder.path()).expect("the recording is there");
    let segment = segments
        .last()
        .expect("one segment")
        .expect("an entry")
        .path();
    let bytes = std::fs::read(&segment).expect("the segment is there");
    std::fs::write(&segment, &bytes[..bytes.len() - 60]).expect("it can be cut");
    let (code, results) = replay(&folder, &config.path(), &[]);
    assert_eq!(
        (code, &results["reviews"]),
        (Some(0), &json!(1)),
        "{results:#}"
    );
    assert_eq!(results["damages"][0]["torn"], true);
}

#[test]
fn audit_log_becomes_an_approximate_recording() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let log = folder.path().join("audit.log");
    let events = (0..10).map(|index| {
        let event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse",
            "auditID": format!("uid-v-{index:03}"), "stage": "ResponseComplete", "verb": "create",
            "requestURI": "/api/v1/namespaces/default/pods",
            "user": {"username": "jane", "groups": ["system:authenticated"]},
            "objectRef": {"resource": "pods", "namespace": "default", "apiVersion": "v1"},
            "responseStatus": {"code": 201}, "requestObject": tier_pod(index),
            "requestReceivedTimestamp": "2026-03-01T10:00:00.123456Z",
        });
        event.to_string()
    });
    let text: Vec<String> = events.collect();
    std::fs::write(&log, text.join("\n")).expect("the log can be written");
    let to = tempfile::tempdir().expect("a temporary folder can be made");
    let ran = tollgate(&["recording", "import", path(&log), "--to", path(to.path())]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(ran.stdout.contains("10 reviews") && ran.stderr.contains("approximate"));
    let new = configuration(json!({"forbid": {"/metadata/labels/tier": "cache"}}));
    let (code, results) = replay(&to, &new.write(), &[]);
    assert_eq!((code, &results["approximate"]), (Some(1), &json!(10)));
    assert_eq!(
        uids(&results, "denied"),
        expected_uids("uid-v-", 10, is_cache)
    );
}
