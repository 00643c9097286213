//! Reads the manifest of an artifact, without its layer.

use std::collections::BTreeMap;

use tokio::time::timeout;
use tollgate_config::Reference;

use super::manifest::Manifest;
use super::{MAX_MANIFEST_BYTES, Registry, RegistryError};

/// The content of an artifact's manifest. The digest covers the annotations, but nothing proves that they are true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Digest of the manifest.
    pub digest: String,
    /// Size of the plugin, in bytes.
    pub size_bytes: u64,
    /// The annotations of the manifest, as they were pushed.
    pub annotations: BTreeMap<String, String>,
}

// === impl Registry ===

impl Registry {
    /// Reads the manifest of an artifact, and nothing else.
    ///
    /// # Errors
    /// When the manifest cannot be read, or is not that of a plugin.
    pub async fn describe(&self, reference: &Reference) -> Result<Described, RegistryError> {
        let described = timeout(self.config.timeout, self.read_manifest(reference)).await;
        described.unwrap_or_else(|_elapsed| Err(self.too_slow(&reference.registry)))
    }

    async fn read_manifest(&self, reference: &Reference) -> Result<Described, RegistryError> {
        let mut session = self.session(reference)?;
        let (digest, bytes) = session.manifest(session.name(), MAX_MANIFEST_BYTES).await?;
        expect_digest(reference, &digest)?;
        let manifest = Manifest::read(&bytes)?;
        let size_bytes = manifest.plugin()?.size;
        Ok(Described {
            digest,
            size_bytes,
            annotations: manifest.annotations,
        })
    }
}

/// Checks that a manifest has the digest that the reference names, if it names one.
pub(super) fn expect_digest(reference: &Reference, found: &str) -> Result<(), RegistryError> {
    match &reference.digest {
        Some(wanted) if wanted != found => Err(RegistryError::Digest {
            what: "the manifest",
            wanted: wanted.clone(),
            found: found.to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_digest_must_be_that_of_the_manifest() {
        let (one, other) = (
            ["sha256:", &"1".repeat(64)].concat(),
            ["sha256:", &"2".repeat(64)].concat(),
        );
        let pinned = Reference::parse(&format!("localhost/a@{one}")).unwrap();
        assert!(expect_digest(&pinned, &one).is_ok());
        let error = expect_digest(&pinned, &other).unwrap_err().to_string();
        assert!(error.contains(&one) && error.contains(&other), "{error}");
        let tagged = Reference::parse("localhost/a:1").unwrap();
        assert!(expect_digest(&tagged, &other).is_ok());
    }

    #[test]
    fn manifest_keeps_annotations_and_may_lack_them() {
        let manifest =
            r#"{"schemaVersion":2,"annotations":{"org.opencontainers.image.title":"a"}}"#;
        let read = Manifest::read(manifest.as_bytes()).unwrap();
        assert_eq!(read.annotations["org.opencontainers.image.title"], "a");
        let none = Manifest::read(br#"{"schemaVersion":2}"#).unwrap();
        assert!(none.annotations.is_empty());
        assert!(
            !serde_json::to_string(&none)
                .unwrap()
                .contains("annotations")
        );
    }
}
