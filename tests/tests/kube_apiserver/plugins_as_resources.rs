//! Plugins as custom resources: applied with kubectl, in force without a restart, and shown in their status.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::kubernetes::{Cluster, Registration};
use tollgate_tests::server::{Server, Start};
use tollgate_tests::{cluster_or_skip, guests};

use crate::custom_resources;
use crate::fixtures::{act, config_map, configuration, path_of, rules};

/// The namespace of the installation.
const SYSTEM: &str = "plugins-system";
/// The namespace whose ConfigMaps the plugins see.
const SHOP: &str = "plugins-shop";
/// Time limit for a change to show its effect on a busy machine. The test prints how long the first took.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Applies the definitions that are shipped.
pub(crate) fn define(cluster: &Cluster) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    for plural in [
        "clusteradmissionplugins",
        "admissionplugins",
        "pluginexceptions",
        "canaries",
    ] {
        let path = folder.join(format!("{plural}.yaml"));
        let text = std::fs::read_to_string(&path).expect("the definition is there");
        let printed = cluster.kubectl(&["apply", "-f", "-"]).text(&text).run();
        assert!(printed.succeeded(), "{printed}");
        // A schema that is not structural, or a rule that costs too much, would be refused or reported.
        let name = format!("{plural}.tollgate.dev");
        custom_resources::wait_until_served(cluster, &name);
        let crd = get(cluster, &["crd", &name]);
        let conditions = crd["status"]["conditions"].as_array();
        let violated = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "NonStructuralSchema");
        assert!(!violated, "{crd:#}");
    }
}

/// Returns an object as kubectl prints it.
pub(crate) fn get(cluster: &Cluster, arguments: &[&str]) -> Value {
    let arguments = [&["get", "-o", "json"][..], arguments].concat();
    serde_json::from_str(&cluster.kubectl(&arguments).succeed()).expect("kubectl prints JSON")
}

/// Returns a plugin that acts as its settings say.
pub(crate) fn plugin(name: &str, spec: Value) -> Value {
    let mut plugin = json!({
        "apiVersion": "tollgate.dev/v1alpha1",
        "kind": "ClusterAdmissionPlugin",
        "metadata": {"name": name},
        "spec": {
            "source": format!("file:{}", guests::build("actor").display()),
            "match": rules(SHOP, &[""], &["configmaps"]),
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        plugin["spec"][key] = value.clone();
    }
    plugin
}

pub(crate) fn apply(cluster: &Cluster, object: &Value) {
    cluster
        .kubectl(&["apply", "-f", "-"])
        .input(object)
        .succeed();
}

/// Waits until the condition `Ready` of a plugin is about its current generation, and has this status and reason.
/// Returns the plugin.
pub(crate) fn wait_for(cluster: &Cluster, resource: &[&str], status: &str, reason: &str) -> Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        let object = get(cluster, resource);
        let conditions = object["status"]["conditions"].as_array();
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Ready");
        let is_it = ready.is_some_and(|ready| {
            ready["status"] == status
                && ready["reason"] == reason
                && ready["observedGeneration"] == object["metadata"]["generation"]
        });
        if is_it {
            return object;
        }
        assert!(
            Instant::now() < deadline,
            "no {status} ({reason}): {object:#}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the message of the condition `Ready`.
fn message(object: &Value) -> &str {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready
        .and_then(|ready| ready["message"].as_str())
        .unwrap_or_default()
}

/// Asks whether a ConfigMap could be created. Returns the denial.
fn denial(cluster: &Cluster, name: &str) -> Option<String> {
    let arguments = ["create", "--dry-run=server", "-f", "-"];
    let printed = cluster
        .kubectl(&arguments)
        .input(&config_map(SHOP, name, "a"))
        .run();
    (!printed.succeeded()).then_some(printed.errors)
}

/// Waits until a ConfigMap is denied with this text, or allowed without one. Returns the time that it took.
fn wait_for_denial(cluster: &Cluster, text: Option<&str>) -> Duration {
    let began = Instant::now();
    loop {
        let denied = denial(cluster, "web");
        let is_it = match (&denied, text) {
            (Some(denied), Some(text)) => denied.contains(text),
            (None, None) => true,
            _ => false,
        };
        if is_it {
            return began.elapsed();
        }
        assert!(began.elapsed() < LIMIT, "{denied:?} is not {text:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a replica whose file has the plugin `fixed`, and registers it for ConfigMaps.
async fn serve(cluster: &Cluster) -> (Server, Registration<'_>) {
    let mut configuration = configuration().with(
        "cluster",
        json!({
            "enabled": true,
            "namespace": SYSTEM,
            "replica": "replica-0",
            "registration": {"enabled": false},
        }),
    );
    let matched = rules(SHOP, &[""], &["configmaps"]);
    act(&mut configuration, "fixed", matched, json!({}));
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let server = Start::default()
        .environment("KUBECONFIG", &kubeconfig)
        .start(configuration);
    let probe = config_map(SHOP, "probe", "");
    let probe = (path_of(&probe), probe);
    let registration = Registration::new(
        cluster,
        &server,
        "plugins-as-resources",
        &[],
        (&probe.0, &probe.1),
    )
    .await;
    (server, registration)
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_in_force_without_restart() {
    const GUARD: [&str; 2] = ["clusteradmissionplugin", "guard"];
    let cluster = cluster_or_skip!();
    define(cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    // The plugin is there before the replica: the replica serves it from the start.
    apply(
        cluster,
        &plugin("guard", json!({"settings": {"deny": "first"}})),
    );
    let (server, _registration) = serve(cluster).await;
    wait_for_denial(cluster, Some("guard: first"));
    wait_for(cluster, &GUARD, "True", "Serving");

    // A change is in force at once.
    let began = Instant::now();
    apply(
        cluster,
        &plugin("guard", json!({"settings": {"deny": "second"}})),
    );
    let took = wait_for_denial(cluster, Some("guard: second"));
    println!(
        "in force {took:?} after kubectl had ended, {:?} after it had begun",
        began.elapsed()
    );
    let ready = wait_for(cluster, &GUARD, "True", "Serving");
    assert_eq!(message(&ready), "the plugin serves as configured");
    let replicas = &ready["status"]["replicas"];
    assert_eq!(replicas[0]["name"], "replica-0", "{ready:#}");
    assert_eq!(
        replicas[0]["digest"], ready["status"]["digest"],
        "{ready:#}"
    );
    let table = cluster.kubectl(&["get", "caps"]).succeed();
    let digest = ready["status"]["shortDigest"].as_str().unwrap_or_default();
    for column in [
        "READY", "MODE", "SOURCE", "DIGEST", "AGE", "enforce", digest,
    ] {
        assert!(table.contains(column), "{table}");
    }
    assert!(digest.starts_with("sha256:"), "{ready:#}");

    // A version that cannot be loaded leaves the old one, and says why.
    let broken = json!({"settings": {"deny": "third"}, "source": "file:/nowhere.wasm"});
    apply(cluster, &plugin("guard", broken));
    let failed = wait_for(cluster, &GUARD, "False", "LoadFailed");
    assert!(message(&failed).contains("/nowhere.wasm"), "{failed:#}");
    assert!(
        message(&failed).contains("the previous version keeps serving"),
        "{failed:#}"
    );
    wait_for_denial(cluster, Some("guard: second"));
    // So does one that the schema lets pass and the parser does not.
    let invalid = json!({"settings": {"deny": "third"}, "limits": {"fuel": "many"}});
    apply(cluster, &plugin("guard", invalid));
    let failed = wait_for(cluster, &GUARD, "False", "Invalid");
    assert!(message(&failed).contains("spec.limits.fuel"), "{failed:#}");
    wait_for_denial(cluster, Some("guard: second"));

    // A change of the state makes one event.
    let events = cluster.kubectl(&["describe", GUARD[0], GUARD[1]]).succeed();
    for reason in ["Serving", "LoadFailed", "Invalid"] {
        assert!(events.contains(reason), "{events}");
    }

    // Settings come from a ConfigMap and from a Secret, and follow them.
    let texts = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "texts", "namespace": SYSTEM},
        "data": {"settings.yaml": "deny: from the ConfigMap\n"},
    });
    let from =
        json!({"settingsFrom": [{"configMapKeyRef": {"name": "texts", "key": "settings.yaml"}}]});
    apply(cluster, &plugin("guard", from));
    let missing = wait_for(cluster, &GUARD, "False", "SettingsMissing");
    assert!(message(&missing).contains("ConfigMap texts"), "{missing:#}");
    wait_for_denial(cluster, Some("guard: second"));
    apply(cluster, &texts);
    wait_for_denial(cluster, Some("guard: from the ConfigMap"));
    wait_for(cluster, &GUARD, "True", "Serving");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "hidden", "namespace": SYSTEM},
        "stringData": {"settings.yaml": "denny: s3cret-word\n"},
    });
    apply(cluster, &secret);
    let from =
        json!({"settingsFrom": [{"secretKeyRef": {"name": "hidden", "key": "settings.yaml"}}]});
    apply(cluster, &plugin("guard", from));
    let failed = wait_for(cluster, &GUARD, "False", "LoadFailed");
    assert!(message(&failed).contains("withheld"), "{failed:#}");
    assert!(!failed.to_string().contains("s3cret-word"), "{failed:#}");
    wait_for_denial(cluster, Some("guard: from the ConfigMap"));
    let correct = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "hidden", "namespace": SYSTEM},
        "stringData": {"settings.yaml": "deny: s3cret-word\n"},
    });
    apply(cluster, &correct);
    wait_for_denial(cluster, Some("guard: s3cret-word"));

    // An exception lets requests pass, and ends when it is deleted.
    let exception = json!({
        "apiVersion": "tollgate.dev/v1alpha1", "kind": "PluginException",
        "metadata": {"name": "migration", "namespace": SYSTEM},
        "spec": {"plugins": ["guard"], "names": ["web"], "reason": "migration"},
    });
    apply(cluster, &exception);
    wait_for_denial(cluster, None);
    wait_for(
        cluster,
        &["pex", "-n", SYSTEM, "migration"],
        "True",
        "Active",
    );
    let elsewhere = json!({
        "apiVersion": "tollgate.dev/v1alpha1", "kind": "PluginException",
        "metadata": {"name": "migration", "namespace": SHOP},
        "spec": {"plugins": ["guard"], "names": ["web"], "reason": "migration"},
    });
    apply(cluster, &elsewhere);
    cluster
        .kubectl(&["delete", "pex", "migration", "-n", SYSTEM])
        .succeed();
    wait_for_denial(cluster, Some("guard: s3cret-word"));

    // The file wins over a resource of the same name.
    apply(
        cluster,
        &plugin("fixed", json!({"settings": {"deny": "taken"}})),
    );
    let taken = wait_for(
        cluster,
        &["clusteradmissionplugin", "fixed"],
        "False",
        "NameTaken",
    );
    assert!(message(&taken).contains("the file wins"), "{taken:#}");

    // kubectl refuses what the schema does not know.
    let mistyped = plugin("typo", json!({"failurepolicy": "Fail"}));
    let printed = cluster
        .kubectl(&["apply", "-f", "-"])
        .input(&mistyped)
        .run();
    printed.assert_failed(&["unknown field \"spec.failurepolicy\""]);
    let printed = cluster
        .kubectl(&["apply", "-f", "-"])
        .input(&plugin("has.dots", json!({})))
        .run();
    printed.assert_failed(&["a plugin's name has at most 40 characters"]);

    // Statuses rest when nothing changes.
    let version = |object: Value| object["metadata"]["resourceVersion"].clone();
    let before = version(wait_for(cluster, &GUARD, "True", "Serving"));
    std::thread::sleep(Duration::from_secs(3));
    let rested = get(cluster, &GUARD);
    let conditions = rested["status"]["conditions"].to_string();
    for reason in ["NotRequired", "NotManaged"] {
        assert!(conditions.contains(reason), "{conditions}");
    }
    assert_eq!(version(rested), before);

    // Deleted, the plugin leaves.
    cluster
        .kubectl(&["delete", "clusteradmissionplugins", "--all"])
        .succeed();
    wait_for_denial(cluster, None);
    let logs = server.logs().join("\n");
    assert!(!logs.contains("s3cret-word"), "{logs}");
}
