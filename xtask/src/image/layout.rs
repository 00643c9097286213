//! Writes an image as an OCI layout and as an archive.
//!
//! The archive is the layout in a tar, with the `manifest.json` of docker beside it: docker, podman, containerd and kind
//! load it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::tar::Tar;

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The list of the manifests in a layout.
pub(crate) const INDEX_FILE: &str = "index.json";
/// The content of the file `oci-layout`.
pub(crate) const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// The bytes of the files of a layout, by their names.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// User and group of the process, as in other images without root.
const USER: &str = "65532:65532";

/// The parts of an image.
pub(crate) struct Contents {
    /// Name and tag.
    pub(crate) name: String,
    /// Version of the host.
    pub(crate) version: &'static str,
    /// Architecture, as images name it.
    pub(crate) architecture: &'static str,
    /// Time of the image in seconds since 1970.
    pub(crate) time: u64,
    /// The only layer, as a tar.
    pub(crate) layer: Vec<u8>,
}

/// A file of the layout with its description.
struct Blob {
    bytes: Vec<u8>,
    kind: &'static str,
}

// === impl Contents ===

impl Contents {
    /// Writes `layout` and `image.tar` into a folder. Returns the digest of the manifest.
    pub(crate) fn write(&self, output: &Path) -> anyhow::Result<String> {
        let (mut files, digest, docker) = self.files()?;
        write_layout(&output.join("layout"), &files)?;
        files.insert("manifest.json".to_owned(), docker);
        write_file(&output.join("image.tar"), &archive(&files, self.time)?)?;
        Ok(digest)
    }

    /// The files of the layout by their names, the digest of the manifest, and the `manifest.json` of docker.
    pub(crate) fn files(&self) -> anyhow::Result<(Files, String, Vec<u8>)> {
        let layer = Blob {
            bytes: compressed(&self.layer)?,
            kind: LAYER,
        };
        let config = Blob::json(CONFIG, &self.config());
        let annotations = json!({
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
            "org.opencontainers.image.title": "tollgate",
            "org.opencontainers.image.version": self.version,
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
            "annotations": annotations,
        });
        let manifest = Blob::json(MANIFEST, &manifest);
        let digest = digest(&manifest.bytes);
        let docker = json!([{
            "Config": config.path(),
            "RepoTags": [self.name],
            "Layers": [layer.path()],
        }]);
        let mut files = Files::from([
            (
                INDEX_FILE.to_owned(),
                self.index(&manifest).to_string().into_bytes(),
            ),
            ("oci-layout".to_owned(), LAYOUT.to_vec()),
        ]);
        let blobs = [config, layer, manifest];
        files.extend(blobs.into_iter().map(|blob| (blob.path(), blob.bytes)));
        Ok((files, digest, docker.to_string().into_bytes()))
    }

    fn config(&self) -> Value {
        json!({
            "architecture": self.architecture,
            "os": "linux",
            "created": rfc3339(self.time),
            "config": {
                "Entrypoint": ["/tollgate"],
                "User": USER,
                "WorkingDir": "/",
                "ExposedPorts": {"8443/tcp": {}, "8080/tcp": {}},
                "Labels": {"org.opencontainers.image.version": self.version},
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&self.layer)]},
            "history": [{"created": rfc3339(self.time), "created_by": "cargo xtask image"}],
        })
    }

    fn index(&self, manifest: &Blob) -> Value {
        let (_, tag) = self.name.rsplit_once(':').unwrap_or((&self.name, "latest"));
        let mut descriptor = manifest.descriptor();
        descriptor["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        descriptor["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]})
    }
}

// === impl Blob ===

impl Blob {
    fn json(kind: &'static str, value: &Value) -> Self {
        Self {
            bytes: value.to_string().into_bytes(),
            kind,
        }
    }

    fn path(&self) -> String {
        format!("blobs/{}", digest(&self.bytes).replace(':', "/"))
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.kind, "digest": digest(&self.bytes), "size": self.bytes.len()})
    }
}

/// Packs the files of a layout into an archive.
pub(crate) fn archive(files: &Files, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = Tar::new(time);
    for folder in ["blobs/", "blobs/sha256/"] {
        archive.folder(folder, 0o755)?;
    }
    for (name, bytes) in files {
        archive.file(name, 0o644, bytes)?;
    }
    Ok(archive.finish())
}

fn write_layout(folder: &Path, files: &Files) -> anyhow::Result<()> {
    // Blobs of an earlier image do not stay.
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for (name, bytes) in files {
        write_file(&folder.join(name), bytes)?;
    }
    Ok(())
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(cannot)?;
    }
    std::fs::write(path, bytes).with_context(cannot)
}

/// Compresses without the time and the name that gzip otherwise records.
pub(crate) fn compressed(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}")
}

/// Formats a time in seconds since 1970 as UTC.
pub(crate) fn rfc3339(time: u64) -> String {
    let (days, seconds) = (time / 86400, time % 86400);
    // Days since 0000-03-01, so that a leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times() {
        for (time, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(time), text);
        }
    }

    #[test]
    fn every_reference_of_the_layout_resolves() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents {
            name: "localhost/tollgate:1.2.3".to_owned(),
            version: "1.2.3",
            architecture: "amd64",
            time: 1_700_000_000,
            layer: vec![1; 2048],
        };
        let manifest_digest = contents.write(folder.path()).unwrap();
        let layout = folder.path().join("layout");
        let read = |descriptor: &Value| {
            let named = descriptor["digest"].as_str().unwrap();
            let bytes = std::fs::read(layout.join("blobs").join(named.replace(':', "/"))).unwrap();
            assert_eq!(digest(&bytes), named);
            assert_eq!(descriptor["size"], bytes.len());
            bytes
        };
        let parsed = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
        let index = parsed(&std::fs::read(layout.join("index.json")).unwrap());
        assert_eq!(index["manifests"][0]["digest"], manifest_digest);
        let manifest = parsed(&read(&index["manifests"][0]));
        let config = parsed(&read(&manifest["config"]));
        assert_eq!(config["config"]["User"], USER);
        let layer = read(&manifest["layers"][0]);
        let mut unpacked = Vec::new();
        std::io::copy(&mut flate2::read::GzDecoder::new(&*layer), &mut unpacked).unwrap();
        assert_eq!(unpacked, contents.layer);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&unpacked));
    }
}
