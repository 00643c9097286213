//! References to artifacts in registries, and the access to registries.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use super::limit;
use super::read::{Fields, Node};

/// A reference to an artifact: `registry/repository:tag`, `registry/repository@sha256:…`, or both. With both, the
/// digest decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The registry's host and, optionally, port.
    pub registry: String,
    /// The repository's name.
    pub repository: String,
    /// The tag, which may move to another artifact.
    pub tag: Option<String>,
    /// The artifact's digest: `sha256:` and 64 hexadecimal digits.
    pub digest: Option<String>,
}

/// The reason why a text is not a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The text has another form.
    #[error(
        "expected the registry's host, the repository, and a tag or a digest, such as \
         registry.example.com/policies/image-rewrite:1.4 or registry.example.com/policies/image-rewrite@sha256:…"
    )]
    Shape,
    /// The first part is not a host.
    #[error(
        "expected the registry's host first, with a dot or a port, or localhost, such as \
         registry.example.com/policies/image-rewrite:1.4"
    )]
    Host,
    /// The repository's name has capital letters.
    #[error(
        "expected a repository in lower case, such as registry.example.com/policies/image-rewrite:1.4"
    )]
    Case,
    /// The reference has neither a tag nor a digest.
    #[error(
        "expected a tag or a digest behind the repository, such as :1.4 or @sha256:…; no tag is assumed"
    )]
    Unpinned,
    /// The digest uses an unsupported algorithm.
    #[error(
        "expected a digest of `sha256:` and 64 hexadecimal digits; no other algorithm is supported"
    )]
    DigestAlgorithm,
    /// The digest has too few or too many characters.
    #[error(
        "expected a digest of `sha256:` and 64 hexadecimal digits, found {found} digits; write the whole digest"
    )]
    DigestLength {
        /// The number of characters found.
        found: usize,
    },
    /// The digest has characters that are not lower-case hexadecimal digits.
    #[error(
        "expected a digest of `sha256:` and 64 hexadecimal digits in lower case, found another character among them"
    )]
    DigestDigits,
}

/// The access to registries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registries {
    /// Interval at which a tag is polled.
    pub poll_interval: Duration,
    /// Timeout of one pull, with all its retries.
    pub timeout: Duration,
    /// Cache folder for pulled artifacts. Without it, nothing is cached.
    pub cache_directory: Option<PathBuf>,
    /// Maximum size of the cache.
    pub max_cache_bytes: u64,
    /// A config file of docker or podman with credentials. Without it, the files that docker and podman look for are
    /// used.
    pub credentials: Option<PathBuf>,
    /// Settings for individual registries.
    pub hosts: Vec<RegistryHost>,
}

/// Settings for one registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryHost {
    /// Host and port, as references write them.
    pub host: String,
    /// PEM file of the CAs to trust, instead of the system's CAs.
    pub ca: Option<PathBuf>,
    /// Whether the connection is made without TLS.
    pub plain_http: bool,
}

const HOST_EXPECTED: &str = "a host with an optional port, such as registry.example.com:5000";

/// The form of references in the distribution specification and its reference implementation.
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

/// Maximum length of a repository's name.
const LONGEST_REPOSITORY: usize = 255;

// === impl Reference ===

impl Reference {
    /// Reads a reference, without `oci://`.
    ///
    /// # Errors
    ///
    /// When the text is not a reference, or has neither a tag nor a digest. The tag `latest` is never assumed.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let shape = || ReferenceError::of(text);
        let captures = REFERENCE
            .as_ref()
            .and_then(|regex| regex.captures(text))
            .ok_or_else(shape)?;
        let group = |index| captures.get(index).map(|part| part.as_str().to_owned());
        let reference = Self {
            registry: group(1).ok_or(ReferenceError::Shape)?,
            repository: group(2).ok_or(ReferenceError::Shape)?,
            tag: group(3),
            digest: group(4),
        };
        if !is_host(&reference.registry) {
            return Err(ReferenceError::Host);
        }
        if reference.tag.is_none() && reference.digest.is_none() {
            return Err(ReferenceError::Unpinned);
        }
        if reference.repository.len() > LONGEST_REPOSITORY {
            return Err(ReferenceError::Shape);
        }
        Ok(reference)
    }

    /// Returns registry and repository, as patterns for repositories match them. The host is in lower case and without
    /// the port of HTTPS, so that another spelling does not lead to another policy.
    #[must_use]
    pub fn name(&self) -> String {
        let registry = self.registry.to_ascii_lowercase();
        let registry = registry.strip_suffix(":443").unwrap_or(&registry);
        format!("{registry}/{}", self.repository)
    }

    pub(crate) fn read(node: &Node<'_>, text: &str) -> Option<Self> {
        let reference = Self::parse(text);
        if let Err(error) = &reference {
            let text = error.to_string();
            node.reject(text.strip_prefix("expected ").unwrap_or(&text));
        }
        reference.ok()
    }
}

/// Returns whether text is the name of a host, with an optional port.
pub(super) fn is_host_name(text: &str) -> bool {
    HOST.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Returns whether text is a host: it has a dot or a port, or is localhost. So `policies/image-rewrite:1.4` has no
/// host.
fn is_host(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost"
}

// === impl ReferenceError ===

impl ReferenceError {
    /// Finds the reason why a text is not a reference.
    fn of(text: &str) -> Self {
        const ALGORITHM: &str = "sha256:";
        if let Some((before, digest)) = text.split_once('@') {
            // `user@host/…` has no digest.
            if !before.contains('/') {
                return Self::Shape;
            }
            let Some(digits) = digest.strip_prefix(ALGORITHM) else {
                return Self::DigestAlgorithm;
            };
            let found = digits.chars().count();
            if found != 64 {
                return Self::DigestLength { found };
            }
            if !digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            {
                return Self::DigestDigits;
            }
        }
        match text.split_once('/') {
            Some((host, repository)) if is_host(host) => {
                let repository = repository.split([':', '@']).next().unwrap_or_default();
                let lower = format!("{host}/{}:1", repository.to_lowercase());
                let is_case = repository.bytes().any(|byte| byte.is_ascii_uppercase())
                    && REFERENCE
                        .as_ref()
                        .is_some_and(|regex| regex.is_match(&lower));
                if is_case { Self::Case } else { Self::Shape }
            }
            _ => Self::Shape,
        }
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

    /// Returns the settings for a registry, if there are any.
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
            let valid = is_host_name(text);
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
                "expected no ca if plainHTTP is true, because there is no TLS",
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
    fn references_read_back_unchanged() {
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
    fn explains_invalid_references() {
        let table = [
            ("registry.example.com/a", ReferenceError::Unpinned),
            ("policies/image-rewrite:1.4", ReferenceError::Host),
            ("registry.example.com/Policies/A:1", ReferenceError::Case),
            (
                "registry.example.com/a@sha256:abc",
                ReferenceError::DigestLength { found: 3 },
            ),
            (
                "registry.example.com/a:1@sha256:",
                ReferenceError::DigestLength { found: 0 },
            ),
            (
                "registry.example.com/a@sha512:abc",
                ReferenceError::DigestAlgorithm,
            ),
            (
                "registry.example.com/a@abc",
                ReferenceError::DigestAlgorithm,
            ),
            ("user@registry.example.com/a:1", ReferenceError::Shape),
            ("https://registry.example.com/a:1", ReferenceError::Shape),
            ("registry.example.com", ReferenceError::Shape),
        ];
        for (text, expected) in table {
            assert_eq!(Reference::parse(text), Err(expected), "{text}");
        }
        let digest = format!("registry.example.com/a@sha256:{}", "A".repeat(64));
        assert_eq!(Reference::parse(&digest), Err(ReferenceError::DigestDigits));
        let digest = format!("registry.example.com/a@sha256:{}", "a".repeat(65));
        let error = Reference::parse(&digest).unwrap_err().to_string();
        assert!(error.contains("found 65 digits"), "{error}");
    }

    #[test]
    fn rejects_incomplete_references() {
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
