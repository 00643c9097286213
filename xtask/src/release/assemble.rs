//! Makes the files of a release from its parts.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::crates::Crates;
use super::intake::Artifact;
use super::provenance::{CYCLONEDX, PROVENANCE, SIGN, Subject, provenance, signature, statement};
use super::sbom::Materials;
use super::sign::Key;
use super::{Facts, artifact, package};
use crate::image::layout::{self, Contents, Files};
use crate::image::{self, Plugins};

/// Artifacts by the names of the plugins.
pub(super) type Artifacts = BTreeMap<String, Artifact>;

/// The parts of a release.
pub(super) struct Parts<'p> {
    pub(super) facts: &'p Facts,
    pub(super) program: &'p [u8],
    pub(super) plugins: &'p Plugins,
    pub(super) cas: &'p [u8],
    pub(super) artifacts: &'p Artifacts,
    pub(super) host: &'p Crates,
    pub(super) guests: &'p Crates,
    /// The folder of the sources.
    pub(super) root: &'p Path,
}

/// Signs what is attached to artifacts.
struct Signing<'s> {
    key: &'s Key,
    publish_to: Option<&'s str>,
    provenance: &'s Value,
}

/// The file with the checksums of all others.
pub(super) const SUMS: &str = "SHA256SUMS";

// === impl Parts ===

impl Parts<'_> {
    /// Makes the files, by their names.
    pub(super) fn assemble(
        &self,
        key: Option<&Key>,
        publish_to: Option<&str>,
    ) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        let (facts, version) = (self.facts, &self.facts.version);
        let materials = [Subject {
            name: "ca-certificates.crt".to_owned(),
            digest: layout::digest(self.cas),
        }];
        let provenance = provenance(facts, &materials);
        let signing = key.map(|key| Signing {
            key,
            publish_to,
            provenance: &provenance,
        });
        let boms = Materials {
            facts,
            binary: self.program,
            cas: self.cas,
            plugins: self.plugins,
            host: self.host,
            guests: self.guests,
        };
        let cyclonedx = boms.cyclonedx();
        let system = format!("tollgate-{version}-linux-{}", facts.architecture);
        let mut files = BTreeMap::from([
            (format!("{system}.tar.gz"), self.tarball()?),
            (
                format!("{system}.image.tar"),
                self.image(signing.as_ref(), &cyclonedx)?,
            ),
            (
                format!("tollgate-{version}.tgz"),
                self.folder("chart", "tollgate")?,
            ),
            (
                format!("tollgate-{version}-manifests.tar.gz"),
                self.folder("manifests", "manifests")?,
            ),
            (format!("tollgate-{version}.spdx.json"), boms.spdx()),
        ]);
        files.insert(format!("tollgate-{version}.cdx.json"), cyclonedx);
        for (name, artifact) in self.artifacts {
            let mut layout = artifact::layout(artifact, version)?;
            if let Some(signing) = &signing {
                signing.attach(&mut layout, &format!("plugins/{name}"), &artifact.digest)?;
            }
            let packed = layout::archive(&layout, facts.time)?;
            files.insert(format!("plugins/{name}-{version}.oci.tar"), packed);
        }
        let subjects = files.iter().map(|(name, bytes)| Subject {
            name: name.clone(),
            digest: layout::digest(bytes),
        });
        let subjects: Vec<Subject> = subjects.collect();
        let stated = statement(&subjects, PROVENANCE, &provenance);
        if let Some(key) = key {
            files.insert(
                format!("tollgate-{version}.provenance.sigstore.json"),
                key.bundle(&stated)?,
            );
        }
        files.insert(
            format!("tollgate-{version}.provenance.json"),
            format!("{stated:#}\n").into_bytes(),
        );
        files.insert(SUMS.to_owned(), sums(&files).into_bytes());
        Ok(files)
    }

    fn tarball(&self) -> anyhow::Result<Vec<u8>> {
        let licence = image::read(&self.root.join("LICENSE"))?;
        let files = [
            ("tollgate", 0o755, self.program),
            ("LICENSE", 0o644, &licence),
        ];
        package::files(&files, self.facts.time)
    }

    fn folder(&self, name: &str, top: &str) -> anyhow::Result<Vec<u8>> {
        package::folder(&self.root.join("deploy").join(name), top, self.facts.time)
    }

    /// The archive of the image, with its signature and attestations if there is a key.
    fn image(&self, signing: Option<&Signing<'_>>, bom: &[u8]) -> anyhow::Result<Vec<u8>> {
        let facts = self.facts;
        let contents = Contents {
            name: format!("localhost/tollgate:{}", facts.version),
            version: env!("CARGO_PKG_VERSION"),
            architecture: facts.architecture,
            time: facts.time,
            layer: image::root(self.program, self.plugins, self.cas, facts.time)?,
        };
        let (mut files, digest, docker) = contents.files()?;
        if let Some(signing) = signing {
            let subject = signing.attach(&mut files, "tollgate", &digest)?;
            let bom: Value = serde_json::from_slice(bom)?;
            let bom = statement(&[subject], CYCLONEDX, &bom);
            artifact::attach(&mut files, &signing.key.bundle(&bom)?, CYCLONEDX)?;
        }
        files.insert("manifest.json".to_owned(), docker);
        layout::archive(&files, facts.time)
    }
}

// === impl Signing ===

impl Signing<'_> {
    /// Attaches a signature and the provenance to an artifact. Returns the artifact as a subject.
    fn attach(&self, files: &mut Files, name: &str, digest: &str) -> anyhow::Result<Subject> {
        let repository = self
            .publish_to
            .map(|place| format!("{}/{name}", place.trim_end_matches('/')));
        let subject = Subject {
            name: repository.clone().unwrap_or_else(|| name.to_owned()),
            digest: digest.to_owned(),
        };
        let signed = signature(&subject, repository.as_deref());
        artifact::attach(files, &self.key.bundle(&signed)?, SIGN)?;
        let stated = statement(std::slice::from_ref(&subject), PROVENANCE, self.provenance);
        artifact::attach(files, &self.key.bundle(&stated)?, PROVENANCE)?;
        Ok(subject)
    }
}

/// The checksums in the format of `sha256sum`.
fn sums(files: &BTreeMap<String, Vec<u8>>) -> String {
    let lines = files.iter().map(|(name, bytes)| {
        let digest = layout::digest(bytes);
        format!("{}  {name}\n", digest.trim_start_matches("sha256:"))
    });
    lines.collect()
}

#[cfg(test)]
mod tests;
