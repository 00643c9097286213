//! Verified images: Pods through kube-apiserver, with a real registry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use reqwest::Method;
use serde_json::{Value, json};
use tollgate_tests::cluster_or_skip;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::Cluster;
use tollgate_tests::registry::{Key, Registry};
use tollgate_tests::server::{Server, metric};
use tollgate_tests::{guests, wat};

use crate::fixtures::{configuration, path_of, pod, rules, serve};

/// Number of images.
const IMAGES: usize = 50;
/// Number of Pods that are created of them.
const PODS: usize = 1_000;
const CLIENTS: usize = 8;

/// A configuration with the plugin for the Pods of a namespace.
fn verifying(registry: &Registry, key: &Key, namespace: &str, rule: Value) -> Configuration {
    let mut rule = rule;
    rule["images"] = json!([registry.host()]);
    let hosts = json!([{"host": registry.host(), "ca": registry.ca()}]);
    let registries = json!({"credentials": registry.credentials(), "hosts": hosts});
    let mut configuration = configuration().with("registries", registries);
    let policy = json!({"name": "release", "signers": [{"name": "release", "key": key.public()}]});
    let entry = json!({
        "match": rules(namespace, &[""], &["pods"]),
        // Longer than the test takes on a busy machine.
        "images": {"registries": [registry.host()], "policies": [policy], "resolvedFor": "10m"},
        "limits": {"timeout": "8s"},
        "settings": {"rules": [rule]},
    });
    configuration.plugin("verify-images", &guests::build("verify-images"), entry);
    configuration
}

fn of(namespace: &str, name: &str, image: &str) -> Value {
    let mut pod = pod(namespace, name);
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod
}

/// Creates a Pod with a dry run. Returns the status and the answer.
async fn create(cluster: &Cluster, namespace: &str, name: &str, image: &str) -> (u16, Value) {
    let pod = of(namespace, name, image);
    let path = format!("{}?dryRun=All", path_of(&pod));
    cluster.request(Method::POST, &path, Some(&pod)).await
}

/// Creates [`PODS`] Pods of the images. Returns the times of the creations, sorted.
async fn create_all(cluster: &Cluster, namespace: &str, images: &Arc<[String]>) -> Vec<Duration> {
    let created = stream::iter(0..PODS).map(|index| {
        let image = images[index % images.len()].clone();
        async move {
            let began = Instant::now();
            let (status, answer) = create(cluster, namespace, &format!("p{index}"), &image).await;
            assert_eq!(status, 201, "{answer}");
            let named = answer["spec"]["containers"][0]["image"].as_str();
            assert!(
                named.is_some_and(|named| named.contains(&image)),
                "{answer}"
            );
            began.elapsed()
        }
    });
    let mut times: Vec<_> = created.buffer_unordered(CLIENTS).collect().await;
    times.sort_unstable();
    times
}

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

async fn requests(server: &Server) -> f64 {
    let page = server.metrics().await;
    metric(&page, "tollgate_image_registry_requests_total", &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_fifty_images_are_verified_with_few_requests() {
    let cluster = cluster_or_skip!();
    let Some(registry) = Registry::start() else {
        return;
    };
    let key = Key::p256();
    let (verified, exempt) = ("images-verified", "images-exempt");
    cluster.namespace(verified);
    cluster.namespace(exempt);
    let push = |repository: &str| {
        let image = format!("{}/{repository}:1", registry.host());
        let digest = registry.push(&wat::marker("image", repository), &format!("oci://{image}"));
        (image, digest)
    };
    let mut images = Vec::new();
    for index in 0..IMAGES {
        let repository = format!("apps/app-{index}");
        let (image, digest) = push(&repository);
        registry.sign(&repository, &digest, &key).await;
        images.push((image, digest));
    }
    let (unsigned, _) = push("apps/unsigned");
    let (stranger, of_stranger) = push("apps/stranger");
    registry
        .sign("apps/stranger", &of_stranger, &Key::p256())
        .await;

    let policy = json!({"policy": "release"});
    let configuration = verifying(&registry, &key, verified, policy);
    let probe = of(verified, "probe", &images[0].0);
    let served = serve(cluster, verified, configuration, &[], &probe).await;
    let configuration = verifying(&registry, &key, exempt, json!({"exempt": true}));
    let probe = of(exempt, "probe", &images[0].0);
    let beside = serve(cluster, exempt, configuration, &[], &probe).await;

    // What kube-apiserver stores names the verified digest.
    let (image, digest) = &images[0];
    let (status, stored) = create(cluster, verified, "signed", image).await;
    assert_eq!(status, 201, "{stored}");
    let pinned = format!("{image}@{digest}");
    assert_eq!(stored["spec"]["containers"][0]["image"], pinned.as_str());
    for (image, said) in [
        (&unsigned, "is not signed (policy release)"),
        (&stranger, "made with another key"),
    ] {
        let (status, refused) = create(cluster, verified, "refused", image).await;
        assert!(status >= 400, "{refused}");
        let message = refused["message"].as_str().unwrap_or_default();
        println!("{message}");
        assert!(message.contains(said), "{message}");
    }

    let names: Arc<[String]> = images.iter().map(|(image, _)| image.clone()).collect();
    let before = requests(&served.server).await;
    create_all(cluster, verified, &names).await;
    let first = requests(&served.server).await - before;
    let warm = create_all(cluster, verified, &names).await;
    let again = requests(&served.server).await - before - first;
    let plain = create_all(cluster, exempt, &names).await;
    println!(
        "{PODS} Pods of {IMAGES} images: {first} requests to the registry, then {again}; p99 {:?}, without verification {:?}",
        p99(&warm),
        p99(&plain)
    );
    // Of each image: its tag, and where its signatures are.
    assert!(first <= 6.0 * IMAGES as f64, "{first}");
    assert!(
        again <= f64::from(u32::try_from(IMAGES).unwrap_or(u32::MAX)),
        "{again}"
    );
    assert_eq!(requests(&beside.server).await, 0.0);
}
