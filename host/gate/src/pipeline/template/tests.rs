//! Which plugins get the template, and of which requests.

use std::path::Path;

use serde_json::{Value, json};
use tollgate_admission::Phase;
use tollgate_admission::review::decode::decode;
use tollgate_config::Config;
use tollgate_telemetry::metrics::Metrics;

use super::*;
use crate::pipeline::outcome::Ended;
use crate::plugin::{Plugin, PluginState};

const PODS: &str = "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}";

/// A plugin that never loaded. The tests only ask what it would be called with.
fn plugin(matching: &str) -> Arc<Plugin> {
    let text =
        format!("plugins: [{{name: a, source: 'file:a', match: {{rules: [{PODS}]{matching}}}}}]");
    let mut config = Config::parse(&text, Path::new(".")).expect("the configuration is valid");
    Arc::new(Plugin {
        config: config.plugins.remove(0),
        digest: None,
        state: PluginState::Failed {
            reason: "it is not there".to_owned(),
        },
        metrics: Metrics::new().plugin("a"),
        group: None,
    })
}

fn deployment(image: &str) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "app", "image": image}]}}},
    })
}

fn request(object: &Value, old: Option<&Value>) -> Arc<AdmissionRequest> {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "name": "web", "namespace": "shop",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "object": object, "oldObject": old,
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    Arc::new(review.request)
}

fn shown(plugin: &Arc<Plugin>, request: &Arc<AdmissionRequest>) -> Shown {
    let turn = Turn {
        plugin,
        phase: Phase::Validate,
    };
    Templates::of(request).show(&turn, request.object.as_ref())
}

fn image(subject: &Subject) -> Option<&str> {
    let spec = subject.object.as_ref()?.member("spec")?;
    let container = spec.member("containers")?.as_array()?.first()?;
    container.member("image")?.as_text()
}

#[test]
fn only_plugins_with_the_key_get_the_template() {
    let request = request(&deployment("app:1"), None);
    let with = shown(&plugin(", podTemplates: true"), &request);
    assert!(with.settled.is_none());
    let pod = with.pod.expect("a Pod");
    assert_eq!(image(&pod), Some("app:1"));
    assert_eq!(pod.request.resource.resource, "pods");
    let without = shown(&plugin(""), &request);
    assert!(without.settled.is_none() && without.pod.is_none());
}

#[test]
fn plugins_share_one_derived_request() {
    let request = request(&deployment("app:1"), None);
    let plugin = plugin(", podTemplates: true");
    let turn = Turn {
        plugin: &plugin,
        phase: Phase::Validate,
    };
    let templates = Templates::of(&request);
    let pod = |object: &Option<Json>| {
        let shown = templates.show(&turn, object.as_ref());
        shown.pod.expect("a Pod")
    };
    let first = pod(&request.object);
    assert!(Arc::ptr_eq(&first, &pod(&request.object)));
    // An earlier mutator changed the object.
    let changed = pod(&Some(Json::from(deployment("app:2"))));
    assert_eq!(image(&changed), Some("app:2"));
    assert!(Arc::ptr_eq(&first.request, &changed.request));
}

#[test]
fn update_with_the_same_template_is_passed_over() {
    let plugin = plugin(", podTemplates: true");
    let (old, mut scaled) = (deployment("app:1"), deployment("app:1"));
    scaled["spec"]["replicas"] = 3.into();
    let settled = shown(&plugin, &request(&scaled, Some(&old))).settled;
    assert!(matches!(
        settled,
        Some(Beginning::NotCalled(Mismatch::SameTemplate))
    ));
    let changed = shown(&plugin, &request(&deployment("app:2"), Some(&old)));
    assert!(changed.settled.is_none() && changed.pod.is_some());
    let broken = json!({"metadata": {"name": "web"}});
    let repaired = shown(&plugin, &request(&deployment("app:2"), Some(&broken)));
    assert!(repaired.pod.is_some());
}

#[test]
fn object_of_a_controller_is_passed_over() {
    let plugin = plugin(", podTemplates: true");
    let mut object = deployment("app:1");
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "controller": true}]);
    let settled = shown(&plugin, &request(&object, None)).settled;
    assert!(matches!(
        settled,
        Some(Beginning::NotCalled(Mismatch::MadeByController))
    ));
}

#[test]
fn template_that_cannot_be_read_is_a_fault() {
    let object = json!({"metadata": {"name": "web"}, "spec": {"template": "no"}});
    let settled = |matching: &str| shown(&plugin(matching), &request(&object, None)).settled;
    let Some(Beginning::Report(report)) = settled(", podTemplates: true") else {
        panic!("it is no fault");
    };
    let Ended::Faulted(fault) = &report.ended else {
        panic!("{:?}", report.ended);
    };
    assert_eq!(fault.kind, "unreadable");
    assert!(
        fault
            .message
            .contains("spec.template must be an object, but is string"),
        "{}",
        fault.message
    );
    // The plugin would not have been called anyway.
    assert!(matches!(
        settled(", podTemplates: true, excludeNamespaces: [shop]"),
        Some(Beginning::NotCalled(_))
    ));
}
