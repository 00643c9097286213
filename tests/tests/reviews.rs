//! Every kind of review gets an answer that kube-apiserver accepts. The test covers both endpoints, both versions of
//! the review, both versions of HTTP, all plugins together and each plugin alone.

use std::collections::BTreeMap;

use reqwest::{Client, Version};
use serde_json::{Map, Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{
    Review, SharedReview, as_sent, config_map, pod, secret, shared_reviews,
};
use tollgate_tests::server::Server;

const MUTATORS: [&str; 2] = ["always-pull-images", "image-rewrite"];
const VALIDATORS: [&str; 2] = ["always-pull-images", "required-labels"];
const OTHER_MUTATORS: [&str; 5] = [
    "allow-annotation",
    "disable-service-links",
    "extended-resource-toleration",
    "sidecar-inject",
    "print-request",
];
const OTHER_VALIDATORS: [&str; 8] = [
    "allow-annotation",
    "deny-service-external-ips",
    "deploy-window",
    "frozen",
    "limit-pod-hard-anti-affinity-topology",
    "pod-security",
    "print-request",
    "security-context-deny",
];

/// Returns a `match` for all requests.
fn everything() -> Value {
    json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]})
}

/// Starts a server with all other sample plugins.
async fn server_of_the_other_samples() -> Server {
    let mut configuration = Configuration::new();
    let day = json!({"from": "00:00", "to": "24:00"});
    let ages = json!({"from": "2000-01-01", "to": "2999-12-31", "reason": "holidays"});
    let sidecar = json!({"name": "logs", "image": "ghcr.io/acme/logs:2.0"});
    for (name, package, keys) in [
        ("allow-annotation", "allow-annotation", json!({})),
        (
            "disable-service-links",
            "disable-service-links",
            json!({"settings": {"overrideTrue": true}}),
        ),
        (
            "sidecar-inject",
            "sidecar-inject",
            json!({"settings": {"injectByDefault": true, "containers": [sidecar]}, "reinvocationPolicy": "IfNeeded"}),
        ),
        (
            "deploy-window",
            "deploy-window",
            json!({"capabilities": ["clock"], "settings": {"windows": [day]}}),
        ),
        (
            "frozen",
            "deploy-window",
            json!({"capabilities": ["clock"], "settings": {"windows": [day], "freezes": [ages]}}),
        ),
        (
            "pod-security",
            "pod-security",
            json!({"settings": {"level": "restricted", "templates": "deny"}}),
        ),
        ("print-request", "print-request", json!({})),
        (
            "deny-service-external-ips",
            "deny-service-external-ips",
            json!({}),
        ),
        (
            "extended-resource-toleration",
            "extended-resource-toleration",
            json!({}),
        ),
        (
            "limit-pod-hard-anti-affinity-topology",
            "limit-pod-hard-anti-affinity-topology",
            json!({}),
        ),
        ("security-context-deny", "security-context-deny", json!({})),
    ] {
        let mut keys = keys;
        keys["match"] = everything();
        configuration.plugin(name, &guests::build(package), keys);
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

async fn server() -> Server {
    let mut configuration = Configuration::new();
    let everything = everything();
    configuration.plugin(
        "always-pull-images",
        &guests::build("always-pull-images"),
        json!({"match": everything}),
    );
    let rewrite = json!({"rewrite": [{"from": "k8s.gcr.io/", "to": "registry.k8s.io/"}]});
    configuration.plugin(
        "image-rewrite",
        &guests::build("image-rewrite"),
        json!({"match": everything, "settings": rewrite}),
    );
    let labels = json!({"labels": {"app": null, "owner": null}});
    configuration.plugin(
        "required-labels",
        &guests::build("required-labels"),
        json!({"match": everything, "settings": labels}),
    );
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

/// Returns the suite's own reviews, for machines without other ones.
fn own_reviews() -> Vec<SharedReview> {
    let mut no_name = pod("");
    no_name["metadata"] = json!({"generateName": "web-"});
    let mut large = pod("large");
    large["metadata"]["annotations"] = (0..2000)
        .map(|index| (format!("example.com/{index}"), json!("x".repeat(100))))
        .collect();
    let mut escaped = pod("escaped");
    escaped["metadata"]["annotations"] =
        json!({"html": "<a href=\"x\">&</a>", "other": "\u{1F6AA} ä \\ \" \u{2028}"});
    escaped["spec"]["containers"][0]["image"] = json!("k8s.gcr.io/pause:3.9");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "app", "image": "app"}]}}},
    });
    let reviews = [
        ("own-create", Review::create(pod("web"))),
        ("own-update", Review::update(pod("web"), escaped.clone())),
        ("own-delete", Review::delete(pod("web"))),
        ("own-exec", Review::exec("web")),
        ("own-generate-name", Review::create(no_name)),
        ("own-large", Review::create(large)),
        ("own-escaped", Review::create(escaped)),
        ("own-deployment", Review::create(deployment)),
        (
            "own-config-map",
            Review::create(config_map(
                "settings",
                Map::from_iter([("a".to_owned(), json!("b"))]),
            )),
        ),
        (
            "own-secret",
            Review::create(secret("loot", "aHVudGVyMg==", "hunter2", "{}")),
        ),
    ];
    let named = |(name, review): (&str, Review)| SharedReview {
        name: name.to_owned(),
        review: review.build(),
    };
    reviews.into_iter().map(named).collect()
}

fn in_version(review: &Value, version: &str) -> Value {
    let mut review = review.clone();
    review["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
    review
}

/// Returns the parts of an answer that must not depend on the version, the protocol or the time.
fn essence(checked: &Checked) -> Value {
    let mut warnings = checked.warnings.clone();
    warnings.sort();
    json!({
        "allowed": checked.allowed,
        "patch": checked.patch,
        "status": checked.status,
        "warnings": warnings,
        "annotations": checked.audit_annotations,
    })
}

async fn ask(
    server: &Server,
    client: &Client,
    version: Version,
    endpoint: Endpoint,
    path: &str,
    review: &Value,
) -> Checked {
    let answer = server.post_bytes(client, path, as_sent(review)).await;
    assert_eq!(answer.version, version, "{path}");
    answer.checked(endpoint, review)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_every_review_as_kube_apiserver_requires() {
    answer_every_review(server().await, &MUTATORS, &VALIDATORS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_samples_answer_as_kube_apiserver_requires() {
    let server = server_of_the_other_samples().await;
    answer_every_review(server, &OTHER_MUTATORS, &OTHER_VALIDATORS).await;
}

/// Sends every review to all plugins and to each alone, in both versions and over both protocols.
async fn answer_every_review(server: Server, mutators: &[&str], validators: &[&str]) {
    let clients = [
        (Version::HTTP_11, server.default_client().clone()),
        (
            Version::HTTP_2,
            server.client(|builder| builder.http2_prior_knowledge()),
        ),
    ];
    let mut reviews = own_reviews();
    let own = reviews.len();
    reviews.extend(shared_reviews());
    let mut answers = 0;
    let mut table = String::from("review | /mutate | /validate\n");
    for SharedReview { name, review } in &reviews {
        let mut line = name.clone();
        for (endpoint, path, plugins) in [
            (Endpoint::Mutate, "/mutate", mutators),
            (Endpoint::Validate, "/validate", validators),
        ] {
            let mut paths = vec![path.to_owned()];
            paths.extend(plugins.iter().map(|plugin| format!("{path}/{plugin}")));
            for path in &paths {
                let mut known: Option<Value> = None;
                for api_version in ["v1", "v1beta1"] {
                    let review = in_version(review, api_version);
                    for (version, client) in &clients {
                        let checked = ask(&server, client, *version, endpoint, path, &review).await;
                        answers += 1;
                        let essence = essence(&checked);
                        let known = known.get_or_insert_with(|| essence.clone());
                        assert_eq!(
                            *known, essence,
                            "{name} at {path}: {api_version} over {version:?} is answered differently"
                        );
                    }
                }
                if *path == paths[0] {
                    let known = known.unwrap_or_default();
                    let operations = known["patch"].as_array().map_or(0, Vec::len);
                    let code = &known["status"]["code"];
                    line.push_str(&format!(
                        " | allowed {}, {operations} operations, code {code}",
                        known["allowed"]
                    ));
                }
            }
        }
        table.push_str(&line);
        table.push('\n');
    }
    println!(
        "{table}{answers} answers to {own} reviews of its own and {} shared ones",
        reviews.len() - own
    );
    let stopped = server.stop();
    assert!(
        stopped.status.success(),
        "tollgate ended with {}",
        stopped.status
    );
    assert!(
        !stopped.logs.iter().any(|line| line.contains("\"ERROR\"")),
        "an error was logged: {:#?}",
        stopped.logs
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sample_plugins_do_their_work() {
    let server = server().await;
    let mut object = pod("web");
    object["spec"]["containers"] = json!([
        {"name": "app", "image": "k8s.gcr.io/pause:3.9", "imagePullPolicy": "IfNotPresent"},
        {"name": "side", "image": "registry.example.com/side:1"},
    ]);
    let review = Review::create(object).build();
    let mutated = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    assert!(mutated.allowed);
    let patched = mutated
        .patched_object
        .expect("two plugins changed the object");
    assert_eq!(
        patched["spec"]["containers"][0]["image"],
        "registry.k8s.io/pause:3.9"
    );
    for container in patched["spec"]["containers"]
        .as_array()
        .expect("there are containers")
    {
        assert_eq!(container["imagePullPolicy"], "Always");
    }
    for plugin in MUTATORS {
        assert!(
            mutated
                .audit_annotations
                .contains_key(&format!("{plugin}.patched")),
            "{:?}",
            mutated.audit_annotations
        );
    }
    let validated = server
        .validate(&review)
        .await
        .checked(Endpoint::Validate, &review);
    assert!(!validated.allowed);
    let status = validated.status.expect("a refusal has a status");
    let message = status["message"].as_str().unwrap_or_default();
    for plugin in VALIDATORS {
        assert!(
            message.contains(plugin),
            "{plugin} refuses and is not named in `{message}`"
        );
    }
    assert_eq!(status["code"], 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_other_bodies_without_verdict() {
    let server = server().await;
    let review = as_sent(&Review::create(pod("web")).build());
    let mut found = BTreeMap::new();
    for (path, body) in [
        ("/validate", b"{}".to_vec()),
        ("/validate", b"not json".to_vec()),
        ("/validate", Vec::new()),
        ("/validate/nobody", review.clone()),
        ("/nowhere", review.clone()),
        ("/validate/", review.clone()),
        ("/validate/a/b", review.clone()),
        ("/validate/a/b/c", review.clone()),
    ] {
        let size = body.len();
        let answer = server.post_bytes(server.default_client(), path, body).await;
        println!(
            "{path}, {size} bytes: HTTP {}: {}",
            answer.status,
            answer.text().trim()
        );
        // A plugin that the server does not have may be one that another replica knows already.
        let is_refused = match path {
            "/validate/nobody" | "/validate/a/b" => answer.status == 503,
            _ => (400..500).contains(&answer.status),
        };
        assert!(is_refused, "{path}: HTTP {}", answer.status);
        found.insert((path, size), answer.status);
    }
    // A plugin that does not take part in a phase has nothing to say about it.
    let body = review;
    let answer = server
        .post_bytes(server.default_client(), "/mutate/required-labels", body)
        .await;
    let response = &answer.json()["response"];
    assert_eq!(response["allowed"], true, "{response}");
    assert_eq!(response["patch"], Value::Null, "{response}");
    let get = server
        .default_client()
        .get(server.url("/validate"))
        .send()
        .await
        .expect("a GET is answered");
    assert_eq!(get.status().as_u16(), 405);
}
