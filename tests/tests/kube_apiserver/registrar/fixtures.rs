//! An installation with its rights, and replicas of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::sync::watch;
use tollgate_cluster::{
    Certificates, Clock, Desired, ElectionTiming, Handle, Installation, Options, Plugin, Serving,
    Timing, spawn,
};
use tollgate_config::{
    ExistingViolations, FailurePolicy, ManifestRule, Margin, Match, Mode, ReinvocationPolicy,
};
use tollgate_registration::{Address, Registration};
use tollgate_telemetry::metrics::Metrics;

use super::Shared;

/// The API group of the test's resources. Nothing has it, so no request is affected.
const GROUP: &str = "registrar.example.com";

/// An installation: its namespace, its rights and its anchor.
pub(super) struct Installed {
    cluster: Shared,
    namespace: &'static str,
    name: &'static str,
}

/// A replica, and what a test tells it.
pub(super) struct Replica {
    name: String,
    handle: Handle,
    desired: watch::Sender<Option<Desired>>,
    serving: watch::Sender<Serving>,
}

/// A clock that a test sets.
pub(super) struct Ahead(Arc<Mutex<OffsetDateTime>>);

/// A validating plugin for some resources, separated by spaces.
pub(super) fn plugin(name: &str, resources: &str) -> Plugin {
    let rule = ManifestRule {
        operations: vec!["CREATE".to_owned()],
        api_groups: vec![GROUP.to_owned()],
        api_versions: vec!["v1".to_owned()],
        resources: resources.split(' ').map(str::to_owned).collect(),
        scope: None,
    };
    Plugin {
        name: name.to_owned(),
        digest: "sha256:0".to_owned(),
        mutates: false,
        validates: true,
        matching: Match::from_manifest_rules(&[rule]).unwrap_or_else(|error| panic!("{error}")),
        mode: Mode::Enforce,
        failure_policy: FailurePolicy::Fail,
        reinvocation_policy: ReinvocationPolicy::Never,
        existing_violations: ExistingViolations::Deny,
        timeout: Duration::from_millis(500),
    }
}

/// Waits until something holds.
pub(super) async fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !tokio::task::block_in_place(&mut holds) {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Reads an object. Returns none if there is none.
pub(super) fn get(cluster: Shared, what: &[&str]) -> Option<Value> {
    let arguments = [&["get", "-o", "json", "--ignore-not-found"][..], what].concat();
    let text = cluster.kubectl(&arguments).succeed();
    (!text.trim().is_empty()).then(|| serde_json::from_str(&text).expect("JSON"))
}

/// A clock that stands still until it is set.
pub(super) fn clock(now: OffsetDateTime) -> (Ahead, Clock) {
    let time = Arc::new(Mutex::new(now));
    let of_clock = Arc::clone(&time);
    let clock = Clock::new(move || *of_clock.lock().expect("no panic"));
    (Ahead(time), clock)
}

/// Waits for a replica's certificate.
pub(super) async fn chain(handle: &Handle) -> Vec<CertificateDer<'static>> {
    let mut certificate = handle.certificate();
    let wait = certificate.wait_for(Option::is_some);
    let certificate = tokio::time::timeout(super::LIMIT, wait).await;
    let certificate = certificate
        .expect("a certificate in time")
        .expect("a replica");
    certificate.as_ref().expect("waited for").chain.clone()
}

/// Checks that a client with these CAs accepts the certificate.
pub(super) fn assert_trusted(bundle: &str, chain: &[CertificateDer<'static>], now: OffsetDateTime) {
    verify(bundle, chain, now).expect("trusted");
}

/// Checks that a client with these CAs refuses the certificate.
pub(super) fn assert_not_trusted(
    bundle: &str,
    chain: &[CertificateDer<'static>],
    now: OffsetDateTime,
) {
    verify(bundle, chain, now).expect_err("not trusted");
}

fn verify(
    bundle: &str,
    chain: &[CertificateDer<'static>],
    now: OffsetDateTime,
) -> Result<(), rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.expect("PEM"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = verifier.build().expect("roots");
    let name = ServerName::try_from("gate.system.svc").expect("a name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unix_timestamp().unsigned_abs()));
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], now)?;
    Ok(())
}

// === impl Installed ===

impl Installed {
    /// Creates the namespace, the service account with its rights, and the anchor. The installation has the namespace's
    /// name.
    pub(super) fn new(cluster: Shared, namespace: &'static str) -> Self {
        Self::named(cluster, namespace, namespace)
    }

    pub(super) fn named(cluster: Shared, namespace: &'static str, name: &'static str) -> Self {
        cluster.namespace(namespace);
        let installed = Self {
            cluster,
            namespace,
            name,
        };
        cluster
            .kubectl(&["create", "serviceaccount", "tollgate", "-n", namespace])
            .succeed();
        let anchor = installed.anchor();
        // As the documentation of the crate lists them.
        let in_namespace = json!([
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "list", "watch", "get", "update", "patch", "delete"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update"], "resourceNames": [format!("{name}-authority")]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ]);
        let webhooks = [
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ];
        let in_cluster = json!([
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": webhooks, "verbs": ["create"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": webhooks, "verbs": ["get", "list", "watch", "patch", "delete"], "resourceNames": [name]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"], "resourceNames": [namespace]},
            {"apiGroups": ["tollgate.dev"], "resources": ["canaries"], "verbs": ["create"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get", "list", "watch", "patch"], "resourceNames": [anchor, format!("{namespace}-wrong")]},
        ]);
        let subjects =
            json!([{"kind": "ServiceAccount", "name": "tollgate", "namespace": namespace}]);
        let group = "rbac.authorization.k8s.io";
        let api = "rbac.authorization.k8s.io/v1";
        let items = json!([
            {"apiVersion": api, "kind": "Role", "metadata": {"name": "tollgate", "namespace": namespace}, "rules": in_namespace},
            {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": namespace}, "rules": in_cluster},
            {"apiVersion": api, "kind": "RoleBinding", "metadata": {"name": "tollgate", "namespace": namespace}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "tollgate"}, "subjects": subjects},
            {"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": namespace}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": namespace}, "subjects": subjects},
        ]);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        cluster
            .kubectl(&["apply", "-f", "-"])
            .input(&list)
            .succeed();
        installed.create_anchor();
        installed
    }

    fn anchor(&self) -> String {
        format!("{}-anchor", self.namespace)
    }

    /// Creates the ClusterRole that stands for the installation.
    pub(super) fn create_anchor(&self) {
        let anchor = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": self.anchor()}, "rules": [],
        });
        self.cluster
            .kubectl(&["apply", "-f", "-"])
            .input(&anchor)
            .succeed();
    }

    /// Starts a replica with the system's clock.
    pub(super) async fn replica(&self, name: &str) -> Replica {
        self.replica_at(name, Clock::system()).await
    }

    pub(super) async fn replica_at(&self, name: &str, clock: Clock) -> Replica {
        self.started(name, clock, self.anchor()).await
    }

    /// Starts a replica whose configuration names this anchor.
    pub(super) async fn replica_anchored_by(&self, name: &str, anchor: &str) -> Replica {
        self.started(name, Clock::system(), anchor.to_owned()).await
    }

    async fn started(&self, name: &str, clock: Clock, anchor: String) -> Replica {
        let installation = Installation {
            name: self.name.to_owned(),
            namespace: self.namespace.to_owned(),
            replica: name.to_owned(),
        };
        let options = Options {
            registration: registration(),
            certificates: Certificates::Own {
                names: vec!["gate.system.svc".to_owned()],
            },
            anchor: Some(anchor),
            timing: timing(),
            clock,
            namespaces: None,
            metrics: Metrics::new(),
        };
        let (desired, of_desired) = watch::channel(None);
        let (serving, of_serving) = watch::channel(Serving::default());
        let client = self.client().await;
        Replica {
            name: name.to_owned(),
            handle: spawn(client, installation, options, of_desired, of_serving),
            desired,
            serving,
        }
    }

    /// A client with the rights of the installation.
    async fn client(&self) -> Client {
        let token = ["create", "token", "tollgate", "-n", self.namespace];
        let token = self.cluster.kubectl(&token).succeed().trim().to_owned();
        let file = Kubeconfig::read_from(self.cluster.folder().join("kubeconfig"));
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file.expect("a file"), &options).await;
        let mut config = config.expect("a configuration");
        config.auth_info = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        Client::try_from(config).expect("a client")
    }

    /// The live configuration.
    pub(super) fn configuration(&self) -> Option<Value> {
        get(self.cluster, &["validatingwebhookconfiguration", self.name])
    }

    /// The registered resources of the plugins, sorted. None without a configuration.
    pub(super) fn resources(&self) -> Option<String> {
        let configuration = self.configuration()?;
        let webhooks = configuration["webhooks"].as_array().expect("webhooks");
        let rules = webhooks
            .iter()
            .flat_map(|webhook| webhook["rules"].as_array().expect("rules"))
            .filter(|rule| rule["apiGroups"] != json!(["tollgate.dev"]));
        let resources = rules.flat_map(|rule| rule["resources"].as_array().expect("resources"));
        let mut names: Vec<&str> = resources.filter_map(Value::as_str).collect();
        names.sort_unstable();
        Some(names.join(" "))
    }

    /// Whether the Lease of a replica names the plugin.
    pub(super) fn announces(&self, replica: &str, plugin: &str) -> bool {
        let lease = format!("lease/{}-replica-{replica}", self.name);
        let lease = get(self.cluster, &["-n", self.namespace, &lease]).unwrap_or_default();
        let annotations = lease["metadata"]["annotations"].as_object();
        annotations.into_iter().flatten().any(|(_, text)| {
            let announcement = text.as_str().map(serde_json::from_str::<Value>);
            announcement.is_some_and(|read| read.is_ok_and(|one| !one["plugins"][plugin].is_null()))
        })
    }

    /// The registered CAs, in PEM. Empty without a configuration.
    pub(super) fn bundle(&self) -> String {
        let configuration = self.configuration().unwrap_or_default();
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str();
        decoded(bundle.unwrap_or_default())
    }

    /// The CAs in the Secret, in PEM.
    pub(super) fn secret_bundle(&self) -> Option<String> {
        let name = format!("secret/{}-authority", self.name);
        let secret = get(self.cluster, &["-n", self.namespace, &name])?;
        Some(decoded(secret["data"]["ca.crt"].as_str()?))
    }
}

fn decoded(text: &str) -> String {
    let bytes = STANDARD.decode(text).expect("base64");
    String::from_utf8(bytes).expect("PEM")
}

fn registration() -> Registration {
    Registration {
        name: String::new(),
        address: Address::Service {
            namespace: "system".to_owned(),
            name: "gate".to_owned(),
            port: 443,
        },
        ca_bundle: None,
        per_plugin: false,
        timeout_seconds: None,
        reinvocation_policy: None,
        excluded_namespaces: ["kube-system".to_owned()].into(),
        break_glass_groups: ["tollgate:break-glass".to_owned()].into(),
        margin: Margin {
            percent: 10,
            at_least: Duration::from_millis(50),
        },
    }
}

/// Shorter times than in a cluster.
fn timing() -> Timing {
    Timing {
        election: ElectionTiming {
            lease: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry: Duration::from_millis(500),
        },
        announce: Duration::from_secs(1),
        // Longer than any pause of a busy machine. A replica that is gone holds nobody up.
        replica_gone: Duration::from_secs(10),
        authority: Duration::from_millis(500),
        ..Timing::default()
    }
}

// === impl Replica ===

impl Replica {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Changes what shall be served.
    pub(super) fn desire(&self, plugins: &[&Plugin]) {
        self.desired.send_replace(Some(Desired {
            plugins: plugins.iter().map(|&plugin| plugin.clone()).collect(),
            ..Desired::default()
        }));
    }

    /// Changes what is served. The replica is ready.
    pub(super) fn serve(&self, plugins: &[&Plugin]) {
        self.serving.send_replace(Serving {
            ready: true,
            plugins: plugins.iter().map(|&plugin| plugin.clone()).collect(),
        });
    }

    /// Whether the replica leads and waits for another one to serve the plugin.
    pub(super) fn waits_for(&self, plugin: &str) -> bool {
        self.handle.report().borrow().waiting.contains(plugin)
    }

    /// Ends the replica in order.
    pub(super) async fn stop(self) {
        self.handle.shutdown().await;
    }
}

// === impl Ahead ===

impl Ahead {
    pub(super) fn set(&self, now: OffsetDateTime) {
        *self.0.lock().expect("no panic") = now;
    }
}
