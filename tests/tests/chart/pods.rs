//! The pods: what they may do, how they start and stop, and how much memory they get.

use serde_json::{Value, json};

use crate::chart_or_skip;

const MIB: u64 = 1 << 20;

#[test]
fn pods_meet_the_restricted_standard() {
    let objects = chart_or_skip!().objects("");
    let pod = objects.pod();
    let expected = json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(pod["securityContext"], expected);
    let containers = pod["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1);
    assert!(pod.get("initContainers").is_none());
    let expected = json!({
        "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(containers[0]["securityContext"], expected);
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod.get(key).is_none(), "{key}");
    }
    for port in containers[0]["ports"].as_array().expect("ports") {
        assert!(port.get("hostPort").is_none(), "{port}");
    }
}

#[test]
fn what_holds_settings_lies_in_memory() {
    let objects = chart_or_skip!().objects("");
    let configuration: Value =
        serde_saphyr::from_str(objects.configuration()).expect("the configuration is YAML");
    let pod = objects.pod();
    for pointer in [
        "/engine/cacheDirectory",
        "/registries/cacheDirectory",
        "/tls/selfSigned/directory",
    ] {
        let folder = configuration.pointer(pointer).and_then(Value::as_str);
        let folder = folder.unwrap_or_else(|| panic!("{pointer} is not configured"));
        let mounts = pod["containers"][0]["volumeMounts"]
            .as_array()
            .expect("mounts");
        let mount = mounts.iter().find(|mount| {
            let path = mount["mountPath"].as_str().expect("a path");
            // A folder below the mount, because Tollgate must own it alone, and the mount belongs to root.
            folder
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('/'))
        });
        let mount = mount.unwrap_or_else(|| panic!("no volume is mounted above {folder}"));
        let volumes = pod["volumes"].as_array().expect("volumes");
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == mount["name"]);
        assert_eq!(
            volume.expect("the volume")["emptyDir"]["medium"],
            "Memory",
            "{folder}"
        );
    }
}

#[test]
fn rollout_leaves_time_for_every_call() {
    let chart = chart_or_skip!();
    for (values, grace) in [
        ("", 5 + 25 + 5),
        (
            "preStopSeconds=10,config.requests.shutdownGracePeriod=1m30s",
            10 + 90 + 5,
        ),
        ("config.requests.shutdownGracePeriod=1500ms", 5 + 2 + 5),
    ] {
        let objects = chart.objects(values);
        assert_eq!(
            objects.pod()["terminationGracePeriodSeconds"],
            grace,
            "{values}"
        );
    }
    let objects = chart.objects("");
    let deployment = objects.get("Deployment", "tollgate");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"], rolling);
    let container = &objects.pod()["containers"][0];
    assert_eq!(
        container["lifecycle"]["preStop"],
        json!({"sleep": {"seconds": 5}})
    );
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(
            container[probe]["httpGet"],
            json!({"path": path, "port": "probes"}),
            "{probe}"
        );
    }
    let budget = objects.get("PodDisruptionBudget", "tollgate");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}

/// The formula of `docs/guides/sizing.md` with the processes that prepare plugins, and the volumes in memory.
#[test]
fn memory_limit_follows_the_sizing_formula() {
    let chart = chart_or_skip!();
    let calls = |concurrent: u64, stack_and_output: u64| concurrent * (MIB + stack_and_output);
    let fixed = 128 * MIB + 500 * 128 * 1024 + (64 + 128) * MIB * 5 / 4 + 256 * MIB;
    let loading = 2 * 2 * 256 * MIB;
    let volumes = 2 * 128 * MIB;
    let default = fixed + 8 * 24 * MIB + calls(32, MIB / 2 + 4 * MIB) + loading + volumes;
    let one_plugin = "config.plugins[0].name=a,config.plugins[0].source=file:/a.wasm";
    let output = format!("{one_plugin},config.plugins[0].limits.output=8Mi");
    for (values, expected) in [
        ("", default),
        ("sizing.pluginCount=20", default + 12 * 24 * MIB),
        ("sizing.processors=4", default + 2 * 2 * 256 * MIB),
        (
            "config.requests.maxInFlight=1Gi",
            default + (1024 - 64) * MIB * 5 / 4,
        ),
        (
            "config.requests.maxConnections=1k",
            default + 500 * 128 * 1024,
        ),
        ("config.engine.maxWasmStack=1Mi", default + 32 * MIB / 2),
        (
            "config.engine.loadMemory=1Gi",
            default + 4 * (1024 - 256) * MIB,
        ),
        ("scan.enabled=true", default + (64 + 8 * 8 + 128) * MIB),
        ("volumes.state=1Gi", default + (1024 - 128) * MIB),
        (&*output, default + 32 * 4 * MIB),
    ] {
        let objects = chart.objects(values);
        let limit = &objects.pod()["containers"][0]["resources"]["limits"]["memory"];
        let expected = format!("{}Mi", expected.div_ceil(MIB));
        assert_eq!(limit, &Value::String(expected), "{values}");
    }
    let objects = chart.objects("resources.limits.memory=3Gi");
    let resources = &objects.pod()["containers"][0]["resources"];
    assert_eq!(resources["limits"], json!({"cpu": "2", "memory": "3Gi"}));
}

#[test]
fn services_select_the_pods() {
    let objects = chart_or_skip!().objects("");
    let labels = &objects.get("Deployment", "tollgate")["spec"]["template"]["metadata"]["labels"];
    for (name, ports) in [("tollgate", "https"), ("tollgate-peers", "probes")] {
        let service = &objects.get("Service", name)["spec"];
        for (key, value) in service["selector"].as_object().expect("a selector") {
            assert_eq!(&labels[key], value, "{name}");
        }
        assert_eq!(service["ports"][0]["targetPort"], ports);
        let container = &objects.pod()["containers"][0];
        let mut named = container["ports"].as_array().expect("ports").iter();
        assert!(named.any(|port| port["name"] == ports), "{ports}");
    }
    let peers = &objects.get("Service", "tollgate-peers")["spec"];
    assert_eq!(peers["publishNotReadyAddresses"], true);
    let asked = "tollgate-peers.tollgate-system.svc:8080";
    assert!(
        objects.configuration().contains(asked),
        "{}",
        objects.configuration()
    );
}
