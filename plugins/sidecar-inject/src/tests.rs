use serde_json::json;
use tollgate_sdk::testing::{Mutated, Outcome, TestReview, configure, manifest};

use super::*;

const KEY: &str = "sidecar-inject.tollgate.dev/inject";

fn pod() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {KEY: "true"}},
        "spec": {
            "initContainers": [{"name": "migrate", "image": "acme/migrate"}],
            "containers": [{"name": "app", "image": "acme/app"}],
        }
    })
}

fn settings() -> Json {
    json!({
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "initContainers": [
            {"name": "certificates", "image": "acme/certificates"},
            {"name": "proxy", "image": "acme/proxy", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "logs", "image": "acme/logs:1", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}],
    })
}

fn inject(pod: Json) -> Outcome<Mutated> {
    inject_with(settings(), pod)
}

fn inject_with(settings: Json, pod: Json) -> Outcome<Mutated> {
    TestReview::create(pod)
        .settings(settings)
        .mutate::<SidecarInject>()
}

fn names(pod: &Json, list: &str) -> Vec<String> {
    let elements = pod["spec"][list].as_array().into_iter().flatten();
    elements
        .map(|element| element["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn everything_is_injected_in_its_place() {
    let outcome = inject(pod());
    let pod = outcome.object();
    assert_eq!(
        names(pod, "initContainers"),
        ["certificates", "proxy", "migrate"]
    );
    assert_eq!(names(pod, "containers"), ["app", "logs"]);
    assert_eq!(pod["spec"]["volumes"], settings()["volumes"]);
    assert_eq!(pod["spec"]["containers"][1], settings()["containers"][0]);
    assert_eq!(
        pod["spec"]["initContainers"][1]["restartPolicy"],
        json!("Always")
    );
    let annotations: Vec<_> = pod["metadata"]["annotations"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(
        annotations,
        [
            "container.sidecar-inject.tollgate.dev/certificates",
            "container.sidecar-inject.tollgate.dev/logs",
            "container.sidecar-inject.tollgate.dev/proxy",
            "volume.sidecar-inject.tollgate.dev/cache",
        ]
    );
}

#[test]
fn lists_that_the_pod_does_not_have_are_made() {
    let mut pod = pod();
    pod["spec"] = json!({"containers": []});
    pod["metadata"]["annotations"] = Json::Null;
    let outcome = inject(pod);
    assert_eq!(
        names(outcome.object(), "initContainers"),
        ["certificates", "proxy"]
    );
    assert_eq!(names(outcome.object(), "volumes"), ["cache"]);
}

#[test]
fn its_own_output_is_left_as_it_is() {
    let once = inject(pod()).object().clone();
    assert!(!inject(once.clone()).is_changed());

    // Other changes in between must not matter.
    let mut defaulted = once;
    defaulted["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
    defaulted["spec"]["volumes"][0]["emptyDir"] = json!({"medium": ""});
    assert!(!inject(defaulted).is_changed());
}

#[test]
fn what_is_gone_is_injected_again() {
    let once = inject(pod()).object().clone();
    let mut without = once.clone();
    without["spec"]["containers"].as_array_mut().unwrap().pop();
    assert_eq!(inject(without).object(), &once);
}

#[test]
fn what_earlier_settings_made_is_replaced() {
    let once = inject(pod()).object().clone();
    let mut newer = settings();
    newer["containers"][0]["image"] = json!("acme/logs:2");
    newer["initContainers"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "first", "image": "acme/first"}));
    let outcome = inject_with(newer.clone(), once);
    let pod = outcome.object();
    assert_eq!(names(pod, "containers"), ["app", "logs"]);
    assert_eq!(pod["spec"]["containers"][1]["image"], json!("acme/logs:2"));
    assert_eq!(
        names(pod, "initContainers"),
        ["first", "certificates", "proxy", "migrate"]
    );
    assert!(!inject_with(newer, pod.clone()).is_changed());
}

#[test]
fn two_of_these_plugins_do_not_meddle_with_each_other() {
    let other = json!({"containers": [{"name": "metrics", "image": "acme/metrics"}]});
    let first = inject(pod()).object().clone();
    let both = inject_with(other.clone(), first).object().clone();
    assert!(!inject(both.clone()).is_changed());
    assert!(!inject_with(other, both).is_changed());
}

#[test]
fn a_name_of_the_users_own_is_denied() {
    let mut pod = pod();
    pod["spec"]["containers"] =
        json!([{"name": "proxy", "image": "mine"}, {"name": "logs", "image": "mine"}]);
    pod["spec"]["volumes"] = json!([{"name": "cache", "hostPath": {"path": "/"}}]);
    let outcome = inject(pod);
    assert_eq!(outcome.denial().message, "sidecars cannot be injected");
    assert_eq!(
        outcome.fields(),
        [
            "/spec/volumes/0/name",
            "/spec/containers/0/name",
            "/spec/containers/1/name"
        ],
        "an init container cannot have the name of a container either"
    );
    assert_eq!(
        outcome.causes()[0].1,
        "is the name of one that is to be injected: choose another, \
         or go without by the label sidecar-inject.tollgate.dev/inject: \"false\""
    );
}

#[test]
fn or_nothing_is_injected_and_the_user_is_warned() {
    let mut pod = pod();
    pod["spec"]["containers"][0]["name"] = json!("logs");
    let mut settings = settings();
    settings["onConflict"] = json!("skip");
    let outcome = inject_with(settings, pod);
    assert!(!outcome.is_changed());
    assert_eq!(
        outcome.warnings(),
        ["no sidecars are injected: the Pod uses the name of one itself"]
    );
}

#[test]
fn a_pod_opts_in_or_out_by_label_or_else_by_annotation() {
    let is_injected = |default: bool, label: Option<&str>, annotation: Option<&str>| {
        let mut pod = pod();
        pod["metadata"] = json!({"name": "web"});
        for (list, value) in [("labels", label), ("annotations", annotation)] {
            if let Some(value) = value {
                pod["metadata"][list] = json!({KEY: value});
            }
        }
        let mut settings = settings();
        settings["injectByDefault"] = json!(default);
        inject_with(settings, pod).is_changed()
    };
    for default in [false, true] {
        assert_eq!(is_injected(default, None, None), default);
        for wanted in [false, true] {
            let (yes, no) = (wanted.to_string(), (!wanted).to_string());
            assert_eq!(is_injected(default, Some(&yes), None), wanted);
            assert_eq!(is_injected(default, None, Some(&yes)), wanted);
            assert_eq!(is_injected(default, Some(&yes), Some(&no)), wanted);
        }
    }
}

#[test]
fn a_value_that_says_neither_is_ignored_with_a_warning() {
    let mut pod = pod();
    pod["metadata"]["labels"][KEY] = json!("enabled");
    let outcome = inject(pod);
    assert!(!outcome.is_changed());
    assert_eq!(
        outcome.warnings(),
        [
            "metadata.labels[sidecar-inject.tollgate.dev/inject] is neither \"true\" nor \"false\" and is ignored"
        ]
    );
}

#[test]
fn the_key_can_be_another() {
    let mut settings = settings();
    settings["key"] = json!("sidecars");
    assert!(!inject_with(settings.clone(), pod()).is_changed());
    let mut labelled = pod();
    labelled["metadata"]["labels"] = json!({"sidecars": "true"});
    assert!(inject_with(settings, labelled).is_changed());
}

#[test]
fn what_cannot_get_containers_is_left_alone() {
    let mut mirror = pod();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    let mut deployment = pod();
    deployment["kind"] = json!("Deployment");
    for review in [
        TestReview::create(mirror),
        TestReview::create(deployment),
        TestReview::update(pod(), pod()),
        TestReview::update(pod(), pod()).sub_resource("ephemeralcontainers"),
        TestReview::create(pod()).sub_resource("eviction"),
        TestReview::delete(pod()),
    ] {
        let outcome = review.settings(settings()).mutate::<SidecarInject>();
        assert!(!outcome.is_changed());
    }
    assert!(
        !inject_with(json!({}), pod()).is_changed(),
        "there is nothing to inject"
    );
}

#[test]
fn settings_errors_name_their_settings() {
    let errors = configure::<SidecarInject>(json!({
        "volumes": [{"emptyDir": {}}, {"name": "proxy"}],
        "initContainers": [{"name": "proxy", "image": "acme/proxy"}, {"name": "a_b", "image": "acme/b"}],
        "containers": [{"name": "proxy", "image": "acme/proxy"}, {"name": "app"}],
    }))
    .err()
    .unwrap();
    assert_eq!(
        errors.to_string(),
        "/volumes/0/name: must be at most 63 lower-case letters, digits and dashes; \
         /initContainers/1/name: must be at most 63 lower-case letters, digits and dashes; \
         /containers/0/name: is the name of another one, too; \
         /containers/1/image: must be the container's image"
    );
    let errors = configure::<SidecarInject>(json!({"onConflict": "replace"}))
        .err()
        .unwrap();
    assert!(
        errors
            .to_string()
            .starts_with("/onConflict: unknown variant `replace`, expected `deny` or `skip`"),
        "{errors}"
    );
}

#[test]
fn the_settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<SidecarInject>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
