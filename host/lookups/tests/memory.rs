//! The memory of tables: what they take, what they say that they take, and what the projection of a list takes meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::{Value, json};
use tollgate_config::lookup::{FieldPattern, Lookup, LookupResource};
use tollgate_lookups::{Projection, Table, Writer};

/// Counts the bytes that are allocated now, and the most that ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The load of a policy server that ran out of memory: policy-server's issue 716.
const INGRESSES: usize = 10_500;
const ROLE_BINDINGS: usize = 11_000;
/// Both tables together. A server has 150 MB for everything.
const MOST_BYTES: usize = 12 << 20;

fn ingress(number: usize) -> Value {
    let (namespace, host) = (
        number % 700,
        format!("app-{number}.team-{}.example.com", number % 700),
    );
    let path = json!({ "path": "/", "pathType": "Prefix",
        "backend": { "service": { "name": format!("app-{number}"), "port": { "number": 8080 } } } });
    json!({
        "metadata": {
            "name": format!("app-{number}"),
            "namespace": format!("team-{namespace}"),
            "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "resourceVersion": format!("{}", 1000 + number),
            "labels": { "app.kubernetes.io/name": format!("app-{}", number % 40), "app.kubernetes.io/managed-by": "Helm" },
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(1500) },
            "managedFields": [{ "manager": "helm", "fieldsV1": { "f:spec": { "f:rules": {} } } }],
        },
        "spec": {
            "ingressClassName": "nginx",
            "tls": [{ "hosts": [host], "secretName": format!("tls-{number}") }],
            "rules": [{ "host": host, "http": { "paths": [path] } }],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.10" }] } },
    })
}

fn role_binding(number: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("binding-{number}"),
            "namespace": format!("team-{}", number % 700),
            "uid": format!("00000000-0000-4000-9000-{number:012}"),
            "managedFields": [{ "manager": "kubectl", "fieldsV1": { "f:roleRef": {}, "f:subjects": {} } }],
        },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": (["view", "edit", "admin"][number % 3]) },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("team-{}", number % 700) }],
    })
}

fn pattern(text: &str) -> FieldPattern {
    FieldPattern::parse(text).expect("it is a pattern")
}

fn lookup(resource: &str, fields: &[&str], index: &str) -> Lookup {
    Lookup {
        fields: fields.iter().map(|field| pattern(field)).collect(),
        indexes: [(Box::from("key"), pattern(index))].into(),
        ..Lookup::names_of(LookupResource::new("example.com", "v1", resource))
    }
}

/// Writes a list, as kube-apiserver does.
fn list(count: usize, object: fn(usize) -> Value) -> Vec<u8> {
    let mut objects: Vec<Value> = (0..count).map(object).collect();
    let name = |object: &Value| {
        let text = |member: &str| object["metadata"][member].as_str().map(str::to_owned);
        (text("namespace"), text("name"))
    };
    objects.sort_by_key(name);
    serde_json::to_vec(&objects).expect("it is JSON")
}

/// Projects the elements of a list while it is read.
struct Fill<'f>(&'f Projection, &'f mut Writer);

impl<'de> Visitor<'de> for Fill<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(object) = elements.next_element_seed(self.0.seed())? {
            self.1.add(object);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Fill<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

fn fill(writer: &mut Writer, projection: &Projection, json: &[u8]) {
    writer.begin();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Fill(projection, writer)
        .deserialize(&mut deserializer)
        .expect("it is a list");
    writer.finish("1");
}

// One test: the counters are the process's.
#[test]
fn holds_thousands_of_objects_in_little_memory() {
    let loads = [
        (
            lookup(
                "ingresses",
                &[
                    "/metadata/labels",
                    "/spec/ingressClassName",
                    "/spec/rules/*/host",
                ],
                "/spec/rules/*/host",
            ),
            list(INGRESSES, ingress),
            INGRESSES,
        ),
        (
            lookup(
                "rolebindings",
                &["/roleRef/name", "/subjects"],
                "/subjects/*/name",
            ),
            list(ROLE_BINDINGS, role_binding),
            ROLE_BINDINGS,
        ),
    ];
    let mut kept = Vec::new();
    let mut total = 0;
    for (lookup, json, count) in loads {
        let projection = Projection::new(&lookup);
        let table = Arc::new(Table::new(&lookup));
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let mut writer = table.writer();
        fill(&mut writer, &projection, &json);
        let took = NOW.load(Ordering::Relaxed) - before;
        let most = MOST.load(Ordering::Relaxed) - before;
        let size = table.size();
        let name = &lookup.resource;
        println!(
            "{name}: {count} objects, {} bytes of JSON, {took} bytes taken, {most} at most, {} said",
            json.len(),
            size.bytes
        );
        assert_eq!(size.objects, count);
        assert!(
            size.bytes.abs_diff(took) < took / 5,
            "{name}: took {took}, said {}",
            size.bytes
        );
        assert!(most < took * 2, "{name}: {most} bytes at most, for {took}");
        // Another list shares the texts of the first.
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        fill(&mut writer, &projection, &json);
        let more = MOST.load(Ordering::Relaxed) - before;
        assert!(
            more < took,
            "{name}: {more} bytes more for a second list, {took} for the first"
        );
        assert!(NOW.load(Ordering::Relaxed).saturating_sub(before) < took / 20);
        total += took;
        kept.push((table, writer));
    }
    assert!(total < MOST_BYTES, "{total} bytes");
}
