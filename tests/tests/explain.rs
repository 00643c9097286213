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

/// Starts a replica whose admin listener wants a token, with a certificate for the Service.
fn replica(token: &str) -> Server {
    let mut configuration = Configuration::new();
    configuration.sample("required-labels", &json!({"labels": {"team": null}}));
    let tokens = configuration.folder().join("tokens");
    std::fs::write(&tokens, token).expect("the token can be written");
    Server::start(
        configuration
            .with("tls.selfSigned.service", "tollgate.tollgate-system")
            .with(
                "admin.authentication",
                json!({"bearer": {"file": tokens.display().to_string()}}),
            ),
    )
}

/// The EndpointSlice of one replica, as kube-apiserver would have it.
fn endpoint_slice(name: &str, port: u16) -> String {
    let labels = json!({"kubernetes.io/service-name": "tollgate-peers"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "tollgate-system", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "admin", "port": port}],
        "endpoints": [{"addresses": ["127.0.0.1"], "targetRef": {"kind": "Pod", "name": name}}],
    });
    format!("---\n{slice}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_all_replicas_and_names_those_that_do_not_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (replica("secret"), replica("secret"));
    let stranger = replica("another");
    for (server, uid) in [
        (&first, "u-first"),
        (&second, "u-second"),
        (&first, "u-last"),
    ] {
        let review = Review::create(pod("web")).uid(uid).build();
        server.validate(&review).await;
        // The times of decisions have milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let slices = [("pod-a", &first), ("pod-b", &second), ("pod-c", &stranger)];
    let slices: String = slices
        .iter()
        .map(|(name, server)| endpoint_slice(name, server.admin_address().port()))
        .collect();
    // Nobody listens on this port.
    let slices = slices + &endpoint_slice("pod-d", 1);
    let bundles = [&first, &second, &stranger]
        .map(|server| std::fs::read_to_string(server.ca_bundle()).expect("a CA"));
    for (name, text) in [
        ("slices.yaml", slices),
        ("ca.crt", bundles.concat()),
        ("token", "secret".to_owned()),
    ] {
        std::fs::write(path(name), text).expect("the file can be written");
    }
    let (slices, ca, token) = (path("slices.yaml"), path("ca.crt"), path("token"));
    let ask = |arguments: &[&str]| {
        let service = ["--service", "tollgate-system/tollgate", "--live", &slices];
        let access = ["--certificate-authority", &ca, "--token-file", &token];
        run(&[arguments, &service[..], &access[..]].concat())
    };
    let missing = [
        "replica pod-c did not answer",
        "requires authentication",
        "replica pod-d did not answer",
    ];
    let (code, list) = ask(&[]);
    assert_says(&(code, list.clone()), 0, &missing);
    let places: Vec<Option<usize>> = ["u-last", "u-second", "u-first"]
        .iter()
        .map(|uid| list.find(uid))
        .collect();
    assert!(places.is_sorted() && places[0].is_some(), "{list}");
    let second = ask(&["u-second"]);
    assert_says(
        &second,
        0,
        &["uid u-second", "on replica pod-b", missing[0]],
    );
    let (_, text) = ask(&["u-first", "-o", "json"]);
    let text = text.split("tollgate: replica").next().unwrap_or_default();
    let answer: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(answer["decisions"][0]["replica"], "pod-a");
    assert_eq!(answer["unanswered"][1]["replica"], "pod-d");
    let unknown = ask(&["u-nowhere"]);
    assert_says(
        &unknown,
        2,
        &["no replica has a decision", "2 of 4 answered"],
    );
    // Without the CA, it is read from the webhook configurations. These are missing.
    let service = ["--service", "tollgate-system/tollgate", "--live", &slices];
    assert_says(&run(&service), 2, &["the CA of the replicas is not known"]);
    let other = ["--service", "tollgate-system/other", "--live", &slices];
    let other = [&other[..], &["--certificate-authority", &ca]].concat();
    assert_says(&run(&other), 2, &["admin.enabled"]);
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
