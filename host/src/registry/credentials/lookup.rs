//! Which of the entries in a config file of docker or podman is the one for a repository.
//!
//! Docker's keys are registries, also as URLs. Podman's may name a repository or what is above it as well:
//! `registry.example.com/team/policies`; the longest that fits counts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A config file, as far as it is about credentials.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigFile {
    auths: Option<BTreeMap<String, Map<String, Value>>>,
    creds_store: Option<String>,
    cred_helpers: Option<BTreeMap<String, String>>,
}

/// Where a credential is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'f> {
    /// In the file: what is written there and not empty.
    Kept(Map<String, Value>),
    /// A program has it: what follows `docker-credential-` in its name.
    Helper(&'f str),
}

/// What docker's own registry is called in references and files.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

// === impl ConfigFile ===

impl ConfigFile {
    /// Reads one. What is wrong is told by its place alone: the text may be the secret.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            format!(
                "line {}, column {}: expected a config file of docker or podman, which is JSON",
                error.line(),
                error.column()
            )
        })
    }

    /// The entry for a repository: the registry's helper, then what is kept for the repository, for what is above it or
    /// for the registry, then the helper for everything else.
    pub(super) fn entry(&self, registry: &str, repository: &str) -> Option<Entry<'_>> {
        let registry = host(registry);
        let helper = |name: &&String| !name.is_empty();
        let mut helpers = self.cred_helpers.iter().flatten();
        let own = helpers.find(|(key, _)| place(key) == registry);
        if let Some(name) = own.map(|(_, name)| name).filter(helper) {
            return Some(Entry::Helper(name));
        }
        let whole = format!("{registry}/{repository}");
        let mut wanted = Some(whole.as_str());
        while let Some(at) = wanted {
            if let Some(kept) = self.kept(at) {
                return Some(Entry::Kept(kept));
            }
            wanted = at.rsplit_once('/').map(|(above, _)| above);
        }
        let store = self.creds_store.as_ref().filter(helper);
        store.map(|name| Entry::Helper(name))
    }

    /// What is kept at a place; none where that is nothing, which docker writes where a helper has it.
    fn kept(&self, at: &str) -> Option<Map<String, Value>> {
        let auths = self.auths.iter().flatten();
        let found = auths.filter(|(key, _)| place(key) == at);
        let kept = found.filter_map(|(key, entry)| {
            let mut entry = entry.clone();
            entry.retain(|_, value| value.as_str().is_some_and(|text| !text.is_empty()));
            (!entry.is_empty()).then_some((key, entry))
        });
        // The registry's very name comes before a URL of it.
        let kept = kept.min_by_key(|(key, _)| key.contains("://"));
        kept.map(|(_, entry)| entry)
    }
}

/// What a key is for: a registry, or a part of one. Of a URL, only the host says so.
fn place(key: &str) -> String {
    let url = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let text = url.unwrap_or(key);
    let (name, path) = text.split_once('/').unwrap_or((text, ""));
    let path = path.trim_end_matches('/');
    if path.is_empty() || url.is_some() {
        return host(name).to_owned();
    }
    format!("{}/{path}", host(name))
}

fn host(name: &str) -> &str {
    if DOCKER_HUB.contains(&name) {
        DOCKER_HUB[0]
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(file: &Value) -> ConfigFile {
        ConfigFile::read(file.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_entry_that_says_most_of_a_repository_counts() {
        let file = read(&json!({"auths": {
            "registry.example.com": {"auth": "whole"},
            "registry.example.com/team": {"auth": "team"},
            "registry.example.com/team/policies/": {"auth": "policies"},
            "https://urls.example.com/v1/": {"auth": "url"},
            "slash.example.com/": {"auth": "slash"},
            "both.example.com": {"auth": "name"},
            "https://both.example.com": {"auth": "url"},
            "https://index.docker.io/v1/": {"auth": "hub"},
            "docker.io/team": {"auth": "hub-team"},
            "localhost:5000/team": {"auth": "port"},
        }}));
        let found = |registry: &str, repository: &str| match file.entry(registry, repository) {
            Some(Entry::Kept(entry)) => entry["auth"].as_str().map(str::to_owned),
            other => panic!("{other:?}"),
        };
        for (registry, repository, expected) in [
            ("registry.example.com", "team/policies/image", "policies"),
            ("registry.example.com", "team/policies", "policies"),
            ("registry.example.com", "team/policies-of-others", "team"),
            ("registry.example.com", "teams/policies", "whole"),
            ("urls.example.com", "v1/policies", "url"),
            ("slash.example.com", "policies", "slash"),
            ("both.example.com", "policies", "name"),
            ("docker.io", "library/policies", "hub"),
            ("docker.io", "team/policies", "hub-team"),
            ("localhost:5000", "team/policies", "port"),
        ] {
            let found = found(registry, repository);
            assert_eq!(found.as_deref(), Some(expected), "{registry}/{repository}");
        }
        assert_eq!(file.entry("localhost:5000", "other/policies"), None);
        assert_eq!(file.entry("example.com", "team/policies"), None);
    }

    #[test]
    fn a_helper_of_the_registry_comes_first_and_the_store_last() {
        let file = read(&json!({
            "auths": {
                "one.example.com": {"auth": "kept"},
                "two.example.com": {"auth": "kept", "identitytoken": ""},
                "three.example.com": {},
            },
            "credHelpers": {"one.example.com": "own", "two.example.com": ""},
            "credsStore": "store",
        }));
        let entry = |registry| file.entry(registry, "policies");
        assert_eq!(entry("one.example.com"), Some(Entry::Helper("own")));
        let kept = Map::from_iter([("auth".to_owned(), json!("kept"))]);
        assert_eq!(entry("two.example.com"), Some(Entry::Kept(kept)));
        for registry in ["three.example.com", "four.example.com"] {
            assert_eq!(entry(registry), Some(Entry::Helper("store")));
        }
        assert_eq!(read(&json!({})).entry("one.example.com", "policies"), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_shown() {
        let text = br#"{"auths": {"registry.example.com": "the-secret"}}"#;
        let error = ConfigFile::read(text).err().unwrap();
        assert!(
            error.contains("line 1") && !error.contains("the-secret"),
            "{error}"
        );
    }
}
