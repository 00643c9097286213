//! kube-apiserver presents a client certificate if configured, and the host refuses all other callers.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_tests::kubernetes::authority::{Authority, Issued};
use tollgate_tests::kubernetes::{Registration, Start};
use tollgate_tests::server::{Server, metric};

use crate::fixtures::{act, config_map, configuration, rules};

const NAMESPACE: &str = "mutual";

/// The file that makes kube-apiserver read `webhooks.yaml`.
pub(crate) const ADMISSION_CONTROL: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: MutatingAdmissionWebhook
    configuration: &webhooks
      apiVersion: apiserver.config.k8s.io/v1
      kind: WebhookAdmissionConfiguration
      kubeConfigFile: '{folder}/webhooks.yaml'
  - name: ValidatingAdmissionWebhook
    configuration: *webhooks
";

/// The file from docs/guides/registering.md, for any webhook host.
pub(crate) const WEBHOOKS: &str = "apiVersion: v1
kind: Config
users:
  - name: '*'
    user: { client-certificate: '{folder}/webhooks.crt', client-key: '{folder}/webhooks.key' }
";

/// Starts a host that accepts only clients with a certificate for `kube-apiserver`, and creates an object.
async fn create(start: Start, authority: &Authority) -> Option<(bool, String, f64)> {
    let cluster = start.start()?;
    cluster.namespace(NAMESPACE);
    let mut configuration = configuration();
    let ca = configuration.folder().join("client-ca.crt");
    std::fs::write(&ca, authority.certificate()).expect("written");
    let client_certificate = json!({"ca": ca, "subjects": ["kube-apiserver"]});
    configuration = configuration.with(
        "authentication",
        json!({"clientCertificate": client_certificate}),
    );
    let maps = rules(NAMESPACE, &[""], &["configmaps"]);
    act(
        &mut configuration,
        "team",
        maps,
        json!({"set": {"/metadata/labels/team": "shop"}}),
    );
    let server = Server::start(configuration);
    let _registration = Registration::apply(&cluster, &server, "mutual", &[]);
    let map = config_map(NAMESPACE, "web", "a");
    let deadline = Instant::now() + Duration::from_secs(30);
    // Objects are created without a label until the registration takes effect.
    let printed = loop {
        let arguments = [
            "create",
            "-f",
            "-",
            "--dry-run=server",
            "-o",
            "jsonpath={.metadata.labels}",
        ];
        let printed = cluster.kubectl(&arguments).input(&map).run();
        if !printed.succeeded() || printed.output.contains("shop") {
            break printed;
        }
        assert!(
            Instant::now() < deadline,
            "kube-apiserver does not call the host: {printed}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let labels = [("reason", "certificate")];
    let refused = metric(
        &server.metrics().await,
        "tollgate_authentication_failures_total",
        &labels,
    );
    Some((printed.succeeded(), printed.errors, refused))
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_only_configured_client_certificate() {
    let authority = Authority::new("webhook clients");
    let right = authority.client("kube-apiserver");
    let another = authority.client("somebody-else");
    let with = |certificate: &Issued| {
        Start::default()
            .file("admission.yaml", ADMISSION_CONTROL)
            .file("webhooks.yaml", WEBHOOKS)
            .file("webhooks.crt", &certificate.certificate)
            .file("webhooks.key", &certificate.key)
            .argument("--admission-control-config-file=admission.yaml")
    };
    let Some((served, errors, refused)) = create(with(&right), &authority).await else {
        return;
    };
    assert!(served, "{errors}");
    assert_eq!(refused, 0.0);
    for start in [with(&another), Start::default()] {
        let Some((served, errors, refused)) = create(start, &authority).await else {
            return;
        };
        assert!(!served, "served without the right certificate");
        assert!(errors.contains("failed calling webhook"), "{errors}");
        assert!(
            refused >= 1.0,
            "the host does not count the failed authentication: {refused}"
        );
    }
}
