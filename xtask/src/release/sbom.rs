//! Writes the bill of materials of a release, in the formats CycloneDX 1.6 and SPDX 2.3.
//!
//! Both list the same things: the binary and the plugins with their digests, the crates that are compiled into them with
//! their checksums, Rust's standard library, and the CAs of the image. Nothing depends on the time or the machine.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Facts;
use super::crates::{Crate, Crates, Id};
use crate::image::layout::{digest, rfc3339};

/// The parts that are listed.
pub(super) struct Materials<'m> {
    pub(super) facts: &'m Facts,
    pub(super) binary: &'m [u8],
    pub(super) cas: &'m [u8],
    /// File names and bytes of the plugins.
    pub(super) plugins: &'m crate::image::Plugins,
    /// The crates of the binary.
    pub(super) host: &'m Crates,
    /// The crates of the plugins.
    pub(super) guests: &'m Crates,
}

/// One line of the list.
struct Part {
    /// The name of the line in this document.
    reference: String,
    kind: &'static str,
    name: String,
    version: String,
    licence: String,
    sha256: Option<String>,
    purl: Option<String>,
    uses: BTreeSet<String>,
}

const BINARY: &str = "tollgate";
const NO_ASSERTION: &str = "NOASSERTION";

// === impl Materials ===

impl Materials<'_> {
    /// The document in the format CycloneDX 1.6.
    pub(super) fn cyclonedx(&self) -> Vec<u8> {
        let parts = self.parts();
        let component = |part: &Part| {
            let mut component = json!({
                "bom-ref": part.reference, "type": part.kind, "name": part.name, "version": part.version,
            });
            if !part.licence.is_empty() {
                component["licenses"] = json!([{"expression": part.licence}]);
            }
            if let Some(sha256) = &part.sha256 {
                component["hashes"] = json!([{"alg": "SHA-256", "content": sha256}]);
            }
            if let Some(purl) = &part.purl {
                component["purl"] = json!(purl);
            }
            component
        };
        let (binary, others) = parts
            .split_first()
            .map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        let document = json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "timestamp": rfc3339(self.facts.time),
                "component": binary.map(component),
            },
            "components": others.iter().map(component).collect::<Vec<_>>(),
            "dependencies": parts.iter().map(|part| json!({"ref": part.reference, "dependsOn": part.uses})).collect::<Vec<_>>(),
        });
        format!("{document:#}\n").into_bytes()
    }

    /// The document in the format SPDX 2.3.
    pub(super) fn spdx(&self) -> Vec<u8> {
        let parts = self.parts();
        let packages = parts.iter().map(|part| {
            let mut package = json!({
                "SPDXID": spdx_id(&part.reference), "name": part.name, "versionInfo": part.version,
                "downloadLocation": NO_ASSERTION, "filesAnalyzed": false, "copyrightText": NO_ASSERTION,
                "licenseConcluded": NO_ASSERTION,
                "licenseDeclared": if part.licence.is_empty() { NO_ASSERTION } else { &part.licence },
            });
            if let Some(sha256) = &part.sha256 {
                package["checksums"] = json!([{"algorithm": "SHA256", "checksumValue": sha256}]);
            }
            if let Some(purl) = &part.purl {
                package["externalRefs"] = json!([{
                    "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl,
                }]);
            }
            package
        });
        let packages: Vec<Value> = packages.collect();
        let relation = |from: &str, kind: &str, to: &str| json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to});
        let mut relations = Vec::new();
        for part in &parts {
            let from = spdx_id(&part.reference);
            if part.kind == "application" {
                relations.push(relation("SPDXRef-DOCUMENT", "DESCRIBES", &from));
            }
            let uses = part.uses.iter();
            relations.extend(uses.map(|used| relation(&from, "DEPENDS_ON", &spdx_id(used))));
        }
        let facts = self.facts;
        let content = digest(json!([packages, relations]).to_string().as_bytes());
        let document = json!({
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": format!("tollgate-{}", facts.version),
            "documentNamespace": format!(
                "{}/spdx/{}/{}", env!("CARGO_PKG_REPOSITORY"), facts.version, content.trim_start_matches("sha256:")
            ),
            "creationInfo": {
                "created": rfc3339(facts.time),
                "creators": [format!("Tool: tollgate-xtask-{}", facts.version)],
            },
            "packages": packages,
            "relationships": relations,
        });
        format!("{document:#}\n").into_bytes()
    }

    /// The binary first, then the plugins, the crates, Rust's standard library and the CAs.
    fn parts(&self) -> Vec<Part> {
        let facts = self.facts;
        let standard = format!("rust-std@{}", facts.rust);
        let own = |name: &str, reference: String, bytes: &[u8], uses: BTreeSet<String>| Part {
            reference,
            kind: "application",
            name: name.to_owned(),
            version: facts.version.clone(),
            licence: "Apache-2.0".to_owned(),
            sha256: Some(hex(bytes)),
            purl: None,
            uses,
        };
        let uses_of = |root: &Id| BTreeSet::from([reference(root), standard.clone()]);
        let host = self.host.roots.iter().flat_map(uses_of).collect();
        let mut parts = vec![own(BINARY, BINARY.to_owned(), self.binary, host)];
        for (file, bytes) in self.plugins {
            let name = file.trim_end_matches(".wasm").replace('_', "-");
            let root = self.guests.roots.iter().find(|root| root.name == name);
            let uses = root.map(uses_of).unwrap_or_default();
            parts.push(own(&name, format!("plugins/{name}"), bytes, uses));
        }
        let mut all = self.host.all.clone();
        for (id, more) in &self.guests.all {
            // A crate may use more crates in one program than in the other.
            let known = all.entry(id.clone()).or_insert_with(|| more.clone());
            known.uses.extend(more.uses.iter().cloned());
        }
        parts.extend(all.iter().map(|(id, known)| self.of_crate(id, known)));
        parts.push(Part {
            reference: standard.clone(),
            kind: "library",
            name: "rust-std".to_owned(),
            version: facts.rust.clone(),
            licence: "MIT OR Apache-2.0".to_owned(),
            sha256: None,
            purl: Some(format!("pkg:generic/rust-std@{}", facts.rust)),
            uses: BTreeSet::new(),
        });
        parts.push(Part {
            reference: "ca-certificates.crt".to_owned(),
            kind: "file",
            name: "ca-certificates.crt".to_owned(),
            version: "0".to_owned(),
            licence: String::new(),
            sha256: Some(hex(self.cas)),
            purl: None,
            uses: BTreeSet::new(),
        });
        parts
    }

    fn of_crate(&self, id: &Id, known: &Crate) -> Part {
        let purl = match &known.folder {
            // A crate of this repository is on no registry.
            Some(folder) => {
                let repository =
                    env!("CARGO_PKG_REPOSITORY").trim_start_matches("https://github.com/");
                format!("pkg:github/{repository}@{}#{folder}", self.facts.commit)
            }
            None => format!("pkg:cargo/{}@{}", id.name, id.version),
        };
        Part {
            reference: reference(id),
            kind: "library",
            name: id.name.clone(),
            version: id.version.clone(),
            licence: known.licence.clone(),
            sha256: known.checksum.clone(),
            purl: Some(purl),
            uses: known.uses.iter().map(reference).collect(),
        }
    }
}

fn reference(id: &Id) -> String {
    format!("crate:{}@{}", id.name, id.version)
}

fn hex(bytes: &[u8]) -> String {
    digest(bytes).trim_start_matches("sha256:").to_owned()
}

/// The identifier of a package. SPDX allows letters, digits, `.` and `-`.
fn spdx_id(reference: &str) -> String {
    let allowed = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => letter.to_string(),
        // `_` and `-` must stay apart, because crates differ in them.
        other => format!("-{:x}-", u32::from(other)),
    };
    let text: String = reference.chars().map(allowed).collect();
    format!("SPDXRef-{text}")
}
