//! The effect of a plugin's faults on users.

use serde_json::json;
use tollgate_tests::server::metric;
use tollgate_tests::{cluster_or_skip, hostile, wat};

use crate::fixtures::{config_map, configuration, rules, serve};

/// `annotation: true` would make kube-apiserver reject the user's request, whatever the webhook's failurePolicy.
#[tokio::test(flavor = "multi_thread")]
async fn boolean_annotation_is_fault_of_plugin() {
    let cluster = cluster_or_skip!();
    for (namespace, failure_policy) in [("boolean-ignore", "Ignore"), ("boolean-fail", "Fail")] {
        cluster.namespace(namespace);
        let mut configuration = configuration();
        configuration.plugin_of(
            "careless",
            &hostile::all()["patch-annotation-boolean"],
            json!({"failurePolicy": failure_policy, "match": rules(namespace, &[""], &["configmaps"])}),
        );
        let probe = config_map(namespace, "probe", "");
        let served = serve(cluster, namespace, configuration, &[], &probe).await;
        let created = cluster
            .kubectl(&["create", "-f", "-"])
            .input(&config_map(namespace, "web", "a"))
            .run();
        let entry = cluster.audit(|entry| {
            entry["objectRef"]["namespace"] == namespace && entry["objectRef"]["name"] == "web"
        });
        let annotations = &entry[0]["annotations"];
        let get = [
            "get",
            "configmap",
            "web",
            "-n",
            namespace,
            "-o",
            "jsonpath={.metadata.annotations}",
        ];
        let got = cluster.kubectl(&get).run();
        if failure_policy == "Ignore" {
            assert!(created.succeeded(), "{created}");
            assert_eq!(
                (created.errors.as_str(), got.output.as_str()),
                ("", ""),
                "{created}\n{got}"
            );
            let recorded = &annotations["mutate.tollgate.dev/careless.failed-open"];
            assert_eq!(recorded, "bad-patch", "{annotations}");
            let mutated = annotations
                .as_object()
                .into_iter()
                .flatten()
                .any(|(key, value)| {
                    key.starts_with("mutation.webhook.admission.k8s.io/")
                        && value
                            .as_str()
                            .is_some_and(|text| text.contains("\"mutated\":true"))
                });
            assert!(!mutated, "{annotations}");
        } else {
            created.assert_failed(&[
                "Error from server (InternalError)",
                "admission webhook \"mutate.tollgate.dev\" denied the request: careless failed (bad-patch, failurePolicy Fail)",
                "`/metadata/annotations/flag` is a boolean",
            ]);
            got.assert_failed(&["NotFound"]);
            assert_eq!(
                annotations["mutate.tollgate.dev/careless.fault"], "bad-patch",
                "{annotations}"
            );
        }
        let labels = [
            ("plugin", "careless"),
            ("fault", "bad-patch"),
            ("failure_policy", failure_policy),
        ];
        let faults = metric(
            &served.server.metrics().await,
            "tollgate_plugin_faults_total",
            &labels,
        );
        assert!(faults >= 1.0, "{faults}");
    }
}

/// The host answers before kube-apiserver's timeout, however long a plugin takes.
#[tokio::test(flavor = "multi_thread")]
async fn slow_plugin_is_named_before_kube_apiserver_times_out() {
    let cluster = cluster_or_skip!();
    for (namespace, failure_policy) in [("slow-fail", "Fail"), ("slow-ignore", "Ignore")] {
        cluster.namespace(namespace);
        let mut configuration = configuration();
        let matched = rules(namespace, &[""], &["configmaps"]);
        configuration.plugin_of(
            "sleeper",
            &hostile::all()["wasi-sleep"],
            json!({"failurePolicy": failure_policy, "match": matched, "limits": {"timeout": "1500ms"}}),
        );
        configuration.plugin_of(
            "quick",
            &wat::plugin("validator", ""),
            json!({"match": matched}),
        );
        let probe = config_map(namespace, "probe", "");
        let timeout = ["--timeout-seconds", "3"];
        let _served = serve(cluster, namespace, configuration, &timeout, &probe).await;
        let created = cluster
            .kubectl(&["create", "-f", "-"])
            .input(&config_map(namespace, "web", "a"))
            .run();
        if failure_policy == "Ignore" {
            assert!(created.succeeded(), "{created}");
        } else {
            created.assert_failed(&["sleeper failed (deadline, failurePolicy Fail)"]);
        }
        // The host allowed the request, not kube-apiserver.
        let entries = cluster.audit(|entry| {
            entry["objectRef"]["namespace"] == namespace && entry["objectRef"]["name"] == "web"
        });
        let annotations = entries[0]["annotations"].to_string();
        let of_plugin = format!(
            "validate.tollgate.dev/sleeper.{}",
            if failure_policy == "Ignore" {
                "failed-open"
            } else {
                "fault"
            }
        );
        assert!(
            annotations.contains(&format!("\"{of_plugin}\":\"deadline\"")),
            "{annotations}"
        );
        assert!(
            !annotations.contains("\"failed-open.validat"),
            "{annotations}"
        );
    }
}
