//! The whole suite of the project sigstore-conformance: every bundle that clients must accept or refuse. No network.
//!
//! The suite is not part of this repository. It is looked for in the folder that `TOLLGATE_SHARED` names, or in `shared`
//! beside the repository.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT;

use super::super::*;
use crate::signature::bundle;

/// The identity and its issuer that sign where a case does not name others.
const IDENTITY: &str = "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/.github/workflows/\
                        extremely-dangerous-oidc-beacon.yml@refs/heads/main";
const ISSUER: &str = "https://token.actions.githubusercontent.com";

/// The good cases that Tollgate refuses on purpose, and a part of the reason.
const BLOB: &str = "in a bundle of `cosign sign-blob`";
const VERSION: &str = "expected application/vnd.dev.sigstore.bundle.v0.3+json";

fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("TOLLGATE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("conformance/sigstore/bundle-verify");
    if folder.is_dir() {
        return Some(folder);
    }
    // Past the test harness, which swallows what a passing test prints.
    let skipped = format!(
        "SKIPPED: {} is missing; set TOLLGATE_SHARED to the folder of `conformance`\n",
        folder.display()
    );
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    None
}

/// A case of the suite.
struct Case {
    name: String,
    bundle: Vec<u8>,
    artifact: Vec<u8>,
    root: Result<Root, String>,
    /// None if the case has no key. One case has a key that is none.
    key: Result<Option<PublicKey>, String>,
    identity: String,
    issuer: String,
}

// === impl Case ===

impl Case {
    fn read(folder: &Path, suite: &Path) -> Self {
        let read = |name: &str| std::fs::read(folder.join(name)).ok();
        let text = |name: &str, default: &str| {
            let text = read(name).map(|bytes| String::from_utf8(bytes).unwrap());
            text.map_or_else(|| default.to_owned(), |text| text.trim().to_owned())
        };
        let root = read("trusted_root.json");
        let root = root.unwrap_or_else(|| SIGSTORE_PRODUCTION_TRUSTED_ROOT.as_bytes().to_vec());
        let key = read("key.pub").map(|key| {
            let key = pem::parse(key).map_err(|error| error.to_string())?;
            PublicKey::of(key.contents()).ok_or_else(|| "the key is of another kind".to_owned())
        });
        Self {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            bundle: read("bundle.sigstore.json").unwrap(),
            artifact: read("artifact")
                .unwrap_or_else(|| std::fs::read(suite.join("a.txt")).unwrap()),
            root: Root::of(&root),
            key: key.transpose(),
            identity: text("identity", IDENTITY),
            issuer: text("issuer", ISSUER),
        }
    }

    fn is_good(&self) -> bool {
        !self.name.ends_with("_fail")
    }

    /// The verification of a certificate's signature, of a file or a statement, as the suite asks for it.
    fn verify(&self) -> Result<(), String> {
        let root = self.root.as_ref().map_err(Clone::clone)?;
        let certified = root.verify_file(&self.bundle, &self.artifact)?;
        if certified.subject != self.identity || certified.issuer != self.issuer {
            return Err(format!("by {} of {}", certified.subject, certified.issuer));
        }
        Ok(())
    }

    /// The verification of an artifact in a registry.
    fn open(&self) -> Result<(), String> {
        let key = self.key.as_ref().map_err(Clone::clone)?;
        let keys: Vec<PublicKey> = key.iter().cloned().collect();
        let owners: &[(usize, &[PublicKey])] = &[(0, &keys)];
        let digest = format!("sha256:{:x}", Sha256::digest(&self.artifact));
        let root = self.root.as_ref().map_err(Clone::clone)?;
        bundle::open(owners, Some(root), &digest, &self.bundle)
            .map(drop)
            .map_err(|refusal| refusal.to_string())
    }
}

fn cases() -> Option<Vec<Case>> {
    let suite = folder()?;
    let entries = std::fs::read_dir(&suite).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= 69, "{} cases", folders.len());
    Some(
        folders
            .iter()
            .map(|folder| Case::read(folder, &suite))
            .collect(),
    )
}

#[test]
fn verifier_agrees_with_every_case_of_the_suite() {
    let Some(cases) = cases() else { return };
    // Signatures with a key are not the verifier's: Tollgate verifies them itself.
    let cases = cases
        .iter()
        .filter(|case| matches!(case.key, Ok(None)) && case.name != "managed-key-no-key_fail");
    let mut wrong = Vec::new();
    for case in cases {
        let verified = case.verify();
        println!("{} | {verified:?}", case.name);
        if verified.is_ok() != case.is_good() {
            wrong.push(format!("{}: {verified:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn artifacts_are_accepted_with_good_statements_alone() {
    let Some(cases) = cases() else { return };
    let mut counts = BTreeMap::<&str, usize>::new();
    for case in &cases {
        let opened = case.open();
        println!("{} | {opened:?}", case.name);
        let kind = match (&opened, case.is_good()) {
            (Ok(()), true) => "accepted",
            (Err(_), false) => "refused",
            (Err(error), true) if error.contains(BLOB) => "signs a file",
            (Err(error), true) if error.contains(VERSION) => "has an older format",
            (opened, _) => panic!("{}: {opened:?}", case.name),
        };
        *counts.entry(kind).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(counts["accepted"] >= 2, "{counts:?}");
}

#[test]
fn expired_certificates_count_at_a_proven_time_alone() {
    let Some(cases) = cases() else { return };
    for (name, reason) in [
        // The certificate has expired, and nothing proves when the signature was made.
        ("rekor2-no-timestamp_fail", "no verified timestamp"),
        // The proven time is outside of the certificate's validity.
        ("intoto-expired-certificate_fail", "CertNotValidYet"),
        (
            "intoto-set-outside-signing-cert-validity_fail",
            "CertExpired",
        ),
        (
            "intoto-tsa-timestamp-outside-cert-validity_fail",
            "CertExpired",
        ),
    ] {
        let case = cases.iter().find(|case| case.name == name);
        let error = case
            .unwrap_or_else(|| panic!("no case {name}"))
            .verify()
            .unwrap_err();
        println!("table | expired certificate without a timestamp | {name} | refused: {error}");
        assert!(error.contains(reason), "{name}: {error}");
    }
}
