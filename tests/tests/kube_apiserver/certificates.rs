//! Certificates are rotated while objects are created, and no creation fails. They are Tollgate's own, rotated by the clock,
//! or come from cert-manager: a Secret with `tls.crt`, `tls.key` and `ca.crt`, which
//! kubelet mounts. cert-manager replaces all three in one step when the CA changes, and kubelet delivers them to each
//! replica at another time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Certificate, Client};
use serde_json::json;
use time::OffsetDateTime;
use tollgate_authority::{Authority as Own, Step};
use tollgate_tests::kubernetes::authority::Authority;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::server::{Server, Start, until};

use crate::creations::{Creations, create, creations};
use crate::fixtures::{config_map, configuration};
use crate::installed::{SHOP, SYSTEM, replica, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, get, plugin};

/// Time within which a replica finds new files, and a bit more. It looks every five seconds.
const LOOKS: Duration = Duration::from_secs(8);
/// Time within which a replica looks at the Secret of Tollgate's own CA, and a bit more.
const AUTHORITY_LOOKS: Duration = Duration::from_secs(33);
const NAMES: [&str; 2] = ["gate.tollgate-system.svc", "127.0.0.1"];

/// A replica, and the folder where its Secret is mounted.
struct Replica {
    server: Server,
    mounted: PathBuf,
}

/// Replaces the files of a mounted Secret as kubelet does: it renames one symbolic link.
fn mount(folder: &Path, version: &str, authority: &Authority) {
    let files = folder.join(version);
    std::fs::create_dir_all(&files).expect("made");
    let issued = authority.server(&NAMES);
    for (name, text) in [
        ("tls.crt", &*issued.certificate),
        ("tls.key", &*issued.key),
        ("ca.crt", authority.certificate()),
    ] {
        std::fs::write(files.join(name), text).expect("written");
        let link = folder.join(name);
        if !link.is_symlink() {
            let target = Path::new("..data").join(name);
            std::os::unix::fs::symlink(target, link).expect("linked");
        }
    }
    let next = folder.join("..data_tmp");
    std::os::unix::fs::symlink(version, &next).expect("linked");
    std::fs::rename(&next, folder.join("..data")).expect("renamed");
}

// === impl Replica ===

impl Replica {
    fn start(kubeconfig: &Path, service: &Service, name: &str, authority: &Authority) -> Self {
        let configuration = configuration();
        let mounted = configuration.folder().join("secret");
        std::fs::create_dir(&mounted).expect("made");
        mount(&mounted, "first", authority);
        let files = json!({"certificate": mounted.join("tls.crt"), "key": mounted.join("tls.key")});
        let registration = json!({
            "service": format!("gate:{}", service.port()), "anchor": "tollgate-anchor",
        });
        let cluster = json!({
            "enabled": true, "namespace": SYSTEM, "replica": name, "registration": registration,
        });
        let server = Start::default()
            .environment("KUBECONFIG", &kubeconfig.display().to_string())
            .trusting(mounted.join("ca.crt"))
            .start(configuration.with("tls", files).with("cluster", cluster));
        service.add(server.address());
        Self { server, mounted }
    }

    /// Whether the replica serves a certificate of a CA.
    async fn serves(&self, authority: &Authority) -> bool {
        let ca = Certificate::from_pem(authority.certificate().as_bytes()).expect("a CA");
        let client = Client::builder()
            .tls_built_in_root_certs(false)
            .add_root_certificate(ca)
            .no_proxy()
            .build()
            .expect("a client");
        client.get(self.server.url("/")).send().await.is_ok()
    }
}

/// The CAs that are registered, in PEM.
fn registered(cluster: &Cluster) -> Option<String> {
    let list = get(cluster, &["mutatingwebhookconfigurations"]);
    let bundle = &list["items"][0]["webhooks"][0]["clientConfig"]["caBundle"];
    let bytes = STANDARD.decode(bundle.as_str()?).expect("base64");
    String::from_utf8(bytes).ok()
}

/// Applies a plugin that sets a label, and waits until it is in force.
async fn label_with_a_plugin(cluster: &Cluster) {
    let settings = json!({"set": {"/metadata/labels/team": "shop"}});
    apply(
        cluster,
        &plugin(
            "team",
            json!({"settings": settings, "match": {
                "namespaces": [SHOP],
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}],
            }}),
        ),
    );
    let probe = config_map(SHOP, "probe", "a");
    until("the plugin is in force", async || {
        let (_, answer) = create(cluster, &probe).await;
        answer["metadata"]["labels"]["team"] == "shop"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ca_of_cert_manager_changes_at_different_times_without_failed_creations() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    define(&cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(&cluster);
    let (old, new) = (Authority::new("old CA"), Authority::new("new CA"));
    let begin = |name: &str| {
        tokio::task::block_in_place(|| Replica::start(&kubeconfig, &service, name, &old))
    };
    let replicas = [begin("replica-0"), begin("replica-1")];
    label_with_a_plugin(&cluster).await;
    // The CA is that of the Secret, and nothing else.
    assert_eq!(registered(&cluster).as_deref(), Some(old.certificate()));
    let load = Creations::start(&cluster, SHOP);
    load.until(load.answered(), creations()).await;

    // The replica that does not lead gets the new Secret first. Nobody has registered the new CA yet.
    let lease = get(&cluster, &["lease", "tollgate-leader", "-n", SYSTEM]);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let [first, second] = &replicas;
    let (leader, other) = match holder.starts_with("replica-0") {
        true => (first, second),
        false => (second, first),
    };
    mount(&other.mounted, "second", &new);
    tokio::time::sleep(LOOKS).await;
    load.until(load.answered(), creations()).await;
    assert!(other.serves(&old).await, "the new certificate did not wait");
    assert_eq!(registered(&cluster).as_deref(), Some(old.certificate()));

    // The leader gets it, too. It registers both CAs, and then both replicas serve the new certificate.
    mount(&leader.mounted, "second", &new);
    wait_until("both CAs are registered", || {
        let bundle = registered(&cluster)?;
        let has = |authority: &Authority| bundle.contains(authority.certificate().trim());
        (has(&old) && has(&new)).then_some(())
    });
    for replica in &replicas {
        until("the new certificate is served", async || {
            replica.serves(&new).await
        })
        .await;
    }
    load.until(load.answered(), creations()).await;
    load.assert_unfelt(&cluster).await;
    let said = other.server.logs();
    let waits = said
        .iter()
        .filter(|line| line.contains("as soon as its CA is registered"));
    assert_eq!(waits.count(), 1, "{}", said.join("\n"));
}

/// Writes the Secret of a CA that ends in 140 days. Its successor signs in one minute.
fn seed_authority(cluster: &Cluster) -> Own {
    let now = OffsetDateTime::now_utc();
    let days = time::Duration::days;
    let mut seed = Own::create(now - days(3_510)).expect("a CA");
    let begun = now - days(30) + time::Duration::minutes(1);
    let step = seed.advance(begun).expect("random numbers");
    assert!(
        matches!(step, Some(Step::SuccessorAdded { .. })),
        "{step:?}"
    );
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "tollgate-authority", "namespace": SYSTEM},
        "stringData": {
            "ca.crt": seed.bundle_pem(), "ca.key": seed.key_pem(), "next.key": seed.next_key_pem(),
        },
    });
    apply(cluster, &secret);
    seed
}

#[tokio::test(flavor = "multi_thread")]
async fn own_ca_is_rotated_by_the_clock_without_failed_creations() {
    let Some(cluster) = ClusterStart::default().start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    define(&cluster);
    cluster.namespace(SYSTEM);
    cluster.namespace(SHOP);
    let seed = seed_authority(&cluster);
    let service = Service::new(&cluster, SYSTEM, "gate").await;
    let kubeconfig = service_account(&cluster);
    let admin = json!({"listen": "127.0.0.1:0"});
    let begin = |name: &str| {
        tokio::task::block_in_place(|| replica(&kubeconfig, &service, name, admin.clone()))
    };
    let replicas = [begin("replica-0"), begin("replica-1")];
    label_with_a_plugin(&cluster).await;
    // Both CAs are registered before the first certificate of the second one.
    assert_eq!(registered(&cluster), Some(seed.bundle_pem()));
    let load = Creations::start(&cluster, SHOP);
    load.until(load.answered(), creations()).await;
    let says = |words: &str| {
        let logs = replicas.iter().flat_map(Server::logs);
        logs.filter(|line| line.contains(words)).count()
    };
    let (_, took) = wait_until("the successor signs", || {
        (says("signs from now on") == 1).then_some(())
    });
    println!("the successor signs after {took:?} of load");
    // One replica issues, and both serve: the one that did not write finds the Secret within 30 s.
    tokio::time::sleep(AUTHORITY_LOOKS).await;
    load.until(load.answered(), creations()).await;
    assert_eq!(registered(&cluster), Some(seed.bundle_pem()));
    assert_eq!(
        says("issued a certificate"),
        2,
        "the first, and that of the successor"
    );
    load.assert_unfelt(&cluster).await;
}
