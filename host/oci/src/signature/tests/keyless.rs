//! Keyless signatures of an own installation of Sigstore: every way in which one can be wrong.

use time::{Duration, OffsetDateTime};

use super::super::testing::{Identity, Sigstore};
use super::*;

const WORKFLOW: &str = "{ name: ci, issuer: 'https://token.actions.githubusercontent.com', subject: \
    'https://github.com/example/policies/.github/workflows/*@refs/tags/*' }";

/// A policy for the workflow, with this trusted root.
fn trusted(root: &Value, more: &str) -> Trusted {
    let root = Root::of(root.to_string().as_bytes()).unwrap();
    Trusted::of(
        policy(WORKFLOW, more),
        &reference(),
        vec![Vec::new()],
        Some(root),
    )
}

fn signature() -> Value {
    statement(DIGEST, SIGN)
}

#[test]
fn accepts_identities_at_proven_times() {
    let sigstore = Sigstore::new();
    let trusted = trusted(&sigstore.root(), "");
    let logged = Identity::workflow();
    let stamped = Identity {
        logged: None,
        is_stamped: true,
        ..logged.clone()
    };
    let both = Identity {
        is_stamped: true,
        ..logged.clone()
    };
    for identity in [logged, stamped, both] {
        let bundle = sigstore.bundle(&signature(), &identity);
        assert_eq!(judge(&trusted, None, &[bundle]), Ok(()), "{identity:?}");
    }
    // Long ago, and still valid: the time is proven.
    let year_ago = OffsetDateTime::now_utc() - Duration::days(365);
    let old = Identity {
        issued: year_ago,
        logged: Some(year_ago + Duration::minutes(1)),
        ..Identity::workflow()
    };
    assert_eq!(
        judge(&trusted, None, &[sigstore.bundle(&signature(), &old)]),
        Ok(())
    );
}

#[test]
fn refuses_other_identities() {
    let sigstore = Sigstore::new();
    let trusted = trusted(&sigstore.root(), "");
    let base = "https://github.com/example/policies/.github/workflows";
    for subject in [
        "https://github.com/attacker/policies/.github/workflows/release.yml@refs/tags/v1"
            .to_owned(),
        format!("{base}/release.yml@refs/heads/main"),
        // A branch with the name of a tag.
        format!("{base}/release.yml@refs/heads/x@refs/tags/v1"),
        format!("{base}/release.yml@refs/tags/v1/more"),
        "release@example.com".to_owned(),
    ] {
        let identity = Identity {
            subject: subject.clone(),
            ..Identity::workflow()
        };
        let bundle = sigstore.bundle(&signature(), &identity);
        refused(
            judge(&trusted, None, &[bundle]),
            &[
                &format!("one by the identity {subject} of"),
                "who is not a signer",
            ],
        );
    }
    let identity = Identity {
        issuer: "https://accounts.example.com".to_owned(),
        ..Identity::workflow()
    };
    let bundle = sigstore.bundle(&signature(), &identity);
    refused(
        judge(&trusted, None, &[bundle]),
        &["of https://accounts.example.com, who is not a signer"],
    );
}

#[test]
fn refuses_what_the_trusted_root_does_not_prove() {
    let (sigstore, other) = (Sigstore::new(), Sigstore::new());
    let trusted = trusted(&sigstore.root(), "");
    let now = OffsetDateTime::now_utc();
    let ago = |minutes| now - Duration::minutes(minutes);
    let workflow = Identity::workflow;
    let made = |identity: &Identity| sigstore.bundle(&signature(), identity);
    for (what, bundle, part) in [
        (
            "another installation",
            other.bundle(&signature(), &workflow()),
            "",
        ),
        (
            "expired, logged after its end",
            made(&Identity {
                issued: ago(60),
                logged: Some(ago(30)),
                ..workflow()
            }),
            "",
        ),
        (
            "expired, and no proven time",
            made(&Identity {
                issued: ago(60),
                logged: None,
                ..workflow()
            }),
            "No verified timestamp",
        ),
        (
            "expired, and stamped now",
            made(&Identity {
                issued: ago(60),
                logged: None,
                is_stamped: true,
                ..workflow()
            }),
            "",
        ),
        (
            "logged before the certificate",
            made(&Identity {
                issued: ago(5),
                logged: Some(ago(20)),
                ..workflow()
            }),
            "",
        ),
        (
            "logged in the future",
            made(&Identity {
                issued: ago(1),
                logged: Some(ago(-5)),
                ..workflow()
            }),
            "future",
        ),
        (
            "not in the certificate log",
            made(&Identity {
                is_in_certificate_log: false,
                ..workflow()
            }),
            "SCT",
        ),
    ] {
        println!("{what}");
        refused(
            judge(&trusted, None, &[bundle]),
            &["one in a bundle with a certificate that is not valid", part],
        );
    }
    let other_artifact = sigstore.bundle(&statement(OTHER, SIGN), &workflow());
    refused(
        judge(&trusted, None, &[other_artifact]),
        &["does not match any subject"],
    );
    let sbom = statement(DIGEST, "https://spdx.dev/Document");
    refused(
        judge(&trusted, None, &[sigstore.bundle(&sbom, &workflow())]),
        &["that attests https://spdx.dev/Document, which is not a signature, by the identity"],
    );
}

#[test]
fn refuses_changed_bundles() {
    let sigstore = Sigstore::new();
    let trusted = trusted(&sigstore.root(), "");
    let identity = Identity {
        is_stamped: true,
        ..Identity::workflow()
    };
    let bundle = sigstore.bundle(&signature(), &identity);
    assert_eq!(judge(&trusted, None, std::slice::from_ref(&bundle)), Ok(()));
    let second = sigstore.bundle(&signature(), &identity);
    let entry = "/verificationMaterial/tlogEntries/0";
    let places = [
        "/verificationMaterial/certificate/rawBytes".to_owned(),
        "/verificationMaterial/timestampVerificationData/rfc3161Timestamps/0/signedTimestamp"
            .to_owned(),
        "/dsseEnvelope/signatures/0/sig".to_owned(),
        format!("{entry}/canonicalizedBody"),
        format!("{entry}/inclusionPromise/signedEntryTimestamp"),
        format!("{entry}/inclusionProof/checkpoint/envelope"),
        format!("{entry}/inclusionProof/rootHash"),
        entry.to_owned(),
    ];
    for place in places {
        let mut changed = bundle.clone();
        // A valid part of another bundle.
        *changed.pointer_mut(&place).unwrap() = second.pointer(&place).unwrap().clone();
        println!("{place}");
        refused(
            judge(&trusted, None, &[changed]),
            &["certificate that is not valid"],
        );
    }
    for (place, value) in [
        (format!("{entry}/integratedTime"), json!("1700000000")),
        (format!("{entry}/logIndex"), json!("0")),
        (format!("{entry}/inclusionProof/logIndex"), json!("0")),
        (format!("{entry}/inclusionProof/hashes"), json!([])),
        (
            "/dsseEnvelope/payload".to_owned(),
            BASE64.encode(statement(OTHER, SIGN).to_string()).into(),
        ),
        ("/verificationMaterial/tlogEntries".to_owned(), json!([])),
    ] {
        let mut changed = bundle.clone();
        *changed.pointer_mut(&place).unwrap() = value;
        println!("{place}");
        refused(
            judge(&trusted, None, &[changed]),
            &["certificate that is not valid"],
        );
    }
}

#[test]
fn follows_rotated_roots() {
    let (old, new) = (Sigstore::new(), Sigstore::new());
    let mut both = old.root();
    for (key, list) in new.root().as_object().unwrap() {
        if let (Some(into), Some(more)) = (both[key].as_array_mut(), list.as_array()) {
            into.extend(more.iter().cloned());
        }
    }
    let bundle = |sigstore: &Sigstore| [sigstore.bundle(&signature(), &Identity::workflow())];
    let (by_old, by_new) = (bundle(&old), bundle(&new));
    for (root, accepts_old, accepts_new) in [
        (old.root(), true, false),
        (both, true, true),
        (new.root(), false, true),
    ] {
        let trusted = trusted(&root, "");
        assert_eq!(judge(&trusted, None, &by_old).is_ok(), accepts_old);
        assert_eq!(judge(&trusted, None, &by_new).is_ok(), accepts_new);
    }
}

#[test]
fn compares_the_time_of_the_certificate() {
    let sigstore = Sigstore::new();
    let year_ago = OffsetDateTime::now_utc() - Duration::days(365);
    let old = Identity {
        issued: year_ago,
        logged: Some(year_ago + Duration::minutes(1)),
        ..Identity::workflow()
    };
    let limit = OffsetDateTime::now_utc() - Duration::days(30);
    let trusted = trusted(&sigstore.root(), &format!("signedAfter: {}", limit.date()));
    assert_eq!(
        judge(
            &trusted,
            None,
            &[sigstore.bundle(&signature(), &Identity::workflow())]
        ),
        Ok(())
    );
    refused(
        judge(&trusted, None, &[sigstore.bundle(&signature(), &old)]),
        &["with a certificate of", "(signedAfter)"],
    );
}

#[test]
fn keys_do_not_need_the_root_and_certificates_do() {
    let (sigstore, key) = (Sigstore::new(), Signer::p256());
    let trusted = trusted_of_two([&key, &Signer::p384()], "");
    let keyless = sigstore.bundle(&signature(), &Identity::workflow());
    refused(
        judge(&trusted, None, std::slice::from_ref(&keyless)),
        &["one in a bundle with a certificate (keyless); expected a key"],
    );
    assert_eq!(
        judge(&trusted, None, &[keyless, key.bundle(&signature())]),
        Ok(())
    );
}

#[test]
fn rejects_unusable_roots() {
    let refused = |change: fn(&mut Value)| {
        let mut root = Sigstore::new().root();
        change(&mut root);
        Root::of(root.to_string().as_bytes()).err().unwrap()
    };
    assert!(
        refused(|root| root["mediaType"] = json!("text/plain"))
            .contains("its mediaType is text/plain")
    );
    assert!(
        refused(|root| root["certificateAuthorities"] = json!([]))
            .contains("no certificateAuthorities")
    );
    let no_time = refused(|root| {
        root["tlogs"] = json!([]);
        root["timestampAuthorities"] = json!([]);
    });
    assert!(no_time.contains("no time can be proven"), "{no_time}");
    assert!(Root::of(b"{}").is_err());
}
