//! A whole release without the compiler: two times the same bytes, with SBOMs that list the crates of `Cargo.lock`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::*;
use crate::workspace::{WASM, Workspace};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// An Ed25519 key that openssl made for this test.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIN9ocSgLXgWVjFItQYn+gAV37YC821O4SIDpKAXTiJAJ\n-----END PRIVATE KEY-----\n";

fn facts() -> Facts {
    Facts {
        version: "0.1.0".to_owned(),
        target: TARGET.to_owned(),
        architecture: "amd64",
        time: 1_700_000_000,
        commit: "0".repeat(40),
        rust: "1.95.0".to_owned(),
        builder: "https://example.com/builder".to_owned(),
    }
}

fn artifact_of(wasm: &[u8]) -> Artifact {
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": layout::MANIFEST,
        "config": {"digest": layout::digest(b"{}")},
        "layers": [{"digest": layout::digest(wasm)}],
    });
    let manifest = manifest.to_string().into_bytes();
    let blobs = [b"{}".to_vec(), wasm.to_vec(), manifest.clone()];
    Artifact {
        digest: layout::digest(&manifest),
        blobs: blobs
            .into_iter()
            .map(|blob| (layout::digest(&blob), blob))
            .collect(),
    }
}

/// A release of this work tree with a stand-in for the binary and for one plugin.
fn release(workspace: &Workspace, key: Option<&Key>) -> BTreeMap<String, Vec<u8>> {
    let plugins = Plugins::from([("required_labels.wasm".to_owned(), b"wasm".to_vec())]);
    let artifacts = Artifacts::from([("required-labels".to_owned(), artifact_of(b"wasm"))]);
    let parts = Parts {
        facts: &facts(),
        program: b"program",
        plugins: &plugins,
        cas: b"CAs",
        artifacts: &artifacts,
        host: &Crates::of(workspace, &["tollgate-cli"], TARGET).unwrap(),
        guests: &Crates::of(workspace, &["required-labels"], WASM).unwrap(),
        root: workspace.root(),
    };
    parts
        .assemble(key, key.map(|_| "registry.example.com/tollgate"))
        .unwrap()
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn two_runs_give_equal_bytes() {
    let workspace = Workspace::find().unwrap();
    let first = release(&workspace, None);
    assert_eq!(first, release(&workspace, None));
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "SHA256SUMS",
            "plugins/required-labels-0.1.0.oci.tar",
            "tollgate-0.1.0-linux-amd64.image.tar",
            "tollgate-0.1.0-linux-amd64.tar.gz",
            "tollgate-0.1.0-manifests.tar.gz",
            "tollgate-0.1.0.cdx.json",
            "tollgate-0.1.0.provenance.json",
            "tollgate-0.1.0.spdx.json",
            "tollgate-0.1.0.tgz",
        ]
    );
    // The checksums are of the files, and the provenance has the same ones.
    let sums = String::from_utf8(first[SUMS].clone()).unwrap();
    let provenance = parsed(&first["tollgate-0.1.0.provenance.json"]);
    for (name, bytes) in first.iter().filter(|(name, _)| *name != SUMS) {
        let digest = layout::digest(bytes);
        let hex = digest.trim_start_matches("sha256:");
        assert!(sums.contains(&format!("{hex}  {name}\n")), "{name}");
        let mut subjects = provenance["subject"].as_array().unwrap().iter();
        let stated =
            subjects.any(|subject| subject["name"] == *name && subject["digest"]["sha256"] == hex);
        assert_eq!(stated, !name.contains("provenance"), "{name}");
    }
    // Nothing names this machine.
    let root = workspace.root().display().to_string();
    for (name, bytes) in &first {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(&root), "{name} names {root}");
    }
}

#[test]
fn sboms_list_the_crates_of_the_lock_that_are_in_the_binary() {
    let workspace = Workspace::find().unwrap();
    let files = release(&workspace, None);
    let lock = std::fs::read_to_string(workspace.root().join("Cargo.lock")).unwrap();
    let bom = parsed(&files["tollgate-0.1.0.cdx.json"]);
    let components = bom["components"].as_array().unwrap();
    let mut names = BTreeSet::new();
    for component in components {
        let text = |key: &str| component[key].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        if !text("bom-ref").starts_with("crate:") {
            continue;
        }
        let locked = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        let at = lock
            .find(&locked)
            .unwrap_or_else(|| panic!("{name} {version} is not in Cargo.lock"));
        let package = lock[at..].split("\n\n").next().unwrap();
        match component["hashes"][0]["content"].as_str() {
            Some(hash) => assert!(
                package.contains(&format!("checksum = \"{hash}\"")),
                "{name}"
            ),
            None => assert!(!package.contains("checksum = "), "{name}"),
        }
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{name} has no licence"
        );
        names.insert(name);
    }
    // What runs in the host, and in the plugin.
    for name in [
        "tollgate-cli",
        "tollgate-engine",
        "wasmtime",
        "ring",
        "rustls",
        "tokio",
        "tollgate-sdk",
    ] {
        assert!(names.contains(name), "{name} is missing");
    }
    // Macros, build scripts, tests, and other systems.
    for name in [
        "syn",
        "serde_derive",
        "cc",
        "proptest",
        "criterion",
        "insta",
        "windows-sys",
        "xtask",
        "tollgate-tests",
    ] {
        assert!(!names.contains(name), "{name} is not in the binary");
    }
    // Every reference resolves, in both formats, and both list the same.
    let mut references: BTreeSet<&str> = components
        .iter()
        .filter_map(|component| component["bom-ref"].as_str())
        .collect();
    assert_eq!(references.len(), components.len());
    references.insert(bom["metadata"]["component"]["bom-ref"].as_str().unwrap());
    for dependency in bom["dependencies"].as_array().unwrap() {
        let used = dependency["dependsOn"].as_array().unwrap().iter();
        for reference in used.chain([&dependency["ref"]]) {
            assert!(
                references.contains(reference.as_str().unwrap()),
                "{reference}"
            );
        }
    }
    let spdx = parsed(&files["tollgate-0.1.0.spdx.json"]);
    let packages = spdx["packages"].as_array().unwrap();
    let ids: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["SPDXID"].as_str())
        .collect();
    assert_eq!(
        (packages.len(), ids.len()),
        (references.len(), references.len())
    );
    for relation in spdx["relationships"].as_array().unwrap() {
        assert!(
            ids.contains(relation["relatedSpdxElement"].as_str().unwrap()),
            "{relation}"
        );
    }
}

#[test]
fn key_signs_artifacts_and_provenance() {
    let workspace = Workspace::find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    std::fs::write(&path, KEY).unwrap();
    let key = Key::read(&path).unwrap();
    let first = release(&workspace, Some(&key));
    assert_eq!(
        first,
        release(&workspace, Some(&key)),
        "Ed25519 signatures do not differ"
    );
    let bundle = parsed(&first["tollgate-0.1.0.provenance.sigstore.json"]);
    let payload = BASE64
        .decode(bundle["dsseEnvelope"]["payload"].as_str().unwrap())
        .unwrap();
    assert_eq!(
        parsed(&payload),
        parsed(&first["tollgate-0.1.0.provenance.json"])
    );
    // The archive of the plugin has a signature and provenance that refer to its manifest.
    let archive = &first["plugins/required-labels-0.1.0.oci.tar"];
    let text = String::from_utf8_lossy(archive);
    for kind in [SIGN, PROVENANCE] {
        assert!(
            text.contains(&format!("\"dev.sigstore.bundle.predicateType\":\"{kind}\"")),
            "{kind}"
        );
    }
    let subject = artifact_of(b"wasm").digest;
    assert_eq!(
        text.matches(&format!("\"subject\":{{\"digest\":\"{subject}\""))
            .count(),
        2
    );
    // Other keys are refused with the reason.
    std::fs::write(&path, "no key").unwrap();
    let error = Key::read(&path).err().unwrap();
    assert!(
        format!("{error:#}").contains("expected one that `openssl genpkey"),
        "{error:#}"
    );
}
