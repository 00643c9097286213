use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use super::*;

const CONFLICT: &str = "pod node label selector conflicts with its namespace node label selector";
const WHITELIST: &str = "pod node label selector labels conflict with its namespace whitelist";

fn pod(selector: &Json) -> Json {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "testPod", "namespace": "testNamespace"},
        "spec": {"nodeSelector": selector}})
}

fn namespace(selector: Option<&str>) -> Json {
    let mut namespace = json!({"metadata": {"name": "testNamespace"}});
    if let Some(selector) = selector {
        namespace["metadata"]["annotations"][ANNOTATION] = json!(selector);
    }
    namespace
}

fn settings(default: &str, whitelist: &str) -> Json {
    json!({"podNodeSelectorPluginConfig": {DEFAULT: default, "testNamespace": whitelist}})
}

/// A row of `TestPodAdmission` in plugin/pkg/admission/podnodeselector/admission_test.go of Kubernetes.
struct Row {
    name: &'static str,
    default: &'static str,
    of_namespace: Option<&'static str>,
    whitelist: &'static str,
    of_pod: Json,
    /// The selector of the Pod afterwards, or the message of the denial.
    expected: Result<Json, &'static str>,
}

fn rows() -> Vec<Row> {
    let row = |name, default, of_namespace, whitelist, of_pod, expected| Row {
        name,
        default,
        of_namespace,
        whitelist,
        of_pod,
        expected,
    };
    let blue = json!({"env": "dev", "color": "blue"});
    vec![
        row("No node selectors", "", None, "", json!({}), Ok(json!({}))),
        row(
            "Default node selector and no conflicts",
            "infra = false",
            None,
            "",
            json!({}),
            Ok(json!({"infra": "false"})),
        ),
        row(
            "TestNamespace node selector with whitespaces and no conflicts",
            "",
            Some(" infra = false "),
            "",
            json!({}),
            Ok(json!({"infra": "false"})),
        ),
        row(
            "Default and namespace node selector, no conflicts",
            "infra = false",
            Some("infra=true"),
            "",
            json!({}),
            Ok(json!({"infra": "true"})),
        ),
        row(
            "Empty namespace node selector and no conflicts",
            "infra = false",
            Some(""),
            "",
            json!({}),
            Ok(json!({})),
        ),
        row(
            "TestNamespace and pod node selector, no conflicts",
            "infra = false",
            Some("infra=true"),
            "",
            json!({"env": "test"}),
            Ok(json!({"infra": "true", "env": "test"})),
        ),
        row(
            "Conflicting pod and namespace node selector, one label",
            "env = test",
            Some("infra=true"),
            "",
            json!({"infra": "false"}),
            Err(CONFLICT),
        ),
        row(
            "Conflicting pod and namespace node selector, multiple labels",
            "env=dev",
            Some("infra=false, env = test"),
            "",
            blue.clone(),
            Err(CONFLICT),
        ),
        row(
            "Merged pod node selectors satisfy the whitelist",
            "env=dev",
            Some("infra=false, env = dev"),
            "env=dev, infra=false, color=blue",
            blue.clone(),
            Ok(json!({"infra": "false", "env": "dev", "color": "blue"})),
        ),
        row(
            "Merged pod node selectors conflict with the whitelist",
            "env=dev",
            Some("infra=false, env = dev"),
            "env=dev, infra=true, color=blue",
            blue,
            Err(WHITELIST),
        ),
        // In the table, the Namespace still has the annotation of the row before.
        row(
            "Default node selector conflict with the whitelist",
            "env=dev",
            Some("infra=false, env = dev"),
            "env=prd",
            json!({}),
            Err(WHITELIST),
        ),
        row(
            "Default node selector conflict with the whitelist, without the annotation",
            "env=dev",
            None,
            "env=prd",
            json!({}),
            Err(WHITELIST),
        ),
    ]
}

#[test]
fn answers_like_kube_apiserver() {
    for row in rows() {
        let review = TestReview::create(pod(&row.of_pod))
            .settings(settings(row.default, row.whitelist))
            .namespace_object(namespace(row.of_namespace));
        let outcome = review.mutate::<PodNodeSelector>();
        match row.expected {
            Ok(selector) => {
                let object = outcome.object().clone();
                assert_eq!(object["spec"]["nodeSelector"], selector, "{}", row.name);
                let again = review.object(object);
                assert!(!again.mutate::<PodNodeSelector>().is_changed());
                assert!(again.validate::<PodNodeSelector>().is_allowed());
            }
            Err(message) => {
                assert_eq!(outcome.denial().message, message, "{}", row.name);
            }
        }
    }
}

/// `TestHandles` in the same file.
#[test]
fn is_asked_about_creations_only() {
    assert_eq!(
        manifest::<PodNodeSelector>().rules[0].operations,
        ["CREATE"]
    );
    let conflicting = pod(&json!({"infra": "false"}));
    let update = TestReview::update(conflicting.clone(), conflicting.clone());
    let binding = TestReview::create(conflicting).sub_resource("binding");
    for review in [update, binding] {
        let review = review.namespace_object(namespace(Some("infra=true")));
        assert!(!review.mutate::<PodNodeSelector>().is_changed());
        assert!(review.validate::<PodNodeSelector>().is_allowed());
    }
}

#[test]
fn node_selector_is_made_where_there_is_none() {
    let mut pod = pod(&json!(null));
    pod["spec"].as_object_mut().unwrap().remove("nodeSelector");
    let review = TestReview::create(pod).namespace_object(namespace(Some("example.com/a=b,c=d")));
    let outcome = review.mutate::<PodNodeSelector>();
    assert_eq!(
        outcome.object()["spec"]["nodeSelector"],
        json!({"example.com/a": "b", "c": "d"})
    );
}

#[test]
fn malformed_annotation_denies() {
    let review = TestReview::create(pod(&json!({}))).namespace_object(namespace(Some("infra")));
    for message in [
        &review.mutate::<PodNodeSelector>().denial().message,
        &review.validate::<PodNodeSelector>().denial().message,
    ] {
        assert_eq!(message, "invalid selector: [infra]");
    }
}

#[test]
fn settings_are_checked() {
    let error = configure::<PodNodeSelector>(settings("infra", "a=b")).err();
    assert_eq!(
        error.unwrap().to_string(),
        "/podNodeSelectorPluginConfig/clusterDefaultNodeSelector: invalid selector: [infra]"
    );
    assert!(configure::<PodNodeSelector>(json!({"namespace1": "a=b"})).is_err());
}

#[test]
fn settings_schema_is_json() {
    let schema: Json =
        serde_json::from_str(&manifest::<PodNodeSelector>().settings_schema.unwrap()).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
