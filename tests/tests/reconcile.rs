//! A plugin that cannot be loaded never weakens the policies that are enforced. A plugin that hangs during loading does
//! not delay the others.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, Start, metric, until};
use tollgate_tests::wat::{self, marker};

/// Time limit for a change while a plugin sleeps, on a busy machine. Without the reconciler it took minutes.
const SOON: Duration = Duration::from_secs(45);

/// Replaces the plugins of the configuration in one step.
fn set_plugins(server: &Server, plugins: &Value) {
    let path = server.configuration().folder().join("tollgate.yaml");
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root: Value = serde_json::from_slice(&text).expect("the suites write it as JSON");
    root["plugins"] = plugins.clone();
    replace(&path, root.to_string().as_bytes());
}

fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap_or_else(|error| panic!("{}: {error}", new.display()));
    std::fs::rename(&new, path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// A plugin that denies every Pod, with its name in the message.
fn guard(name: &str, file: &Path) -> Value {
    json!({
        "name": name,
        "source": format!("file:{}", file.display()),
        "settings": {"deny": format!("{name} says no")},
    })
}

/// Returns the reason why a Pod is denied, or an empty text if it is allowed.
async fn denial(server: &Server) -> String {
    let review = Review::create(pod("web")).build();
    let answer = server.validate(&review).await;
    let checked = answer.checked(Endpoint::Validate, &review);
    if checked.allowed {
        return String::new();
    }
    format!("{:?}", checked.status)
}

/// Returns the labels of a Pod that had none, or null if it is denied.
async fn labels(server: &Server) -> Value {
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).build();
    let answer = server.mutate(&review).await;
    let checked = answer.checked(Endpoint::Mutate, &review);
    if !checked.allowed {
        return Value::Null;
    }
    checked
        .patched_object
        .map_or(json!({}), |object| object["metadata"]["labels"].clone())
}

async fn status(server: &Server, name: &str) -> Option<Value> {
    let page = server.get_admin("/plugins").await.json();
    let plugins = page["plugins"].as_array().cloned().unwrap_or_default();
    plugins.into_iter().find(|plugin| plugin["name"] == name)
}

async fn is_held(server: &Server, name: &str) -> bool {
    status(server, name)
        .await
        .is_some_and(|status| !status["held"].is_null())
}

/// Creates a configuration that keeps its last known good versions in its own folder.
fn kept(plugins: &Value) -> Configuration {
    let configuration = Configuration::new();
    let cache = configuration.folder().join("artifacts");
    configuration
        .with("registries", json!({"cacheDirectory": cache}))
        .with("plugins", plugins.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_renamed_plugin_until_its_replacement_serves() {
    let actor = guests::build("actor");
    let before = json!([guard("guard", &actor)]);
    let server = Server::start(kept(&before));
    assert!(denial(&server).await.contains("guard says no"));

    let file = server.configuration().folder().join("guard-v2.wasm");
    let after = json!([guard("guard-v2", &file)]);
    set_plugins(&server, &after);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let why = denial(&server).await;
        assert!(
            why.contains("guard says no"),
            "after {:?}: {why}",
            began.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("the hold is reported", async || {
        is_held(&server, "guard").await
    })
    .await;
    let held = status(&server, "guard").await.expect("it is in force");
    println!("/plugins: {}", held["held"]);
    assert_eq!(held["held"]["change"], "removed");
    assert_eq!(held["held"]["becauseOf"], json!(["guard-v2"]));
    let page = server.get_admin("/plugins").await.json();
    assert_eq!(page["state"], "degraded", "{page:#}");
    let ready = server.get_admin("/readyz?verbose").await;
    println!("/readyz?verbose: {} {}", ready.status, ready.text());
    assert_eq!(
        ready.status, 200,
        "a held plugin does not make the replica unready"
    );
    let text = ready.text();
    assert!(
        text.contains("plugin guard stays in effect although it was removed")
            && text.contains("correct or remove plugin guard-v2"),
        "{text}"
    );
    let labels = [("plugin", "guard")];
    assert_eq!(
        metric(&server.metrics().await, "tollgate_plugin_held", &labels),
        1.0
    );
    let told = |server: &Server| {
        let logs = server.logs();
        let is_it =
            |line: &&String| line.contains("keeping a plugin at its previous configuration");
        logs.iter().filter(is_it).count()
    };
    assert_eq!(told(&server), 1, "{:#?}", server.logs());

    // A restarted replica reads this configuration in the same way.
    let server = Server::start(server.kill().with("plugins", after.clone()));
    assert!(denial(&server).await.contains("guard says no"));
    assert!(is_held(&server, "guard").await);
    let next = status(&server, "guard-v2").await.expect("it is told of");
    assert_eq!(next["state"], "pending", "{next:#}");
    assert_eq!(server.get_admin("/readyz").await.status, 200);

    // Both replicas switch to the replacement as soon as it can be loaded.
    let wasm = std::fs::read(&actor).expect("the plugin has been built");
    replace(&file, &wasm);
    until("guard-v2 serves", async || {
        let why = denial(&server).await;
        assert!(!why.is_empty(), "neither version denies: there is a gap");
        why.contains("guard-v2 says no")
    })
    .await;
    assert!(status(&server, "guard").await.is_none());
    assert_eq!(server.get_admin("/plugins").await.json()["state"], "ok");

    // A replica without records has no last known good version.
    std::fs::remove_file(&file).expect("the file is there");
    let killed = server.kill().with("plugins", after);
    std::fs::remove_dir_all(killed.folder().join("artifacts")).expect("the cache is there");
    let server = Server::start(killed);
    assert!(denial(&server).await.contains("not loaded"));
    assert_eq!(server.get_admin("/readyz").await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_guard_for_failing_plugin_but_applies_relief() {
    let actor = guests::build("actor");
    let server = Server::start(kept(&json!([guard("guard", &actor)])));
    assert!(denial(&server).await.contains("guard says no"));
    let missing = guard("guard-v2", Path::new("missing.wasm"));
    let mut narrowed = guard("guard", &actor);
    let excepted =
        json!([{"names": ["web"], "until": "2099-12-31", "reason": "guard-v2 is asked"}]);
    narrowed["exceptions"] = excepted;
    set_plugins(&server, &json!([narrowed, missing]));
    until("the hold is reported", async || {
        is_held(&server, "guard").await
    })
    .await;
    let held = status(&server, "guard").await.expect("it is in force");
    assert_eq!(held["held"]["change"], "changed");
    assert_eq!(held["exceptions"], json!([]));
    assert!(denial(&server).await.contains("guard says no"));

    // An added plugin takes effect at once, although another plugin is still missing.
    let added = guard("added", &actor);
    set_plugins(&server, &json!([narrowed, missing, added]));
    until("the addition", async || {
        denial(&server).await.contains("added says no")
    })
    .await;

    // If an entry is disabled or weakened by name, that takes effect at once.
    let mut disabled = narrowed.clone();
    disabled["enabled"] = json!(false);
    let mut warned = added.clone();
    warned["mode"] = json!("warn");
    set_plugins(&server, &json!([disabled, missing, warned]));
    let took = until("relief", async || denial(&server).await.is_empty()).await;
    println!("relief was in force after {took:?}");

    // Without the failing entry, the whole desired configuration takes effect.
    set_plugins(&server, &json!([narrowed, added]));
    until("the whole configuration", async || {
        let why = denial(&server).await;
        why.contains("added says no") && !why.contains("guard says no")
    })
    .await;
    assert_eq!(server.get_admin("/plugins").await.json()["state"], "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_file_in_plugin_folder_keeps_its_guard() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("colour.wasm");
    std::fs::write(&file, marker("colour", "red")).expect("a file can be written");
    std::fs::write(folder.path().join("shape.wasm"), marker("shape", "round"))
        .expect("a file can be written");
    let start = Start::default().plugins(folder.path());
    let server = start.start(Configuration::new());
    let both = json!({"colour": "red", "shape": "round"});
    assert_eq!(labels(&server).await, both);
    // One step: the file gets a new name, and its content is truncated.
    let next = folder.path().join("colour-v2.wasm");
    std::fs::write(folder.path().join(".new"), b"\0asm").expect("a file can be written");
    std::fs::rename(folder.path().join(".new"), &next).expect("a file can be renamed");
    std::fs::remove_file(&file).expect("the file is there");
    until("the hold is reported", async || {
        is_held(&server, "colour").await
    })
    .await;
    assert_eq!(labels(&server).await, both);
    replace(&next, &marker("colour", "blue"));
    let blue = json!({"colour": "blue", "shape": "round"});
    until("the new one", async || labels(&server).await == blue).await;
}

/// Creates a plugin that sleeps for a day at a stage of loading.
fn sleeper(stage: &str) -> Vec<u8> {
    let sleep = "(call $block (call $subscribe (i64.const 86400000000000)))";
    let imports = r#"
        (import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $subscribe (param i64) (result i32)))
        (import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))"#;
    let own = match stage {
        "describe" => format!(
            r#"(func (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32) {sleep} (i32.const 256))"#
        ),
        "configure" => format!(
            r#"(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32) {sleep} (i32.const 256))"#
        ),
        _ => format!("(func $start {sleep}) (start $start)"),
    };
    wat::plugin("with-wasi-clock", &format!("{imports}\n{own}"))
}

fn write(folder: &Path, name: &str, wasm: &[u8]) -> PathBuf {
    let path = folder.join(format!("{name}.wasm"));
    std::fs::write(&path, wasm).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_that_sleep_at_load_delay_no_others() {
    let configuration = Configuration::new();
    let folder = configuration.folder().to_owned();
    let mut plugins = Vec::new();
    for (stage, key, value) in [
        ("describe", "failurePolicy", "Ignore"),
        ("configure", "mode", "audit"),
        ("start", "mode", "warn"),
    ] {
        let file = write(&folder, stage, &sleeper(stage));
        let source = format!("file:{}", file.display());
        plugins.push(json!({"name": format!("sleeps-in-{stage}"), "source": source, key: value}));
    }
    let colour = write(&folder, "colour", &marker("colour", "red"));
    let shape = write(&folder, "shape", &marker("shape", "round"));
    for (name, file) in [("colour", &colour), ("shape", &shape)] {
        plugins.push(json!({"name": name, "source": format!("file:{}", file.display())}));
    }
    let server = Start::default()
        .at_once()
        .start(configuration.with("plugins", plugins.clone()));
    let took = until("reviews are answered", async || {
        let review = as_sent(&Review::create(pod("web")).build());
        let answer = server
            .post_bytes(server.default_client(), "/mutate", review)
            .await;
        answer.status == 200
    })
    .await;
    println!("reviews are answered {took:?} after the start");
    assert!(took < SOON, "{took:?}");
    let both = json!({"colour": "red", "shape": "round"});
    let took = until("the others serve", async || labels(&server).await == both).await;
    println!("the others serve {took:?} later");
    assert!(took < SOON, "{took:?}");
    let ready = server.get_admin("/readyz").await;
    assert_eq!(ready.status, 200, "{}", ready.text());

    plugins[4]["enabled"] = json!(false);
    set_plugins(&server, &json!(plugins));
    let took = until("shape is off", async || {
        labels(&server).await == json!({"colour": "red"})
    })
    .await;
    println!("another plugin was off after {took:?}");
    assert!(took < SOON, "{took:?}");

    replace(&colour, &marker("colour", "blue"));
    let took = until("colour is blue", async || {
        labels(&server).await == json!({"colour": "blue"})
    })
    .await;
    println!("another plugin's file was in force after {took:?}");
    assert!(took < SOON, "{took:?}");

    let began = Instant::now();
    let report = server.reload().await.json();
    println!(
        "POST /reload was answered after {:?}: {report}",
        began.elapsed()
    );
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    // By now each plugin is still loading, or loading has been abandoned.
    for stage in ["describe", "configure", "start"] {
        let name = format!("sleeps-in-{stage}");
        let loading = report["loading"].as_array();
        let is_loading = loading.is_some_and(|names| names.contains(&json!(name)));
        assert!(
            is_loading || !report["failed"][&name].is_null(),
            "{report:#}"
        );
    }

    // A new plugin changes nothing about that. An enforcing plugin under Fail is not asked before it is loaded.
    let file = write(&folder, "late", &sleeper("configure"));
    plugins.push(json!({"name": "late", "source": format!("file:{}", file.display())}));
    set_plugins(&server, &json!(plugins));
    until("the new plugin is listed", async || {
        status(&server, "late").await.is_some()
    })
    .await;
    replace(&colour, &marker("colour", "green"));
    let took = until("colour is green", async || {
        labels(&server).await == json!({"colour": "green"})
    })
    .await;
    println!("and beside one more after {took:?}");
    assert!(took < SOON, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_denies_for_sleeping_plugin_and_answers_other_requests() {
    let configuration = Configuration::new();
    let file = write(configuration.folder(), "sleeps", &sleeper("configure"));
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let plugins = json!([{"name": "sleeps", "source": format!("file:{}", file.display()), "match": {"rules": rules}}]);
    let server = Start::default()
        .at_once()
        .start(configuration.with("plugins", plugins));
    let took = until("reviews are answered", async || {
        let review = as_sent(&Review::create(pod("web")).build());
        let answer = server
            .post_bytes(server.default_client(), "/validate", review)
            .await;
        answer.status == 200
    })
    .await;
    println!("reviews are answered {took:?} after the start");
    assert!(took < SOON, "{took:?}");
    assert!(
        denial(&server).await.is_empty(),
        "the plugin must not be called for Pods"
    );
    let mut object = pod("web");
    object["kind"] = json!("ConfigMap");
    object["spec"] = Value::Null;
    let review = Review::create(object).build();
    let answer = server.validate(&review).await.json();
    println!("{}", answer["response"]["status"]["message"]);
    assert_eq!(answer["response"]["allowed"], false, "{answer:#}");
    let ready = server.get_admin("/readyz").await;
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("sleeps"), "{}", ready.text());
}
