//! Bundles of Sigstore's public instances, good and bad, which the package `sigstore-verify` brings. No network.

mod suite;

use std::path::PathBuf;

use sigstore_verify::trust_root::{
    SIGSTORE_GITHUB_TRUSTED_ROOT, SIGSTORE_PRODUCTION_TRUSTED_ROOT, SIGSTORE_STAGING_TRUSTED_ROOT,
};

use super::*;

/// The folder with the bundles, in the package that cargo has downloaded to build this crate.
fn folder() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.unwrap().join("registry/src");
    let registries = std::fs::read_dir(&sources).unwrap();
    let packages =
        registries.flat_map(|registry| std::fs::read_dir(registry.unwrap().path()).unwrap());
    let mut folders = packages
        .map(|package| package.unwrap().path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(PACKAGE))
        })
        .map(|path| path.join("test_data"));
    folders
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| panic!("{PACKAGE} is not in {}", sources.display()))
}

/// The digest that a bundle's statement is about; zeros if it has none.
fn subject(bundle: &[u8]) -> String {
    let read = || {
        let bundle: Value = serde_json::from_slice(bundle).ok()?;
        let payload = BASE64
            .decode(bundle["dsseEnvelope"]["payload"].as_str()?)
            .ok()?;
        let statement: Value = serde_json::from_slice(&payload).ok()?;
        let mut subjects = statement["subject"].as_array()?.iter();
        let digest = subjects.find_map(|subject| subject["digest"]["sha256"].as_str())?;
        Some(format!("sha256:{digest}"))
    };
    read().unwrap_or_else(|| format!("sha256:{}", "0".repeat(64)))
}

/// The beginning of the name of the package that has the bundles.
const PACKAGE: &str = "sigstore-verify-0.15.";
const PRODUCTION: &str = "production";
const STAGING: &str = "staging";
const GITHUB: &str = "github";

fn roots() -> Vec<(&'static str, Root)> {
    let root = |text: &str| Root::of(text.as_bytes()).unwrap();
    vec![
        (PRODUCTION, root(SIGSTORE_PRODUCTION_TRUSTED_ROOT)),
        (STAGING, root(SIGSTORE_STAGING_TRUSTED_ROOT)),
        (GITHUB, root(SIGSTORE_GITHUB_TRUSTED_ROOT)),
    ]
}

#[test]
fn accepts_good_bundles_under_their_own_root_only() {
    let folder = folder();
    let roots = roots();
    for (file, own, identity) in [
        (
            "bundles/conda-attestation.sigstore.json",
            PRODUCTION,
            "https://github.com/",
        ),
        (
            "bundles/conda-attestation-rekor2.sigstore.json",
            STAGING,
            "",
        ),
        (
            "upstream/sigstore-python/a.dsse.staging-rekor-v2.txt.sigstore.json",
            STAGING,
            "",
        ),
    ] {
        let bundle = std::fs::read(folder.join(file)).unwrap();
        let digest = subject(&bundle);
        for (name, root) in &roots {
            let verified = root.verify(&bundle, &digest);
            match verified {
                Ok((certified, _)) => {
                    assert_eq!(*name, own, "{file}");
                    println!(
                        "{file} | {name} | {} of {}",
                        certified.subject, certified.issuer
                    );
                    assert!(certified.subject.starts_with(identity), "{file}");
                }
                Err(error) => {
                    assert_ne!(*name, own, "{file}: {error}");
                    println!("{file} | {name} | {error}");
                }
            }
            let other = root.verify(&bundle, OTHER);
            assert!(other.is_err(), "{file} is not about another artifact");
            let text = String::from_utf8(bundle.clone()).unwrap();
            let payload = text.find(r#""payload""#).unwrap() + 40;
            let mut changed = text.into_bytes();
            changed[payload] = if changed[payload] == b'A' { b'B' } else { b'A' };
            assert!(root.verify(&changed, &digest).is_err(), "{file}, changed");
        }
    }
    // The certificate of this bundle names no issuer that a policy could compare.
    let bundle = folder.join("bundles/github-private-attestation.sigstore.json");
    let bundle = std::fs::read(bundle).unwrap();
    let github = roots.iter().find(|(name, _)| *name == GITHUB).unwrap();
    let error = github.1.verify(&bundle, &subject(&bundle)).err().unwrap();
    assert!(error.contains("names no issuer"), "{error}");
}

/// Why a bundle of a file is refused, before anything else of it is looked at.
const FILE: &str = "it signs a file and not a statement";

/// The roots of the public instances, and one whose keys of the certificate logs are wrong.
fn all_roots() -> Vec<(&'static str, Root)> {
    let wrong = std::fs::read(folder().join("invalid-ct-key_fail/trusted_root.json")).unwrap();
    let mut roots = roots();
    roots.push(("wrong keys", Root::of(&wrong).unwrap()));
    roots
}

#[test]
fn refuses_bad_bundles() {
    let folder = folder();
    let roots = all_roots();
    for (file, reason) in [
        ("bundles/dsse-2sigs.sigstore.json", "exactly one signature"),
        (
            "bundles/bundle_invalid_version.txt.sigstore",
            "Invalid media type",
        ),
        // These sign files, which is not the signature of an artifact.
        ("invalid-ct-key_fail/bundle.sigstore.json", FILE),
        ("bundles/bundle_cve_2022_36056.txt.sigstore", FILE),
        ("bundles/bundle_no_cert_v1.txt.sigstore", FILE),
        ("bundles/bundle_no_checkpoint.txt.sigstore", FILE),
        ("bundles/bundle_no_log_entry.txt.sigstore", FILE),
        ("bundles/bundle_v3_no_signed_time.txt.sigstore.json", FILE),
        ("bundles/cosign-v3-blob.sigstore.json", FILE),
        ("managed-key/bundle.sigstore.json", FILE),
    ] {
        let bundle = std::fs::read(folder.join(file)).unwrap();
        let digest = subject(&bundle);
        for (name, root) in &roots {
            let error = root.verify(&bundle, &digest).map(drop).unwrap_err();
            assert!(error.contains(reason), "{file} | {name} | {error}");
        }
    }
}

/// Replaces a character of a text, counted from its end.
fn spoil(bundle: &mut Value, pointer: &str) {
    const FROM_END: usize = 12;
    let value = bundle.pointer_mut(pointer).unwrap();
    let mut text = value.as_str().unwrap().to_owned();
    let at = text.trim_end().len() - FROM_END;
    let other = if text.as_bytes()[at] == b'A' {
        "B"
    } else {
        "A"
    };
    text.replace_range(at..=at, other);
    *value = text.into();
}

/// Removes a member of the entry in the transparency log.
fn without(bundle: &mut Value, member: &str) {
    let entry = bundle.pointer_mut(ENTRY).unwrap();
    entry.as_object_mut().unwrap().remove(member).unwrap();
}

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

/// A change to a bundle, and a part of the reason why it is refused then.
type Change = (fn(&mut Value), &'static str);

#[test]
fn refuses_good_bundle_with_one_bad_part() {
    let file = folder().join("bundles/conda-attestation.sigstore.json");
    let good = std::fs::read(file).unwrap();
    let digest = subject(&good);
    let roots = all_roots();
    let production = &roots
        .iter()
        .find(|(name, _)| *name == PRODUCTION)
        .unwrap()
        .1;
    assert!(production.verify(&good, &digest).is_ok());
    let changes: [Change; 8] = [
        (
            |bundle| bundle["verificationMaterial"]["tlogEntries"] = Value::Array(Vec::new()),
            "must have an inclusion proof",
        ),
        (
            |bundle| without(bundle, "inclusionProof"),
            "must have an inclusion proof",
        ),
        (
            |bundle| without(bundle, "inclusionPromise"),
            "No verified timestamp found",
        ),
        (
            |bundle| {
                spoil(
                    bundle,
                    &format!("{ENTRY}/inclusionPromise/signedEntryTimestamp"),
                )
            },
            "invalid inclusion promise",
        ),
        (
            |bundle| {
                let proof = bundle.pointer_mut(ENTRY).unwrap();
                proof["inclusionProof"]["checkpoint"]["envelope"] = "".into();
            },
            "inclusion proof has no checkpoint",
        ),
        (
            |bundle| {
                spoil(
                    bundle,
                    &format!("{ENTRY}/inclusionProof/checkpoint/envelope"),
                )
            },
            "No valid Rekor signature found on checkpoint",
        ),
        (
            |bundle| {
                let hashes = &mut bundle.pointer_mut(ENTRY).unwrap()["inclusionProof"]["hashes"];
                hashes[0] = hashes[1].clone();
            },
            "inclusion proof verification failed",
        ),
        (
            |bundle| spoil(bundle, "/dsseEnvelope/signatures/0/sig"),
            "invalid signature",
        ),
    ];
    for (change, reason) in changes {
        let mut bundle: Value = serde_json::from_slice(&good).unwrap();
        change(&mut bundle);
        let bundle = bundle.to_string();
        let error = production.verify(bundle.as_bytes(), &digest);
        let error = error.map(drop).unwrap_err();
        assert!(error.contains(reason), "{reason} | {error}");
    }
    // The certificate is in a log that this root does not know.
    let (_, wrong) = roots.last().unwrap();
    let error = wrong.verify(&good, &digest).map(drop).unwrap_err();
    assert!(
        error.contains("invalid signed certificate timestamp"),
        "{error}"
    );
}

#[test]
fn refuses_expired_certificate_without_a_timestamp() {
    let (folder, roots) = (folder(), roots());
    // The certificates were valid for ten minutes, long ago. The first log signs a time, and the second one signs none.
    for (file, of, parent, member) in [
        (
            "bundles/conda-attestation.sigstore.json",
            PRODUCTION,
            ENTRY,
            "inclusionPromise",
        ),
        (
            "bundles/conda-attestation-rekor2.sigstore.json",
            STAGING,
            "/verificationMaterial",
            "timestampVerificationData",
        ),
        (
            "upstream/sigstore-python/a.dsse.staging-rekor-v2.txt.sigstore.json",
            STAGING,
            "/verificationMaterial",
            "timestampVerificationData",
        ),
    ] {
        let good = std::fs::read(folder.join(file)).unwrap();
        let digest = subject(&good);
        let (_, root) = roots.iter().find(|(name, _)| *name == of).unwrap();
        assert!(root.verify(&good, &digest).is_ok(), "{file}");
        let mut bundle: Value = serde_json::from_slice(&good).unwrap();
        let parent = bundle.pointer_mut(parent).unwrap();
        parent.as_object_mut().unwrap().remove(member).unwrap();
        let error = root.verify(bundle.to_string().as_bytes(), &digest);
        let error = error.map(drop).unwrap_err();
        println!("table | expired certificate without a timestamp | {file} | refused: {error}");
        assert!(
            error.to_lowercase().contains("no verified timestamp"),
            "{file}: {error}"
        );
    }
}
