//! Finds the part of an artifact that is the plugin.

use serde::{Deserialize, Serialize};

use super::RegistryError;

/// The manifest of a plugin's artifact.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<Descriptor>,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// The description of one part of an artifact.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// Why an artifact is not a plugin. All texts from the registry are escaped and cut.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The manifest cannot be parsed.
    #[error("cannot parse its manifest: {message}")]
    Manifest {
        /// The parser's message, which quotes text from the registry.
        message: String,
    },
    /// The manifest is an index or of another type.
    #[error("its manifest is of type `{found}`; expected {OCI_MANIFEST}")]
    ManifestType {
        /// Media type of the manifest.
        found: String,
    },
    /// The config is of an unknown type.
    #[error(
        "its config is of type `{found}`; expected {WASM_CONFIG}, or one of the older types {}",
        OTHER_CONFIGS.join(", ")
    )]
    ConfigType {
        /// Media type of the config.
        found: String,
    },
    /// The artifact does not have exactly one layer.
    #[error("it has {found} layers; expected one of type {WASM_LAYER}")]
    Layers {
        /// Number of layers.
        found: usize,
    },
    /// The layer is of an unknown type.
    #[error(
        "its layer is of type `{found}`; expected {WASM_LAYER}, or one of the older types {}: it is an image or \
         another kind of artifact",
        OTHER_LAYERS.join(", ")
    )]
    LayerType {
        /// Media type of the layer.
        found: String,
    },
    /// The digest of the layer has another form.
    #[error("the digest of its layer is `{found}`; expected sha256: and 64 hexadecimal digits")]
    LayerDigest {
        /// The digest in the manifest.
        found: String,
    },
    /// The manifest of a push cannot be written.
    #[error(transparent)]
    Write(serde_json::Error),
}

pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media types of the CNCF's artifact guidance for WebAssembly.
pub(super) const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
pub(super) const WASM_LAYER: &str = "application/wasm";
/// Other media types, which `wasm-to-oci`, Kubewarden's `kwctl`, `oras` and others have written before and beside that
/// guidance.
const OTHER_CONFIGS: [&str; 4] = [
    "application/vnd.wasm.config.v1+json",
    "application/vnd.oci.empty.v1+json",
    "application/vnd.unknown.config.v1+json",
    "application/vnd.oci.image.config.v1+json",
];
const OTHER_LAYERS: [&str; 3] = [
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
    "application/vnd.w3c.wasm.module.v1+wasm",
];

// === impl Manifest ===

impl Manifest {
    /// Reads a manifest of any kind.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, RegistryError> {
        serde_json::from_slice(bytes).map_err(|error| {
            // The error quotes text from the registry.
            let message = shown(&error.to_string());
            RegistryError::Artifact(ArtifactError::Manifest { message })
        })
    }

    /// The one layer that is the plugin.
    pub(super) fn plugin(&self) -> Result<&Descriptor, RegistryError> {
        let refused = |error: ArtifactError| Err(RegistryError::Artifact(error));
        let kind = self.media_type.as_deref().unwrap_or(OCI_MANIFEST);
        if kind != OCI_MANIFEST {
            return refused(ArtifactError::ManifestType { found: shown(kind) });
        }
        let config = self
            .config
            .as_ref()
            .map_or("none", |config| &config.media_type);
        if config != WASM_CONFIG && !OTHER_CONFIGS.contains(&config) {
            return refused(ArtifactError::ConfigType {
                found: shown(config),
            });
        }
        let [layer] = self.layers.as_slice() else {
            return refused(ArtifactError::Layers {
                found: self.layers.len(),
            });
        };
        if layer.media_type != WASM_LAYER && !OTHER_LAYERS.contains(&layer.media_type.as_str()) {
            return refused(ArtifactError::LayerType {
                found: shown(&layer.media_type),
            });
        }
        if !is_digest(&layer.digest) {
            return refused(ArtifactError::LayerDigest {
                found: shown(&layer.digest),
            });
        }
        Ok(layer)
    }
}

/// Text from the registry, escaped and cut to 100 characters.
fn shown(text: &str) -> String {
    text.chars()
        .take(100)
        .flat_map(char::escape_debug)
        .collect()
}

pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(config: &str, layers: &[&str]) -> Value {
        let digest = format!("sha256:{}", "0".repeat(64));
        let part = |kind: &str| json!({"mediaType": kind, "digest": digest, "size": 3});
        json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": part(config),
            "layers": layers.iter().map(|kind| part(kind)).collect::<Vec<_>>(),
        })
    }

    fn read(manifest: &Value) -> Result<u64, String> {
        let manifest = Manifest::read(manifest.to_string().as_bytes()).unwrap();
        manifest
            .plugin()
            .map(|layer| layer.size)
            .map_err(|error| tollgate_admission::chain(&error))
    }

    #[test]
    fn accepts_current_and_older_wasm_layouts() {
        assert_eq!(read(&manifest(WASM_CONFIG, &[WASM_LAYER])), Ok(3));
        for config in OTHER_CONFIGS {
            for layer in OTHER_LAYERS {
                assert_eq!(read(&manifest(config, &[layer])), Ok(3));
            }
        }
    }

    #[test]
    fn rejects_other_artifacts_and_names_their_type() {
        let refused = |manifest: &Value| read(manifest).unwrap_err();
        assert!(
            refused(&manifest(WASM_CONFIG, &[WASM_LAYER, WASM_LAYER])).contains("it has 2 layers")
        );
        assert!(refused(&manifest(WASM_CONFIG, &[])).contains("it has 0 layers"));
        let image = "application/vnd.oci.image.layer.v1.tar+gzip";
        assert!(refused(&manifest(WASM_CONFIG, &[image])).contains(image));
        assert!(
            refused(&manifest(
                "application/vnd.cncf.helm.config.v1+json",
                &[WASM_LAYER]
            ))
            .contains("helm")
        );
        let mut index = manifest(WASM_CONFIG, &[WASM_LAYER]);
        index["mediaType"] = json!("application/vnd.oci.image.index.v1+json");
        assert!(refused(&index).contains("image.index"));
        let mut other = manifest(WASM_CONFIG, &[WASM_LAYER]);
        other["layers"][0]["digest"] = json!("sha256:../../etc/passwd");
        assert!(refused(&other).contains("digest of its layer"));
    }
}
