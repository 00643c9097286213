use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_admission::review::decode::decode;
use tollgate_config::{Config, FailurePolicy, PluginConfig, PluginName};
use tollgate_telemetry::metrics::Metrics;

use super::*;
use crate::plugin::PluginState;

fn request(resource: &str, namespace: &str) -> AdmissionRequest {
    let kind = if resource == "namespaces" {
        "Namespace"
    } else {
        "Pod"
    };
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web", "namespace": namespace,
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": resource},
            "object": {"metadata": {"name": "web"}}, "userInfo": {"username": "eve"},
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    review.request
}

/// A plugin that never loaded and has no rules gets every request that it may see.
fn unloaded(name: PluginName) -> Plugin {
    let text = "plugins: [{ name: any, source: 'file:a.wasm' }]";
    let mut config = Config::parse(text, std::path::Path::new("/")).expect("a configuration");
    let config = config.take_plugins().pop().expect("it has a plugin");
    let metrics = Metrics::new();
    Plugin {
        metrics: metrics.plugin(name.as_str()),
        group: None,
        config: PluginConfig {
            name,
            failure_policy: FailurePolicy::Fail,
            ..config
        },
        digest: None::<Arc<str>>,
        state: PluginState::Failed {
            reason: "it never loaded".to_owned(),
        },
    }
}

#[test]
fn plugin_of_a_namespace_sees_nothing_else_even_without_rules() {
    let plugin = unloaded(PluginName::of_tenant("team-a", "guard").expect("a name"));
    for (resource, namespace, is_seen) in [
        ("pods", "team-a", true),
        ("pods", "team-b", false),
        ("pods", "team-a-2", false),
        ("nodes", "", false),
        ("namespaces", "team-a", false),
    ] {
        let request = request(resource, namespace);
        for phase in [Phase::Mutate, Phase::Validate] {
            let standing = plugin.standing(phase, &request, request.object.as_ref());
            let called = matches!(standing, Standing::Called);
            assert_eq!(called, is_seen, "{resource} {namespace}: {standing:?}");
            assert_eq!(
                plugin.could_be_asked(phase, &request),
                is_seen,
                "{resource} {namespace}"
            );
        }
    }
}

#[test]
fn only_its_own_path_runs_a_plugin_of_a_namespace() {
    let tenant = unloaded(PluginName::of_tenant("team-a", "guard").expect("a name"));
    let plugin = unloaded(PluginName::parse("guard").expect("a name"));
    let asked = |only: Option<&str>| (plugin.is_asked_by(only), tenant.is_asked_by(only));
    assert_eq!(asked(None), (true, false));
    assert_eq!(asked(Some("guard")), (true, false));
    assert_eq!(asked(Some("team-a/guard")), (false, true));
    assert_eq!(asked(Some("team-b/guard")), (false, false));
}

#[test]
fn exception_of_a_namespace_ends_at_its_border() {
    let mut plugin = unloaded(PluginName::parse("guard").expect("a name"));
    let spec: Value = json!({ "plugins": ["guard"], "users": ["eve"], "reason": "why" });
    let shared = tollgate_config::SharedException::read(&spec).expect("an exception");
    let exception = shared.exception.confined_to("team-a");
    plugin.config.add_exception(exception);
    for (resource, namespace, is_excepted) in [
        ("pods", "team-a", true),
        ("pods", "team-b", false),
        ("nodes", "", false),
        ("namespaces", "team-a", false),
    ] {
        let request = request(resource, namespace);
        let standing = plugin.standing(Phase::Validate, &request, None);
        let excepted = matches!(standing, Standing::Excepted(_));
        assert_eq!(
            excepted, is_excepted,
            "{resource} {namespace}: {standing:?}"
        );
    }
}
