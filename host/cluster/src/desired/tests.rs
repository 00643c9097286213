//! Tests the permissions of plugins and exceptions of namespaces, and that they have no effect beyond their
//! namespaces.

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;

use super::*;
use crate::kinds::Kind;
use crate::offline::merge_objects;

const CLUSTER: &str = "
cluster: { enabled: true, namespace: tollgate-system }
plugins:
  - name: open
    source: file:one.wasm
    allowNamespaceExceptions: true
    match: { rules: [{ operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'] }] }
  - name: closed
    source: file:two.wasm
    match: { rules: [{ operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'] }] }
";
const TENANCY: &str = "
tenancy:
  registries: [registry.example.com/tenants]
  failurePolicies: [Ignore]
  maxPluginsPerNamespace: 2
";

fn file(more: &str) -> Config {
    let text = format!("{CLUSTER}{TENANCY}{more}");
    Config::parse(&text, Path::new("/etc/tollgate")).unwrap()
}

fn object(kind: Kind, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "tollgate.dev/v1alpha1", "kind": kind.name(),
        "metadata": { "name": name, "namespace": namespace, "creationTimestamp": format!("2026-01-01T00:00:0{}Z", name.len()) },
        "spec": spec,
    })
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({
        "source": "oci://registry.example.com/tenants/guard:1",
        "match": { "rules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
        }] },
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn planned(file: &Config, objects: &[Value]) -> Plan {
    merge_objects(file, Path::new("/etc/tollgate"), objects)
}

fn request(namespace: &str, group: &str, resource: &str) -> AdmissionRequest {
    let kind = if resource == "namespaces" {
        "Namespace"
    } else {
        "Any"
    };
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web", "namespace": namespace,
            "kind": { "group": group, "version": "v1", "kind": kind },
            "resource": { "group": group, "version": "v1", "resource": resource },
            "userInfo": { "username": "eve", "groups": ["everybody"] },
            "object": { "metadata": { "name": "web" } },
        }
    });
    decode(review.to_string().as_bytes(), 32).unwrap().request
}

/// The plugins that are called for a request.
fn called<'p>(plan: &'p Plan, request: &AdmissionRequest) -> Vec<&'p str> {
    let plugins = plan.config.plugins.iter().filter(|plugin| {
        let now = std::time::SystemTime::now();
        let mut exceptions = plugin.exceptions.iter();
        let matching = plugin.matching.as_ref().unwrap();
        plugin.sees(request)
            && matching.matches(request).is_some()
            && !exceptions.any(|exception| exception.covers(request) && exception.is_active(now))
    });
    plugins.map(|plugin| plugin.name.as_str()).collect()
}

#[test]
fn attempts_of_a_namespace_are_answered() {
    let rule = |resource: &str, scope: &str| {
        json!({ "match": { "rules": [{
            "operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": [resource], "scope": scope,
        }] } })
    };
    let secret = json!({ "settingsFrom": [{ "secretKeyRef": { "name": "token", "key": "a" } }] });
    let foreign = json!({ "settingsFrom": [{ "secretKeyRef": { "name": "token", "key": "a", "namespace": "team-b" } }] });
    let cases = [
        ("a plain plugin", json!({}), ""),
        (
            "other namespace",
            json!({ "match": { "rules": spec(&json!({}))["match"]["rules"], "namespaces": ["team-b"] } }),
            "NotAllowed: spec.match.namespaces",
        ),
        (
            "cluster-scoped kind",
            rule("namespaces", "*"),
            "NotAllowed: spec.match.rules[0].resources",
        ),
        (
            "cluster scope",
            rule("*", "Cluster"),
            "NotAllowed: spec.match.rules[0].scope",
        ),
        (
            "capability not allowed",
            json!({ "capabilities": ["clock"] }),
            "NotAllowed: spec.capabilities",
        ),
        (
            "failurePolicy not allowed",
            json!({ "failurePolicy": "Fail" }),
            "NotAllowed: spec.failurePolicy",
        ),
        (
            "fuel not allowed",
            json!({ "limits": { "fuel": "1G" } }),
            "NotAllowed: spec.limits.fuel",
        ),
        (
            "own signers",
            json!({ "signatures": { "keys": [] } }),
            "NotAllowed: spec.signatures",
        ),
        (
            "file of the host",
            json!({ "source": "file:/etc/guard.wasm" }),
            "NotAllowed: spec.source",
        ),
        (
            "settingsFrom",
            secret,
            "NotAllowed: spec.settingsFrom: Secrets are not in tenancy.settingsFrom",
        ),
        (
            "settingsFrom a foreign Secret",
            foreign,
            "Invalid: spec.settingsFrom[0].secretKeyRef.namespace: unknown key",
        ),
        (
            "no rules",
            json!({ "match": Value::Null }),
            "Invalid: spec.match",
        ),
    ];
    for (attempt, more, expected) in cases {
        let objects = [object(Kind::TenantPlugin, "team-a", "guard", &spec(&more))];
        let plan = planned(&file(""), &objects);
        let verdict = &plan.plugins["team-a/guard"];
        let answer = verdict.refusal.as_ref().map_or(String::new(), |refusal| {
            let line = refusal
                .message
                .lines()
                .find(|line| line.contains("spec."))
                .unwrap_or_default();
            format!("{}: {}", refusal.reason, line.trim())
        });
        assert!(answer.starts_with(expected), "{attempt}: {answer}");
        assert_eq!(
            answer.is_empty(),
            expected.is_empty(),
            "{attempt}: {answer}"
        );
        let names = plan
            .config
            .plugins
            .iter()
            .map(|plugin| plugin.name.as_str());
        assert_eq!(
            names.count(),
            2 + usize::from(expected.is_empty()),
            "{attempt}"
        );
    }
}

#[test]
fn excluded_namespaces_have_no_plugins() {
    for namespace in ["kube-system", "tollgate-system"] {
        let objects = [object(
            Kind::TenantPlugin,
            namespace,
            "guard",
            &spec(&json!({})),
        )];
        let plan = planned(&file(""), &objects);
        let refusal = plan.plugins[&format!("{namespace}/guard")]
            .refusal
            .as_ref()
            .unwrap();
        assert_eq!(refusal.reason, "NotAllowed");
    }
}

#[test]
fn without_tenancy_nothing_of_a_namespace_counts() {
    let objects = [
        object(Kind::TenantPlugin, "team-a", "guard", &spec(&json!({}))),
        object(
            Kind::Exception,
            "team-a",
            "all",
            &json!({ "plugins": ["open"], "users": ["eve"], "reason": "why" }),
        ),
    ];
    let file = Config::parse(CLUSTER, Path::new("/etc/tollgate")).unwrap();
    let plan = planned(&file, &objects);
    let refusal = plan.plugins["team-a/guard"].refusal.as_ref().unwrap();
    assert_eq!(refusal.reason, "NoTenancy");
    assert!(plan.exceptions.is_empty());
    assert_eq!(plan.config.plugins, file.plugins);
}

#[test]
fn oldest_plugins_count() {
    // The length of a name is its age.
    let objects = ["ccc", "a", "bb"]
        .map(|name| object(Kind::TenantPlugin, "team-a", name, &spec(&json!({}))));
    let plan = planned(&file(""), &objects);
    let reason = |name: &str| {
        let verdict = &plan.plugins[&format!("team-a/{name}")];
        verdict.refusal.as_ref().map(|refusal| refusal.reason)
    };
    assert_eq!(
        [reason("a"), reason("bb"), reason("ccc")],
        [None, None, Some("TooMany")]
    );
    let plan = planned(&file("  maxPlugins: 1\n"), &objects);
    assert_eq!(plan.config.plugins.len(), 3);
    assert_eq!(plan.config.plugins[2].name.as_str(), "team-a/a");
}

#[test]
fn exceptions_of_a_namespace_count_where_the_plugin_allows_them() {
    let exception = |plugin: &str, more: Value| {
        let mut exception = json!({ "plugins": [plugin], "users": ["eve"], "reason": "why" });
        exception
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        exception
    };
    let cases = [
        ("a", exception("guard", json!({})), None),
        ("b", exception("open", json!({})), None),
        ("c", exception("closed", json!({})), Some("NotAllowed")),
        (
            "d",
            exception("open", json!({ "namespaces": ["team-b"] })),
            Some("NotAllowed"),
        ),
        ("e", exception("nobody", json!({})), Some("PluginUnknown")),
        (
            "f",
            exception("open", json!({ "expires": "2020-01-01" })),
            Some("Expired"),
        ),
    ];
    for (name, exception, expected) in &cases {
        let objects = [
            object(Kind::TenantPlugin, "team-a", "guard", &spec(&json!({}))),
            object(Kind::Exception, "team-a", name, exception),
        ];
        let plan = planned(&file(""), &objects);
        let refusal = plan.exceptions[&format!("team-a/{name}")].refusal.as_ref();
        assert_eq!(refusal.map(|refusal| refusal.reason), *expected, "{name}");
        let own = called(&plan, &request("team-a", "", "pods"));
        let without: &[&str] = match *name {
            "a" => &["open", "closed"],
            "b" => &["closed", "team-a/guard"],
            _ => &["open", "closed", "team-a/guard"],
        };
        assert_eq!(own, without, "{name}");
        for (namespace, resource) in [("team-b", "pods"), ("team-a", "namespaces"), ("", "nodes")] {
            let all = called(&plan, &request(namespace, "", resource));
            assert_eq!(all, ["open", "closed"], "{name} {namespace} {resource}");
        }
        // A restart without kube-apiserver knows neither the plugin nor the exception.
        let document = plan.config.document(plan.config.plugins.iter());
        let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
        assert_eq!(again.plugins, file("").plugins);
    }
}

#[test]
fn settings_come_from_objects_of_the_namespace_that_are_allowed() {
    let spec =
        spec(&json!({ "settingsFrom": [{ "configMapKeyRef": { "name": "a", "key": "x" } }] }));
    let config_map = |namespace: &str, text: &str| json!({ "kind": "ConfigMap", "metadata": { "name": "a", "namespace": namespace }, "data": { "x": text } });
    let objects = [
        object(Kind::TenantPlugin, "team-a", "guard", &spec),
        config_map("tollgate-system", "from: installation"),
        config_map("team-a", "from: own"),
        config_map("team-b", "from: other"),
    ];
    let allowed = file("  settingsFrom: [ConfigMap]\n");
    let plan = planned(&allowed, &objects);
    assert_eq!(plan.plugins["team-a/guard"].refusal, None);
    assert_eq!(plan.config.plugins[2].settings, json!({ "from": "own" }));
    let plan = planned(&allowed, &objects[..2]);
    let refusal = plan.plugins["team-a/guard"].refusal.as_ref().unwrap();
    assert_eq!(refusal.reason, "SettingsMissing");
    assert!(
        refusal
            .message
            .contains("ConfigMap team-a/a does not exist in team-a"),
        "{}",
        refusal.message
    );
}

/// A world with one plugin of a namespace.
fn world(spec: Value) -> World {
    let resource = Resource {
        name: "guard".to_owned(),
        namespace: Some("team-a".to_owned()),
        uid: "1".to_owned(),
        generation: 1,
        version: String::new(),
        asked: None,
        created: String::new(),
        spec,
        status: Value::Null,
    };
    World {
        plugins: Some(BTreeMap::new()),
        tenants: Some([("team-a/guard".to_owned(), resource)].into()),
        exceptions: Some(BTreeMap::new()),
        tenancy: Some(BTreeSet::new()),
        ..World::default()
    }
}

#[test]
fn mistake_keeps_the_last_valid_version_and_a_stricter_tenancy_does_not() {
    let folder = Path::new("/etc/tollgate");
    let mut kept = Kept::new();
    let names = |plan: &Plan| plan.config.plugins.len();
    assert_eq!(
        names(&plan(
            &file(""),
            folder,
            &world(spec(&json!({}))),
            &mut kept
        )),
        3
    );
    let mistaken = world(spec(&json!({ "mode": "deny" })));
    let after = plan(&file(""), folder, &mistaken, &mut kept);
    assert!(after.plugins["team-a/guard"].is_kept);
    assert_eq!(names(&after), 3);
    let forbidden = world(spec(&json!({ "capabilities": ["clock"] })));
    assert_eq!(names(&plan(&file(""), folder, &forbidden, &mut kept)), 3);
    let stricter = file("  modes: [warn]\n");
    let after = plan(&stricter, folder, &mistaken, &mut kept);
    assert!(!after.plugins["team-a/guard"].is_kept);
    assert_eq!(names(&after), 2);
}

fn pick(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

/// Specs with everything that could reach beyond a namespace.
fn any_spec() -> impl Strategy<Value = Value> {
    let list = |words: &'static [&'static str]| prop::collection::vec(pick(words), 1..2);
    let rule = (
        list(&["*", "CREATE", "UPDATE", "DELETE", "CONNECT"]),
        list(&["*", "", "apps", "example.com"]),
        list(&["*", "v1", "v2"]),
        list(&[
            "*",
            "*/*",
            "pods",
            "namespaces",
            "namespaces/*",
            "nodes",
            "widgets",
            "*/status",
        ]),
        prop::option::of(pick(&["*", "Cluster", "Namespaced"])),
    );
    let rule = rule.prop_map(|(operations, groups, versions, resources, scope)| {
        let mut rule = json!({
            "operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources,
        });
        if let Some(scope) = scope {
            rule["scope"] = json!(scope);
        }
        rule
    });
    let namespaces = || {
        let names = pick(&["team-a", "team-b", "kube-system"]);
        prop::option::of(prop::collection::vec(names, 1..3))
    };
    let more = prop::sample::select(vec![
        json!({}),
        json!({ "mode": "audit" }),
        json!({ "order": -5 }),
        json!({ "name": "team-b/guard" }),
        json!({ "enabled": true, "namespace": "team-b" }),
        json!({ "allowNamespaceExceptions": true }),
        json!({ "exceptions": [{ "users": ["eve"], "reason": "why", "until": "never" }] }),
    ]);
    (
        prop::collection::vec(rule, 1..3),
        namespaces(),
        namespaces(),
        more,
    )
        .prop_map(|(rules, namespaces, excluded, more)| {
            let mut matching = json!({ "rules": rules });
            if let Some(namespaces) = namespaces {
                matching["namespaces"] = json!(namespaces);
            }
            if let Some(excluded) = excluded {
                matching["excludeNamespaces"] = json!(excluded);
            }
            let mut all = more;
            all["match"] = matching;
            spec(&all)
        })
}

proptest! {
    /// Whatever the spec of a plugin of a namespace is, the host calls it only for requests of its namespace, and the
    /// plugins of the cluster give the same results there.
    #[test]
    fn nothing_reaches_beyond_a_namespace(
        spec in any_spec(),
        excepted in prop::sample::select(vec!["open", "closed", "guard"]),
        lists in prop::sample::select(vec![
            json!({ "namespaces": ["team-a"] }), json!({ "namespaces": ["team-b"] }), json!({ "names": ["web"] }),
            json!({ "users": ["eve"] }), json!({ "groups": ["everybody"] }),
        ]),
        namespace in pick(&["team-a", "team-b", "team-a-2", ""]),
        group in pick(&["", "apps", "example.com"]),
        resource in pick(&["pods", "namespaces", "nodes", "widgets"]),
    ) {
        let mut exception = json!({ "plugins": [excepted], "reason": "why" });
        exception.as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());
        let plan = planned(&file(""), &[
            object(Kind::TenantPlugin, "team-a", "guard", &spec),
            object(Kind::Exception, "team-a", "all", &exception),
        ]);
        let request = request(&namespace, &group, &resource);
        let is_beyond = namespace != "team-a" || resource == "namespaces";
        let called = called(&plan, &request);
        if is_beyond {
            prop_assert_eq!(called, ["open", "closed"]);
        } else {
            prop_assert!(called.contains(&"closed"));
        }
        for plugin in plan.config.plugins.iter().filter(|plugin| plugin.name.namespace().is_some()) {
            // The rules that are registered are confined, too.
            let matching = plugin.matching.as_ref().unwrap();
            prop_assert_eq!(&matching.namespaces, &[Box::from("team-a")]);
            prop_assert!(!plugin.sees(&request) || !is_beyond);
        }
    }
}

#[test]
fn resource_can_be_a_group() {
    let file = file("");
    let group = |prefix: &str| {
        json!({ "group": {
            "members": [
                { "name": "one", "source": format!("oci://registry.example.com/{prefix}one:1") },
                { "name": "two", "source": format!("oci://registry.example.com/{prefix}two:1") },
            ],
            "expression": "any", "message": "neither",
        } })
    };
    let without_source = |mut spec: Value| {
        spec.as_object_mut().unwrap().remove("source");
        spec
    };
    let exception = json!({
        "plugins": ["either"], "users": ["eve"], "reason": "moves", "expires": "2999-01-01",
    });
    let foreign = group("elsewhere/");
    let objects = [
        object(
            Kind::Plugin,
            "",
            "either",
            &without_source(spec(&group(""))),
        ),
        object(
            Kind::TenantPlugin,
            "team-a",
            "own",
            &without_source(spec(&group("tenants/"))),
        ),
        object(
            Kind::TenantPlugin,
            "team-b",
            "own",
            &without_source(spec(&foreign)),
        ),
        object(Kind::Exception, "tollgate-system", "moving", &exception),
    ];
    let plan = planned(&file, &objects);
    let entries = tollgate_config::entries(&plan.config.plugins);
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["open", "closed", "either", "team-a/own"]);
    assert_eq!(entries[2].exceptions.len(), 1);
    assert_eq!(entries[2].parts.len(), 2);
    assert_eq!(plan.config.plugins[2].name.as_str(), "either.one");
    assert_eq!(plan.config.plugins[5].name.as_str(), "team-a/own.two");
    assert_eq!(plan.config.plugins[5].name.namespace(), Some("team-a"));
    assert_eq!(entries[3].parts[1].name.entry(), "team-a/own");
    let refusal = plan.plugins["team-b/own"].refusal.as_ref().unwrap();
    assert_eq!(refusal.reason, "NotAllowed");
    assert!(
        refusal
            .message
            .contains("spec.group.members[0].source: the artifact may come from"),
        "{}",
        refusal.message
    );
}
