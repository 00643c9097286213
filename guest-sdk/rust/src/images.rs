//! The `images` capability: whether container images are signed as a policy of the configuration requires. The host does
//! not load a plugin that uses [`verify`] unless its configuration has `images`.
//!
//! ```
//! use tollgate_sdk::images::{Request, verify};
//! use tollgate_sdk::prelude::*;
//!
//! fn validate(review: &Review) -> Result<(), Denial> {
//!     let at = pointer!["spec", "containers", 0, "image"];
//!     let Some(image) = review.object().text(&at) else {
//!         return Ok(());
//!     };
//!     for result in verify([Request::new(image, "release")]) {
//!         if let Err(failure) = result {
//!             return Err(Denial::new(format!("the image is not trusted: {failure}")));
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The host asks registries, and remembers the answers for as long as the configuration says. A question that it has to
//! pass on starts the call anew, so a plugin asks about all images in one call of [`verify`].

use std::fmt;

use crate::bindings::images::tollgate::admission::images as contract;
use crate::host;

/// An image, and the policy that it must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The image as the object names it, such as `nginx:1.29`.
    pub image: String,
    /// The name of a policy of the configuration.
    pub policy: String,
}

/// An image that meets its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The digest that was verified.
    pub digest: String,
    /// Whether the image names the digest itself. If not, its tag can lead to another digest by the time that a node
    /// pulls it.
    pub pinned: bool,
    /// The names of the signers who have signed.
    pub signers: Vec<String>,
    /// Whether a registry has not answered, and an earlier verification of this digest counts.
    pub last_known_good: bool,
}

/// An image that does not meet its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The digest whose signatures were examined.
    pub digest: String,
    /// The rules that are not met, and what was found.
    pub reason: String,
}

/// Why an image does not count as verified. A plugin that enforces denies the request in each of these cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No node could pull the image, or its digest is not SHA-256.
    Malformed(String),
    /// The configuration has no such policy, the policy does not cover the repository, or the registry is not listed.
    NotGranted(String),
    /// The registry has no such tag.
    NotFound(String),
    /// The image has no signature.
    Unsigned(Refusal),
    /// The image has signatures or attestations, and they do not meet the policy.
    Untrusted(Refusal),
    /// A registry has not answered, and no earlier answer counts. It must not count as "verified".
    Unavailable(String),
}

/// Verifies images, all at the same time. Returns an answer for each request, in the same order. A call may ask about at
/// most 128 different images; further ones are [`Failure::NotGranted`].
#[must_use]
pub fn verify(requests: impl IntoIterator<Item = Request>) -> Vec<Result<Verified, Failure>> {
    let requests = requests.into_iter().map(|request| contract::Request {
        image: request.image,
        policy: request.policy,
    });
    let requests: Vec<contract::Request> = requests.collect();
    let answers = host::verify_images(&requests);
    // A policy that goes over the answers would take an image without one for verified.
    assert_eq!(
        answers.len(),
        requests.len(),
        "the host has not answered all requests about images"
    );
    answers.into_iter().map(answer).collect()
}

fn answer(answer: Result<contract::Verified, contract::Failure>) -> Result<Verified, Failure> {
    let refusal = |refusal: contract::Refusal| Refusal {
        digest: refusal.digest,
        reason: refusal.reason,
    };
    match answer {
        Ok(verified) => Ok(Verified {
            digest: verified.digest,
            pinned: verified.pinned,
            signers: verified.signers,
            last_known_good: verified.last_known_good,
        }),
        Err(contract::Failure::Malformed(text)) => Err(Failure::Malformed(text)),
        Err(contract::Failure::NotGranted(text)) => Err(Failure::NotGranted(text)),
        Err(contract::Failure::NotFound(text)) => Err(Failure::NotFound(text)),
        Err(contract::Failure::Unsigned(found)) => Err(Failure::Unsigned(refusal(found))),
        Err(contract::Failure::Untrusted(found)) => Err(Failure::Untrusted(refusal(found))),
        Err(contract::Failure::Unavailable(text)) => Err(Failure::Unavailable(text)),
    }
}

// === impl Request ===

impl Request {
    /// Asks whether an image meets the policy with this name.
    #[must_use]
    pub fn new(image: impl Into<String>, policy: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            policy: policy.into(),
        }
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(f, "no valid image: {text}"),
            Self::NotGranted(text) => write!(f, "not granted: {text}"),
            Self::NotFound(text) => write!(f, "not found: {text}"),
            Self::Unsigned(refusal) => write!(f, "not signed: {}", refusal.reason),
            Self::Untrusted(refusal) => {
                write!(f, "not signed as required: {}", refusal.reason)
            }
            Self::Unavailable(text) => write!(f, "cannot be verified now: {text}"),
        }
    }
}

impl std::error::Error for Failure {}
