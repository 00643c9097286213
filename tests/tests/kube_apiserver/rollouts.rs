//! Rollouts of custom resources: two replicas with the chart's service account share one state in the status. The leader
//! begins each step, and a replica that sees a fault goes back by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_tests::cli;
use tollgate_tests::kubernetes::service::Service;
use tollgate_tests::kubernetes::{Cluster, Start as ClusterStart};
use tollgate_tests::server::{Server, metric};

use crate::fixtures::{config_map, labelled, path_of, rules};
use crate::installed::{SHOP, SYSTEM, USER, replica, service_account, wait_until};
use crate::plugins_as_resources::{apply, define, get, plugin, wait_for};

const GUARD: [&str; 2] = ["clusteradmissionplugin", "guard"];

/// A cluster with an installation of two replicas.
struct Installed {
    cluster: Arc<Cluster>,
    service: Service,
    kubeconfig: PathBuf,
    servers: Vec<Server>,
}

/// Creations without a pause. Each must be allowed.
struct Load {
    stops: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

// === impl Installed ===

impl Installed {
    /// Starts two replicas, and waits until the old version of the plugin is registered.
    async fn start() -> Option<Self> {
        let cluster = Arc::new(ClusterStart::default().start()?);
        define(&cluster);
        cluster.namespace(SYSTEM);
        cluster.namespace(SHOP);
        let service = Service::new(&cluster, SYSTEM, "gate").await;
        let kubeconfig = service_account(&cluster);
        let mut installed = Self {
            cluster,
            service,
            kubeconfig,
            servers: Vec::new(),
        };
        for name in ["replica-0", "replica-1"] {
            installed.add(name);
        }
        apply(&installed.cluster, &guard(&Value::Null));
        wait_for(&installed.cluster, &GUARD, "True", "Serving");
        let labelled = || (installed.version() == "one").then_some(());
        wait_until("the old version is called", labelled);
        Some(installed)
    }

    fn add(&mut self, name: &str) {
        let admin = json!({"listen": "127.0.0.1:0"});
        let server =
            tokio::task::block_in_place(|| replica(&self.kubeconfig, &self.service, name, admin));
        self.servers.push(server);
    }

    /// Returns which version sets the label of a new object.
    fn version(&self) -> String {
        let arguments = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let printed = self.cluster.kubectl(&arguments).input(&object()).run();
        let created: Value = serde_json::from_str(&printed.output).unwrap_or_default();
        let version = created["metadata"]["labels"]["version"].as_str();
        version.unwrap_or_default().to_owned()
    }

    /// Returns the state of the rollout that the replicas share.
    fn decided(&self) -> Value {
        let guard = get(&self.cluster, &GUARD);
        guard["status"]["rollouts"][0].clone()
    }

    /// Waits until the rollout has reached a phase, and returns its state.
    fn wait_for_phase(&self, phase: &str) -> Value {
        let what = format!("the rollout is {phase}");
        let found = wait_until(&what, || {
            let decided = self.decided();
            (decided["phase"] == phase).then_some(decided)
        });
        println!("{what} after {:?}", found.1);
        found.0
    }

    /// Waits until each replica has reached a phase.
    async fn all_reach(&self, phase: &str) {
        for server in &self.servers {
            let page = async || server.get_admin("/rollouts").await.json();
            tollgate_tests::server::until("the replica follows", async || {
                page().await["rollouts"][0]["phase"] == phase
            })
            .await;
        }
    }

    /// Runs `tollgate rollout` with kubectl, as the administrator.
    fn rollout(&self, arguments: &[&str]) -> String {
        let mut command = cli::command(&["rollout"]);
        command
            .args(arguments)
            .args(["guard", "--resource", "--kubectl"])
            .arg(self.cluster.kubectl_program())
            .env("KUBECONFIG", self.cluster.folder().join("kubeconfig"));
        let ran = cli::run(&mut command);
        ran.assert(0, &[]);
        ran.said()
    }

    fn wait_for_event(&self, reason: &str) {
        let selector = format!("reason={reason}");
        let arguments = ["events", "-n", "default", "--field-selector", &selector];
        wait_until(reason, || {
            let events = get(&self.cluster, &arguments);
            let count = events["items"].as_array().map_or(0, Vec::len);
            assert!(count <= 1, "{events:#}");
            (count == 1).then_some(())
        });
    }

    /// Every write of the replicas was allowed.
    fn assert_rights(&self) {
        let requests = self
            .cluster
            .audit(|entry| entry["user"]["username"] == USER);
        let refused = requests
            .iter()
            .filter(|entry| entry["responseStatus"]["code"] == 403);
        assert_eq!(refused.collect::<Vec<_>>(), [] as [&Value; 0]);
    }
}

// === impl Load ===

impl Load {
    fn on(cluster: &Arc<Cluster>) -> Self {
        let mut load = Self {
            stops: Arc::default(),
            answered: Arc::default(),
            failed: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..4 {
            let (cluster, stops) = (cluster.clone(), load.stops.clone());
            let (answered, failed) = (load.answered.clone(), load.failed.clone());
            load.tasks.spawn(async move {
                let object = object();
                let path = format!("{}?dryRun=All", path_of(&object));
                while !stops.load(Ordering::Relaxed) {
                    let (status, answer) =
                        cluster.request(Method::POST, &path, Some(&object)).await;
                    if status == 201 {
                        answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("failed: {status} {answer}");
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        load
    }

    /// Ends the load, and returns how many requests were answered and how many failed.
    async fn end(mut self) -> (u64, u64) {
        self.stops.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        let answered = self.answered.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        println!("requests answered: {answered}, failed: {failed}");
        (answered, failed)
    }
}

fn object() -> Value {
    labelled(config_map(SHOP, "web", "a"), json!({"team": "shop"}))
}

fn settings(version: &str) -> Value {
    json!({"set": {"/metadata/labels/version": version}})
}

/// A version that gives an invalid answer to each request to mutate.
fn faulty() -> Value {
    json!({"set": {"/metadata/name": "another"}})
}

/// The plugin whose old version sets the label `one`, with a rollout unless that is null.
fn guard(rollout: &Value) -> Value {
    let mut guard = plugin("guard", json!({"settings": settings("one")}));
    guard["spec"]["match"] = rules(SHOP, &[""], &["configmaps"]);
    if !rollout.is_null() {
        guard["spec"]["rollout"] = rollout.clone();
    }
    guard
}

/// A rollout to a version with these settings.
fn rollout(new: &Value, steps: &Value) -> Value {
    let source = plugin("guard", json!({}))["spec"]["source"].clone();
    json!({
        "to": {"source": source, "settings": new},
        "steps": steps,
        "gates": {"minReviews": 5},
    })
}

fn changes(decided: &Value) -> Vec<String> {
    let history = decided["history"].as_array().into_iter().flatten();
    let changes = history.map(|change| {
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("phase"), change["step"], text("by"))
    });
    changes.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_promoted_together_under_load() {
    let Some(installed) = Installed::start().await else {
        return;
    };
    let load = Load::on(&installed.cluster);
    let steps = json!([
        {"mode": "shadow", "for": "2s"},
        {"mode": "warn", "namespaces": [SHOP], "for": "2s"},
        {"mode": "enforce", "namespaces": [SHOP], "for": "2s"},
        {"mode": "enforce", "for": "2s"},
    ]);
    apply(
        &installed.cluster,
        &guard(&rollout(&settings("two"), &steps)),
    );
    let promoted = installed.wait_for_phase("promoted");
    installed.all_reach("promoted").await;
    assert_eq!(installed.version(), "two");
    let (answered, failed) = load.end().await;
    assert!(answered > 100, "{answered}");
    assert_eq!(failed, 0, "requests failed");
    assert_eq!(
        changes(&promoted),
        [
            "running 1 configuration",
            "running 2 gates",
            "running 3 gates",
            "running 4 gates",
            "promoted 4 gates",
        ]
    );
    assert!(
        promoted["from"].is_string() && promoted["to"].is_string(),
        "{promoted:#}"
    );
    for server in &installed.servers {
        let labels = [("plugin", "guard"), ("phase", "promoted")];
        let page = server.metrics().await;
        let phase = metric(&page, "tollgate_rollout_phase", &labels);
        assert_eq!(phase.to_bits(), f64::to_bits(1.0));
    }
    installed.wait_for_event("RolloutPromoted");
    let table = installed.cluster.kubectl(&["get", "caps"]).succeed();
    assert!(
        table.contains("ROLLOUT") && table.contains("promoted"),
        "{table}"
    );
    let said = installed.rollout(&["status"]);
    assert!(said.contains("guard: promoted"), "{said}");

    // The new version becomes the plugin, and the state goes.
    let mut finished = guard(&Value::Null);
    finished["spec"]["settings"] = settings("two");
    apply(&installed.cluster, &finished);
    wait_until("the state is gone", || {
        installed.decided().is_null().then_some(())
    });
    wait_for(&installed.cluster, &GUARD, "True", "Serving");
    assert_eq!(installed.version(), "two");
    installed.assert_rights();
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_rolls_all_replicas_back_and_fails_no_request() {
    let Some(installed) = Installed::start().await else {
        return;
    };
    let load = Load::on(&installed.cluster);
    let steps = json!([
        {"mode": "enforce", "namespaces": [SHOP], "for": "10m"},
        {"mode": "enforce", "for": "10m"},
    ]);
    apply(&installed.cluster, &guard(&rollout(&faulty(), &steps)));
    let back = installed.wait_for_phase("rolled-back");
    installed.all_reach("rolled-back").await;
    let (answered, failed) = load.end().await;
    assert!(answered > 0);
    assert_eq!(failed, 0, "requests failed");
    let reason = back["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("fault(s) of the new version"), "{reason}");
    assert_eq!(installed.version(), "one");
    installed.wait_for_event("RolledBack");

    // An administrator begins it again, and ends it.
    let steps = json!([{"mode": "warn", "for": "10m"}, {"mode": "enforce", "for": "10m"}]);
    apply(
        &installed.cluster,
        &guard(&rollout(&settings("two"), &steps)),
    );
    let running = installed.wait_for_phase("running");
    assert_eq!((&running["run"], &running["step"]), (&json!(1), &json!(1)));
    installed.all_reach("running").await;
    installed.rollout(&["promote"]);
    wait_until("the next step begins", || {
        (installed.decided()["step"] == 2).then_some(())
    });
    let two = || (installed.version() == "two").then_some(());
    wait_until("the new version answers", two);
    installed.rollout(&["rollback"]);
    installed.wait_for_phase("rolled-back");
    installed.all_reach("rolled-back").await;
    assert_eq!(installed.version(), "one");
    installed.rollout(&["promote"]);
    let again = installed.wait_for_phase("running");
    assert_eq!((&again["run"], &again["step"]), (&json!(2), &json!(1)));
    installed.assert_rights();
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_goes_on_after_the_death_of_the_leader() {
    let Some(mut installed) = Installed::start().await else {
        return;
    };
    let steps = json!([
        {"mode": "warn", "for": "1s"},
        {"mode": "enforce", "namespaces": [SHOP], "for": "5s"},
        {"mode": "enforce", "for": "1s"},
    ]);
    // Requests that the dead replica does not answer any more do not count.
    let load = Load::on(&installed.cluster);
    apply(
        &installed.cluster,
        &guard(&rollout(&settings("two"), &steps)),
    );
    wait_until("the second step begins", || {
        (installed.decided()["step"] == 2).then_some(())
    });
    let lease = get(
        &installed.cluster,
        &["lease", "tollgate-leader", "-n", SYSTEM],
    );
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let leader = usize::from(!holder.starts_with("replica-0"));
    let leader = installed.servers.remove(leader);
    installed.service.remove(leader.address());
    drop(leader.kill());
    let before = installed.decided();
    assert_eq!(
        (&before["step"], &before["phase"]),
        (&json!(2), &json!("running")),
        "{before:#}"
    );
    installed.add("replica-2");
    let promoted = installed.wait_for_phase("promoted");
    installed.all_reach("promoted").await;
    load.end().await;
    assert_eq!(promoted["run"], 1);
    assert_eq!(
        changes(&promoted),
        [
            "running 1 configuration",
            "running 2 gates",
            "running 3 gates",
            "promoted 3 gates",
        ]
    );
    assert_eq!(promoted["startedAt"], before["startedAt"]);
    assert_eq!(installed.version(), "two");
    installed.assert_rights();
}
