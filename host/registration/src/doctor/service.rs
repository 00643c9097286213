//! Finds out whether kube-apiserver reaches Tollgate's Service.

use serde_json::Value;

use super::{Finding, Installation, Severity, webhooks};
use crate::live::{Objects, list, text};

pub(super) fn examine(objects: &Objects, installation: &Installation, findings: &mut Vec<Finding>) {
    let ports: Vec<u64> = webhooks(objects)
        .filter(|webhook| webhook.is_of(installation))
        .map(|webhook| &webhook.webhook["clientConfig"]["service"])
        .filter(|service| service.is_object())
        .map(|service| service["port"].as_u64().unwrap_or(443))
        .collect();
    if ports.is_empty() {
        return;
    }
    let object = format!("Service {}", installation.address());
    let mut add = |check, problem: String, fix: &str| {
        findings.push(Finding {
            severity: Severity::Error,
            check,
            object: object.clone(),
            problem,
            fix: fix.to_owned(),
        });
    };
    let Some(service) = objects.find("Service", &installation.namespace, &installation.service)
    else {
        add(
            "service-missing",
            "webhooks call this Service, and it does not exist".to_owned(),
            "install Tollgate, or delete the webhook configurations if it was uninstalled",
        );
        return;
    };
    let serves = |port: u64| {
        let mut ports = list(&service["spec"]["ports"]);
        ports.any(|one| one["port"] == port)
    };
    if let Some(port) = ports.into_iter().find(|port| !serves(*port)) {
        add(
            "service-port",
            format!("webhooks call port {port}, which the Service does not have"),
            "pass the Service's port to `tollgate manifests --service NAMESPACE/NAME:PORT`, and apply its output",
        );
    }
    let slices: Vec<&Value> = objects
        .of_kind("EndpointSlice")
        .filter(|slice| {
            text(slice, "namespace") == installation.namespace
                && slice["metadata"]["labels"]["kubernetes.io/service-name"]
                    == *installation.service
        })
        .collect();
    let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
    let ready = slices
        .iter()
        .flat_map(|slice| list(&slice["endpoints"]))
        .filter(|endpoint| is_ready(endpoint))
        .count();
    match ready {
        0 => add(
            "service-without-endpoints",
            "no replica is ready, so kube-apiserver reaches none; webhooks under failurePolicy Fail deny their \
             requests"
                .to_owned(),
            "look at the pods: kubectl get pods, and `/readyz?verbose` of a replica; to let requests pass meanwhile, \
             delete the webhook configurations",
        ),
        1 => findings.push(Finding {
            severity: Severity::Warning,
            check: "one-replica",
            object,
            problem: "one replica is ready: while it restarts, webhooks under failurePolicy Fail deny their requests"
                .to_owned(),
            fix: "run two replicas or more".to_owned(),
        }),
        _ => {}
    }
}
