//! `data.inventory` from the cluster.

use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure};

use crate::Gatekeeper;
use crate::inventory::Rewritten;

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
fn references_to_the_inventory_are_rewritten_on_their_lines() {
    for (text, expected) in [
        (
            "v { x := data.inventory.cluster[_] }",
            "v { x := input.tollgate_inventory.cluster[_] }",
        ),
        (
            "v { x := [y | y := data.inventory]; data[\"inventory\"].cluster[x] }",
            "v { x := [y | y := input.tollgate_inventory]; input.tollgate_inventory.cluster[x] }",
        ),
        (
            "v { not data[`inventory`].cluster }",
            "v { not input.tollgate_inventory.cluster }",
        ),
        (
            "import data.inventory",
            "import input.tollgate_inventory as inventory",
        ),
        (
            "import data[\"inventory\"]",
            "import input.tollgate_inventory as inventory",
        ),
        (
            "import data.inventory as all",
            "import input.tollgate_inventory as all",
        ),
        (
            "import data.inventory.cluster as c",
            "import input.tollgate_inventory.cluster as c",
        ),
        (
            "import data.inventory.cluster",
            "import input.tollgate_inventory.cluster",
        ),
        (
            "v { f with data.inventory as {} }",
            "v { f with input.tollgate_inventory as {} }",
        ),
        (
            "# data.inventory\nv { data.inventory[x] }",
            "# data.inventory\nv { input.tollgate_inventory[x] }",
        ),
    ] {
        let module = |text: &str| format!("package p\n{text}");
        let rewritten = Rewritten::of(module(text), false);
        assert_eq!(rewritten.text, module(expected));
        assert!(rewritten.reads && rewritten.problems.is_empty(), "{text}");
    }
    for text in [
        "v { msg := \"data.inventory \\\" data.inventory\" }",
        "v { data.inventory_of_mine; my.data.inventory; `data.inventory` }",
        "import data.lib.inventory\nv { inventory.cluster with input.review as 1 }",
        "no rego",
    ] {
        let text = format!("package p\n{text}");
        let rewritten = Rewritten::of(text.clone(), false);
        assert_eq!(rewritten.text, text);
        assert!(!rewritten.reads && rewritten.problems.is_empty(), "{text}");
    }
}

#[test]
fn what_would_not_see_the_inventory_is_refused() {
    for (line, expected) in [
        (
            "x { y := \"inventory\"; data[y].cluster }",
            "/template/spec/targets/0/rego: line 3, column 23: `data` with a computed name is not supported beside \
             inventoryFrom: write data.inventory",
        ),
        (
            "x { y := data; y.inventory }",
            "line 3, column 10: `data` alone is not supported",
        ),
        (
            "x { input.a with input as {} }",
            "line 3, column 18: `with input as` would hide the inventory of inventoryFrom: replace a part of the input, such \
             as `with input.review as`",
        ),
        ("import data as d", "line 3, column 8: `data` alone"),
        (
            "import input as i\nx { input.a with i as {} }",
            "line 4, column 18: `with input as`",
        ),
    ] {
        let rego = format!(
            "package it\nimport data.inventory\n{line}\nviolation[{{\"msg\": \"no\"}}] {{ inventory.cluster }}"
        );
        let refused = configure::<Gatekeeper>(settings(&rego, &from(&Json::Null)));
        let refused = refused
            .err()
            .unwrap_or_else(|| panic!("{line}"))
            .to_string();
        assert!(refused.contains(expected), "{refused}");
        // Objects of the settings are in `data`, where all of these find them.
        let mut fixed = settings(&rego, &json!([]));
        fixed["inventory"] = json!([ingress("shop", "web", "a.example")]);
        assert!(configure::<Gatekeeper>(fixed).is_ok(), "{line}");
    }
}

#[test]
fn inventory_in_brackets_and_imports_of_its_parts_are_read() {
    let rego = r#"
package it
import data.inventory.namespace as all
violation[{"msg": name}] { all.shop["networking.k8s.io/v1"].Ingress[name] }
violation[{"msg": name}] { data["inventory"]["namespace"].bank["networking.k8s.io/v1"].Ingress[name] }
"#;
    let others = [
        ingress("shop", "one", "a.example"),
        ingress("bank", "two", "b.example"),
    ];
    let review = TestReview::create(ingress("shop", "new", "a.example"))
        .settings(settings(rego, &from(&Json::Null)))
        .lookup(lookup(), others.to_vec());
    let outcome = review.validate::<Gatekeeper>();
    let causes = &outcome.denial().causes;
    let messages: Vec<&str> = causes.iter().map(|cause| &*cause.message).collect();
    assert_eq!(messages, ["one", "two"]);
}

/// Another object with the same value, whatever it is.
const SAME_VALUE: &str = r#"
package same
violation[{"msg": name}] {
  key := input.review.object.spec.key
  other := data.inventory.namespace[_]["networking.k8s.io/v1"].Ingress[name]
  other.spec.key == key
  name != input.review.object.metadata.name
}
"#;

fn keyed(name: &str, key: &Json) -> Json {
    let mut object = ingress("shop", name, "a.example");
    object["spec"]["key"] = key.clone();
    object
}

fn same_value() -> (Json, Json) {
    let only = json!({ "sameKey": { "index": "key", "at": "/spec/key" } });
    let lookup =
        json!({ "name": "ingresses", "fields": ["/spec"], "indexes": { "key": "/spec/key" } });
    (settings(SAME_VALUE, &from(&only)), lookup)
}

#[test]
fn keys_of_every_type_find_the_objects_with_the_same_value() {
    let (settings, lookup) = same_value();
    for key in [
        json!("text"),
        json!(""),
        json!(8080),
        json!(-1),
        json!(2.5),
        json!(1e300),
        json!(true),
        json!(null),
        json!({ "app": "web" }),
        json!(["a", "b"]),
        json!([]),
    ] {
        let others = [keyed("same", &key), keyed("other", &json!("another"))];
        let review = TestReview::create(keyed("new", &key))
            .settings(settings.clone())
            .lookup(lookup.clone(), others.to_vec());
        let outcome = review.validate::<Gatekeeper>();
        assert!(!outcome.is_allowed(), "{key}");
        assert_eq!(outcome.denial().message, "[all] same", "{key}");
    }
    // Without the key, the rule cannot hold.
    let review = TestReview::create(ingress("shop", "new", "a.example"))
        .settings(settings)
        .lookup(lookup, vec![keyed("same", &json!("a"))]);
    assert!(review.validate::<Gatekeeper>().is_allowed());
}

#[test]
fn keys_of_a_deletion_are_those_of_the_object_that_goes() {
    let (settings, lookup) = same_value();
    for key in [json!("text"), json!({ "app": "web" })] {
        let review = TestReview::delete(keyed("old", &key))
            .settings(settings.clone())
            .lookup(lookup.clone(), vec![keyed("same", &key)]);
        let outcome = review.validate::<Gatekeeper>();
        assert!(!outcome.is_allowed(), "{key}");
        assert_eq!(outcome.denial().message, "[all] same");
    }
}
