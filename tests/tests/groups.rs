//! Groups: one verdict from several plugins, with one message.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::cli;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, config_map, pod};
use tollgate_tests::server::{Server, Start, metric, until};
use tollgate_tests::wat;

const MESSAGE: &str = "name an owner, or a team";
const EXPRESSION: &str = "owner() || (team() && !broken())";

/// Ends each call.
const ABORTS: &str = r#"
    (func (export "tollgate:admission/validating@0.1.0#validate") (result i32) (unreachable))"#;

/// A member that requires a label.
fn requires(label: &str) -> Value {
    let file = guests::build("required-labels");
    let mut labels = json!({});
    labels[label] = Value::Null;
    json!({
        "name": label, "source": format!("file:{}", file.display()), "settings": {"labels": labels},
    })
}

/// A configuration with the group `owned`. Its third member aborts each call. `more` holds further keys of the entry.
fn configuration(expression: &str, more: &Value) -> Configuration {
    let configuration = Configuration::new();
    let cache = configuration.folder().join("artifacts");
    let broken = configuration.folder().join("broken.wasm");
    fs::write(&broken, wat::plugin("validator", ABORTS)).expect("the file can be written");
    let mut entry = json!({
        "name": "owned",
        "group": {
            "members": [
                requires("owner"),
                requires("team"),
                {"name": "broken", "source": format!("file:{}", broken.display())},
            ],
            "expression": expression,
            "message": MESSAGE,
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    configuration
        .with("registries", json!({"cacheDirectory": cache}))
        .with("plugins", json!([entry]))
}

/// A server with the group `owned` of these members.
async fn group_of(members: Value, expression: &str, existing_violations: &str) -> Server {
    let configuration = Configuration::new().with(
        "plugins",
        json!([{
            "name": "owned",
            "existingViolations": existing_violations,
            "group": {"members": members, "expression": expression, "message": MESSAGE},
        }]),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

/// The answer to a change of the object `old` into `new`. If the answer is a refusal, the result is its message.
async fn updated(server: &Server, new: &Value, old: &Value) -> Result<(), String> {
    let review = Review::update(new.clone(), old.clone()).build();
    let answer = server.validate(&review).await;
    let checked = answer.checked(Endpoint::Validate, &review);
    if checked.allowed {
        return Ok(());
    }
    let status = status(&checked);
    Err(status["message"].as_str().unwrap_or_default().to_owned())
}

fn annotated(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"] = json!({"note": "changed"});
    object
}

fn labelled(labels: &[&str]) -> Value {
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    for label in labels {
        object["metadata"]["labels"][label] = json!("x");
    }
    object
}

async fn validated(server: &Server, labels: &[&str]) -> Checked {
    static REVIEWS: AtomicU32 = AtomicU32::new(0);
    let uid = format!("u-{}", REVIEWS.fetch_add(1, Ordering::Relaxed));
    let review = Review::create(labelled(labels)).uid(&uid).build();
    let answer = server.validate(&review).await;
    answer.checked(Endpoint::Validate, &review)
}

/// The members that the last review asked, such as `owner=denied team=allowed`.
async fn asked(server: &Server) -> String {
    let page = server.get_admin("/decisions?limit=1").await.json();
    let decision = &page["decisions"][0]["uid"];
    let uid = decision.as_str().expect("a decision");
    let whole = server.get_admin(&format!("/decisions/{uid}")).await;
    let whole = whole.json();
    let members = whole["decisions"][0]["plugins"][0]["members"].as_array();
    let members = members.into_iter().flatten().map(|member| {
        let text = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
        format!("{}={}", text("name"), text("ended"))
    });
    members.collect::<Vec<_>>().join(" ")
}

fn status(checked: &Checked) -> Value {
    assert!(!checked.allowed);
    checked.status.clone().expect("a refusal has a status")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expression_decides_and_asks_no_more_than_it_needs() {
    let server = Server::start(configuration(EXPRESSION, &json!({})));
    server.assert_all_loaded().await;

    assert!(validated(&server, &["owner"]).await.allowed);
    assert_eq!(asked(&server).await, "owner=allowed");

    let refused = status(&validated(&server, &[]).await);
    assert_eq!(asked(&server).await, "owner=denied team=denied");
    println!("{refused:#}");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with(&format!("owned: {MESSAGE}")),
        "{message}"
    );
    assert_eq!(refused["code"], 403);
    let causes = refused["details"]["causes"].as_array().expect("causes");
    let of = |index: usize, key: &str| causes[index][key].as_str().unwrap_or_default();
    assert_eq!(causes.len(), 2);
    assert_eq!(of(0, "field"), "metadata.labels[owner]");
    assert!(
        of(0, "message").contains("owner: label owner is required"),
        "{causes:?}"
    );
    assert!(
        of(1, "message").contains("team: label team is required"),
        "{causes:?}"
    );

    // The verdict depends on the member that fails.
    let refused = status(&validated(&server, &["team"]).await);
    assert_eq!(
        asked(&server).await,
        "owner=denied team=allowed broken=fault"
    );
    let message = refused["message"].as_str().unwrap_or_default();
    assert_eq!(refused["code"], 500);
    assert!(message.contains("member broken"), "{message}");

    let page = server.metrics().await;
    let calls = |plugin: &str, outcome: &str| {
        let labels = [("plugin", plugin), ("outcome", outcome)];
        metric(&page, "tollgate_plugin_calls_total", &labels)
    };
    assert_eq!(calls("owned", "allowed"), 1.0);
    assert_eq!(calls("owned", "denied"), 1.0);
    assert_eq!(calls("owned", "fault"), 1.0);
    assert_eq!(calls("owned.owner", "denied"), 2.0);
    assert_eq!(calls("owned.team", "allowed"), 1.0);
    assert_eq!(calls("owned.broken", "fault"), 1.0);

    let shown = server.plugin_status("owned").await;
    assert_eq!(shown["group"]["expression"], EXPRESSION);
    assert_eq!(shown["exports"], json!(["validate"]));
    let members = shown["group"]["members"].as_array().expect("members");
    let names: Vec<&Value> = members.iter().map(|member| &member["name"]).collect();
    assert_eq!(names, ["owner", "team", "broken"]);
    let url = format!("https://localhost:{}", server.address().port());
    let config = server.configuration().path();
    let config = config.to_str().expect("UTF-8");
    let printed = cli::run(&mut cli::command(&[
        "manifests",
        "--config",
        config,
        "--url",
        &url,
    ]));
    printed.assert(0, &["kind: ValidatingWebhookConfiguration"]);
    assert!(
        !printed.said().contains("kind: MutatingWebhook"),
        "{}",
        printed.said()
    );

    // A member is not called on its own.
    let review = Review::create(labelled(&[])).build();
    let answer = server.post("/validate/owned.team", &review).await;
    assert_ne!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_that_no_result_depends_on_is_passed_over() {
    let server = Server::start(configuration("broken() || owner() || team()", &json!({})));
    server.assert_all_loaded().await;
    assert!(validated(&server, &["team"]).await.allowed);
    assert_eq!(
        asked(&server).await,
        "broken=fault owner=denied team=allowed"
    );
    let page = server.metrics().await;
    let faults = [("plugin", "owned.broken"), ("fault", "trap")];
    assert_eq!(metric(&page, "tollgate_plugin_faults_total", &faults), 1.0);
    let faults = [("plugin", "owned"), ("fault", "trap")];
    assert_eq!(metric(&page, "tollgate_plugin_faults_total", &faults), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_failure_policy_and_exceptions_are_those_of_the_group() {
    let more = json!({"mode": "warn"});
    let server = Server::start(configuration("all", &more));
    // The server does not wait for a group that denies nothing.
    until("the group warns", async || {
        let checked = validated(&server, &[]).await;
        assert!(checked.allowed);
        format!("{:?}", checked.warnings).contains(MESSAGE)
    })
    .await;
    drop(server);

    let more = json!({
        "failurePolicy": "Ignore",
        "exceptions": [{"namespaces": ["elsewhere"], "until": "2999-01-01", "reason": "moves"}],
    });
    let server = Server::start(configuration("all", &more));
    let mut elsewhere = labelled(&[]);
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let mut review = Review::create(elsewhere).build();
    review["request"]["namespace"] = json!("elsewhere");
    let answer = server.validate(&review).await;
    assert!(answer.checked(Endpoint::Validate, &review).allowed);
    assert_eq!(asked(&server).await, "");
    assert!(!validated(&server, &["owner"]).await.allowed);
    let checked = validated(&server, &["owner", "team"]).await;
    assert!(checked.allowed);
    let failed_open = &checked.audit_annotations["owned.failed-open"];
    assert_eq!(failed_open, "trap");
}

/// A member that the expression did not need may deny something new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_violation_excuses_no_new_one_of_another_member() {
    let members = json!([requires("owner"), requires("team")]);
    let server = group_of(members.clone(), "all", "allow").await;
    let (none, team) = (labelled(&[]), labelled(&["team"]));
    assert_eq!(updated(&server, &annotated(&team), &team).await, Ok(()));
    assert_eq!(asked(&server).await, "owner=denied team=allowed");
    assert_eq!(updated(&server, &annotated(&none), &none).await, Ok(()));
    let refused = updated(&server, &none, &team)
        .await
        .expect_err("team is gone");
    assert!(
        refused.contains("team: label team is required"),
        "{refused}"
    );
    assert!(!refused.contains("owner: label"), "{refused}");
    let owner = labelled(&["owner"]);
    assert_eq!(updated(&server, &owner, &none).await, Ok(()));

    // The group allowed the old object, although one of its members denied it.
    let server = group_of(members, "any", "allow").await;
    assert!(updated(&server, &none, &team).await.is_err());
    assert_eq!(updated(&server, &annotated(&none), &none).await, Ok(()));
}

/// A group can deny because a member allows, so there is no reason to compare.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_violation_of_a_negation_excuses_no_new_one() {
    let members = json!([requires("owner"), requires("team")]);
    let server = group_of(members, "!owner() && team()", "allow").await;
    let (owner, both) = (labelled(&["owner"]), labelled(&["owner", "team"]));
    assert_eq!(updated(&server, &annotated(&owner), &owner).await, Ok(()));
    assert_eq!(updated(&server, &annotated(&both), &both).await, Ok(()));
    let refused = updated(&server, &owner, &both)
        .await
        .expect_err("team is gone");
    assert!(
        refused.contains("team: label team is required"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizer_stays_if_a_member_denies_its_removal() {
    let mut old = labelled(&[]);
    old["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:00:00Z");
    old["metadata"]["finalizers"] = json!(["example.com/keep"]);
    let mut released = old.clone();
    released["metadata"]["finalizers"] = json!([]);
    let lock = json!({
        "name": "lock",
        "source": format!("file:{}", guests::build("actor").display()),
        "settings": {"only": {"user": "admin", "field": "/metadata/finalizers", "looks_at": ["/kind"]}},
    });
    for existing_violations in ["deny", "allow"] {
        let members = json!([requires("owner"), lock]);
        let server = group_of(members, "all", existing_violations).await;
        let refused = updated(&server, &released, &old).await;
        let refused = refused.expect_err("the lock is for others");
        assert!(refused.contains("lock: is not yours"), "{refused}");
    }
    for expression in ["all", "!owner() && !team()"] {
        let labels = labelled(&["owner", "team"]);
        let of = |object: &Value| {
            let mut object = object.clone();
            if expression != "all" {
                object["metadata"]["labels"] = labels["metadata"]["labels"].clone();
            }
            object
        };
        let members = json!([requires("owner"), requires("team")]);
        let server = group_of(members, expression, "deny").await;
        assert_eq!(updated(&server, &of(&released), &of(&old)).await, Ok(()));
        assert!(
            updated(&server, &annotated(&of(&old)), &of(&old))
                .await
                .is_err()
        );
    }
}

/// Nobody knows which requests a member without code is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_without_match_gets_every_request_while_a_member_is_missing() {
    let configuration = Configuration::new();
    let late = configuration.folder().join("late.wasm");
    let missing = json!({
        "name": "late", "source": format!("file:{}", late.display()), "settings": {"labels": {"cost": null}},
    });
    let configuration = configuration.with(
        "plugins",
        json!([{
            "name": "owned",
            "group": {"members": [requires("owner"), missing], "expression": "all", "message": MESSAGE},
        }]),
    );
    let server = Server::start(configuration);
    let mut object = config_map("settings", serde_json::Map::new());
    object["metadata"]["labels"] = json!({"owner": "x"});
    let review = Review::create(object).build();
    let reviewed = async || {
        let answer = server.validate(&review).await;
        answer.checked(Endpoint::Validate, &review)
    };
    let refused = status(&reviewed().await);
    let message = refused["message"].as_str().unwrap_or_default();
    assert_eq!(refused["code"], 500);
    assert!(message.contains("not-loaded"), "{message}");
    fs::copy(guests::build("required-labels"), &late).expect("the file can be copied");
    until("the rules of both members are known", async || {
        reviewed().await.allowed
    })
    .await;
}

/// The answer of the group does not depend on the fault, so the log has to show it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_of_a_member_is_logged() {
    let server = Server::start(configuration("broken() || owner() || team()", &json!({})));
    server.assert_all_loaded().await;
    assert!(validated(&server, &["team"]).await.allowed);
    let logs = server.logs().join("\n");
    let of_member = logs
        .lines()
        .any(|line| line.contains("owned.broken") && line.contains("trap"));
    assert!(of_member, "{logs}");
}

/// A group changes as a whole: as long as a new member is not loaded, the previous group decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_group_takes_effect_when_all_members_are_loaded() {
    let server = Server::start(configuration("owner() && (team() || broken())", &json!({})));
    server.assert_all_loaded().await;
    assert!(!validated(&server, &["owner"]).await.allowed);
    assert!(validated(&server, &["owner", "team"]).await.allowed);

    let file = server.configuration().path();
    let text = fs::read_to_string(&file).expect("the configuration");
    let mut document: Value = serde_json::from_str(&text).expect("JSON");
    let late = server.configuration().folder().join("late.wasm");
    let group = &mut document["plugins"][0]["group"];
    group["expression"] = json!("owner() && late()");
    group["members"] = json!([
        requires("owner"),
        {"name": "late", "source": format!("file:{}", late.display()), "settings": {"labels": {"cost": null}}},
    ]);
    fs::write(&file, document.to_string()).expect("the file can be written");
    until("the new member is in trouble", async || {
        let page = server.get_admin("/plugins").await.json();
        page["state"] == "degraded"
    })
    .await;
    let shown = server.plugin_status("owned").await;
    println!("/plugins: {shown:#}");
    assert!(validated(&server, &["owner", "team"]).await.allowed);
    assert!(!validated(&server, &["owner", "cost"]).await.allowed);

    fs::copy(guests::build("required-labels"), &late).expect("the file can be copied");
    until("the new group decides", async || {
        let allowed = validated(&server, &["owner", "cost"]).await.allowed;
        allowed && !validated(&server, &["owner", "team"]).await.allowed
    })
    .await;
    let shown = server.plugin_status("owned").await;
    assert_eq!(shown["state"], "loaded", "{shown:#}");

    // A swap is recorded after it is published.
    let records = server.configuration().folder().join("artifacts/last-good");
    until("the new group is recorded", async || {
        let folders = fs::read_dir(&records).expect("the records").flatten();
        let texts = folders.filter_map(|folder| {
            fs::read_to_string(folder.path().join("configuration.last-good")).ok()
        });
        texts
            .into_iter()
            .any(|text| text.contains("owner() && late()"))
    })
    .await;
    // A restart without the file of a member recalls it.
    let configuration = server.kill();
    fs::remove_file(&late).expect("the file is there");
    let server = Start::default().as_it_is().start(configuration);
    until("the group decides again", async || {
        validated(&server, &["owner", "cost"]).await.allowed
    })
    .await;
    assert!(!validated(&server, &["owner"]).await.allowed);
}

#[test]
fn command_line_shows_the_group_and_its_members() {
    let configuration = configuration(EXPRESSION, &json!({}));
    let config = configuration.write();
    let config = config.to_str().expect("UTF-8");
    let checked = cli::run(&mut cli::command(&["check", "--config", config]));
    println!("{}", checked.said());
    checked.assert(
        0,
        &[
            "configuration: valid, 1 plugin(s)",
            "owned: ok, group, allows owner() || (team() && !broken())",
            "  owner: version",
            "its own rules differ from those of the first member",
        ],
    );
    let object = configuration.folder().join("pod.json");
    fs::write(&object, labelled(&[]).to_string()).expect("the file can be written");
    let object = object.to_str().expect("UTF-8");
    let reviewed = cli::run(&mut cli::command(&["review", "--config", config, object]));
    println!("{}", reviewed.said());
    reviewed.assert(
        1,
        &[MESSAGE, "members asked: owner denied (fuel ", "team denied"],
    );
}

/// A plugin that only mutates has no verdict.
#[test]
fn mutator_is_no_member() {
    let configuration = Configuration::new();
    let file = configuration.folder().join("rewrite.wasm");
    fs::write(&file, wat::plugin("mutator", "")).expect("the file can be written");
    let configuration = configuration.with(
        "plugins",
        json!([{
            "name": "owned",
            "group": {
                "members": [{
                    "name": "rewrite", "source": format!("file:{}", file.display()),
                }],
                "expression": "all", "message": MESSAGE,
            },
        }]),
    );
    let config = configuration.write();
    let config = config.to_str().expect("UTF-8");
    let checked = cli::run(&mut cli::command(&["check", "--config", config]));
    checked.assert(
        1,
        &["owned: NOT LOADED (group of rewrite): member rewrite: "],
    );
}
