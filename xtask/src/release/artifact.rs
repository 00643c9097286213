//! Artifacts as OCI layouts, and what is attached to them: signatures and attestations as referrers.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::intake::Artifact;
use super::sign::BUNDLE;
use crate::image::layout::{Files, INDEX, INDEX_FILE, LAYOUT, MANIFEST, digest};

/// The config of a referrer, which has none.
const EMPTY: (&str, &[u8]) = ("application/vnd.oci.empty.v1+json", b"{}");

/// The layout of an artifact under a tag.
pub(super) fn layout(artifact: &Artifact, tag: &str) -> anyhow::Result<Files> {
    let bytes = artifact
        .blobs
        .get(&artifact.digest)
        .context("the manifest is missing")?;
    let mut entry = descriptor(MANIFEST, bytes);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
    let mut files = Files::from([
        (INDEX_FILE.to_owned(), index.to_string().into_bytes()),
        ("oci-layout".to_owned(), LAYOUT.to_vec()),
    ]);
    for (named, bytes) in &artifact.blobs {
        files.insert(path(named), bytes.clone());
    }
    Ok(files)
}

/// Attaches a bundle to the first manifest of a layout, as `cosign sign` and `cosign attest` do.
pub(super) fn attach(files: &mut Files, bundle: &[u8], predicate_type: &str) -> anyhow::Result<()> {
    let index = files.get(INDEX_FILE).context("the layout has no index")?;
    let mut index: Value = serde_json::from_slice(index)?;
    let first = &index["manifests"][0];
    let subject = json!({
        "mediaType": first["mediaType"], "digest": first["digest"], "size": first["size"],
    });
    let annotations = json!({
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": predicate_type,
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE,
        "config": descriptor(EMPTY.0, EMPTY.1),
        "layers": [descriptor(BUNDLE, bundle)],
        "subject": subject,
        "annotations": annotations,
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor(MANIFEST, &manifest);
    entry["artifactType"] = json!(BUNDLE);
    entry["annotations"] = annotations;
    index["manifests"]
        .as_array_mut()
        .context("the index has no manifests")?
        .push(entry);
    files.insert(INDEX_FILE.to_owned(), index.to_string().into_bytes());
    for bytes in [EMPTY.1, bundle, &manifest] {
        files.insert(path(&digest(bytes)), bytes.to_vec());
    }
    Ok(())
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}
