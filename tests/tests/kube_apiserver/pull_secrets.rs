//! Private images, verified with the `imagePullSecrets` of Pods: kube-apiserver hands out the Secrets, and a registry asks for a
//! password.

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::registry::{Key, Registry};
use tollgate_tests::reviews::Review;
use tollgate_tests::server::{Server, Start, until};
use tollgate_tests::{guests, wat};

use crate::fixtures::{configuration, pod};
use crate::plugins_as_resources::define;

/// The namespace of the installation.
const SYSTEM: &str = "pull-secrets-system";
/// A namespace that the plugin lists.
const SHOP: &str = "pull-secrets-shop";
/// Another one that it lists, with no Secret.
const BLOG: &str = "pull-secrets-blog";
/// One that it does not list, with the same Secret as the shop.
const OTHER: &str = "pull-secrets-other";

/// Serves the plugin. The host itself has no credentials.
fn serve(cluster: &Cluster, registry: &Registry, key: &Key) -> Server {
    let hosts = json!([{"host": registry.host(), "ca": registry.ca()}]);
    let none = cluster.folder().join("docker.json");
    std::fs::write(&none, "{}").expect("the file can be written");
    let mut configuration = configuration()
        .with(
            "cluster",
            json!({"enabled": true, "namespace": SYSTEM, "replica": "replica-0", "registration": {"enabled": false}}),
        )
        .with("registries", json!({"credentials": none, "hosts": hosts}));
    let policy = json!({"name": "release", "signers": [{"name": "release", "key": key.public()}]});
    let entry = json!({
        "images": {
            "registries": [registry.host()], "policies": [policy], "pullSecretNamespaces": [SHOP, BLOG],
        },
        "limits": {"timeout": "8s"},
        "settings": {"rules": [{"images": [registry.host()], "policy": "release"}]},
    });
    configuration.plugin("verify-images", &guests::build("verify-images"), entry);
    let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
    let start = Start::default().environment("KUBECONFIG", &kubeconfig);
    tokio::task::block_in_place(|| start.start(configuration))
}

fn create(cluster: &Cluster, object: &Value) {
    cluster
        .kubectl(&["create", "-f", "-"])
        .input(object)
        .succeed();
}

/// Creates a Secret with the credentials that the registry accepts.
fn create_secret(cluster: &Cluster, registry: &Registry, namespace: &str, name: &str) {
    let login = std::fs::read_to_string(registry.credentials()).expect("it has been written");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": login},
    });
    create(cluster, &secret);
}

/// A Pod of an image, with a Secret and a service account.
fn of(namespace: &str, image: &str, secret: Option<&str>, account: &str) -> Value {
    let mut pod = pod(namespace, "web");
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod["spec"]["serviceAccountName"] = json!(account);
    if let Some(secret) = secret {
        pod["spec"]["imagePullSecrets"] = json!([{ "name": secret }]);
    }
    pod
}

async fn validated(server: &Server, pod: Value) -> Checked {
    let namespace = pod["metadata"]["namespace"].clone();
    let mut review = Review::create(pod).build();
    review["request"]["namespace"] = namespace;
    let answer = server.validate(&review).await;
    answer.checked(Endpoint::Validate, &review)
}

#[track_caller]
fn assert_refused(checked: &Checked, words: &str) {
    let status = checked.status.clone().unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    println!("{message}");
    assert!(
        !checked.allowed && message.contains(words),
        "`{words}` is not in {message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn private_images_are_verified_with_the_secrets_of_their_pods() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let Some(registry) = Registry::start() else {
        return;
    };
    define(&cluster);
    for namespace in [SYSTEM, SHOP, BLOG, OTHER] {
        cluster.namespace(namespace);
    }
    create_secret(&cluster, &registry, SHOP, "login");
    create_secret(&cluster, &registry, OTHER, "login");
    let robot = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": SHOP},
        "imagePullSecrets": [{"name": "login"}],
    });
    create(&cluster, &robot);
    let key = Key::p256();
    let repository = "private/app";
    let image = format!("{}/{repository}:1", registry.host());
    let digest = registry.push(&wat::marker("image", repository), &format!("oci://{image}"));
    registry.sign(repository, &digest, &key).await;
    let pinned = format!("{}/{repository}@{digest}", registry.host());
    let server = serve(&cluster, &registry, &key);
    server.assert_all_loaded().await;

    // Nobody else profits from the shop's password: neither before nor after it was used.
    for _ in 0..2 {
        for (namespace, secret) in [(BLOG, None), (BLOG, Some("login")), (OTHER, Some("login"))] {
            let refused = validated(&server, of(namespace, &pinned, secret, "default")).await;
            assert_refused(&refused, "cannot be verified now");
        }
        // The Pod's own Secret, and that of its service account.
        for (secret, account) in [(Some("login"), "default"), (None, "robot")] {
            let checked = validated(&server, of(SHOP, &pinned, secret, account)).await;
            assert!(checked.allowed, "{:?}", checked.status);
        }
        let refused = validated(&server, of(SHOP, &pinned, Some("missing"), "default")).await;
        assert_refused(&refused, "cannot be verified now");
    }
    // A Secret that is created later counts once the missing one is forgotten.
    create_secret(&cluster, &registry, BLOG, "login");
    until("the Secret counts", async || {
        validated(&server, of(BLOG, &pinned, Some("login"), "default"))
            .await
            .allowed
    })
    .await;
}
