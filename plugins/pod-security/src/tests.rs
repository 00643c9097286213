use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{Outcome, TestReview, configure, manifest};

use super::*;

fn pod(spec: Json) -> Json {
    let metadata = json!({"name": "web", "namespace": "shop"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// A Pod that baseline denies.
fn privileged() -> Json {
    pod(
        json!({"containers": [{"name": "app", "image": "app:1", "securityContext": {"privileged": true}}]}),
    )
}

fn evaluate(review: TestReview) -> Outcome<()> {
    review.validate::<PodSecurity>()
}

fn restricted(review: TestReview, version: &str) -> Outcome<()> {
    evaluate(review.settings(json!({"level": "restricted", "version": version})))
}

fn with(object: &Json, pointer: &str, value: Json) -> Json {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

/// Every kind of object with a template, with its API version and the place of the template.
const WORKLOADS: [(&str, &str, &str); 8] = [
    ("v1", "PodTemplate", "/template"),
    ("v1", "ReplicationController", "/spec/template"),
    ("apps/v1", "DaemonSet", "/spec/template"),
    ("apps/v1", "Deployment", "/spec/template"),
    ("apps/v1", "ReplicaSet", "/spec/template"),
    ("apps/v1", "StatefulSet", "/spec/template"),
    ("batch/v1", "Job", "/spec/template"),
    ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template"),
];

fn workload(api_version: &str, kind: &str, at: &str, pod: &Json) -> Json {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]});
    let tokens: Vec<_> = at.split('/').skip(1).collect();
    let body = tokens
        .iter()
        .rev()
        .fold(template, |inner, token| json!({*token: inner}));
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    object
}

fn deployment(pod: &Json) -> Json {
    workload("apps/v1", "Deployment", "/spec/template", pod)
}

#[test]
fn a_denial_says_what_kubernetes_would_and_names_every_field() {
    let outcome = restricted(
        TestReview::create(pod(json!({"containers": [{"name": "a"}]}))),
        "v1.24",
    );
    assert_eq!(
        outcome.denial().message,
        "violates PodSecurity \"restricted:v1.24\": allowPrivilegeEscalation != false \
         (container \"a\" must set securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), \
         runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \
         \"RuntimeDefault\" or \"Localhost\")"
    );
    let at = "/spec/containers/0/securityContext";
    assert_eq!(
        outcome.causes(),
        [
            (&*format!("{at}/allowPrivilegeEscalation"), "must be false"),
            (&*format!("{at}/capabilities/drop"), "must contain ALL"),
            (
                &*format!("{at}/runAsNonRoot"),
                "must be true, here or for the Pod"
            ),
            (
                &*format!("{at}/seccompProfile/type"),
                "must be RuntimeDefault or Localhost, here or for the Pod"
            ),
        ]
    );
    assert_eq!(outcome.denial().code, None, "403 Forbidden");
    assert_eq!(outcome.annotations()["enforce-policy"], "restricted:v1.24");
}

#[test]
fn all_who_are_to_blame_are_in_one_sentence() {
    let spec = json!({
        "hostNetwork": true,
        "hostPID": true,
        "securityContext": {"seLinuxOptions": {"type": "b_t", "role": "r"}},
        "initContainers": [{"name": "init", "ports": [{"hostPort": 9}, {"hostPort": 80}]}],
        "containers": [
            {"name": "a", "securityContext": {"seLinuxOptions": {"type": "a_t", "user": "u"}}},
            {"name": "b", "ports": [{"hostPort": 80}]},
        ],
    });
    let outcome = evaluate(TestReview::create(pod(spec)));
    assert_eq!(
        outcome.denial().message,
        "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true, hostPID=true), \
         hostPort (containers \"init\", \"b\" use hostPorts 80, 9), seLinuxOptions (pod and container \"a\" set \
         forbidden securityContext.seLinuxOptions: types \"a_t\", \"b_t\"; user may not be set; role may not be set)"
    );
    assert_eq!(
        outcome.fields(),
        [
            "/spec/hostNetwork",
            "/spec/hostPID",
            "/spec/initContainers/0/ports/0/hostPort",
            "/spec/initContainers/0/ports/1/hostPort",
            "/spec/containers/1/ports/0/hostPort",
            "/spec/securityContext/seLinuxOptions/type",
            "/spec/securityContext/seLinuxOptions/role",
            "/spec/containers/0/securityContext/seLinuxOptions/type",
            "/spec/containers/0/securityContext/seLinuxOptions/user",
        ]
    );
}

#[test]
fn without_settings_it_is_the_latest_baseline() {
    let outcome = evaluate(TestReview::create(privileged()));
    assert_eq!(
        outcome.denial().message,
        "violates PodSecurity \"baseline:latest\": privileged (container \"app\" must not set \
         securityContext.privileged=true)"
    );
    let plain = pod(json!({"containers": [{"name": "app"}]}));
    assert!(evaluate(TestReview::create(plain)).is_allowed());
}

#[test]
fn a_mirror_pod_is_checked_like_any_other() {
    let mut mirror = privileged();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    assert!(!evaluate(TestReview::create(mirror)).is_allowed());
}

#[test]
fn an_update_of_a_pod_that_keeps_its_images_is_let_through() {
    let relabelled = {
        let mut pod = privileged();
        pod["metadata"]["labels"] = json!({"a": "b"});
        pod["metadata"]["finalizers"] = json!([]);
        pod
    };
    assert!(evaluate(TestReview::update(privileged(), relabelled)).is_allowed());
}

#[test]
fn an_update_of_a_pod_to_another_image_is_checked() {
    let updated = with(&privileged(), "/spec/containers/0/image", json!("app:2"));
    assert!(!evaluate(TestReview::update(privileged(), updated.clone())).is_allowed());
    assert!(
        !evaluate(TestReview::update(privileged(), updated).sub_resource("resize")).is_allowed()
    );

    let two = |images: [&str; 2]| {
        let mut pod = privileged();
        pod["spec"]["initContainers"] =
            json!([{"name": "one", "image": images[0]}, {"name": "two", "image": images[1]}]);
        pod
    };
    let swapped = TestReview::update(two(["a", "b"]), two(["b", "a"]));
    assert!(!evaluate(swapped).is_allowed(), "by position, not by name");
    let same = TestReview::update(two(["a", "b"]), two(["a", "b"]));
    assert!(evaluate(same).is_allowed());
    let fewer = TestReview::update(two(["a", "b"]), privileged());
    assert!(!evaluate(fewer).is_allowed());
}

#[test]
fn an_ephemeral_container_has_the_whole_pod_checked_when_it_is_new() {
    let debugged = |containers: Json| {
        let mut pod = pod(json!({"containers": [{"name": "app", "image": "app:1"}]}));
        pod["spec"]["ephemeralContainers"] = containers;
        pod
    };
    let bad = |name: &str, image: &str| json!({"name": name, "image": image, "securityContext": {"privileged": true}});
    let update = |old: Json, new: Json| {
        let review = TestReview::update(debugged(old), debugged(new));
        evaluate(review.sub_resource("ephemeralcontainers"))
    };
    assert_eq!(
        update(json!([]), json!([bad("x", "busybox")])).fields(),
        ["/spec/ephemeralContainers/0/securityContext/privileged"]
    );
    let good = json!({"name": "y", "image": "busybox"});
    assert!(update(json!([]), json!([good])).is_allowed());
    let (x, y) = (bad("x", "busybox"), bad("y", "busybox"));
    assert!(
        update(json!([x, y]), json!([y, x])).is_allowed(),
        "by name, not by position"
    );
    assert!(
        update(json!([x, y]), json!([y])).is_allowed(),
        "one that is gone needs no check"
    );
    assert!(!update(json!([x]), json!([bad("x", "alpine")])).is_allowed());
    assert!(!update(json!([x]), json!([x, good])).is_allowed());
}

#[test]
fn subresources_without_a_spec_are_ignored_and_unknown_ones_are_not() {
    let empty = pod(json!({}));
    for sub_resource in [
        "attach",
        "binding",
        "eviction",
        "exec",
        "log",
        "portforward",
        "proxy",
        "status",
    ] {
        let review = TestReview::update(empty.clone(), privileged()).sub_resource(sub_resource);
        assert!(evaluate(review).is_allowed(), "{sub_resource}");
    }
    let review = TestReview::update(empty, privileged()).sub_resource("unknown");
    assert!(!evaluate(review).is_allowed());
}

#[test]
fn deletions_connections_and_other_resources_are_ignored() {
    assert!(evaluate(TestReview::delete(privileged())).is_allowed());
    assert!(evaluate(TestReview::connect(privileged())).is_allowed());
    let other = TestReview::create(privileged()).resource("example.com", "v1", "pods");
    assert!(evaluate(other).is_allowed());
}

#[test]
fn a_template_is_warned_about() {
    for (api_version, kind, at) in WORKLOADS {
        let outcome = evaluate(TestReview::create(workload(
            api_version,
            kind,
            at,
            &privileged(),
        )));
        assert!(outcome.is_allowed(), "{kind}");
        let warning = "would violate PodSecurity \"baseline:latest\": privileged (container \"app\" must not set \
                       securityContext.privileged=true)";
        assert_eq!(outcome.warnings(), [warning], "{kind}");
        assert_eq!(outcome.annotations()["audit-violations"], warning);
        assert_eq!(outcome.annotations().get("enforce-policy"), None);
    }
}

#[test]
fn a_template_is_refused_where_the_settings_say_so() {
    for (api_version, kind, at) in WORKLOADS {
        let object = workload(api_version, kind, at, &privileged());
        let outcome = evaluate(TestReview::create(object).settings(json!({"templates": "deny"})));
        let field = format!("{at}/spec/containers/0/securityContext/privileged");
        assert_eq!(outcome.causes(), [(&*field, "must not be true")], "{kind}");
        assert!(outcome.warnings().is_empty());
    }
}

#[test]
fn the_annotations_of_a_template_are_checked() {
    let key = "container.apparmor.security.beta.kubernetes.io/app";
    let mut object = deployment(&pod(json!({"containers": [{"name": "app"}]})));
    object["spec"]["template"]["metadata"]["annotations"] = json!({key: "unconfined"});
    let outcome = evaluate(TestReview::create(object).settings(json!({"templates": "deny"})));
    assert_eq!(
        outcome.fields(),
        ["/spec/template/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1app"]
    );
}

#[test]
fn a_long_warning_is_one_for_each_violation() {
    let plain = pod(json!({"containers": [{"name": "a"}]}));
    let outcome = restricted(TestReview::create(deployment(&plain)), "v1.24");
    assert_eq!(outcome.warnings().len(), 4);
    for warning in outcome.warnings() {
        assert!(
            warning.starts_with("would violate PodSecurity \"restricted:v1.24\": "),
            "{warning}"
        );
        assert!(warning.len() < 200, "{warning}");
    }
}

#[test]
fn a_good_template_and_none_at_all_are_not_warned_about() {
    let good = deployment(&pod(json!({"containers": [{"name": "app"}]})));
    let none =
        json!({"apiVersion": "v1", "kind": "ReplicationController", "spec": {"template": null}});
    for object in [good, none] {
        for templates in ["warn", "deny"] {
            let review = TestReview::create(object.clone());
            let outcome = evaluate(review.settings(json!({"templates": templates})));
            assert!(outcome.is_allowed());
            assert!(outcome.warnings().is_empty());
        }
    }
}

#[test]
fn an_update_that_leaves_a_template_alone_is_only_warned_about() {
    let bad = deployment(&privileged());
    let settings = json!({"templates": "deny"});
    let mut scaled = bad.clone();
    scaled["spec"]["replicas"] = json!(3);
    let outcome = evaluate(TestReview::update(bad.clone(), scaled).settings(settings.clone()));
    assert!(outcome.is_allowed(), "it must be able to lose finalizers");
    assert_eq!(outcome.warnings().len(), 1);

    let image = "/spec/template/spec/containers/0/image";
    let updated = with(&bad, image, json!("app:2"));
    assert!(!evaluate(TestReview::update(bad, updated).settings(settings)).is_allowed());
}

#[test]
fn subresources_of_workloads_are_ignored() {
    let object = deployment(&privileged());
    let review = TestReview::update(object.clone(), object).sub_resource("status");
    let outcome = evaluate(review.settings(json!({"templates": "deny"})));
    assert!(outcome.is_allowed());
    assert!(outcome.warnings().is_empty());
}

#[test]
fn what_is_no_pod_is_refused_and_its_values_are_not_repeated() {
    let spec =
        json!({"containers": [{"name": "app", "securityContext": {"privileged": "hunter2"}}]});
    let outcome = evaluate(TestReview::create(pod(spec.clone())));
    assert_eq!(outcome.denial().code, Some(400));
    assert_eq!(
        outcome.denial().message,
        "the Pod cannot be judged: /spec/containers/0/securityContext: not of the expected type, at column 23"
    );
    let outcome = evaluate(TestReview::create(deployment(&pod(spec))));
    assert!(outcome.is_allowed());
    assert!(
        outcome.warnings()[0].starts_with("the Pod cannot be judged: /spec/template/spec/"),
        "{:?}",
        outcome.warnings()
    );
}

#[test]
fn settings_that_name_no_standard_are_refused() {
    for version in [
        "v1.38", "v1.037", "v1.", "v1.+1", "1.24", "v2.0", "Latest", "",
    ] {
        let errors = configure::<PodSecurity>(json!({"version": version}))
            .err()
            .unwrap_or_else(|| panic!("{version} was accepted"));
        assert_eq!(
            errors.to_string(),
            format!(
                "/version: `{version}` is no version of the standards: must be `latest` or one of v1.0 to v1.37"
            )
        );
    }
    let errors = configure::<PodSecurity>(json!({"level": "Baseline"}))
        .err()
        .unwrap();
    assert_eq!(
        errors.to_string(),
        "/level: unknown variant `Baseline`, expected one of `privileged`, `baseline`, `restricted`"
    );
    let errors = configure::<PodSecurity>(json!({"enforce": "baseline"}))
        .err()
        .unwrap();
    assert!(
        errors
            .to_string()
            .starts_with("/enforce: unknown field `enforce`"),
        "{errors}"
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<PodSecurity>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
