//! Plugins ask what users may do, and kube-apiserver answers by its RBAC.

use serde_json::{Value, json};
use tollgate_tests::guests;
use tollgate_tests::kubernetes::{Cluster, Registration, Start as ClusterStart};
use tollgate_tests::reviews::Review;
use tollgate_tests::server::{Server, Start};

use crate::fixtures::{config_map, configuration};
use crate::plugins_as_resources::define;

/// The namespace of the installation.
const SYSTEM: &str = "access-system";
const SHOP: &str = "access-shop";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Allows ConfigMaps of users who may delete Secrets in the same namespace.
const OF_USER: &str = "authorizer.group('').resource('secrets').namespace(request.namespace).check('delete').allowed()";
/// Allows ConfigMaps whose service account, which `data.value` names, may delete Secrets in the namespace.
const OF_ACCOUNT: &str = "authorizer.serviceAccount(request.namespace, object.data.value).group('').resource('secrets')\
    .namespace(request.namespace).check('delete').allowed()";
/// Allows ConfigMaps of users who may create ConfigMaps, as the request itself says.
const OF_REQUEST: &str = "authorizer.requestResource.check('create').allowed()";

/// Serves one policy.
fn serve(cluster: &Cluster, expression: &str, keys: &Value) -> Server {
    let mut configuration = configuration().with(
        "cluster",
        json!({"enabled": true, "namespace": SYSTEM, "replica": "replica-0", "registration": {"enabled": false}}),
    );
    let rules = json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
    }]);
    let version = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "rights"},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression, "message": "you may not delete Secrets"}],
        },
    });
    let binding = json!({
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "rights"},
        "spec": {"policyName": "rights", "validationActions": ["Deny"]},
    });
    let mut plugin = json!({
        "settings": {"policy": policy, "bindings": [binding]},
        "match": {"rules": rules, "namespaces": [SHOP]},
    });
    for (key, value) in keys.as_object().into_iter().flatten() {
        plugin[key] = value.clone();
    }
    configuration.plugin("rights", &guests::build("cel-policy"), plugin);
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let start = Start::default().environment("KUBECONFIG", &kubeconfig);
    tokio::task::block_in_place(|| start.start(configuration))
}

/// Lets subjects do something in the namespace.
fn grant(cluster: &Cluster, name: &str, (resource, verb): (&str, &str), subjects: &Value) {
    let metadata = json!({"name": name, "namespace": SHOP});
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata,
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}],
    });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": subjects,
    });
    for object in [role, binding] {
        cluster
            .kubectl(&["create", "-f", "-"])
            .input(&object)
            .succeed();
    }
}

fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

/// Starts a cluster in which `anna` and the service account `robot` may delete Secrets of the shop, `bert` may not, and
/// both users may create ConfigMaps there.
fn cluster() -> Option<Cluster> {
    let cluster = ClusterStart::default().start()?;
    define(&cluster);
    for namespace in [SYSTEM, SHOP] {
        cluster.namespace(namespace);
    }
    let users = json!([user("anna"), user("bert")]);
    grant(&cluster, "writers", ("configmaps", "create"), &users);
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": SHOP});
    let deleters = json!([user("anna"), robot]);
    grant(&cluster, "deleters", ("secrets", "delete"), &deleters);
    Some(cluster)
}

/// Creates a ConfigMap as a user, as a dry run. Returns what kubectl says if it is refused.
fn refusal(cluster: &Cluster, user: &str, value: &str) -> Option<String> {
    let user = format!("--as={user}");
    let arguments = ["create", "--dry-run=server", "-f", "-", user.as_str()];
    let object = config_map(SHOP, "probe", value);
    let printed = cluster.kubectl(&arguments).input(&object).run();
    (!printed.succeeded()).then_some(printed.errors)
}

async fn registered<'c>(cluster: &'c Cluster, server: &Server) -> Registration<'c> {
    let path = format!("/api/v1/namespaces/{SHOP}/configmaps");
    let probe = config_map(SHOP, "registered", "robot");
    let registration = Registration::new(cluster, server, "access", &[], (&path, &probe)).await;
    server.assert_all_loaded().await;
    registration
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_knows_what_users_and_service_accounts_may_do() {
    let Some(cluster) = cluster() else {
        return;
    };
    let cluster = &cluster;

    let server = serve(cluster, OF_USER, &json!({"capabilities": ["access"]}));
    let registration = registered(cluster, &server).await;
    assert_eq!(refusal(cluster, "anna", "a"), None);
    let said = refusal(cluster, "bert", "a").expect("bert may not delete Secrets");
    assert!(said.contains("you may not delete Secrets"), "{said}");
    drop(registration);
    drop(server);

    let server = serve(cluster, OF_REQUEST, &json!({"capabilities": ["access"]}));
    let registration = registered(cluster, &server).await;
    // Whoever comes that far may create ConfigMaps.
    assert_eq!(refusal(cluster, "bert", "a"), None);
    drop(registration);
    drop(server);

    let keys = json!({"access": {"serviceAccounts": true}});
    let server = serve(cluster, OF_ACCOUNT, &keys);
    let registration = registered(cluster, &server).await;
    assert_eq!(refusal(cluster, "bert", "robot"), None);
    let said = refusal(cluster, "anna", "other").expect("no such right");
    assert!(said.contains("you may not delete Secrets"), "{said}");
    drop(registration);
    drop(server);

    // Without the grant for service accounts, the question is a fault.
    let server = serve(cluster, OF_ACCOUNT, &json!({"capabilities": ["access"]}));
    let review = review("anna", "robot");
    let response = server.validate(&review).await.json();
    assert_eq!(response["response"]["allowed"], false, "{response}");
    let logs = server.logs().join("\n");
    assert!(
        logs.contains("may not ask about service accounts"),
        "{logs}"
    );
}

/// A review as kube-apiserver would send it.
fn review(user: &str, value: &str) -> Value {
    let mut review = Review::create(config_map(SHOP, "probe", value)).build();
    review["request"]["namespace"] = json!(SHOP);
    review["request"]["userInfo"] = json!({"username": user, "groups": ["system:authenticated"]});
    review
}

#[tokio::test(flavor = "multi_thread")]
async fn without_kube_apiserver_nobody_is_allowed() {
    let Some(cluster) = cluster() else {
        return;
    };
    let cluster = &cluster;
    let server = serve(cluster, OF_USER, &json!({"capabilities": ["access"]}));
    server.assert_all_loaded().await;
    let answer = async |user: &str| {
        let response = server.validate(&review(user, "a")).await.json();
        println!("{user}: {response:#}");
        response["response"]["allowed"].clone()
    };
    assert_eq!(answer("anna").await, true);
    assert_eq!(answer("bert").await, false);

    cluster.kill_api_server();
    // Nobody has asked about this user before, so nothing is remembered.
    assert_eq!(answer("carl").await, false);
    let logs = server.logs().join("\n");
    let is_told = logs.contains("access-unavailable") || logs.contains("access unavailable");
    assert!(is_told, "{logs}");
    // What is remembered counts for ten seconds, and no longer.
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert_eq!(answer("anna").await, false);

    cluster.start_api_server();
    assert_eq!(answer("anna").await, true);
}
