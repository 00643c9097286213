//! Tests of `lookups`.

use std::path::Path;

use super::*;
use crate::{Capability, Config, ConfigError};

fn parse(lookups: &str) -> Result<Config, ConfigError> {
    let text = format!("plugins:\n- name: a\n  source: file:a.wasm\n  lookups: {lookups}");
    Config::parse(&text, Path::new("/"))
}

fn read(lookups: &str) -> Lookups {
    let mut config = parse(lookups).unwrap_or_else(|error| panic!("{error}"));
    std::mem::take(&mut config.plugins[0].lookups)
}

#[test]
fn reads_lookup_with_every_key() {
    let config = parse(
        r#"
  - name: ingresses
    resource: { group: networking.k8s.io, version: v1, resource: ingresses }
    namespaces: [shop, bank, shop]
    labelSelector: { matchLabels: { tier: web } }
    fields: ["/spec/rules/*/host", /metadata/labels, /metadata/labels]
    indexes: { host: "/spec/rules/*/host" }
"#,
    )
    .unwrap();
    let plugin = &config.plugins[0];
    assert!(plugin.capabilities.contains(&Capability::Cluster));
    let lookup = &plugin.lookups["ingresses"];
    let resource = LookupResource::new("networking.k8s.io", "v1", "ingresses");
    assert_eq!(lookup.resource, resource);
    assert_eq!(resource.to_string(), "ingresses.v1.networking.k8s.io");
    assert_eq!(resource.api_version(), "networking.k8s.io/v1");
    let names = vec!["bank".into(), "shop".into()];
    assert_eq!(lookup.namespaces, LookupNamespaces::Named(names));
    assert!(lookup.namespaces.covers("shop") && !lookup.namespaces.covers("shops"));
    assert_eq!(lookup.label_selector.to_string(), "tier=web");
    let fields: Vec<&str> = lookup.fields.iter().map(FieldPattern::as_str).collect();
    assert_eq!(fields, ["/metadata/labels", "/spec/rules/*/host"]);
    assert_eq!(lookup.indexes["host"].as_str(), "/spec/rules/*/host");
    assert!(!lookup.is_metadata_only());
}

#[test]
fn grants_are_equal_whatever_their_names_and_orders_are() {
    let one = read(
        "[{ name: one, resource: { group: apps, version: v1, resource: deployments }, fields: [/a, /b] }]",
    );
    let other = read(
        "[{ name: other, namespaces: all, resource: { resource: deployments, group: apps, version: v1 }, fields: [/b, /a] }]",
    );
    assert_eq!(one["one"], other["other"]);
}

#[test]
fn names_and_metadata_need_watch_of_metadata_only() {
    let of = |more: &str| {
        let resource = "resource: { group: '', version: v1, resource: configmaps }";
        read(&format!("[{{ name: a, {resource}, {more} }}]"))["a"].is_metadata_only()
    };
    assert!(of("fields: []"));
    assert!(of(
        "fields: [/metadata/labels], indexes: { owner: '/metadata/ownerReferences/*/uid' }"
    ));
    assert!(!of("fields: [/data]"));
    assert!(!of("indexes: { owner: /data/owner }"));
    assert!(!of("fields: [/metadatas]"));
}

#[test]
fn lists_all_problems() {
    let error = parse(
        r#"
  - { name: Hosts, resource: { group: networking.k8s.io, version: v1, resource: ingress } }
  - { name: a, resource: { group: core, version: v1/beta, resource: pods/status } }
  - { name: a, resource: { group: "", version: v1, resource: secrets } }
  - { name: a, resource: { group: "", version: v1, resource: pods }, secrets: true, namespaces: own }
  - { name: b, resource: { group: "", version: v1, resource: nodes }, namespaces: [default] }
  - { name: c, resource: { group: example.com, version: v1, resource: mice }, namespaces: [], fields: ["", spec, /a~2] }
  - { name: d, resource: { group: example.com, version: v1, resource: mice }, indexes: { Host: /a, host: b }, field: [/a] }
  - { resource: pods, labelSelector: { matchLabels: { a: 1 } } }
"#,
    )
    .unwrap_err();
    let text = error.to_string();
    for (place, problem) in [
        ("[0].name", "got \"Hosts\", expected a name"),
        ("[0].resource", ""),
        ("[1].resource.group", "got \"core\", expected an API group"),
        (
            "[1].resource.version",
            "got \"v1/beta\", expected an API version",
        ),
        (
            "[1].resource.resource",
            "got \"pods/status\", expected a resource",
        ),
        ("[2].secrets", "the lookup reads Secrets, expected true"),
        ("[3].name", "got \"a\", which names another lookup"),
        ("[3].secrets", "got true, but pods are no Secrets"),
        ("[3].namespaces", "got \"own\", expected all, or a list"),
        ("[4].namespaces", "nodes have no namespaces"),
        (
            "[5].namespaces",
            "got an empty list, expected all, or a list",
        ),
        ("[5].fields[0]", "got \"\", expected a place"),
        ("[5].fields[1]", "got \"spec\", expected a place"),
        ("[5].fields[2]", "got \"/a~2\", expected a place"),
        ("[6].indexes.Host", "expected a name"),
        ("[6].indexes.host", "got \"b\", expected a place"),
        ("[6].field", "unknown key, did you mean fields?"),
        ("[7].name", "missing, expected a name"),
        ("[7].resource", "got \"pods\", expected an object"),
        (
            "[7].labelSelector.matchLabels.a",
            "expected the value of a label",
        ),
    ] {
        let line = format!("plugins[0].lookups{place}: {problem}");
        assert!(text.contains(&line), "`{line}` is not in:\n{text}");
    }
    assert!(text.starts_with("configuration: 20 problems"), "{text}");
}

#[test]
fn bounds_numbers_of_lookups_and_indexes() {
    let resource = "resource: { group: '', version: v1, resource: pods }";
    let lookups: Vec<String> = (0..=MOST_LOOKUPS)
        .map(|number| format!("{{ name: l{number}, {resource} }}"))
        .collect();
    let error = parse(&format!("[{}]", lookups.join(", "))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("plugins[0].lookups: got 17 lookups, expected at most 16"),
        "{text}"
    );
    let indexes: Vec<String> = (0..=MOST_INDEXES)
        .map(|number| format!("i{number}: /spec/i{number}"))
        .collect();
    let indexes = indexes.join(", ");
    let error = parse(&format!(
        "[{{ name: a, {resource}, indexes: {{ {indexes} }} }}]"
    ))
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("indexes: got 9 indexes, expected at most 8"),
        "{text}"
    );
}

#[test]
fn shadow_without_the_capability_has_no_lookups() {
    let text = "plugins: [{ name: a, source: file:a.wasm, SHADOW, lookups: [
        { name: pods, resource: { group: '', version: v1, resource: pods } }] }]";
    let parse = |shadow: &str| {
        let text = text.replace("SHADOW", shadow);
        Config::parse(&text, Path::new("/")).unwrap_or_else(|error| panic!("{error}"))
    };
    let config = parse("shadow: { source: file:b.wasm }");
    assert_eq!(config.shadows[0].lookups, config.plugins[0].lookups);
    let config = parse("shadow: { source: file:b.wasm, capabilities: [] }");
    assert!(config.shadows[0].lookups.is_empty());
    assert!(!config.plugins[0].runs_like(&config.shadows[0]));
}
