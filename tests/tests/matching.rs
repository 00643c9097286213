//! Which plugins are asked: labels, conditions, users and exceptions, tested with the binary.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{self, Server, metric};

/// Returns a `match` for Pods, with further keys from `more`.
fn pods(more: Value) -> Value {
    let mut matching = json!({
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    });
    merge(&mut matching, more);
    matching
}

fn merge(into: &mut Value, more: Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

/// Adds a plugin that denies Pods with the image `bad`.
fn add_denier(configuration: &mut Configuration, name: &str, matching: Value, more: Value) {
    let mut keys = json!({
        "settings": {"forbid": {"/spec/containers/*/image": "bad"}},
        "match": pods(matching),
    });
    merge(&mut keys, more);
    configuration.plugin(name, &guests::build("actor"), keys);
}

fn bad_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["image"] = json!("bad");
    pod
}

fn labelled(mut object: Value, labels: Value) -> Value {
    object["metadata"]["labels"] = labels;
    object
}

async fn validated(server: &Server, review: &Value) -> Checked {
    let answer = server.validate(review).await;
    answer.checked(Endpoint::Validate, review)
}

/// Returns the plugins that deny a review.
async fn deniers(server: &Server, review: Review) -> Vec<String> {
    let checked = validated(server, &review.build()).await;
    let annotations = checked.audit_annotations.keys();
    annotations
        .filter_map(|key| Some(key.strip_suffix(".denied")?.to_owned()))
        .collect()
}

fn message(checked: &Checked) -> String {
    let status = checked.status.as_ref().expect("a refusal has a status");
    status["message"].as_str().unwrap_or_default().to_owned()
}

fn by(review: Review, username: &str, groups: &[&str]) -> Value {
    let mut review = review.build();
    review["request"]["userInfo"] = json!({"username": username, "groups": groups});
    review
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_conditions_and_users_select_plugins() {
    let mut configuration = Configuration::new();
    let selector = json!({"objectSelector": {"matchLabels": {"tier": "front"}}});
    add_denier(&mut configuration, "labels", selector, json!({}));
    let condition =
        |expression: &str| json!({"matchConditions": [{"name": "only", "expression": expression}]});
    add_denier(
        &mut configuration,
        "created",
        condition("request.operation == 'CREATE' && object.metadata.name != 'spared'"),
        json!({}),
    );
    add_denier(
        &mut configuration,
        "users",
        json!({"excludeUsers": ["jane"], "excludeGroups": ["system:nodes"]}),
        json!({}),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;

    let plain = || bad_pod("web");
    let front = || labelled(bad_pod("web"), json!({"tier": "front"}));
    let asked = deniers(&server, Review::create(plain())).await;
    assert_eq!(
        asked,
        ["created"],
        "jane is excluded, and there is no label"
    );
    let asked = deniers(&server, Review::create(front())).await;
    assert_eq!(asked, ["created", "labels"]);
    // The update removes the label, but the old object still has it.
    let asked = deniers(&server, Review::update(plain(), front())).await;
    assert_eq!(asked, ["labels"]);
    let asked = deniers(&server, Review::create(bad_pod("spared"))).await;
    assert!(asked.is_empty(), "{asked:?}");

    for (username, groups, expected) in [
        ("john", vec!["dev"], true),
        ("jane", vec!["dev"], false),
        ("kubelet", vec!["system:nodes"], false),
    ] {
        let review = by(Review::create(plain()), username, &groups);
        let denied = validated(&server, &review).await.audit_annotations;
        assert_eq!(denied.contains_key("users.denied"), expected, "{username}");
    }

    let status = server.plugin_status("created").await;
    assert_eq!(status["match"]["matchConditions"][0]["name"], "only");
    let status = server.plugin_status("labels").await;
    assert_eq!(status["match"]["objectSelector"], "tier=front");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn matches_mutator_against_result_of_earlier_ones() {
    let mut configuration = Configuration::new();
    let actor = guests::build("actor");
    let sets = |label: &str| json!({"set": {format!("/metadata/labels/{label}"): "yes"}});
    configuration.plugin(
        "first",
        &actor,
        json!({"settings": sets("first"), "match": pods(json!({}))}),
    );
    let selector = json!({"objectSelector": {"matchLabels": {"first": "yes"}}});
    configuration.plugin(
        "by-label",
        &actor,
        json!({"settings": sets("by-label"), "match": pods(selector)}),
    );
    let condition = json!({"matchConditions": [
        {"name": "labelled", "expression": "object.metadata.labels[?'by-label'].orValue('') == 'yes'"},
    ]});
    configuration.plugin(
        "by-condition",
        &actor,
        json!({"settings": sets("by-condition"), "match": pods(condition)}),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let review = Review::create(pod("web")).build();
    let checked = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    let labels = &checked.patched_object.expect("the object is changed")["metadata"]["labels"];
    for label in ["first", "by-label", "by-condition"] {
        assert_eq!(labels[label], "yes", "{labels}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_condition_follows_failure_policy() {
    let mut configuration = Configuration::new();
    let failing = || {
        json!({"matchConditions": [
            {"name": "replicas", "expression": "object.spec.replicas > 3"},
        ]})
    };
    let outvoted = json!({"matchConditions": [
        {"name": "replicas", "expression": "object.spec.replicas > 3"},
        {"name": "never", "expression": "false"},
    ]});
    add_denier(
        &mut configuration,
        "closed",
        failing(),
        json!({"failurePolicy": "Fail"}),
    );
    add_denier(
        &mut configuration,
        "open",
        failing(),
        json!({"failurePolicy": "Ignore"}),
    );
    add_denier(
        &mut configuration,
        "outvoted",
        outvoted,
        json!({"failurePolicy": "Fail"}),
    );
    add_denier(
        &mut configuration,
        "warns",
        failing(),
        json!({"mode": "warn"}),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;

    let review = Review::create(bad_pod("web")).build();
    let checked = validated(&server, &review).await;
    assert!(!checked.allowed);
    assert_eq!(
        message(&checked),
        "closed failed (match-condition, failurePolicy Fail): the match condition `replicas` failed: \
         no such key: replicas"
    );
    assert_eq!(checked.status.as_ref().expect("it is refused")["code"], 500);
    let annotations = &checked.audit_annotations;
    assert_eq!(annotations["closed.fault"], "match-condition");
    assert_eq!(annotations["open.failed-open"], "match-condition");
    assert_eq!(annotations["warns.fault"], "match-condition");
    assert!(
        !annotations.keys().any(|key| key.starts_with("outvoted")),
        "{annotations:?}"
    );

    // A webhook for a single plugin: here the failure policy is Ignore.
    let answer = server.post("/validate/open", &review).await;
    assert!(answer.checked(Endpoint::Validate, &review).allowed);
    let page = server.metrics().await;
    for (plugin, policy) in [("closed", "Fail"), ("open", "Ignore")] {
        let labels = [
            ("plugin", plugin),
            ("fault", "match-condition"),
            ("failure_policy", policy),
        ];
        assert!(
            metric(&page, "tollgate_plugin_faults_total", &labels) >= 1.0,
            "{plugin}"
        );
    }
}

/// The most expensive object for an expression that looks harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn condition_cannot_hang_host() {
    let mut configuration = Configuration::new();
    let pairs = json!({"matchConditions": [{
        "name": "pairs",
        "expression": "object.spec.list.all(a, object.spec.list.all(b, a + b >= 0))",
    }]});
    add_denier(&mut configuration, "pairs", pairs, json!({}));
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut object = bad_pod("web");
    object["spec"]["list"] = (0..200_000).collect();
    let review = Review::create(object).build();
    let answer = server.validate(&review).await;
    println!("{:?} for 200,000 × 200,000", answer.took);
    assert!(answer.took < Duration::from_secs(8), "{:?}", answer.took);
    let checked = answer.checked(Endpoint::Validate, &review);
    assert!(
        message(&checked).contains("`pairs` costs too much"),
        "{}",
        message(&checked)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exception_expires_while_server_runs() {
    /// Time from the second start of the server, which is a fast one, to the end of the exception.
    const LASTS: Duration = Duration::from_secs(20);
    let cache = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let cached = || {
        let configuration = Configuration::new();
        configuration.with(
            "engine.cacheDirectory",
            cache.path().to_string_lossy().as_ref(),
        )
    };
    let mut configuration = cached();
    add_denier(&mut configuration, "images", json!({}), json!({}));
    drop(Server::start(configuration).stop());

    let began = Instant::now();
    let until = until(LASTS);
    let mut configuration = cached();
    let exceptions = json!([
        {"namespaces": ["default"], "names": ["legacy"], "until": until, "reason": "moves in December"},
        {"users": ["jane"], "until": "2020-01-01", "reason": "long ago"},
    ]);
    add_denier(
        &mut configuration,
        "images",
        json!({}),
        json!({"exceptions": exceptions}),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;

    let legacy = Review::create(bad_pod("legacy")).build();
    let checked = validated(&server, &legacy).await;
    assert!(checked.allowed, "{:?}", checked.status);
    assert_eq!(
        checked.audit_annotations["images.excepted"],
        format!("moves in December (until {until})")
    );
    assert!(
        !checked.audit_annotations.contains_key("plugins"),
        "an excepted plugin must not be called"
    );
    let other = Review::create(bad_pod("other")).build();
    let checked = validated(&server, &other).await;
    assert!(
        !checked.allowed,
        "the exception is about another Pod, and that of jane has expired"
    );

    let states = |status: &Value| {
        let exceptions = status["exceptions"].as_array().cloned().unwrap_or_default();
        let states = exceptions
            .iter()
            .map(|one| one["state"].as_str().unwrap_or_default().to_owned());
        states.collect::<Vec<String>>()
    };
    let status = server.plugin_status("images").await;
    assert_eq!(states(&status), ["active", "expired"]);
    assert_eq!(status["exceptions"][0]["reason"], "moves in December");
    assert_eq!(status["exceptions"][0]["names"], json!(["legacy"]));
    let uses = |index: usize| &status["exceptions"][index]["uses"];
    assert!(uses(0)["count"].as_u64() >= Some(1), "{status}");
    assert!(
        uses(0)["last"].is_string() && uses(0)["since"].is_string(),
        "{status}"
    );
    assert_eq!((&uses(1)["count"], uses(1).get("last")), (&json!(0), None));

    tokio::time::sleep((LASTS + Duration::from_secs(1)).saturating_sub(began.elapsed())).await;
    let checked = validated(&server, &legacy).await;
    assert!(!checked.allowed, "the exception has ended");
    assert!(!checked.audit_annotations.contains_key("images.excepted"));
    let status = server.plugin_status("images").await;
    assert_eq!(states(&status), ["expired", "expired"]);
    let labels = [("plugin", "images"), ("phase", "validate")];
    let counted = metric(
        &server.metrics().await,
        "tollgate_plugin_excepted_total",
        &labels,
    );
    assert!((counted - 1.0).abs() < f64::EPSILON, "{counted}");
}

/// Returns a time in RFC 3339, `from_now` in the future.
fn until(from_now: Duration) -> String {
    let output = std::process::Command::new("date")
        .args([
            "--utc",
            "--date",
            &format!("{} seconds", from_now.as_secs()),
        ])
        .arg("+%Y-%m-%dT%H:%M:%SZ")
        .output()
        .expect("date(1) is there");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_plugin_is_not_loaded_or_called() {
    let mut configuration = Configuration::new();
    add_denier(
        &mut configuration,
        "off",
        json!({}),
        json!({"enabled": false}),
    );
    let nowhere = std::path::Path::new("/nowhere/absent.wasm");
    configuration.plugin("absent", nowhere, json!({"enabled": false}));
    let server = Server::start(configuration);
    assert_eq!(server.plugin_status("off").await["state"], "disabled");
    assert_eq!(server.plugin_status("absent").await["state"], "disabled");
    let review = Review::create(bad_pod("web")).build();
    assert!(validated(&server, &review).await.allowed);
    let answer = server.post("/validate/off", &review).await;
    assert!(answer.checked(Endpoint::Validate, &review).allowed);
}

/// A user's object decides how much a condition costs: the pairs of a list of 250 use half of the allowed steps. The
/// test checks the order of the answers, which does not depend on the speed of the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_conditions_do_not_delay_other_reviews() {
    const COSTLY: usize = 12;
    const OTHERS: usize = 5;
    let pairs = "object.spec.list.all(x, object.spec.list.all(y, x <= y || x >= y))";
    let mut configuration = Configuration::new();
    let condition = json!({"matchConditions": [{"name": "pairs", "expression": pairs}]});
    add_denier(&mut configuration, "pairs", condition, json!({}));
    add_denier(&mut configuration, "other", json!({}), json!({}));
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut object = bad_pod("many");
    object["spec"]["list"] = (0..250).map(Value::from).collect();
    let costly = Review::create(object).build();
    let other = Review::create(bad_pod("one")).build();
    // The verdict is the same, whichever way the host evaluates the condition.
    assert!(!validated(&server, &costly).await.allowed);

    let answered = Arc::new(AtomicUsize::new(0));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..COSTLY {
        let request = server
            .default_client()
            .post(server.url("/validate/pairs?timeout=30s"))
            .header("content-type", "application/json")
            .body(as_sent(&costly));
        let answered = answered.clone();
        calls.spawn(async move {
            let answer = request.send().await?.json::<Value>().await;
            answered.fetch_add(1, Ordering::SeqCst);
            answer
        });
    }
    server::until("a costly review is answered", async || {
        answered.load(Ordering::SeqCst) > 0
    })
    .await;
    let before = answered.load(Ordering::SeqCst);
    for _ in 0..OTHERS {
        let answer = server.post("/validate/other", &other).await;
        assert!(!answer.checked(Endpoint::Validate, &other).allowed);
        let probe = server.get_admin("/livez").await;
        assert_eq!(probe.status, 200);
    }
    let meanwhile = answered.load(Ordering::SeqCst) - before;
    println!("{meanwhile} of {COSTLY} costly reviews were answered before {OTHERS} others");
    for answer in calls.join_all().await {
        let answer = answer.expect("every review is answered");
        let said = answer["response"]["status"]["message"].to_string();
        assert!(said.contains("bad is not wanted"), "{said}");
    }
    assert!(
        meanwhile <= COSTLY / 2,
        "{meanwhile} of {COSTLY} came first"
    );
}
