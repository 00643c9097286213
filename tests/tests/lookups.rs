//! Lookups: what plugins see of other objects, and what they are told when they see nothing.

use std::path::Path;

use serde_json::{Value, json};
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::pod;
use tollgate_tests::wat;

/// Exit code: everything is allowed.
const ALLOWED: i32 = 0;
/// Exit code: something is denied.
const DENIED: i32 = 1;

/// Reads `limits` in the namespace `shop` by its name, and the objects of the team `blue` by the index. Warns with what it
/// was told. The lookup is called `maps`.
const SHOWS_OBJECTS: &str = r#"
    (import "tollgate:admission/cluster@0.1.0" "get"
        (func $get (param i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "tollgate:admission/cluster@0.1.0" "find"
        (func $find (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
    (data (i32.const 1024) "mapsshoplimitsteambluenone")
    (func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
        (call $get (i32.const 1024) (i32.const 4) (i32.const 1) (i32.const 1028) (i32.const 4) (i32.const 1032) (i32.const 6)
            (i32.const 2048))
        (if (i32.load8_u (i32.const 2048))
            ;; A failure: the text.
            (then (call $warn (i32.load (i32.const 2056)) (i32.load (i32.const 2060))))
            (else
                (if (i32.load8_u (i32.const 2052))
                    ;; An object: its fields.
                    (then (call $warn (i32.load (i32.const 2076)) (i32.load (i32.const 2080))))
                    (else (call $warn (i32.const 1046) (i32.const 4))))))
        (call $find (i32.const 1024) (i32.const 4) (i32.const 1038) (i32.const 4) (i32.const 1042) (i32.const 4)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2304))
        (if (i32.eqz (i32.load8_u (i32.const 2304)))
            (then
                (if (i32.load (i32.const 2312))
                    ;; The name of the first object of the page.
                    (then
                        (call $warn (i32.load offset=12 (i32.load (i32.const 2308)))
                            (i32.load offset=16 (i32.load (i32.const 2308))))))))
        (i32.const 256))"#;

/// Reads `limits` like the above, and then adds a label that does not depend on it.
const READS_AND_CHANGES: &str = r#"
    (import "tollgate:admission/cluster@0.1.0" "get"
        (func $get (param i32 i32 i32 i32 i32 i32 i32 i32)))
    (data (i32.const 1024) "mapsshoplimits")
    (data (i32.const 1100) "/metadata/annotations" "{\22a\22:\22b\22}")
    ;; json-patch (1) of one operation: add (0) at the path the JSON (0).
    (data (i32.const 1600) "\00\00\00\00" "\4c\04\00\00\15\00\00\00" "\00\00\00\00" "\61\04\00\00\09\00\00\00")
    (data (i32.const 1632) "\01\00\00\00" "\40\06\00\00" "\01\00\00\00")
    (func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
        (call $get (i32.const 1024) (i32.const 4) (i32.const 1) (i32.const 1028) (i32.const 4) (i32.const 1032) (i32.const 6)
            (i32.const 2048))
        (i32.const 1632))"#;

/// Asks for objects in `configure`.
const ASKS_EARLY: &str = r#"
    (import "tollgate:admission/cluster@0.1.0" "list"
        (func $list (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (data (i32.const 1024) "maps")
    (func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
        (call $list (i32.const 1024) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i32.const 2048))
        (i32.const 256))"#;

fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).expect("the file can be written");
}

/// Reviews a Pod, beside these objects of the cluster.
fn review(configuration: &Configuration, objects: Option<&[Value]>) -> Ran {
    let folder = configuration.folder();
    let (pods, dump) = (folder.join("pod.json"), folder.join("dump.json"));
    write(&pods, &pod("web"));
    let config = configuration.write();
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let mut arguments = vec![
        "review".to_owned(),
        "--config".to_owned(),
        text(&config),
        text(&pods),
    ];
    if let Some(objects) = objects {
        write(
            &dump,
            &json!({"apiVersion": "v1", "kind": "List", "items": objects}),
        );
        arguments.extend(["--objects".to_owned(), text(&dump)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cli::run(&mut cli::command(&arguments))
}

fn map(kind: &str, namespace: &str, name: &str, data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind, "data": {"max": data, "other": "left out"},
        "metadata": {"namespace": namespace, "name": name, "labels": {"team": "blue"}},
    })
}

fn lookups(resource: &str, more: Value) -> Value {
    let mut lookup = json!({
        "name": "maps",
        "resource": {"group": "", "version": "v1", "resource": resource},
        "fields": ["/data/max"],
        "indexes": {"team": "/metadata/labels/team"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        lookup[key] = value.clone();
    }
    json!([lookup])
}

fn configuration(world: &str, text: &str, more: Value) -> Configuration {
    let mut configuration = Configuration::new();
    configuration.plugin_of("maps", &wat::plugin(world, text), more);
    configuration
}

fn shows_objects(more: Value) -> Configuration {
    configuration("with-cluster", SHOWS_OBJECTS, more)
}

#[test]
fn plugin_sees_granted_fields_by_name_and_by_index() {
    let more = json!({"lookups": lookups("configmaps", json!({}))});
    let objects = [
        map("ConfigMap", "shop", "limits", "3"),
        map("ConfigMap", "bank", "first", "7"),
    ];
    let ran = review(&shows_objects(more.clone()), Some(&objects));
    ran.assert(ALLOWED, &[r#"{"data":{"max":"3"}}"#, "first"]);
    assert!(!ran.said().contains("left out"), "{}", ran.said());
    review(&shows_objects(more), Some(&objects[1..])).assert(ALLOWED, &["none", "first"]);
}

#[test]
fn plugin_is_told_why_it_sees_nothing() {
    let granted = json!({"lookups": lookups("configmaps", json!({}))});
    let without = review(&shows_objects(granted), None);
    without.assert(
        ALLOWED,
        &[
            "the lookup `maps` of configmaps: this host has no source of objects",
            "--objects FILE",
        ],
    );
    let elsewhere = json!({"lookups": lookups("configmaps", json!({"namespaces": ["bank"]}))});
    let objects = [map("ConfigMap", "shop", "limits", "3")];
    let ran = review(&shows_objects(elsewhere), Some(&objects));
    ran.assert(ALLOWED, &["it does not cover the namespace \"shop\""]);
    let empty = review(
        &shows_objects(json!({"capabilities": ["cluster"]})),
        Some(&objects),
    );
    empty.assert(
        ALLOWED,
        &["there is no lookup \"maps\"", "has no `lookups`"],
    );
}

#[test]
fn plugin_without_the_grant_is_not_loaded() {
    let ran = review(&shows_objects(json!({})), None);
    ran.assert(
        DENIED,
        &[
            "a capability that is not granted",
            "add `lookups` to its configuration",
        ],
    );
}

#[test]
fn plugin_that_asks_in_configure_is_not_loaded() {
    let more = json!({"lookups": lookups("configmaps", json!({}))});
    let ran = review(&configuration("with-cluster", ASKS_EARLY, more), Some(&[]));
    ran.assert(DENIED, &["configure: contract-violation"]);
}

#[test]
fn texts_are_withheld_after_secrets_were_read() {
    let secrets = |more: Value| json!({"lookups": lookups("secrets", more)});
    let objects = [map("Secret", "shop", "limits", "aHVzaA==")];
    let ran = review(
        &shows_objects(secrets(json!({"secrets": true}))),
        Some(&objects),
    );
    ran.assert(
        ALLOWED,
        &["[withheld: the plugin has read the content of a Secret]"],
    );
    assert!(!ran.said().contains("aHVzaA=="), "{}", ran.said());
    let ran = review(&shows_objects(secrets(json!({}))), Some(&objects));
    assert_eq!(ran.code, Some(2), "{}", ran.said());
    assert!(
        ran.said()
            .contains("the lookup reads Secrets, expected true"),
        "{}",
        ran.said()
    );
}

/// Whoever may read the Pod may not read the Secret. So nothing that may be made of the Secret goes into the Pod.
#[test]
fn mutator_that_has_read_secrets_changes_nothing() {
    let reads = |resource: &str, more: Value| {
        let more = json!({"lookups": lookups(resource, more)});
        configuration("mutator-with-cluster", READS_AND_CHANGES, more)
    };
    let objects = [
        map("Secret", "shop", "limits", "aHVzaA=="),
        map("ConfigMap", "shop", "limits", "3"),
    ];
    review(&reads("configmaps", json!({})), Some(&objects)).assert(ALLOWED, &["annotations"]);
    review(&reads("secrets", json!({"secrets": true})), Some(&objects))
        .assert(DENIED, &["bad-patch"]);
}

#[test]
fn objects_cost_fuel_by_their_size() {
    let objects = |bytes: usize| [map("ConfigMap", "shop", "limits", &"x".repeat(bytes))];
    let more = json!({"lookups": lookups("configmaps", json!({})), "limits": {"fuel": "20k"}});
    let configuration = shows_objects(more);
    review(&configuration, Some(&objects(10))).assert(ALLOWED, &["limits"]);
    review(&configuration, Some(&objects(100_000))).assert(DENIED, &["out-of-fuel"]);
}

#[test]
fn cases_of_suites_have_their_own_objects() {
    let more = json!({"lookups": lookups("configmaps", json!({}))});
    let configuration = shows_objects(more);
    let config = configuration.write();
    let case = |name: &str, cluster: Value, warnings: Value| {
        let expect = json!({"verdict": "allow", "warnings": warnings});
        json!({"name": name, "object": pod("web"), "cluster": cluster, "expect": expect})
    };
    let file = configuration.folder().join("objects.json");
    write(&file, &map("ConfigMap", "shop", "limits", "9"));
    let three = map("ConfigMap", "shop", "limits", "3");
    let mut unknown = case(
        "unknown",
        json!([]),
        json!(["the case has no objects of the cluster"]),
    );
    if let Some(case) = unknown.as_object_mut() {
        case.remove("cluster");
    }
    let suite = json!({
        "config": config.file_name().and_then(|name| name.to_str()),
        "cases": [
            case("three", json!([three]), json!([r#"{"data":{"max":"3"}}"#, "limits"])),
            case("nine", json!("objects.json"), json!([r#"{"data":{"max":"9"}}"#, "limits"])),
            case("none", json!([]), json!(["none"])),
            unknown,
        ],
    });
    let path = configuration.folder().join("lookups.test.yaml");
    write(&path, &suite);
    let mut command = cli::command(&["test"]);
    cli::run(command.arg(&path)).assert(ALLOWED, &["4 passed"]);
}
