//! Calls that get the answer of an earlier call: the same answers and the same fuel as calls that run.

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod, secret};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::{guests, languages};

/// Number of random reviews.
const REVIEWS: usize = 2_000;

/// Numbers that are the same in every run.
struct Random(u64);

// === impl Random ===

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    fn of(&mut self, values: &[Value]) -> Value {
        values[self.below(values.len())].clone()
    }
}

/// Starts a server whose plugins have something to say about most Pods.
async fn start(answer_cache: &str) -> (Server, Vec<String>) {
    let mut configuration = Configuration::new()
        .with("engine.answerCache", answer_cache)
        .with(
            "admin.decisions",
            json!({"maxCount": 100, "maxBytes": "16Mi"}),
        );
    let rules = json!([{
        "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    }]);
    let mut names = Vec::new();
    let mut sample = |name: &str, package: &str, settings: Value, more: Value| {
        names.push(name.to_owned());
        let mut keys = json!({"settings": settings, "match": {"rules": rules}});
        for (key, value) in more.as_object().into_iter().flatten() {
            keys[key] = value.clone();
        }
        configuration.plugin(name, &guests::build(package), keys);
    };
    let labels = json!({"labels": {"app": null, "team": "[a-z]+"}, "annotations": {"note": null}});
    sample(
        "required-labels",
        "required-labels",
        labels,
        json!({"existingViolations": "allow"}),
    );
    let rewrite =
        json!({"rewrite": [{"from": "registry.example.com/", "to": "mirror.example.com/"}]});
    sample("image-rewrite", "image-rewrite", rewrite, json!({}));
    let registries = json!({"allowed": ["mirror.example.com"]});
    sample(
        "trusted-registries",
        "trusted-registries",
        registries,
        json!({}),
    );
    sample("pod-security", "pod-security", json!({}), json!({}));
    sample(
        "always-pull-images",
        "always-pull-images",
        json!({}),
        json!({}),
    );
    sample(
        "forbidden-text",
        "forbidden-text",
        json!({"text": "nginx"}),
        json!({}),
    );
    let actor = json!({
        "forbid": {"/spec/containers/*/name": "c2", "/metadata/labels/*": "red"},
        "only": {"user": "jane", "field": "/spec", "looks_at": ["/metadata/name", "/spec/restartPolicy"]},
        "warn": "look at this",
    });
    sample("actor", "actor", actor, json!({}));
    let policy = json!({
        "policy": {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": rules},
                "validations": [
                    {"expression": "!has(object.spec.containers) || object.spec.containers.all(c, !has(c.image) || c.image != 'nginx')",
                        "message": "nginx"},
                    {"expression": "object.metadata.labels.all(k, v, k != 'tier' || v in ['web', 'db'])", "reason": "Invalid"},
                ],
            },
        },
        "bindings": [{
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
        }],
    });
    sample("cel", "cel-policy", policy, json!({}));
    let template = json!({
        "template": {
            "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "named"},
            "spec": {
                "crd": {"spec": {"names": {"kind": "Named"}}},
                "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "
                    package named
                    violation[{\"msg\": msg}] {
                        c := input.review.object.spec.containers[_]
                        not c.image
                        msg := sprintf(\"%v has no image\", [c.name])
                    }
                    violation[{\"msg\": \"privileged\"}] { input.review.object.spec.containers[_].securityContext.privileged }
                "}],
            },
        },
        "constraints": [{
            "apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Named", "metadata": {"name": "all"},
            "spec": {"match": {"kinds": [{"apiGroups": ["*"], "kinds": ["*"]}]}},
        }],
    });
    sample("rego", "rego", template, json!({}));
    for name in ["c", "javascript", "zig"] {
        let file = languages::output(name).join("trusted-registries.wasm");
        if file.is_file() {
            let settings = json!({"allowed": ["mirror.example.com", "docker.io"]});
            let keys = json!({"settings": settings, "match": {"rules": rules}});
            let name = format!("in-{name}");
            configuration.plugin(&name, &file, keys);
            names.push(name);
        }
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    (server, names)
}

/// Makes a Pod of parts that come again and again.
fn random_pod(random: &mut Random) -> Value {
    let mut object = pod("web");
    let names = [json!("web"), json!("db"), json!(""), json!("web-1")];
    object["metadata"]["name"] = random.of(&names);
    let teams = [
        json!("blue"),
        json!("red"),
        json!("Blue"),
        json!(""),
        json!("x".repeat(9_000)),
    ];
    for (label, values) in [
        ("app", &[json!("web")][..]),
        ("team", &teams[..]),
        ("tier", &[json!("web"), json!("cache")][..]),
    ] {
        if random.below(3) > 0 {
            // Long values are rare.
            let few = if random.below(20) > 0 {
                values.len().min(3)
            } else {
                values.len()
            };
            object["metadata"]["labels"][label] = random.of(&values[..few]);
        }
    }
    if random.below(4) > 0 {
        object["metadata"]["annotations"] =
            json!({"note": "x", "other": random.below(3).to_string()});
    }
    let images = [
        json!("registry.example.com/app:1"),
        json!("mirror.example.com/app:1"),
        json!("nginx"),
        json!(7),
        Value::Null,
    ];
    let containers = (0..random.below(4)).map(|index| {
        let mut container = json!({"name": format!("c{index}"), "image": random.of(&images)});
        if random.below(5) == 0 {
            container
                .as_object_mut()
                .expect("an object")
                .remove("image");
        }
        if random.below(4) == 0 {
            container["securityContext"] =
                json!({"privileged": random.below(2) == 0, "runAsUser": random.below(3)});
        }
        container
    });
    object["spec"]["containers"] = containers.collect::<Vec<_>>().into();
    match random.below(12) {
        0 => object["spec"]["hostNetwork"] = json!(true),
        1 => object["spec"]["containers"] = json!({"c0": {"image": "nginx"}}),
        2 => drop(object.as_object_mut().expect("an object").remove("spec")),
        3 => {
            object["spec"]["priority"] =
                random.of(&[json!(1), json!(1.0), json!(-0.0), json!(1e30)])
        }
        _ => {}
    }
    object
}

fn random_review(random: &mut Random, number: usize) -> Value {
    let object = random_pod(random);
    let review = match random.below(8) {
        0 | 1 => Review::update(object, random_pod(random)),
        2 => Review::delete(object),
        3 if number.is_multiple_of(7) => Review::create(secret("s", "YQ==", "b", "c")),
        _ => Review::create(object),
    };
    let mut review = review.uid(&format!("review-{number}")).build();
    if random.below(5) == 0 {
        review["request"]["userInfo"]["username"] = json!("joe");
    }
    review
}

/// The calls of a review at both endpoints, with the fuel and the end of each.
async fn calls(server: &Server, uid: &str) -> Vec<Value> {
    let mut calls = Vec::new();
    for decision in decisions(server, uid).await {
        for call in decision["plugins"].as_array().into_iter().flatten() {
            let fuel = call["fuel"].as_u64();
            let fuel = fuel.unwrap_or_else(|| panic!("no fuel: {decision:#}"));
            calls.push(json!([call["name"], call["ended"], fuel]));
        }
    }
    calls
}

/// The decisions about a review.
async fn decisions(server: &Server, uid: &str) -> Vec<Value> {
    let page = server.get_admin(&format!("/decisions/{uid}")).await.json();
    let decisions = page["decisions"].as_array().cloned();
    decisions.unwrap_or_else(|| panic!("no decisions: {page:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reused_answers_are_those_of_calls_that_run() {
    let (reusing, names) = start("8Mi").await;
    let (running, _) = start("0").await;
    let mut random = Random(0x7011_6a7e);
    let mut compared = 0;
    for number in 0..REVIEWS {
        let review = random_review(&mut random, number);
        for path in ["/mutate", "/validate"] {
            let (one, other) =
                tokio::join!(reusing.post(path, &review), running.post(path, &review));
            assert_eq!(one.status, other.status, "{path} {review:#}");
            assert_eq!(one.text(), other.text(), "{path} {review:#}");
        }
        let uid = format!("review-{number}");
        let (one, other) = tokio::join!(calls(&reusing, &uid), calls(&running, &uid));
        assert_eq!(one, other, "{review:#}");
        compared += one.len();
    }
    assert!(
        compared > REVIEWS,
        "the fuel of {compared} calls was compared"
    );
    let page = reusing.metrics().await;
    let mut plugins = 0;
    for plugin in names {
        let count = |name: &str| metric(&page, name, &[("plugin", &plugin)]);
        let (calls, reused) = (
            count("tollgate_plugin_calls_total"),
            count("tollgate_plugin_reused_answers_total"),
        );
        println!("{plugin}: {calls} calls, {reused} of them had the answer of an earlier one");
        plugins += usize::from(reused > calls / 10.0);
    }
    assert!(plugins >= 5, "{plugins} plugins gave known answers");
    let logs = reusing.logs();
    let different: Vec<_> = logs
        .iter()
        .filter(|line| line.contains("differently"))
        .collect();
    assert!(different.is_empty(), "{different:?}");
    let none = metric(
        &running.metrics().await,
        "tollgate_plugin_reused_answers_total",
        &[],
    );
    assert_eq!(none, 0.0);
}

/// What an operator sees of a reused answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reused_answer_is_shown_as_such() {
    let mut configuration = Configuration::new();
    configuration.sample("required-labels", &json!({"labels": {"team": null}}));
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let review = |uid: &str, name: &str| Review::create(pod(name)).uid(uid).build();
    for (uid, name) in [("first", "a"), ("second", "b")] {
        assert_eq!(
            server.validate(&review(uid, name)).await.json()["response"]["allowed"],
            false
        );
    }
    let page = server.metrics().await;
    let labels = [("plugin", "required-labels"), ("phase", "validate")];
    assert_eq!(metric(&page, "tollgate_plugin_calls_total", &labels), 2.0);
    assert_eq!(
        metric(&page, "tollgate_plugin_reused_answers_total", &labels),
        1.0
    );
    let reused = async |uid: &str| decisions(&server, uid).await[0]["plugins"][0]["reused"].clone();
    let shown = (reused("first").await, reused("second").await);
    assert_eq!(shown, (Value::Null, json!(1)));
}

/// Sample plugins whose answers for Pods that differ in their names and uids are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_sample_plugins_are_reused_for_the_next_pod() {
    let sidecars =
        json!({"injectByDefault": true, "containers": [{"name": "logs", "image": "logs:1"}]});
    let samples = [
        ("always-pull-images", json!({})),
        ("disable-service-links", json!({})),
        ("pod-security", json!({})),
        ("sidecar-inject", sidecars),
    ];
    let mut configuration = Configuration::new();
    for (name, settings) in &samples {
        configuration.sample(name, settings);
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    for path in ["/mutate", "/validate"] {
        for name in ["a", "b"] {
            let review = Review::create(pod(name)).uid(&format!("{path}-{name}"));
            assert_eq!(server.post(path, &review.build()).await.status, 200);
        }
    }
    let page = server.metrics().await;
    for (name, _) in &samples {
        let count = |metric_name: &str| metric(&page, metric_name, &[("plugin", name)]);
        let calls = count("tollgate_plugin_calls_total");
        let reused = count("tollgate_plugin_reused_answers_total");
        assert_eq!(reused * 2.0, calls, "{name}");
        assert!(reused > 0.0, "{name}");
    }
}

/// Calls that depend on anything but the review, and calls about Secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_depend_on_the_review_alone_runs_every_time() {
    const REVIEWS: usize = 5;
    let mut configuration = Configuration::new();
    let day = json!({"from": "00:00", "to": "24:00"});
    let everything = json!({"rules": [{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    }]});
    for (name, package, keys) in [
        (
            "clock",
            "deploy-window",
            json!({"capabilities": ["clock"], "settings": {"windows": [day]}}),
        ),
        ("log", "actor", json!({"settings": {"log": "called"}})),
        ("request", "print-request", json!({})),
        (
            "known",
            "required-labels",
            json!({"settings": {"labels": {"app": null}}}),
        ),
    ] {
        let mut keys = keys;
        keys["match"] = everything.clone();
        configuration.plugin(name, &guests::build(package), keys);
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let counts = async |plugin: &str| {
        let page = server.metrics().await;
        let labels = [("plugin", plugin), ("phase", "validate")];
        ["calls", "reused_answers"]
            .map(|what| metric(&page, &format!("tollgate_plugin_{what}_total"), &labels))
    };
    let review = Review::create(pod("web")).build();
    for _ in 0..REVIEWS {
        assert_eq!(server.validate(&review).await.status, 200);
    }
    let calls = REVIEWS as f64;
    for plugin in ["clock", "log", "request"] {
        assert_eq!(counts(plugin).await, [calls, 0.0], "{plugin}");
    }
    assert_eq!(counts("known").await, [calls, calls - 1.0]);
    let review = Review::create(secret("s", "YQ==", "b", "c")).build();
    for _ in 0..REVIEWS {
        assert_eq!(server.validate(&review).await.status, 200);
    }
    assert_eq!(counts("known").await, [2.0 * calls, calls - 1.0]);
}
