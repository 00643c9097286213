//! Finds the credentials for an image in Secrets, by the rules of the kubelet.
//!
//! Source: `pkg/credentialprovider` of Kubernetes: `BasicDockerKeyring.Add` and `Lookup`, `URLsMatch`,
//! `DockerConfigEntry.UnmarshalJSON`. The kubelet uses names and passwords, and no identity tokens.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

/// The credentials of one Secret.
#[derive(PartialEq, Eq)]
pub struct PullSecret {
    entries: Vec<(Place, Login)>,
}

/// The type of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullSecretKind {
    /// `kubernetes.io/dockerconfigjson`: a config file of docker, with `auths`.
    DockerConfigJson,
    /// `kubernetes.io/dockercfg`: the entries alone.
    DockerCfg,
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub username: Arc<str>,
    /// The password or the token.
    pub password: Arc<str>,
}

/// Why the content of a Secret cannot be used. Shows no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    /// The content is too large.
    #[error("it has more than {MOST_BYTES} bytes")]
    TooLarge,
    /// The content has too many entries.
    #[error("it has more than {MOST_ENTRIES} entries")]
    TooMany,
    /// The content is no JSON of the expected form.
    #[error("line {line}, column {column}: expected a config file of docker, which is JSON")]
    Json {
        /// The line of the problem.
        line: usize,
        /// The column of the problem.
        column: usize,
    },
    /// A value of `auth` is malformed.
    #[error("expected each `auth` to be the Base64 form of NAME:PASSWORD")]
    Auth,
}

/// What a key of a config file is for: a host, whose parts may have wildcards, a port, and the beginning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Host, port and path, by which the kubelet sorts.
    key: String,
    parts: Vec<String>,
    port: String,
    path: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    auth: Option<String>,
}

/// Maximum size of the content of a Secret. Kubernetes allows 1 MiB.
const MOST_BYTES: usize = 64 << 10;
/// The most entries of one Secret.
const MOST_ENTRIES: usize = 256;
/// The most logins that are tried for one image.
const MOST_LOGINS: usize = 8;
/// Docker Hub in references, and the host of its entries.
const DOCKER_HUB: (&str, &str) = ("docker.io", "index.docker.io");
/// Base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the logins for a repository, the most specific ones first, as the kubelet tries them. Each login is there once.
#[must_use]
pub fn logins(secrets: &[Arc<PullSecret>], registry: &str, repository: &str) -> Vec<Login> {
    let entries = || secrets.iter().flat_map(|secret| &secret.entries);
    let (parts, port) = split(registry);
    let path = format!("/{repository}");
    let mut found: Vec<&(Place, Login)> = entries()
        .filter(|(place, _)| place.matches(&parts, port, &path))
        .collect();
    // The sort is stable: of equal keys, the first one in the Pod's order comes first.
    found.sort_by_key(|(place, _)| Reverse(place.key.as_str()));
    if found.is_empty() && registry == DOCKER_HUB.0 {
        found = entries()
            .filter(|(place, _)| place.key == DOCKER_HUB.1)
            .collect();
    }
    let mut logins: Vec<Login> = Vec::new();
    for (_, login) in found {
        if logins.len() < MOST_LOGINS && !logins.contains(login) {
            logins.push(login.clone());
        }
    }
    logins
}

// === impl PullSecret ===

impl PullSecret {
    /// Reads the content of a Secret.
    ///
    /// # Errors
    /// When the kubelet could not read it either, or when it is too large.
    pub fn read(kind: PullSecretKind, content: &[u8]) -> Result<Self, PullSecretError> {
        if content.len() > MOST_BYTES {
            return Err(PullSecretError::TooLarge);
        }
        // The library's error can quote the content.
        let failed = |error: serde_json::Error| PullSecretError::Json {
            line: error.line(),
            column: error.column(),
        };
        let auths = match kind {
            PullSecretKind::DockerConfigJson => {
                serde_json::from_slice::<File>(content)
                    .map_err(failed)?
                    .auths
            }
            PullSecretKind::DockerCfg => serde_json::from_slice(content).map_err(failed)?,
        };
        if auths.len() > MOST_ENTRIES {
            return Err(PullSecretError::TooMany);
        }
        let mut entries = Vec::with_capacity(auths.len());
        for (key, entry) in auths {
            let login = entry.login()?;
            if !login.username.is_empty() {
                entries.extend(Place::of(&key).map(|place| (place, login)));
            }
        }
        Ok(Self { entries })
    }
}

impl fmt::Debug for PullSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullSecret")
    }
}

// === impl Login ===

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

// === impl Entry ===

impl Entry {
    fn login(self) -> Result<Login, PullSecretError> {
        let (username, password) = match self.auth.filter(|auth| !auth.is_empty()) {
            Some(auth) => {
                let decoded = BASE64.decode(auth).ok();
                let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or(PullSecretError::Auth)?;
                let (username, password) = text.split_once(':').ok_or(PullSecretError::Auth)?;
                (username.to_owned(), password.to_owned())
            }
            None => (
                self.username.unwrap_or_default(),
                self.password.unwrap_or_default(),
            ),
        };
        Ok(Login {
            username: username.into(),
            password: password.into(),
        })
    }
}

// === impl Place ===

impl Place {
    /// Reads a key. None if it names no host.
    fn of(key: &str) -> Option<Self> {
        let rest = key
            .strip_prefix("https://")
            .or_else(|| key.strip_prefix("http://"))
            .unwrap_or(key);
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        let rest = &rest[..end];
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || host.contains('@') {
            return None;
        }
        // Docker takes /v1/ and /v2/ for the whole host.
        let path = match path.get(..4) {
            Some("/v1/" | "/v2/") => &path[3..],
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        let (parts, port) = split(host);
        Some(Self {
            key: format!("{host}{path}"),
            parts: parts.into_iter().map(str::to_owned).collect(),
            port: port.to_owned(),
            path: path.to_owned(),
        })
    }

    fn matches(&self, parts: &[&str], port: &str, path: &str) -> bool {
        self.port == port
            && self.parts.len() == parts.len()
            && path.starts_with(&self.path)
            && self
                .parts
                .iter()
                .zip(parts)
                .all(|(pattern, part)| is_match(pattern.as_bytes(), part.as_bytes()))
    }
}

/// Splits a host into its parts and its port.
fn split(host: &str) -> (Vec<&str>, &str) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    (name.split('.').collect(), port)
}

/// Whether a part of a host matches a pattern with `*` for any characters and `?` for one. The kubelet also knows lists of
/// characters in brackets, and a pattern with them matches nothing here: no host has such a part.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where to go on when the rest does not match: behind the last `*`, with one more character for it.
    let mut again = None;
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                again = Some((at, place));
                at += 1;
            }
            Some(b'?') => (at, place) = (at + 1, place + 1),
            Some(byte) if *byte == text[place] => (at, place) = (at + 1, place + 1),
            _ => {
                let Some((star, from)) = again else {
                    return false;
                };
                again = Some((star, from + 1));
                (at, place) = (star + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
