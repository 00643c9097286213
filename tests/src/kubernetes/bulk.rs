//! Creates many objects in a short time.

use futures_util::stream::{self, StreamExt as _};
use reqwest::{Certificate, Client};
use serde_json::Value;

use super::Cluster;
use super::cluster::ADMIN_TOKEN;

/// Requests at the same time.
const AT_ONCE: usize = 16;

/// Returns a client of kube-apiserver whose connections stay open. Use it in one runtime only.
///
/// # Panics
/// Panics if the files of the cluster cannot be read.
#[must_use]
pub fn client(cluster: &Cluster) -> Client {
    let pem = std::fs::read(cluster.folder().join("ca.crt")).expect("the cluster has a CA");
    let ca = Certificate::from_pem(&pem).expect("the CA was made for the cluster");
    let client = Client::builder()
        .tls_built_in_root_certs(false)
        .add_root_certificate(ca)
        .no_proxy()
        .http1_only()
        .build();
    client.expect("the client's settings do not depend on anything outside")
}

/// Sends a POST request as the administrator. Returns the status and the text of the answer.
///
/// # Panics
/// Panics if there is no answer.
pub async fn post(client: &Client, cluster: &Cluster, path: &str, body: &Value) -> (u16, String) {
    let url = format!("https://{}{path}", cluster.address());
    let request = client.post(url).bearer_auth(ADMIN_TOKEN).json(body);
    let answer = request.send().await;
    let answer = answer.unwrap_or_else(|error| panic!("{path}: {error:?}"));
    let status = answer.status().as_u16();
    // A connection is free for the next request when the answer has been read.
    (status, answer.text().await.unwrap_or_default())
}

/// Creates objects, each at its path, over connections that stay open. [`Cluster::request`] opens one for each request.
///
/// # Panics
/// Panics if kube-apiserver does not create an object.
pub async fn create(cluster: &Cluster, objects: impl IntoIterator<Item = (String, Value)>) {
    let client = &client(cluster);
    let created = stream::iter(objects).map(|(path, object)| async move {
        let (status, answer) = post(client, cluster, &path, &object).await;
        assert_eq!(status, 201, "{path}: {answer}");
    });
    created.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}
