//! The credentials that a Pod brings along for its images: `imagePullSecrets`, as the kubelet uses them.
//!
//! The object under review says which Secrets count, so a plugin chooses none. A reader of Secrets is behind
//! [`PullSecrets`]. `Debug` shows no content of a Secret.

mod keyring;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tollgate_json::document::Json;

pub use keyring::{Login, PullSecret, PullSecretError, PullSecretKind, logins};

use crate::review::request::AdmissionRequest;

/// Who would pull the images of an object: a Pod, or the Pod of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Puller {
    /// The namespace of the Pod and of its Secrets.
    pub namespace: Arc<str>,
    /// The names of the Pod's Secrets, in their order. Empty means those of the service account.
    pub secrets: Arc<[Box<str>]>,
    /// The name of the service account.
    pub service_account: Arc<str>,
}

/// The Secrets of a puller, in their order. A Secret that does not exist is left out, as the kubelet does.
pub type Secrets = Result<Arc<[Arc<PullSecret>]>, Unreadable>;

/// The Secrets of a puller that are not read yet.
pub type PendingSecrets<'a> = Pin<Box<dyn Future<Output = Secrets> + Send + 'a>>;

/// Secrets cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unreadable {
    /// The reason, and what to do about it.
    pub reason: Arc<str>,
}

/// Who reads the Secrets of pullers: kube-apiserver.
///
/// Implementations are called for many requests at once, and read only what they are asked for. The caller has checked that
/// the configuration lists the namespace.
pub trait PullSecrets: fmt::Debug + Send + Sync {
    /// Returns the Secrets if they are known without waiting.
    fn known(&self, puller: &Puller) -> Option<Secrets>;

    /// Reads the Secrets.
    fn read<'a>(&'a self, puller: &'a Puller) -> PendingSecrets<'a>;
}

/// Nobody reads Secrets. Every answer is [`Unreadable`].
#[derive(Clone, Debug)]
pub struct NoPullSecrets {
    reason: Arc<str>,
}

/// The most Secrets of one Pod that count.
const MOST_SECRETS: usize = 16;

/// The service account of a Pod that names none.
const DEFAULT_ACCOUNT: &str = "default";
/// Kubernetes' limit for names.
const LONGEST_NAME: usize = 253;
/// The places of a Pod's spec in an object: in a CronJob, in other workloads, in a PodTemplate and in a Pod.
const SPECS: [&[&str]; 4] = [
    &["spec", "jobTemplate", "spec", "template", "spec"],
    &["spec", "template", "spec"],
    &["template", "spec"],
    &["spec"],
];

// === impl Puller ===

impl Puller {
    /// Returns who would pull the images of the object under review. None if the request is in no namespace, or if the
    /// object has no Pod's spec.
    #[must_use]
    pub fn of(request: &AdmissionRequest, object: Option<&Json>) -> Option<Self> {
        let namespace = request.namespace.as_deref()?;
        if !request.is_in_namespace(namespace) {
            return None;
        }
        let spec = spec_of(object?)?;
        let text = |name| spec.member(name).and_then(Json::as_text);
        let account = text("serviceAccountName")
            .or_else(|| text("serviceAccount"))
            .filter(|name| !name.is_empty())
            .unwrap_or(DEFAULT_ACCOUNT);
        let secrets = spec.member("imagePullSecrets").and_then(Json::as_array);
        let names = secrets.into_iter().flatten();
        let names = names.filter_map(|secret| secret.member("name").and_then(Json::as_text));
        Some(Self {
            namespace: Arc::from(namespace),
            secrets: checked(names).collect(),
            service_account: Arc::from(if is_name(account) {
                account
            } else {
                DEFAULT_ACCOUNT
            }),
        })
    }
}

/// Finds the spec of the Pod that an object is, or would become.
fn spec_of(object: &Json) -> Option<&Json> {
    SPECS.iter().find_map(|path| {
        let mut members = path.iter();
        let spec = members.try_fold(object, |value, name| value.member(name))?;
        spec.member("containers").and_then(Json::as_array)?;
        Some(spec)
    })
}

/// Returns the names that a Secret can have, each once, and not more than count. A name becomes part of a URL.
pub fn checked<'n>(names: impl Iterator<Item = &'n str>) -> impl Iterator<Item = Box<str>> {
    let mut known: Vec<&str> = Vec::new();
    let mut names = names.filter(|name| is_name(name));
    std::iter::from_fn(move || {
        let next = names.find(|name| !known.contains(name))?;
        known.push(next);
        Some(Box::from(next))
    })
    .take(MOST_SECRETS)
}

/// Returns whether text is a DNS-1123 subdomain, which is how Kubernetes names Secrets and service accounts.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

// === impl Unreadable ===

impl Unreadable {
    /// Creates the answer. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: Arc::from(reason),
        }
    }
}

// === impl NoPullSecrets ===

impl NoPullSecrets {
    /// Creates a reader that reads nothing. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: Arc::from(reason),
        }
    }

    fn answer(&self) -> Secrets {
        Err(Unreadable {
            reason: self.reason.clone(),
        })
    }
}

impl PullSecrets for NoPullSecrets {
    fn known(&self, _puller: &Puller) -> Option<Secrets> {
        Some(self.answer())
    }

    fn read<'a>(&'a self, _puller: &'a Puller) -> PendingSecrets<'a> {
        Box::pin(std::future::ready(self.answer()))
    }
}
