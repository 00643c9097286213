//! Pod templates: plugins for Pods get the templates of workloads, and their answers go back to the workload.

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;
use tollgate_tests::{cli, guests, wat};

const IMAGE: &str = "/spec/containers/0/image";

/// Creates a configuration that shares its compiled plugins with the other tests.
fn configuration() -> Configuration {
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled-templates");
    Configuration::new().with("engine.cacheDirectory", cache.display().to_string())
}

/// A `match` for Pods and pod templates, with further keys.
fn templates(more: Value) -> Value {
    let mut matching = json!({
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "podTemplates": true,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        matching[key] = value.clone();
    }
    matching
}

/// Adds a plugin that changes and denies as its settings say.
fn actor(configuration: &mut Configuration, name: &str, settings: Value, more: Value) {
    let mut keys = json!({"match": templates(json!({})), "settings": settings});
    for (key, value) in more.as_object().into_iter().flatten() {
        keys[key] = value.clone();
    }
    configuration.plugin(name, &guests::build("actor"), keys);
}

/// Forbids the image `app:bad` in all containers.
fn forbid() -> Value {
    json!({"forbid": {"/spec/containers/*/image": "app:bad"}})
}

fn workload(version: &str, kind: &str, image: &str) -> Value {
    let template = json!({
        "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": image}]},
    });
    let mut object = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": "web", "namespace": "default"},
    });
    match kind {
        "PodTemplate" => object["template"] = template,
        "CronJob" => object["spec"]["jobTemplate"]["spec"]["template"] = template,
        _ => object["spec"]["template"] = template,
    }
    object
}

fn deployment(image: &str) -> Value {
    let mut object = workload("apps/v1", "Deployment", image);
    object["spec"]["replicas"] = 1.into();
    object
}

async fn start(configuration: Configuration) -> Server {
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

async fn validated(server: &Server, review: Review) -> Checked {
    let review = review.build();
    let answer = server.validate(&review).await;
    answer.checked(Endpoint::Validate, &review)
}

async fn mutated(server: &Server, review: Review) -> Checked {
    let review = review.build();
    let answer = server.mutate(&review).await;
    answer.checked(Endpoint::Mutate, &review)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denies_each_workload_at_its_template() {
    let mut configuration = configuration();
    actor(&mut configuration, "images", forbid(), json!({}));
    let server = start(configuration).await;
    for (version, kind, place) in [
        ("apps/v1", "Deployment", "spec.template"),
        ("apps/v1", "ReplicaSet", "spec.template"),
        ("apps/v1", "StatefulSet", "spec.template"),
        ("apps/v1", "DaemonSet", "spec.template"),
        ("batch/v1", "Job", "spec.template"),
        ("batch/v1", "CronJob", "spec.jobTemplate.spec.template"),
        ("v1", "ReplicationController", "spec.template"),
        ("v1", "PodTemplate", "template"),
    ] {
        let denied = validated(&server, Review::create(workload(version, kind, "app:bad"))).await;
        assert!(!denied.allowed, "{kind}");
        let status = denied.status.expect("a status");
        let field = format!("{place}.spec.containers[0].image");
        assert_eq!(status["details"]["causes"][0]["field"], *field, "{kind}");
        assert_eq!(status["details"]["kind"], kind);
        assert_eq!(status["details"]["name"], "web");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains("app:bad is not wanted"), "{message}");
        assert!(!message.contains(" spec.containers"), "{message}");
        let allowed = validated(&server, Review::create(workload(version, kind, "app:1"))).await;
        assert!(allowed.allowed, "{kind}: {:?}", allowed.status);
    }
    // A Pod is still a Pod.
    let mut object = pod("web");
    object["spec"]["containers"][0]["image"] = json!("app:bad");
    let denied = validated(&server, Review::create(object)).await;
    let status = denied.status.expect("a status");
    let field = &status["details"]["causes"][0]["field"];
    assert_eq!(*field, "spec.containers[0].image");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_go_to_the_template_and_the_next_mutator_sees_them() {
    let mut configuration = configuration();
    let label = json!({"set": {"/metadata/labels/team": "shop"}});
    actor(&mut configuration, "label", label, json!({}));
    let image = json!({"set_all": {"/spec/containers/*/image": "mirror/app:1"}});
    let labelled = templates(json!({"objectSelector": {"matchLabels": {"team": "shop"}}}));
    actor(
        &mut configuration,
        "mirror",
        image,
        json!({"match": labelled}),
    );
    let server = start(configuration).await;
    let created = mutated(&server, Review::create(deployment("app:1"))).await;
    let mut expected = deployment("mirror/app:1");
    expected["spec"]["template"]["metadata"]["labels"]["team"] = json!("shop");
    assert_eq!(created.patched_object, Some(expected));
    let patched = &created.audit_annotations["mirror.patched"];
    assert_eq!(patched, &format!("/spec/template{IMAGE}"));
}

/// A mutator in WebAssembly text that answers with this case of `mutation` and this text.
fn answering(case: u8, text: &str) -> Vec<u8> {
    let escaped = |bytes: &[u8]| {
        let escaped = bytes.iter().map(|byte| format!("\\{byte:02x}"));
        escaped.collect::<Vec<_>>().concat()
    };
    let length = u32::try_from(text.len()).expect("the text is short");
    let fields = format!(
        "(data (i32.const 1024) \"{}\")\n(data (i32.const 4096) \"\\{case:02x}\\00\\00\\00\" \"\\00\\04\\00\\00\" \"{}\")\n\
         (func (export \"tollgate:admission/mutating@0.1.0#mutate\") (result i32) (i32.const 4096))",
        escaped(text.as_bytes()),
        escaped(&length.to_le_bytes()),
    );
    wat::plugin("mutator", &fields)
}

async fn answered(case: u8, answer: &Value) -> Checked {
    let mut configuration = configuration();
    let more = json!({"match": templates(json!({}))});
    configuration.plugin_of("answers", &answering(case, &answer.to_string()), more);
    let server = start(configuration).await;
    mutated(&server, Review::create(deployment("app:1"))).await
}

const MERGE_PATCH: u8 = 2;
const OBJECT: u8 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merge_patch_and_whole_object_go_to_the_template() {
    let merge = json!({"metadata": {"labels": {"team": "shop"}, "generateName": "other-"}, "spec": {"hostNetwork": false}});
    let mut expected = deployment("app:1");
    expected["spec"]["template"]["metadata"]["labels"]["team"] = json!("shop");
    expected["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
    let checked = answered(MERGE_PATCH, &merge).await;
    assert_eq!(checked.patched_object.as_ref(), Some(&expected));

    // What a client of Go writes.
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "", "controller": true,
        "blockOwnerDeletion": true,
    });
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "creationTimestamp": null, "generateName": "web-", "namespace": "default",
            "labels": {"app": "web", "team": "shop"}, "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "app", "image": "app:1"}], "hostNetwork": false},
        "status": {},
    });
    let checked = answered(OBJECT, &object).await;
    assert_eq!(checked.patched_object.as_ref(), Some(&expected));

    object["kind"] = json!("Node");
    let checked = answered(OBJECT, &object).await;
    assert!(!checked.allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_what_controllers_set_are_ignored() {
    let merge = json!({"metadata": {"generateName": "other-", "ownerReferences": null}, "status": {"phase": "Running"}});
    let checked = answered(MERGE_PATCH, &merge).await;
    assert!(
        checked.allowed && checked.patch.is_empty(),
        "{:?}",
        checked.patch
    );
    // As for any Pod, another namespace is a fault.
    let merge = json!({"metadata": {"namespace": "other"}});
    assert!(!answered(MERGE_PATCH, &merge).await.allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_count_only_with_a_changed_template() {
    let mut configuration = configuration();
    actor(&mut configuration, "strict", forbid(), json!({}));
    let label = json!({"set": {"/metadata/labels/team": "shop"}});
    actor(&mut configuration, "label", label, json!({}));
    let server = start(configuration).await;
    let (old, mut scaled) = (deployment("app:bad"), deployment("app:bad"));
    scaled["spec"]["replicas"] = json!(3);
    let update = |new: &Value| Review::update(new.clone(), old.clone());
    assert!(validated(&server, update(&scaled)).await.allowed);
    let unchanged = mutated(&server, update(&scaled)).await;
    assert!(unchanged.patch.is_empty(), "{:?}", unchanged.patch);
    let mut changed = scaled.clone();
    changed["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    assert!(!validated(&server, update(&changed)).await.allowed);
    assert!(!mutated(&server, update(&changed)).await.patch.is_empty());
    // The controller's own ReplicaSet.
    let mut replica_set = workload("apps/v1", "ReplicaSet", "app:bad");
    replica_set["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": true,
    }]);
    assert!(
        validated(&server, Review::create(replica_set))
            .await
            .allowed
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_violation_of_the_old_template_is_excused() {
    let mut configuration = configuration();
    let allow = json!({"existingViolations": "allow"});
    actor(&mut configuration, "lenient", forbid(), allow);
    let server = start(configuration).await;
    let mut new = deployment("app:bad");
    new["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    let existing = Review::update(new.clone(), deployment("app:bad"));
    assert!(validated(&server, existing).await.allowed);
    let brought_in = Review::update(new.clone(), deployment("app:1"));
    assert!(!validated(&server, brought_in).await.allowed);
    assert!(!validated(&server, Review::create(new)).await.allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_and_selectors_see_the_pod_and_exceptions_the_workload() {
    let mut configuration = configuration();
    let condition = "request.resource.resource == 'pods' && request.operation == 'CREATE' && oldObject == null && \
                     object.spec.containers.size() == 1";
    let matching = templates(json!({
        "matchConditions": [{"name": "one", "expression": condition}],
        "objectSelector": {"matchLabels": {"app": "web"}},
    }));
    let exceptions =
        json!([{"names": ["excused"], "until": "2999-12-31", "reason": "moving house"}]);
    let more = json!({"match": matching, "exceptions": exceptions});
    actor(&mut configuration, "images", forbid(), more);
    let server = start(configuration).await;
    let update = Review::update(deployment("app:bad"), deployment("app:1"));
    assert!(!validated(&server, update).await.allowed);
    let mut two = deployment("app:bad");
    let containers = two["spec"]["template"]["spec"]["containers"].as_array_mut();
    containers
        .expect("a list")
        .push(json!({"name": "b", "image": "app:bad"}));
    assert!(validated(&server, Review::create(two)).await.allowed);
    let mut other = deployment("app:bad");
    other["spec"]["template"]["metadata"]["labels"]["app"] = json!("other");
    assert!(validated(&server, Review::create(other)).await.allowed);
    let mut excused = deployment("app:bad");
    excused["metadata"]["name"] = json!("excused");
    assert!(validated(&server, Review::create(excused)).await.allowed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn template_that_cannot_be_read_follows_the_failure_policy() {
    for (policy, allowed) in [("Fail", false), ("Ignore", true)] {
        let mut configuration = configuration();
        let more = json!({"failurePolicy": policy});
        actor(&mut configuration, "images", forbid(), more);
        let server = start(configuration).await;
        let mut object = deployment("app:1");
        object["spec"]["template"] = json!("no template");
        for checked in [
            validated(&server, Review::create(object.clone())).await,
            mutated(&server, Review::create(object.clone())).await,
        ] {
            assert_eq!(checked.allowed, allowed, "{policy}");
            if let Some(status) = checked.status {
                let message = status["message"].as_str().unwrap_or_default();
                let expected = "spec.template must be an object, but is string";
                assert!(message.contains(expected), "{message}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decision_says_that_the_plugin_got_the_template() {
    let mut configuration = configuration();
    actor(&mut configuration, "images", forbid(), json!({}));
    let server = start(configuration).await;
    let review = Review::create(deployment("app:bad")).uid("u-template");
    validated(&server, review).await;
    let admin = format!("http://{}", server.admin_address());
    let explain = ["explain", "u-template", "--admin", &admin];
    let words = ["got the pod template at spec.template as a Pod"];
    cli::run(&mut cli::command(&explain)).assert(0, &words);
}

#[test]
fn suites_judge_workloads() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = format!("file:{}", guests::build("actor").display());
    let plugin = json!({
        "name": "images", "source": source, "match": templates(json!({})), "settings": forbid(),
    });
    let field = "spec.template.spec.containers[0].image";
    let causes = json!([{"field": field}]);
    let suite = json!({
        "plugins": [plugin],
        "cases": [
            {"name": "bad", "object": deployment("app:bad"), "expect": {"verdict": "deny", "causes": causes}},
            {"name": "good", "object": deployment("app:1"), "expect": "allow"},
        ],
    });
    let file = folder.path().join("templates.test.yaml");
    std::fs::write(&file, suite.to_string()).expect("the suite can be written");
    let file = file.display().to_string();
    cli::run(&mut cli::command(&["test", &file])).assert(0, &["2 passed"]);
}
