//! Rollouts: a new version of a plugin takes effect step by step, is promoted by its gates, and goes back by itself. The
//! requests that arrive meanwhile do not fail.

#[path = "rollout/unloaded.rs"]
mod unloaded;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, Start, metric, until};
use tollgate_tests::{binary, cli, guests};

/// A namespace that belongs to the shares of the rollouts of `policy` from 28 % on, and one from 94 % on. A unit test of
/// the configuration pins the hash.
const FIRST: &str = "shop";
const LAST: &str = "default";

/// A load on a server: each request must be allowed.
struct Load {
    stops: Arc<AtomicBool>,
    counts: Arc<Counts>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
}

// === impl Load ===

impl Load {
    /// Sends reviews without a pause, from several connections, for both phases.
    fn on(server: &Server, namespaces: &[&str]) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        for (index, namespace) in namespaces.iter().cycle().take(4).enumerate() {
            let endpoint = ["mutate", "validate"][index / 2 % 2];
            let (url, client) = (
                server.url(&format!("/{endpoint}")),
                server.default_client().clone(),
            );
            let body = as_sent(&review(namespace, "web"));
            let (stops, counts) = (stops.clone(), counts.clone());
            tasks.spawn(async move {
                while !stops.load(Ordering::Relaxed) {
                    let request = client.post(&url).header("content-type", "application/json");
                    let answer = match request.body(body.clone()).send().await {
                        Ok(answer) => answer.text().await.unwrap_or_default(),
                        Err(error) => error.to_string(),
                    };
                    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
                    if answer["response"]["allowed"] == true {
                        counts.answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        counts.failed.fetch_add(1, Ordering::Relaxed);
                        println!("failed: {answer}");
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        Self {
            stops,
            counts,
            tasks,
        }
    }

    /// Ends the load, and returns how many requests were answered. None may have failed.
    async fn end(mut self) -> u64 {
        self.stops.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        let answered = self.counts.answered.load(Ordering::Relaxed);
        let failed = self.counts.failed.load(Ordering::Relaxed);
        println!("requests answered: {answered}, failed: {failed}");
        assert_eq!(failed, 0, "requests failed");
        assert!(answered > 0);
        answered
    }
}

fn review(namespace: &str, name: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["labels"] = json!({});
    let mut review = Review::create(object).build();
    review["request"]["namespace"] = json!(namespace);
    review
}

async fn mutated(server: &Server, namespace: &str) -> Checked {
    let review = review(namespace, "web");
    server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review)
}

/// Returns which version sets the label.
async fn version(server: &Server, namespace: &str) -> Value {
    let checked = mutated(server, namespace).await;
    assert!(checked.allowed, "{:?}", checked.status);
    checked.patched_object.map_or(Value::Null, |object| {
        object["metadata"]["labels"]["version"].clone()
    })
}

async fn validated(server: &Server, namespace: &str, name: &str) -> Checked {
    let review = review(namespace, name);
    server
        .validate(&review)
        .await
        .checked(Endpoint::Validate, &review)
}

fn settings(version: &str) -> Value {
    json!({
        "set": {"/metadata/labels/version": version},
        "forbid": {"/metadata/name": "forbidden"},
    })
}

/// A version that gives an invalid answer to each request to mutate.
fn faulty() -> Value {
    json!({"set": {"/metadata/name": "another"}})
}

fn configuration() -> Configuration {
    let configuration = Configuration::new();
    let cache = configuration.folder().join("artifacts");
    configuration.with("registries", json!({"cacheDirectory": cache}))
}

/// Adds a plugin whose new version has these settings.
fn rolled_out(configuration: &mut Configuration, new: &Value, mut rollout: Value) {
    let actor = guests::build("actor");
    rollout["to"] = json!({"source": format!("file:{}", actor.display()), "settings": new});
    let more = json!({"settings": settings("one"), "rollout": rollout});
    configuration.plugin("policy", &actor, more);
}

async fn rollout(server: &Server) -> Value {
    let page = server.get_admin("/rollouts").await.json();
    page["rollouts"][0].clone()
}

async fn until_rollout(server: &Server, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    until(what, async || is(&rollout(server).await)).await;
    rollout(server).await
}

async fn until_loaded(server: &Server) {
    until_rollout(server, "the new version is loaded", |rollout| {
        rollout["blocked"].is_null() && rollout["phase"] != "waiting" && !rollout["phase"].is_null()
    })
    .await;
}

fn tollgate(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = cli::command(arguments);
    let ran = cli::run(command.args(["--admin", &format!("http://{}", server.admin_address())]));
    let said = ran.said();
    assert!(!said.contains("panicked"), "{said}");
    (ran.code, said)
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let text = std::fs::read(path).expect("the configuration is there");
    let mut root = serde_json::from_slice(&text).expect("the suites write it as JSON");
    change(&mut root);
    let new = path.with_extension("new");
    std::fs::write(&new, root.to_string()).expect("the folder can be written to");
    std::fs::rename(&new, path).expect("a file can be renamed");
}

fn changes(rollout: &Value) -> Vec<String> {
    let history = rollout["history"].as_array().into_iter().flatten();
    let changes = history.map(|change| {
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("phase"), change["step"], text("by"))
    });
    changes.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_promote_new_version_under_load() {
    let mut configuration = configuration();
    let plan = json!({
        "steps": [
            {"mode": "shadow", "for": "1s"},
            {"mode": "warn", "share": 50, "for": "1s"},
            {"mode": "enforce", "share": 50, "for": "1s"},
            {"mode": "enforce", "for": "1s"},
        ],
        "gates": {"minReviews": 5},
    });
    rolled_out(&mut configuration, &settings("two"), plan);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    let load = Load::on(&server, &[FIRST, LAST]);
    let mut seen = Vec::new();
    let promoted = until_rollout(&server, "the rollout is promoted", |rollout| {
        rollout["phase"] == "promoted" || rollout["phase"] == "rolled-back"
    });
    tokio::pin!(promoted);
    let promoted = loop {
        tokio::select! {
            promoted = &mut promoted => break promoted,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                // Whatever version answers: what both deny is denied.
                for namespace in [FIRST, LAST] {
                    assert!(!validated(&server, namespace, "forbidden").await.allowed);
                    seen.push(version(&server, namespace).await);
                }
            }
        }
    };
    assert_eq!(promoted["phase"], "promoted", "{promoted:#}");
    assert_eq!(
        changes(&promoted),
        [
            "running 1 configuration",
            "running 2 gates",
            "running 3 gates",
            "running 4 gates",
            "promoted 4 gates",
        ]
    );
    for namespace in [FIRST, LAST] {
        assert_eq!(version(&server, namespace).await, "two");
    }
    load.end().await;
    seen.dedup();
    assert_eq!(seen.first(), Some(&json!("one")));
    assert!(seen.iter().all(|label| label == "one" || label == "two"));
    let metrics = server.metrics().await;
    let policy = ("plugin", "policy");
    for (name, labels, value) in [
        (
            "tollgate_rollout_phase",
            vec![policy, ("phase", "promoted")],
            1.0,
        ),
        ("tollgate_rollout_step", vec![policy], 4.0),
        (
            "tollgate_rollout_changes_total",
            vec![policy, ("phase", "promoted"), ("by", "gates")],
            1.0,
        ),
        (
            "tollgate_rollout_reviews_total",
            vec![policy, ("result", "fault")],
            0.0,
        ),
        (
            "tollgate_rollout_reviews_total",
            vec![policy, ("result", "new-denial")],
            0.0,
        ),
    ] {
        assert_eq!(
            metric(&metrics, name, &labels).to_bits(),
            f64::to_bits(value),
            "{name} {labels:?}"
        );
    }
}

/// A step that only warns, and one that enforces: in both, the faults of the new version decide no request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_roll_back_within_the_window_and_fail_no_request() {
    for mode in ["warn", "enforce"] {
        let mut configuration = configuration();
        let plan = json!({
            "steps": [
                {"mode": mode, "namespaces": [FIRST], "for": "10m"},
                {"mode": "enforce", "for": "10m"},
            ],
        });
        rolled_out(&mut configuration, &faulty(), plan);
        let server = Server::start(configuration);
        until_loaded(&server).await;
        let load = Load::on(&server, &[FIRST, LAST]);
        let back = until_rollout(&server, "the rollout is rolled back", |rollout| {
            rollout["phase"] == "rolled-back"
        })
        .await;
        assert_eq!(
            changes(&back),
            ["running 1 configuration", "rolled-back 1 gates"]
        );
        let reason = back["history"][1]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("fault(s) of the new version"), "{reason}");
        for namespace in [FIRST, LAST] {
            assert_eq!(version(&server, namespace).await, "one");
        }
        load.end().await;
        let metrics = server.metrics().await;
        let labels = [
            ("plugin", "policy"),
            ("phase", "rolled-back"),
            ("by", "gates"),
        ];
        let count = metric(&metrics, "tollgate_rollout_changes_total", &labels);
        assert_eq!(count.to_bits(), 1_f64.to_bits());
        let logs = server.logs();
        assert!(
            logs.iter()
                .any(|line| line.contains("rolled back; the old version answers")),
            "{logs:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_the_shadow_step_roll_back() {
    let mut configuration = configuration();
    let plan = json!({"steps": [
        {"mode": "shadow", "for": "10m"},
        {"mode": "enforce", "for": "10m"},
    ]});
    rolled_out(&mut configuration, &faulty(), plan);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    let load = Load::on(&server, &[FIRST]);
    until_rollout(&server, "the rollout is rolled back", |rollout| {
        rollout["phase"] == "rolled-back"
    })
    .await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_resumes_and_administrator_decides() {
    let mut configuration = configuration();
    let plan = json!({"steps": [
        {"mode": "warn", "for": "10h"},
        {"mode": "enforce", "namespaces": [FIRST], "for": "10h"},
        {"mode": "enforce", "for": "10h"},
    ]});
    rolled_out(&mut configuration, &settings("two"), plan);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    assert_eq!(version(&server, FIRST).await, "one");
    let (code, said) = tollgate(&server, &["rollout", "promote", "policy"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("> 2. enforce in 1 named namespace(s)"),
        "{said}"
    );
    assert_eq!(version(&server, FIRST).await, "two");
    assert_eq!(version(&server, LAST).await, "one");
    // The decision names the version, and says why.
    let (_, said) = tollgate(&server, &["explain", "705ab4f5"]);
    assert!(
        said.contains("new version: step 2 of 3, enforce in 1 named namespace(s)"),
        "{said}"
    );
    assert!(
        said.contains("old version: outside the share of step 2 of 3"),
        "{said}"
    );

    let before = rollout(&server).await;
    let server = Start::default().as_it_is().start(server.kill());
    until_loaded(&server).await;
    let after = rollout(&server).await;
    for key in [
        "identity",
        "step",
        "phase",
        "run",
        "startedAt",
        "stepSince",
        "history",
    ] {
        assert_eq!(after[key], before[key], "{key}");
    }
    assert_eq!(version(&server, FIRST).await, "two");
    assert_eq!(version(&server, LAST).await, "one");

    let (code, said) = tollgate(&server, &["rollout", "rollback", "policy"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("policy: rolled-back"), "{said}");
    assert_eq!(version(&server, FIRST).await, "one");
    let (code, said) = tollgate(&server, &["rollout", "rollback", "policy"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("the old version already answers everything"),
        "{said}"
    );
    let (code, said) = tollgate(&server, &["rollout", "rollback", "other"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("the plugin has no rollout"), "{said}");
    let (code, said) = tollgate(&server, &["rollout", "status", "polciy"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("expected one of policy"), "{said}");

    // A rollback survives a restart, too.
    let server = Start::default().as_it_is().start(server.kill());
    until_loaded(&server).await;
    assert_eq!(rollout(&server).await["phase"], "rolled-back");
    assert_eq!(version(&server, FIRST).await, "one");
    let (code, _) = tollgate(&server, &["rollout", "promote", "policy"]);
    assert_eq!(code, Some(0));
    let again = rollout(&server).await;
    assert_eq!(
        (&again["phase"], &again["step"], &again["run"]),
        (&json!("running"), &json!(1), &json!(2))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warning_step_shows_new_denials_and_stops_at_too_many() {
    let mut configuration = configuration();
    let mut stricter = settings("two");
    stricter["forbid"]["/metadata/name"] = json!("web");
    let plan = json!({
        "steps": [
            {"mode": "warn", "for": "10h"},
            {"mode": "enforce", "for": "10h"},
        ],
        "gates": {"newDenials": 2},
        "onFailure": "stop",
    });
    rolled_out(&mut configuration, &stricter, plan);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    for _ in 0..3 {
        let checked = validated(&server, FIRST, "web").await;
        assert!(checked.allowed, "{:?}", checked.status);
        assert_eq!(checked.warnings.len(), 1, "{:?}", checked.warnings);
        assert!(
            checked.warnings[0].starts_with("policy.shadow: "),
            "{:?}",
            checked.warnings
        );
        // The old version denies on.
        assert!(!validated(&server, FIRST, "forbidden").await.allowed);
    }
    let stopped = until_rollout(&server, "the rollout stops", |rollout| {
        rollout["phase"] == "stopped"
    })
    .await;
    assert_eq!(
        stopped["history"][1]["reason"],
        "3 new denial(s), at most 2 allowed (gates.newDenials)"
    );
    assert!(
        stopped["waits"]
            .as_str()
            .is_some_and(|waits| waits.contains("tollgate rollout"))
    );
    let (_, said) = tollgate(&server, &["rollout", "promote", "policy"]);
    assert!(said.contains("policy: running"), "{said}");
    assert!(!validated(&server, FIRST, "web").await.allowed);
    assert!(validated(&server, FIRST, "forbidden").await.allowed);
    until_rollout(&server, "the denial counts", |rollout| {
        rollout["observed"]["newDenials"] == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_is_rolled_out_without_another_version() {
    let mut configuration = configuration();
    let plan = json!({
        "steps": [
            {"mode": "enforce", "namespaces": [FIRST], "for": "10h"},
            {"mode": "enforce", "for": "10h"},
        ],
        "gates": {"newDenials": 100},
    });
    let more = json!({"settings": settings("one"), "mode": "warn", "rollout": plan});
    configuration.plugin("policy", &guests::build("actor"), more);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    assert!(!validated(&server, FIRST, "forbidden").await.allowed);
    let checked = validated(&server, LAST, "forbidden").await;
    assert!(
        checked.allowed && checked.warnings.len() == 1,
        "{:?}",
        checked.warnings
    );
    let (_, said) = tollgate(&server, &["rollout", "rollback", "policy"]);
    assert!(said.contains("rolled-back"), "{said}");
    assert!(validated(&server, FIRST, "forbidden").await.allowed);
}

/// The way to the end: once promoted, the entry gets the new version and loses its rollout. The old version does not
/// answer in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_version_answers_while_the_entry_is_changed_to_it() {
    let mut configuration = configuration();
    let plan = json!({"steps": [{"mode": "enforce", "for": "10h"}]});
    rolled_out(&mut configuration, &settings("two"), plan);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    let (code, said) = tollgate(&server, &["rollout", "promote", "policy"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(version(&server, LAST).await, "two");
    let path = server.configuration().path();
    edit(&path, |root| {
        let entry = &mut root["plugins"][0];
        // Other limits, so that the code has to be prepared anew.
        entry["limits"] = json!({"fuel": "77M"});
        entry["settings"] = settings("two");
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("rollout");
        }
    });
    until("the rollout is over", async || {
        assert_eq!(version(&server, LAST).await, "two");
        rollout(&server).await.is_null()
    })
    .await;
    assert_eq!(version(&server, LAST).await, "two");
    let (code, said) = tollgate(&server, &["rollout", "status"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("no rollout"), "{said}");
}

#[test]
fn check_explains_the_plan() {
    let mut configuration = configuration();
    let plan = json!({
        "steps": [
            {"mode": "shadow", "for": "1h"},
            {"mode": "enforce", "share": 10, "for": "24h"},
        ],
        "gates": {"addedTime": "2ms"},
    });
    rolled_out(&mut configuration, &settings("two"), plan);
    let output = Command::new(binary::tollgate())
        .args(["check", "--config"])
        .arg(configuration.write())
        .output()
        .expect("tollgate can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "rollout of a new version, per step at least 20 review(s), at most 0 new denial(s) and 0 fault(s), at most 2ms more per call",
        "step 1 of 2: shadow in all namespaces for at least 1h",
        "step 2 of 2: enforce in 10 % of the namespaces for at least 24h",
        "then it answers everything; a gate that fails: rollback, a fault: rollback",
        "policy.shadow: ok",
    ] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
}
