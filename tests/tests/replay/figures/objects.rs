//! Reviews of the size that kube-apiserver sends for the Pod of a Deployment: some 5 kB each.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate_tests::reviews::{Review, pod};

/// Deployments that the Pods belong to. Pods of the same one differ in what is random.
const DEPLOYMENTS: usize = 200;

/// Returns a random text that depends on the index and on a name only.
fn random(index: usize, name: &str) -> String {
    let hash = Sha256::digest(format!("{name} {index}"));
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a uid as kube-apiserver makes it.
pub(super) fn uid(index: usize) -> String {
    let digits = random(index, "uid");
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
    ];
    format!("{}-{}", parts.join("-"), &digits[20..32])
}

fn container(deployment: usize, name: &str) -> Value {
    let variable = |number: usize| json!({"name": format!("SETTING_{number}"), "value": random(deployment, &format!("{name} {number}"))[..24]});
    let probe = json!({
        "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "failureThreshold": 3,
        "initialDelaySeconds": 5, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
    });
    let secured = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
    });
    json!({
        "name": name, "image": format!("registry.example.com/team-{}/{name}:1.4.{deployment}", deployment % 20),
        "imagePullPolicy": "IfNotPresent", "env": (0..8).map(variable).collect::<Vec<_>>(),
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "livenessProbe": probe, "readinessProbe": probe, "securityContext": secured,
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/etc/settings", "name": "settings", "readOnly": true},
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": true},
        ],
    })
}

/// Returns a Pod of a ReplicaSet.
fn full_pod(index: usize, tier: &str) -> Value {
    let deployment = index % DEPLOYMENTS;
    let name = format!("web-{deployment}");
    let hash = random(deployment, "template");
    let set = format!("{name}-{}", &hash[..10]);
    let mut object = pod(&format!("{set}-{}", &random(index, "suffix")[..5]));
    object["metadata"]["uid"] = json!(uid(index + 1_000_000_000));
    object["metadata"]["generateName"] = json!(format!("{set}-"));
    object["metadata"]["labels"] = json!({
        "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm", "tier": tier,
        "pod-template-hash": hash[..10],
    });
    object["metadata"]["annotations"] = json!({
        "checksum/config": hash, "prometheus.io/port": "8080", "prometheus.io/scrape": "true",
    });
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": uid(deployment + 2_000_000_000),
        "blockOwnerDeletion": true, "controller": true,
    }]);
    object["spec"]["containers"] =
        json!([container(deployment, "app"), container(deployment, "proxy")]);
    object["spec"]["serviceAccountName"] = json!(name);
    object["spec"]["dnsPolicy"] = json!("ClusterFirst");
    object["spec"]["schedulerName"] = json!("default-scheduler");
    object["spec"]["securityContext"] =
        json!({"fsGroup": 1000, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
    object["spec"]["tolerations"] = json!([
        {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
        {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
    ]);
    object["spec"]["volumes"] = json!([
        {"name": "settings", "configMap": {"name": name, "defaultMode": 420}},
        {"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}},
    ]);
    object
}

/// Returns the review of a Pod with a tier.
pub(super) fn review(index: usize, tier: &str) -> Value {
    Review::create(full_pod(index, tier))
        .uid(&uid(index))
        .build()
}
