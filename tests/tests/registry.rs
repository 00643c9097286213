//! Plugins from registries: a real one, and one that misbehaves in every possible way.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::registry::misbehaving::{Behaviour, Fault, Misbehaving};
use tollgate_tests::registry::{Key, Registry, payload, statement};
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, Start};
use tollgate_tests::wat::marker;
use tollgate_tests::{binary, guests};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for a new version to take effect after the end of a push.
const IN_FORCE: Duration = Duration::from_secs(2);
/// Time limit for the same on a busy machine.
const IN_FORCE_WHEN_BUSY: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

async fn labels(server: &Server) -> Value {
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).build();
    let checked = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    assert!(checked.allowed, "{:?}", checked.status);
    checked
        .patched_object
        .map_or(json!({}), |object| object["metadata"]["labels"].clone())
}

async fn until_colour(server: &Server, colour: &str) -> Duration {
    let began = Instant::now();
    while labels(server).await != json!({"colour": colour}) {
        assert!(
            began.elapsed() < PATIENCE,
            "the colour is not {colour}: {}",
            server.get_admin("/plugins").await.text()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}

/// Checks times until a change took effect. Half of them must be close to the promise, and none far beyond it.
fn assert_in_force(times: &[Duration], promised: Duration) {
    let mut sorted = times.to_vec();
    sorted.sort();
    let median = sorted[sorted.len() / 2];
    assert!(median < promised.max(IN_FORCE_WHEN_BUSY / 4), "{times:?}");
    assert!(sorted[0] < promised, "{times:?}");
    assert!(sorted[sorted.len() - 1] < IN_FORCE_WHEN_BUSY, "{times:?}");
}

/// Changes the configuration file in one step.
fn edit(server: &Server, change: impl FnOnce(&mut Value)) {
    let path = server.configuration().folder().join("tollgate.yaml");
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root = serde_json::from_slice(&text).expect("the suites write it as JSON");
    change(&mut root);
    let new = path.with_extension("new");
    std::fs::write(&new, root.to_string()).expect("the folder can be written to");
    std::fs::rename(&new, &path).expect("a file can be renamed");
}

async fn until_labels(server: &Server, wanted: &Value) -> Duration {
    let began = Instant::now();
    loop {
        let labels = labels(server).await;
        if labels == *wanted {
            return began.elapsed();
        }
        assert!(
            began.elapsed() < PATIENCE,
            "the labels are {labels}, not {wanted}: {}",
            server.get_admin("/plugins").await.text()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until `/plugins` gives a reason that contains `part`.
async fn until_reason(server: &Server, part: &str) -> Value {
    let began = Instant::now();
    loop {
        let page = server.get_admin("/plugins").await.json();
        let plugins = page["plugins"].as_array().cloned().unwrap_or_default();
        let found = plugins.into_iter().find(|plugin| {
            plugin["desired"]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains(part))
        });
        if let Some(plugin) = found {
            return plugin;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "nothing says `{part}`: {page:#}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(binary::tollgate())
        .args(arguments)
        .current_dir(folder)
        .output();
    output.expect("tollgate can be run")
}

fn text(output: &Output) -> String {
    let streams =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    streams.concat()
}

/// Creates a configuration for the real registry.
fn configuration(registry: &Registry) -> Configuration {
    let hosts = json!([{"host": registry.host(), "ca": registry.ca()}]);
    let registries =
        json!({"pollInterval": "1s", "credentials": registry.credentials(), "hosts": hosts});
    Configuration::new().with("registries", registries)
}

fn from(configuration: &mut Configuration, source: &str) {
    configuration.plugin("colour", Path::new("unused"), json!({"source": source}));
}

/// Pushes a plugin with `tollgate push`.
fn push(registry: &Registry, colour: &str, reference: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    std::fs::write(folder.path().join("plugin.wasm"), marker("colour", colour))
        .expect("a file can be written");
    let (ca, credentials) = (registry.ca(), registry.credentials());
    let output = run(
        &[
            "push",
            "plugin.wasm",
            reference,
            "--ca",
            &ca.display().to_string(),
            "--credentials",
            &credentials.display().to_string(),
        ],
        folder.path(),
    );
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let source = text.lines().find_map(|line| line.strip_prefix("source: "));
    source
        .unwrap_or_else(|| panic!("no source in {text}"))
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follows_tag_and_keeps_pinned_digest() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let reference = format!("oci://{}/policies/colour:stable", registry.host());
    let pinned = push(&registry, "red", &reference);
    assert!(pinned.contains("/policies/colour@sha256:"), "{pinned}");

    let mut followed = configuration(&registry);
    from(&mut followed, &reference);
    let followed = Server::start(followed);
    let mut fixed = configuration(&registry);
    from(&mut fixed, &pinned);
    let fixed = Server::start(fixed);
    assert_eq!(labels(&followed).await, json!({"colour": "red"}));
    let digest = followed.plugin_status("colour").await["digest"].clone();
    assert!(
        pinned.ends_with(digest.as_str().unwrap_or("none")),
        "{digest} is what runs"
    );

    let mut times = Vec::new();
    for colour in ["green", "blue", "red"] {
        push(&registry, colour, &reference);
        times.push(until_colour(&followed, colour).await);
    }
    println!("in force {times:?} after the push, with a poll interval of {POLL_INTERVAL:?}");
    assert_in_force(&times, IN_FORCE);
    assert_eq!(labels(&fixed).await, json!({"colour": "red"}));
    assert_eq!(fixed.get_admin("/plugins").await.json()["state"], "ok");

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (ca, credentials) = (registry.ca(), registry.credentials());
    let access = [
        "--ca",
        &ca.display().to_string(),
        "--credentials",
        &credentials.display().to_string(),
    ];
    let output = run(
        &[&["pull", &pinned, "-o", "here.wasm"][..], &access].concat(),
        folder.path(),
    );
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains(digest.as_str().unwrap_or("none")));
    let mut local = Configuration::new();
    local.plugin("colour", &folder.path().join("here.wasm"), json!({}));
    assert_eq!(
        labels(&Server::start(local)).await,
        json!({"colour": "red"})
    );

    // First without credentials, then without trust.
    let output = run(
        &["pull", &pinned, "--ca", &ca.display().to_string()],
        folder.path(),
    );
    assert!(
        text(&output).contains("the credentials are missing, wrong or not valid"),
        "{}",
        text(&output)
    );
    let output = run(&["pull", &pinned], folder.path());
    assert!(text(&output).contains("certificate"), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_without_registry_uses_cache() {
    let Some(mut registry) = Registry::start() else {
        return;
    };
    let reference = format!("oci://{}/policies/colour:1", registry.host());
    push(&registry, "red", &reference);
    let cache = tempfile::tempdir().expect("a temporary folder can be made");
    let start = |registry: &Registry| {
        let mut configuration = configuration(registry).with(
            "registries.cacheDirectory",
            cache.path().display().to_string(),
        );
        from(&mut configuration, &reference);
        Server::start(configuration)
    };
    let server = start(&registry);
    assert_eq!(labels(&server).await, json!({"colour": "red"}));

    registry.kill();
    let status = until_reason(&server, "Connection refused").await;
    assert_eq!(status["state"], "degraded");
    assert_eq!(labels(&server).await, json!({"colour": "red"}));
    assert!(server.stop().status.success());

    let began = Instant::now();
    let server = start(&registry);
    println!(
        "ready {:?} after the start, with the registry away",
        began.elapsed()
    );
    assert_eq!(labels(&server).await, json!({"colour": "red"}));
    let status = until_reason(&server, "Connection refused").await;
    assert_eq!(status["state"], "degraded");
    let told = server
        .logs()
        .iter()
        .any(|line| line.contains("registry did not provide the plugin; using the cached version"));
    assert!(told, "{:#?}", server.logs());

    let registry = registry.again();
    push(&registry, "green", &reference);
    until_colour(&server, "green").await;
    let began = Instant::now();
    while server.get_admin("/plugins").await.json()["state"] != "ok" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_serving_whatever_the_registry_does() {
    let good = Behaviour::of(marker("colour", "good"));
    let registry = Misbehaving::start(good.clone().with(Fault::Token)).await;
    let hosts = json!([{"host": registry.host(), "plainHTTP": true}]);
    let registries = json!({"pollInterval": "1s", "timeout": "2s", "hosts": hosts});
    let mut configuration = Configuration::new().with("registries", registries);
    from(
        &mut configuration,
        &format!("oci://{}/colour:1", registry.host()),
    );
    let server = Server::start(configuration);
    assert_eq!(
        labels(&server).await,
        json!({"colour": "good"}),
        "Tollgate gets a token if the registry asks for one"
    );
    let digest = server.plugin_status("colour").await["digest"].clone();

    let other = || Behaviour::of(marker("colour", "bad"));
    let fault = |fault: Fault| other().with(fault);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut behaviour = other();
        change(&mut behaviour.manifest);
        behaviour
    };
    let link_local = "http://169.254.169.254/latest/meta-data/";
    let rows = [
        ("500", fault(Fault::Status(500)), "answered 500"),
        (
            "401",
            fault(Fault::Status(401)),
            "its challenge is neither Bearer nor Basic",
        ),
        (
            "403",
            fault(Fault::Status(403)),
            "the credentials are missing, wrong or not valid",
        ),
        (
            "404",
            fault(Fault::Status(404)),
            "there is no such repository, tag or digest",
        ),
        ("429", fault(Fault::Status(429)), "too many requests; raise"),
        (
            "no answer",
            fault(Fault::Silent),
            "no complete answer within 2 s (registries.timeout)",
        ),
        (
            "truncated blob",
            fault(Fault::Truncated),
            "end of file before message length reached",
        ),
        (
            "another blob",
            fault(Fault::Altered),
            "it was damaged or replaced in the registry",
        ),
        (
            "endless blob",
            fault(Fault::Endless),
            "bytes (the size that its manifest declares)",
        ),
        (
            "endless manifest",
            fault(Fault::EndlessManifest),
            "the manifest has more than 4194304 bytes",
        ),
        (
            "redirect to link-local",
            fault(Fault::Redirect(link_local.to_owned())),
            "169.254.169.254 is a link-local address",
        ),
        (
            "realm at link-local",
            fault(Fault::Realm(link_local.to_owned())),
            "169.254.169.254 is a link-local address",
        ),
        (
            "5 GB declared",
            changed(&|manifest| manifest["layers"][0]["size"] = json!(5_000_000_000_u64)),
            "the plugin has more than 67108864 bytes (engine.maxPlugin)",
        ),
        (
            "two layers",
            changed(&|manifest| {
                let layer = manifest["layers"][0].clone();
                manifest["layers"] = json!([layer.clone(), layer]);
            }),
            "it has 2 layers; expected one",
        ),
        (
            "an image's layer",
            changed(&|manifest| {
                manifest["layers"][0]["mediaType"] =
                    json!("application/vnd.oci.image.layer.v1.tar+gzip")
            }),
            "its layer is of type `application/vnd.oci.image.layer.v1.tar+gzip`",
        ),
        (
            "another config",
            changed(&|manifest| {
                manifest["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json")
            }),
            "its config is of type `application/vnd.cncf.helm.config.v1+json`",
        ),
        (
            "no WebAssembly",
            Behaviour::of(b"#!/bin/sh".to_vec()),
            "it is not WebAssembly",
        ),
    ];
    println!("fault | what /plugins says");
    for (what, behaviour, reason) in rows {
        registry.behave(behaviour);
        let status = until_reason(&server, reason).await;
        println!(
            "{what} | {}",
            status["desired"]["reason"].as_str().unwrap_or_default()
        );
        assert_eq!(status["state"], "degraded", "{what}");
        assert_eq!(status["digest"], digest, "{what}");
        assert_eq!(labels(&server).await, json!({"colour": "good"}), "{what}");
    }
    registry.behave(good);
    let began = Instant::now();
    while server.get_admin("/plugins").await.json()["state"] != "ok" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    registry.behave(Behaviour::of(marker("colour", "better")));
    until_colour(&server, "better").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_registry_delays_no_other_changes() {
    let registry = Misbehaving::start(Behaviour::of(marker("colour", "good"))).await;
    let hosts = json!([{"host": registry.host(), "plainHTTP": true}]);
    let registries = json!({"pollInterval": "1s", "timeout": "30s", "hosts": hosts});
    let mut configuration = Configuration::new().with("registries", registries);
    from(
        &mut configuration,
        &format!("oci://{}/colour:1", registry.host()),
    );
    configuration.plugin_of("shape", &marker("shape", "round"), json!({}));
    let file = configuration.folder().join("shape.wasm");
    let server = Server::start(configuration);
    assert_eq!(
        labels(&server).await,
        json!({"colour": "good", "shape": "round"})
    );
    registry.behave(Behaviour::of(marker("colour", "good")).with(Fault::Silent));
    // By now the host has asked the registry, which does not answer.
    tokio::time::sleep(POLL_INTERVAL * 2).await;
    std::fs::write(&file, marker("shape", "square")).expect("the file can be written");
    let began = Instant::now();
    while labels(&server).await != json!({"colour": "good", "shape": "square"}) {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "the file waits for the registry"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("the file was in force after {:?}", began.elapsed());
}

/// A plugin from a registry that sets a label from its settings, and a plugin from a file.
fn coloured_and_shaped(registry: &Misbehaving, more: Value) -> Configuration {
    let mut registries = json!({
        "pollInterval": "1s",
        "timeout": "30s",
        "hosts": [{"host": registry.host(), "plainHTTP": true}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        registries[key] = value.clone();
    }
    let mut configuration = Configuration::new().with("registries", registries);
    from(
        &mut configuration,
        &format!("oci://{}/colour:1", registry.host()),
    );
    configuration.plugin_of("shape", &marker("shape", "round"), json!({}));
    configuration
}

fn paint(root: &mut Value, colour: &str) {
    root["plugins"][0]["settings"] = json!({"set": {"/metadata/labels/colour": colour}});
}

fn actor() -> Vec<u8> {
    std::fs::read(guests::build("actor")).expect("the plugin has been built")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_changes_to_cached_plugin_without_registry() {
    let registry = Misbehaving::start(Behaviour::of(actor())).await;
    let cache = tempfile::tempdir().expect("a temporary folder can be made");
    let configuration = coloured_and_shaped(&registry, json!({"cacheDirectory": cache.path()}));
    let server = Server::start(configuration);
    assert_eq!(labels(&server).await, json!({"shape": "round"}));
    registry.behave(Behaviour::of(actor()).with(Fault::Silent));
    // By now the host has asked the registry, which does not answer.
    tokio::time::sleep(POLL_INTERVAL * 2).await;
    let mut times = Vec::new();
    for colour in ["red", "green", "blue"] {
        edit(&server, |root| paint(root, colour));
        let desired = json!({"colour": colour, "shape": "round"});
        times.push(until_labels(&server, &desired).await);
    }
    println!("settings in force after {times:?}, with a registry that says nothing");
    assert_in_force(&times, Duration::from_secs(1));
    edit(&server, |root| {
        root["plugins"][0]["mode"] = json!("warn");
        root["plugins"][1]["mode"] = json!("audit");
    });
    let took = until_labels(&server, &json!({})).await;
    assert!(took < IN_FORCE_WHEN_BUSY, "{took:?}");
    let page = server.get_admin("/plugins").await.json();
    assert_eq!(
        page["state"], "ok",
        "the registry failure is not reported yet: {page:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_fetch_delays_no_other_changes() {
    let registry = Misbehaving::start(Behaviour::of(actor())).await;
    let configuration = coloured_and_shaped(&registry, json!({"timeout": "20s"}));
    let server = Server::start(configuration);
    registry.behave(Behaviour::of(actor()).with(Fault::Silent));
    tokio::time::sleep(POLL_INTERVAL * 2).await;
    // Nothing is cached, so a change of settings needs the plugin's bytes again. A third plugin is new.
    let new = format!("oci://{}/new:1", registry.host());
    edit(&server, |root| {
        paint(root, "red");
        root["plugins"][1]["mode"] = json!("warn");
        let plugins = root["plugins"].as_array_mut().expect("a list");
        plugins.push(json!({"name": "new", "source": new}));
    });
    let began = Instant::now();
    until_labels(&server, &json!({})).await;
    println!("the rest in force after {:?}", began.elapsed());
    assert!(began.elapsed() < IN_FORCE_WHEN_BUSY);
    let colour = server.plugin_status("colour").await;
    assert_eq!(colour["desired"]["state"], "fetching", "{colour:#}");
    let new = server.plugin_status("new").await;
    assert_eq!(new["state"], "pending", "{new:#}");

    // A reload answers only when the result is known, but changes that need not wait take effect before.
    edit(&server, |root| {
        root["plugins"][1]["mode"] = json!("enforce")
    });
    let asked = Instant::now();
    let url = format!("http://{}/reload", server.admin_address());
    let reload = server
        .default_client()
        .post(url)
        .header("tollgate-admin", "1")
        .send();
    let (reloaded, took) = tokio::join!(reload, async {
        until_labels(&server, &json!({"shape": "round"})).await
    });
    let reloaded = reloaded.expect("there is an answer");
    println!("{} after {:?}", reloaded.status(), asked.elapsed());
    assert!(took < IN_FORCE_WHEN_BUSY, "{took:?}");
    assert_eq!(reloaded.status(), 500);
    // The registry has more time than the reload.
    let report: Value = reloaded.json().await.expect("it is JSON");
    for name in ["colour", "new"] {
        let loading = report["loading"]
            .as_array()
            .is_some_and(|names| names.contains(&json!(name)));
        let reason = report["failed"][name].as_str().unwrap_or_default();
        assert!(
            loading || reason.contains("(registries.timeout)"),
            "{report:#}"
        );
    }
    until_reason(&server, "(registries.timeout)").await;
    assert_eq!(server.plugin_status("colour").await["state"], "degraded");

    registry.behave(Behaviour::of(actor()));
    until_labels(&server, &json!({"colour": "red", "shape": "round"})).await;
    let url = format!("http://{}/reload", server.admin_address());
    let reloaded = server
        .default_client()
        .post(url)
        .header("tollgate-admin", "1")
        .send()
        .await;
    let reloaded = reloaded.expect("there is an answer");
    assert_eq!(reloaded.status(), 200, "{:?}", reloaded.text().await);
    assert_eq!(server.plugin_status("new").await["state"], "loaded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_an_entry_leaves_no_gap() {
    let registry = Misbehaving::start(Behaviour::of(marker("colour", "red"))).await;
    let server = Server::start(coloured_and_shaped(&registry, json!({"timeout": "4s"})));
    let both = json!({"colour": "red", "shape": "round"});
    assert_eq!(labels(&server).await, both);
    let rename = |name: &str| {
        let name = name.to_owned();
        edit(&server, |root| root["plugins"][0]["name"] = json!(name));
    };
    rename("second");
    let began = Instant::now();
    let names = async || -> Vec<String> {
        let page = server.get_admin("/plugins").await.json();
        let plugins = page["plugins"].as_array().cloned().unwrap_or_default();
        let loaded = plugins.iter().filter(|plugin| plugin["state"] == "loaded");
        loaded.map(|plugin| plugin["name"].to_string()).collect()
    };
    while names().await != ["\"second\"", "\"shape\""] {
        assert!(began.elapsed() < PATIENCE, "{:?}", names().await);
        assert_eq!(labels(&server).await, both, "after {:?}", began.elapsed());
    }

    // If the new version cannot be fetched, the version that it should replace stays.
    registry.behave(Behaviour::of(marker("colour", "red")).with(Fault::Silent));
    rename("third");
    until_reason(&server, "(registries.timeout)").await;
    assert_eq!(names().await, ["\"second\"", "\"shape\""]);
    assert_eq!(labels(&server).await, both);
    let status = server.plugin_status("third").await;
    assert_eq!(status["state"], "pending", "{status:#}");
    let status = server.plugin_status("second").await;
    assert_eq!(status["held"]["becauseOf"], json!(["third"]), "{status:#}");
    registry.behave(Behaviour::of(marker("colour", "blue")));
    until_labels(&server, &json!({"colour": "blue", "shape": "round"})).await;
}

/// Creates a folder with a credential helper, to put first in `PATH`.
fn helper(name: &str, script: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join(format!("docker-credential-{name}"));
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file can be written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is this user's");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.path().display());
    (folder, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_hanging_credential_helper_and_applies_changes() {
    let good = Behaviour::of(marker("colour", "good"));
    let registry = Misbehaving::start(good.with(Fault::Token)).await;
    // The helper leaves a background process, which would survive the helper alone.
    let hang = "echo $$ >> \"$0.pids\"; sleep 600 & echo $! >> \"$0.pids\"; wait";
    let (folder, path) = helper("hang", hang);
    let docker = folder.path().join("config.json");
    std::fs::write(&docker, r#"{"credsStore": "hang"}"#).expect("a file can be written");
    let hosts = json!([{"host": registry.host(), "plainHTTP": true}]);
    let registries = json!({"pollInterval": "1s", "credentials": docker, "hosts": hosts});
    let mut configuration = Configuration::new().with("registries", registries);
    for number in 0..20 {
        let source = format!("oci://{}/plugin-{number}:1", registry.host());
        let more = json!({"source": source, "failurePolicy": "Ignore"});
        configuration.plugin(&format!("plugin-{number}"), Path::new("unused"), more);
    }
    configuration.plugin_of("shape", &marker("shape", "round"), json!({}));
    let file = configuration.folder().join("shape.wasm");
    let began = Instant::now();
    let server = Start::default()
        .environment("PATH", &path)
        .start(configuration);
    println!("started after {:?}", began.elapsed());
    let status = server.plugin_status("plugin-0").await;
    let reason = status["reason"].as_str().unwrap_or_default();
    println!("{reason}");
    assert!(
        reason.contains("docker-credential-hang took more than 10 s for"),
        "{status:#}"
    );
    // Wait until the helper has run again and has been killed again.
    let pids = || -> Vec<u32> {
        let name = "docker-credential-hang.pids";
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    while pids().len() < 6 {
        assert!(began.elapsed() < PATIENCE, "{:?}", pids());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let is_running = |pid: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.is_ok_and(|state| !state.contains(") Z "))
    };
    let running: Vec<u32> = pids().into_iter().filter(is_running).collect();
    println!("{} were started, {running:?} are there", pids().len());
    assert!(running.len() <= 2, "one helper and its background process");
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.process()));
    let threads = threads.map(Iterator::count).unwrap_or_default();
    assert!(threads < 40, "{threads} threads");

    std::fs::write(&file, marker("shape", "square")).expect("the file can be written");
    let took = until_labels(&server, &json!({"shape": "square"})).await;
    assert!(took < IN_FORCE_WHEN_BUSY, "{took:?}");
    let stopped = server.stop();
    assert!(stopped.status.success());
    let left: Vec<u32> = pids().into_iter().filter(is_running).collect();
    assert!(left.is_empty(), "{left:?} outlived the host");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_credential_helper_for_registry() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let source = push(
        &registry,
        "red",
        &format!("oci://{}/policies/colour:1", registry.host()),
    );
    let host = registry.host();
    let rows = [
        (
            r#"cat > "$0.asked"; echo '{"ServerURL": "x", "Username": "user", "Secret": "secret"}'"#,
            "pulled ",
        ),
        (
            "echo 'credentials not found in native keychain'; exit 1",
            "the credentials are missing, wrong or not valid",
        ),
        (
            "echo hunter2; exit 3",
            "docker-credential-test failed for 127.0.0.1:",
        ),
        (
            "echo hunter2",
            "the output of docker-credential-test for 127.0.0.1:",
        ),
    ];
    for (script, expected) in rows {
        let (folder, path) = helper("test", script);
        let docker = json!({"credHelpers": {host.as_str(): "test"}}).to_string();
        std::fs::write(folder.path().join("config.json"), docker).expect("a file can be written");
        let output = Command::new(binary::tollgate())
            .args(["pull", &source, "--credentials", "config.json", "--ca"])
            .arg(registry.ca())
            .current_dir(folder.path())
            .env("PATH", path)
            .output()
            .expect("tollgate can be run");
        let text = text(&output);
        println!("{script} | {}", text.trim());
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        if output.status.success() {
            let asked = folder.path().join("docker-credential-test.asked");
            assert_eq!(std::fs::read_to_string(asked).ok(), Some(host.clone()));
        }
    }
}

/// Runs `tollgate pull --key`, and returns whether it succeeded, with its output.
fn pull_with(registry: &Registry, source: &str, keys: &[&Key]) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = |path: std::path::PathBuf| path.display().to_string();
    let mut arguments = vec!["pull".to_owned(), source.to_owned()];
    arguments.extend(["--ca".to_owned(), path(registry.ca())]);
    arguments.extend(["--credentials".to_owned(), path(registry.credentials())]);
    for key in keys {
        arguments.extend(["--key".to_owned(), path(key.public())]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run(&arguments, folder.path());
    (output.status.success(), text(&output))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_only_artifacts_signed_by_trusted_key() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let (trusted, next, stranger) = (Key::p256(), Key::p256(), Key::p256());
    let digest_of = |source: &str| source.rsplit('@').next().unwrap_or_default().to_owned();
    let refused = |source: &str, keys: &[&Key], part: &str| {
        let (success, text) = pull_with(&registry, source, keys);
        println!("{}", text.trim());
        assert!(
            !success
                && text.contains("is not signed as the policy on the command line requires")
                && text.contains(part),
            "{text}"
        );
    };

    let source = push(
        &registry,
        "red",
        &format!("oci://{}/signed/colour:1", registry.host()),
    );
    let digest = digest_of(&source);
    refused(&source, &[&trusted], "found none, under the tag sha256-");
    refused(&source, &[&trusted], ".sig and among the referrers");
    registry.sign("signed/colour", &digest, &stranger).await;
    refused(&source, &[&trusted], "found one made with another key");
    registry.sign("signed/colour", &digest, &trusted).await;
    assert!(pull_with(&registry, &source, &[&trusted]).0);
    assert!(
        pull_with(&registry, &source, &[&stranger, &trusted]).0,
        "one of several keys suffices"
    );
    refused(&source, &[&next], "found one made with another key");

    // A valid signature for another artifact, and a signed text about another artifact.
    let other = push(
        &registry,
        "green",
        &format!("oci://{}/signed/colour:2", registry.host()),
    );
    registry
        .put_signature(
            "signed/colour",
            &digest_of(&other),
            &payload(&digest),
            &trusted,
        )
        .await;
    refused(&other, &[&trusted], &format!("found one for {digest}"));
    registry
        .put_signature("signed/colour", &digest_of(&other), b"{}", &trusted)
        .await;
    refused(&other, &[&trusted], "with a payload that is not cosign's");

    // Other kinds of keys.
    let p384 = || Key::new(&["EC", "-pkeyopt", "ec_paramgen_curve:P-384"]);
    for (kind, key) in [
        (
            "RSA",
            Key::new(&["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
        ),
        ("P-384 over SHA-256", p384()),
        ("P-384 over SHA-384", p384().over_sha384()),
    ] {
        registry.sign("signed/colour", &digest, &key).await;
        assert!(pull_with(&registry, &source, &[&key]).0, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_artifacts_with_bundles_of_trusted_key() {
    const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
    let Some(registry) = Registry::start() else {
        return;
    };
    let (trusted, stranger) = (Key::p256(), Key::p256());
    let reference = format!("oci://{}/bundled/colour:1", registry.host());
    let source = push(&registry, "red", &reference);
    let digest = source.rsplit('@').next().unwrap_or_default();
    let other = format!("sha256:{}", "1".repeat(64));
    let attest = async |digest_in_statement: &str, predicate: &str, key: &Key| {
        let statement = statement(digest_in_statement, predicate);
        registry
            .attest("bundled/colour", digest, &statement, key)
            .await;
    };
    let refused = |part: &str| {
        let (success, text) = pull_with(&registry, &source, &[&trusted]);
        println!("{}", text.trim());
        assert!(!success && text.contains(part), "{text}");
    };

    attest(digest, SIGN, &stranger).await;
    refused("found one made with another key");
    attest(digest, "https://cyclonedx.org/bom", &trusted).await;
    refused("found one that attests https://cyclonedx.org/bom, which is not a signature");
    attest(&other, SIGN, &trusted).await;
    refused(&format!("found one for {other}"));
    attest(digest, SIGN, &trusted).await;
    let (success, text) = pull_with(&registry, &source, &[&trusted]);
    assert!(success, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsigned_version_replaces_nothing_and_keys_can_rotate() {
    let Some(mut registry) = Registry::start() else {
        return;
    };
    let (trusted, next) = (Key::p256(), Key::p256());
    let keys = tempfile::tempdir().expect("a temporary folder can be made");
    let file = keys.path().join("keys.pem");
    let trust = |keys: &[&Key]| {
        let pem = keys
            .iter()
            .map(|key| std::fs::read(key.public()).expect("the key has been written"));
        std::fs::write(&file, pem.collect::<Vec<_>>().concat()).expect("a file can be written");
    };
    trust(&[&trusted]);
    let reference = format!("oci://{}/signed/colour:stable", registry.host());
    let digest_of = |source: &str| source.rsplit('@').next().unwrap_or_default().to_owned();
    let source = push(&registry, "red", &reference);
    registry
        .sign("signed/colour", &digest_of(&source), &trusted)
        .await;

    let cache = tempfile::tempdir().expect("a temporary folder can be made");
    let start = |registry: &Registry| {
        let cache = cache.path().display().to_string();
        let mut configuration = configuration(registry)
            .with("registries.cacheDirectory", cache)
            .with("signatures", json!({"keys": [file]}));
        from(&mut configuration, &reference);
        Server::start(configuration)
    };
    let server = start(&registry);
    assert_eq!(labels(&server).await, json!({"colour": "red"}));

    let source = push(&registry, "green", &reference);
    let status = until_reason(
        &server,
        "is not signed as the policy signatures.keys requires",
    )
    .await;
    assert_eq!(status["state"], "degraded");
    assert_eq!(
        labels(&server).await,
        json!({"colour": "red"}),
        "the unsigned version must not serve"
    );
    registry
        .sign("signed/colour", &digest_of(&source), &next)
        .await;
    until_reason(&server, "found one made with another key").await;
    assert_eq!(labels(&server).await, json!({"colour": "red"}));
    trust(&[&trusted, &next]);
    until_colour(&server, "green").await;

    // Without the registry, cached artifacts are verified with cached signatures.
    assert!(server.stop().status.success());
    registry.kill();
    let server = start(&registry);
    assert_eq!(labels(&server).await, json!({"colour": "green"}));
    assert!(server.stop().status.success());
    trust(&[&trusted]);
    let server = start(&registry);
    let status = server.plugin_status("colour").await;
    assert_eq!(
        status["state"], "failed",
        "its key is not trusted any more: {status}"
    );
    let reason = status["reason"].as_str().unwrap_or_default();
    println!("revoked | {reason}");
    assert!(
        reason.contains("Connection refused")
            && reason.contains("in the cache, the artifact sha256:")
            && reason.contains("is not signed as the policy signatures.keys requires"),
        "the reason must name the key, not only the registry: {reason}"
    );
}

/// Starts a server that gives this answer to every request. It ends with the process.
fn answering(text: &'static str) -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Clients may disconnect.
            drop(stream.read(&mut [0; 1024]));
            drop(stream.write_all(text.as_bytes()));
        }
    });
    address.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_distinguish_tls_from_plain_http() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let pull = |host: &str, more: &[&str]| {
        let source = format!("oci://{host}/policies/colour:1");
        let output = run(&[&["pull", &source], more].concat(), folder.path());
        println!("{}", text(&output).trim_end());
        assert_eq!(output.status.code(), Some(2));
        text(&output)
    };
    // The first server answers non-HTTP input with HTTP, as most do. The second one closes the connection.
    let registry = Misbehaving::start(Behaviour::of(marker("colour", "red"))).await;
    for (host, what) in [
        (
            answering("HTTP/1.1 400 Bad Request\r\n\r\n"),
            "the registry does not speak TLS",
        ),
        (registry.host(), "the registry broke off the TLS handshake"),
    ] {
        let plain = pull(&host, &[]);
        assert!(
            plain.contains(what) && plain.contains("plainHTTP: true"),
            "{plain}"
        );
    }
    // A server with TLS and a certificate of its own CA.
    let server = Server::start(Configuration::new().with("allowEmpty", true));
    let host = server.address().to_string();
    let unknown = pull(&host, &[]);
    assert!(unknown.contains("registries.hosts[].ca"), "{unknown}");
    let tls = pull(&host, &["--plain-http"]);
    assert!(tls.contains("it may expect TLS"), "{tls}");
}
