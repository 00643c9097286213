//! The leader's decisions about rollouts, against a kube-apiserver that answers from a script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::{Client, Config as ClientConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tollgate_config::{Config, Serving};
use tollgate_rollout::{Identity, Phase, Report, Reports as RolloutReports, Told};
use tollgate_telemetry::metrics::Metrics;

use super::{Reports, Round};
use crate::Installation;
use crate::canary::Sightings;
use crate::desired::{Kept, Plan, World, plan};
use crate::kinds::{Kind, Resource};
use crate::lead::{Lead, Management};
use crate::lease::{Announcement, Leadership, Replicas};
use crate::registrar;
use crate::status::ReplicaEntry;
use crate::status::rollout::Decided;
use crate::store::Store;

/// One request to the server.
#[derive(Clone, Debug)]
struct Asked {
    line: String,
    body: Value,
}

/// A kube-apiserver with one plugin. It stores what is applied to the status.
#[derive(Clone)]
struct Server {
    object: Arc<Mutex<Value>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Whether the definition knows `status.rollouts`.
    knows_rollouts: bool,
}

impl Server {
    async fn start(object: Value, knows_rollouts: bool) -> (Self, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self {
            object: Arc::new(Mutex::new(object)),
            asked: Arc::default(),
            knows_rollouts,
        };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        let config = ClientConfig::new(url.parse().unwrap());
        (server, Client::try_from(config).unwrap())
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(asked) = read(&mut stream).await {
            let (status, answer) = self.answer(&asked);
            self.asked.lock().unwrap().push(asked);
            let answer = answer.to_string();
            let length = answer.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            let text = head + &answer;
            if stream.get_mut().write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, asked: &Asked) -> (&'static str, Value) {
        if !asked.line.starts_with("PATCH") {
            return ("201 Created", asked.body.clone());
        }
        let mut object = self.object.lock().unwrap();
        let version = &asked.body["metadata"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409,
                "reason": "Conflict", "message": "the object has been modified",
            });
            return ("409 Conflict", status);
        }
        if self.knows_rollouts {
            object["status"]["rollouts"] = asked.body["status"]["rollouts"].clone();
        }
        let version = object["metadata"]["resourceVersion"].as_str().unwrap();
        let version: u64 = version.parse().unwrap();
        object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        ("200 OK", object.clone())
    }

    fn asked(&self, method: &str) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        let asked = asked.iter().filter(|asked| asked.line.starts_with(method));
        asked.cloned().collect()
    }
}

/// Reads one request. None at the end of the connection.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let (mut line, mut length) = (String::new(), 0);
    stream
        .read_line(&mut line)
        .await
        .ok()
        .filter(|&read| read > 0)?;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Some(Asked { line, body })
}

fn installation() -> Installation {
    Installation {
        name: "tollgate".to_owned(),
        namespace: "system".to_owned(),
        replica: "a".to_owned(),
    }
}

fn spec() -> Value {
    json!({
        "source": "file:/guard-1.wasm",
        "rollout": {
            "to": { "source": "file:/guard-2.wasm" },
            "steps": [{ "mode": "warn", "for": "1s" }, { "mode": "enforce", "for": "1s" }],
            "gates": { "minReviews": 5 },
        },
    })
}

/// The plugin with the reports of these replicas.
fn object(reports: &[(&str, Option<Report>)]) -> Value {
    let entries = reports.iter().map(|(name, report)| {
        let installation = Installation {
            replica: (*name).to_owned(),
            ..installation()
        };
        let message = String::new();
        let entry = ReplicaEntry::new(&installation, true, "Serving", message, 1);
        let rollout = report.clone();
        ReplicaEntry { rollout, ..entry }.document("2026-11-22T09:00:04Z")
    });
    json!({
        "apiVersion": "tollgate.dev/v1alpha1", "kind": "ClusterAdmissionPlugin",
        "metadata": { "name": "guard", "uid": "uid-guard", "generation": 1, "resourceVersion": "7" },
        "spec": spec(),
        "status": { "replicas": entries.collect::<Vec<_>>() },
    })
}

fn resource(object: &Value) -> Resource {
    Resource::of(serde_json::from_value(object.clone()).unwrap())
}

fn planned(resource: &Resource) -> Plan {
    let file = Config::parse("cluster: { enabled: true }", Path::new("/")).unwrap();
    let world = World {
        plugins: Some([("guard".to_owned(), resource.clone())].into()),
        exceptions: Some(BTreeMap::new()),
        ..World::default()
    };
    plan(&file, Path::new("/"), &world, &mut Kept::new())
}

fn told(plan: &Plan, report: Report) -> Told {
    Told {
        report,
        plan: plan.config.plugins[0].rollout.clone().unwrap(),
        from: Some("sha256:1".to_owned()),
        to: Some("sha256:2".to_owned()),
    }
}

fn begun() -> Report {
    Report::stateless(Some(Identity::stored("abc")), None)
}

/// The writer of a replica that knows these ready replicas, and perhaps leads.
fn reports(client: Client, leads: bool, ready: &[&str], told: Option<Told>) -> Reports {
    let installation = installation();
    let store = Store::new(PathBuf::from("/"), Kept::new(), &installation, None);
    let leadership = match leads {
        true => Leadership::of(Instant::now() + Duration::from_secs(60)),
        false => Leadership::default(),
    };
    let mut replicas = Replicas::default();
    let leases: Vec<String> = ready
        .iter()
        .map(|name| installation.lease_of(name))
        .collect();
    for lease in &leases {
        let announcement = Announcement {
            ready: true,
            ..Announcement::default()
        };
        let version = "1".to_owned();
        replicas.see(lease.clone(), version, announcement, Instant::now());
    }
    replicas.complete(&leases);
    let lead = Lead {
        leadership: watch::Sender::new(leadership).subscribe(),
        replicas: watch::Sender::new(replicas).subscribe(),
        report: watch::Sender::new(registrar::Report::default()).subscribe(),
        sightings: watch::Sender::new(Sightings::default()).subscribe(),
        metrics: Metrics::new(),
        gone_after: Duration::from_secs(30),
    };
    let said: RolloutReports = told
        .map(|told| ("guard".to_owned(), told))
        .into_iter()
        .collect();
    Reports::new(
        client,
        installation,
        Arc::new(store),
        watch::Sender::new(Arc::new(Serving::default())).subscribe(),
        watch::Sender::new(Management::Own(lead)).subscribe(),
        watch::Sender::new(Arc::new(said)).subscribe(),
    )
}

fn decided(server: &Server) -> Option<Decided> {
    let object = server.object.lock().unwrap().clone();
    Decided::read(&resource(&object), &installation())
}

#[tokio::test]
async fn leader_begins_a_rollout_in_the_status() {
    let before = object(&[]);
    let (server, client) = Server::start(before.clone(), true).await;
    let resource = resource(&before);
    let plan = planned(&resource);
    let told = Some(told(&plan, begun()));
    let mut round = Round::default();
    // Another replica leaves that to the leader.
    let mut other = reports(client.clone(), false, &["a", "b"], told.clone());
    other
        .lead_rollout("guard", resource.clone(), &plan, &mut round)
        .await;
    assert!(server.asked("").is_empty());
    let mut leader = reports(client, true, &["a", "b"], told);
    let written = leader
        .lead_rollout("guard", resource, &plan, &mut round)
        .await;
    let state = decided(&server).unwrap();
    assert_eq!(state.summary(), "running 1/2");
    assert_eq!(
        (state.from.as_deref(), state.to.as_deref()),
        (Some("sha256:1"), Some("sha256:2"))
    );
    assert_eq!(Decided::read(&written, &installation()), Some(state));
    let patches = server.asked("PATCH");
    let [patch] = patches.as_slice() else {
        panic!("one write: {:?}", server.asked(""));
    };
    for part in [
        "/clusteradmissionplugins/guard/status",
        "fieldManager=tollgate-rollout-system.tollgate",
    ] {
        assert!(patch.line.contains(part), "{}", patch.line);
    }
    assert_eq!(patch.body["metadata"]["resourceVersion"], "7");
    let events = server.asked("POST");
    let [event] = events.as_slice() else {
        panic!("one event: {:?}", server.asked(""));
    };
    assert_eq!(event.body["reason"], "RolloutStep");
}

#[tokio::test]
async fn decision_that_is_based_on_an_old_status_is_not_written() {
    let before = object(&[]);
    let (server, client) = Server::start(before.clone(), true).await;
    let old = Resource {
        version: "6".to_owned(),
        ..resource(&before)
    };
    let plan = planned(&old);
    let mut leader = reports(client, true, &["a"], Some(told(&plan, begun())));
    let mut round = Round::default();
    leader.lead_rollout("guard", old, &plan, &mut round).await;
    assert_eq!(decided(&server), None);
    assert!(server.asked("POST").is_empty());
    assert!(round.next.is_some());
}

#[tokio::test]
async fn definition_without_the_key_is_not_written_to_again_and_again() {
    let before = object(&[]);
    let (server, client) = Server::start(before.clone(), false).await;
    let mut resource = resource(&before);
    let plan = planned(&resource);
    let mut leader = reports(client, true, &["a"], Some(told(&plan, begun())));
    for _ in 0..3 {
        let mut round = Round::default();
        resource = leader
            .lead_rollout("guard", resource, &plan, &mut round)
            .await;
    }
    assert_eq!(server.asked("PATCH").len(), 1);
    assert!(server.asked("POST").is_empty());
}

#[tokio::test]
async fn rollback_of_a_replica_is_written_for_all() {
    let (server, client) = Server::start(object(&[]), true).await;
    let first = resource(&server.object.lock().unwrap().clone());
    let plan = planned(&first);
    let mut leader = reports(client, true, &["a", "b"], Some(told(&plan, begun())));
    let mut round = Round::default();
    leader.lead_rollout("guard", first, &plan, &mut round).await;
    let running = decided(&server).unwrap().common.state;
    let back = Report {
        run: running.run,
        revision: running.revision + 1,
        phase: Phase::RolledBack,
        reason: Some("1 fault(s) of the new version".to_owned()),
        ..begun()
    };
    {
        let mut known = server.object.lock().unwrap();
        let entries = object(&[("a", Some(begun())), ("b", Some(back))]);
        known["status"]["replicas"] = entries["status"]["replicas"].clone();
    }
    let second = resource(&server.object.lock().unwrap().clone());
    leader
        .lead_rollout("guard", second, &plan, &mut round)
        .await;
    let state = decided(&server).unwrap();
    assert_eq!(state.summary(), "rolled-back");
    assert_eq!(
        state.common.state.last().unwrap().reason,
        "replica b: 1 fault(s) of the new version"
    );
    assert_eq!(server.asked("POST").len(), 2);
}

#[tokio::test]
async fn state_goes_with_the_rollout() {
    let (server, client) = Server::start(object(&[]), true).await;
    let first = resource(&server.object.lock().unwrap().clone());
    let plan = planned(&first);
    let mut leader = reports(client.clone(), true, &["a"], Some(told(&plan, begun())));
    let mut round = Round::default();
    let first = leader.lead_rollout("guard", first, &plan, &mut round).await;
    assert!(decided(&server).is_some());
    // The gate does not serve the plugin yet, and the resource still has the rollout.
    let mut leader = reports(client, true, &["a"], None);
    leader
        .lead_rollout("guard", first.clone(), &plan, &mut round)
        .await;
    assert!(decided(&server).is_some());
    let mut without = first.clone();
    without.spec = json!({ "source": "file:/guard-2.wasm" });
    let plan = planned(&without);
    leader.lead_rollout("guard", first, &plan, &mut round).await;
    assert_eq!(decided(&server), None);
}

#[tokio::test]
async fn counts_wait_until_they_are_worth_a_write() {
    let empty = object(&[]);
    let (_, client) = Server::start(empty.clone(), true).await;
    let plan = planned(&resource(&empty));
    let report = |reviews| {
        let mut report = begun();
        report.observed.reviews = reviews;
        report
    };
    let mut own = reports(client, false, &["a"], Some(told(&plan, report(5))));
    let mut round = Round::default();
    let first = own.seen_of_rollout("guard", &resource(&empty), &mut round);
    assert_eq!(first, Some(report(5)), "nothing was written before");
    // The last write was a moment ago.
    let written = resource(&object(&[("a", Some(report(3)))]));
    let second = own.seen_of_rollout("guard", &written, &mut round);
    assert_eq!(second, Some(report(3)));
    assert!(round.next.is_some());
    let other = resource(&object(&[(
        "a",
        Some(Report {
            is_over: true,
            ..report(3)
        }),
    )]));
    let third = own.seen_of_rollout("guard", &other, &mut round);
    assert_eq!(third, Some(report(5)), "more than counts has changed");
}

#[test]
fn store_says_what_the_status_says() {
    let installation = installation();
    let store = Store::new(PathBuf::from("/"), Kept::new(), &installation, None);
    assert!(
        store.commons.borrow().decides("guard"),
        "the file is not read"
    );
    let mut plugin = object(&[("a", Some(begun())), ("b", None)]);
    plugin["metadata"]["annotations"] = json!({ "tollgate.dev/rollout": "rollback-1" });
    store.replace(Kind::Plugin, vec![resource(&plugin)]);
    let file = "cluster: { enabled: true }\nplugins: [{ name: fixed, source: 'file:a.wasm' }]";
    store.add(&Config::parse(file, Path::new("/")).unwrap());
    let commons = store.commons.borrow().clone();
    assert!(commons.decides("guard") && !commons.decides("fixed"));
    let heard = &commons.plugins["guard"];
    assert_eq!(heard.own, Some(begun()));
    assert!(heard.asked.is_some() && heard.state.is_none());
}
