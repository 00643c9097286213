//! Rollouts after a restart in which a version cannot be loaded, or the file of the state cannot be used.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::server::{Server, Start, until};

use super::{
    FIRST, LAST, configuration, mutated, rollout, settings, tollgate, until_loaded, validated,
    version,
};

/// Copies the plugin, so that a test can take the file away.
fn copy(configuration: &Configuration, name: &str) -> PathBuf {
    let path = configuration.folder().join(name);
    fs::copy(guests::build("actor"), &path).expect("the plugin can be copied");
    path
}

/// Adds a plugin whose old version is one file, and whose new version is another one.
fn two_versions(configuration: &mut Configuration, steps: &Value) -> PathBuf {
    let (old, new) = (
        copy(configuration, "old.wasm"),
        copy(configuration, "new.wasm"),
    );
    let to = json!({"source": format!("file:{}", new.display()), "settings": settings("two")});
    let more = json!({"settings": settings("one"), "rollout": {"to": to, "steps": steps}});
    configuration.plugin("policy", &old, more);
    new
}

/// Starts the server again, with nothing in its cache except for the states of rollouts.
fn restarted(server: Server, change: impl FnOnce(&Path)) -> Server {
    let configuration = server.kill();
    let cache = configuration.folder().join("artifacts");
    for entry in fs::read_dir(&cache).expect("the cache is there") {
        let path = entry.expect("the cache can be read").path();
        if path.ends_with("rollouts") {
            continue;
        }
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.expect("the cache can be emptied");
    }
    change(&cache);
    Start::default().as_it_is().start(configuration)
}

fn without(server: Server, file: &Path) -> Server {
    restarted(server, |_| {
        fs::remove_file(file).expect("the file was there");
    })
}

fn promote(server: &Server) {
    let (code, said) = tollgate(server, &["rollout", "promote", "policy"]);
    assert_eq!(code, Some(0), "{said}");
}

fn roll_back(server: &Server) {
    let (code, said) = tollgate(server, &["rollout", "rollback", "policy"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("policy: rolled-back"), "{said}");
}

/// The only file of a state.
fn state_file(cache: &Path) -> PathBuf {
    let mut files = Vec::new();
    for folder in fs::read_dir(cache.join("rollouts")).expect("there are states") {
        let folder = folder.expect("the folder can be read").path();
        for file in fs::read_dir(folder).expect("there are states") {
            files.push(file.expect("the folder can be read").path());
        }
    }
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// A promoted rollout counts as configured: mode enforce, and failurePolicy Fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_mode_denies_when_the_plugin_cannot_be_loaded() {
    let mut configuration = configuration();
    let file = copy(&configuration, "actor.wasm");
    let plan = json!({"steps": [{"mode": "enforce", "for": "10h"}]});
    let more = json!({"settings": settings("one"), "mode": "warn", "rollout": plan});
    configuration.plugin("policy", &file, more);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    promote(&server);
    assert!(!validated(&server, LAST, "forbidden").await.allowed);
    assert!(validated(&server, LAST, "web").await.allowed);

    let server = without(server, &file);
    let checked = validated(&server, LAST, "web").await;
    assert!(
        !checked.allowed,
        "the plugin is missing, and the request passed"
    );
    let seen = rollout(&server).await;
    assert_eq!(seen["phase"], "promoted", "{seen}");
    assert!(seen["blocked"].is_string(), "{seen}");

    // An administrator can go back to the mode warn.
    roll_back(&server);
    assert!(validated(&server, LAST, "web").await.allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_version_that_cannot_be_loaded_denies_until_a_rollback() {
    let mut configuration = configuration();
    let steps = json!([{"mode": "enforce", "for": "10h"}]);
    let new = two_versions(&mut configuration, &steps);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    promote(&server);
    assert_eq!(version(&server, LAST).await, "two");

    let server = without(server, &new);
    let checked = mutated(&server, LAST).await;
    assert!(
        !checked.allowed,
        "the old version answered for the promoted one"
    );
    let ready = server.get_admin("/rollouts").await.json();
    assert!(
        ready["rollouts"][0]["waits"]
            .as_str()
            .is_some_and(|waits| waits.contains("failurePolicy")),
        "{ready}"
    );
    roll_back(&server);
    assert_eq!(version(&server, LAST).await, "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_is_kept_and_rolls_back_while_the_new_version_cannot_be_loaded() {
    let mut configuration = configuration();
    let steps = json!([
        {"mode": "warn", "for": "10h"},
        {"mode": "enforce", "namespaces": [FIRST], "for": "10h"},
        {"mode": "enforce", "for": "10h"},
    ]);
    let new = two_versions(&mut configuration, &steps);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    promote(&server);
    assert_eq!(version(&server, FIRST).await, "two");
    let before = rollout(&server).await;

    let server = without(server, &new);
    // On trial, the old version answers for one that is missing.
    assert_eq!(version(&server, FIRST).await, "one");
    let seen = rollout(&server).await;
    for key in ["identity", "phase", "step", "run", "history"] {
        assert_eq!(seen[key], before[key], "{key}");
    }
    assert!(seen["blocked"].is_string(), "{seen}");
    roll_back(&server);

    let server = restarted(server, |_| {
        fs::copy(guests::build("actor"), &new).expect("the plugin can be copied");
    });
    until_loaded(&server).await;
    let after = rollout(&server).await;
    assert_eq!(
        (&after["phase"], &after["identity"]),
        (&json!("rolled-back"), &before["identity"])
    );
    assert_eq!(version(&server, FIRST).await, "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_can_be_rolled_back_before_its_version_is_loaded() {
    let mut configuration = configuration();
    let steps = json!([{"mode": "enforce", "for": "10h"}]);
    let new = two_versions(&mut configuration, &steps);
    fs::remove_file(&new).expect("the file was there");
    let server = Server::start(configuration);
    assert_eq!(version(&server, LAST).await, "one");
    assert_eq!(rollout(&server).await["phase"], "waiting");
    roll_back(&server);

    // The version appears, and the rollout does not begin.
    let server = restarted(server, |_| {
        fs::copy(guests::build("actor"), &new).expect("the plugin can be copied");
    });
    until_loaded(&server).await;
    let seen = rollout(&server).await;
    assert_eq!(seen["phase"], "rolled-back", "{seen}");
    assert_eq!(version(&server, LAST).await, "one");
    promote(&server);
    assert_eq!(version(&server, LAST).await, "two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_state_is_told_and_an_unreadable_one_is_not_replaced() {
    let mut configuration = configuration();
    let steps = json!([{"mode": "warn", "for": "10h"}, {"mode": "enforce", "for": "10h"}]);
    two_versions(&mut configuration, &steps);
    let server = Server::start(configuration);
    until_loaded(&server).await;
    promote(&server);

    // A folder in the place of the file can be opened, but not read.
    let mut text = Vec::new();
    let server = restarted(server, |cache| {
        let file = state_file(cache);
        text = fs::read(&file).expect("the state can be read");
        fs::remove_file(&file).expect("the file was there");
        fs::create_dir(&file).expect("the name is free");
    });
    until_loaded(&server).await;
    let seen = rollout(&server).await;
    assert_eq!(
        (&seen["phase"], &seen["step"]),
        (&json!("running"), &json!(1))
    );
    assert!(seen["fileProblem"].is_string(), "{seen}");
    let (_, said) = tollgate(&server, &["rollout", "status"]);
    assert!(said.contains("cannot be read"), "{said}");
    let file = state_file(&server.configuration().folder().join("artifacts"));
    assert!(file.is_dir(), "the file was replaced");
    fs::remove_dir(&file).expect("the folder is empty");
    fs::write(&file, &text).expect("the state can be written");
    until("the state is taken over", async || {
        rollout(&server).await["step"] == 2
    })
    .await;

    let server = restarted(server, |cache| {
        fs::write(state_file(cache), "{").expect("the state can be written");
    });
    until_loaded(&server).await;
    let seen = rollout(&server).await;
    let reason = seen["history"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("the state of the rollout is lost"),
        "{seen}"
    );
    let logs = server.logs().join("\n");
    assert!(logs.contains("begins again at its first step"), "{logs}");
}
