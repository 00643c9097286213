//! Whether container images are signed as a policy requires: the question, the answer, and who verifies them.
//!
//! The host finds the digest of a tag and the signatures of the digest, outside of the sandbox. A question without an
//! answer is [`Failure::Unavailable`]. It never counts as "verified".

mod fixed;
mod pull;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

pub use fixed::{FixedImage, FixedImages, FixedResult};
pub use pull::{
    Login, NoPullSecrets, PendingSecrets, PullSecret, PullSecretError, PullSecretKind, PullSecrets,
    Puller, Secrets, Unreadable, checked, logins,
};

/// Whether an image meets a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// The image, with Docker's abbreviations resolved, such as `docker.io/library/nginx:1.29`.
    pub image: Arc<str>,
    /// The name of a policy of the plugin's configuration, which grants it for this image.
    pub policy: Arc<str>,
    /// The Pod whose `imagePullSecrets` count. None if only the host's own credentials do.
    pub puller: Option<Arc<Puller>>,
}

/// An image that meets its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The digest that was verified.
    pub digest: Arc<str>,
    /// The names of the signers who have signed.
    pub signers: Arc<[Box<str>]>,
    /// Whether the registry has not answered, and an earlier verification of this digest counts.
    pub last_known_good: bool,
}

/// An image that does not meet its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The digest whose signatures were examined.
    pub digest: Arc<str>,
    /// The rules that are not met, and what was found.
    pub reason: Arc<str>,
}

/// Why an image does not count as verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The registry has no such tag.
    NotFound(Arc<str>),
    /// The image has no signature.
    Unsigned(Refusal),
    /// The image has signatures or attestations, and they do not meet the policy.
    Untrusted(Refusal),
    /// Nobody can tell now. The text says why, and what to do about it.
    Unavailable(Arc<str>),
}

/// The answer to a question.
pub type Answer = Result<Verified, Failure>;

/// A question that has no answer yet.
pub type Pending<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Who verifies images: registries with the keys of the configuration, or a fixed list.
///
/// Implementations are called for many requests at once. Equal questions should share one look at a registry.
pub trait ImageVerifier: fmt::Debug + Send + Sync {
    /// Returns the answer if it is known without waiting. None means that only [`ImageVerifier::ask`] can tell.
    fn known(&self, question: &Question) -> Option<Answer>;

    /// Finds out. The host drops the future when the plugin has waited for long enough.
    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a>;

    /// Returns the answer for a plugin that has waited for long enough: that of an earlier verification, or
    /// [`Failure::Unavailable`] for this reason.
    fn last_known_good(&self, question: &Question, reason: &str) -> Answer {
        let _ = question;
        Err(Failure::unavailable(reason))
    }
}

/// Nobody verifies images. Every answer is [`Failure::Unavailable`].
#[derive(Clone, Debug)]
pub struct NoImages {
    reason: Arc<str>,
}

/// The longest text that plugins get, in bytes.
const LONGEST_TEXT: usize = 1024;

// === impl Verified ===

impl Verified {
    /// The bytes of its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.digest.len()
            + self
                .signers
                .iter()
                .map(|signer| signer.len())
                .sum::<usize>()
    }
}

// === impl Failure ===

impl Failure {
    /// The answer that nobody can tell. Texts of more than 1 KiB are cut.
    #[must_use]
    pub fn unavailable(reason: &str) -> Self {
        Self::Unavailable(cut(reason))
    }

    /// The answer that a registry has no such tag.
    #[must_use]
    pub fn not_found(reason: &str) -> Self {
        Self::NotFound(cut(reason))
    }

    /// The bytes of its texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::NotFound(reason) | Self::Unavailable(reason) => reason.len(),
            Self::Unsigned(refusal) | Self::Untrusted(refusal) => {
                refusal.digest.len() + refusal.reason.len()
            }
        }
    }

    /// The name of the answer in metrics and suites.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not-found",
            Self::Unsigned(_) => "unsigned",
            Self::Untrusted(_) => "untrusted",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// Creates a refusal. Texts of more than 1 KiB are cut.
    #[must_use]
    pub fn new(digest: &str, reason: &str) -> Self {
        Self {
            digest: Arc::from(digest),
            reason: cut(reason),
        }
    }
}

fn cut(text: &str) -> Arc<str> {
    Arc::from(&text[..text.floor_char_boundary(LONGEST_TEXT)])
}

// === impl NoImages ===

impl NoImages {
    /// Creates a verifier that never answers. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: cut(reason),
        }
    }

    fn answer(&self) -> Answer {
        Err(Failure::Unavailable(self.reason.clone()))
    }
}

impl ImageVerifier for NoImages {
    fn known(&self, _question: &Question) -> Option<Answer> {
        Some(self.answer())
    }

    fn ask<'a>(&'a self, _question: &'a Question) -> Pending<'a> {
        Box::pin(std::future::ready(self.answer()))
    }
}
