//! Scans with test objects and test plugins: which objects a scan reads and evaluates again.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tollgate_cluster::{InventoryError, Served, Version, Versions};

use super::memory::Memory;
use super::pace::Pace;
use super::round::{Round, Tally};
use super::share::Share;
use super::source::{Judges, Objects};
use crate::finding::tests::finding;
use crate::finding::{Judged, Verdict};
use crate::judge::Outcome;
use crate::key::Key;
use crate::object::Item;
use crate::object::tests::served;
use crate::state::{Kept, Seen};

/// Pods, by namespace and name, each with its version.
#[derive(Default)]
struct Pods {
    pods: BTreeMap<(String, String), u32>,
    /// Requests for metadata, pages and objects.
    requests: [Cell<u32>; 3],
    is_away: bool,
    is_large: bool,
    expires: Cell<bool>,
}

/// A plugin that denies pods whose name begins with `bad`.
struct Plugin {
    key: Option<Key>,
    calls: Cell<u64>,
    namespace: Option<Key>,
    faults: bool,
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get() + 1);
}

// === impl Pods ===

impl Pods {
    fn new(namespaces: &[&str], each: u32) -> Self {
        let mut pods = Self::default();
        for namespace in namespaces {
            for index in 0..each {
                let word = if index % 2 == 0 { "bad" } else { "good" };
                pods.set(namespace, &format!("{word}-{index:03}"), 1);
            }
        }
        pods
    }

    fn set(&mut self, namespace: &str, name: &str, version: u32) {
        self.pods
            .insert((namespace.to_owned(), name.to_owned()), version);
    }

    fn requests(&self) -> [u32; 3] {
        self.requests.each_ref().map(|count| count.replace(0))
    }

    fn on_page(
        &self,
        continued: Option<&str>,
        limit: u32,
    ) -> (Vec<(&str, &str, u32)>, Option<String>) {
        let from = continued.map_or(0, |token| token.parse().expect("a number"));
        let all = self.pods.iter().skip(from).take(limit as usize);
        let page: Vec<_> = all
            .map(|((namespace, name), version)| (namespace.as_str(), name.as_str(), *version))
            .collect();
        let next = from + page.len();
        let continued = (next < self.pods.len()).then(|| next.to_string());
        (page, continued)
    }
}

fn pod(namespace: &str, name: &str, version: u32) -> Value {
    json!({"metadata": {
        "namespace": namespace, "name": name, "uid": name, "resourceVersion": version.to_string(),
    }})
}

impl Objects for Pods {
    async fn versions(
        &self,
        _resource: &Served,
        continued: Option<&str>,
        limit: u32,
    ) -> Result<Versions, InventoryError> {
        count(&self.requests[0]);
        let what = "list pods".to_owned();
        if self.is_away {
            let why = "kube-apiserver is away".to_owned();
            return Err(InventoryError::Failed { what, why });
        }
        if continued.is_some() && self.expires.replace(false) {
            let continued = continued.map(str::to_owned);
            return Err(InventoryError::Expired { what, continued });
        }
        if self.is_large && limit > 2 {
            let max_bytes = 1;
            return Err(InventoryError::TooLarge { what, max_bytes });
        }
        let (page, continued) = self.on_page(continued, limit);
        let objects = page.into_iter().map(|(namespace, name, version)| Version {
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            uid: name.to_owned(),
            resource_version: version.to_string(),
            is_deleted: false,
        });
        Ok(Versions {
            objects: objects.collect(),
            continued,
        })
    }

    async fn page(
        &self,
        _resource: &Served,
        continued: Option<&str>,
        limit: u32,
    ) -> Result<Vec<u8>, InventoryError> {
        count(&self.requests[1]);
        let (page, _) = self.on_page(continued, limit);
        let items = page.into_iter();
        let items: Vec<Value> = items
            .map(|(namespace, name, version)| pod(namespace, name, version))
            .collect();
        Ok(json!({"metadata": {}, "items": items})
            .to_string()
            .into_bytes())
    }

    async fn object(
        &self,
        _resource: &Served,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Vec<u8>>, InventoryError> {
        count(&self.requests[2]);
        let place = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        let version = self.pods.get(&place);
        Ok(version.map(|version| pod(&place.0, name, *version).to_string().into_bytes()))
    }
}

// === impl Plugin ===

impl Plugin {
    fn new(key: &str) -> Self {
        Self {
            key: Some(Key::of(&[key])),
            calls: Cell::new(0),
            namespace: Some(Key::of(&["namespace"])),
            faults: false,
        }
    }
}

impl Judges for Plugin {
    fn key_of(&self, _resource: &Served) -> Option<Key> {
        self.key
    }

    async fn namespace(&self, _name: Option<&str>) -> Option<Key> {
        self.namespace
    }

    async fn judge(&self, item: Item, _known: Option<&Seen>, judged_by: Option<Key>) -> Outcome {
        self.calls.set(self.calls.get() + 1);
        let verdict = match item.place.name.starts_with("bad") {
            _ if self.faults => Verdict::Error,
            true => Verdict::Fail,
            false => Verdict::Pass,
        };
        let findings = vec![finding("labels", verdict)];
        let identity = item.version.zip(self.namespace).zip(self.key);
        let seen = identity.map(|((version, namespace), key)| Seen {
            version,
            namespace,
            judged_by: judged_by.filter(|_| !self.faults),
            plugins: match self.faults {
                true => Vec::new(),
                false => vec![Kept::new(key, &findings)],
            },
        });
        let others = match &seen {
            Some(seen) if !seen.plugins.is_empty() => Vec::new(),
            _ => findings.clone(),
        };
        Outcome {
            judged: Judged {
                api_version: item.api_version.clone(),
                uid: item.uid.clone(),
                findings,
            },
            item,
            calls: 1,
            reused: 0,
            seen,
            others,
        }
    }
}

fn pods() -> Served {
    served("", "Pod", "pods", true)
}

fn replicas(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

async fn scan(pods: &Pods, plugin: &Plugin, memory: &mut Memory, share: &mut Share) -> Tally {
    let mut round = Round {
        objects: pods,
        judges: plugin,
        memory,
        share,
        pace: &mut Pace::new(1_000_000),
        page_size: 10,
        tally: Tally::default(),
    };
    round.run(&[self::pods()], true).await;
    round.tally
}

fn alone() -> Share {
    Share::new("a", replicas(&["a"]))
}

fn fails(memory: &Memory) -> usize {
    let all = memory.by_namespace();
    let all = all.values().flatten();
    let judged = all.flat_map(|(resource, one)| {
        let findings = one.judged(resource, |seen| {
            let kept = seen.plugins.iter();
            kept.flat_map(|kept| kept.findings("labels", "enforce"))
                .collect()
        });
        findings.findings
    });
    judged
        .filter(|finding| finding.verdict == Verdict::Fail)
        .count()
}

#[tokio::test]
async fn second_scan_reads_metadata_alone_and_calls_nothing() {
    let mut cluster = Pods::new(&["bank", "shop"], 12);
    let (plugin, mut memory) = (Plugin::new("k"), Memory::new(1 << 20));
    let first = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
    assert_eq!((first.objects, first.read, first.calls), (24, 24, 24));
    assert_eq!(
        cluster.requests(),
        [3, 2, 4],
        "two whole pages, and four objects of the last one"
    );
    assert_eq!(fails(&memory), 12);
    let second = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
    assert_eq!((second.objects, second.read, second.calls), (24, 0, 0));
    assert_eq!(cluster.requests(), [3, 0, 0]);
    assert_eq!(fails(&memory), 12);

    cluster.set("shop", "bad-000", 2);
    cluster
        .pods
        .remove(&("shop".to_owned(), "bad-002".to_owned()));
    let third = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
    assert_eq!((third.objects, third.read, third.calls), (23, 1, 1));
    assert_eq!(cluster.requests(), [3, 0, 1]);
    assert_eq!(fails(&memory), 11);

    for (changed, what) in [
        (Plugin::new("other"), "the plugin"),
        (
            Plugin {
                namespace: Some(Key::of(&["other"])),
                ..Plugin::new("other")
            },
            "the Namespaces",
        ),
    ] {
        let tally = scan(&cluster, &changed, &mut memory, &mut alone()).await;
        assert_eq!(tally.calls, 23, "{what}");
        let tally = scan(&cluster, &changed, &mut memory, &mut alone()).await;
        assert_eq!(tally.calls, 0, "{what}");
    }
}

#[tokio::test]
async fn what_is_not_known_for_sure_is_judged_again() {
    let cluster = Pods::new(&["shop"], 4);
    let unknown_namespace = Plugin {
        namespace: None,
        ..Plugin::new("k")
    };
    let without_key = Plugin {
        key: None,
        ..Plugin::new("k")
    };
    let faulty = Plugin {
        faults: true,
        ..Plugin::new("k")
    };
    for plugin in [unknown_namespace, without_key, faulty] {
        let mut memory = Memory::new(1 << 20);
        for _ in 0..2 {
            let tally = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
            assert_eq!(tally.calls, 4);
            let kept = memory.by_namespace()[&Some("shop".to_owned())].len();
            assert_eq!(kept, 4, "the results are there for the reports");
        }
    }
}

#[tokio::test]
async fn two_replicas_share_the_objects_and_hand_them_over() {
    let names: Vec<String> = (0..20).map(|index| format!("team-{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Pods::new(&names, 3);
    let both = replicas(&["a", "b"]);
    let plugin = Plugin::new("k");
    let (mut of_a, mut of_b) = (Memory::new(1 << 20), Memory::new(1 << 20));
    let a = scan(
        &cluster,
        &plugin,
        &mut of_a,
        &mut Share::new("a", both.clone()),
    )
    .await;
    let b = scan(&cluster, &plugin, &mut of_b, &mut Share::new("b", both)).await;
    assert_eq!(a.objects + b.objects, 60);
    assert!(
        a.objects > 9 && b.objects > 9,
        "{} and {}",
        a.objects,
        b.objects
    );
    let own = |memory: &Memory| {
        memory
            .by_namespace()
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    assert!(own(&of_a).is_disjoint(&own(&of_b)));
    // The other replica is gone: this one judges its objects, and none of its own again.
    let tally = scan(&cluster, &plugin, &mut of_a, &mut alone()).await;
    assert_eq!((tally.objects, tally.calls), (60, b.objects));
    // It comes back: what it judges is forgotten here.
    let both = replicas(&["a", "b"]);
    scan(&cluster, &plugin, &mut of_a, &mut Share::new("a", both)).await;
    assert!(own(&of_a).is_disjoint(&own(&of_b)));
}

#[tokio::test]
async fn memory_is_bounded_and_the_rest_is_counted() {
    let cluster = Pods::new(&["shop"], 100);
    let (plugin, mut memory) = (Plugin::new("k"), Memory::new(20_000));
    for _ in 0..2 {
        let tally = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
        assert!(memory.bytes() <= 20_000, "{}", memory.bytes());
        let counted = tally.counted[&Some("shop".to_owned())];
        let kept = memory.by_namespace()[&Some("shop".to_owned())].len();
        assert!(kept > 10, "{kept}");
        assert_eq!(counted.total() + kept as u64, 100);
        assert_eq!(counted.count(Verdict::Fail) + fails(&memory) as u64, 50);
    }
}

#[tokio::test]
async fn failures_keep_earlier_results_and_large_or_old_lists_go_on() {
    let mut cluster = Pods::new(&["shop"], 25);
    let (plugin, mut memory) = (Plugin::new("k"), Memory::new(1 << 20));
    cluster.is_large = true;
    cluster.expires.set(true);
    let tally = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
    assert!(tally.unread.is_empty(), "{:?}", tally.unread);
    assert_eq!((tally.objects, fails(&memory)), (25, 13));
    cluster.is_away = true;
    let tally = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
    assert_eq!(tally.unread.keys().collect::<Vec<_>>(), ["pods"]);
    assert_eq!(fails(&memory), 13);
    cluster.is_away = false;
    let tally = scan(&cluster, &plugin, &mut memory, &mut alone()).await;
    assert_eq!((tally.calls, fails(&memory)), (0, 13));
}
