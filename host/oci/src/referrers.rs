//! Asks a registry for the manifests that hold signatures of another manifest.
//!
//! Source: OCI distribution specification 1.1, "Listing Referrers" and the referrers tag schema.

use std::fmt;

use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::manifest::is_digest;
use super::session::{Session, accept};
use super::signature::{self, MAX_SIGNATURES, Place, bundle};
use super::{MAX_MANIFEST_BYTES, RegistryError};

/// The list of what refers to a manifest.
#[derive(Default, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Candidates,
}

/// The digests of a list that may be bundles. The others are dropped while the list is read, so a list of any length takes no
/// room.
#[derive(Default)]
struct Candidates {
    /// Those that the list says to be bundles.
    bundles: Vec<String>,
    /// Those of which the list does not say what they are.
    unknown: Vec<String>,
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
/// Maximum size of the manifest of a bundle, in bytes. cosign writes about 1 KiB.
const MAX_BYTES: u64 = 256 << 10;
/// Maximum size of the manifest under the tag, in bytes. It has a layer for each signature, of some KiB. A parsed manifest
/// takes several times its size.
const MAX_TAGGED_BYTES: u64 = 1 << 20;

// === impl Session ===

impl Session<'_> {
    /// The names of the manifests in this place that may hold signatures of the manifest with this digest. A place that does
    /// not exist has none.
    pub(super) async fn signature_names(
        &mut self,
        place: Place,
        digest: &str,
    ) -> Result<Vec<String>, RegistryError> {
        match place {
            Place::Tag => Ok(vec![signature::tag(digest)]),
            Place::Referrers => self.bundles(digest).await,
        }
    }

    /// One of these manifests, with its digest. None if it does not exist.
    pub(super) async fn signature(
        &mut self,
        place: Place,
        name: &str,
    ) -> Result<Option<(String, Vec<u8>)>, RegistryError> {
        let limit_bytes = match place {
            Place::Tag => MAX_TAGGED_BYTES,
            Place::Referrers => MAX_BYTES,
        };
        let (digest, manifest) = match (self.manifest(name, limit_bytes).await, place) {
            // Whoever may push can add such a manifest. It proves nothing, and hides no other.
            (Err(RegistryError::TooLarge { .. }), _) => (name.to_owned(), Vec::new()),
            (manifest, Place::Tag) => return manifest.map(Some).or_else(absent),
            (manifest, Place::Referrers) => manifest?,
        };
        if place == Place::Referrers && digest != name {
            return Err(RegistryError::Digest {
                what: "the manifest of a signature",
                wanted: name.to_owned(),
                found: digest,
            });
        }
        Ok(Some((digest, manifest)))
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
    let index: Index = serde_json::from_slice(list).unwrap_or_default();
    let Candidates { bundles, unknown } = index.manifests;
    bundles
        .into_iter()
        .chain(unknown)
        .take(MAX_SIGNATURES)
        .collect()
}

// === impl Candidates ===

impl<'de> Deserialize<'de> for Candidates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Sorting)
    }
}

/// Sorts the elements of a list while it is read.
struct Sorting;

impl<'de> Visitor<'de> for Sorting {
    type Value = Candidates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of referrers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Candidates, A::Error> {
        let mut candidates = Candidates::default();
        while let Some(referrer) = list.next_element::<Referrer>()? {
            let sort = match referrer {
                _ if !is_digest(&referrer.digest) => continue,
                _ if referrer.is_bundle() => &mut candidates.bundles,
                _ if referrer.may_be_bundle() => &mut candidates.unknown,
                _ => continue,
            };
            if sort.len() < MAX_SIGNATURES {
                sort.push(referrer.digest);
            }
        }
        Ok(candidates)
    }
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

    #[test]
    fn list_of_any_length_names_a_few() {
        let digest = |index: usize| format!("sha256:{index:064x}");
        let entry =
            |index, kind: &str| serde_json::json!({"digest": digest(index), "artifactType": kind});
        let mut all: Vec<_> = (0..2_000).map(|index| entry(index, EMPTY_CONFIG)).collect();
        all.extend((2_000..4_000).map(|index| entry(index, bundle::BUNDLE_V03)));
        let list = serde_json::json!({ "manifests": all }).to_string();
        let found = bundles_in(list.as_bytes());
        assert_eq!(found.len(), MAX_SIGNATURES);
        assert_eq!(found[0], digest(2_000));
        let deep = format!(r#"{{"manifests": {}"#, "[".repeat(1 << 20));
        assert!(bundles_in(deep.as_bytes()).is_empty());
    }
}
