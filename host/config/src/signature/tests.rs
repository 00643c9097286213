use std::path::Path;

use serde_json::json;

use super::*;
use crate::Config;

const FILE: &str = "
signatures:
  trustedRoot: root.json
  policies:
    - name: guards
      repositories: ['registry.example.com/policies/*']
      signers:
        - { name: release, key: release.pub }
        - { issuer: 'https://issuer.example.com', subject: 'https://example.com/**' }
      threshold: 2
      attestations: { sbom: true, provenance: { builders: ['https://example.com/builder'] } }
      minimumVersion: 1.4.0
      bindRepository: true
    - { name: trials, repositories: ['registry.example.com/trials/**'], signers: [] }
plugins:
  - { name: a, source: 'oci://registry.example.com/policies/guard:1' }
  - { name: b, source: 'oci://REGISTRY.example.com:443/policies/guard:1' }
  - { name: c, source: 'oci://registry.example.com/trials/a/b:1' }
  - { name: d, source: 'oci://registry.example.com/policies/a/b:1' }
  - { name: e, source: file:e.wasm }
";

fn parse(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/tollgate")).unwrap()
}

/// The problems of a file with this `signatures`.
fn problems(signatures: &str) -> String {
    let text = format!(
        "signatures: {signatures}\nplugins: [{{ name: a, source: 'oci://registry.example.com/a:1' }}]"
    );
    let problems = Config::parse(&text, Path::new("/")).unwrap_err();
    problems.to_string()
}

#[test]
fn first_policy_that_covers_a_repository_decides() {
    let config = parse(FILE);
    let requirements: Vec<String> = config
        .plugins
        .iter()
        .map(|plugin| match plugin.signature_requirement() {
            SignatureRequirement::Nothing => "nothing".to_owned(),
            SignatureRequirement::Policy(policy) => policy.name.to_string(),
            SignatureRequirement::Uncovered => "uncovered".to_owned(),
        })
        .collect();
    assert_eq!(
        requirements,
        ["guards", "guards", "nothing", "uncovered", "nothing"]
    );
    let SignatureRequirement::Policy(policy) = config.plugins[0].signature_requirement() else {
        panic!("a policy covers it");
    };
    assert_eq!(policy.threshold, 2);
    assert!(policy.bind_repository && policy.attestations.sbom);
    let signers: Vec<String> = policy.signers.iter().map(ToString::to_string).collect();
    assert_eq!(
        signers,
        [
            "a key of /etc/tollgate/release.pub",
            "the identity https://example.com/** of https://issuer.example.com"
        ]
    );
    let files: Vec<String> = config.plugins[0]
        .signatures
        .files()
        .map(|path| path.display().to_string())
        .collect();
    assert!(
        files.contains(&"/etc/tollgate/root.json".to_owned()),
        "{files:?}"
    );
}

#[test]
fn written_policies_read_back_unchanged() {
    let config = parse(FILE);
    let document = config.document(config.plugins.iter());
    let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
    assert_eq!(again.plugins, config.plugins);
    assert_eq!(
        config.signatures(Path::new("/etc/tollgate")),
        config.plugins[0].signatures
    );
}

#[test]
fn follows_a_tuf_repository_for_plugins_and_images() {
    let text = FILE.replace(
        "  trustedRoot: root.json",
        "  tuf: { url: 'https://tuf.example.com/mirror', root: root.json, refreshInterval: 5m, lastKnownGoodFor: 48h }",
    );
    let images = "
  - name: f
    source: file:f.wasm
    images:
      registries: [docker.io]
      policies: [{ name: a, signers: [{ issuer: 'https://issuer.example.com', subject: '**' }] }]
";
    let registries = "registries: { cacheDirectory: cache }";
    let config = parse(&format!("{registries}{text}{images}"));
    let source = |name: &str| {
        let mut plugins = config.plugins.iter();
        let plugin = plugins.find(|plugin| plugin.name.as_str() == name).unwrap();
        plugin.tuf_sources().next().cloned()
    };
    let tuf = source("a").expect("a signer has an identity");
    assert_eq!(&*tuf.url, "https://tuf.example.com/mirror/");
    assert_eq!(tuf.host(), "tuf.example.com");
    assert_eq!(tuf.root, Path::new("/etc/tollgate/root.json"));
    assert_eq!(&*tuf.target, "trusted_root.json");
    assert_eq!(tuf.refresh_interval.as_secs(), 300);
    assert_eq!(tuf.last_known_good_for.as_secs(), 48 * 3600);
    assert!(tuf.folder.starts_with("/etc/tollgate/cache/tuf"));
    assert_eq!(
        source("f"),
        Some(tuf.clone()),
        "images take the file's root"
    );
    assert_eq!(source("e"), None);
    let files: Vec<_> = config.plugins[0].signatures.files().collect();
    assert!(files.contains(&&tuf.root) && files.contains(&&tuf.in_effect));
    // The record of the configuration keeps the root for the images, too.
    let document = config.document(config.plugins.iter());
    let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
    assert_eq!(again.plugins, config.plugins);
    assert_eq!(
        config.signatures(Path::new("/etc/tollgate")),
        config.plugins[0].signatures
    );
}

#[test]
fn rejects_tuf_sources_that_cannot_be_followed() {
    let of = |cache: &str, tuf: &str| {
        let text = format!("{cache}signatures: {tuf}\nallowEmpty: true\n");
        Config::parse(&text, Path::new("/")).map_err(|problems| problems.to_string())
    };
    let cache = "registries: { cacheDirectory: cache }\n";
    let whole = "{ tuf: { url: 'https://tuf.example.com', root: root.json } }";
    assert!(of(cache, whole).is_ok());
    assert!(
        of(
            cache,
            "{ keys: [a.pub], tuf: { url: 'http://127.0.0.1:8000/a/b/', root: r } }"
        )
        .is_ok()
    );
    for (cache, tuf, part) in [
        ("", whole, "signatures.tuf: needs registries.cacheDirectory"),
        (cache, "{ tuf: {} }", "expected an object with url and root"),
        (
            cache,
            "{ tuf: { url: 'https://tuf.example.com' } }",
            "Tollgate trusts no root that it has only downloaded",
        ),
        (
            cache,
            "{ tuf: { root: r, url: tuf.example.com } }",
            "signatures.tuf.url",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'file:///tuf' } }",
            "signatures.tuf.url",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://' } }",
            "signatures.tuf.url",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://user@tuf.example.com' } }",
            "signatures.tuf.url",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://tuf.example.com/?a=b' } }",
            "signatures.tuf.url",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://a.example', target: '../b' } }",
            "signatures.tuf.target",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://a.example', target: '/b' } }",
            "signatures.tuf.target",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://a.example', refreshInterval: 1s } }",
            "refreshInterval: got 1s",
        ),
        (
            cache,
            "{ trustedRoot: a, tuf: { root: r, url: 'https://a.example' } }",
            "either trustedRoot or tuf",
        ),
        (
            cache,
            "{ tuf: { root: r, url: 'https://a.example', key: b } }",
            "signatures.tuf.key: unknown key",
        ),
    ] {
        let problems = of(cache, tuf).unwrap_err();
        assert!(problems.contains(part), "{tuf}: {problems}");
    }
}

#[test]
fn nobody_weakens_the_policies_of_the_file() {
    let config = parse(FILE);
    let folder = Path::new("/etc/tollgate");
    for signatures in [json!({"keys": []}), json!({"keys": ["own.pub"]})] {
        let entry = json!({
            "name": "a", "source": "oci://registry.example.com/policies/a:1", "signatures": signatures,
        });
        let refused = config
            .read_entry(&entry, "spec", folder)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("spec.signatures: expected none: signatures.policies"),
            "{refused}"
        );
        let shadow = json!({
            "name": "a", "source": "file:a.wasm",
            "shadow": { "source": "oci://registry.example.com/policies/a:1", "signatures": signatures },
        });
        let refused = config
            .read_entry(&shadow, "spec", folder)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("spec.shadow.signatures"), "{refused}");
    }
    let entry = json!({"name": "a", "source": "oci://registry.example.com/policies/a:1"});
    let (plugins, _) = config.read_entry(&entry, "spec", folder).unwrap();
    assert!(matches!(
        plugins[0].signature_requirement(),
        SignatureRequirement::Policy(_)
    ));
}

#[test]
fn rejects_policies_that_cannot_be_met_or_say_nothing() {
    let of = |policy: &str| {
        problems(&format!(
            "{{ policies: [{{ name: a, repositories: ['**'], {policy} }}] }}"
        ))
    };
    let key = "signers: [{ key: a.pub }]";
    for (problems, part) in [
        (problems("{ policies: [] }"), "got an empty list"),
        (
            problems(
                "{ keys: [a.pub], policies: [{ name: a, repositories: ['**'], signers: [] }] }",
            ),
            "either keys or policies",
        ),
        (
            of("signers: [{ name: a }]"),
            "either a key, or issuer and subject",
        ),
        (
            of("signers: [{ issuer: a }]"),
            "either a key, or issuer and subject",
        ),
        (
            of("signers: [{ issuer: a, subject: b }]"),
            "expected signatures.trustedRoot",
        ),
        (
            of(&format!("{key}, threshold: 2")),
            "from 1 to the number of signers",
        ),
        (
            of(&format!("{key}, threshold: 0")),
            "from 1 to the number of signers",
        ),
        (
            of(&format!("{key}, signedAfter: 2026-01-31")),
            "anyone can add a later timestamp",
        ),
        (of(&format!("{key}, signedAfter: soon")), "a day, such as"),
        (
            of(&format!("{key}, minimumVersion: '1.x'")),
            "a version, such as 1.4.0",
        ),
        (
            of("signers: [{ key: a.pub }, { key: a.pub }]"),
            "another signer",
        ),
        (of("signers: [], bindRepository: true"), "without signers"),
        (
            of(&format!(
                "{key}, attestations: {{ provenance: {{ builders: [] }} }}"
            )),
            "leave the key out",
        ),
    ] {
        assert!(problems.contains(part), "`{part}` is not in: {problems}");
    }
    let repository = "{ policies: [{ name: a, repositories: ['oci://a/b'], signers: [] }] }";
    assert!(problems(repository).contains("a list of repositories without tags"));
}

#[test]
fn star_stops_at_slashes() {
    for (pattern, text, matches) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "a", true),
        ("a*c", "abc", true),
        ("a*c", "a/c", false),
        ("a**c", "a/b/c", true),
        ("**", "", true),
        ("*", "a/b", false),
        ("a/*/c", "a/b/c", true),
        ("a/*/c", "a/b/b/c", false),
        ("**/c", "a/b/c", true),
        ("*@refs/tags/*", "release.yml@refs/tags/v1", true),
        (
            "*@refs/tags/*",
            "release.yml@refs/heads/x@refs/tags/v1",
            false,
        ),
        ("a.c", "abc", false),
        ("ä*", "äö", true),
    ] {
        assert_eq!(
            TextPattern::new(pattern).matches(text),
            matches,
            "{pattern} {text}"
        );
    }
}
