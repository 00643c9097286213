//! Plugins see other objects of the cluster, as kube-apiserver has them.

mod figures;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};
use tollgate_tests::guests;
use tollgate_tests::kubernetes::{Cluster, Registration, Start as ClusterStart, bulk};
use tollgate_tests::server::{Server, Start};

use crate::fixtures::configuration;
use crate::plugins_as_resources::{apply, define, get, plugin, wait_for};

/// The namespace of the installation.
const SYSTEM: &str = "lookups-system";
const SHOP: &str = "lookups-shop";
const BLOG: &str = "lookups-blog";
/// Time limit for a change to reach the plugin on a busy machine. The test prints how long it took.
const LIMIT: Duration = Duration::from_secs(20);

fn ingress(namespace: &str, name: &str, host: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]},
    })
}

/// Time limit for a table to follow again after kube-apiserver is ready.
const RECOVERY: Duration = Duration::from_secs(60);

/// The lookup of Ingresses. `namespaces` is `all` or a list.
fn ingresses(namespaces: &Value) -> Value {
    json!([{
        "name": "ingresses",
        "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
        "namespaces": namespaces,
        "fields": ["/spec/rules/*/host", "/spec/rules/*/http/paths/*/path"],
        "indexes": {"host": "/spec/rules/*/host"},
    }])
}

fn serve(cluster: &Cluster, lookups: Option<Value>) -> Server {
    let mut configuration = configuration().with(
        "cluster",
        json!({"enabled": true, "namespace": SYSTEM, "replica": "replica-0", "registration": {"enabled": false}}),
    );
    let mut keys = json!({"capabilities": ["cluster"]});
    if let Some(lookups) = lookups {
        keys["lookups"] = lookups;
    }
    let plugin = guests::build("unique-ingress-host");
    configuration.plugin("hosts", &plugin, keys);
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let start = Start::default().environment("KUBECONFIG", &kubeconfig);
    tokio::task::block_in_place(|| start.start(configuration))
}

/// Creates or changes an object. Returns what kubectl says if it is refused.
fn refusal(cluster: &Cluster, object: &Value) -> Option<String> {
    let arguments = ["apply", "--server-side", "-f", "-"];
    let printed = cluster.kubectl(&arguments).input(object).run();
    (!printed.succeeded()).then_some(printed.errors)
}

/// Creates the namespaces, and two Ingresses in one of them.
fn begin_with_two(cluster: &Cluster) {
    define(cluster);
    for namespace in [SYSTEM, SHOP, BLOG] {
        cluster.namespace(namespace);
    }
    for name in ["one", "two"] {
        let object = ingress(SHOP, name, &format!("{name}.example"));
        assert_eq!(refusal(cluster, &object), None);
    }
}

/// Waits until an object is refused or accepted. Returns the time, and what kubectl said.
fn wait_until(
    cluster: &Cluster,
    object: &Value,
    is_it: impl Fn(&Option<String>) -> bool,
) -> (Duration, Option<String>) {
    let began = Instant::now();
    loop {
        let said = refusal(cluster, object);
        if is_it(&said) {
            return (began.elapsed(), said);
        }
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {said:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What `/plugins` says about the only lookup of the plugin.
async fn lookup_of(server: &Server) -> Value {
    let status = server.plugin_status("hosts").await;
    status["lookups"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_knows_the_ingresses_of_the_cluster() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    for namespace in [SYSTEM, SHOP, BLOG] {
        cluster.namespace(namespace);
    }
    let first = ingress(SHOP, "first", "shop.example");
    assert_eq!(refusal(cluster, &first), None);

    let server = serve(cluster, Some(ingresses(&json!("all"))));
    let probe = ingress(SHOP, "probe", "probe.example");
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{SHOP}/ingresses");
    let registration = Registration::new(cluster, &server, "lookups", &[], (&path, &probe)).await;
    assert_eq!(lookup_of(&server).await["objects"], 1);

    // The second of two is denied, also in another namespace. The first may change.
    for second in [
        ingress(SHOP, "second", "shop.example"),
        ingress(BLOG, "second", "shop.example"),
    ] {
        let said = refusal(cluster, &second).expect("it is denied");
        let words = "already belongs to the Ingress lookups-shop/first";
        assert!(said.contains(words), "{said}");
    }
    let mut changed = first.clone();
    changed["metadata"]["labels"] = json!({"team": "shop"});
    assert_eq!(refusal(cluster, &changed), None);

    // A new object and a deletion are seen.
    let new = ingress(BLOG, "new", "blog.example");
    assert_eq!(refusal(cluster, &new), None);
    let same = ingress(SHOP, "same", "blog.example");
    let (took, _) = wait_until(cluster, &same, Option::is_some);
    println!("a new Ingress was seen after {took:?}");
    let arguments = ["delete", "ingress", "new", "-n", BLOG];
    cluster.kubectl(&arguments).succeed();
    let (took, _) = wait_until(cluster, &same, Option::is_none);
    println!("a deletion was seen after {took:?}");
    let lookup = lookup_of(&server).await;
    println!("{lookup:#}");
    assert_eq!(lookup["state"], "following");
    assert_eq!(lookup["objects"], 2);
    drop(registration);

    // Without the grant, the plugin is told so, and its fault denies.
    let without = serve(cluster, None);
    let registration = Registration::apply(cluster, &without, "lookups", &[]);
    let third = ingress(BLOG, "third", "third.example");
    let (_, said) = wait_until(cluster, &third, Option::is_some);
    println!("without the grant: {said:?}");
    let logs = without.logs().join("\n");
    assert!(logs.contains("ingresses"), "{logs}");
    drop(registration);
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_a_custom_resource_are_followed() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    begin_with_two(cluster);
    let elsewhere = ingress(BLOG, "three", "three.example");
    assert_eq!(refusal(cluster, &elsewhere), None);
    let configuration = configuration().with("allowEmpty", true).with(
        "cluster",
        json!({"enabled": true, "namespace": SYSTEM, "replica": "replica-0", "registration": {"enabled": false}}),
    );
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let start = Start::default().environment("KUBECONFIG", &kubeconfig);
    let server = tokio::task::block_in_place(|| start.start(configuration));

    let source = guests::build("unique-ingress-host");
    let mut object = plugin("hosts", json!({"lookups": ingresses(&json!([SHOP]))}));
    object["spec"]["source"] = json!(format!("file:{}", source.display()));
    object["spec"]["match"] = json!({"rules": [{
        "operations": ["CREATE"], "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "resources": ["ingresses"],
    }]});
    apply(cluster, &object);
    let hosts = ["clusteradmissionplugin", "hosts"];
    let stored = get(cluster, &hosts);
    assert_eq!(
        stored["spec"]["lookups"], object["spec"]["lookups"],
        "the definition drops no key"
    );
    wait_for(cluster, &hosts, "True", "Serving");
    // Only the granted namespace is read.
    assert_eq!(lookup_of(&server).await["objects"], 2);
    let arguments = ["delete", "ingress", "one", "-n", SHOP];
    cluster.kubectl(&arguments).succeed();
    let deadline = Instant::now() + LIMIT;
    while lookup_of(&server).await["objects"] != 1 {
        assert!(Instant::now() < deadline, "the deletion is not seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// While kube-apiserver is away, an object goes in etcd and the history with it. No watch can tell about that.
#[tokio::test(flavor = "multi_thread")]
async fn table_recovers_without_a_gap_when_kube_apiserver_restarts() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    begin_with_two(cluster);
    let server = serve(cluster, Some(ingresses(&json!("all"))));
    assert_eq!(lookup_of(&server).await["objects"], 2);

    cluster.kill_api_server();
    let key = BASE64.encode(format!("/registry/ingress/{SHOP}/one"));
    let deleted = cluster
        .etcd("/v3/kv/deleterange", &json!({"key": key}))
        .await;
    assert_eq!(deleted["deleted"], "1", "{deleted}");
    let revision = &deleted["header"]["revision"];
    let compaction = json!({"revision": revision, "physical": true});
    cluster.etcd("/v3/kv/compaction", &compaction).await;
    // The table says that it may be old, and still answers during the time of grace.
    let began = Instant::now();
    let cut = loop {
        let lookup = lookup_of(&server).await;
        if lookup["state"] != "following" {
            break lookup;
        }
        assert!(began.elapsed() < LIMIT, "the cut is not seen: {lookup:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!(
        "without kube-apiserver, after {:?}: {cut:#}",
        began.elapsed()
    );
    assert_eq!(cut["objects"], 2);

    cluster.start_api_server();
    let began = Instant::now();
    let again = loop {
        let lookup = lookup_of(&server).await;
        if lookup["state"] == "following" && lookup["objects"] == 1 {
            break lookup;
        }
        assert!(began.elapsed() < RECOVERY, "not recovered: {lookup:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!(
        "recovered {:?} after kube-apiserver: {again:#}",
        began.elapsed()
    );
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{SHOP}/ingresses");
    let probe = ingress(SHOP, "probe", "probe.example");
    let registration = Registration::new(cluster, &server, "lookups", &[], (&path, &probe)).await;
    assert_eq!(refusal(cluster, &ingress(BLOG, "one", "one.example")), None);
    let said = refusal(cluster, &ingress(BLOG, "two", "two.example"));
    assert!(said.is_some_and(|said| said.contains("lookups-shop/two")));
    drop(registration);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_objects_take_little_memory() {
    const NAMESPACES: usize = 20;
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let space = |index: usize| format!("many-{}", index % NAMESPACES);
    for index in 0..NAMESPACES {
        cluster.namespace(&space(index));
    }
    let object = |index: usize| {
        let mut object = ingress(
            &space(index),
            &format!("i-{index}"),
            &format!("h{index}.example"),
        );
        object["metadata"]["annotations"] = json!({"note": "x".repeat(400)});
        object
    };
    let path = |index: usize| {
        format!(
            "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
            space(index)
        )
    };
    let ingresses_there = (0..10_500).map(|index| (path(index), object(index)));
    bulk::create(cluster, ingresses_there).await;
    let binding = |index: usize| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": space(index), "name": format!("b-{index}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("r-{}", index % 50)},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": format!("u-{index}")}],
        })
    };
    let path = |index: usize| {
        format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
            space(index)
        )
    };
    let bindings = (0..11_000).map(|index| (path(index), binding(index)));
    bulk::create(cluster, bindings).await;

    let mut lookups = ingresses(&json!("all"));
    let more = json!({
        "name": "bindings",
        "resource": {"group": "rbac.authorization.k8s.io", "version": "v1", "resource": "rolebindings"},
        "fields": ["/roleRef", "/subjects"],
        "indexes": {"subject": "/subjects/*/name"},
    });
    lookups.as_array_mut().expect("a list").push(more);
    let server = serve(cluster, Some(lookups));
    let status = server.plugin_status("hosts").await;
    println!("{:#}", status["lookups"]);
    let (resident, peak) = (server.resident_kib(), server.peak_kib());
    println!("resident {resident} KiB, peak {peak} KiB");
    let objects: u64 = status["lookups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|lookup| lookup["objects"].as_u64())
        .sum();
    assert!(objects >= 21_500, "{objects}");
    assert!(
        peak < 150 * 1024,
        "peak {peak} KiB: expected less than 150 MiB"
    );
}
