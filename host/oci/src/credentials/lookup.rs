//! Finds the entry for a repository in a config file of docker or podman.
//!
//! Docker's keys are registries, some of them as URLs. Podman's keys may also name a repository or a path above it,
//! such as `registry.example.com/team/policies`. The longest key that matches wins.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The parts of a config file that are about credentials.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigFile {
    auths: Option<BTreeMap<String, Map<String, Value>>>,
    creds_store: Option<String>,
    cred_helpers: Option<BTreeMap<String, String>>,
}

/// The place of a credential.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'f> {
    /// The file has the credential: these are its fields that are not empty.
    Kept(Map<String, Value>),
    /// A program has the credential: this is the part of its name after `docker-credential-`.
    Helper(&'f str),
}

/// The names of docker's own registry in references and files.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

// === impl ConfigFile ===

impl ConfigFile {
    /// Reads a config file. The error only names the position, because the text may be the secret.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            format!(
                "line {}, column {}: expected a config file of docker or podman, which is JSON",
                error.line(),
                error.column()
            )
        })
    }

    /// Finds the entry for a repository, in this order:
    ///
    /// 1. the registry's own helper
    /// 2. the file's entry for the repository, for a path above it, or for the registry
    /// 3. the helper for all other registries
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

    /// The fields that are kept for a place; `None` if all are empty. Docker writes an empty entry if a helper has the
    /// credential.
    fn kept(&self, at: &str) -> Option<Map<String, Value>> {
        let auths = self.auths.iter().flatten();
        let found = auths.filter(|(key, _)| place(key) == at);
        let kept = found.filter_map(|(key, entry)| {
            let mut entry = entry.clone();
            entry.retain(|_, value| value.as_str().is_some_and(|text| !text.is_empty()));
            (!entry.is_empty()).then_some((key, entry))
        });
        // The plain name of a registry wins over a URL.
        let kept = kept.min_by_key(|(key, _)| key.contains("://"));
        kept.map(|(_, entry)| entry)
    }
}

/// The registry, or the part of a registry, that a key is for. In a URL, only the host counts.
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
    fn most_specific_entry_wins() {
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
    fn registry_helper_comes_first_and_store_last() {
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
    fn parse_error_does_not_show_secret() {
        let text = br#"{"auths": {"registry.example.com": "the-secret"}}"#;
        let error = ConfigFile::read(text).err().unwrap();
        assert!(
            error.contains("line 1") && !error.contains("the-secret"),
            "{error}"
        );
    }
}
