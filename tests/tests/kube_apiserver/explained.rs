//! The admin listeners of an installation, for people and programs with a token of the cluster.

use std::process::Command;

use serde_json::{Value, json};
use tollgate_tests::kubernetes::Start as ClusterStart;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::server::Server;
use tollgate_tests::{binary, kubernetes::Cluster};

use crate::fixtures::rules;
use crate::installed::{SHOP, SYSTEM, denial, replica, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, plugin};

/// Gives the service account of the replicas what the chart gives it with `admin.enabled`, and creates two users: one
/// who may read, and one who may not.
fn grant(cluster: &Cluster) {
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM}});
    let bind = |name: &str, role: &str, account: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}],
        })
    };
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "tollgate-reader"},
        "rules": [{"nonResourceURLs": ["/tollgate/decisions"], "verbs": ["get"]}],
    });
    let items = [
        account("reader"),
        account("stranger"),
        reader,
        bind("reader", "tollgate-reader", "reader"),
        bind(
            "tollgate-auth-delegator",
            "system:auth-delegator",
            "tollgate",
        ),
    ];
    apply(
        cluster,
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    );
}

/// The status of the answer to a request of the admin listener.
async fn status(server: &Server, path: &str, token: &str) -> u16 {
    let url = format!("https://localhost:{}{path}", server.admin_address().port());
    let request = server.default_client().get(url).bearer_auth(token);
    let response = request.send().await.expect("the admin listener answers");
    response.status().as_u16()
}

/// The EndpointSlices of the replicas. kube-apiserver refuses those with loopback addresses.
fn endpoint_slices(replicas: &[(&str, &Server)]) -> String {
    let slice = |(name, server): &(&str, &Server)| {
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": SYSTEM, "labels": {"kubernetes.io/service-name": "gate"}},
            "addressType": "IPv4",
            "ports": [{"name": "admin", "port": server.admin_address().port()}],
            "endpoints": [{"addresses": ["127.0.0.1"], "targetRef": {"kind": "Pod", "name": name}}],
        })
    };
    let items: Vec<Value> = replicas.iter().map(slice).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_the_cluster_open_the_admin_listeners_to_those_with_the_right() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = &cluster;
    define(cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let service = Service::new(cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(cluster);
    grant(cluster);
    let admin = json!({"listen": "127.0.0.1:0", "authentication": {"tokenReview": {}}});
    let begin = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, &service, name, admin.clone()))
    };
    let (first, second) = (begin("replica-0"), begin("replica-1"));
    let mut guard = plugin("guard", json!({"settings": {"deny": "no"}}));
    guard["spec"]["match"] = rules(SHOP, &[""], &["configmaps"]);
    apply(cluster, &guard);
    let (denied, _) = wait_until("the plugin denies", || denial(cluster, "web"));

    let token = |account: &str| {
        let create = ["create", "token", account, "-n", SYSTEM];
        cluster.kubectl(&create).succeed().trim().to_owned()
    };
    let (reader, stranger) = (token("reader"), token("stranger"));
    for server in [&first, &second] {
        assert_eq!(status(server, "/decisions", &reader).await, 200);
        assert_eq!(status(server, "/plugins", &reader).await, 403);
        assert_eq!(status(server, "/decisions", &stranger).await, 403);
        assert_eq!(status(server, "/decisions", "guessed").await, 401);
    }

    // The user's message names the review, and one of the replicas has its decision.
    let (_, uid) = denied
        .split_once("(review ")
        .expect("the message has a uid");
    let (uid, _) = uid.split_once(')').expect("the uid ends");
    let folder = cluster.folder();
    let slices = folder.join("slices.json");
    let replicas = [("replica-0", &first), ("replica-1", &second)];
    std::fs::write(&slices, endpoint_slices(&replicas)).expect("written");
    let file = folder.join("reader.token");
    std::fs::write(&file, &reader).expect("written");
    let ask = || {
        let output = Command::new(binary::tollgate())
            .args(["explain", uid, "--service", &format!("{SYSTEM}/gate")])
            .arg("--live")
            .arg(&slices)
            .arg("--token-file")
            .arg(&file)
            .arg("--certificate-authority")
            .arg(first.ca_bundle())
            .output()
            .expect("tollgate can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, said, errors) = tokio::task::block_in_place(ask);
    println!("{said}{errors}");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{said}");
    assert!(
        said.contains(uid) && said.contains("on replica replica-"),
        "{said}"
    );
    assert!(said.contains("guard"), "{said}");

    // A replica that is gone does not hide the decisions of the other.
    let is_first = said.contains("on replica replica-0");
    let (gone, other) = if is_first {
        (&second, &first)
    } else {
        (&first, &second)
    };
    service.remove(gone.address());
    gone.terminate();
    wait_until("one replica has ended", || {
        let address = gone.admin_address();
        std::net::TcpStream::connect(address).is_err().then_some(())
    });
    let (code, said, errors) = tokio::task::block_in_place(ask);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(errors.contains("did not answer"), "{errors}");
    assert!(said.contains(uid), "{said}");

    // A token that is withdrawn counts for ten seconds at most.
    cluster
        .kubectl(&["delete", "clusterrolebinding", "reader"])
        .succeed();
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert_eq!(status(other, "/decisions", &reader).await, 403);
}
