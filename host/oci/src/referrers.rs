//! Asks a registry for the manifests that hold signatures of another manifest.
//!
//! Source: OCI distribution specification 1.1, "Listing Referrers" and the referrers tag schema.

use reqwest::{Method, StatusCode};
use serde::Deserialize;

use super::manifest::is_digest;
use super::session::{Session, accept};
use super::signature::{self, MAX_SIGNATURES, Place, bundle};
use super::{MAX_MANIFEST_BYTES, RegistryError};

/// The list of what refers to a manifest.
#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Referrer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: String,
    #[serde(default)]
    artifact_type: Option<String>,
}

/// Media type of the config of an artifact without one.
const EMPTY_CONFIG: &str = "application/vnd.oci.empty.v1+json";
/// Maximum size of the manifest of a bundle, in bytes. All of them are in memory at once. cosign writes about 1 KiB.
const MAX_BYTES: u64 = 256 << 10;

// === impl Session ===

impl Session<'_> {
    /// The manifests in this place that hold signatures of the manifest with this digest, each with its own digest.
    /// A place that does not exist is empty.
    pub(super) async fn signatures(
        &mut self,
        place: Place,
        digest: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, RegistryError> {
        match place {
            Place::Tag => {
                let tag = signature::tag(digest);
                let manifest = self.manifest(&tag, MAX_MANIFEST_BYTES);
                Ok(manifest
                    .await
                    .map(Some)
                    .or_else(absent)?
                    .into_iter()
                    .collect())
            }
            Place::Referrers => {
                let mut found = Vec::new();
                for digest in self.bundles(digest).await? {
                    let (of_bytes, manifest) = match self.manifest(&digest, MAX_BYTES).await {
                        // Whoever may push can add such a manifest. It proves nothing, and hides no other.
                        Err(RegistryError::TooLarge { .. }) => (digest.clone(), Vec::new()),
                        manifest => manifest?,
                    };
                    if of_bytes != digest {
                        return Err(RegistryError::Digest {
                            what: "the manifest of a signature",
                            wanted: digest,
                            found: of_bytes,
                        });
                    }
                    found.push((of_bytes, manifest));
                }
                Ok(found)
            }
        }
    }

    /// The digests of the manifests that hold bundles about this manifest.
    async fn bundles(&mut self, digest: &str) -> Result<Vec<String>, RegistryError> {
        let kind = bundle::BUNDLE_V03.replace('/', "%2F").replace('+', "%2B");
        let path = format!("{}?artifactType={kind}", self.path("referrers", digest));
        let list = match self.ask(Method::GET, &path, accept(), None).await {
            Ok(response) => {
                let too_large = || RegistryError::TooLarge {
                    what: "the list of referrers",
                    limit_bytes: MAX_MANIFEST_BYTES,
                    setting: "the limit of the distribution specification",
                };
                Some(self.body(response, MAX_MANIFEST_BYTES, too_large).await?)
            }
            // A registry without the list. Whoever pushes a referrer there also writes it under a tag.
            Err(error) if is_unsupported(&error) => {
                let tag = digest.replace(':', "-");
                let manifest = self.manifest(&tag, MAX_MANIFEST_BYTES);
                let manifest = manifest.await.map(Some).or_else(absent)?;
                manifest.map(|(_, bytes)| bytes)
            }
            Err(error) => return Err(error),
        };
        Ok(list.map(|list| bundles_in(&list)).unwrap_or_default())
    }
}

/// The digests in a list of referrers that are bundles. A list that is no list is empty.
///
/// cosign 2.6 writes the type of the empty config into the list under a tag, and some registries do so in their answer.
/// The manifest says what such a referrer is, so it counts after those that the list says to be bundles.
pub(super) fn bundles_in(list: &[u8]) -> Vec<String> {
    let index: Index = serde_json::from_slice(list).unwrap_or(Index {
        manifests: Vec::new(),
    });
    let referrers = index.manifests.into_iter();
    let (bundles, others): (Vec<Referrer>, Vec<Referrer>) = referrers
        .filter(|referrer| is_digest(&referrer.digest))
        .partition(|referrer| referrer.is_bundle());
    let unknown = others.into_iter().filter(Referrer::may_be_bundle);
    bundles
        .into_iter()
        .chain(unknown)
        .map(|referrer| referrer.digest)
        .take(MAX_SIGNATURES)
        .collect()
}

// === impl Referrer ===

impl Referrer {
    fn is_bundle(&self) -> bool {
        self.artifact_type.as_deref().is_some_and(bundle::is_bundle)
    }

    /// Whether the list does not say what this is.
    fn may_be_bundle(&self) -> bool {
        self.artifact_type.as_deref() == Some(EMPTY_CONFIG)
    }
}

/// Turns "not found" into nothing.
fn absent<T>(error: RegistryError) -> Result<Option<T>, RegistryError> {
    match error {
        RegistryError::Status {
            status: StatusCode::NOT_FOUND,
            ..
        } => Ok(None),
        error => Err(error),
    }
}

/// Whether a registry does not list referrers. The specification asks for 404; some answer with the others.
fn is_unsupported(error: &RegistryError) -> bool {
    let RegistryError::Status { status, .. } = error else {
        return false;
    };
    matches!(
        *status,
        StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::BAD_REQUEST
            | StatusCode::NOT_IMPLEMENTED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_bundles_among_referrers() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let other = format!("sha256:{}", "b".repeat(64));
        let list = serde_json::json!({"manifests": [
            {"digest": other, "artifactType": EMPTY_CONFIG},
            {"digest": digest, "artifactType": bundle::BUNDLE_V03},
            {"digest": digest, "artifactType": "application/spdx+json"},
            {"digest": digest},
            {"digest": "../../etc", "artifactType": bundle::BUNDLE_V03},
        ]});
        assert_eq!(bundles_in(list.to_string().as_bytes()), [digest, other]);
        assert!(bundles_in(b"not a list").is_empty());
        assert!(bundles_in(b"{}").is_empty());
    }
}
