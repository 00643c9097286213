//! Fifty objects that differ in the fields that policies read.

use serde_json::{Value, json};

use crate::fixtures::{config_map, deployment, pod};

/// Creates various Pods, workloads with such Pods in their templates, and other objects.
pub(crate) fn fifty(namespace: &str) -> Vec<Value> {
    let mut objects = Vec::new();
    for (index, (name, change)) in POD_CHANGES.iter().enumerate() {
        let mut pod = pod(namespace, name);
        change(&mut pod);
        own(&mut pod, index);
        objects.push(pod);
    }
    for (index, kind) in WORKLOADS.iter().enumerate() {
        for (name, change) in POD_CHANGES.iter().skip(index).step_by(5).take(4) {
            let mut template = pod(namespace, name);
            change(&mut template);
            let mut workload = workload(namespace, kind, name, &template);
            own(&mut workload, index + name.len());
            objects.push(workload);
        }
    }
    for index in 0..3 {
        let mut map = config_map(namespace, &format!("map-{index}"), "a");
        own(&mut map, index);
        objects.push(map);
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": format!("service-{index}"), "namespace": namespace},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        });
        if index == 0 {
            service["spec"]["externalIPs"] = json!(["203.0.113.1"]);
        }
        own(&mut service, index);
        objects.push(service);
        let mut space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("space-{index}")}});
        own(&mut space, index);
        objects.push(space);
    }
    objects
}

type Change = fn(&mut Value);

const POD_CHANGES: [(&str, Change); 21] = [
    ("plain", |_| {}),
    ("old-registry", |pod| {
        container(pod)["image"] = json!("k8s.gcr.io/pause:3.9")
    }),
    ("latest", |pod| {
        container(pod)["image"] = json!("registry.example.com/app")
    }),
    ("always", |pod| {
        container(pod)["imagePullPolicy"] = json!("Always")
    }),
    ("never", |pod| {
        container(pod)["imagePullPolicy"] = json!("Never")
    }),
    ("privileged", |pod| {
        container(pod)["securityContext"] = json!({"privileged": true})
    }),
    ("admin", |pod| {
        container(pod)["securityContext"] = json!({"capabilities": {"add": ["SYS_ADMIN"]}});
    }),
    ("host-network", |pod| {
        pod["spec"]["hostNetwork"] = json!(true)
    }),
    ("host-port", |pod| {
        container(pod)["ports"] = json!([{"containerPort": 80, "hostPort": 8080}])
    }),
    ("host-path", |pod| {
        pod["spec"]["volumes"] = json!([{"name": "root", "hostPath": {"path": "/"}}]);
    }),
    ("empty-dir", |pod| {
        pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}])
    }),
    ("two", |pod| {
        let second = json!({"name": "second", "image": "k8s.gcr.io/second@sha256:0000000000000000000000000000000000000000000000000000000000000000"});
        containers(pod).push(second);
    }),
    ("first", |pod| {
        pod["spec"]["initContainers"] = json!([{"name": "first", "image": "k8s.gcr.io/first:1"}]);
    }),
    ("injected", |pod| {
        pod["metadata"]["annotations"] = json!({"sidecar-inject.tollgate.dev/inject": "true"});
    }),
    ("injected-badly", |pod| {
        pod["metadata"]["annotations"] = json!({"sidecar-inject.tollgate.dev/inject": "true"});
        containers(pod).push(json!({"name": "proxy", "image": "example.com/mine:1"}));
    }),
    ("with-links", |pod| {
        pod["spec"]["enableServiceLinks"] = json!(true)
    }),
    ("without-links", |pod| {
        pod["spec"]["enableServiceLinks"] = json!(false)
    }),
    ("seccomp", |pod| {
        pod["spec"]["securityContext"] = json!({"seccompProfile": {"type": "Unconfined"}});
    }),
    ("sysctl", |pod| {
        let sysctls = json!([{"name": "kernel.msgmax", "value": "65536"}]);
        pod["spec"]["securityContext"] = json!({"sysctls": sysctls});
    }),
    ("environment", |pod| {
        container(pod)["env"] = json!([{"name": "HTML", "value": "<b>&amp;</b>"}, {"name": "UNICODE", "value": "ß\u{2028}🎉"}]);
        let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "topology.kubernetes.io/zone"});
        pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([term]);
    }),
    ("quantities", |pod| {
        container(pod)["resources"] = json!({"limits": {"cpu": 0.5, "memory": "1024Mi"}});
    }),
];

const WORKLOADS: [&str; 5] = ["Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"];

fn containers(pod: &mut Value) -> &mut Vec<Value> {
    pod["spec"]["containers"]
        .as_array_mut()
        .expect("a Pod has containers")
}

fn container(pod: &mut Value) -> &mut Value {
    &mut containers(pod)[0]
}

/// Gives two of three objects a `team` label.
fn own(object: &mut Value, index: usize) {
    if index % 3 != 2 {
        object["metadata"]["labels"]["team"] = json!("shop");
    }
}

fn workload(namespace: &str, kind: &str, name: &str, pod: &Value) -> Value {
    let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": pod["spec"]});
    let mut workload = deployment(namespace, name);
    workload["kind"] = json!(kind);
    let group = if kind.ends_with("Job") {
        "batch/v1"
    } else {
        "apps/v1"
    };
    workload["apiVersion"] = json!(group);
    let selector = workload["spec"]["selector"].clone();
    workload["spec"] = match kind {
        "Job" | "CronJob" => {
            template["spec"]["restartPolicy"] = json!("Never");
            json!({"template": template})
        }
        "DaemonSet" => json!({"selector": selector, "template": template}),
        _ => json!({"selector": selector, "template": template, "replicas": 1}),
    };
    if kind == "CronJob" {
        let spec = workload["spec"].take();
        workload["spec"] = json!({"schedule": "0 * * * *", "jobTemplate": {"spec": spec}});
    }
    if kind == "StatefulSet" {
        workload["spec"]["serviceName"] = json!(name);
    }
    workload
}
