//! The content of a Secret does not leak: not through a plugin's output, not through its faults, in any mode, under any
//! failure policy, at any log level.
//!
//! The suite sends Secrets with a marker to the plugin `leaker`. The suite then searches all output for the marker:
//! logs, metrics, status, messages, warnings, audit annotations and exports. The search finds the marker unchanged, in base64,
//! reversed, in capitals, and any ten characters of these forms. Only a patch may hold the marker, because it goes to
//! the same place as the object.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::collector::Collector;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, as_sent, config_map, secret};
use tollgate_tests::server::{Answer, Server, Start};

/// The marker. It has only letters and digits, so that it is also valid in the key of a label.
const MARKER: &str = "Xq7HunterTwoZebra42KestrelVw9";
/// Length of the parts to search for. It is long enough that none occurs by chance.
const WINDOW: usize = 10;

const MODES: [&str; 3] = ["enforce", "warn", "audit"];
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];

/// Ways to leak that `leaker` has as a validator and as a mutator.
const WAYS: &[&str] = &[
    "say",
    "panic",
    "abort",
    "abort-file",
    "unreachable",
    "malformed-pointer",
    "malformed-escape",
    "malformed-pattern",
    "loop",
    "memory",
    "recursion",
    "flood",
    "too-much-output",
    "deny-message",
    "deny-cause",
    "deny-reason",
    "deny-cause-reason",
    "deny-field",
    "deny-field-below",
];

/// Ways to leak that it has as a mutator only.
const MUTATIONS: &[&str] = &[
    "copy",
    "copy-as-key",
    "copy-as-deep-key",
    "copy-to-data",
    "copy-operation",
    "bad-path",
    "bad-parent",
    "bad-pointer",
    "bad-value",
    "bad-test",
    "bad-copy",
    "rename",
    "wrong-type",
    "kind",
    "lossy-object",
    "not-an-object",
    "not-json",
    "not-json-merge",
    "duplicate-key",
    "number",
];

/// The mutations that are not faults. The copy is in the patch and must arrive in the object. (If a name occurs twice,
/// the last one counts.)
const COPIES: &[&str] = &["copy-as-deep-key", "copy-to-data"];

/// Low enough that a loop ends soon, and high enough to output everything first.
const LIMITS: &str =
    r#"{"fuel": "20M", "cpuTime": "5s", "timeout": "10s", "output": "4Mi", "logLines": 1000}"#;
const LITTLE_CPU: &str = r#"{"fuel": "1000G", "cpuTime": "40ms", "timeout": "10s"}"#;
const LITTLE_TIME: &str = r#"{"fuel": "1000G", "cpuTime": "5s", "timeout": "40ms"}"#;

/// Searches for the marker in a text, in any form.
struct Search {
    windows: Vec<String>,
}

// === impl Search ===

impl Search {
    fn new() -> Self {
        let encoded = STANDARD.encode(MARKER);
        let reversed = |text: &str| text.chars().rev().collect::<String>();
        let forms = [
            MARKER.to_owned(),
            MARKER.to_uppercase(),
            MARKER.to_lowercase(),
            reversed(MARKER),
            encoded.clone(),
            encoded.to_uppercase(),
            reversed(&encoded),
            STANDARD.encode(&encoded),
            STANDARD.encode(reversed(MARKER)),
        ];
        let windows = forms.iter().flat_map(|form| {
            let last = form.len().saturating_sub(WINDOW);
            (0..=last).map(|start| form[start..start + WINDOW].to_owned())
        });
        Self {
            windows: windows.collect(),
        }
    }

    fn find(&self, text: &str) -> Option<&str> {
        self.windows
            .iter()
            .map(String::as_str)
            .find(|window| text.contains(*window))
    }

    /// Searches all names and texts of a document.
    fn find_in(&self, value: &Value) -> Option<&str> {
        match value {
            Value::String(text) => self.find(text),
            Value::Array(elements) => elements.iter().find_map(|element| self.find_in(element)),
            Value::Object(members) => members
                .iter()
                .find_map(|(name, value)| self.find(name).or_else(|| self.find_in(value))),
            _ => None,
        }
    }
}

fn the_secret(way: &str) -> Value {
    let encoded = STANDARD.encode(MARKER);
    let last_applied =
        json!({"kind": "Secret", "stringData": {"token": MARKER}, "data": {"password": encoded}});
    let mut secret = secret("loot", &encoded, MARKER, &last_applied.to_string());
    secret["metadata"]["labels"]["leak"] = json!(way);
    secret
}

fn reviews(way: &str) -> [Value; 3] {
    let before = {
        let mut before = the_secret(way);
        before["data"]["other"] = json!(STANDARD.encode("nothing special"));
        before
    };
    [
        Review::create(the_secret(way)).build(),
        Review::update(the_secret(way), before).build(),
        Review::delete(the_secret(way)).build(),
    ]
}

fn leaker_of(mode: &str, failure_policy: &str) -> String {
    format!("leaker-{mode}-{}", failure_policy.to_lowercase())
}

fn configuration() -> Configuration {
    let leaker = guests::build("leaker");
    let limits =
        |text: &str| serde_json::from_str::<Value>(text).expect("the limits above are JSON");
    let mut configuration = Configuration::new();
    for mode in MODES {
        for failure_policy in FAILURE_POLICIES {
            let keys =
                json!({"mode": mode, "failurePolicy": failure_policy, "limits": limits(LIMITS)});
            configuration.plugin(&leaker_of(mode, failure_policy), &leaker, keys);
        }
    }
    configuration.plugin(
        "leaker-little-cpu",
        &leaker,
        json!({"limits": limits(LITTLE_CPU)}),
    );
    configuration.plugin(
        "leaker-little-time",
        &leaker,
        json!({"limits": limits(LITTLE_TIME)}),
    );
    configuration
}

/// Returns everything in an answer except its patch.
fn said(answer: &Answer) -> Value {
    let mut body = match serde_json::from_slice::<Value>(&answer.body) {
        Ok(body) => body,
        // An HTTP error in plain text.
        Err(_) => return Value::String(answer.text()),
    };
    if let Some(response) = body["response"].as_object_mut() {
        response.remove("patch");
    }
    body
}

async fn pages(server: &Server) -> Vec<(&'static str, String)> {
    let mut pages = Vec::new();
    for path in ["/metrics", "/plugins", "/readyz?verbose"] {
        pages.push((path, server.get_admin(path).await.text()));
    }
    pages
}

/// Stops the server and searches all of its output.
async fn search_server(server: Server, search: &Search, found: &mut Vec<String>) -> Vec<String> {
    // Audit mode runs after the answers.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (path, page) in pages(&server).await {
        if let Some(window) = search.find(&page) {
            found.push(format!("{path} has `{window}`"));
        }
    }
    let stopped = server.stop();
    assert!(
        stopped.status.success(),
        "tollgate ended with {}",
        stopped.status
    );
    for line in &stopped.logs {
        if let Some(window) = search.find(line) {
            found.push(format!("the log has `{window}`: {line}"));
        }
    }
    stopped.logs
}

fn trace() -> Start {
    Start::default().argument("--log").argument("trace")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_never_leaks_in_any_mode_fault_or_policy() {
    let search = Search::new();
    let collector = Collector::start();
    let export =
        |share: &str| json!({"endpoint": collector.endpoint(), share: 100, "maxQueue": "64Mi"});
    let exports = json!({"traces": export("share"), "decisions": export("allowedShare")});
    let server = trace().start(configuration().with("telemetry", exports));
    server.assert_all_loaded().await;
    let mut found = Vec::new();
    let mut patches_with_the_marker = 0;
    let mut answers = 0;
    let mut faults = std::collections::BTreeMap::<String, usize>::new();
    let mut plugins: Vec<String> = MODES
        .iter()
        .flat_map(|mode| {
            FAILURE_POLICIES
                .iter()
                .map(move |failure_policy| leaker_of(mode, failure_policy))
        })
        .collect();
    plugins.extend([
        "leaker-little-cpu".to_owned(),
        "leaker-little-time".to_owned(),
    ]);
    for plugin in &plugins {
        for endpoint in [Endpoint::Validate, Endpoint::Mutate] {
            let (path, mutations) = match endpoint {
                Endpoint::Validate => (format!("/validate/{plugin}"), &[][..]),
                Endpoint::Mutate => (format!("/mutate/{plugin}"), MUTATIONS),
            };
            let ways: &[&str] = if plugin.contains("little") {
                &["loop"]
            } else {
                WAYS
            };
            let mutations = if plugin.contains("little") {
                &[]
            } else {
                mutations
            };
            for way in ways.iter().chain(mutations) {
                for review in reviews(way) {
                    let answer = server.post(&path, &review).await;
                    answers += 1;
                    if let Some(window) = search.find_in(&said(&answer)) {
                        let answer = said(&answer);
                        found.push(format!(
                            "{path}, {way}, {}: `{window}` in {answer}",
                            review["request"]["operation"]
                        ));
                    }
                    let checked = answer.checked(endpoint, &review);
                    for (key, value) in &checked.audit_annotations {
                        if key.ends_with(".fault") || key.ends_with(".failed-open") {
                            *faults.entry(value.clone()).or_default() += 1;
                        }
                    }
                    if search
                        .find_in(&Value::Array(checked.patch.clone()))
                        .is_some()
                    {
                        assert!(COPIES.contains(way), "{way} must not end in a patch");
                        patches_with_the_marker += 1;
                    }
                }
            }
        }
    }
    search_server(server, &search, &mut found).await;
    let mut exported = 0;
    for request in collector.requests() {
        exported += request.body.len();
        if let Some(window) = search.find(&String::from_utf8_lossy(&request.body)) {
            found.push(format!("{} has `{window}`", request.path));
        }
    }
    let (spans, records) = (collector.spans().len(), collector.records().len());
    println!("{spans} spans and {records} decisions in {exported} bytes");
    assert!(
        spans >= answers && records == answers,
        "not everything was exported"
    );
    println!(
        "{answers} answers; faults: {faults:?}; {patches_with_the_marker} patches hold the marker, as they should"
    );
    assert!(
        found.is_empty(),
        "found {} times:\n{}",
        found.len(),
        shown(&found)
    );
    // A patch is meant for the object. If it does not arrive, the test has tried nothing.
    let copies = COPIES.len() * 2 * FAILURE_POLICIES.len();
    assert_eq!(
        patches_with_the_marker, copies,
        "each patch that copies must arrive on CREATE and on UPDATE, in mode enforce"
    );
    for fault in [
        "out-of-fuel",
        "cpu-deadline",
        "deadline",
        "memory",
        "trap",
        "output-too-large",
        "contract-violation",
        "bad-patch",
        "lossy-object",
    ] {
        assert!(
            faults.contains_key(fault),
            "no call ended in the fault {fault}, so the test does not cover it: {faults:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_does_not_leak_through_later_plugins() {
    let search = Search::new();
    let leaker = guests::build("leaker");
    let mut found = Vec::new();
    for mode in MODES {
        let mut configuration = Configuration::new();
        configuration.plugin("first", &leaker, json!({}));
        // This plugin reads only a label. A label of a Secret is not secret, unless a previous plugin put content
        // there.
        configuration.plugin(
            "second",
            &leaker,
            json!({"mode": mode, "settings": {"reads": "/metadata/labels/stolen"}}),
        );
        configuration.plugin("third", &leaker, json!({"mode": mode}));
        let server = trace().start(configuration);
        server.assert_all_loaded().await;
        let those_of_several = ["uncopy-key", "key-then-replace"];
        for way in WAYS.iter().chain(MUTATIONS).chain(&those_of_several) {
            for review in reviews(way) {
                for path in ["/mutate", "/validate"] {
                    let answer = server.post(path, &review).await;
                    if let Some(window) = search.find_in(&said(&answer)) {
                        found.push(format!(
                            "{path}, {way}, {mode}: `{window}` in {}",
                            said(&answer)
                        ));
                    }
                }
            }
        }
        search_server(server, &search, &mut found).await;
    }
    assert!(
        found.is_empty(),
        "found {} times:\n{}",
        found.len(),
        shown(&found)
    );
}

/// Mutate and validate are two calls without shared state, and a copy operation does not read. Content that a plugin
/// has not read must therefore not move to a place where reading it goes unnoticed.
#[tokio::test]
async fn refuses_to_move_content_to_unprotected_fields() {
    let leaker = guests::build("leaker");
    let mut configuration = Configuration::new();
    for (name, reads) in [("unread", "/metadata/name"), ("read", "")] {
        configuration.plugin(name, &leaker, json!({"settings": {"reads": reads}}));
    }
    let server = Start::default().start(configuration);
    server.assert_all_loaded().await;
    for (plugin, way) in [("unread", "copy-operation"), ("read", "copy")] {
        let review = Review::create(the_secret(way)).build();
        let answer = server.post(&format!("/mutate/{plugin}"), &review).await;
        let checked = answer.checked(Endpoint::Mutate, &review);
        assert!(!checked.allowed, "{way}");
        let said = checked.status.expect("a denial has a status").to_string();
        assert!(said.contains("(bad-patch"), "{way}: {said}");
        assert!(said.contains("stringData and annotations"), "{way}: {said}");
    }
}

/// A plugin that reads nothing can still guess. A patch that fails on a wrong guess reveals whether the guess is right,
/// once per call. Such a patch therefore counts as a read, and must not change anything outside of the content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guess_at_content_has_no_visible_result() {
    let leaker = guests::build("leaker");
    let values = [STANDARD.encode("1234"), STANDARD.encode("4321")];
    let names = ["password".to_owned(), "passwords".to_owned()];
    let mut configuration = Configuration::new();
    for (what, guesses) in [("value", &values), ("name", &names)] {
        for (verdict, guess) in ["right", "wrong"].into_iter().zip(guesses) {
            let settings = json!({"reads": "/metadata/name", "guess": guess});
            let keys = json!({"settings": settings});
            configuration.plugin(&format!("{what}-{verdict}"), &leaker, keys);
        }
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut shown = Vec::new();
    for (what, way) in [
        ("value", "test-value"),
        ("value", "test-all"),
        ("name", "replace-name"),
        ("name", "remove-name"),
        ("name", "move-name"),
        ("name", "copy-name"),
        ("name", "look-for-name"),
        ("name", "select-name"),
        ("name", "whole-object"),
    ] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"password": values[0]},
            "metadata": {"name": "loot", "namespace": "default", "labels": {"leak": way}},
        });
        let review = Review::create(secret).build();
        for verdict in ["right", "wrong"] {
            let answer = server
                .post(&format!("/mutate/{what}-{verdict}"), &review)
                .await;
            let checked = answer.checked(Endpoint::Mutate, &review);
            let patch = json!(checked.patch).to_string();
            let status = json!(checked.status).to_string();
            if patch.contains("/metadata/labels") {
                shown.push(format!(
                    "{way}, {verdict}: the object shows the result of the guess: {patch}"
                ));
            }
            for guess in [&values[1], &names[1]] {
                if status.contains(guess.as_str()) {
                    shown.push(format!(
                        "{way}, {verdict}: the fault shows the guess: {status}"
                    ));
                }
            }
        }
    }
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

/// Changes that reveal nothing of the content stay allowed. Otherwise no plugin could label a Secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_may_label_secret_without_reading_content() {
    let mut configuration = Configuration::new();
    let settings = json!({
        "set": {"/metadata/labels/team": "payments", "/metadata/annotations/checked": "yes"}
    });
    let rules = json!({"rules": [{
        "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
    }]});
    let keys = json!({"settings": settings, "match": rules});
    configuration.plugin("labels", &guests::build("actor"), keys);
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"password": "MTIzNA=="},
        "metadata": {"name": "loot", "namespace": "default"},
    });
    let review = Review::create(secret).build();
    let answer = server.mutate(&review).await;
    let checked = answer.checked(Endpoint::Mutate, &review);
    assert!(checked.allowed, "{:?}", checked.status);
    assert_eq!(checked.patch.len(), 2, "{:?}", checked.patch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_does_not_leak_from_unreadable_review() {
    let search = Search::new();
    let server = trace().start(configuration().with("requests.maxBody", "128Ki"));
    server.assert_all_loaded().await;
    let mut found = Vec::new();
    let whole = as_sent(&Review::create(the_secret("say")).build());
    let text = String::from_utf8(whole.clone()).expect("JSON is text");
    let mut deep = the_secret("say");
    let mut many_levels = json!(MARKER);
    for _ in 0..1000 {
        many_levels = json!({ MARKER: many_levels });
    }
    deep["nested"] = many_levels;
    let mut large = the_secret("say");
    large["data"]["filler"] = json!(STANDARD.encode(MARKER.repeat(10_000)));
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("cut off", whole[..whole.len() - 40].to_vec()),
        (
            "cut off within the marker",
            whole[..text.find(MARKER).expect("the text has the marker") + 15].to_vec(),
        ),
        (
            "not UTF-8",
            [
                text.replace(MARKER, &format!("{MARKER}\u{1}")).as_bytes(),
                b"\xff",
            ]
            .concat(),
        ),
        (
            "a text instead of an object",
            text.replace(
                "\"request\":{",
                &format!("\"request\":\"{MARKER}\",\"x\":{{"),
            )
            .into_bytes(),
        ),
        (
            "another version",
            text.replace("admission.k8s.io/v1", &format!("admission.k8s.io/{MARKER}"))
                .into_bytes(),
        ),
        (
            "another kind",
            text.replace("AdmissionReview", MARKER).into_bytes(),
        ),
        (
            "another operation",
            text.replace("CREATE", MARKER).into_bytes(),
        ),
        (
            "a word that is no JSON",
            text.replace(&format!("\"{MARKER}\""), MARKER).into_bytes(),
        ),
        ("nested too deep", as_sent(&Review::create(deep).build())),
        ("too large", as_sent(&Review::create(large).build())),
        ("no JSON at all", MARKER.repeat(100).into_bytes()),
    ];
    for path in ["/mutate", "/validate"] {
        for (what, body) in &bodies {
            let answer = server
                .post_bytes(server.default_client(), path, body.clone())
                .await;
            println!(
                "{path}, {what}: HTTP {}: {}",
                answer.status,
                shortened(&answer.text())
            );
            if let Some(window) = search.find_in(&said(&answer)) {
                found.push(format!(
                    "{path}, {what}: `{window}` in HTTP {}: {}",
                    answer.status,
                    shortened(&answer.text())
                ));
            }
        }
    }
    search_server(server, &search, &mut found).await;
    assert!(
        found.is_empty(),
        "found {} times:\n{}",
        found.len(),
        shown(&found)
    );
}

/// The three tests above would also pass with a plugin that outputs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_of_other_objects_is_passed_on() {
    let search = Search::new();
    let server = trace().start(configuration());
    server.assert_all_loaded().await;
    let mut object = config_map("public", serde_json::Map::new());
    object["data"] = json!({"password": MARKER});
    let mut silent = Vec::new();
    for way in [
        "say",
        "panic",
        "abort",
        "abort-file",
        "malformed-pointer",
        "malformed-escape",
        "deny-message",
        "deny-cause",
        "deny-field",
    ] {
        object["metadata"]["labels"] = json!({ "leak": way });
        let review = Review::create(object.clone()).build();
        let answer = server
            .post(
                &format!("/validate/{}", leaker_of("enforce", "Fail")),
                &review,
            )
            .await;
        let checked = answer.checked(Endpoint::Validate, &review);
        let found = match way {
            "say" => {
                assert!(
                    checked
                        .warnings
                        .iter()
                        .any(|warning| search.find(warning).is_some()),
                    "no warning has the marker"
                );
                let annotations = json!(checked.audit_annotations);
                assert!(
                    search.find_in(&annotations).is_some(),
                    "no annotation has the marker: {annotations}"
                );
                true
            }
            // The host hides this itself, because a malformed pointer may be a value.
            "malformed-escape" => continue,
            _ => checked
                .status
                .as_ref()
                .is_some_and(|status| search.find_in(status).is_some()),
        };
        if !found {
            silent.push(way);
        }
    }
    let stopped = server.stop();
    assert!(
        stopped.logs.iter().any(|line| search.find(line).is_some()),
        "no log line has the marker"
    );
    assert!(
        silent.is_empty(),
        "these outputs of the plugin are missing: {silent:?}"
    );
}

fn shown(found: &[String]) -> String {
    let lines: Vec<&str> = found.iter().take(40).map(|line| shortened(line)).collect();
    lines.join("\n")
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(500)]
}
