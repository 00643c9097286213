//! Plugins, settings and their order change while reviews are answered. No review fails, none mixes two versions, and a
//! plugin that cannot be loaded changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint, check};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::wat::marker;
use tollgate_tests::{guests, hostile};

/// Time limit for a change to take effect.
const IN_FORCE: Duration = Duration::from_secs(1);
/// Time limit for a change to take effect on a busy machine.
const IN_FORCE_WHEN_BUSY: Duration = Duration::from_secs(10);
/// Time limit for a change without its own limit.
const PATIENCE: Duration = Duration::from_secs(60);
const SWAPS: usize = 200;
const SWAPS_VARIABLE: &str = "TOLLGATE_SWAPS";
/// Allowed growth of memory over all swaps, in percent.
const GROWTH_PERCENT: u64 = 10;

/// Replaces a file in one step.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap_or_else(|error| panic!("{}: {error}", new.display()));
    std::fs::rename(&new, path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn configuration_file(server: &Server) -> PathBuf {
    server.configuration().folder().join("tollgate.yaml")
}

fn edit(server: &Server, change: impl FnOnce(&mut Value)) {
    let path = configuration_file(server);
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root = serde_json::from_slice(&text).expect("the suites write it as JSON");
    change(&mut root);
    replace(&path, root.to_string().as_bytes());
}

fn labelled() -> Value {
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    object
}

async fn labels(server: &Server) -> Value {
    let review = Review::create(labelled()).build();
    let checked = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    assert!(checked.allowed, "{:?}", checked.status);
    checked
        .patched_object
        .map_or(json!({}), |object| object["metadata"]["labels"].clone())
}

/// Waits until the labels are `wanted`, and returns the time that this took.
async fn until_labels(server: &Server, wanted: &Value, limit: Duration) -> Duration {
    let began = Instant::now();
    loop {
        let labels = labels(server).await;
        if labels == *wanted {
            return began.elapsed();
        }
        assert!(
            began.elapsed() < limit,
            "after {limit:?} the labels are {labels}, not {wanted}: {}",
            server.get_admin("/plugins").await.text()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until `/plugins` shows the wanted status of a plugin.
async fn until_status(server: &Server, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let page = server.get_admin("/plugins").await.json();
        let plugins = page["plugins"].as_array().cloned().unwrap_or_default();
        let found = plugins.into_iter().find(|plugin| plugin["name"] == name);
        if let Some(plugin) = found.filter(&is) {
            return plugin;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{name} did not get there: {page:#}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn is_degraded(server: &Server, name: &str) -> f64 {
    metric(
        &server.metrics().await,
        "tollgate_plugin_degraded",
        &[("plugin", name)],
    )
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Checks times until a change took effect. The promised limit holds on an idle machine, because loading yields to all
/// other work. On any machine, half of the changes must come close to it, and none may be far beyond it.
fn assert_in_force(mut times: Vec<Duration>) {
    times.sort();
    assert!(times[0] < IN_FORCE, "{times:?}");
    assert!(times[times.len() / 2] < IN_FORCE * 5 / 2, "{times:?}");
    assert!(times[times.len() - 1] < IN_FORCE_WHEN_BUSY, "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_file_serves_within_one_second() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("colour", &marker("colour", "0"), json!({}));
    let file = configuration.folder().join("colour.wasm");
    let server = Server::start(configuration);
    until_labels(&server, &json!({"colour": "0"}), PATIENCE).await;

    let mut times = Vec::new();
    for version in ["1", "2", "3", "4", "5", "6"] {
        let wasm = marker("colour", version);
        if version < "4" {
            replace(&file, &wasm);
        } else {
            std::fs::write(&file, &wasm).expect("the file can be written in place");
        }
        times.push(until_labels(&server, &json!({"colour": version}), PATIENCE).await);
    }
    println!("in force after {times:?}");
    assert_in_force(times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follows_links_of_mounted_volume() {
    let mut configuration = Configuration::new();
    let root = configuration.folder().join("mounted");
    for version in ["1", "2"] {
        let folder = root.join(format!("..{version}"));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        std::fs::write(folder.join("colour.wasm"), marker("colour", version))
            .expect("a file can be written");
    }
    let point = |to: &str| {
        let link = root.join("..tmp");
        std::os::unix::fs::symlink(to, &link).expect("a link can be made");
        std::fs::rename(link, root.join("..data")).expect("a link can be renamed");
    };
    point("..1");
    std::os::unix::fs::symlink("..data/colour.wasm", root.join("colour.wasm"))
        .expect("a link can be made");
    configuration.plugin("colour", &root.join("colour.wasm"), json!({}));
    let server = Server::start(configuration);
    until_labels(&server, &json!({"colour": "1"}), PATIENCE).await;
    let mut times = Vec::new();
    for version in ["2", "1", "2"] {
        point(&format!("..{version}"));
        times.push(until_labels(&server, &json!({"colour": version}), PATIENCE).await);
    }
    println!("in force after {times:?}");
    assert_in_force(times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_entries_leave_other_plugins_alone() {
    let mut configuration = Configuration::new();
    let actor = guests::build("actor");
    let set = |value: &str| json!({"settings": {"set": {"/metadata/labels/colour": value}}});
    configuration.plugin("first", &actor, set("red"));
    configuration.plugin("second", &actor, set("blue"));
    configuration.plugin_of("third", &marker("third", "yes"), json!({}));
    let server = Server::start(configuration);
    until_labels(
        &server,
        &json!({"colour": "blue", "third": "yes"}),
        PATIENCE,
    )
    .await;

    let mut times = Vec::new();
    for colour in ["white", "black", "grey", "brown", "pink", "green"] {
        edit(&server, |root| {
            root["plugins"][1]["settings"] = set(colour)["settings"].clone()
        });
        let desired = json!({"colour": colour, "third": "yes"});
        times.push(until_labels(&server, &desired, PATIENCE).await);
    }
    println!("settings in force after {times:?}");
    assert_in_force(times);

    edit(&server, |root| {
        root["plugins"].as_array_mut().expect("a list").swap(0, 1)
    });
    let took = until_labels(&server, &json!({"colour": "red", "third": "yes"}), PATIENCE).await;
    println!("order in force after {took:?}");

    edit(&server, |root| root["plugins"][1]["mode"] = json!("warn"));
    until_labels(
        &server,
        &json!({"colour": "green", "third": "yes"}),
        PATIENCE,
    )
    .await;
    assert_eq!(server.plugin_status("first").await["mode"], "warn");

    edit(&server, |root| {
        root["plugins"][0]["limits"] = json!({"fuel": 1000})
    });
    until_status(&server, "second", |status| status["limits"]["fuel"] == "1k").await;
    let review = Review::create(labelled()).build();
    let checked = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    assert!(!checked.allowed, "1000 of fuel are not enough");

    edit(&server, |root| root["plugins"][0]["enabled"] = json!(false));
    until_status(&server, "second", |status| status["state"] == "disabled").await;
    until_labels(&server, &json!({"third": "yes"}), PATIENCE).await;

    // An unchanged plugin was loaded once, and its counters continue.
    let loads = |name: &str| {
        let logs = server.logs();
        let name = format!("\"plugin\":\"{name}\"");
        logs.iter()
            .filter(|line| line.contains("plugin loaded") && line.contains(&name))
            .count()
    };
    assert_eq!(loads("third"), 1, "{:#?}", server.logs());
    assert_eq!(
        loads("first"),
        1,
        "a change of mode or order does not touch the code"
    );
    assert_eq!(
        loads("second"),
        8,
        "once at the start, six times for settings, once for limits"
    );
    let calls = metric(
        &server.metrics().await,
        "tollgate_plugin_calls_total",
        &[("plugin", "third")],
    );
    assert!(calls > 5.0, "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_load_changes_nothing_and_is_reported() {
    let modules = hostile::all();
    let mut configuration = Configuration::new();
    configuration.plugin_of("colour", &marker("colour", "good"), json!({}));
    let file = configuration.folder().join("colour.wasm");
    let server = Server::start(configuration);
    let good = json!({"colour": "good"});
    until_labels(&server, &good, PATIENCE).await;
    let digest = server.plugin_status("colour").await["digest"].clone();

    let bad: [(&str, &[u8], &str); 5] = [
        (
            "no WebAssembly",
            b"#!/bin/sh",
            "componentize: it is not WebAssembly",
        ),
        ("empty", b"", "componentize: it is not WebAssembly"),
        (
            "an unknown import",
            &modules["unknown-import"],
            "compile: it imports",
        ),
        (
            "rejects its settings",
            &modules["configure-rejects"],
            "configure: it rejects its settings",
        ),
        (
            "loops in configure",
            &modules["configure-loop"],
            "configure: out-of-fuel",
        ),
    ];
    println!("fault | /plugins says");
    for (what, wasm, reason) in bad {
        replace(&file, wasm);
        let is = |status: &Value| {
            let told = status["desired"]["reason"].as_str().unwrap_or_default();
            status["state"] == "degraded" && told.starts_with(reason)
        };
        let status = until_status(&server, "colour", is).await;
        println!("{what} | {}", status["desired"]["reason"]);
        assert_eq!(
            status["digest"], digest,
            "the previous version must keep serving"
        );
        assert_eq!(labels(&server).await, good, "{what}");
        assert_eq!(is_degraded(&server, "colour").await, 1.0);
    }
    std::fs::remove_file(&file).expect("the file is there");
    let gone = |status: &Value| {
        status["desired"]["reason"]
            .as_str()
            .is_some_and(|told| told.contains("No such file"))
    };
    until_status(&server, "colour", gone).await;
    assert_eq!(labels(&server).await, good);
    let ready = server.get_admin("/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    assert!(
        ready
            .text()
            .contains("plugin colour does not serve as configured"),
        "{}",
        ready.text()
    );

    replace(&file, &marker("colour", "better"));
    until_labels(&server, &json!({"colour": "better"}), PATIENCE).await;
    let status = until_status(&server, "colour", |status| status["state"] == "loaded").await;
    assert_eq!(status["desired"], Value::Null);
    assert_eq!(is_degraded(&server, "colour").await, 0.0);
    let information = server.metrics().await;
    let versions = information
        .lines()
        .filter(|line| line.starts_with("tollgate_plugin_info{"))
        .count();
    assert_eq!(versions, 1, "only the serving version is shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_configuration_changes_nothing_and_is_reported() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("colour", &marker("colour", "good"), json!({}));
    let server = Server::start(configuration);
    let path = configuration_file(&server);
    let original = std::fs::read(&path).expect("the configuration is there");
    let good = json!({"colour": "good"});
    until_labels(&server, &good, PATIENCE).await;

    let bad: [(&[u8], &str); 4] = [
        (
            b"",
            "plugins: missing, expected a list of plugins; write allowEmpty: true",
        ),
        (b"plugins: []", "write allowEmpty: true to run without any"),
        (b"plugins: [", "line 1, column 10"),
        (
            b"plugins: [{name: colour, source: 'file:x', limits: {feul: 1}}]",
            "plugins[0].limits.feul",
        ),
    ];
    for (text, reason) in bad {
        replace(&path, text);
        let began = Instant::now();
        loop {
            let page = server.get_admin("/plugins").await.json();
            let told = page["configuration"]["invalid"]
                .as_str()
                .unwrap_or_default();
            if told.contains(reason) {
                assert_eq!(page["state"], "degraded");
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{reason}: {page:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(labels(&server).await, good, "{reason}");
        let successful = metric(
            &server.metrics().await,
            "tollgate_config_last_reload_successful",
            &[],
        );
        assert_eq!(successful, 0.0);
    }
    replace(&path, b"allowEmpty: true");
    until_labels(&server, &json!({}), PATIENCE).await;
    replace(&path, &original);
    until_labels(&server, &good, PATIENCE).await;
    assert_eq!(server.get_admin("/plugins").await.json()["state"], "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_plugin_is_called_once_loaded() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("colour", &marker("colour", "good"), json!({}));
    let folder = configuration.folder().to_owned();
    let server = Server::start(configuration);
    until_labels(&server, &json!({"colour": "good"}), PATIENCE).await;
    edit(&server, |root| {
        let plugins = root["plugins"].as_array_mut().expect("a list");
        plugins.insert(0, json!({"name": "shape", "source": "file:shape.wasm"}));
    });
    let is_known =
        |status: &Value| status["state"] == "pending" && !status["desired"]["reason"].is_null();
    let status = until_status(&server, "shape", is_known).await;
    assert!(
        status["desired"]["reason"]
            .as_str()
            .unwrap_or_default()
            .contains("No such file"),
        "{status}"
    );
    assert_eq!(
        labels(&server).await,
        json!({"colour": "good"}),
        "a missing file must not deny requests"
    );
    std::fs::write(folder.join("shape.wasm"), marker("shape", "round"))
        .expect("a file can be written");
    until_labels(
        &server,
        &json!({"colour": "good", "shape": "round"}),
        PATIENCE,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_request_reports_its_result() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("colour", &marker("colour", "1"), json!({}));
    let file = configuration.folder().join("colour.wasm");
    let server = Server::start(configuration);
    let client = server.client(|builder| builder);
    let reload = async || {
        let url = format!("http://{}/reload", server.admin_address());
        let response = client
            .post(url)
            .header("tollgate-admin", "1")
            .send()
            .await
            .expect("the admin listener answers");
        let status = response.status().as_u16();
        (
            status,
            response.json::<Value>().await.expect("the answer is JSON"),
        )
    };
    assert_eq!(server.get_admin("/reload").await.status, 405);
    let (status, report) = reload().await;
    assert_eq!((status, &report["result"]), (200, &json!("unchanged")));

    replace(&file, &marker("colour", "2"));
    let (status, report) = reload().await;
    assert_eq!(
        (status, &report["result"], &report["changed"]),
        (200, &json!("applied"), &json!(["colour"]))
    );
    assert_eq!(
        labels(&server).await,
        json!({"colour": "2"}),
        "the new version serves before the reload is answered"
    );

    replace(&file, b"nothing");
    let (status, report) = reload().await;
    assert_eq!((status, &report["result"]), (500, &json!("failed")));
    assert!(
        report["failed"]["colour"]
            .as_str()
            .unwrap_or_default()
            .contains("not WebAssembly"),
        "{report}"
    );

    replace(&file, &marker("colour", "3"));
    edit(&server, |root| root["requests"] = json!({"maxDepth": 100}));
    let (status, report) = reload().await;
    assert_eq!(
        (status, &report["needsRestart"]),
        (200, &json!(["requests"]))
    );
    let page = server.get_admin("/plugins").await.json();
    assert_eq!(page["configuration"]["needsRestart"], json!(["requests"]));
    assert_eq!(labels(&server).await, json!({"colour": "3"}));

    let hangup = rustix::process::Signal::HUP;
    let id = i32::try_from(server.process())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("a process has an id"), hangup)
        .expect("the server is there");
    let began = Instant::now();
    while !server.logs().iter().any(|line| line.contains("SIGHUP")) {
        assert!(began.elapsed() < PATIENCE, "{:#?}", server.logs());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(labels(&server).await, json!({"colour": "3"}));
    assert!(server.stop().status.success());
}

/// The answers that a client saw over all swaps.
#[derive(Default)]
struct Observed {
    answers: usize,
    failed: Vec<String>,
    mixed: Vec<String>,
    versions: [usize; 2],
}

/// Sends reviews one after another until it is told to stop.
async fn load(server: Arc<Server>, stop: Arc<AtomicBool>, worker: usize) -> Observed {
    let mut seen = Observed::default();
    let client = server.client(|builder| builder);
    while !stop.load(Ordering::Relaxed) {
        let uid = format!("00000000-0000-4000-{worker:04}-{:012}", seen.answers);
        let review = Review::create(labelled()).uid(&uid).build();
        seen.answers += 1;
        match server.try_post(&client, "/mutate", as_sent(&review)).await {
            Err(error) => seen.failed.push(format!("{error:?}")),
            Ok(answer) => {
                let checked = check(
                    Endpoint::Mutate,
                    &review,
                    answer.status,
                    &answer.content_type,
                    &answer.body,
                );
                match checked {
                    Ok(Checked {
                        allowed: true,
                        patched_object: Some(object),
                        ..
                    }) => {
                        let labels = &object["metadata"]["labels"];
                        match (labels["first"].as_str(), labels["second"].as_str()) {
                            (Some("1"), Some("1")) => seen.versions[0] += 1,
                            (Some("2"), Some("2")) => seen.versions[1] += 1,
                            _ => seen.mixed.push(labels.to_string()),
                        }
                    }
                    other => seen.failed.push(format!("{other:?}")),
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_under_load_lose_no_request_and_mix_no_versions() {
    let swaps = std::env::var(SWAPS_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SWAPS);
    // Two plugins that belong together. Only a swap of both at once never shows a mix of versions.
    let mut configuration = Configuration::new();
    let folder = configuration.folder().to_owned();
    for version in ["1", "2"] {
        for label in ["first", "second"] {
            let path = folder.join(format!("{label}-{version}.wasm"));
            std::fs::write(path, marker(label, version)).expect("a file can be written");
        }
    }
    let source = |label: &str, version: &str| json!(format!("file:{label}-{version}.wasm"));
    configuration.plugin("first", &folder.join("first-1.wasm"), json!({}));
    configuration.plugin("second", &folder.join("second-1.wasm"), json!({}));
    let server = Arc::new(Server::start(configuration));
    server.assert_all_loaded().await;
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|worker| tokio::spawn(load(server.clone(), stop.clone(), worker)))
        .collect();

    let swap = async |number: usize| {
        let version = if number.is_multiple_of(2) { "2" } else { "1" };
        edit(&server, |root| {
            root["plugins"][0]["source"] = source("first", version);
            root["plugins"][1]["source"] = source("second", version);
        });
        until_labels(
            &server,
            &json!({"first": version, "second": version}),
            PATIENCE,
        )
        .await
    };
    let mut times = Vec::with_capacity(swaps);
    // The first few swaps create the code of both versions, the cache and the allocator's arenas.
    let warm_up = (swaps / 5).max(2) & !1;
    for number in 0..warm_up {
        times.push(swap(number).await);
    }
    let before = server.resident_kib();
    for number in warm_up..swaps {
        times.push(swap(number).await);
    }
    let after = server.resident_kib();
    stop.store(true, Ordering::Relaxed);
    let mut all = Observed::default();
    for worker in workers {
        let seen = worker.await.expect("a client does not panic");
        all.answers += seen.answers;
        all.failed.extend(seen.failed);
        all.mixed.extend(seen.mixed);
        all.versions[0] += seen.versions[0];
        all.versions[1] += seen.versions[1];
    }
    println!(
        "{swaps} swaps under {} requests: {} failed, {} mixed, {} of version 1, {} of version 2; a swap took {:?} in \
         the median; {before} KiB resident after {warm_up} swaps, {after} KiB after all",
        all.answers,
        all.failed.len(),
        all.mixed.len(),
        all.versions[0],
        all.versions[1],
        median(times)
    );
    assert!(
        all.failed.is_empty(),
        "{:#?}",
        &all.failed[..all.failed.len().min(3)]
    );
    assert!(
        all.mixed.is_empty(),
        "{:#?}",
        &all.mixed[..all.mixed.len().min(3)]
    );
    assert!(
        all.versions.iter().all(|&count| count > 0),
        "both versions were seen: {:?}",
        all.versions
    );
    assert!(
        after <= before + before * GROWTH_PERCENT / 100,
        "{before} KiB became {after} KiB: more than {GROWTH_PERCENT}% more"
    );
}
