//! A decision can be explained later, without any content of the reviewed object.

use std::process::Command;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod, secret};
use tollgate_tests::server::Server;
use tollgate_tests::{binary, guests};

fn configuration() -> Configuration {
    let mut configuration = Configuration::new();
    let rewrite = json!({"rewrite": [{"from": "k8s.gcr.io/", "to": "registry.k8s.io/"}]});
    let two_rules = json!({"rules": [
        {"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]},
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]},
    ]});
    configuration.plugin(
        "image-rewrite",
        &guests::build("image-rewrite"),
        json!({"settings": rewrite, "match": two_rules}),
    );
    let labels = guests::build("required-labels");
    let everything = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    let mut elsewhere = everything.clone();
    elsewhere["namespaces"] = json!(["elsewhere"]);
    for (name, matching) in [("team", everything.clone()), ("elsewhere", elsewhere)] {
        let more = json!({"match": matching, "settings": {"labels": {"team": null}}});
        configuration.plugin(name, &labels, more);
    }
    let mut selected = everything.clone();
    selected["objectSelector"] = json!({"matchLabels": {"tier": "db"}});
    let more = json!({"match": selected, "settings": {"labels": {"team": null}}});
    configuration.plugin("selected", &labels, more);
    let exception =
        json!({"namespaces": ["default"], "until": "2999-12-31", "reason": "moving house"});
    let more = json!({"match": everything, "settings": {"labels": {"team": null}}, "exceptions": [exception]});
    configuration.plugin("excused", &labels, more);
    let starved = json!({
        "match": everything, "settings": {"labels": {"team": null}}, "limits": {"fuel": 1000}, "failurePolicy": "Ignore",
    });
    configuration.plugin("starved", &labels, starved);
    configuration
}

fn explain(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    run(&[
        arguments,
        &["--admin", &format!("http://{}", server.admin_address())],
    ]
    .concat())
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary::tollgate())
        .arg("explain")
        .args(arguments)
        .output();
    let output = output.unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("tollgate explain {}:\n{said}", arguments.join(" "));
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), said)
}

#[track_caller]
fn assert_says((code, said): &(Option<i32>, String), expected: i32, words: &[&str]) {
    assert_eq!(*code, Some(expected), "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in:\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_called_plugins_reasons_and_results() {
    let server = Server::start(configuration());
    server.assert_all_loaded().await;
    let mut object = pod("web");
    object["spec"]["containers"][0]["image"] = json!("k8s.gcr.io/pause:3.9");
    server
        .mutate(&Review::create(object.clone()).uid("u-mutate").build())
        .await;
    server
        .validate(&Review::create(object).uid("u-validate").build())
        .await;

    let mutated = explain(&server, &["u-mutate"]);
    assert_says(
        &mutated,
        0,
        &[
            "Pod default/web: allowed at /mutate",
            "CREATE pods (core, v1) by jane",
            "patch of 2 operation(s)",
            "image-rewrite  patched",
            "rule 1 of /plugins matched",
            "changed /metadata/annotations, /spec/containers/0/image",
            "not called: it does not mutate",
        ],
    );
    let validated = explain(&server, &["u-validate"]);
    assert_says(
        &validated,
        0,
        &[
            "Pod default/web: denied (403) at /validate",
            "denied because of /metadata/labels/team",
            "fault out-of-fuel, failurePolicy Ignore: out of fuel: the plugin used all 1000 units (limits.fuel)",
            "elsewhere      not called: a rule matches, but `namespaces` or `excludeNamespaces` excludes this \
             namespace",
            "image-rewrite  not called: it does not validate",
            "selected       not called: a rule matches, but its `objectSelector` does not",
            "not called because of an exception: moving house (until 2999-12-31)",
        ],
    );
    let list = explain(&server, &[]);
    assert_says(&list, 0, &["u-validate", "u-mutate", "denied"]);
    assert!(
        list.1.find("u-validate") < list.1.find("u-mutate"),
        "the newest first: {}",
        list.1
    );

    let (_, text) = explain(&server, &["u-mutate", "-o", "json"]);
    let whole: Value = serde_json::from_str(&text).expect("JSON was asked for");
    let plugin = &whole["decisions"][0]["plugins"][0];
    assert_eq!(
        (&plugin["name"], &plugin["rule"]),
        (&json!("image-rewrite"), &json!(1))
    );
    assert!(plugin["fuel"].as_u64() > Some(0) && plugin["milliseconds"].as_f64() > Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_no_secrets_and_no_plugin_texts() {
    let server = Server::start(configuration());
    let loot = secret("loot", "bWFya2Vy", "marker", "{\"marker\":1}");
    let review = Review::create(loot).uid("u-1").build();
    server.mutate(&review).await;
    let answer = server.validate(&review).await.json();
    let message = answer["response"]["status"]["message"].as_str();
    let message = message.and_then(|message| message.strip_suffix(" (review u-1)"));
    let message = message.expect("the review is denied, and the message ends with its uid");
    for page in ["/decisions", "/decisions/u-1"] {
        let page = server.get_admin(page).await;
        assert_eq!(page.status, 200);
        let text = page.text();
        assert!(text.contains("loot"), "names are shown: {text}");
        for withheld in ["marker", "bWFya2Vy", message] {
            assert!(!text.contains(withheld), "`{withheld}` is in {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_configured_number_of_decisions_and_reports_missing_ones() {
    let configuration = configuration().with("admin.decisions", json!({"maxCount": 2}));
    let server = Server::start(configuration);
    for uid in ["u-1", "u-2", "u-3"] {
        server
            .mutate(&Review::create(pod("web")).uid(uid).build())
            .await;
    }
    let page = server.get_admin("/decisions").await.json();
    assert_eq!(
        page["decisions"].as_array().map(Vec::len),
        Some(2),
        "{page}"
    );
    assert_says(
        &explain(&server, &["u-1"]),
        2,
        &[
            "has no decision u-1",
            "admin.decisions",
            "list its decisions with `tollgate explain` without a uid",
        ],
    );
    assert_eq!(server.get_admin("/decisions/u-1").await.status, 404);
    assert_says(&explain(&server, &["u-3"]), 0, &["uid u-3"]);
    assert_says(&explain(&server, &["a/../b"]), 2, &["is not a uid"]);
    let admin = format!("http://{}", server.admin_address());
    drop(server);
    assert_says(
        &run(&["u-3", "--admin", &admin]),
        2,
        &["cannot connect to", "admin.listen"],
    );
    assert_says(
        &run(&["u-3", "--admin", "https://localhost:1"]),
        2,
        &["cannot connect to https://localhost:1/", "admin.listen"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_no_decisions_if_configured_with_zero() {
    let configuration = configuration().with("admin.decisions", json!({"maxCount": 0}));
    let server = Server::start(configuration);
    server.mutate(&Review::create(pod("web")).build()).await;
    assert_says(
        &explain(&server, &[]),
        0,
        &["no decisions yet, or none are kept"],
    );
}
