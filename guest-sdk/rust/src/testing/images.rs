//! The images of a test review: what the test says about them, by the host's rules.

use serde_json::Value as Json;

use super::host::read;
use crate::bindings::images::tollgate::admission::images::{Failure, Refusal, Request, Verified};
use crate::image::ImageReference;

/// What the test says about images.
#[derive(Clone, Debug, Default)]
pub(crate) enum Images {
    /// The capability is not granted.
    #[default]
    NotGranted,
    /// What registries have, and nothing else.
    Listed(Vec<Listed>),
}

/// An image, as in a suite.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    image: String,
    policy: Option<String>,
    result: Kind,
    digest: Option<String>,
    #[serde(default)]
    signers: Vec<String>,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Verified,
    LastKnownGood,
    Unsigned,
    Untrusted,
    NotFound,
    NotGranted,
    Unavailable,
}

/// The digest of a tag whose entry has none.
const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

pub(crate) fn verify_images(requests: &[Request]) -> Vec<Result<Verified, Failure>> {
    read(|review| {
        let answers = requests.iter().map(|request| review.images.answer(request));
        answers.collect()
    })
}

/// An image as the host reads it: Docker's abbreviations are resolved, and a digest is SHA-256.
struct Full {
    /// Registry, repository and tag.
    name: String,
    /// Registry and repository.
    repository: String,
    digest: Option<String>,
}

fn full(image: &str) -> Option<Full> {
    let image: ImageReference = image.parse().ok()?;
    let digest = image.digest().map(str::to_owned);
    if digest.as_deref().is_some_and(|digest| !is_sha256(digest)) {
        return None;
    }
    let repository = format!("{}/{}", image.registry(), image.repository());
    let tag = image.tag().unwrap_or("latest");
    Some(Full {
        name: format!("{repository}:{tag}"),
        repository,
        digest,
    })
}

fn is_sha256(digest: &str) -> bool {
    let hex = digest.strip_prefix("sha256:");
    hex.is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

// === impl Images ===

impl Images {
    pub(super) fn of(images: impl IntoIterator<Item = Json>) -> Self {
        let images = images.into_iter().map(|image| {
            let mut read: Listed = serde_json::from_value(image)
                .unwrap_or_else(|error| panic!("the test's image is malformed: {error}"));
            let Some(full) = full(&read.image) else {
                panic!("the test's image {} is no image", read.image);
            };
            let own = full.digest.unwrap_or_else(|| DIGEST.to_owned());
            read.digest.get_or_insert(own);
            read
        });
        Self::Listed(images.collect())
    }

    fn answer(&self, request: &Request) -> Result<Verified, Failure> {
        let Self::Listed(listed) = self else {
            let text = "the capability is not granted; a test grants it: TestReview::images";
            return Err(Failure::NotGranted(text.to_owned()));
        };
        let Some(asked) = full(&request.image) else {
            return Err(Failure::Malformed("expected an image".to_owned()));
        };
        let is_it = |listed: &&Listed| {
            listed.is_about(&asked)
                && listed
                    .policy
                    .as_ref()
                    .is_none_or(|policy| *policy == request.policy)
        };
        match listed.iter().find(is_it) {
            Some(listed) => listed.answer(asked.digest.is_some()),
            None => Err(Failure::NotFound(format!(
                "no entry of images is about {}",
                asked.name
            ))),
        }
    }
}

// === impl Listed ===

impl Listed {
    /// Whether the entry is about the image. That of a tag is also about the digest that it gives to the tag.
    fn is_about(&self, asked: &Full) -> bool {
        let Some(own) = full(&self.image) else {
            return false;
        };
        match &asked.digest {
            Some(digest) => {
                self.digest.as_ref() == Some(digest) && own.repository == asked.repository
            }
            None => own.digest.is_none() && own.name == asked.name,
        }
    }

    fn answer(&self, pinned: bool) -> Result<Verified, Failure> {
        let digest = self.digest.clone().unwrap_or_else(|| DIGEST.to_owned());
        let reason = |general: &str| self.reason.as_deref().unwrap_or(general).to_owned();
        let refusal = |general: &str| Refusal {
            digest: digest.clone(),
            reason: reason(general),
        };
        match self.result {
            Kind::Verified | Kind::LastKnownGood => Ok(Verified {
                digest,
                pinned,
                signers: self.signers.clone(),
                last_known_good: self.result == Kind::LastKnownGood,
            }),
            Kind::Unsigned => Err(Failure::Unsigned(refusal("it has no signature"))),
            Kind::Untrusted => Err(Failure::Untrusted(refusal("its signatures are by others"))),
            Kind::NotFound => Err(Failure::NotFound(reason("the registry has no such tag"))),
            Kind::NotGranted => Err(Failure::NotGranted(reason("the registry is not listed"))),
            Kind::Unavailable => Err(Failure::Unavailable(reason("the registry does not answer"))),
        }
    }
}
