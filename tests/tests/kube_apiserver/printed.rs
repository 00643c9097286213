//! What a user of kubectl reads.

use insta::assert_snapshot;
use serde_json::json;
use tollgate_tests::cluster_or_skip;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::kubernetes::Registration;
use tollgate_tests::server::Server;

use crate::fixtures::{act, path, pod, rules};

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_by_two_plugins_names_both() {
    let cluster = cluster_or_skip!();
    let namespace = "two-denials";
    cluster.namespace(namespace);
    let mut configuration = Configuration::new();
    let pods = rules(namespace, &[""], &["pods"]);
    for (name, forbidden) in [("first", "one"), ("second", "two")] {
        act(
            &mut configuration,
            name,
            &pods,
            json!({"forbid_at_all": {"/metadata/labels/stage": forbidden, "/metadata/labels/both": "yes"}}),
        );
    }
    let server = Server::start(configuration);
    let probe = pod(namespace, "probe");
    let _registration = Registration::new(
        cluster,
        &server,
        namespace,
        &[],
        (&path(namespace, "pods"), &probe),
    )
    .await;
    let mut denied = pod(namespace, "web");
    denied["metadata"]["labels"] = json!({"both": "yes"});
    let printed = cluster.kubectl(&["create", "-f", "-"]).input(&denied).run();
    assert_snapshot!(printed);
}
