//! Plugins that affect each other: second calls, conflicts, no convergence, and existing violations.

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, metric};

/// Adds a plugin that changes and denies Pods as its settings say.
fn actor(configuration: &mut Configuration, name: &str, settings: Value, more: Value) {
    let mut keys = json!({"settings": settings});
    for (key, value) in more.as_object().into_iter().flatten() {
        keys[key] = value.clone();
    }
    configuration.plugin(name, &guests::build("actor"), keys);
}

async fn start(configuration: Configuration) -> Server {
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

async fn mutated(server: &Server, object: Value) -> Checked {
    let review = Review::create(object).build();
    let answer = server.mutate(&review).await;
    answer.checked(Endpoint::Mutate, &review)
}

async fn updated(server: &Server, object: &Value, old_object: &Value) -> Checked {
    let review = Review::update(object.clone(), old_object.clone()).build();
    let answer = server.validate(&review).await;
    answer.checked(Endpoint::Validate, &review)
}

fn object(checked: &Checked) -> &Value {
    checked
        .patched_object
        .as_ref()
        .expect("the object is changed")
}

fn message(checked: &Checked) -> &str {
    let status = checked.status.as_ref().expect("a refusal has a status");
    status["message"].as_str().unwrap_or_default()
}

fn annotation<'c>(checked: &'c Checked, key: &str) -> Option<&'c str> {
    checked.audit_annotations.get(key).map(String::as_str)
}

/// The wrong order: the plugin that sets the pull policy of all containers runs before the one that adds a container.
async fn wrong_order(reinvocation_policy: &str) -> (Server, Checked) {
    let mut configuration = Configuration::new();
    configuration.plugin(
        "always-pull-images",
        &guests::build("always-pull-images"),
        json!({"reinvocationPolicy": reinvocation_policy}),
    );
    let sidecar = json!({"name": "proxy", "image": "proxy:1"});
    actor(
        &mut configuration,
        "inject",
        json!({"inject": {"/spec/containers": sidecar}}),
        json!({}),
    );
    let server = start(configuration).await;
    let checked = mutated(&server, pod("web")).await;
    assert!(checked.allowed, "{:?}", checked.status);
    (server, checked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_reinvocation_wrong_order_stays_wrong() {
    let (_server, checked) = wrong_order("Never").await;
    let containers = &object(&checked)["spec"]["containers"];
    assert_eq!(containers[0]["imagePullPolicy"], "Always");
    assert_eq!(containers[1]["name"], "proxy");
    assert_eq!(containers[1]["imagePullPolicy"], Value::Null);
    assert_eq!(annotation(&checked, "always-pull-images.reinvoked"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reinvocation_corrects_wrong_order() {
    let (server, checked) = wrong_order("IfNeeded").await;
    let containers = &object(&checked)["spec"]["containers"];
    assert_eq!(containers[0]["imagePullPolicy"], "Always");
    assert_eq!(containers[1]["name"], "proxy");
    assert_eq!(containers[1]["imagePullPolicy"], "Always");
    assert_eq!(
        annotation(&checked, "always-pull-images.reinvoked"),
        Some("patched")
    );
    assert_eq!(
        annotation(&checked, "always-pull-images.patched"),
        Some("/spec/containers/0/imagePullPolicy,/spec/containers/1/imagePullPolicy")
    );
    assert_eq!(
        annotation(&checked, "always-pull-images.not-converging"),
        None
    );
    assert_eq!(annotation(&checked, "inject.reinvoked"), None);
    // The second call changed the object, so a third call checked that nothing is left to change.
    let page = server.metrics().await;
    let calls = |plugin: &str| metric(&page, "tollgate_plugin_calls_total", &[("plugin", plugin)]);
    assert_eq!((calls("always-pull-images"), calls("inject")), (3.0, 1.0));
    let labels = [("plugin", "always-pull-images")];
    let counted = metric(&page, "tollgate_plugin_reinvocations_total", &labels);
    assert_eq!(counted, 1.0);
}

/// The two sample plugins in the wrong order: pull policies are set before containers are added.
async fn samples_in_the_wrong_order(reinvocation_policy: &str) -> Server {
    let mut configuration = Configuration::new();
    configuration.plugin(
        "always-pull-images",
        &guests::build("always-pull-images"),
        json!({"reinvocationPolicy": reinvocation_policy}),
    );
    let sidecars = json!({
        "injectByDefault": true,
        "initContainers": [{"name": "proxy", "image": "ghcr.io/acme/proxy:1.4", "restartPolicy": "Always", "imagePullPolicy": "IfNotPresent"}],
        "containers": [{"name": "logs", "image": "ghcr.io/acme/logs:2.0"}],
    });
    configuration.plugin(
        "sidecar-inject",
        &guests::build("sidecar-inject"),
        json!({"settings": sidecars}),
    );
    start(configuration).await
}

async fn created(server: &Server, object: &Value) -> Checked {
    let review = Review::create(object.clone()).build();
    let answer = server.validate(&review).await;
    answer.checked(Endpoint::Validate, &review)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validator_denies_sidecar_injected_too_late() {
    let server = samples_in_the_wrong_order("Never").await;
    let checked = mutated(&server, pod("web")).await;
    assert!(checked.allowed, "{:?}", checked.status);
    let spec = &object(&checked)["spec"];
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(spec["containers"][1]["name"], "logs");
    assert_eq!(spec["containers"][1]["imagePullPolicy"], Value::Null);
    assert_eq!(spec["initContainers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(
        annotation(&checked, "always-pull-images.patched"),
        Some("/spec/containers/0/imagePullPolicy")
    );

    let validated = created(&server, object(&checked)).await;
    assert!(!validated.allowed);
    assert_eq!(
        message(&validated),
        "always-pull-images: images must be pulled each time that a container starts \
         (spec.initContainers[0].imagePullPolicy: must be Always, spec.containers[1].imagePullPolicy: must be Always)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_call_corrects_late_sidecar() {
    let server = samples_in_the_wrong_order("IfNeeded").await;
    let checked = mutated(&server, pod("web")).await;
    assert!(checked.allowed, "{:?}", checked.status);
    let spec = &object(&checked)["spec"];
    let policies: Vec<&Value> = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten())
        .map(|container| &container["imagePullPolicy"])
        .collect();
    assert_eq!(policies, ["Always"; 3]);
    assert_eq!(
        annotation(&checked, "always-pull-images.reinvoked"),
        Some("patched")
    );
    // The sidecar came with its own policy. The second call overwrites it, and this is recorded.
    assert_eq!(
        annotation(&checked, "always-pull-images.conflicts"),
        Some("/spec/initContainers/0/imagePullPolicy (over sidecar-inject)")
    );
    assert_eq!(
        annotation(&checked, "always-pull-images.not-converging"),
        None
    );
    let validated = created(&server, object(&checked)).await;
    assert!(validated.allowed, "{:?}", validated.status);

    // kube-apiserver may call the whole chain again. The sidecars are then present, and nothing changes.
    let again = mutated(&server, object(&checked).clone()).await;
    assert!(again.allowed && again.patch.is_empty(), "{:?}", again.patch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_round_skips_unneeded_and_new_plugins() {
    let mut configuration = Configuration::new();
    let again = || json!({"reinvocationPolicy": "IfNeeded"});
    let late = json!({
        "reinvocationPolicy": "IfNeeded",
        "match": {
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "objectSelector": {"matchLabels": {"second": "yes"}},
        },
    });
    // This plugin matches only after the next one has run.
    actor(
        &mut configuration,
        "late",
        json!({"set": {"/metadata/labels/late": "yes"}}),
        late,
    );
    actor(
        &mut configuration,
        "second",
        json!({"set": {"/metadata/labels/second": "yes"}}),
        again(),
    );
    actor(&mut configuration, "idle", json!({}), json!({}));
    let server = start(configuration).await;
    let checked = mutated(&server, pod("web")).await;
    let labels = &object(&checked)["metadata"]["labels"];
    assert_eq!(
        (&labels["second"], &labels["late"]),
        (&json!("yes"), &Value::Null)
    );
    let page = server.metrics().await;
    let calls = |plugin: &str| metric(&page, "tollgate_plugin_calls_total", &[("plugin", plugin)]);
    assert_eq!(
        (calls("late"), calls("second"), calls("idle")),
        (0.0, 1.0, 1.0)
    );
}

/// Two mutators that want different values of one label.
fn disputed(policies: [&str; 2], failure_policy: &str) -> Configuration {
    let mut configuration = Configuration::new();
    for (name, policy) in ["red", "blue"].into_iter().zip(policies) {
        let keys = json!({"reinvocationPolicy": policy, "failurePolicy": failure_policy});
        let settings = json!({"set": {"/metadata/labels/colour": name}});
        actor(&mut configuration, name, settings, keys);
    }
    configuration
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denies_chain_that_never_converges_with_fail() {
    let server = start(disputed(["IfNeeded", "IfNeeded"], "Fail")).await;
    let checked = mutated(&server, pod("web")).await;
    assert!(!checked.allowed);
    assert_eq!(
        message(&checked),
        "red failed (not-converging, failurePolicy Fail): not converging: called again after a later plugin changed \
         the object, and once more with the final object, it would still change /metadata/labels/colour: the plugin \
         is not idempotent, or it and another plugin set different values"
    );
    assert_eq!(annotation(&checked, "red.fault"), Some("not-converging"));
    assert_eq!(
        annotation(&checked, "red.not-converging"),
        Some("/metadata/labels/colour")
    );
    let page = server.metrics().await;
    assert_eq!(
        metric(
            &page,
            "tollgate_plugin_not_converging_total",
            &[("plugin", "red")]
        ),
        1.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_chain_that_never_converges_with_ignore() {
    let server = start(disputed(["IfNeeded", "IfNeeded"], "Ignore")).await;
    let checked = mutated(&server, pod("web")).await;
    assert!(checked.allowed);
    assert_eq!(object(&checked)["metadata"]["labels"]["colour"], "blue");
    assert_eq!(
        annotation(&checked, "red.not-converging"),
        Some("/metadata/labels/colour")
    );
    assert_eq!(annotation(&checked, "red.failed-open"), None);
    // The answer may arrive before the line that was logged first.
    let began = std::time::Instant::now();
    loop {
        let logs = server.logs();
        let logged = logs
            .iter()
            .any(|line| line.contains("not converging") && line.contains("\"red\""));
        if logged {
            break;
        }
        assert!(began.elapsed().as_secs() < 10, "{logs:#?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detects_mutator_that_is_not_idempotent() {
    let mut configuration = Configuration::new();
    actor(
        &mut configuration,
        "adds",
        json!({"append": {"/spec/containers/0/args": "--more"}}),
        json!({"reinvocationPolicy": "IfNeeded"}),
    );
    actor(
        &mut configuration,
        "later",
        json!({"set": {"/metadata/labels/later": "yes"}}),
        json!({}),
    );
    let server = start(configuration).await;
    let mut object = pod("web");
    object["spec"]["containers"][0]["args"] = json!([]);
    let checked = mutated(&server, object).await;
    assert!(!checked.allowed);
    assert!(
        message(&checked).contains("/spec/containers/0/args/2"),
        "{}",
        message(&checked)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_mutator_wins_conflict_unless_conflicts_are_denied() {
    let colours = |conflicts: Value, failure_policy: &str| {
        let mut configuration = Configuration::new().with("conflicts", "deny");
        for name in ["red", "blue"] {
            let mut keys = json!({"failurePolicy": failure_policy});
            if let Some(conflicts) = conflicts.as_str() {
                keys["conflicts"] = json!(conflicts);
            }
            let settings = json!({"set": {"/metadata/labels/colour": name, format!("/metadata/labels/{name}"): "yes"}});
            actor(&mut configuration, name, settings, keys);
        }
        configuration
    };

    let server = start(colours(json!("last"), "Fail")).await;
    let checked = mutated(&server, pod("web")).await;
    assert!(checked.allowed);
    assert_eq!(object(&checked)["metadata"]["labels"]["colour"], "blue");
    assert_eq!(
        annotation(&checked, "blue.conflicts"),
        Some("/metadata/labels/colour (over red)")
    );

    // Set by `conflicts` in the file.
    let server = start(colours(Value::Null, "Fail")).await;
    let checked = mutated(&server, pod("web")).await;
    assert!(!checked.allowed);
    assert_eq!(
        message(&checked),
        "blue failed (conflict, failurePolicy Fail): conflict: it would change /metadata/labels/colour, written by \
         red (conflicts: deny)"
    );
    assert_eq!(annotation(&checked, "blue.fault"), Some("conflict"));

    let server = start(colours(Value::Null, "Ignore")).await;
    let checked = mutated(&server, pod("web")).await;
    assert!(checked.allowed);
    let labels = &object(&checked)["metadata"]["labels"];
    assert_eq!(
        (&labels["colour"], &labels["blue"]),
        (&json!("red"), &Value::Null)
    );
    assert_eq!(annotation(&checked, "blue.failed-open"), Some("conflict"));
    let labels = [("plugin", "blue"), ("fault", "conflict")];
    let counted = metric(
        &server.metrics().await,
        "tollgate_plugin_faults_total",
        &labels,
    );
    assert_eq!(counted, 1.0);
}

/// Denies the image `bad` and the label `colour: red`, each with its field, and the node `old` without a field.
async fn denying(existing_violations: &str) -> Server {
    let mut configuration = Configuration::new();
    actor(
        &mut configuration,
        "images",
        json!({
            "forbid": {"/spec/containers/*/image": "bad", "/metadata/labels/colour": "red"},
            "forbid_at_all": {"/spec/nodeName": "old"},
        }),
        json!({"existingViolations": existing_violations}),
    );
    start(configuration).await
}

fn bad_pod() -> Value {
    let mut object = pod("web");
    object["spec"]["containers"][0]["image"] = json!("bad");
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_violation_does_not_block_update() {
    let server = denying("allow").await;
    let old = bad_pod();
    let mut harmless = old.clone();
    harmless["metadata"]["labels"]["owner"] = json!("jane");
    let checked = updated(&server, &harmless, &old).await;
    assert!(checked.allowed, "{:?}", checked.status);
    assert_eq!(
        checked.warnings,
        [
            "images: existing violation, allowed: there is something that is not wanted \
          (spec.containers[0].image: bad is not wanted)"
        ]
    );
    assert_eq!(
        annotation(&checked, "images.existing-violations"),
        Some("there is something that is not wanted (spec.containers[0].image: bad is not wanted)")
    );

    // A new container moves the old one to another index, but does not make its violation new.
    let mut moved = old.clone();
    let sidecar = json!({"name": "side", "image": "side:1"});
    moved["spec"]["containers"]
        .as_array_mut()
        .expect("a list")
        .insert(0, sidecar);
    assert!(updated(&server, &moved, &old).await.allowed);

    // A new violation beside the existing one is denied, and only the new one is reported.
    let mut worse = old.clone();
    worse["metadata"]["labels"]["colour"] = json!("red");
    let checked = updated(&server, &worse, &old).await;
    assert!(!checked.allowed);
    assert_eq!(
        message(&checked),
        "images: metadata.labels[colour]: red is not wanted"
    );
    let mut more = old.clone();
    more["spec"]["containers"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "b", "image": "bad"}));
    let checked = updated(&server, &more, &old).await;
    assert_eq!(
        message(&checked),
        "images: spec.containers[1].image: bad is not wanted"
    );

    // Without a field, the message identifies the violation, as long as only the metadata changes.
    let mut placed = pod("web");
    placed["spec"]["nodeName"] = json!("old");
    assert!(updated(&server, &placed, &placed).await.allowed);
    assert!(!updated(&server, &placed, &pod("web")).await.allowed);
    let mut changed = placed.clone();
    changed["spec"]["priority"] = json!(1);
    assert!(!updated(&server, &changed, &placed).await.allowed);

    // A CREATE has no old object.
    let review = Review::create(old).build();
    assert!(
        !server
            .validate(&review)
            .await
            .checked(Endpoint::Validate, &review)
            .allowed
    );
    let page = server.metrics().await;
    let counted = metric(
        &page,
        "tollgate_plugin_existing_violations_total",
        &[("plugin", "images")],
    );
    assert_eq!(counted, 3.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_violation_does_not_excuse_changed_image() {
    let mut configuration = Configuration::new();
    configuration.plugin(
        "always-pull-images",
        &guests::build("always-pull-images"),
        json!({"existingViolations": "allow"}),
    );
    let server = start(configuration).await;
    let mut old = pod("web");
    old["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    let mut labelled = old.clone();
    labelled["metadata"]["labels"]["owner"] = json!("jane");
    assert!(updated(&server, &labelled, &old).await.allowed);
    // The plugin denies the policy of a new image, although the policy itself has not changed.
    let mut other_image = old.clone();
    other_image["spec"]["containers"][0]["image"] = json!("other:1");
    let checked = updated(&server, &other_image, &old).await;
    assert_eq!(
        message(&checked),
        "always-pull-images: images must be pulled each time that a container starts \
         (spec.containers[0].imagePullPolicy: must be Always)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_existing_violations_are_denied() {
    let server = denying("deny").await;
    let old = bad_pod();
    let mut harmless = old.clone();
    harmless["metadata"]["labels"]["owner"] = json!("jane");
    assert!(!updated(&server, &harmless, &old).await.allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizer_can_leave_violating_object_in_deletion() {
    for existing_violations in ["deny", "allow"] {
        let server = denying(existing_violations).await;
        let mut old = bad_pod();
        old["metadata"]["finalizers"] = json!(["example.com/cleanup"]);
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        if existing_violations == "deny" {
            assert!(
                !updated(&server, &new, &old).await.allowed,
                "it is not being deleted"
            );
        }
        for object in [&mut old, &mut new] {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:00:00Z");
        }
        let checked = updated(&server, &new, &old).await;
        assert!(
            checked.allowed,
            "{existing_violations}: {:?}",
            checked.status
        );
        assert!(annotation(&checked, "images.existing-violations").is_some());
        // A new violation in the same request is denied.
        new["metadata"]["labels"]["colour"] = json!("red");
        assert!(
            !updated(&server, &new, &old).await.allowed,
            "{existing_violations}"
        );
        // A deletion timestamp that only the user has set does not count.
        let stored = bad_pod();
        if existing_violations == "deny" {
            let mut pretended = stored.clone();
            pretended["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:00:00Z");
            assert!(!updated(&server, &pretended, &stored).await.allowed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeping_a_finalizer_bypasses_no_plugin() {
    let mut configuration = Configuration::new();
    let bindings = json!({"rules": [{
        "operations": ["UPDATE"], "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"],
        "resources": ["clusterrolebindings"],
    }]});
    actor(
        &mut configuration,
        "lock",
        json!({"deny": "only the platform team may change this"}),
        json!({"match": bindings}),
    );
    let server = start(configuration).await;
    let mut old = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {
            "name": "readers", "finalizers": ["attacker.example.com/keep", "example.com/cleanup"],
            "deletionTimestamp": "2026-11-21T08:00:00Z", "deletionGracePeriodSeconds": 0,
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "alice"}],
    });
    let mut granting = old.clone();
    granting["subjects"] = json!([{"kind": "User", "name": "mallory"}]);
    let checked = updated(&server, &granting, &old).await;
    assert!(!checked.allowed);
    assert_eq!(
        message(&checked),
        "lock: only the platform team may change this"
    );
    // A change together with a finalizer is denied too.
    granting["metadata"]["finalizers"] = json!(["example.com/cleanup"]);
    assert!(!updated(&server, &granting, &old).await.allowed);
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"rbac.example.com/aggregate": "yes"});
    assert!(!updated(&server, &labelled, &old).await.allowed);
    let mut going = old.clone();
    going["metadata"]["finalizers"] = json!(["example.com/cleanup"]);
    assert!(updated(&server, &going, &old).await.allowed);
    // Without a deletion, nothing is excused.
    for object in [&mut going, &mut old] {
        let metadata = object["metadata"].as_object_mut().expect("an object");
        metadata.remove("deletionTimestamp");
    }
    assert!(!updated(&server, &going, &old).await.allowed);
}

/// A plugin's message about a Secret that it has read is hidden, so it cannot be compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizer_can_leave_secret_that_plugin_read() {
    let mut configuration = Configuration::new();
    let secrets = json!({"rules": [{
        "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
    }]});
    actor(
        &mut configuration,
        "pins",
        json!({"forbid": {"/data/pin": "MTIzNA=="}}),
        json!({"match": secrets}),
    );
    let server = start(configuration).await;
    let mut old = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"pin": "MTIzNA=="},
        "metadata": {"name": "card", "namespace": "shop", "finalizers": ["example.com/cleanup"]},
    });
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    assert!(!updated(&server, &new, &old).await.allowed);
    for object in [&mut old, &mut new] {
        object["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:00:00Z");
    }
    let checked = updated(&server, &new, &old).await;
    assert!(checked.allowed, "{:?}", checked.status);
    new["metadata"]["labels"] = json!({"colour": "red"});
    assert!(!updated(&server, &new, &old).await.allowed);
}

/// The message of a denial holds no values, so the same message may be about a worse violation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_violation_must_not_get_worse() {
    let mut configuration = Configuration::new();
    configuration.plugin(
        "trusted-registries",
        &guests::build("trusted-registries"),
        json!({"existingViolations": "allow", "settings": {"allowed": ["registry.example.com/"]}}),
    );
    let server = start(configuration).await;
    let mut old = pod("web");
    old["spec"]["containers"][0]["image"] = json!("docker.io/library/nginx:1");
    let mut labelled = old.clone();
    labelled["metadata"]["labels"]["owner"] = json!("jane");
    let checked = updated(&server, &labelled, &old).await;
    assert!(checked.allowed, "{:?}", checked.status);
    let mut worse = old.clone();
    worse["spec"]["containers"][0]["image"] = json!("evil.example/pwn:1");
    let checked = updated(&server, &worse, &old).await;
    assert!(!checked.allowed);
    assert!(
        message(&checked).contains("spec.containers[0].image"),
        "{}",
        message(&checked)
    );
}
