use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::lookup::LookupNamespaces;
use crate::rule::Scope;
use crate::{Config, PluginConfig, PluginName};

const FILE: &str = "
cluster: { enabled: true }
limits: { fuel: 5M }
signatures: { keys: [keys/platform.pem] }
";

fn config(tenancy: &str) -> Config {
    let text = format!("{FILE}tenancy: {tenancy}\n");
    Config::parse(&text, Path::new("/etc/tollgate")).unwrap()
}

fn problems(text: &str) -> String {
    let error = Config::parse(text, Path::new("/etc/tollgate")).unwrap_err();
    tollgate_admission::chain(&error)
}

fn spec() -> Value {
    json!({
        "source": "oci://registry.example.com/tenants/guard:1",
        "match": { "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        }] },
    })
}

fn with(place: &str, value: Value) -> Value {
    let mut spec = spec();
    *spec.pointer_mut(place).unwrap_or(&mut Value::Null) = value.clone();
    if spec.pointer(place).is_none() {
        let (parent, key) = place.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[key] = value;
    }
    spec
}

fn read(config: &Config, spec: &Value) -> Result<PluginConfig, TenantRefusal> {
    let read = config.read_tenant("team-a", "guard", spec, Path::new("/etc/tollgate"));
    read.map(|mut plugins| plugins.remove(0))
}

const PLAIN: &str = "{ registries: [registry.example.com/tenants] }";

#[test]
fn absent_section_is_no_tenancy() {
    let config = Config::parse(FILE, Path::new("/")).unwrap();
    assert_eq!(config.tenancy, None);
    assert_eq!(read(&config, &spec()), Err(TenantRefusal::NoTenancy));
}

#[test]
fn reads_every_key_and_its_default() {
    let tenancy = config(PLAIN).tenancy.unwrap();
    assert_eq!(
        tenancy.signatures.files().collect::<Vec<_>>(),
        [Path::new("/etc/tollgate/keys/platform.pem")]
    );
    assert!(tenancy.capabilities.is_empty() && tenancy.settings_from.is_empty());
    assert_eq!(tenancy.modes, [Mode::Enforce, Mode::Warn, Mode::Audit]);
    assert_eq!(
        tenancy.failure_policies,
        [FailurePolicy::Fail, FailurePolicy::Ignore]
    );
    assert_eq!(tenancy.limits.fuel, 5_000_000);
    assert_eq!(
        (tenancy.budget.calls, tenancy.budget.calls_per_namespace()),
        (8, 4)
    );
    let tenancy = config(
        "{ registries: [localhost:5000], signatures: { keys: [] }, capabilities: [clock], modes: [warn], failurePolicies:
           [Ignore], settingsFrom: [ConfigMap, Secret], limits: { fuel: 1M }, maxPlugins: 7, maxPluginsPerNamespace: 2,
           budget: { calls: 3, fuel: 10M, fuelPerNamespace: 2M, cpuTime: 40ms, cpuTimePerNamespace: 5ms } }",
    )
    .tenancy
    .unwrap();
    assert_eq!(tenancy.signatures.files().count(), 0);
    assert_eq!(tenancy.capabilities, [Capability::Clock].into());
    assert_eq!(tenancy.modes, [Mode::Warn]);
    assert_eq!(tenancy.failure_policies, [FailurePolicy::Ignore]);
    assert_eq!(
        tenancy.settings_from,
        [SettingsSource::ConfigMap, SettingsSource::Secret].into()
    );
    assert_eq!(
        (tenancy.max_plugins, tenancy.max_plugins_per_namespace),
        (7, 2)
    );
    let budget = TenantBudget {
        calls: 3,
        fuel: 10_000_000,
        fuel_per_namespace: 2_000_000,
        cpu_time: Duration::from_millis(40),
        cpu_time_per_namespace: Duration::from_millis(5),
    };
    assert_eq!(tenancy.budget, budget);
}

#[test]
fn rejects_unusable_sections() {
    let cases = [
        ("tenancy: {}", "tenancy.registries: missing"),
        ("tenancy: { registries: [] }", "at least one registry"),
        (
            "tenancy: { registries: ['https://a.example.com'] }",
            "tenancy.registries[0]: got",
        ),
        (
            "tenancy: { registries: [a.example.com/] }",
            "tenancy.registries[0]: got",
        ),
        (
            "tenancy: { registries: ['a.example.com/*'] }",
            "tenancy.registries[0]: got",
        ),
        (
            "tenancy: { registries: [a.example.com], modes: [] }",
            "tenancy.modes: got no word",
        ),
        (
            "tenancy: { registries: [a.example.com], settingsFrom: [Pod] }",
            "tenancy.settingsFrom[0]: got \"Pod\"",
        ),
        (
            "tenancy: { registries: [a.example.com], budget: { calls: 64 } }",
            "tenancy.budget.calls: got 64, expected at most 8",
        ),
        (
            "tenancy: { registries: [a.example.com], plugins: 4 }",
            "tenancy.plugins: unknown key",
        ),
    ];
    for (tenancy, expected) in cases {
        let text = problems(&format!("cluster: {{ enabled: true }}\n{tenancy}"));
        assert!(text.contains(expected), "{tenancy}: {text}");
    }
    let text = problems(&format!("allowEmpty: true\ntenancy: {PLAIN}"));
    assert!(
        text.contains("tenancy: needs cluster.enabled: true"),
        "{text}"
    );
    let text = problems(&format!(
        "cluster: {{ enabled: true, registration: {{ enabled: false }} }}\ntenancy: {PLAIN}"
    ));
    assert!(text.contains("cluster.registration"), "{text}");
}

#[test]
fn entry_is_confined_to_its_namespace() {
    let config = config("{ registries: [registry.example.com/tenants], capabilities: [cluster] }");
    let mut spec = with("/match/rules/0/scope", json!("*"));
    spec["match"]["rules"][0]["resources"] = json!(["*/*"]);
    spec["lookups"] = json!([
        { "name": "a", "resource": { "group": "", "version": "v1", "resource": "configmaps" } },
    ]);
    let plugin = read(&config, &spec).unwrap();
    assert_eq!(plugin.name.as_str(), "team-a/guard");
    assert_eq!(plugin.name.namespace(), Some("team-a"));
    let matching = plugin.matching.as_ref().unwrap();
    assert_eq!(matching.rules[0].scope, Scope::Namespaced);
    assert_eq!(matching.namespaces, [Box::from("team-a")]);
    let own = LookupNamespaces::Named(vec!["team-a".into()]);
    assert_eq!(plugin.lookups["a"].namespaces, own);
    // The record of the last known good has no plugins of namespaces.
    assert_eq!(config.document([&plugin].into_iter())["plugins"], json!([]));
}

#[test]
fn entry_takes_limits_signers_and_words_from_tenancy() {
    let config = config(
        "{ registries: [registry.example.com], signatures: { keys: [keys/tenants.pem] }, modes: [warn, audit],
           failurePolicies: [Ignore], limits: { fuel: 1M, timeout: 100ms } }",
    );
    let plugin = read(&config, &spec()).unwrap();
    assert_eq!(
        plugin.signatures.files().collect::<Vec<_>>(),
        [Path::new("/etc/tollgate/keys/tenants.pem")]
    );
    assert_eq!(
        (plugin.mode, plugin.failure_policy),
        (Mode::Warn, FailurePolicy::Ignore)
    );
    assert_eq!(plugin.limits.fuel, 1_000_000);
    let own = read(&config, &with("/limits", json!({ "fuel": "1k" }))).unwrap();
    assert_eq!(
        (own.limits.fuel, own.limits.timeout),
        (1_000, Duration::from_millis(100))
    );
}

#[test]
fn refuses_what_tenancy_does_not_allow() {
    let config = config(PLAIN);
    let lookup = |more: Value| {
        let mut lookup = json!({ "name": "a", "resource": { "group": "", "version": "v1", "resource": "configmaps" } });
        for (key, value) in more.as_object().unwrap() {
            lookup[key] = value.clone();
        }
        with("/lookups", json!([lookup]))
    };
    let rule = |resource: &str| with("/match/rules/0/resources", json!([resource]));
    let many = json!(
        (0..9)
            .map(|_| spec()["match"]["rules"][0].clone())
            .collect::<Vec<_>>()
    );
    let cases = [
        (
            with("/source", json!("file:/etc/guard.wasm")),
            "spec.source: a file of the host",
        ),
        (
            with(
                "/source",
                json!("oci://registry.example.com/tenants-2/guard:1"),
            ),
            "spec.source: the artifact may come",
        ),
        (
            with("/source", json!("oci://evil.example.com/tenants/guard:1")),
            "tenancy.registries",
        ),
        (
            with("/signatures", json!({ "keys": [] })),
            "spec.signatures: an AdmissionPlugin cannot name its signers",
        ),
        (
            with("/shadow", json!({ "source": "file:a.wasm" })),
            "spec.shadow: an AdmissionPlugin has no shadow",
        ),
        (
            with(
                "/rollout",
                json!({ "steps": [{ "mode": "enforce", "for": "1h" }] }),
            ),
            "spec.rollout: an AdmissionPlugin has no rollout",
        ),
        (
            with("/capabilities", json!(["clock"])),
            "spec.capabilities: got clock",
        ),
        (
            lookup(json!({})),
            "spec.lookups: got cluster, which tenancy.capabilities does not have",
        ),
        (
            lookup(json!({ "namespaces": ["team-b"] })),
            "sees its own namespace only",
        ),
        (
            lookup(
                json!({ "resource": { "group": "", "version": "v1", "resource": "secrets" }, "secrets": true }),
            ),
            "may not look up Secrets",
        ),
        (
            lookup(json!({ "resource": { "group": "", "version": "v1", "resource": "nodes" } })),
            "nodes are cluster-scoped",
        ),
        (
            with("/limits", json!({ "fuel": "6M" })),
            "spec.limits.fuel: is more than tenancy.limits.fuel allows",
        ),
        (
            with("/limits", json!({ "concurrency": 17 })),
            "spec.limits.concurrency",
        ),
        (
            with("/match/namespaces", json!(["team-b"])),
            "spec.match.namespaces: got \"team-b\"",
        ),
        (
            with("/match/excludeNamespaces", json!(["team-a"])),
            "spec.match.excludeNamespaces",
        ),
        (
            with(
                "/match/matchConditions",
                json!([{ "name": "a", "expression": "object.kind == 'Pod'" }]),
            ),
            "spec.match.matchConditions",
        ),
        (
            with("/match/rules/0/scope", json!("Cluster")),
            "spec.match.rules[0].scope: got Cluster",
        ),
        (rule("namespaces"), "namespaces are cluster-scoped"),
        (rule("nodes/status"), "nodes are cluster-scoped"),
        (with("/match/rules", many), "spec.match.rules: got 9 rules"),
    ];
    for (spec, expected) in cases {
        let Err(TenantRefusal::NotAllowed(problems)) = read(&config, &spec) else {
            panic!("{spec} was not refused");
        };
        let text = problems.to_string();
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[test]
fn rollout_does_not_lead_around_the_modes_that_are_allowed() {
    let config = config("{ registries: [registry.example.com], modes: [warn] }");
    let mut spec = with("/mode", json!("warn"));
    assert!(read(&config, &spec).is_ok());
    spec["rollout"] = json!({ "steps": [{ "mode": "enforce", "for": "1h" }] });
    let refused = read(&config, &spec);
    assert!(
        matches!(refused, Err(TenantRefusal::NotAllowed(_))),
        "{refused:?}"
    );
}

#[test]
fn invalid_entry_says_so() {
    let config = config(PLAIN);
    let mut without = spec();
    without.as_object_mut().unwrap().remove("match");
    for (spec, expected) in [
        (without, "spec.match: missing"),
        (with("/mode", json!("deny")), "spec.mode: got \"deny\""),
        (with("/fual", json!(1)), "spec.fual: unknown key"),
    ] {
        let Err(TenantRefusal::Invalid(problems)) = read(&config, &spec) else {
            panic!("{spec} was not refused");
        };
        let text = problems.to_string();
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let long = "x".repeat(41);
    let refused = config.read_tenant("team-a", &long, &spec(), Path::new("/"));
    assert!(matches!(refused, Err(TenantRefusal::Invalid(_))));
}

#[test]
fn names_of_tenants_cannot_be_those_of_others() {
    let name = PluginName::of_tenant("team-a", "guard").unwrap();
    assert_eq!(name.as_str(), "team-a/guard");
    assert_eq!(PluginName::parse_any("team-a/guard"), Ok(name.clone()));
    assert_eq!(PluginName::parse_any("guard").unwrap().namespace(), None);
    assert!(PluginName::parse(name.as_str()).is_err());
    assert_eq!(name.shadow_of(), None);
    for text in [
        "/guard",
        "team-a/",
        "a/b/c",
        "team-a/guard.shadow",
        "Team/guard",
    ] {
        assert!(PluginName::parse_any(text).is_err(), "{text}");
    }
}

#[test]
fn change_of_budget_or_of_being_there_needs_a_restart() {
    let without = Config::parse(FILE, Path::new("/etc/tollgate")).unwrap();
    let plain = config(PLAIN);
    assert_eq!(plain.needs_restart(&without), ["tenancy"]);
    let other = config(
        "{ registries: [registry.example.com/tenants], budget: { calls: 2 }, modes: [warn] }",
    );
    assert_eq!(other.needs_restart(&plain), ["tenancy.budget"]);
    let other = config("{ registries: [registry.example.com/tenants], modes: [warn] }");
    assert_eq!(other.needs_restart(&plain), [""; 0]);
}
