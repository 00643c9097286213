//! Traces and decisions arrive at a collector: the tree of spans, the attributes, who may name a trace, and what becomes
//! of reviews when the collector is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::collector::{Collector, Span};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::authority::Authority;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::{binary, guests, hostile};

const TOKEN: &str = "Bearer of-kube-apiserver";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// The attributes that may be exported, as the guide lists them.
fn documented() -> BTreeSet<String> {
    let guide = binary::workspace().join("docs/guides/observing.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let words = guide.split('`').filter(|word| {
        let is_attribute = word.starts_with("tollgate.review.");
        is_attribute || word.starts_with("tollgate.plugin.")
    });
    words.map(str::to_owned).collect()
}

fn assert_documented(attributes: &BTreeMap<String, Value>, documented: &BTreeSet<String>) {
    for key in attributes.keys() {
        assert!(documented.contains(key), "{key} is not in the guide");
    }
}

/// A configuration that exports to a collector. Two plugins allow and change nothing, the third one denies.
fn configuration(telemetry: Value) -> Configuration {
    let mut configuration = Configuration::new().with("telemetry", telemetry);
    configuration.plugin_of("first", &hostile::harmless(), matching());
    configuration.plugin_of("second", &hostile::harmless(), matching());
    let mut guard = matching();
    guard["settings"] = json!({"deny": "not on Fridays"});
    configuration.plugin("guard", &guests::build("actor"), guard);
    configuration
}

fn matching() -> Value {
    json!({"match": {"rules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]}})
}

fn with_token(configuration: Configuration) -> Configuration {
    let file = configuration.folder().join("tokens");
    std::fs::write(&file, TOKEN.trim_start_matches("Bearer ")).expect("written");
    configuration.with("authentication", json!({"bearer": {"file": file}}))
}

/// Sends a review with headers. Returns the status.
async fn send(server: &Server, path: &str, uid: &str, headers: &[(&str, &str)]) -> u16 {
    let review = Review::create(pod("web")).uid(uid).build();
    let mut request = server
        .default_client()
        .post(server.url(path))
        .header("content-type", "application/json")
        .body(as_sent(&review));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.expect("an answer");
    answer.status().as_u16()
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name}: {spans:#?}"))
}

fn ratio_zero(collector: &Collector) -> Value {
    json!({"traces": {"endpoint": collector.endpoint(), "share": 0}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_has_span_under_the_callers_and_calls_have_spans_under_it() {
    let collector = Collector::start();
    let server = Server::start(with_token(configuration(ratio_zero(&collector))));
    server.assert_all_loaded().await;
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let authorization = ("authorization", TOKEN);
    // Neither is traced: no caller wants it, and the share is 0.
    assert_eq!(
        send(&server, "/validate", "u-1", &[authorization]).await,
        200
    );
    let headers = [authorization, ("traceparent", &*unsampled)];
    assert_eq!(send(&server, "/validate", "u-2", &headers).await, 200);
    let headers = [authorization, ("traceparent", &*sampled)];
    assert_eq!(send(&server, "/validate", "u-3", &headers).await, 200);
    let spans = collector
        .spans_when("four spans", |spans| spans.len() >= 4)
        .await;
    assert_eq!(spans.len(), 4, "{spans:#?}");
    let review = named(&spans, "review validate");
    assert_eq!((&*review.parent, review.kind), (PARENT, 2));
    assert_eq!(review.attributes["tollgate.review.uid"], "u-3");
    assert_eq!(review.attributes["tollgate.review.name"], "web");
    assert_eq!(review.attributes["tollgate.review.user"], "jane");
    assert_eq!(review.attributes["tollgate.review.verdict"], "denied");
    assert_eq!(review.status, 0, "a denial is no failure");
    let documented = documented();
    for span in &spans {
        assert_eq!(span.trace_id, TRACE);
        assert_eq!(span.span_id.len(), 16);
        assert_eq!(span.flags & 1, 1);
        assert!(
            review.began <= span.began && span.ended <= review.ended,
            "{spans:#?}"
        );
        assert_documented(&span.attributes, &documented);
    }
    for plugin in ["first", "second", "guard"] {
        let call = named(&spans, &format!("validate {plugin}"));
        assert_eq!((&call.parent, call.kind), (&review.span_id, 1));
        assert_eq!(call.attributes["tollgate.plugin.name"], plugin);
        assert!(call.attributes["tollgate.plugin.fuel"].as_i64() > Some(0));
        let digest = call.attributes["tollgate.plugin.digest"].as_str();
        assert!(digest.is_some_and(|digest| digest.starts_with("sha256:")));
    }
    let guard = named(&spans, "validate guard");
    assert_eq!(guard.attributes["tollgate.plugin.ended"], "denied");
    let all = format!("{spans:?}");
    assert!(
        !all.contains("Fridays"),
        "a plugin's text is exported: {all}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_unauthenticated_caller_is_ignored() {
    let collector = Collector::start();
    let traces = json!({"traces": {"endpoint": collector.endpoint(), "share": 100}});
    let server = Server::start(configuration(traces));
    for (uid, flags) in [("u-1", "01"), ("u-2", "00")] {
        let parent = format!("00-{TRACE}-{PARENT}-{flags}");
        let headers = [("traceparent", &*parent)];
        assert_eq!(send(&server, "/mutate", uid, &headers).await, 200);
    }
    let is_review = |span: &&Span| span.name == "review mutate";
    let spans = collector
        .spans_when("two reviews", |spans| {
            spans.iter().filter(is_review).count() == 2
        })
        .await;
    let reviews: Vec<&Span> = spans.iter().filter(is_review).collect();
    for review in &reviews {
        assert_ne!(review.trace_id, TRACE);
        assert_eq!(review.parent, "");
    }
    assert_ne!(reviews[0].trace_id, reviews[1].trace_id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_the_answer_belong_to_the_trace() {
    let collector = Collector::start();
    let traces = json!({"traces": {"endpoint": collector.endpoint(), "share": 100}});
    let mut configuration = Configuration::new().with("telemetry", traces);
    let mut audited = matching();
    audited["mode"] = json!("audit");
    configuration.plugin_of("audited", &hostile::harmless(), audited);
    let server = Server::start(configuration);
    assert_eq!(send(&server, "/validate", "u-1", &[]).await, 200);
    let spans = collector
        .spans_when("two spans", |spans| spans.len() >= 2)
        .await;
    let (review, call) = (
        named(&spans, "review validate"),
        named(&spans, "validate audited"),
    );
    assert_eq!(
        (&call.trace_id, &call.parent),
        (&review.trace_id, &review.span_id)
    );
    assert_eq!(call.attributes["tollgate.plugin.mode"], "audit");
    assert!(server.stop().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_are_exported_as_records_over_tls_with_credentials() {
    let authority = Authority::new("collector");
    let collector = Collector::with_tls(&authority.server(&["127.0.0.1"]));
    let configuration = configuration(Value::Null);
    let folder = configuration.folder().to_owned();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let ca = write("collector-ca.crt", authority.certificate());
    let header = json!({"name": "Authorization", "file": write("collector-token", "Bearer one\n")});
    let telemetry = json!({"decisions": {
        "endpoint": collector.endpoint(), "ca": ca, "headers": [header], "allowedShare": 0,
    }});
    let server = Server::start(configuration.with("telemetry", telemetry));
    // The first plugin allows, and all three deny together.
    assert_eq!(
        send(&server, "/validate/first", "u-allowed", &[]).await,
        200
    );
    assert_eq!(send(&server, "/validate", "u-denied", &[]).await, 200);
    let records = collector
        .records_when("a record", |records| !records.is_empty())
        .await;
    let [record] = &records[..] else {
        panic!("one record: {records:#?}");
    };
    assert_eq!((&*record.event, record.severity), ("tollgate.decision", 13));
    assert_documented(&record.attributes, &documented());
    for (key, value) in [
        ("uid", "u-denied"),
        ("verdict", "denied"),
        ("namespace", "default"),
        ("name", "web"),
        ("user", "jane"),
        ("resource", "pods"),
    ] {
        assert_eq!(record.attributes[&format!("tollgate.review.{key}")], value);
    }
    // The body is the decision as `/decisions` shows it.
    let shown = server.get_admin("/decisions/u-denied").await.json();
    let plugins = &shown["decisions"][0]["plugins"];
    assert_eq!(record.body["plugins"][2]["name"], "guard");
    assert_eq!(record.body["plugins"][2]["denial"], plugins[2]["denial"]);
    let requests = collector.requests();
    assert_eq!(requests[0].headers["authorization"], "Bearer one");
    assert_eq!(
        requests[0].headers["content-type"],
        "application/x-protobuf"
    );
    // A new token takes effect without a restart, and what waits at the end is sent.
    write("collector-token", "Bearer two\n");
    assert_eq!(send(&server, "/validate", "u-last", &[]).await, 200);
    assert!(server.stop().status.success());
    let last = collector.requests().pop().expect("a request");
    assert_eq!(last.headers["authorization"], "Bearer two");
    assert_eq!(
        collector.records()[1].attributes["tollgate.review.uid"],
        "u-last"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_leave_out_names_where_the_log_does() {
    let collector = Collector::start();
    let endpoint = collector.endpoint();
    let telemetry = json!({
        "traces": {"endpoint": endpoint, "share": 100},
        "decisions": {"endpoint": endpoint, "allowedShare": 100},
    });
    let configuration = configuration(telemetry).with("log", json!({"identities": false}));
    let server = Server::start(configuration);
    for path in ["/validate", "/mutate"] {
        assert_eq!(send(&server, path, "u-1", &[]).await, 200);
    }
    let records = collector
        .records_when("two records", |records| records.len() == 2)
        .await;
    let spans = collector
        .spans_when("two reviews", |spans| {
            let reviews = spans.iter().filter(|span| span.name.starts_with("review"));
            reviews.count() == 2
        })
        .await;
    for record in &records {
        let traces = spans.iter().map(|span| &span.trace_id);
        assert!(traces.clone().any(|trace| *trace == record.trace_id));
    }
    let all = format!("{records:?}{spans:?}");
    for name in ["jane", "\"web\"", "\"default\""] {
        assert!(!all.contains(name), "{name} is in {all}");
    }
    assert!(all.contains("u-1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_that_never_answers_costs_no_request() {
    /// Longer than the whole test may take. A request that waits for the collector takes as long.
    const TIMEOUT: Duration = Duration::from_secs(60);
    // The system accepts connections, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", silent.local_addr().expect("bound"));
    let export = |share: &str| json!({"endpoint": endpoint, share: 100, "timeout": format!("{}s", TIMEOUT.as_secs()), "maxQueue": "64Ki"});
    let telemetry = json!({"traces": export("share"), "decisions": export("allowedShare")});
    let server = Server::start(configuration(telemetry));
    let began = Instant::now();
    for number in 0..300 {
        let uid = format!("u-{number}");
        assert_eq!(send(&server, "/mutate", &uid, &[]).await, 200);
        assert_eq!(send(&server, "/validate", &uid, &[]).await, 200);
    }
    let page = server.metrics().await;
    for signal in ["traces", "decisions"] {
        let labels = [("signal", signal), ("reason", "queue")];
        let dropped = metric(&page, "tollgate_telemetry_dropped_total", &labels);
        assert!(dropped > 100.0, "{signal}: {dropped} dropped");
        let labels = [("signal", signal)];
        let exported = metric(&page, "tollgate_telemetry_exported_total", &labels);
        assert_eq!(exported, 0.0);
    }
    let stopped = server.stop();
    assert!(stopped.status.success(), "{}", stopped.status);
    assert!(
        began.elapsed() < TIMEOUT,
        "something waited for the collector"
    );
    let said = "stopping before all traces and decisions are exported";
    assert!(stopped.logs.iter().any(|line| line.contains(said)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_that_is_gone_is_reported_once() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", gone.local_addr().expect("bound"));
    drop(gone);
    let traces = json!({"traces": {"endpoint": endpoint, "share": 100}});
    let server = Server::start(configuration(traces));
    assert_eq!(send(&server, "/validate", "u-1", &[]).await, 200);
    tollgate_tests::server::until("spans are dropped", async || {
        let labels = [("signal", "traces"), ("reason", "failed")];
        let page = server.metrics().await;
        metric(&page, "tollgate_telemetry_dropped_total", &labels) >= 4.0
    })
    .await;
    let stopped = server.stop();
    let said: Vec<&String> = stopped
        .logs
        .iter()
        .filter(|line| line.contains("cannot export traces"))
        .collect();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains(&endpoint), "{said:#?}");
}

#[test]
fn check_reports_files_of_collectors() {
    let configuration = Configuration::new().with("allowEmpty", true);
    let token = configuration.folder().join("token");
    let configuration = configuration.with(
        "telemetry",
        json!({"traces": {
            "endpoint": "http://collector:4318",
            "headers": [{"name": "Authorization", "file": token}],
        }}),
    );
    let check = || {
        let mut command = Command::new(binary::tollgate());
        command
            .args(["check", "--config"])
            .arg(configuration.write());
        let output = command.output().expect("tollgate can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = check();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("telemetry.traces: NOT USABLE"), "{text}");
    assert!(text.contains("token (headers)"), "{text}");
    std::fs::write(&token, "Bearer x").expect("written");
    let (code, text) = check();
    assert_eq!(code, Some(0), "{text}");
    let line = "telemetry.traces: ok, http://collector:4318/v1/traces";
    assert!(text.contains(line), "{text}");
}
