//! `data.inventory` from the cluster.

use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure};

use crate::Gatekeeper;
use crate::inventory::adapted;

/// Gatekeeper's policy in short: no two Ingresses have the same host.
const UNIQUE: &str = r#"
package unique
identical(obj, review) {
  obj.metadata.namespace == review.object.metadata.namespace
  obj.metadata.name == review.object.metadata.name
}
violation[{"msg": msg}] {
  host := input.review.object.spec.rules[_].host
  other := data.inventory.namespace[_][version]["Ingress"][name]
  startswith(version, "networking.k8s.io/")
  other.spec.rules[_].host == host
  not identical(other, input.review)
  msg := sprintf("%v belongs to %v/%v of the team %v", [
    host, other.metadata.namespace, name, object.get(other.metadata, ["labels", "team"], "?")])
}
"#;
/// A claim names a storage class that there is.
const CLASSES: &str = r#"
package classes
import data.inventory
violation[{"msg": msg}] {
  name := input.review.object.spec.storageClassName
  not inventory.cluster["storage.k8s.io/v1"]["StorageClass"][name]
  msg := sprintf("no class %v; data.inventory has: %v", [name, concat(",", [n | inventory.cluster[_][_][n]])])
}
"#;

fn settings(rego: &str, from: &Json) -> Json {
    json!({
        "template": {
            "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate",
            "metadata": { "name": "it" },
            "spec": {
                "crd": { "spec": { "names": { "kind": "It" } } },
                "targets": [{ "target": "admission.k8s.gatekeeper.sh", "rego": rego }],
            },
        },
        "constraints": [{
            "apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "It",
            "metadata": { "name": "all" }, "spec": {},
        }],
        "inventoryFrom": from,
    })
}

fn ingress(namespace: &str, name: &str, host: &str) -> Json {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "namespace": namespace, "name": name, "labels": { "team": "blue" } },
        "spec": { "rules": [{ "host": host }], "ingressClassName": "left-out" },
    })
}

fn from(more: &Json) -> Json {
    let mut source =
        json!({ "lookup": "ingresses", "apiVersion": "networking.k8s.io/v1", "kind": "Ingress" });
    if !more.is_null() {
        source["only"] = more.clone();
    }
    json!([source])
}

fn lookup() -> Json {
    json!({
        "name": "ingresses", "fields": ["/spec/rules/*/host", "/metadata/labels"],
        "indexes": { "host": "/spec/rules/*/host" },
    })
}

/// The message of a denial about an Ingress beside others, or none.
fn denied(only: &Json, object: Json, others: &[Json]) -> Option<String> {
    let review = TestReview::create(object)
        .settings(settings(UNIQUE, &from(only)))
        .lookup(lookup(), others.to_vec());
    let outcome = review.validate::<Gatekeeper>();
    (!outcome.is_allowed()).then(|| outcome.denial().message.clone())
}

#[test]
fn rego_reads_objects_of_a_lookup() {
    let others = [
        ingress("bank", "web", "a.example"),
        ingress("shop", "own", "b.example"),
    ];
    let same_key = json!({ "sameKey": { "index": "host", "at": "/spec/rules/*/host" } });
    for only in [Json::Null, same_key] {
        let of = |object: Json| denied(&only, object, &others);
        let taken = of(ingress("shop", "new", "a.example"));
        let expected = "[all] a.example belongs to bank/web of the team blue";
        assert_eq!(taken.as_deref(), Some(expected), "{only}");
        assert_eq!(of(ingress("shop", "new", "c.example")), None);
        assert_eq!(
            of(ingress("shop", "own", "b.example")),
            None,
            "the object itself"
        );
    }
    let same_namespace = json!({ "sameNamespace": {} });
    let of = |host: &str| denied(&same_namespace, ingress("shop", "new", host), &others);
    assert_eq!(of("a.example"), None);
    assert!(of("b.example").is_some());
}

#[test]
fn cluster_scoped_objects_and_an_imported_inventory() {
    let from = json!([
        { "lookup": "storageclasses", "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass" },
    ]);
    let claim = |class: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "namespace": "shop", "name": "data" }, "spec": { "storageClassName": class },
        })
    };
    let fast = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
    });
    let review = |class: &str| {
        TestReview::create(claim(class))
            .settings(settings(CLASSES, &from))
            .lookup(json!({ "name": "storageclasses" }), vec![fast.clone()])
    };
    assert!(review("fast").validate::<Gatekeeper>().is_allowed());
    let outcome = review("slow").validate::<Gatekeeper>();
    assert_eq!(
        outcome.denial().message,
        "[all] no class slow; data.inventory has: fast"
    );
}

#[test]
#[should_panic(expected = "ingresses")]
fn lookup_without_an_answer_is_a_fault() {
    let review = TestReview::create(ingress("shop", "new", "a.example"))
        .settings(settings(UNIQUE, &from(&Json::Null)))
        .not_synchronised("ingresses");
    let _ = review.validate::<Gatekeeper>();
}

#[test]
fn settings_that_would_have_no_effect_are_refused() {
    let refused = |settings: Json| configure::<Gatekeeper>(settings).err().unwrap().to_string();
    let rego = "package it\nviolation[{\"msg\": \"no\"}] { input.review.object.x }";
    let unread = refused(settings(rego, &from(&Json::Null)));
    assert!(
        unread.contains("the Rego does not read data.inventory"),
        "{unread}"
    );
    let mut both = settings(UNIQUE, &from(&Json::Null));
    both["inventory"] = json!([ingress("shop", "web", "a.example")]);
    assert!(refused(both).contains("cannot be used with `inventory`"));
    let unknown = refused(settings(UNIQUE, &from(&json!({ "sameName": {} }))));
    assert!(unknown.contains("sameName"), "{unknown}");
}

#[test]
fn rewrites_code_and_no_text() {
    for (text, expected) in [
        (
            "x := data.inventory.cluster[_]",
            "x := input.tollgate_inventory.cluster[_]",
        ),
        (
            "import data.inventory",
            "import input.tollgate_inventory as inventory",
        ),
        (
            "import data.inventory as all",
            "import input.tollgate_inventory as all",
        ),
        (
            "msg := \"data.inventory \\\" data.inventory\"",
            "msg := \"data.inventory \\\" data.inventory\"",
        ),
        (
            "# data.inventory\ndata.inventory[x]",
            "# data.inventory\ninput.tollgate_inventory[x]",
        ),
        ("data.inventory_of_mine", "data.inventory_of_mine"),
        ("my.data.inventory", "my.data.inventory"),
        ("`data.inventory`", "`data.inventory`"),
    ] {
        assert_eq!(adapted(text), expected);
    }
}
