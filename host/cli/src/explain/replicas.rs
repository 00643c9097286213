//! All replicas of an installation: where their admin listeners are, and one list of their decisions.

use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinSet;
use tollgate_registration::live::Objects;

use super::Decisions;
use crate::admin::AdminClient;
use crate::kubectl::{Live, Query, WEBHOOKS};
use crate::terminal::plain;

/// The Service in front of the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceName {
    namespace: String,
    name: String,
}

/// A replica's admin listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Replica {
    name: String,
    /// IP address or name, with brackets around an IPv6 address, and port.
    authority: String,
}

/// The answers of all replicas.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The decisions, newest first, each with the name of its `replica`.
    pub(super) decisions: Vec<Value>,
    /// The replicas that did not answer, each with the reason.
    pub(super) unanswered: Vec<(String, String)>,
    /// How many replicas there are.
    pub(super) count: usize,
}

/// The suffix of the headless Service that lists unready replicas too.
const PEERS: &str = "-peers";
/// The name of the admin listener's port.
const PORT: &str = "admin";
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// Asks all replicas behind the Service for a page of their admin listeners.
pub(super) async fn ask(
    service: &ServiceName,
    live: &Live,
    admin: &AdminClient,
    path: &str,
) -> anyhow::Result<Answers> {
    let clients = clients(service, live, admin)?;
    let count = clients.len();
    let mut asking = JoinSet::new();
    for (name, client) in clients {
        let path = path.to_owned();
        asking.spawn(async move {
            let answer = client.get(&path).await.and_then(decisions_in);
            (name, answer)
        });
    }
    let mut answers = Answers {
        count,
        ..Answers::default()
    };
    while let Some(answer) = asking.join_next().await {
        let (name, answer) = answer.context("asking a replica failed")?;
        answers.add(name, answer);
    }
    answers.sort();
    Ok(answers)
}

/// Returns a client for the admin listener of each replica behind the Service, by the replica's name.
pub(crate) fn clients(
    service: &ServiceName,
    live: &Live,
    admin: &AdminClient,
) -> anyhow::Result<Vec<(String, AdminClient)>> {
    let (replicas, bundle) = look_up(service, live, admin.has_authority())?;
    ensure!(
        !replicas.is_empty(),
        "no EndpointSlice of the Service {service} has an address with a port named {PORT}: set admin.enabled in the \
         chart's values, and pass the Service as --service NAMESPACE/NAME"
    );
    let clients = replicas.into_iter().map(|replica| {
        let url = Uri::from_str(&format!("https://{}", replica.authority));
        let url = url.with_context(|| format!("{} is not an address", replica.authority))?;
        let client = admin.at(url, service.host(), bundle.clone());
        Ok((replica.name, client))
    });
    clients.collect()
}

/// Finds the replicas, and the CAs that the webhooks trust unless the user named some.
fn look_up(
    service: &ServiceName,
    live: &Live,
    has_authority: bool,
) -> anyhow::Result<(Vec<Replica>, Option<Vec<u8>>)> {
    let slices = Query {
        resources: "endpointslices.discovery.k8s.io",
        namespace: Some(service.namespace.clone()),
        selector: None,
        labels: None,
        is_optional: false,
    };
    let webhooks = Query {
        is_optional: true,
        ..WEBHOOKS
    };
    let queries: &[&Query] = if has_authority {
        &[&slices]
    } else {
        &[&slices, &webhooks]
    };
    let mut unread = Vec::new();
    let objects = live.read_or_note(queries, &mut unread)?;
    let bundle = (!has_authority).then(|| ca_bundle(&objects, service));
    let bundle = bundle.flatten();
    if bundle.is_none() && !has_authority {
        unread.push(format!(
            "no webhook configuration has a caBundle for the Service {service}"
        ));
        bail!(
            "the CA of the replicas is not known: {}; pass it with --certificate-authority",
            plain(&unread.join("; "))
        );
    }
    Ok((replicas(&objects, service), bundle))
}

/// Lists the replicas, by name.
fn replicas(objects: &Objects, service: &ServiceName) -> Vec<Replica> {
    let peers = format!("{}{PEERS}", service.name);
    let mut replicas = Vec::new();
    for slice in objects.of_kind("EndpointSlice") {
        let metadata = &slice["metadata"];
        let of = metadata["labels"][OF_SERVICE].as_str().unwrap_or_default();
        let is_own = metadata["namespace"] == service.namespace.as_str()
            && (of == service.name || of == peers);
        if !is_own {
            continue;
        }
        let ports = slice["ports"].as_array().into_iter().flatten();
        let ports = ports.filter(|port| port["name"] == PORT);
        let ports: Vec<u64> = ports.filter_map(|port| port["port"].as_u64()).collect();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            // All addresses of an endpoint are those of one pod.
            let Some(address) = endpoint["addresses"][0].as_str() else {
                continue;
            };
            let name = endpoint["targetRef"]["name"].as_str().unwrap_or(address);
            let host = match address.contains(':') {
                true => format!("[{address}]"),
                false => address.to_owned(),
            };
            replicas.extend(ports.iter().map(|port| Replica {
                name: name.to_owned(),
                authority: format!("{host}:{port}"),
            }));
        }
    }
    replicas.sort();
    replicas.dedup();
    replicas
}

/// Returns the CAs in PEM that kube-apiserver trusts when it calls the Service.
fn ca_bundle(objects: &Objects, service: &ServiceName) -> Option<Vec<u8>> {
    let kinds = [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ];
    let configurations = kinds.into_iter().flat_map(|kind| objects.of_kind(kind));
    let webhooks = configurations.flat_map(|one| one["webhooks"].as_array().into_iter().flatten());
    let mut clients = webhooks.map(|webhook| &webhook["clientConfig"]);
    let client = clients.find(|client| {
        client["service"]["namespace"] == service.namespace.as_str()
            && client["service"]["name"] == service.name.as_str()
            && client["caBundle"].is_string()
    })?;
    STANDARD.decode(client["caBundle"].as_str()?).ok()
}

/// Reads the decisions in an answer. A replica that keeps none of the review answers 404.
fn decisions_in((status, body): (StatusCode, Bytes)) -> anyhow::Result<Vec<Value>> {
    match status {
        StatusCode::OK => {
            let decisions: Decisions = serde_json::from_slice(&body)
                .context("unexpected answer: check that it is a server of this version")?;
            Ok(decisions.decisions)
        }
        StatusCode::NOT_FOUND => Ok(Vec::new()),
        status => {
            let text = String::from_utf8_lossy(&body).into_owned();
            bail!("{status}: {}", plain(text.trim()))
        }
    }
}

// === impl ServiceName ===

impl ServiceName {
    /// The name in the certificate of the replicas.
    fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl FromStr for ServiceName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err("expected NAMESPACE/NAME, such as tollgate-system/tollgate"),
        }
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Answers ===

impl Answers {
    fn add(&mut self, replica: String, answer: anyhow::Result<Vec<Value>>) {
        match answer {
            Ok(decisions) => self
                .decisions
                .extend(decisions.into_iter().map(|mut decision| {
                    decision["replica"] = json!(replica);
                    decision
                })),
            Err(error) => self.unanswered.push((replica, format!("{error:#}"))),
        }
    }

    /// Puts the newest decision first. Decisions of one time are in the order of their uids.
    fn sort(&mut self) {
        let time = |decision: &Value| {
            let text = decision["time"].as_str()?;
            OffsetDateTime::parse(text, &Rfc3339).ok()
        };
        let uid = |decision: &Value| decision["uid"].as_str().unwrap_or_default().to_owned();
        self.decisions
            .sort_by_cached_key(|decision| (std::cmp::Reverse(time(decision)), uid(decision)));
        self.unanswered.sort();
    }

    /// Whether any replica answered.
    pub(super) fn is_any(&self) -> bool {
        self.unanswered.len() < self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> ServiceName {
        "tollgate-system/tollgate".parse().expect("a service")
    }

    fn slice(of: &str, port: &str, endpoints: &Value) -> Value {
        json!({
            "kind": "EndpointSlice",
            "metadata": {"namespace": "tollgate-system", "labels": {"kubernetes.io/service-name": of}},
            "ports": [{"name": "https", "port": 8443}, {"name": port, "port": 8081}],
            "endpoints": endpoints,
        })
    }

    fn objects(objects: &[Value]) -> Objects {
        let list = json!({"kind": "List", "items": objects});
        Objects::parse(&list.to_string()).expect("objects")
    }

    #[test]
    fn finds_each_replica_once() {
        let pod = |name: &str, address: &str| json!({"addresses": [address], "targetRef": {"name": name}});
        let both = json!([pod("b", "10.0.0.2"), pod("a", "fd00::1"), {"addresses": ["10.0.0.3"]}]);
        let mut elsewhere = slice("tollgate", "admin", &json!([pod("x", "10.0.0.9")]));
        elsewhere["metadata"]["namespace"] = json!("shop");
        let objects = objects(&[
            slice("tollgate-peers", "admin", &both),
            slice("tollgate", "admin", &json!([pod("b", "10.0.0.2")])),
            slice("tollgate", "other", &json!([pod("c", "10.0.0.4")])),
            slice("other", "admin", &json!([pod("d", "10.0.0.5")])),
            elsewhere,
        ]);
        let found = replicas(&objects, &service());
        let found: Vec<String> = found
            .iter()
            .map(|replica| format!("{} {}", replica.name, replica.authority))
            .collect();
        assert_eq!(
            found,
            [
                "10.0.0.3 10.0.0.3:8081",
                "a [fd00::1]:8081",
                "b 10.0.0.2:8081"
            ]
        );
    }

    #[test]
    fn trusts_the_ca_of_the_own_webhooks() {
        let webhook = |name: &str, bundle: &str| {
            let client = json!({"service": {"namespace": "tollgate-system", "name": name}, "caBundle": STANDARD.encode(bundle)});
            json!({"clientConfig": client})
        };
        let configuration = json!({
            "kind": "ValidatingWebhookConfiguration",
            "webhooks": [webhook("other", "foreign"), webhook("tollgate", "own")],
        });
        let found = ca_bundle(&objects(&[configuration]), &service());
        assert_eq!(found.as_deref(), Some(&b"own"[..]));
        assert_eq!(ca_bundle(&objects(&[]), &service()), None);
    }

    #[test]
    fn merges_by_time_and_names_who_did_not_answer() {
        let decision = |uid: &str, time: &str| json!({"uid": uid, "time": time});
        let mut answers = Answers {
            count: 3,
            ..Answers::default()
        };
        answers.add(
            "b".to_owned(),
            Ok(vec![
                decision("2", "2026-11-23T10:00:00.5Z"),
                decision("1", "2026-11-23T10:00:00Z"),
            ]),
        );
        answers.add(
            "c".to_owned(),
            Err(anyhow::anyhow!("refused").context("cannot connect")),
        );
        assert!(answers.is_any());
        answers.add(
            "a".to_owned(),
            Ok(vec![
                decision("3", "2026-11-23T10:00:00.25Z"),
                decision("0", "2026-11-23T10:00:00Z"),
            ]),
        );
        answers.sort();
        let order = answers.decisions.iter();
        let order: Vec<String> = order
            .map(|one| {
                format!(
                    "{}{}",
                    one["uid"].as_str().unwrap_or(""),
                    one["replica"].as_str().unwrap_or("")
                )
            })
            .collect();
        assert_eq!(order, ["2b", "3a", "0a", "1b"]);
        let expected = [("c".to_owned(), "cannot connect: refused".to_owned())];
        assert_eq!(answers.unanswered, expected);
        let none = (StatusCode::NOT_FOUND, Bytes::new());
        assert_eq!(
            decisions_in(none).expect("no decision"),
            Vec::<Value>::new()
        );
        let away = (StatusCode::SERVICE_UNAVAILABLE, Bytes::from("later\n"));
        let error = decisions_in(away).expect_err("no answer").to_string();
        assert!(error.ends_with("later"), "{error}");
    }
}
