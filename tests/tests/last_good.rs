//! Starts at which some source is unavailable. The host serves the last known good versions. If there are none, it
//! stays unready for a while and then denies requests. Tollgate never allows them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::binary;
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::registry::misbehaving::{Behaviour, Fault, Misbehaving};
use tollgate_tests::registry::{Key, Registry};
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, Start, metric, until};
use tollgate_tests::wat::marker;

async fn mutated(server: &Server) -> Checked {
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).build();
    server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review)
}

async fn labels(server: &Server) -> Value {
    let checked = mutated(server).await;
    assert!(checked.allowed, "{:?}", checked.status);
    checked
        .patched_object
        .map_or(json!({}), |object| object["metadata"]["labels"].clone())
}

/// Returns the reason for a denial.
async fn denial(server: &Server) -> String {
    let checked = mutated(server).await;
    assert!(!checked.allowed, "the request must be denied");
    format!("{:?}", checked.status)
}

/// Creates a configuration that keeps its last known good versions in its own folder.
fn configuration(registry: Option<&Registry>) -> Configuration {
    let mut registries = json!({"pollInterval": "1s"});
    if let Some(registry) = registry {
        registries["credentials"] = json!(registry.credentials());
        registries["hosts"] = json!([{"host": registry.host(), "ca": registry.ca()}]);
    }
    let configuration = Configuration::new().with("registries", registries);
    let cache = configuration.folder().join("artifacts");
    configuration.with("registries.cacheDirectory", json!(cache))
}

/// Changes the configuration file in one step.
fn edit(server: &Server, change: impl FnOnce(&mut Value)) {
    let path = server.configuration().path();
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root = serde_json::from_slice(&text).expect("the suites write it as JSON");
    change(&mut root);
    write(&path, root.to_string().as_bytes());
}

fn write(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).expect("the folder can be written to");
    std::fs::rename(&new, path).expect("a file can be renamed");
}

fn records(configuration: &Configuration) -> Vec<PathBuf> {
    let all = configuration.folder().join("artifacts/last-good");
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let folders = entries(&all);
    let files = folders.iter().flat_map(|folder| entries(folder));
    // Skip files that a killed server was still writing.
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "json");
    let mut files: Vec<PathBuf> = files.filter(is_whole).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_with_broken_plugins_serves_last_known_good() {
    let Some(mut registry) = Registry::start() else {
        return;
    };
    let host = registry.host();
    let reference = |tag: &str| format!("oci://{host}/policies/colour:{tag}");
    registry.push(&marker("colour", "red"), &reference("1"));
    let plugins = |configuration: Configuration, tag: &str, settings: Value, limits: Value| {
        let actor = guests::build("actor");
        let file = configuration.folder().join("size.wasm");
        let plugins = json!([
            {"name": "colour", "source": reference(tag)},
            {"name": "shape", "source": format!("file:{}", actor.display()), "settings": settings},
            {"name": "size", "source": format!("file:{}", file.display())},
            {"name": "taste", "source": format!("file:{}", actor.display()), "limits": limits,
             "settings": {"set": {"/metadata/labels/taste": "sweet"}}},
        ]);
        configuration.with("plugins", plugins)
    };
    let good = configuration(Some(&registry));
    let size = good.folder().join("size.wasm");
    std::fs::write(&size, marker("size", "large")).expect("a file can be written");
    let round = json!({"set": {"/metadata/labels/shape": "round"}});
    // More instances than any other plugin has. The engine must reserve room for them at the next start too.
    let limits = json!({"instances": 64});
    let server = Server::start(plugins(good, "1", round.clone(), limits.clone()));
    server.assert_all_loaded().await;
    let all = json!({"colour": "red", "shape": "round", "size": "large", "taste": "sweet"});
    assert_eq!(labels(&server).await, all);
    let names = ["colour", "shape", "size", "taste"];
    let mut before = Vec::new();
    for name in names {
        before.push(server.plugin_status(name).await["digest"].clone());
    }

    let killed = server.kill();
    for record in records(&killed) {
        let mode = std::fs::metadata(&record).map(|metadata| metadata.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o600), "{}", record.display());
    }
    std::fs::write(&size, "#!/bin/sh").expect("a file can be written");
    let starved = json!({"memory": "64Ki"});
    let bad = plugins(killed, "missing", json!({"sets": {}}), starved);
    let server = Server::start(bad);
    assert_eq!(labels(&server).await, all, "the same answers as before");
    println!("plugin | /plugins | reason");
    for (name, digest) in names.into_iter().zip(&before) {
        let status = server.plugin_status(name).await;
        let reason = &status["desired"]["reason"];
        println!("{name} | {} | {reason}", status["state"]);
        assert_eq!(status["state"], "degraded", "{status:#}");
        assert_eq!(status["digest"], *digest);
        let degraded = metric(
            &server.metrics().await,
            "tollgate_plugin_degraded",
            &[("plugin", name)],
        );
        assert_eq!(degraded, 1.0, "{name}");
    }
    let told = server.logs();
    let told = told
        .iter()
        .filter(|line| line.contains("serving the last known good version of the plugin"));
    assert_eq!(told.count(), names.len());
    let ready = server.get_admin("/readyz?verbose").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert!(
        ready
            .text()
            .contains("plugin shape does not serve as configured"),
        "{}",
        ready.text()
    );

    // A second crash and the loss of the registry change nothing.
    let killed = server.kill();
    registry.kill();
    let server = Server::start(killed);
    assert_eq!(labels(&server).await, all);

    // The server keeps trying. A new version of a file takes effect at once, but changed entries wait for each other.
    let registry = registry.again();
    let missing = format!("oci://{}/policies/colour:missing", registry.host());
    registry.push(&marker("colour", "green"), &missing);
    std::fs::write(&size, marker("size", "small")).expect("a file can be written");
    let then = json!({"colour": "red", "shape": "round", "size": "small", "taste": "sweet"});
    until("the new file", async || labels(&server).await == then).await;
    until("colour is held", async || {
        !server.plugin_status("colour").await["held"].is_null()
    })
    .await;
    let held = server.plugin_status("colour").await["held"].take();
    assert_eq!(held["becauseOf"], json!(["shape", "taste"]), "{held:#}");
    edit(&server, |root| {
        root["plugins"][1]["settings"] = round;
        root["plugins"][3]["limits"] = limits;
    });
    let then = json!({"colour": "green", "shape": "round", "size": "small", "taste": "sweet"});
    until("the desired plugins serve", async || {
        labels(&server).await == then
    })
    .await;
    assert_eq!(server.plugin_status("colour").await["state"], "loaded");

    // Records of plugins that are no longer configured are deleted.
    let killed = server.kill();
    let written = records(&killed);
    assert_eq!(written.len(), 4, "{written:?}");
    let only = json!([{"name": "size", "source": format!("file:{}", size.display())}]);
    let server = Server::start(killed.with("plugins", only));
    assert_eq!(labels(&server).await, json!({"size": "small"}));
    let left = records(server.configuration());
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_known_good_must_satisfy_current_keys_and_pins() {
    let Some(mut registry) = Registry::start() else {
        return;
    };
    let (trusted, next) = (Key::p256(), Key::p256());
    let reference = format!("oci://{}/signed/colour:stable", registry.host());
    let red = registry.push(&marker("colour", "red"), &reference);
    registry.sign("signed/colour", &red, &trusted).await;
    let entry = |source: &str, keys: &[&Key]| {
        let keys: Vec<PathBuf> = keys.iter().map(|key| key.public()).collect();
        json!([{"name": "colour", "source": source, "signatures": {"keys": keys}}])
    };
    let first = configuration(Some(&registry)).with("plugins", entry(&reference, &[&trusted]));
    let server = Server::start(first);
    assert_eq!(labels(&server).await, json!({"colour": "red"}));

    // Another version, which has no signature.
    let green = registry.push(&marker("colour", "green"), &reference);
    let server = Server::start(server.kill());
    assert_eq!(labels(&server).await, json!({"colour": "red"}));
    let status = server.plugin_status("colour").await;
    assert_eq!(status["state"], "degraded");
    println!("unsigned | {}", status["desired"]["reason"]);

    let refused = async |server: Server, part: &str| {
        let status = server.plugin_status("colour").await;
        assert_eq!(status["state"], "failed", "{status:#}");
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        println!("refused | {reason}");
        assert!(
            reason.contains("failed to load the last known good") && reason.contains(part),
            "{reason}"
        );
        assert!(denial(&server).await.contains("not loaded"));
        server.kill()
    };
    let killed = server.kill().with("plugins", entry(&reference, &[&next]));
    let killed = refused(Server::start(killed), "found one made with another key").await;

    let other = reference.replace(":stable", &format!("@{green}"));
    let killed = killed.with("plugins", entry(&other, &[&trusted]));
    let killed = refused(
        Server::start(killed),
        "its digest is not the one that `source` pins",
    )
    .await;

    registry.kill();
    let killed = killed.with("plugins", entry(&reference, &[&next]));
    let killed = refused(Server::start(killed), "Connection refused").await;
    let killed = killed.with("plugins", entry(&reference, &[&trusted, &next]));
    let server = Server::start(killed);
    assert_eq!(
        labels(&server).await,
        json!({"colour": "red"}),
        "its key is trusted again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_without_last_known_good_waits_then_denies() {
    let missing = json!([
        {"name": "colour", "source": "file:colour.wasm"},
        {"name": "lenient", "source": "file:lenient.wasm", "failurePolicy": "Ignore"},
        {"name": "shadowed", "source": "file:shadowed.wasm", "mode": "warn"},
    ]);
    let first = configuration(None)
        .with("startupGrace", "6s")
        .with("plugins", missing);
    let server = Server::start(first);
    let began = Instant::now();
    let red = server.get_admin("/readyz").await;
    println!("{}\n{}", red.status, red.text());
    assert_eq!(red.status, 503);
    let text = red.text();
    assert!(
        text.contains("plugin colour is not loaded: ") && text.contains("No such file"),
        "{text}"
    );
    assert!(
        text.contains("(startupGrace)") && text.contains("have not been read: colour;"),
        "{text}"
    );
    // A request that arrives anyway is denied, whatever it is, because the plugin's rules are unknown.
    let why = denial(&server).await;
    println!("{why}");
    assert!(
        why.contains("colour") && why.contains("not loaded"),
        "{why}"
    );
    until("ready", async || {
        server.get_admin("/readyz").await.status == 200
    })
    .await;
    println!("ready {:?} after it listened", began.elapsed());
    assert!(
        began.elapsed() > Duration::from_secs(3),
        "the start did not wait"
    );
    assert!(denial(&server).await.contains("not loaded"));
    let over = |line: &String| line.contains("startupGrace is over");
    until("the end of startupGrace is logged", async || {
        server.logs().iter().any(over)
    })
    .await;

    // A plugin that becomes available within the grace period ends the wait.
    let killed = server.kill().with("startupGrace", "5m");
    let file = killed.folder().join("colour.wasm");
    let server = Server::start(killed);
    assert_eq!(server.get_admin("/readyz").await.status, 503);
    std::fs::write(file, marker("colour", "red")).expect("a file can be written");
    until("ready", async || {
        server.get_admin("/readyz").await.status == 200
    })
    .await;
    assert_eq!(labels(&server).await, json!({"colour": "red"}));

    // The start does not wait for plugins under Ignore.
    let lenient =
        json!([{"name": "lenient", "source": "file:lenient.wasm", "failurePolicy": "Ignore"}]);
    let server = Server::start(server.kill().with("plugins", lenient));
    assert_eq!(server.get_admin("/readyz").await.status, 200);
    assert_eq!(labels(&server).await, json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_with_invalid_configuration_serves_last_known_good() {
    let mut first = configuration(None);
    first.plugin_of("colour", &marker("colour", "red"), json!({}));
    let red = json!({"colour": "red"});
    let server = Server::start(first);
    assert_eq!(labels(&server).await, red);
    let path = server.configuration().path();
    let cache = server.configuration().folder().join("artifacts");
    let good = std::fs::read(&path).expect("the configuration is there");
    let mut unknown: Value = serde_json::from_slice(&good).expect("the suites write it as JSON");
    unknown["limits"] = json!({"feul": 1});
    unknown["plugins"][0]["mode"] = json!("enforced");
    let unknown = unknown.to_string();
    let named = format!(
        "registries: {{ cacheDirectory: '{}' }}\nplugins: [",
        cache.display()
    );
    let elsewhere = cache.display().to_string();
    /// The defect, the file (none if it is missing), the arguments, and the expected message.
    type Row<'r> = (&'r str, Option<&'r [u8]>, &'r [&'r str], &'r str);
    let rows: [Row<'_>; 4] = [
        ("unknown keys", Some(unknown.as_bytes()), &[], "limits.feul"),
        ("broken off", Some(named.as_bytes()), &[], "line 2"),
        (
            "empty",
            Some(b""),
            &["--last-known-good", &elsewhere],
            "plugins: missing",
        ),
        (
            "gone",
            None,
            &["--last-known-good", &elsewhere],
            "No such file",
        ),
    ];
    let mut killed = server.kill();
    for (what, text, arguments, reason) in rows {
        match text {
            Some(text) => write(&path, text),
            None => std::fs::remove_file(&path).expect("the file is there"),
        }
        let start = arguments
            .iter()
            .fold(Start::default(), |start, argument| start.argument(argument));
        let server = start.as_it_is().start(killed);
        assert_eq!(labels(&server).await, red, "{what}");
        let page = server.get_admin("/plugins").await.json();
        let told = page["configuration"]["invalid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        println!("{what} | {} | {told}", page["state"]);
        assert_eq!(page["state"], "degraded", "{what}: {page:#}");
        assert_eq!(page["configuration"]["lastKnownGood"], true, "{what}");
        assert!(told.contains(reason), "{what}: {told}");
        let ready = server.get_admin("/readyz?verbose").await;
        assert_eq!(ready.status, 200, "{what}: {}", ready.text());
        assert!(
            ready
                .text()
                .contains("serving the last known good since the start"),
            "{}",
            ready.text()
        );
        let name = "tollgate_config_last_reload_successful";
        assert_eq!(metric(&server.metrics().await, name, &[]), 0.0, "{what}");
        let logs = server.logs();
        let error = logs
            .iter()
            .find(|line| line.contains("not valid; serving the last known good"));
        let error = error.unwrap_or_else(|| panic!("{what}: {logs:#?}"));
        assert!(error.contains("ERROR") && error.contains(reason), "{error}");
        killed = server.kill();
    }

    // A valid file takes effect as soon as it is written.
    let server = Start::default()
        .argument("--last-known-good")
        .argument(&elsewhere);
    let server = server.as_it_is().start(killed);
    let mut root: Value = serde_json::from_slice(&good).expect("the suites write it as JSON");
    root["plugins"][0]["mode"] = json!("warn");
    write(&path, root.to_string().as_bytes());
    until("the file", async || labels(&server).await == json!({})).await;
    let page = server.get_admin("/plugins").await.json();
    assert_eq!(page["state"], "ok", "{page:#}");
    assert_eq!(page["configuration"]["lastKnownGood"], Value::Null);

    // With a flag that insists on the file, or without a record, the server reports the error and does not start.
    let killed = server.kill();
    write(&path, unknown.as_bytes());
    let refused = |arguments: &[&str]| {
        let output = std::process::Command::new(binary::tollgate())
            .args(["serve", "--config"])
            .arg(&path)
            .args(arguments)
            .output()
            .expect("tollgate can be run");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("limits.feul") && text.contains("plugins[0].mode"),
            "{text}"
        );
    };
    refused(&["--no-last-known-good"]);
    std::fs::remove_dir_all(killed.folder().join("artifacts")).expect("the cache is there");
    refused(&[]);
}

/// Returns the entries of `count` plugins, each of which sets its own label.
fn plugins_of(host: &str, count: usize) -> Value {
    let plugin = |number: usize| {
        json!({
            "name": format!("plugin-{number}"),
            "source": format!("oci://{host}/policies/plugin-{number}:1"),
            "settings": {"set": {format!("/metadata/labels/number-{number}"): "yes"}},
        })
    };
    (0..count).map(plugin).collect()
}

/// Returns the time from the start of the process until `/readyz` is 200.
async fn time_to_ready(configuration: Configuration) -> (Server, Duration) {
    let began = Instant::now();
    let server = Server::start(configuration);
    while server.get_admin("/readyz").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    (server, began.elapsed())
}

/// Starts a registry with such plugins, and creates a configuration of twenty.
async fn twenty(timeout: &str) -> (Misbehaving, Configuration, Behaviour) {
    let wasm = std::fs::read(guests::build("actor")).expect("the plugin has been built");
    let good = Behaviour::of(wasm);
    let registry = Misbehaving::start(good.clone()).await;
    let hosts = json!([{"host": registry.host(), "plainHTTP": true}]);
    let configuration = configuration(None)
        .with("registries.hosts", hosts)
        .with("registries.timeout", timeout)
        .with("plugins", plugins_of(&registry.host(), 20));
    (registry, configuration, good)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_registry_delays_start_once_for_all_plugins() {
    let (registry, configuration, good) = twenty("60s").await;
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let all = labels(&server).await;
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(20));
    let killed = server.kill();
    registry.behave(good.clone().with(Fault::Silent));
    let (server, took) = time_to_ready(killed).await;
    println!("20 plugins are ready after {took:?}, with a registry that says nothing");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(labels(&server).await, all);
    for name in ["plugin-0", "plugin-19"] {
        let status = server.plugin_status(name).await;
        let reason = status["desired"]["reason"].as_str().unwrap_or_default();
        println!("{name} | {} | {reason}", status["state"]);
        assert_eq!(status["state"], "degraded");
        assert!(reason.contains("a start waits no longer"), "{reason}");
    }
    // With the registry back, the next start asks it as usual.
    registry.behave(good);
    let server = Server::start(server.kill());
    until("as configured", async || {
        server.get_admin("/plugins").await.json()["state"] == "ok"
    })
    .await;
    assert_eq!(labels(&server).await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_probes_but_allows_no_request_while_loading() {
    const TIMEOUT: Duration = Duration::from_secs(8);
    let (registry, configuration, good) = twenty("8s").await;
    registry.behave(good.with(Fault::Silent));
    let server = Start::default().at_once().start(configuration);
    let began = Instant::now();
    assert_eq!(server.get_admin("/livez").await.status, 200);
    let red = server.get_admin("/readyz").await;
    println!("{}\n{}", red.status, red.text());
    assert_eq!(red.status, 503);
    let text = red.text();
    assert!(
        text.contains("the plugins are being loaded") && text.contains("plugin-19 (oci://"),
        "{text}"
    );
    let page = server.get_admin("/plugins").await.json();
    assert_eq!(page["state"], "starting", "{page:#}");
    assert_eq!(page["plugins"][0]["state"], "loading", "{page:#}");
    assert_eq!(server.get_admin("/metrics").await.status, 200);
    let review = as_sent(&Review::create(pod("web")).build());
    for path in ["/mutate", "/validate", "/validate/plugin-0"] {
        let request = server.default_client().post(server.url(path));
        let request = request.header("content-type", "application/json");
        let answer = request.body(review.clone()).send().await;
        let answer = answer.expect("there is an answer");
        assert_eq!(answer.status(), 503, "{path}");
        assert_eq!(answer.headers()["retry-after"], "1");
        let text = answer.text().await.unwrap_or_default();
        assert!(text.contains("is loading its plugins"), "{text}");
    }
    until("an answer", async || {
        server.get_admin("/plugins").await.json()["state"] != "starting"
    })
    .await;
    let took = began.elapsed();
    println!("it serves after {took:?}; the registry had {TIMEOUT:?} for each of 20 plugins");
    assert!(took < TIMEOUT * 2, "{took:?}");
    assert!(denial(&server).await.contains("not loaded"));
    assert!(server.stop().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: a measurement, run by hand with --ignored --nocapture"]
async fn measures_start_time_without_registry() {
    let Some(mut registry) = Registry::start() else {
        return;
    };
    let wasm = std::fs::read(guests::build("actor")).expect("the plugin has been built");
    let counts = [1, 20, 100];
    for number in 0..100 {
        let own = guests::with_section(&wasm, "number", number.to_string().as_bytes());
        let reference = format!("oci://{}/policies/plugin-{number}:1", registry.host());
        registry.push(&own, &reference);
    }
    let hosts = configuration(Some(&registry));
    let mut started = Server::start(hosts.with("plugins", plugins_of(&registry.host(), 100)));
    started.assert_all_loaded().await;
    registry.kill();
    println!("plugins | compiled cache | start to ready: median of 3");
    for count in counts {
        for compiled in [true, false] {
            let mut times = Vec::new();
            for _ in 0..3 {
                let configuration = started
                    .kill()
                    .with("plugins", plugins_of(&registry.host(), count));
                if !compiled {
                    let code = configuration.folder().join("code");
                    std::fs::remove_dir_all(code).expect("the compiled code is there");
                }
                let (server, took) = time_to_ready(configuration).await;
                assert_eq!(
                    labels(&server).await.as_object().map(serde_json::Map::len),
                    Some(count)
                );
                times.push(took);
                started = server;
            }
            times.sort();
            println!(
                "{count} | {} | {:?}",
                if compiled { "yes" } else { "no" },
                times[1]
            );
        }
    }
}
