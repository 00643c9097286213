//! Namespaces of requests: what plugins see of them, which of them selectors select, and what happens without them.

use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;
use tollgate_tests::{guests, wat};

/// Exit code: everything is allowed.
const ALLOWED: i32 = 0;
/// Exit code: something is denied.
const DENIED: i32 = 1;
/// Exit code: the command could not be carried out.
const ERROR: i32 = 2;

/// Warns with the namespace as the plugin sees it, and allows.
const SHOWS_NAMESPACE: &str = r#"
    (import "tollgate:admission/review@0.1.0" "get-json" (func $get_json (param i32 i32 i32 i32)))
    (import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
    (data (i32.const 1024) "no namespace")
    (func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
        (call $get_json (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 2048))
        (if (i32.load8_u (i32.const 2048))
            (then (call $warn (i32.load (i32.const 2052)) (i32.load (i32.const 2056))))
            (else (call $warn (i32.const 1024) (i32.const 12))))
        (i32.const 256))"#;

/// Reads three pointers at once, and traps unless the results are a text, nothing, and an object with two members.
const READS_MANY: &str = r#"
    (import "tollgate:admission/review@0.1.0" "get-many" (func $get_many (param i32 i32 i32 i32)))
    (data (i32.const 1024) "/kind/nothing/metadata")
    ;; The addresses and lengths of /kind, /nothing and /metadata.
    (data (i32.const 1056) "\00\04\00\00\05\00\00\00" "\05\04\00\00\08\00\00\00" "\0d\04\00\00\09\00\00\00")
    (func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
        (local $list i32)
        (call $get_many (i32.const 0) (i32.const 1056) (i32.const 3) (i32.const 2048))
        (local.set $list (i32.load (i32.const 2048)))
        (if (i32.or
                (i32.ne (i32.load (i32.const 2052)) (i32.const 3))
                (i32.or
                    ;; The text `Pod`: there, the case `text`, three bytes.
                    (i32.or
                        (i32.ne (i32.load8_u (local.get $list)) (i32.const 1))
                        (i32.or
                            (i32.ne (i32.load8_u offset=8 (local.get $list)) (i32.const 4))
                            (i32.ne (i32.load offset=20 (local.get $list)) (i32.const 3))))
                    (i32.or
                        ;; Nothing.
                        (i32.load8_u offset=24 (local.get $list))
                        ;; An object: there, the case `object`.
                        (i32.or
                            (i32.ne (i32.load8_u offset=48 (local.get $list)) (i32.const 1))
                            (i32.ne (i32.load8_u offset=56 (local.get $list)) (i32.const 6))))))
            (then (unreachable)))
        (i32.const 256))"#;

/// Reviews objects. The Namespaces are in a file, beside an object that is none.
fn review(configuration: &Configuration, namespaces: Option<&[Value]>, objects: &[Value]) -> Ran {
    let file = configuration.folder().join("namespaces.yaml");
    let config = configuration.write();
    let mut arguments = vec!["review", "--config", config.to_str().expect("UTF-8"), "-"];
    if let Some(namespaces) = namespaces {
        let mut items = namespaces.to_vec();
        items.push(pod("not-a-namespace"));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        std::fs::write(&file, list.to_string()).expect("the file can be written");
        arguments.extend(["--namespaces", file.to_str().expect("UTF-8")]);
    }
    let objects: String = objects.iter().map(|object| format!("{object}\n")).collect();
    cli::run_with(&mut cli::command(&arguments), &objects)
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]},
        "metadata": {"name": name, "labels": labels, "uid": format!("uid-of-{name}"), "managedFields": []},
    })
}

fn pod_in(namespace: &str, name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
}

fn everything() -> Value {
    let all = json!(["*"]);
    json!([{"operations": all, "apiGroups": all, "apiVersions": all, "resources": ["*/*"]}])
}

fn shows_namespace(configuration: &mut Configuration, more: Value) {
    let plugin = wat::plugin("validator", SHOWS_NAMESPACE);
    configuration.plugin_of("shows", &plugin, more);
}

#[test]
fn plugin_sees_metadata_of_namespace_and_nothing_more() {
    let mut configuration = Configuration::new();
    shows_namespace(&mut configuration, json!({}));
    let shop = namespace("shop", &json!({"team": "a"}));
    let created = namespace("new", &json!({"team": "b"}));
    let objects = [pod_in("shop", "web"), node(), created.clone()];
    review(&configuration, Some(&[shop, created]), &objects).assert(
        ALLOWED,
        &[
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"uid-of-shop","labels":{"team":"a"}}}"#,
            "no namespace",
            r#""name":"new","uid":"uid-of-new","labels":{"team":"b"}"#,
        ],
    );
}

#[test]
fn policy_in_rust_denies_by_labels_of_namespace() {
    let mut configuration = Configuration::new();
    let frozen = json!({"/metadata/labels/frozen": "yes", "/metadata/annotations/by": "ops"});
    let more = json!({"settings": {"forbid_namespace": frozen}});
    configuration.plugin("actor", &guests::build("actor"), more);
    let mut list = ["frozen", "half", "free"].map(|name| {
        let value = if name == "free" { "no" } else { "yes" };
        namespace(name, &json!({ "frozen": value }))
    });
    list[0]["metadata"]["annotations"] = json!({"by": "ops"});
    for (name, code) in [("frozen", DENIED), ("half", ALLOWED), ("free", ALLOWED)] {
        let ran = review(&configuration, Some(&list), &[pod_in(name, "web")]);
        ran.assert(code, &[]);
        let is_denied = ran
            .said()
            .contains("objects in this namespace are not wanted");
        assert_eq!(is_denied, code == DENIED, "{}", ran.said());
    }
    let unknown = review(&configuration, Some(&list), &[pod_in("young", "web")]);
    unknown.assert(DENIED, &["namespace-unavailable"]);
}

/// A Namespace and a Pod in it can be created at once. The Pod must never pass as one without a namespace.
#[test]
fn namespace_that_is_not_known_is_a_fault() {
    for (policy, code) in [("Fail", DENIED), ("Ignore", ALLOWED)] {
        let mut configuration = Configuration::new();
        shows_namespace(&mut configuration, json!({"failurePolicy": policy}));
        let pods = [pod_in("young", "web")];
        let list = [namespace("shop", &json!({}))];
        let effect = format!("namespace-unavailable, failurePolicy {policy}");
        let in_list = review(&configuration, Some(&list), &pods);
        in_list.assert(code, &[&effect]);
        let nowhere = review(&configuration, None, &pods);
        nowhere.assert(code, &[&effect]);
        if policy == "Fail" {
            let what = "namespace unavailable: the namespace `young` does not exist in ";
            in_list.assert(code, &[what, "namespaces.yaml"]);
            let what = "cannot look up the namespace `young`";
            nowhere.assert(code, &[what, "--namespaces FILE", "`cluster`"]);
        }
        // Neither needs a lookup.
        let others = [node(), namespace("new", &json!({}))];
        review(&configuration, None, &others).assert(ALLOWED, &["no namespace"]);
    }
}

#[test]
fn selector_and_condition_select_by_labels_of_namespace() {
    let mut configuration = Configuration::new();
    let labels = guests::build("required-labels");
    let selector = json!({"matchLabels": {"tier": "gold"}});
    let condition = json!([{"name": "b", "expression": "namespaceObject != null && namespaceObject.metadata.labels['team'] == 'b'"}]);
    for (name, key, value) in [
        ("by-selector", "namespaceSelector", selector),
        ("by-condition", "matchConditions", condition),
    ] {
        let matching = json!({"rules": everything(), key: value});
        let more = json!({"match": matching, "settings": {"labels": {name: null}}});
        configuration.plugin(name, &labels, more);
    }
    let list = [
        namespace("gold", &json!({"tier": "gold", "team": "a"})),
        namespace("lead", &json!({"tier": "lead", "team": "b"})),
        namespace("both", &json!({"tier": "gold", "team": "b"})),
        namespace("none", &json!({"tier": "lead", "team": "c"})),
    ];
    for (name, selected) in [
        ("gold", vec!["by-selector"]),
        ("lead", vec!["by-condition"]),
        ("both", vec!["by-selector", "by-condition"]),
        ("none", vec![]),
    ] {
        let ran = review(&configuration, Some(&list), &[pod_in(name, "web")]);
        let code = if selected.is_empty() { ALLOWED } else { DENIED };
        ran.assert(code, &[]);
        for plugin in ["by-selector", "by-condition"] {
            let is_named = ran.said().contains(plugin);
            assert_eq!(is_named, selected.contains(&plugin), "{name}: {plugin}");
        }
    }
    // A namespaceSelector never excludes a cluster-scoped object.
    let ran = review(&configuration, Some(&list), &[node()]);
    ran.assert(DENIED, &["by-selector"]);
    assert!(!ran.said().contains("by-condition"), "{}", ran.said());
    // A Namespace that is created is in itself.
    let created = namespace("new", &json!({"tier": "gold"}));
    let ran = review(&configuration, Some(&list), &[created]);
    ran.assert(DENIED, &["by-selector"]);
}

#[test]
fn several_values_are_read_at_once() {
    let mut configuration = Configuration::new();
    let plugin = wat::plugin("validator", READS_MANY);
    configuration.plugin_of("many", &plugin, json!({}));
    review(&configuration, None, &[pod("web")]).assert(ALLOWED, &[]);
}

#[test]
fn files_without_namespaces_are_refused() {
    let mut configuration = Configuration::new();
    shows_namespace(&mut configuration, json!({}));
    review(&configuration, Some(&[]), &[pod("web")])
        .assert(ERROR, &["namespaces.yaml: contains no Namespace"]);
    let number = namespace("shop", &json!({"frozen": true}));
    review(&configuration, Some(&[number]), &[pod("web")]).assert(
        ERROR,
        &["the label `frozen` of the Namespace `shop` is not a string"],
    );
}

#[test]
fn suite_lists_its_namespaces() {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let plugin = folder.path().join("shows.wasm");
    std::fs::write(&plugin, wat::plugin("validator", SHOWS_NAMESPACE)).expect("it can be written");
    let suite = folder.path().join("policy.test.yaml");
    let test = |cases: Value| {
        let content = json!({
            "plugins": [{"name": "shows", "source": "file:shows.wasm", "match": {"rules": everything()}}],
            "defaults": {"namespaces": [{"metadata": {"name": "shop", "labels": {"team": "a"}}}]},
            "cases": cases,
        });
        std::fs::write(&suite, content.to_string()).expect("the suite can be written");
        cli::run(cli::command(&["test"]).arg(&suite))
    };
    let shown = r#"shows: {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"team":"a"}}}"#;
    let case = |namespace: &str, expect: Value| json!({"name": namespace, "object": pod_in(namespace, "web"), "expect": expect});
    let allowed = json!({"verdict": "allow", "warnings": [shown]});
    test(json!([case("shop", allowed.clone())])).assert(ALLOWED, &[]);
    // The case replaces the list of the defaults.
    let mut other = case("shop", allowed);
    other["namespaces"] = json!([{"metadata": {"name": "bank"}}]);
    test(json!([other])).assert(
        DENIED,
        &["the namespace `shop` does not exist in `namespaces` of the case"],
    );
    let mut wrong = case("shop", json!("allow"));
    wrong["namespaces"] = json!([{"kind": "Pod", "metadata": {"name": "shop"}}]);
    test(json!([wrong])).assert(ERROR, &["namespaces: an object is of another kind"]);
    let mut wrong = case("shop", json!("allow"));
    wrong["namespaces"] = json!({"shop": {"team": "a"}});
    test(json!([wrong])).assert(
        ERROR,
        &["cases[0].namespaces", "expected a list of Namespaces"],
    );
}

/// A server without a source of namespaces does not guess.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_source_has_faults_and_counts_them() {
    let mut configuration = Configuration::new();
    shows_namespace(&mut configuration, json!({"failurePolicy": "Ignore"}));
    let matching =
        json!({"rules": everything(), "namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    let harmless = wat::plugin("validator", "");
    configuration.plugin_of("selects", &harmless, json!({"match": matching}));
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut review = Review::create(pod("web")).build();
    let checked = server.validate(&review).await;
    let checked = checked.checked(Endpoint::Validate, &review);
    assert!(!checked.allowed);
    let message = checked.status.as_ref().expect("a status")["message"].to_string();
    assert!(
        message.contains("selects") && message.contains("namespace-unavailable"),
        "{message}"
    );
    let failed_open = &checked.audit_annotations["shows.failed-open"];
    assert!(
        failed_open.contains("namespace-unavailable"),
        "{failed_open}"
    );
    review = Review::create(node()).build();
    review["request"]["namespace"] = Value::Null;
    let checked = server.validate(&review).await;
    let checked = checked.checked(Endpoint::Validate, &review);
    assert!(checked.allowed, "{checked:?}");
}
