//! Replicas of an installation elect a leader, register what all of them serve, and share a certificate.
//!
//! The tests drive the crate `tollgate-cluster` without the binary: each replica is a [`Handle`] with its own desired and
//! serving state. Replicas have the rights that the crate's documentation lists, and no more.

mod fixtures;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use time::OffsetDateTime;
use tollgate_authority::Authority;
use tollgate_cluster::{Handle, Standing};
use tollgate_tests::cluster_or_skip;
use tollgate_tests::kubernetes::Cluster;

use fixtures::{Installed, Replica, eventually, plugin};

/// Time limit for changes that take a moment.
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn rules_follow_what_all_replicas_serve() {
    let cluster = cluster_or_skip!();
    let installed = Installed::new(cluster, "reg-rules");
    let (narrow, wide) = (plugin("p", "widgets"), plugin("p", "gadgets widgets"));
    let (a, b) = (installed.replica("a").await, installed.replica("b").await);
    let both = [&a, &b];
    for replica in both {
        replica.desire(&[&narrow]);
    }
    for replica in both {
        replica.serve(&[]);
    }
    eventually(LIMIT, "the leader counts both replicas", || {
        both.iter()
            .any(|one| one.waits_for("p") && one.handle().report().borrow().ready_replicas == 2)
    })
    .await;
    // One of two replicas serves the plugin. The leader has time to register it by mistake.
    a.serve(&[&narrow]);
    eventually(LIMIT, "a replica announces the plugin", || {
        installed.announces("a", "p")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(installed.resources(), None);
    b.serve(&[&narrow]);
    eventually(LIMIT, "registered", || {
        installed.resources() == Some("widgets".to_owned())
    })
    .await;
    // Widened after both replicas serve it.
    for replica in both {
        replica.desire(&[&wide]);
    }
    a.serve(&[&wide]);
    eventually(LIMIT, "the wider rules wait", || {
        both.iter().any(|one| one.waits_for("p"))
    })
    .await;
    assert_eq!(installed.resources(), Some("widgets".to_owned()));
    b.serve(&[&wide]);
    let began = Instant::now();
    let is_wide = || installed.resources() == Some("gadgets widgets".to_owned());
    eventually(LIMIT, "widened", is_wide).await;
    println!("widened after {:?}", began.elapsed());
    // Narrowed before any replica serves less.
    for replica in both {
        replica.desire(&[&narrow]);
    }
    eventually(LIMIT, "narrowed", || {
        installed.resources() == Some("widgets".to_owned())
    })
    .await;
    // Removed while the replicas still serve the plugin.
    for replica in both {
        replica.desire(&[]);
    }
    eventually(LIMIT, "removed", || installed.resources().is_none()).await;
    a.stop().await;
    b.stop().await;
    let leases = cluster
        .kubectl(&["get", "leases", "-n", "reg-rules", "-o", "name"])
        .succeed();
    assert_eq!(leases.trim(), "lease.coordination.k8s.io/reg-rules-leader");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_leads_after_a_crash_and_after_a_handover() {
    let cluster = cluster_or_skip!();
    let installed = Installed::new(cluster, "reg-leader");
    let p = plugin("p", "widgets");
    let mut replicas = vec![installed.replica("a").await, installed.replica("b").await];
    for replica in &replicas {
        replica.desire(&[&p]);
        replica.serve(&[&p]);
    }
    eventually(LIMIT, "registered", || installed.resources().is_some()).await;
    let leaders = |replicas: &[Replica]| replicas.iter().filter(|one| one.handle().leads()).count();
    assert_eq!(leaders(&replicas), 1);
    // The leader's process dies.
    let leader = replicas
        .iter()
        .position(|one| one.handle().leads())
        .expect("a leader");
    let dead = replicas.remove(leader);
    let lease = format!(
        "lease.coordination.k8s.io/reg-leader-replica-{}",
        dead.name()
    );
    let began = Instant::now();
    drop(dead);
    eventually(LIMIT, "another leader", || leaders(&replicas) == 1).await;
    println!("another replica leads {:?} after a crash", began.elapsed());
    let leases = || {
        cluster
            .kubectl(&["get", "leases", "-n", "reg-leader", "-o", "name"])
            .succeed()
    };
    eventually(LIMIT, "the dead replica's Lease is deleted", || {
        !leases().contains(&lease)
    })
    .await;
    // The new leader goes in order.
    let next = installed.replica("c").await;
    next.desire(&[&p]);
    next.serve(&[&p]);
    eventually(LIMIT, "the third replica's Lease", || {
        leases().contains("replica-c")
    })
    .await;
    let began = Instant::now();
    replicas.remove(0).stop().await;
    eventually(LIMIT, "a handover", || next.handle().leads()).await;
    let took = began.elapsed();
    println!("the next replica leads {took:?} after the begin of an orderly shutdown");
    assert!(took <= Duration::from_secs(3), "{took:?}");
    let changed = plugin("p", "gizmos");
    next.desire(&[&changed]);
    next.serve(&[&changed]);
    eventually(LIMIT, "the next leader registers", || {
        installed.resources() == Some("gizmos".to_owned())
    })
    .await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_changes_are_repaired_and_reported() {
    let cluster = cluster_or_skip!();
    let installed = Installed::new(cluster, "reg-foreign");
    let p = plugin("p", "widgets");
    let replica = installed.replica("a").await;
    replica.desire(&[&p]);
    replica.serve(&[&p]);
    eventually(LIMIT, "registered", || installed.resources().is_some()).await;
    let content = || {
        installed
            .configuration()
            .map(|object| object["webhooks"].clone())
    };
    let expected = content();
    let name = expected.as_ref().expect("webhooks")[0]["name"].clone();
    let webhook = |field: &str, value: Value| json!({"webhooks": [{"name": name, field: value}]});
    let mut url = webhook(
        "clientConfig",
        json!({"url": "https://127.0.0.1:1/x", "service": null}),
    );
    url["webhooks"][0]["clientConfig"]["caBundle"] = Value::Null;
    let more = json!({"name": "more.reg.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}, "failurePolicy": "Ignore"});
    let changes = [
        webhook("failurePolicy", json!("Ignore")),
        webhook(
            "matchConditions",
            json!([{"name": "never", "expression": "false"}]),
        ),
        webhook("objectSelector", json!({"matchLabels": {"a": "b"}})),
        json!({"webhooks": [more]}),
        url,
    ];
    let mut repairs = 0;
    for change in &changes {
        let patch = change.to_string();
        let resource = "validatingwebhookconfiguration/reg-foreign";
        cluster
            .kubectl(&["patch", resource, "--type=strategic", "-p", &patch])
            .succeed();
        repairs += 1;
        let is_repaired =
            || replica.handle().report().borrow().repairs >= repairs && content() == expected;
        eventually(LIMIT, &format!("repaired: {patch}"), is_repaired).await;
    }
    let delete = ["delete", "validatingwebhookconfiguration", "reg-foreign"];
    cluster.kubectl(&delete).succeed();
    eventually(LIMIT, "created again", || content() == expected).await;
    let report = replica.handle().report().borrow().clone();
    assert_eq!((report.repairs, report.problem), (repairs + 1, None));
    let events = cluster
        .kubectl(&["get", "events", "-n", "reg-foreign", "-o", "json"])
        .succeed();
    let events: Value = serde_json::from_str(&events).expect("JSON");
    let event = &events["items"][0];
    assert_eq!(event["reason"], "WebhooksRepaired", "{events}");
    let message = event["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("kubectl") && message.contains("failurePolicy"),
        "{message}"
    );
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_shared_and_rotated_with_both_authorities_registered() {
    let cluster = cluster_or_skip!();
    let installed = Installed::new(cluster, "reg-authority");
    // The authority ends in 140 days. The replicas' clock begins 31 days ago, when the successor is due.
    let now = OffsetDateTime::now_utc();
    let days = time::Duration::days;
    let seed = Authority::create(now - days(3_510)).expect("an authority");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "reg-authority-authority", "namespace": "reg-authority"},
        "stringData": {"ca.crt": seed.bundle_pem(), "ca.key": seed.key_pem()},
    });
    cluster
        .kubectl(&["apply", "-f", "-"])
        .input(&secret)
        .succeed();
    let (ahead, clock) = fixtures::clock(now - days(31));
    let p = plugin("p", "widgets");
    let a = installed.replica_at("a", clock.clone()).await;
    let b = installed.replica_at("b", clock).await;
    for replica in [&a, &b] {
        replica.desire(&[&p]);
        replica.serve(&[&p]);
    }
    let first = fixtures::chain(a.handle()).await;
    eventually(LIMIT, "both serve one certificate", || {
        let of_b = b.handle().certificate();
        let of_b = of_b.borrow();
        of_b.as_ref()
            .is_some_and(|certificate| certificate.chain == first)
    })
    .await;
    let registered = || installed.bundle().matches("BEGIN CERTIFICATE").count();
    eventually(LIMIT, "both authorities are registered", || {
        registered() == 2
    })
    .await;
    let bundle = installed.bundle();
    assert!(bundle.contains(&seed.bundle_pem()));
    // A deleted Secret comes back with the same authority.
    cluster
        .kubectl(&[
            "delete",
            "secret",
            "-n",
            "reg-authority",
            "reg-authority-authority",
        ])
        .succeed();
    eventually(LIMIT, "the Secret is created again", || {
        installed.secret_bundle() == Some(bundle.clone())
    })
    .await;
    // After the overlap, the successor signs. What is registered covers both.
    ahead.set(now);
    eventually(LIMIT, "the successor signs", || {
        [&a, &b].iter().all(|replica| {
            let certificate = replica.handle().certificate();
            let certificate = certificate.borrow();
            certificate
                .as_ref()
                .is_some_and(|one| one.chain != first && one.successor_signs_from.is_none())
        })
    })
    .await;
    let second = fixtures::chain(a.handle()).await;
    assert_eq!(fixtures::chain(b.handle()).await, second);
    assert_eq!(installed.bundle(), bundle);
    fixtures::assert_trusted(&bundle, &first, now);
    fixtures::assert_trusted(&bundle, &second, now);
    fixtures::assert_not_trusted(&seed.bundle_pem(), &second, now);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_go_with_the_anchor_and_with_the_namespace() {
    let cluster = cluster_or_skip!();
    let installed = Installed::new(cluster, "reg-uninstall");
    let p = plugin("p", "widgets");
    let replica = installed.replica("a").await;
    replica.desire(&[&p]);
    replica.serve(&[&p]);
    eventually(LIMIT, "registered", || installed.resources().is_some()).await;
    // The garbage collector follows this chain.
    let get = |resource: &str| fixtures::get(cluster, &[resource]).expect("it exists");
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].clone();
    let anchor = get("clusterrole/reg-uninstall-anchor");
    let namespace = get("namespace/reg-uninstall");
    let configuration = installed.configuration().expect("registered");
    assert_eq!(owner(&configuration), anchor["metadata"]["uid"]);
    assert_eq!(owner(&anchor), namespace["metadata"]["uid"]);
    // As `helm uninstall`, and as the installation after it.
    cluster
        .kubectl(&["delete", "clusterrole", "reg-uninstall-anchor"])
        .succeed();
    let began = Instant::now();
    eventually(LIMIT, "removed with the anchor", || {
        installed.resources().is_none()
    })
    .await;
    println!("removed {:?} after the anchor", began.elapsed());
    // Somebody may have deleted it by mistake.
    let report = replica.handle().report();
    eventually(LIMIT, "the missing anchor is reported", || {
        let report = report.borrow();
        let problem = report.problem.clone().unwrap_or_default();
        let standing = report.plugins.get("p");
        let failed = matches!(
            standing,
            Some(Standing::Failed {
                reason: "AnchorMissing",
                ..
            })
        );
        failed && problem.contains("no ClusterRole reg-uninstall-anchor")
    })
    .await;
    eventually(LIMIT, "an event names the missing anchor", || {
        let events = fixtures::get(cluster, &["events", "-n", "reg-uninstall"]).expect("a list");
        let mut events = events["items"].as_array().into_iter().flatten();
        events.any(|event| event["reason"] == "AnchorMissing")
    })
    .await;
    installed.create_anchor();
    eventually(LIMIT, "registered again", || {
        installed.resources().is_some()
    })
    .await;
    // Nothing ends a namespace here, so it stays terminating.
    cluster
        .kubectl(&["delete", "namespace", "reg-uninstall", "--wait=false"])
        .succeed();
    eventually(LIMIT, "removed with the namespace", || {
        installed.resources().is_none()
    })
    .await;
    replica.stop().await;
}

/// A wrong name of the anchor is no uninstallation: what is registered stays, and everybody is told.
#[tokio::test(flavor = "multi_thread")]
async fn configurations_stay_when_the_name_of_the_anchor_is_wrong() {
    let cluster = cluster_or_skip!();
    let installed = Installed::new(cluster, "reg-misspelt");
    let p = plugin("p", "widgets");
    let replica = installed.replica("a").await;
    replica.desire(&[&p]);
    replica.serve(&[&p]);
    eventually(LIMIT, "registered", || installed.resources().is_some()).await;
    replica.stop().await;
    let before = installed.configuration().expect("registered");
    let wrong = installed
        .replica_anchored_by("b", "reg-misspelt-wrong")
        .await;
    wrong.desire(&[&p]);
    wrong.serve(&[&p]);
    let report = wrong.handle().report();
    eventually(LIMIT, "the wrong name is reported", || {
        let problem = report.borrow().problem.clone().unwrap_or_default();
        problem.contains("no ClusterRole reg-misspelt-wrong")
    })
    .await;
    // Two rounds of the registrar.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = installed.configuration().expect("still registered");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["webhooks"], before["webhooks"]);
    wrong.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn installations_of_one_name_do_not_fight() {
    let cluster = cluster_or_skip!();
    let first = Installed::new(cluster, "reg-taken");
    let second = Installed::named(cluster, "reg-taken-too", "reg-taken");
    let p = plugin("p", "widgets");
    let a = first.replica("a").await;
    a.desire(&[&p]);
    a.serve(&[&p]);
    eventually(LIMIT, "registered", || first.resources().is_some()).await;
    let before = first.configuration();
    let b = second.replica("b").await;
    b.desire(&[&p]);
    b.serve(&[&p]);
    let problem = |handle: &Handle| handle.report().borrow().problem.clone().unwrap_or_default();
    eventually(LIMIT, "refused", || {
        problem(b.handle()).contains("in namespace reg-taken;")
    })
    .await;
    assert_eq!(first.configuration(), before);
    assert_eq!(problem(a.handle()), "");
    a.stop().await;
    b.stop().await;
}

/// Keeps the shared cluster's type in one place.
type Shared = &'static Cluster;
