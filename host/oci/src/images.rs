//! Verifies container images for plugins: resolves tags, finds signatures, and remembers the answers.
//!
//! ```text
//! question ─ known (cache)? ─▶ answer
//!   └─ look: one for equal questions, on a thread of its own, with few at a time for each registry
//!        tag ─ HEAD ─▶ digest      one look for all questions about the tag
//!        digest ─ signatures ─▶ policy met?   one look for all questions about the digest
//!      └─▶ cache
//! ```
//!
//! A look goes on when nobody waits for it any more. So a slow registry delays the first requests for an image, and a
//! repeated request finds the answer.
//!
//! With credentials of a Pod, everything is looked up and remembered for those who have the same credentials alone.

mod access;
mod cache;
mod looks;
mod verifier;

use std::sync::Arc;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use tollgate_admission::images::{Failure, Login, Refusal};
use tollgate_config::Reference;

use super::manifest::is_digest;
use super::session::{DOCKER_CONTENT_DIGEST, Session};
use super::signature::{Assessment, Readied};
use super::{MAX_MANIFEST_BYTES, Registry, RegistryError, describe};

pub use verifier::{BoundImages, Images};

/// Receives what happens about images.
pub trait ImageObserver: Send + Sync + std::fmt::Debug {
    /// A registry was asked about a tag or a digest. `result` is a word such as `verified`.
    fn looked(&self, result: &'static str);
    /// A registry has not answered, and an earlier verification counts.
    fn fell_back(&self);
    /// A request is about to be sent.
    fn requested(&self);
}

/// What a look at the signatures of a digest has found.
#[derive(Debug)]
pub(crate) enum Judged {
    /// The policy is met. These have signed.
    Met(Vec<Box<str>>),
    /// The policy is not met.
    Refused(Failure),
}

/// Why a registry gives no answer about an image.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    error: RegistryError,
    /// Whether the registry refuses a login of the Pod. A registry that refuses the host's own credentials, or a storage of
    /// layers that refuses a request, says nothing about the Pod.
    refuses_login: bool,
}

/// The manifests of images: those of OCI and of Docker, and the lists of both. A node asks for the same.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

// === impl Registry ===

impl Registry {
    /// Returns the digest that a tag has. None if the registry has no such tag.
    pub(crate) async fn image_digest(
        &self,
        image: &Reference,
        logins: &[Login],
    ) -> Result<Option<String>, NoAnswer> {
        let opened = self.opened(image, logins).await?;
        Ok(opened.map(|(_, digest)| digest))
    }

    /// Opens a session that sees an image, and returns the image's digest. The logins are tried in their order, and then the
    /// configured credentials, as a node does. None if the registry shows the image to none of them.
    async fn opened<'r>(
        &'r self,
        image: &'r Reference,
        logins: &'r [Login],
    ) -> Result<Option<(Session<'r>, String)>, NoAnswer> {
        let (mut refused, logins) = (None, logins.iter().map(Some));
        for login in logins.chain([None]) {
            let mut session = self.session(image)?.with_login(login);
            match session.image_digest().await {
                Ok(digest) => return Ok(Some((session, digest))),
                Err(error) if is_missing(&error) => {}
                // The first login is the one that the Pod means.
                Err(error) if is_refused(&error) => {
                    refused.get_or_insert(NoAnswer {
                        error,
                        refuses_login: login.is_some(),
                    });
                }
                // What comes later does not undo a refusal.
                Err(error) => return Err(refused.unwrap_or(error.into())),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Finds out whether the signatures of a digest meet a policy. `image` has the digest.
    pub(crate) async fn judge_image(
        &self,
        image: &Reference,
        digest: &str,
        policy: &Readied,
        logins: &[Login],
    ) -> Result<Judged, NoAnswer> {
        let mut session = if logins.is_empty() {
            self.session(image)?
        } else {
            // A registry that hides an image hides its signatures, too, and answers that there are none.
            match self.opened(image, logins).await? {
                Some((session, _)) => session,
                None => {
                    let reason = format!("{image}: the registry shows no such image");
                    return Ok(Judged::Refused(Failure::not_found(&reason)));
                }
            }
        };
        let trusted = policy.now_of(image, &self.roots)?;
        let manifest = match policy.policy().minimum_version {
            // Only the version is in the manifest.
            None => Vec::new(),
            Some(_) => {
                let (found, manifest) = session.image_manifest(digest).await?;
                describe::expect_digest(image, &found)?;
                manifest
            }
        };
        let mut assessment = Assessment::new(&trusted, digest, &manifest);
        let hold = self.hold();
        self.collect(&mut session, &trusted, &mut assessment, Some(&hold))
            .await?;
        if assessment.is_met() {
            return Ok(Judged::Met(assessment.signer_names()));
        }
        let reason = match assessment.refusal() {
            RegistryError::Unsigned { missing, found, .. } => format!("{missing}; found {found}"),
            other => other.to_string(),
        };
        let refusal = Refusal::new(digest, &reason);
        Ok(Judged::Refused(match assessment.is_empty() {
            true => Failure::Unsigned(refusal),
            false => Failure::Untrusted(refusal),
        }))
    }
}

// === impl NoAnswer ===

impl From<RegistryError> for NoAnswer {
    fn from(error: RegistryError) -> Self {
        Self {
            error,
            refuses_login: false,
        }
    }
}

// === impl Session ===

impl Session<'_> {
    /// The digest of the image, from a header of the registry, or else of its manifest. Registries limit how often
    /// manifests are pulled, and do not count a HEAD. A registry that names a wrong digest gains nothing: signatures are
    /// for a digest.
    async fn image_digest(&mut self) -> Result<String, RegistryError> {
        let path = self.path("manifests", self.name());
        let response = self.ask(Method::HEAD, &path, accept(), None).await?;
        let digest = response.headers().get(DOCKER_CONTENT_DIGEST);
        let digest = digest
            .and_then(|value| value.to_str().ok())
            .filter(|text| is_digest(text));
        match digest {
            Some(digest) => Ok(digest.to_owned()),
            None => Ok(self.image_manifest(self.name()).await?.0),
        }
    }

    /// The manifest of an image, with the digest of the bytes that arrived.
    async fn image_manifest(&mut self, name: &str) -> Result<(String, Vec<u8>), RegistryError> {
        let path = self.path("manifests", name);
        let response = self.ask(Method::GET, &path, accept(), None).await?;
        let too_large = || RegistryError::TooLarge {
            what: "the manifest",
            limit_bytes: MAX_MANIFEST_BYTES,
            setting: "the limit of the distribution specification",
        };
        let bytes = self.body(response, MAX_MANIFEST_BYTES, too_large).await?;
        Ok((super::cache::digest_of(&bytes), bytes))
    }
}

/// Whether a registry has no such image, or hides it.
fn is_missing(error: &RegistryError) -> bool {
    matches!(error, RegistryError::Status { status, .. } if *status == StatusCode::NOT_FOUND)
}

/// Whether a registry refuses the credentials, so that other ones may help.
fn is_refused(error: &RegistryError) -> bool {
    let RegistryError::Status { status, .. } = error else {
        return false;
    };
    matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

fn accept() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(MANIFESTS));
    headers
}

/// Passes the requests of a client on to the observer.
struct Requests(Arc<dyn ImageObserver>);

impl super::Progress for Requests {
    fn requested(&self) {
        self.0.requested();
    }

    fn pulling(&self, _total_bytes: u64) {}

    fn pushing(&self, _total_bytes: u64) {}

    fn received(&self, _bytes: u64) {}

    fn done(&self) {}
}
