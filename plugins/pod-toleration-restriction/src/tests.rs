use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use super::*;

fn toleration(value: &str) -> Json {
    json!({"key": "testKey", "operator": "Equal", "value": value, "effect": "NoSchedule"})
}

fn memory_pressure() -> Json {
    json!({"key": MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule"})
}

fn pod(resources: &Json, tolerations: &Json) -> Json {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "testPod", "namespace": "testNamespace"},
        "spec": {"containers": [{"name": "test", "resources": resources}], "tolerations": tolerations}})
}

fn namespace(default: Option<&Json>, whitelist: Option<&Json>) -> Json {
    let mut namespace = json!({"metadata": {"name": "testNamespace"}});
    for (key, value) in [(DEFAULT, default), (WHITELIST, whitelist)] {
        if let Some(value) = value {
            namespace["metadata"]["annotations"][key] = json!(value.to_string());
        }
    }
    namespace
}

/// A row of `TestPodAdmission` in plugin/pkg/admission/podtolerationrestriction/admission_test.go of Kubernetes.
/// Null is nil.
struct Row {
    name: &'static str,
    resources: Json,
    cluster: Json,
    of_namespace: Json,
    whitelist: Json,
    cluster_whitelist: Json,
    of_pod: Json,
    /// None if the Pod is denied.
    merged: Option<Json>,
}

fn row(name: &'static str) -> Row {
    Row {
        name,
        resources: json!({}),
        cluster: json!([]),
        of_namespace: json!([]),
        whitelist: json!(null),
        cluster_whitelist: json!([]),
        of_pod: json!([]),
        merged: None,
    }
}

fn rows() -> Vec<Row> {
    let one = || json!([toleration("testValue")]);
    let other = || json!([toleration("testValue1")]);
    let two = || json!([toleration("testValue"), toleration("testValue1")]);
    let pressed = || json!([toleration("testValue"), memory_pressure()]);
    vec![
        Row {
            cluster: one(),
            of_namespace: json!(null),
            merged: Some(one()),
            ..row(
                "default cluster tolerations with empty pod tolerations and nil namespace tolerations",
            )
        },
        Row {
            cluster: one(),
            of_pod: one(),
            merged: Some(one()),
            ..row("default cluster tolerations with pod tolerations specified")
        },
        Row {
            of_namespace: one(),
            of_pod: one(),
            merged: Some(one()),
            ..row("namespace tolerations")
        },
        Row {
            of_namespace: one(),
            merged: Some(one()),
            ..row("no pod tolerations")
        },
        Row {
            of_namespace: one(),
            of_pod: other(),
            merged: Some(two()),
            ..row("duplicate key pod and namespace tolerations")
        },
        Row {
            cluster: json!([toleration("testValue2")]),
            of_pod: other(),
            merged: Some(other()),
            ..row(
                "conflicting pod and default cluster tolerations but overridden by empty namespace tolerations",
            )
        },
        Row {
            of_namespace: one(),
            whitelist: one(),
            merged: Some(one()),
            ..row("merged pod tolerations satisfy whitelist")
        },
        Row {
            cluster: one(),
            merged: Some(json!([])),
            ..row("Override default cluster toleration by empty namespace level toleration")
        },
        Row {
            of_namespace: json!(null),
            whitelist: json!([]),
            cluster_whitelist: other(),
            of_pod: one(),
            merged: Some(one()),
            ..row(
                "pod toleration conflicts with default cluster white list which is overridden by empty namespace \
                   whitelist",
            )
        },
        Row {
            of_namespace: one(),
            whitelist: other(),
            ..row("merged pod tolerations conflict with the whitelist")
        },
        Row {
            resources: json!({"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}),
            of_namespace: one(),
            whitelist: json!([]),
            merged: Some(pressed()),
            ..row("added memoryPressure/DiskPressure for Burstable pod")
        },
        Row {
            whitelist: json!([]),
            of_pod: two(),
            merged: Some(two()),
            ..row("Pod with duplicate key tolerations should not be modified")
        },
        Row {
            resources: json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
            of_namespace: one(),
            whitelist: json!([]),
            merged: Some(pressed()),
            ..row("added memoryPressure/DiskPressure for Guaranteed pod")
        },
    ]
}

/// The elements, in any order, as the table compares them.
fn sorted(list: &Json) -> Vec<String> {
    let elements = list.as_array().into_iter().flatten();
    let mut texts: Vec<String> = elements.map(Json::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn answers_like_kube_apiserver() {
    let given = |json: &Json| (!json.is_null()).then(|| json.clone());
    for row in rows() {
        let (default, whitelist) = (given(&row.of_namespace), given(&row.whitelist));
        let review = TestReview::create(pod(&row.resources, &row.of_pod))
            .settings(json!({"default": row.cluster, "whitelist": row.cluster_whitelist}))
            .namespace_object(namespace(default.as_ref(), whitelist.as_ref()));
        let outcome = review.mutate::<PodTolerationRestriction>();
        let Some(merged) = row.merged else {
            assert_eq!(
                outcome.denial().message,
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace \
                 whitelist",
                "{}",
                row.name
            );
            continue;
        };
        let object = outcome.object().clone();
        assert_eq!(
            sorted(&object["spec"]["tolerations"]),
            sorted(&merged),
            "{}",
            row.name
        );
        let again = review.object(object);
        assert!(!again.mutate::<PodTolerationRestriction>().is_changed());
        assert!(again.validate::<PodTolerationRestriction>().is_allowed());
    }
}

/// `TestIgnoreUpdatingInitializedPod` in the same file.
#[test]
fn update_does_not_merge_tolerations_of_the_namespace() {
    let before = pod(&json!({}), &json!([toleration("testValue1")]));
    let review = TestReview::update(before.clone(), before)
        .namespace_object(namespace(Some(&json!([toleration("testValue2")])), None));
    assert!(!review.mutate::<PodTolerationRestriction>().is_changed());
    assert!(review.validate::<PodTolerationRestriction>().is_allowed());
}

/// `TestHandles` in the same file.
#[test]
fn is_asked_about_creations_and_updates() {
    let rules = manifest::<PodTolerationRestriction>().rules;
    assert_eq!(rules[0].operations, ["CREATE", "UPDATE"]);
    let limits = json!({"limits": {"cpu": "1"}});
    let status = TestReview::update(json!({}), pod(&limits, &json!([]))).sub_resource("status");
    assert!(!status.mutate::<PodTolerationRestriction>().is_changed());
    assert!(status.validate::<PodTolerationRestriction>().is_allowed());
}

/// The rows of `TestValidateConfiguration` in apis/podtolerationrestriction/validation/validation_test.go.
#[test]
fn settings_are_checked_like_kube_apiserver_checks_them() {
    let valid = json!({
        "default": [
            {"key": "foo", "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoSchedule"},
        ],
        "whitelist": [
            {"key": "foo", "value": "bar", "effect": "NoSchedule"},
            {"key": "foo", "operator": "Equal", "value": "bar"},
        ],
    });
    assert!(configure::<PodTolerationRestriction>(valid).is_ok());
    for (settings, error) in [
        (
            json!({"whitelist": [{"key": "foo", "operator": "Exists", "value": "bar", "effect": "NoSchedule"}]}),
            "/whitelist/0: value must be empty when operator is Exists",
        ),
        (
            json!({"default": [{"operator": "Equal", "value": "bar", "effect": "NoSchedule"}]}),
            "/default/0: operator must be Exists when key is empty",
        ),
        (
            json!({"default": [{"key": "foo", "effect": "NoSchedule", "tolerationSeconds": 1}]}),
            "/default/0: effect must be NoExecute when tolerationSeconds is set",
        ),
        (
            json!({"default": [{"key": "a b", "operator": "Exists"}]}),
            "/default/0: key must be the key of a label",
        ),
        (
            json!({"default": [{"key": "a", "operator": "Gt", "value": "1"}]}),
            "/default/0: operator must be Equal or Exists",
        ),
        (
            json!({"default": [{"key": "a", "value": "b/c"}]}),
            "/default/0: value must be the value of a label",
        ),
        (
            json!({"default": [{"key": "a", "effect": "Never"}]}),
            "/default/0: effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
    ] {
        let found = configure::<PodTolerationRestriction>(settings).err();
        assert_eq!(found.unwrap().to_string(), error);
    }
}

#[test]
fn class_of_the_pod_decides_about_memory_pressure() {
    let best_effort = |resources: Json, init: Json, of_pod: Json, class: &str| {
        let mut pod = pod(&resources, &json!([]));
        pod["spec"]["initContainers"] = json!([{"name": "init", "resources": init}]);
        if !of_pod.is_null() {
            pod["spec"]["resources"] = of_pod;
        }
        pod["status"] = json!({"qosClass": class});
        let review = TestReview::create(pod).namespace_object(namespace(None, None));
        !review.mutate::<PodTolerationRestriction>().is_changed()
    };
    let (none, null) = (json!({}), json!(null));
    let memory = json!({"requests": {"memory": "1Gi"}});
    assert!(best_effort(none.clone(), none.clone(), null.clone(), ""));
    assert!(!best_effort(memory.clone(), none.clone(), null.clone(), ""));
    assert!(!best_effort(none.clone(), memory.clone(), null.clone(), ""));
    // Resources of the Pod itself come before those of its containers.
    assert!(best_effort(memory.clone(), none.clone(), none.clone(), ""));
    assert!(!best_effort(none.clone(), none.clone(), memory.clone(), ""));
    assert!(best_effort(
        memory,
        none.clone(),
        null.clone(),
        "BestEffort"
    ));
    assert!(!best_effort(
        none.clone(),
        none.clone(),
        null.clone(),
        "Burstable"
    ));
    for (quantity, expected) in [
        ("0", true),
        ("0m", true),
        ("0.0Gi", true),
        ("0e3", true),
        ("-1", true),
        ("1n", false),
        ("0.5", false),
        ("10E", false),
    ] {
        let limits = json!({"limits": {"cpu": quantity}});
        assert_eq!(
            best_effort(limits, none.clone(), null.clone(), ""),
            expected,
            "{quantity}"
        );
    }
    let other = json!({"limits": {"example.com/device": "1"}});
    assert!(best_effort(other, none, null, ""));
}

#[test]
fn fields_that_are_unknown_stay() {
    let future = json!({"key": "a", "operator": "Exists", "since": "2027"});
    let of_namespace = json!([toleration("testValue")]);
    let review = TestReview::create(pod(&json!({}), &json!([future])))
        .namespace_object(namespace(Some(&of_namespace), None));
    let outcome = review.mutate::<PodTolerationRestriction>();
    assert_eq!(
        outcome.object()["spec"]["tolerations"],
        json!([future, toleration("testValue")])
    );
}

#[test]
fn list_of_tolerations_is_made() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}});
    let of_namespace = json!([toleration("testValue")]);
    let review = TestReview::create(pod).namespace_object(namespace(Some(&of_namespace), None));
    let outcome = review.mutate::<PodTolerationRestriction>();
    assert_eq!(outcome.object()["spec"]["tolerations"], of_namespace);
}

#[test]
fn malformed_annotation_denies() {
    let mut space = namespace(None, None);
    space["metadata"]["annotations"] = json!({DEFAULT: "x", WHITELIST: "{}"});
    let review = TestReview::create(pod(&json!({}), &json!([toleration("a")])));
    let review = review.namespace_object(space);
    assert_eq!(
        review.mutate::<PodTolerationRestriction>().denial().message,
        format!("the annotation {DEFAULT} of the Namespace is not a JSON list of tolerations")
    );
    assert_eq!(
        review
            .validate::<PodTolerationRestriction>()
            .denial()
            .message,
        format!("the annotation {WHITELIST} of the Namespace is not a JSON list of tolerations")
    );
}

#[test]
fn settings_schema_is_json() {
    let schema: Json = serde_json::from_str(
        &manifest::<PodTolerationRestriction>()
            .settings_schema
            .unwrap(),
    )
    .unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
