use std::path::Path;

use super::{ImageNameError, ImageRefusal, Images};
use crate::{Capability, Config, PluginConfig, Reference};

const IMAGES: &str = "images: { registries: [registry.example.com], policies: [{ name: release, signers: [{ key: a.pem }] }] KEYS }";

fn parse(keys: &str) -> Result<PluginConfig, String> {
    let text = format!("plugins: [{{ name: a, source: 'file:a.wasm', {keys} }}]");
    let config = Config::parse(&text, Path::new("/etc/tollgate"));
    let mut config = config.map_err(|error| error.to_string())?;
    Ok(config.plugins.remove(0))
}

fn plugin(keys: &str) -> PluginConfig {
    parse(&IMAGES.replace("KEYS", keys)).unwrap()
}

fn images(keys: &str) -> Images {
    let images = plugin(keys).images.expect("there is a section");
    Images::clone(&images)
}

fn image(text: &str) -> Reference {
    Reference::of_image(text).unwrap()
}

#[test]
fn reads_images_like_container_runtimes() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (text, expected) in [
        ("nginx", "docker.io/library/nginx:latest".to_owned()),
        ("nginx:1.29", "docker.io/library/nginx:1.29".to_owned()),
        (
            "docker.io/nginx",
            "docker.io/library/nginx:latest".to_owned(),
        ),
        (
            "index.docker.io/nginx",
            "docker.io/library/nginx:latest".to_owned(),
        ),
        ("acme/app:1", "docker.io/acme/app:1".to_owned()),
        ("localhost/app:1", "localhost/app:1".to_owned()),
        ("localhost:5000/app", "localhost:5000/app:latest".to_owned()),
        ("[::1]:5000/app:1", "[::1]:5000/app:1".to_owned()),
        (
            "Registry.Example.COM/app:1",
            "registry.example.com/app:1".to_owned(),
        ),
        (
            "registry.example.com/team/app:V1.0_x",
            "registry.example.com/team/app:V1.0_x".to_owned(),
        ),
    ] {
        assert_eq!(image(text).to_string(), expected, "{text}");
    }
    // The digest decides, and no tag is added.
    let pinned = image(&format!("nginx@{digest}"));
    assert_eq!((pinned.tag, pinned.digest), (None, Some(digest.clone())));
    let both = image(&format!("nginx:1.29@{digest}"));
    assert_eq!(
        (both.tag.as_deref(), both.digest),
        (Some("1.29"), Some(digest))
    );
}

#[test]
fn refuses_what_no_runtime_pulls() {
    for text in [
        "",
        " nginx",
        "nginx ",
        "Nginx",
        "nginx:",
        "nginx:a/b",
        "nginx:1:2",
        "/nginx",
        "a//b",
        "registry.example.com/",
        "registry.example.com/App:1",
        "https://registry.example.com/app:1",
        "user@host/app:1",
        "registry.example.com/../app:1",
        "nginx\n",
        "registry.example.com/app:1?x=y",
        "Team/app:1",
    ] {
        let read = Reference::of_image(text);
        assert!(read.is_err(), "{text:?}: {read:?}");
    }
    let sha512 = format!("nginx@sha512:{}", "a".repeat(128));
    assert_eq!(Reference::of_image(&sha512), Err(ImageNameError::Digest));
    assert_eq!(
        Reference::of_image("nginx@sha256:abc"),
        Err(ImageNameError::Digest)
    );
    assert_eq!(
        Reference::of_image(&"a".repeat(1025)),
        Err(ImageNameError::Long)
    );
}

#[test]
fn section_grants_the_capability() {
    let plugin = plugin("");
    assert!(plugin.capabilities.contains(&Capability::Images));
    let images = plugin.images.expect("there is a section");
    assert_eq!(images.verified_for.as_secs(), 3600);
    assert_eq!(images.refused_for.as_secs(), 30);
    assert_eq!(images.resolved_for.as_secs(), 10);
    assert_eq!(images.last_known_good_for.as_secs(), 24 * 3600);
    let files: Vec<_> = images.files().collect();
    assert_eq!(files, [Path::new("/etc/tollgate/a.pem")]);
    let without = parse("capabilities: [images]").unwrap();
    assert_eq!(without.images, None);
}

#[test]
fn only_listed_registries_and_covered_repositories_are_granted() {
    let images = images("");
    let refusal = |text: &str, policy: &str| {
        images
            .policy(&image(text), policy)
            .map(|policy| policy.name.clone())
    };
    assert_eq!(
        refusal("registry.example.com/app:1", "release"),
        Ok("release".into())
    );
    let other = refusal("registry.example.com.evil.io/app:1", "release");
    assert!(
        matches!(other, Err(ImageRefusal::Registry { .. })),
        "{other:?}"
    );
    assert!(matches!(
        refusal("nginx", "release"),
        Err(ImageRefusal::Registry { .. })
    ));
    let port = refusal("registry.example.com:5000/app:1", "release");
    assert!(
        matches!(port, Err(ImageRefusal::Registry { .. })),
        "{port:?}"
    );
    let unknown = refusal("registry.example.com/app:1", "releases\n")
        .unwrap_err()
        .to_string();
    assert!(unknown.contains(r"`releases\n`"), "{unknown}");
}

#[test]
fn policy_may_be_for_some_repositories() {
    let text = "images: { registries: [registry.example.com], policies: [{ name: team, repositories: \
                [registry.example.com/team/*], signers: [{ key: a.pem }] }] }";
    let images = parse(text).unwrap().images.unwrap();
    assert!(
        images
            .policy(&image("registry.example.com/team/app:1"), "team")
            .is_ok()
    );
    let uncovered = images
        .policy(&image("registry.example.com/app:1"), "team")
        .unwrap_err();
    assert!(
        uncovered.to_string().contains("does not cover"),
        "{uncovered}"
    );
}

#[test]
fn refuses_sections_that_verify_nothing() {
    let policies = "policies: [{ name: a, signers: [{ key: a.pem }] }]";
    for (section, problem) in [
        (format!("{{ {policies} }}"), "images.registries: missing"),
        (format!("{{ registries: [], {policies} }}"), "images.registries: got an empty list"),
        (format!("{{ registries: [Registry.example.com], {policies} }}"), "images.registries[0]"),
        (format!("{{ registries: [registry], {policies} }}"), "images.registries[0]"),
        (format!("{{ registries: ['https://a.example'], {policies} }}"), "images.registries[0]"),
        ("{ registries: [docker.io] }".to_owned(), "images.policies: missing"),
        ("{ registries: [docker.io], policies: [] }".to_owned(), "images.policies: got an empty list"),
        (
            "{ registries: [docker.io], policies: [{ name: a, signers: [] }] }".to_owned(),
            "images.policies[0].signers",
        ),
        (
            "{ registries: [docker.io], policies: [{ name: a, signers: [{ issuer: a, subject: b }] }] }".to_owned(),
            "images.trustedRoot",
        ),
        (format!("{{ registries: [docker.io], {policies}, verifiedFor: 1ms }}"), "images.verifiedFor"),
        (format!("{{ registries: [docker.io], {policies}, keys: [a] }}"), "images.keys: unknown key"),
    ] {
        let error = parse(&format!("images: {section}")).unwrap_err();
        assert!(error.contains(problem), "{section}: {error}");
    }
}

#[test]
fn pull_secrets_are_read_in_listed_namespaces_only() {
    let listed = images(", pullSecretNamespaces: [shop, blog]");
    assert!(listed.reads_pull_secrets_in("shop"));
    for namespace in ["shops", "", "*", "kube-system"] {
        assert!(!listed.reads_pull_secrets_in(namespace), "{namespace}");
    }
    assert!(!images("").reads_pull_secrets_in("shop"));
    for namespaces in ["'*'", "[Shop]", "['*']", "['shop/a']", "[5]"] {
        let error =
            parse(&IMAGES.replace("KEYS", &format!(", pullSecretNamespaces: {namespaces}")));
        let error = error.unwrap_err();
        assert!(
            error.contains("images.pullSecretNamespaces"),
            "{namespaces}: {error}"
        );
    }
}

#[test]
fn another_policy_is_another_way_to_run() {
    assert!(!plugin("").runs_like(&plugin(", verifiedFor: 2h")));
    assert!(plugin("").runs_like(&plugin(", verifiedFor: 1h")));
}

#[test]
fn shadow_has_the_grant_of_its_plugin_only_with_the_capability() {
    let shadow = |keys: &str| {
        let section = IMAGES.replace("KEYS", "");
        let text = format!(
            "plugins: [{{ name: a, source: 'file:a.wasm', {section}, shadow: {{ source: 'file:b.wasm' {keys} }} }}]"
        );
        let config = Config::parse(&text, Path::new(".")).unwrap();
        config.shadows[0].clone()
    };
    assert!(shadow("").images.is_some());
    assert!(shadow(", capabilities: []").images.is_none());
}
