//! Answers about images from a list, for reviews without registries.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Answer, Failure, ImageVerifier, Pending, Question, Refusal, Verified};

/// A fixed list of images. An image that is not in the list is not found.
#[derive(Clone, Debug, Default)]
pub struct FixedImages {
    images: Vec<FixedImage>,
}

/// An image, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedImage {
    /// The image, with Docker's abbreviations resolved.
    pub image: String,
    /// The policy. None means every policy.
    pub policy: Option<String>,
    /// The answer.
    pub result: FixedResult,
    /// The digest. None means that of the image, or else one that is made of its name.
    pub digest: Option<String>,
    /// The signers of a verified image.
    pub signers: Vec<String>,
    /// The reason of a failure. None means a general one.
    pub reason: Option<String>,
}

/// What is true of an image in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedResult {
    /// It meets the policy.
    Verified,
    /// Its registry does not answer, and it was verified before.
    LastKnownGood,
    /// It has no signature.
    Unsigned,
    /// Its signatures do not meet the policy.
    Untrusted,
    /// The registry does not have it.
    NotFound,
    /// Its registry does not answer.
    Unavailable,
}

// === impl FixedImages ===

impl FixedImages {
    /// Creates the list.
    #[must_use]
    pub fn new(images: impl IntoIterator<Item = FixedImage>) -> Self {
        Self {
            images: images.into_iter().collect(),
        }
    }

    fn answer(&self, question: &Question) -> Answer {
        let mut images = self.images.iter();
        match images.find(|image| image.is_about(question)) {
            Some(image) => image.answer(),
            None => Err(Failure::not_found(&format!(
                "no entry of images is about {}",
                question.image
            ))),
        }
    }
}

impl ImageVerifier for FixedImages {
    fn known(&self, question: &Question) -> Option<Answer> {
        Some(self.answer(question))
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a> {
        Box::pin(std::future::ready(self.answer(question)))
    }
}

// === impl FixedImage ===

impl FixedImage {
    /// Whether the entry is about the image. That of a tag is also about the digest that it gives to the tag.
    fn is_about(&self, question: &Question) -> bool {
        let is_it = match question.image.split_once('@') {
            None => *self.image == *question.image,
            Some((name, digest)) => {
                let own = self.image.split('@').next().unwrap_or_default();
                self.digest() == digest && repository(own) == repository(name)
            }
        };
        is_it
            && self
                .policy
                .as_ref()
                .is_none_or(|policy| **policy == *question.policy)
    }

    fn digest(&self) -> String {
        let own = self.image.split_once('@').map(|(_, digest)| digest);
        match self.digest.as_deref().or(own) {
            Some(digest) => digest.to_owned(),
            None => {
                let digest = Sha256::digest(self.image.as_bytes());
                let hex = digest.iter().map(|byte| format!("{byte:02x}"));
                format!("sha256:{}", hex.collect::<String>())
            }
        }
    }

    fn answer(&self) -> Answer {
        let reason = |general: &str| self.reason.as_deref().unwrap_or(general).to_owned();
        let refusal = |general: &str| Refusal::new(&self.digest(), &reason(general));
        match self.result {
            FixedResult::Verified | FixedResult::LastKnownGood => Ok(Verified {
                digest: Arc::from(self.digest()),
                signers: self
                    .signers
                    .iter()
                    .map(|name| name.as_str().into())
                    .collect(),
                last_known_good: self.result == FixedResult::LastKnownGood,
            }),
            FixedResult::Unsigned => Err(Failure::Unsigned(refusal("it has no signature"))),
            FixedResult::Untrusted => {
                Err(Failure::Untrusted(refusal("its signatures are by others")))
            }
            FixedResult::NotFound => {
                Err(Failure::not_found(&reason("the registry has no such tag")))
            }
            FixedResult::Unavailable => Err(Failure::unavailable(&reason(
                "the registry does not answer",
            ))),
        }
    }
}

/// Cuts off the tag. A colon before the last slash belongs to a port.
fn repository(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}
