//! The output that a kubectl user reads.

use std::fmt::Display;

use serde_json::{Map, Value, json};
use tollgate_tests::cluster_or_skip;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::kubernetes::kubectl::Printed;

use crate::fixtures::{
    act, act_with, config_map, configuration, deployment, labelled, pod, rules, rules_for, serve,
    shows, stable, when,
};

fn create(cluster: &Cluster, object: &Value) -> Printed {
    cluster.kubectl(&["create", "-f", "-"]).input(object).run()
}

/// Joins the output of commands that a user types one after another.
fn session<const N: usize>(commands: [Printed; N]) -> String {
    let texts = commands.iter().map(|printed| format!("{printed}\n"));
    stable(&texts.collect::<String>())
}

#[tokio::test(flavor = "multi_thread")]
async fn prints_denials_and_warnings() {
    let cluster = cluster_or_skip!();
    let namespace = "denials";
    cluster.namespace(namespace);
    let pods = || rules(namespace, &[""], &["pods"]);
    let mut configuration = configuration();
    for name in ["first", "second"] {
        let settings = json!({"forbid_at_all": {"/metadata/labels/stage": "test"}});
        act(&mut configuration, name, pods(), settings);
    }
    let latest = json!({"forbid": {"/spec/containers/*/image": "app:latest"}});
    act(&mut configuration, "no-latest", pods(), latest);
    let tried = json!({"forbid_at_all": {"/metadata/labels/stage": "old"}});
    act_with(
        &mut configuration,
        "tried-out",
        pods(),
        tried,
        json!({"mode": "warn"}),
    );
    let advice = when(
        pods(),
        "has(object.metadata.labels) && 'old' in object.metadata.labels",
    );
    let advice_settings = json!({"warn": "the label `old` goes away in March"});
    act(&mut configuration, "advice", advice, advice_settings);
    let _served = serve(
        cluster,
        namespace,
        configuration,
        &[],
        &pod(namespace, "probe"),
    )
    .await;

    let both = labelled(pod(namespace, "web"), json!({"stage": "test"}));
    shows("a_denial_by_two_plugins", create(cluster, &both));

    let mut two_containers = pod(namespace, "web");
    let containers =
        json!([{"name": "a", "image": "app:latest"}, {"name": "b", "image": "app:latest"}]);
    two_containers["spec"]["containers"] = containers;
    shows("a_denial_with_causes", create(cluster, &two_containers));

    let mut all_three = two_containers.clone();
    all_three["metadata"]["labels"] = json!({"stage": "test"});
    shows("a_denial_by_three_with_causes", create(cluster, &all_three));

    let warned = labelled(
        pod(namespace, "warned"),
        json!({"stage": "old", "old": "yes"}),
    );
    shows("two_warnings", create(cluster, &warned));

    let mut generated = both.clone();
    generated["metadata"] =
        json!({"generateName": "web-", "namespace": namespace, "labels": {"stage": "test"}});
    shows("a_denial_of_a_generated_name", create(cluster, &generated));

    let templates = cluster.kubectl(&["run", "quick", "-n", namespace, "--image=app:latest"]);
    shows("a_denial_of_kubectl_run", templates.run());
}

#[tokio::test(flavor = "multi_thread")]
async fn prints_mutations() {
    let cluster = cluster_or_skip!();
    let namespace = "mutations";
    cluster.namespace(namespace);
    let maps = || rules(namespace, &[""], &["configmaps"]);
    let mut configuration = configuration();
    act(
        &mut configuration,
        "team",
        maps(),
        json!({"set": {"/metadata/labels/team": "shop"}}),
    );
    act(
        &mut configuration,
        "owner",
        maps(),
        json!({"set": {"/metadata/labels/owner": "anna"}}),
    );
    let _served = serve(
        cluster,
        namespace,
        configuration,
        &[],
        &config_map(namespace, "probe", ""),
    )
    .await;
    let on = |arguments: &[&str]| {
        let arguments = [arguments, &["-n", namespace]].concat();
        cluster.kubectl(&arguments)
    };
    let labels = |name: &str| {
        on(&[
            "get",
            "configmap",
            name,
            "-o",
            "jsonpath={.metadata.labels}",
        ])
    };
    let map = |name: &str, value: &str| config_map(namespace, name, value);

    let dry = on(&["create", "-f", "-", "--dry-run=server", "-o", "yaml"]).input(&map("plan", "a"));
    shows(
        "dry_run",
        session([dry.run(), on(&["get", "configmap", "plan"]).run()]),
    );

    let created = on(&["create", "-f", "-", "-o", "yaml"]).input(&map("web", "a"));
    shows("a_mutation_by_two_plugins", session([created.run()]));

    let generated =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "web-"}});
    let name_and_labels = "jsonpath={.metadata.generateName} {.metadata.labels}";
    let generated = on(&["create", "-f", "-", "-o", name_and_labels]).input(&generated);
    shows("a_mutation_of_a_generated_name", session([generated.run()]));

    // A plugin restores the labels, whichever kind of patch removes them.
    let json_patch = r#"[{"op":"remove","path":"/metadata/labels/team"},{"op":"replace","path":"/data/value","value":"b"}]"#;
    let strategic = r#"{"metadata":{"labels":{"team":"other","extra":"yes"}}}"#;
    let merge = r#"{"metadata":{"labels":null},"data":{"value":"c"}}"#;
    let value = || {
        on(&[
            "get",
            "configmap",
            "web",
            "-o",
            "jsonpath={.data.value} {.metadata.labels}",
        ])
    };
    shows(
        "patches",
        session([
            on(&["patch", "configmap", "web", "--type=json", "-p", json_patch]).run(),
            value().run(),
            on(&[
                "patch",
                "configmap",
                "web",
                "--type=strategic",
                "-p",
                strategic,
            ])
            .run(),
            value().run(),
            on(&["patch", "configmap", "web", "--type=merge", "-p", merge]).run(),
            value().run(),
        ]),
    );

    let by = |manager: &str, value: &str| {
        let field_manager = format!("--field-manager={manager}");
        on(&["apply", "--server-side", &field_manager, "-f", "-"])
            .input(&map("applied", value))
            .run()
    };
    let owners = [
        "get",
        "configmap",
        "applied",
        "-o",
        "yaml",
        "--show-managed-fields",
    ];
    shows(
        "server_side_apply_by_two_managers",
        session([
            by("one", "a"),
            by("two", "b"),
            by("one", "c"),
            on(&owners).run(),
        ]),
    );

    // `kubectl diff` does not show the webhooks' changes as differences.
    shows(
        "kubectl_apply_and_diff",
        session([
            on(&["apply", "-f", "-"]).input(&map("diffed", "a")).run(),
            on(&["diff", "-f", "-"]).input(&map("diffed", "a")).run(),
            on(&["apply", "-f", "-"]).input(&map("diffed", "a")).run(),
            labels("diffed").run(),
        ]),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prints_operations_and_subresources() {
    let cluster = cluster_or_skip!();
    let namespace = "operations";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let kept = "has(oldObject.metadata.labels) && 'keep' in oldObject.metadata.labels";
    let deletions = rules_for(namespace, &["DELETE"], &[""], &["configmaps"]);
    act(
        &mut configuration,
        "keeper",
        when(deletions, kept),
        json!({"deny": "it is marked to be kept"}),
    );
    let connections = rules_for(
        namespace,
        &["CONNECT"],
        &[""],
        &["pods/exec", "pods/attach", "pods/portforward"],
    );
    act(
        &mut configuration,
        "no-shell",
        connections,
        json!({"deny": "nobody looks into Pods here"}),
    );
    let scales = rules_for(namespace, &["UPDATE"], &["apps"], &["deployments/scale"]);
    let many = when(scales, "object.spec.replicas > 5");
    act(
        &mut configuration,
        "few",
        many,
        json!({"deny": "at most 5 replicas"}),
    );
    let status = rules_for(namespace, &["UPDATE"], &[""], &["pods/status"]);
    act(
        &mut configuration,
        "status",
        status,
        json!({"forbid": {"/status/phase": "Failed"}}),
    );
    let probes = rules(namespace, &[""], &["configmaps"]);
    act(&mut configuration, "allowed", probes, json!({}));
    let _served = serve(
        cluster,
        namespace,
        configuration,
        &[],
        &config_map(namespace, "probe", ""),
    )
    .await;
    let on = |arguments: &[&str]| {
        let arguments = [&["-n", namespace], arguments].concat();
        cluster.kubectl(&arguments).run()
    };

    let keep = || json!({"keep": "yes"});
    create(
        cluster,
        &labelled(config_map(namespace, "kept", ""), keep()),
    );
    create(cluster, &config_map(namespace, "loose", ""));
    shows(
        "delete",
        session([
            on(&["delete", "configmap", "kept"]),
            on(&["delete", "configmap", "kept", "--dry-run=server"]),
            on(&["delete", "configmap", "loose"]),
        ]),
    );

    // `kubectl delete --all` deletes objects one by one. This request is a deletecollection.
    let all = format!("/api/v1/namespaces/{namespace}/configmaps");
    let raw = cluster.kubectl(&["delete", "--raw", &all]).run();
    shows(
        "deletecollection",
        raw.to_string().replace(&all, "/api/v1/…/configmaps"),
    );

    create(cluster, &pod(namespace, "web"));
    let failed = r#"{"status":{"phase":"Failed"}}"#;
    let running = r#"{"status":{"phase":"Running"}}"#;
    shows(
        "status",
        session([
            on(&[
                "patch",
                "pod",
                "web",
                "--subresource=status",
                "--type=merge",
                "-p",
                failed,
            ]),
            on(&[
                "patch",
                "pod",
                "web",
                "--subresource=status",
                "--type=merge",
                "-p",
                running,
            ]),
        ]),
    );

    // The Pod counts as running now, which kubectl checks before it forwards a port.
    shows(
        "exec_attach_and_port_forward",
        session([
            on(&["exec", "web", "--", "sh"]),
            on(&["attach", "web"]),
            on(&["port-forward", "web", "8080"]),
        ]),
    );

    create(cluster, &deployment(namespace, "web"));
    shows(
        "scale",
        session([
            on(&["scale", "deployment", "web", "--replicas=9"]),
            on(&["scale", "deployment", "web", "--replicas=3"]),
        ]),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mutates_and_denies_custom_resource() {
    let cluster = cluster_or_skip!();
    let namespace = "custom-resources";
    cluster.namespace(namespace);
    crate::custom_resources::define(cluster, "printed.example.com", "gate", &["v1"]);
    let mut configuration = configuration();
    let gates = || rules(namespace, &["printed.example.com"], &["gates"]);
    act(
        &mut configuration,
        "toll",
        gates(),
        json!({"set": {"/spec/toll": "2.50"}}),
    );
    act(
        &mut configuration,
        "no-free",
        gates(),
        json!({"forbid": {"/spec/lanes/*/price": "free"}}),
    );
    let gate = |name: &str, prices: &[&str]| {
        let lanes: Vec<Value> = prices.iter().map(|price| json!({"price": price})).collect();
        json!({
            "apiVersion": "printed.example.com/v1",
            "kind": "Gate",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"lanes": lanes},
        })
    };
    let _served = serve(cluster, namespace, configuration, &[], &gate("probe", &[])).await;
    let get = [
        "get",
        "gate",
        "north",
        "-n",
        namespace,
        "-o",
        "jsonpath={.spec}",
    ];
    shows(
        "a_custom_resource",
        session([
            create(cluster, &gate("north", &["1", "2"])),
            cluster.kubectl(&get).run(),
            create(cluster, &gate("south", &["1", "free"])),
        ]),
    );
}

/// Creates an object with a million characters that Go writes with six bytes each: 6 MB on creation, 12 MB on update.
#[tokio::test(flavor = "multi_thread")]
async fn mutates_and_denies_object_near_limit() {
    const LENGTH: usize = 1_000_000;
    let cluster = cluster_or_skip!();
    let namespace = "large-objects";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let maps = || rules(namespace, &[""], &["configmaps"]);
    act(
        &mut configuration,
        "team",
        maps(),
        json!({"set": {"/metadata/labels/team": "shop"}}),
    );
    act(
        &mut configuration,
        "stage",
        maps(),
        json!({"forbid_at_all": {"/metadata/labels/stage": "test"}}),
    );
    let served = serve(
        cluster,
        namespace,
        configuration,
        &[],
        &config_map(namespace, "probe", ""),
    )
    .await;
    let large =
        |labels: Value| labelled(config_map(namespace, "large", &"<".repeat(LENGTH)), labels);
    let file = served.server.configuration().folder().join("large.json");
    let raw = |verb: &str, object: &Value, path: &str| {
        std::fs::write(&file, object.to_string()).expect("written");
        cluster
            .kubectl(&[verb, "--raw", path, "-f", &file.display().to_string()])
            .run()
    };
    let all = format!("/api/v1/namespaces/{namespace}/configmaps");
    let one = format!("{all}/large");
    let created = raw("create", &large(json!({})), &all);
    assert!(created.succeeded(), "{created}");
    let updated = raw("replace", &large(json!({"updated": "yes"})), &one);
    assert!(updated.succeeded(), "{updated}");
    let stored = cluster
        .kubectl(&["get", "configmap", "large", "-n", namespace, "-o", "json"])
        .succeed();
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"team": "shop", "updated": "yes"})
    );
    assert_eq!(stored["data"]["value"], "<".repeat(LENGTH));
    let denied = raw("replace", &large(json!({"stage": "test"})), &one);
    denied.assert_failed(&["stage: test is not wanted"]);
}

/// Returns the annotations of an audit entry. Removes those of other components, and masks values that differ in each
/// run.
fn annotations(entry: &Value) -> impl Display {
    let annotations = entry["annotations"].as_object().cloned();
    let annotations = annotations.unwrap_or_default().into_iter();
    let annotations = annotations.filter(|(name, _)| !name.starts_with("authorization.k8s.io/"));
    let annotations: Map<String, Value> = annotations
        .map(|(name, value)| match name.split_once("_index_") {
            // Mask the index of the webhook among those of all tests.
            Some((name, _)) => (format!("{name}_index_…"), value),
            None if name.ends_with("/review") => {
                let uid = value.as_str().unwrap_or_default();
                assert_eq!(uid.len(), 36, "{name}: {uid} is a uid");
                (name, "…".into())
            }
            None => (name, value),
        })
        .collect();
    let text = format!("{:#}", Value::from(annotations));
    // Mask the hash prefix after each plugin's name.
    let mut parts = text.split('@');
    let first = parts.next().unwrap_or_default().to_owned();
    let without_hash = |part: &str| {
        let is_digit = |character: char| character.is_ascii_hexdigit();
        format!("@…{}", part.trim_start_matches(is_digit))
    };
    parts.fold(first, |text, part| text + &without_hash(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_names_plugins() {
    let cluster = cluster_or_skip!();
    let namespace = "audited";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let maps = || rules(namespace, &[""], &["configmaps"]);
    act(
        &mut configuration,
        "team",
        maps(),
        json!({"set": {"/metadata/labels/team": "shop"}}),
    );
    act(
        &mut configuration,
        "owner",
        maps(),
        json!({"set": {"/metadata/labels/owner": "anna"}}),
    );
    act(
        &mut configuration,
        "stage",
        maps(),
        json!({"forbid_at_all": {"/metadata/labels/stage": "test"}}),
    );
    let _served = serve(
        cluster,
        namespace,
        configuration,
        &[],
        &config_map(namespace, "probe", ""),
    )
    .await;
    let entry = |name: &str| {
        let found = cluster.audit(|entry| {
            entry["objectRef"]["namespace"] == namespace && entry["objectRef"]["name"] == name
        });
        found[0].clone()
    };
    create(cluster, &config_map(namespace, "mutated", ""));
    shows(
        "audit_annotations_of_a_mutation",
        annotations(&entry("mutated")),
    );
    create(
        cluster,
        &labelled(
            config_map(namespace, "denied", ""),
            json!({"stage": "test"}),
        ),
    );
    let denied = entry("denied");
    assert_eq!(denied["responseStatus"]["code"], 403, "{denied}");
    shows("audit_annotations_of_a_denial", annotations(&denied));
}
