//! kube-apiserver traces requests, and the host's spans continue its traces.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate_tests::collector::{Collector, Span};
use tollgate_tests::kubernetes::authority::Authority;
use tollgate_tests::kubernetes::{Registration, Start};
use tollgate_tests::server::{Server, until};

use crate::authentication::{ADMISSION_CONTROL, WEBHOOKS};
use crate::creations::create;
use crate::fixtures::{act, config_map, configuration, rules};

const NAMESPACE: &str = "traces";

/// Every request is traced. Nobody receives kube-apiserver's own spans.
const TRACING: &str = "apiVersion: apiserver.config.k8s.io/v1beta1
kind: TracingConfiguration
endpoint: 127.0.0.1:1
samplingRatePerMillion: 1000000
";

#[tokio::test(flavor = "multi_thread")]
async fn reviews_belong_to_traces_of_kube_apiserver() {
    let authority = Authority::new("webhook clients");
    let client = authority.client("kube-apiserver");
    let start = Start::default()
        .file("admission.yaml", ADMISSION_CONTROL)
        .file("webhooks.yaml", WEBHOOKS)
        .file("webhooks.crt", &client.certificate)
        .file("webhooks.key", &client.key)
        .file("tracing.yaml", TRACING)
        .argument("--admission-control-config-file=admission.yaml")
        .argument("--tracing-config-file=tracing.yaml");
    let Some(cluster) = start.start() else {
        return;
    };
    cluster.namespace(NAMESPACE);
    let collector = Collector::start();
    let mut configuration = configuration();
    let ca = configuration.folder().join("client-ca.crt");
    std::fs::write(&ca, authority.certificate()).expect("written");
    let certificate = json!({"ca": ca, "subjects": ["kube-apiserver"]});
    configuration = configuration
        .with("authentication", json!({"clientCertificate": certificate}))
        // Only kube-apiserver decides.
        .with(
            "telemetry",
            json!({"traces": {"endpoint": collector.endpoint(), "share": 0}}),
        );
    let maps = rules(NAMESPACE, &[""], &["configmaps"]);
    let settings = json!({"set": {"/metadata/labels/team": "shop"}});
    act(&mut configuration, "team", maps, settings);
    let server = Server::start(configuration);
    let _registration = Registration::apply(&cluster, &server, "traces", &[]);
    let map = config_map(NAMESPACE, "web", "a");
    until("the plugin is in force", async || {
        let (_, answer) = create(&cluster, &map).await;
        answer["metadata"]["labels"]["team"] == "shop"
    })
    .await;
    let traces_of = |spans: &[Span], name: &str| -> BTreeSet<String> {
        let named = spans.iter().filter(|span| span.name == name);
        named.map(|span| span.trace_id.clone()).collect()
    };
    // One request of a user is one trace, with a review by each webhook.
    let spans = collector
        .spans_when("both reviews of one request", |spans| {
            let mutate = traces_of(spans, "review mutate");
            !mutate.is_disjoint(&traces_of(spans, "review validate"))
        })
        .await;
    let reviews = spans.iter().filter(|span| span.name.starts_with("review"));
    for review in reviews {
        assert_eq!(review.parent.len(), 16, "{review:#?}");
        let calls = spans.iter().filter(|span| span.parent == review.span_id);
        assert_eq!(calls.count(), 1, "{spans:#?}");
    }
}
