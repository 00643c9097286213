//! Values that the chart refuses, and values that change names and restarts.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_tests::chart::Objects;

use crate::chart_or_skip;

#[test]
fn schema_rejects_bad_values() {
    let chart = chart_or_skip!();
    for (values, words) in [
        ("replicas=0", "/replicas"),
        ("replicas=two", "/replicas"),
        ("replicaCount=3", "replicaCount"),
        ("image.digest=1234", "/image/digest"),
        ("image.repository=", "/image/repository"),
        (
            "cluster.settingsFrom.secrets=true",
            "/cluster/settingsFrom/secrets",
        ),
        ("cluster.settings=true", "settings"),
        ("tls.secretName=Not_A_Name", "/tls/secretName"),
        ("listenAddress=localhost", "/listenAddress"),
        ("volumes.code=lots", "/volumes/code"),
        ("sizing.pluginCount=0", "/sizing/pluginCount"),
        ("preStopSeconds=-1", "/preStopSeconds"),
        ("env[0].name=POD_NAME", "/env/0"),
        (
            "networkPolicy.egressPorts={0}",
            "/networkPolicy/egressPorts",
        ),
        (
            "podDisruptionBudget.maxUnavailable=0",
            "/podDisruptionBudget/maxUnavailable",
        ),
    ] {
        let refused = chart.try_text(&["--set", values]);
        let Err(reason) = refused else {
            panic!("{values} is accepted");
        };
        assert!(reason.contains("schema"), "{values}: {reason}");
        assert!(reason.contains(words), "{values}: {reason}");
    }
}

#[test]
fn rejects_sections_that_the_chart_writes() {
    let chart = chart_or_skip!();
    for (values, words) in [
        (
            "config.listen=0.0.0.0:1",
            "config.listen is written by the chart: use the value listenAddress",
        ),
        ("config.tls.certificate=a", "use the value tls.secretName"),
        (
            "config.cluster.enabled=true",
            "use the value cluster.enabled",
        ),
        ("config.requests.maxInFlight=lots", "lots is not a number"),
        (
            "cluster.enabled=false",
            "tls.secretName is required when cluster.enabled is false",
        ),
        (
            "cluster.enabled=false,tls.secretName=tls",
            "config.plugins is required when cluster.enabled is false",
        ),
    ] {
        let refused = chart.try_text(&["--set", values]);
        let reason = refused.expect_err(values);
        assert!(reason.contains(words), "{values}: {reason}");
    }
}

#[test]
fn only_sections_that_need_a_restart_replace_pods() {
    let chart = chart_or_skip!();
    let template = |values: &str| {
        let objects = chart.objects(values);
        objects.get("Deployment", "tollgate")["spec"]["template"].clone()
    };
    let before = template("");
    for live in [
        "config.plugins[0].name=a,config.plugins[0].source=file:/a.wasm",
        "config.log.identities=false",
        "config.conflicts=deny",
    ] {
        assert_eq!(template(live), before, "{live}");
    }
    for restarting in ["config.requests.maxBody=1Mi", "config.engine.maxPlugin=1Mi"] {
        assert_ne!(
            template(restarting)["metadata"],
            before["metadata"],
            "{restarting}"
        );
    }
}

#[test]
fn two_installations_share_no_object() {
    let chart = chart_or_skip!();
    let names = |name: &str| -> BTreeSet<String> {
        let objects = chart.objects(&format!("fullnameOverride={name},crds.install=false"));
        objects.names().into_iter().collect()
    };
    let (one, two) = (names("one"), names("two"));
    assert_eq!(one.len(), two.len());
    let shared: Vec<_> = one.intersection(&two).collect();
    assert!(shared.is_empty(), "{shared:?}");
}

#[test]
fn every_value_is_in_the_schema() {
    let read = |name: &str| {
        let path = tollgate_tests::chart::deploy().join("chart").join(name);
        std::fs::read_to_string(path).expect("the file can be read")
    };
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).expect("YAML");
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    let mut missing = Vec::new();
    compare("", &values, &schema, &mut missing);
    assert!(missing.is_empty(), "not in values.schema.json: {missing:?}");
}

/// Collects the keys of a value that its schema does not name.
fn compare(path: &str, value: &Value, schema: &Value, missing: &mut Vec<String>) {
    let (Some(keys), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    else {
        return;
    };
    for (key, value) in keys {
        let path = format!("{path}/{key}");
        match properties.get(key) {
            Some(schema) => compare(&path, value, schema, missing),
            None => missing.push(path),
        }
    }
}

/// The ports that pods may connect to at every address, besides those for names.
fn egress_ports(objects: &Objects) -> Vec<u64> {
    let policy = objects.get("NetworkPolicy", "tollgate");
    let rules = policy["spec"]["egress"].as_array().expect("rules");
    let everywhere = rules.iter().filter(|rule| rule.get("to").is_none());
    let ports = everywhere.flat_map(|rule| rule["ports"].as_array().expect("ports"));
    let ports = ports.filter_map(|port| port["port"].as_u64());
    ports.filter(|port| *port != 53).collect()
}

#[test]
fn network_policy_opens_ports_of_collectors() {
    let chart = chart_or_skip!();
    assert_eq!(egress_ports(&chart.objects("")), [443, 6443]);
    for (endpoint, port) in [
        ("http://otel-collector.monitoring:4318", 4318),
        ("https://otlp.example.com/v1/logs", 443),
        ("http://10.0.0.1/v1/logs", 80),
    ] {
        let values = format!("config.telemetry.decisions.endpoint={endpoint}");
        let ports = egress_ports(&chart.objects(&values));
        assert_eq!(ports, [443, 6443, port], "{endpoint}");
    }
    let with_traces = "config.telemetry.traces.endpoint=http://a:4318";
    let with_another_share = format!("{with_traces},config.telemetry.traces.share=7");
    // The pods are replaced, because the section needs a restart.
    let annotation = |values: &str| {
        let objects = chart.objects(values);
        let template = objects.get("Deployment", "tollgate")["spec"]["template"].clone();
        template["metadata"]["annotations"]["tollgate.dev/restart-on"].clone()
    };
    assert_ne!(annotation(with_traces), annotation(&with_another_share));
}
