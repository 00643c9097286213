//! Pod templates: a Deployment is denied and patched for its template, and not only its Pods.

use serde_json::{Value, json};
use tollgate_tests::cluster_or_skip;
use tollgate_tests::kubernetes::Cluster;

use crate::fixtures::{act, configuration, deployment, pod, rules, serve};

fn get(cluster: &Cluster, namespace: &str, what: &[&str]) -> Value {
    let get = [&["get", "-n", namespace, "-o", "json"], what].concat();
    serde_json::from_str(&cluster.kubectl(&get).succeed()).expect("kubectl prints JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_is_denied_and_patched_for_its_template() {
    let cluster = cluster_or_skip!();
    let namespace = "pod-templates";
    cluster.namespace(namespace);
    let mut configuration = configuration();
    let mut matched = rules(namespace, &[""], &["pods"]);
    matched["podTemplates"] = json!(true);
    let label = json!({"set": {"/metadata/labels/team": "shop"}});
    act(&mut configuration, "label", matched.clone(), label);
    let forbid = json!({"forbid": {"/spec/containers/*/image": "app:bad"}});
    act(&mut configuration, "images", matched, forbid);
    let probe = pod(namespace, "probe");
    let _served = serve(cluster, namespace, configuration, &[], &probe).await;

    let create = |object: &Value| cluster.kubectl(&["create", "-f", "-"]).input(object).run();
    let mut bad = deployment(namespace, "bad");
    bad["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:bad");
    let denied = [
        "images: there is something that is not wanted",
        "spec.template.spec.containers[0].image",
    ];
    create(&bad).assert_failed(&denied);
    let mut cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "bad", "namespace": namespace},
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": bad["spec"]["template"].clone()}}},
    });
    cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    create(&cron_job).assert_failed(&["spec.jobTemplate.spec.template.spec.containers[0].image"]);

    let good = create(&deployment(namespace, "web"));
    assert!(good.succeeded(), "{good}");
    let team = |object: &Value| object["spec"]["template"]["metadata"]["labels"]["team"].clone();
    let created = get(cluster, namespace, &["deployment", "web"]);
    assert_eq!(team(&created), "shop");
    assert_eq!(created["metadata"]["labels"]["team"], Value::Null);

    // What a controller makes of the template keeps it as it is.
    let mut replica_set = deployment(namespace, "web-1");
    replica_set["kind"] = json!("ReplicaSet");
    replica_set["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
        "uid": created["metadata"]["uid"], "controller": true,
    }]);
    let made = create(&replica_set);
    assert!(made.succeeded(), "{made}");
    assert_eq!(
        team(&get(cluster, namespace, &["replicaset", "web-1"])),
        Value::Null
    );

    // An update of the template counts, and scaling does not.
    let on = |arguments: &[&str]| {
        let arguments = [&["-n", namespace], arguments].concat();
        cluster.kubectl(&arguments).run()
    };
    on(&["set", "image", "deployment/web", "app=app:bad"]).assert_failed(&denied);
    let scaled = on(&[
        "patch",
        "deployment",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"replicas":2}}"#,
    ]);
    assert!(scaled.succeeded(), "{scaled}");
}
