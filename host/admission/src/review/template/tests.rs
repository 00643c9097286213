use serde_json::{Value, json};
use tollgate_json::patch::diff;

use super::*;
use crate::review::decode::decode;

/// A template with metadata that controllers copy, and metadata that they drop.
fn template() -> Value {
    json!({
        "metadata": {
            "creationTimestamp": null, "name": "dropped", "namespace": "dropped",
            "labels": {"app": "web"}, "annotations": {"a": "1"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"kind": "Dropped"}],
        },
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    })
}

fn object(workload: &Workload, template: &Value) -> Value {
    let mut inner = template.clone();
    for name in workload.path.iter().rev() {
        inner = json!({ *name: inner });
    }
    inner["metadata"] = json!({"name": "shop", "uid": "u-1"});
    inner["kind"] = workload.kind.into();
    inner
}

fn request(workload: &Workload, object: &Value, old: Option<&Value>) -> Arc<AdmissionRequest> {
    let resource = json!({
        "group": workload.group, "version": "v1", "resource": workload.resource,
    });
    let kind = json!({"group": workload.group, "version": "v1", "kind": workload.kind});
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "1", "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "name": "shop", "namespace": "team",
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "userInfo": {"username": "jane"},
            "options": {"kind": "UpdateOptions", "fieldManager": "kubectl"},
            "object": object, "oldObject": old,
        },
    });
    let review = decode(review.to_string().as_bytes(), 100).unwrap();
    Arc::new(review.request)
}

fn plain(json: &Json) -> Value {
    serde_json::from_str(&json.to_text()).unwrap()
}

fn workload(kind: &str) -> &'static Workload {
    WORKLOADS
        .iter()
        .find(|workload| workload.kind == kind)
        .unwrap()
}

fn derived(kind: &str) -> AdmissionRequest {
    let workload = workload(kind);
    let object = object(workload, &template());
    workload.derive(&request(workload, &object, None)).unwrap()
}

#[test]
fn shows_each_workload_as_pod_with_metadata_of_its_controller() {
    for (kind, owner) in [
        ("PodTemplate", None),
        (
            "ReplicationController",
            Some(("v1", "ReplicationController", "u-1")),
        ),
        ("DaemonSet", Some(("apps/v1", "DaemonSet", "u-1"))),
        ("Deployment", Some(("apps/v1", "ReplicaSet", ""))),
        ("ReplicaSet", Some(("apps/v1", "ReplicaSet", "u-1"))),
        ("StatefulSet", Some(("apps/v1", "StatefulSet", "u-1"))),
        ("CronJob", Some(("batch/v1", "Job", ""))),
        ("Job", Some(("batch/v1", "Job", "u-1"))),
    ] {
        let request = derived(kind);
        let mut expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "shop-", "namespace": "team", "labels": {"app": "web"},
                "annotations": {"a": "1"}, "finalizers": ["example.com/f"],
            },
            "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        });
        if let Some((version, owner, uid)) = owner {
            expected["metadata"]["ownerReferences"] = json!([{
                "apiVersion": version, "kind": owner, "name": "shop", "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        assert_eq!(plain(request.object.as_ref().unwrap()), expected, "{kind}");
    }
    assert_eq!(WORKLOADS.len(), 8);
}

#[test]
fn derives_creation_of_pod_by_same_user() {
    let workload = workload("Deployment");
    let new = object(workload, &template());
    let mut old = template();
    old["spec"]["containers"][0]["image"] = "web:0".into();
    let received = request(workload, &new, Some(&object(workload, &old)));
    let derived = workload.derive(&received).unwrap();
    assert_eq!(derived.operation, Operation::Create);
    assert_eq!((derived.name.as_str(), &derived.old_object), ("", &None));
    assert_eq!(derived.resource.resource, "pods");
    assert_eq!(derived.username(), "jane");
    assert_eq!(
        plain(derived.document.get()),
        json!({
            "uid": "1", "operation": "CREATE", "namespace": "team",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "jane"},
        })
    );
    let options = plain(derived.options.as_ref().unwrap());
    assert_eq!(options["kind"], "CreateOptions");
    let origin = derived.template.as_ref().unwrap();
    let old_pod = plain(origin.old_pod.as_ref().unwrap());
    assert_eq!(old_pod["spec"]["containers"][0]["image"], "web:0");
    assert_eq!(derived.received().name, "shop");
    assert_eq!(received.received().name, "shop");
}

#[test]
fn only_writes_of_the_workload_itself_have_template() {
    let deployment = workload("Deployment");
    let received = request(deployment, &object(deployment, &template()), None);
    assert_eq!(Workload::of(&received), Some(deployment));
    let with = |change: &dyn Fn(&mut AdmissionRequest)| {
        let mut request = (*received).clone();
        change(&mut request);
        Workload::of(&request)
    };
    assert_eq!(with(&|request| request.operation = Operation::Delete), None);
    assert_eq!(
        with(&|request| request.sub_resource = Some("scale".to_owned())),
        None
    );
    assert_eq!(
        with(&|request| request.resource.version = "v2".to_owned()),
        None
    );
    assert_eq!(
        with(&|request| request.resource.group = "acme.dev".to_owned()),
        None
    );
    assert_eq!(
        with(&|request| request.resource.resource = "pods".to_owned()),
        None
    );
}

#[test]
fn names_place_and_type_of_template_that_cannot_be_read() {
    let told = |kind: &str, object: Value| {
        let error = workload(kind).pod(&Json::from(object), None);
        error.unwrap_err().to_string()
    };
    for (kind, object, place, found) in [
        ("Deployment", json!({}), "spec", "null"),
        (
            "Deployment",
            json!({"spec": {"template": []}}),
            "spec.template",
            "array",
        ),
        (
            "Job",
            json!({"spec": {"template": {}}}),
            "spec.template.spec",
            "null",
        ),
        (
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": "x"}}}),
            "spec.jobTemplate.spec",
            "string",
        ),
        (
            "PodTemplate",
            json!({"template": {"spec": {}, "metadata": 1}}),
            "template.metadata",
            "number",
        ),
    ] {
        assert_eq!(
            told(kind, object),
            format!("cannot read the pod template: {place} must be an object, but is {found}")
        );
    }
    let bare = json!({"spec": {"template": {"metadata": null, "spec": {}}}});
    assert!(workload("Job").pod(&Json::from(bare), None).is_ok());
}

#[test]
fn puts_changes_of_pod_into_each_workload() {
    for workload in &WORKLOADS {
        let before = Json::from(object(workload, &template()));
        let mut pod = plain(&workload.pod(&before, Some("team")).unwrap());
        pod["spec"]["containers"][0]["image"] = "mirror/web:1".into();
        pod["spec"]["hostNetwork"] = false.into();
        pod["metadata"]["labels"]["team"] = "shop".into();
        pod["metadata"]["finalizers"] = Value::Null;
        let after = workload.put(&before, &Json::from(pod)).unwrap();
        let mut expected = template();
        expected["spec"]["containers"][0]["image"] = "mirror/web:1".into();
        expected["spec"]["hostNetwork"] = false.into();
        expected["metadata"]["labels"]["team"] = "shop".into();
        expected["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("finalizers");
        assert_eq!(
            plain(&after),
            object(workload, &expected),
            "{}",
            workload.kind
        );
        let root = format!("/{}/", workload.path.join("/"));
        let operations = diff(&before, &after);
        assert!(
            operations
                .iter()
                .all(|operation| operation.path().as_str().starts_with(&root)),
            "{}",
            workload.kind
        );
    }
}

#[test]
fn adds_metadata_to_template_without_any() {
    let workload = workload("Deployment");
    let before = Json::from(object(workload, &json!({"spec": {}})));
    let mut pod = plain(&workload.pod(&before, None).unwrap());
    pod["metadata"]["annotations"] = json!({"a": "1"});
    let after = plain(&workload.put(&before, &Json::from(pod)).unwrap());
    assert_eq!(
        after["spec"]["template"],
        json!({"spec": {}, "metadata": {"annotations": {"a": "1"}}})
    );
}

#[test]
fn ignores_what_controllers_set() {
    let workload = workload("StatefulSet");
    let before = Json::from(object(workload, &template()));
    let mut pod = plain(&workload.pod(&before, Some("team")).unwrap());
    pod["metadata"]["name"] = "web-0".into();
    pod["metadata"]["namespace"] = "other".into();
    pod["metadata"]["creationTimestamp"] = Value::Null;
    pod["metadata"]["ownerReferences"] = json!([]);
    pod["status"] = json!({});
    let after = workload.put(&before, &Json::from(pod)).unwrap();
    assert!(diff(&before, &after).is_empty());
}

#[test]
fn refuses_pod_that_is_no_pod_any_more() {
    let workload = workload("Deployment");
    let before = Json::from(object(workload, &template()));
    let pod = plain(&workload.pod(&before, None).unwrap());
    let put = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod.clone();
        change(&mut pod);
        workload.put(&before, &Json::from(pod)).unwrap_err()
    };
    assert_eq!(put(&|pod| pod["kind"] = "Node".into()), PutError::OtherKind);
    assert_eq!(put(&|pod| pod["data"] = json!({})), PutError::UnknownMember);
    assert_eq!(
        put(&|pod| pod["spec"] = json!([])),
        PutError::NotAnObject("spec")
    );
    assert_eq!(
        put(&|pod| pod["metadata"] = 1.into()),
        PutError::NotAnObject("metadata")
    );
    assert_eq!(
        put(&|pod| *pod = Value::Null),
        PutError::NotAnObject("root")
    );
}

#[test]
fn maps_pointers_and_paths() {
    let (deployment, cron_job) = (workload("Deployment"), workload("CronJob"));
    for (here, there) in [
        (
            "/spec/containers/0/image",
            "/spec/template/spec/containers/0/image",
        ),
        ("/metadata/labels/app", "/spec/template/metadata/labels/app"),
        ("", "/spec/template"),
        ("/metadata/name", "/metadata/name"),
        ("/metadata/generateName", "/metadata/name"),
        ("/metadata/namespace", "/metadata/namespace"),
        ("spec.hostNetwork", "spec.template.spec.hostNetwork"),
        ("metadata.labels[app]", "spec.template.metadata.labels[app]"),
        ("specification", "specification"),
        ("the image", "the image"),
    ] {
        assert_eq!(deployment.pointer(here), there, "{here}");
    }
    assert_eq!(
        cron_job.pointer("/spec/hostPID"),
        "/spec/jobTemplate/spec/template/spec/hostPID"
    );
}

#[test]
fn maps_denial_with_paths_in_its_texts() {
    let cause = |field: &str, message: &str| Cause {
        field: Some(field.to_owned()),
        message: message.to_owned(),
        reason: None,
    };
    let denial = Denial {
        message: "spec.containers[0].image and spec.containers[0] are bad (spec.containers[01], \
                  x.spec.containers[0], spec.containers[0]); write to spec@example.com"
            .to_owned(),
        causes: vec![
            cause("/spec/containers/0", "see /spec/containers/0."),
            cause(
                "/spec/containers/0/image",
                "spec.containers[0].image: no tag",
            ),
        ],
        ..Denial::default()
    };
    let located = derived("Deployment").template.unwrap().locate(denial);
    assert_eq!(
        located.message,
        "spec.template.spec.containers[0].image and spec.template.spec.containers[0] are bad \
         (spec.containers[01], x.spec.containers[0], spec.template.spec.containers[0]); write to spec@example.com"
    );
    let told = |index: usize| {
        let cause = &located.causes[index];
        (cause.field.as_deref().unwrap(), cause.message.as_str())
    };
    assert_eq!(
        told(0),
        (
            "/spec/template/spec/containers/0",
            "see /spec/template/spec/containers/0."
        )
    );
    assert_eq!(
        told(1),
        (
            "/spec/template/spec/containers/0/image",
            "spec.template.spec.containers[0].image: no tag"
        )
    );
}

#[test]
fn controllers_own_objects_have_no_template_of_their_own() {
    let owned = |kind: &str, version: &str, owner: &str, controller: bool| {
        let object = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "controller": false},
            {"apiVersion": version, "kind": owner, "controller": controller},
        ]}});
        workload(kind).is_made_by_controller(&Json::from(object))
    };
    assert!(owned("ReplicaSet", "apps/v1", "Deployment", true));
    assert!(owned("ReplicaSet", "argoproj.io/v1alpha1", "Rollout", true));
    assert!(owned("Job", "batch/v1", "CronJob", true));
    assert!(!owned("Job", "batch/v1", "CronJob", false));
    assert!(!owned("Job", "acme.dev/v1", "CronJob", true));
    assert!(!owned(
        "StatefulSet",
        "monitoring.coreos.com/v1",
        "Prometheus",
        true
    ));
    assert!(!workload("ReplicaSet").is_made_by_controller(&Json::from(json!({}))));
}
