//! References to artifacts in registries, and how registries are spoken to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use super::limit;
use super::read::{Fields, Node};

/// An artifact in a registry: `registry/repository:tag`, `registry/repository@sha256:…`, or both, where the digest is
/// what counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Host and, where it has one, port.
    pub registry: String,
    /// The repository's name.
    pub repository: String,
    /// A name that may move.
    pub tag: Option<String>,
    /// What it is, as `sha256:` and 64 hexadecimal digits.
    pub digest: Option<String>,
}

/// Text that is no reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the registry's host, the repository, and a tag or a digest, such as \
     registry.example.com/policies/image-rewrite:1.4 or registry.example.com/policies/image-rewrite@sha256:…"
)]
pub struct ReferenceError;

/// How registries are spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registries {
    /// How often a tag is looked at.
    pub poll_interval: Duration,
    /// How long one pull may take, with everything that it tries again.
    pub timeout: Duration,
    /// Where what was pulled is kept; without it nothing is.
    pub cache_directory: Option<PathBuf>,
    /// What may be kept there.
    pub max_cache_bytes: u64,
    /// A config file of docker or podman; without it, where these look for theirs.
    pub credentials: Option<PathBuf>,
    /// What is different about some of them.
    pub hosts: Vec<RegistryHost>,
}

/// What is different about a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryHost {
    /// Host and port, as references write them.
    pub host: String,
    /// The CAs that it is to be trusted by, in place of the system's.
    pub ca: Option<PathBuf>,
    /// Whether it is spoken to without TLS.
    pub plain_http: bool,
}

const EXPECTED: &str = "a reference such as oci://registry.example.com/policies/image-rewrite:1.4, with a tag or a digest";
const HOST_EXPECTED: &str =
    "a host and, where it has one, a port, such as registry.example.com:5000";

/// As the distribution specification and its reference implementation have it.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let host = r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?";
    let part = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*";
    let tag = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}";
    let digest = r"sha256:[0-9a-f]{64}";
    Regex::new(&format!(
        "^({host})/({part}(?:/{part})*)(?::({tag}))?(?:@({digest}))?$"
    ))
    .ok()
});
static HOST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?$")
        .ok()
});

/// The longest name of a repository.
const LONGEST_REPOSITORY: usize = 255;

// === impl Reference ===

impl Reference {
    /// Reads a reference, without `oci://`.
    ///
    /// # Errors
    ///
    /// When it is none, or has neither a tag nor a digest: nothing is taken to be `latest`.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let captures = REFERENCE
            .as_ref()
            .and_then(|regex| regex.captures(text))
            .ok_or(ReferenceError)?;
        let group = |index| captures.get(index).map(|part| part.as_str().to_owned());
        let reference = Self {
            registry: group(1).ok_or(ReferenceError)?,
            repository: group(2).ok_or(ReferenceError)?,
            tag: group(3),
            digest: group(4),
        };
        // `policies/image-rewrite:1.4` has no host: the first part of a host has a dot or a port, or is localhost.
        let host = &reference.registry;
        let is_host = host.contains(['.', ':']) || host == "localhost";
        let is_pinned = reference.tag.is_some() || reference.digest.is_some();
        if is_host && is_pinned && reference.repository.len() <= LONGEST_REPOSITORY {
            Ok(reference)
        } else {
            Err(ReferenceError)
        }
    }

    pub(crate) fn read(node: &Node<'_>, text: &str) -> Option<Self> {
        let reference = Self::parse(text).ok();
        if reference.is_none() {
            node.reject(EXPECTED);
        }
        reference
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

// === impl Registries ===

impl Registries {
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let mut fields = fields.section("registries");
        let base = Self::default();
        let hosts = fields
            .optional("hosts")
            .and_then(|node| node.elements("registries"))
            .unwrap_or_default();
        let registries = Self {
            poll_interval: fields.duration(&limit::POLL_INTERVAL, base.poll_interval),
            timeout: fields.duration(&limit::PULL_TIMEOUT, base.timeout),
            max_cache_bytes: fields.amount(&limit::MAX_CACHE, base.max_cache_bytes),
            cache_directory: fields
                .optional("cacheDirectory")
                .and_then(|node| node.path_in(folder)),
            credentials: fields
                .optional("credentials")
                .and_then(|node| node.path_in(folder)),
            hosts: hosts
                .iter()
                .filter_map(|node| RegistryHost::read(node, folder))
                .collect(),
        };
        fields.finish();
        registries
    }

    /// What is different about a registry.
    #[must_use]
    pub fn host(&self, host: &str) -> Option<&RegistryHost> {
        self.hosts.iter().find(|known| known.host == host)
    }
}

impl Default for Registries {
    fn default() -> Self {
        Self {
            poll_interval: limit::POLL_INTERVAL.default_duration(),
            timeout: limit::PULL_TIMEOUT.default_duration(),
            cache_directory: None,
            max_cache_bytes: limit::MAX_CACHE.default,
            credentials: None,
            hosts: Vec::new(),
        }
    }
}

// === impl RegistryHost ===

impl RegistryHost {
    fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        let mut fields = node.object()?;
        let host = fields.required("host", HOST_EXPECTED).and_then(|node| {
            let text = node.text(HOST_EXPECTED)?;
            let valid = HOST.as_ref().is_some_and(|regex| regex.is_match(text));
            if !valid {
                node.reject(HOST_EXPECTED);
            }
            valid.then(|| text.to_owned())
        });
        let ca = fields.optional("ca").and_then(|node| node.path_in(folder));
        let plain_http = fields
            .optional("plainHTTP")
            .and_then(|node| node.boolean())
            .unwrap_or(false);
        if plain_http && ca.is_some() {
            fields.problem(
                "ca",
                "expected no ca where plainHTTP is true: there is no TLS to trust",
            );
        }
        fields.finish();
        Some(Self {
            host: host?,
            ca,
            plain_http,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_references_and_writes_them_as_they_were() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for text in [
            "registry.example.com/policies/image-rewrite:1.4".to_owned(),
            "localhost/a:latest".to_owned(),
            "[::1]:5000/a/b_c/d__e-f:v1".to_owned(),
            format!("10.0.0.1:5000/a@{digest}"),
            format!("registry.example.com/a:1@{digest}"),
        ] {
            assert_eq!(Reference::parse(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn takes_nothing_for_granted() {
        for text in [
            "",
            "registry.example.com",
            "registry.example.com/a",
            "policies/image-rewrite:1.4",
            "registry.example.com/A:1",
            "registry.example.com/../a:1",
            "registry.example.com/a:1?x=y",
            "registry.example.com/a@sha256:abc",
            "user@registry.example.com/a:1",
            "https://registry.example.com/a:1",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }
}
