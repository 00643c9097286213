//! From a user's complaint to the log record and the decision, and back to the user.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod, secret};
use tollgate_tests::server::Server;
use tollgate_tests::{binary, guests};

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// One plugin denies objects without the label `team`. Another plugin faults on everything, under Ignore.
fn configuration() -> Configuration {
    let labels = guests::build("required-labels");
    let everything = json!({"rules": [
        {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]},
    ]});
    let team = || json!({"match": everything.clone(), "settings": {"labels": {"team": null}}});
    let mut configuration = Configuration::new();
    configuration.plugin("team", &labels, team());
    let mut starved = team();
    starved["limits"] = json!({"fuel": 1000});
    starved["failurePolicy"] = json!("Ignore");
    configuration.plugin("starved", &labels, starved);
    configuration
}

/// Returns the log records that `is` selects, as JSON.
fn records(server: &Server, is: impl Fn(&Value) -> bool) -> Vec<Value> {
    let logs = server.logs().into_iter();
    let records = logs.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    records.filter(|record| is(record)).collect()
}

/// Waits for the record of the denial and that of the fault. A record may reach us after the answer.
async fn denials_and_faults(server: &Server) -> Vec<Value> {
    let found = || {
        records(server, |record| {
            record["message"] == "denied" || record["fault"] == "out-of-fuel"
        })
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while found().len() < 2 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let found = found();
    assert_eq!(found.len(), 2, "{found:#?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_leads_to_the_decision_and_to_log_records_that_name_the_user() {
    let server = Server::start(configuration());
    server.assert_all_loaded().await;
    let review = Review::create(pod("web")).uid(UID).build();
    let answer = server.validate(&review).await.json();
    let response = &answer["response"];
    let message = response["status"]["message"].as_str().unwrap_or_default();
    println!("the user reads: {message}");
    assert_eq!(response["auditAnnotations"]["review"], UID);
    let (_, prefix) = message.rsplit_once(" (review ").expect("the uid ends it");
    let prefix = prefix.trim_end_matches(')');

    // From the user's message to the decision.
    let output = Command::new(binary::tollgate())
        .args(["explain", prefix, "--admin"])
        .arg(format!("http://{}", server.admin_address()))
        .output()
        .expect("tollgate can be run");
    let explained = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{explained}");
    assert!(explained.contains(UID), "{explained}");
    assert!(
        explained.contains("Pod default/web: denied (403)"),
        "{explained}"
    );

    // From the message to the log records.
    let records = denials_and_faults(&server).await;
    for record in records {
        println!("{record}");
        let uid = record["uid"].as_str().unwrap_or_default();
        assert!(uid.starts_with(prefix), "{record}");
        for (field, expected) in [
            ("operation", json!("CREATE")),
            ("group", json!("")),
            ("kind", json!("Pod")),
            ("resource", json!("pods")),
            ("namespace", json!("default")),
            ("name", json!("web")),
            ("user", review["request"]["userInfo"]["username"].clone()),
            ("dry_run", json!(false)),
        ] {
            assert_eq!(record[field], expected, "{field} in {record}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_a_name_is_logged_by_what_its_name_is_made_of() {
    let server = Server::start(configuration());
    let mut object = pod("web");
    object["metadata"] = json!({"generateName": "web-"});
    let mut review = Review::create(object).build();
    review["request"]["name"] = json!("");
    review["request"]["dryRun"] = json!(true);
    server.validate(&review).await;
    for record in denials_and_faults(&server).await {
        assert_eq!(record["generate_name"], "web-", "{record}");
        assert_eq!(record["name"], Value::Null, "{record}");
        assert_eq!(record["dry_run"], true, "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_can_be_kept_out_of_the_log() {
    let server = Server::start(configuration().with("log", json!({"identities": false})));
    let review = Review::create(pod("web-of-jane")).uid(UID).build();
    server.validate(&review).await;
    let records = denials_and_faults(&server).await;
    for record in records {
        assert_eq!(record["uid"], UID, "{record}");
        assert_eq!(record["kind"], "Pod", "{record}");
        for field in ["namespace", "name", "generate_name", "user"] {
            assert_eq!(record[field], Value::Null, "{field} in {record}");
        }
    }
    let log = server.logs().join("\n");
    assert!(!log.contains("web-of-jane"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_secret_the_name_is_logged_and_nothing_else() {
    let server = Server::start(configuration());
    let review = Review::create(secret("loot", "bWFya2Vy", "marker", "{\"marker\":1}")).build();
    server.validate(&review).await;
    let records = denials_and_faults(&server).await;
    for record in records {
        assert_eq!(record["name"], "loot", "{record}");
    }
    let log = server.logs().join("\n");
    for withheld in ["marker", "bWFya2Vy"] {
        assert!(!log.contains(withheld), "`{withheld}` is in {log}");
    }
}
