use serde_json::{Value, json};

use super::super::statement::SIGN;
use super::super::testing::{DIGEST, OTHER, Signer, statement};
use super::*;

fn opened(signer: &Signer, text: &[u8]) -> Result<Statement, Refusal> {
    let keys = [signer.public()];
    open(&[(0, &keys)], None, DIGEST, text).map(|(_, statement)| statement)
}

fn verified(signer: &Signer, bundle: &Value) -> Result<(), Refusal> {
    opened(signer, bundle.to_string().as_bytes()).map(drop)
}

#[test]
fn accepts_bundle_of_every_key_kind() {
    for (kind, signer) in Signer::every_kind() {
        let bundle = signer.bundle(&statement(DIGEST, SIGN));
        assert_eq!(verified(&signer, &bundle), Ok(()), "{kind}");
        let stranger = Signer::p256();
        assert_eq!(verified(&stranger, &bundle), Err(Refusal::Key), "{kind}");
    }
}

#[test]
fn refuses_what_a_trusted_key_has_not_signed() {
    let (signer, stranger) = (Signer::p256(), Signer::p256());
    let bundle = stranger.bundle(&statement(DIGEST, SIGN));
    assert_eq!(verified(&signer, &bundle), Err(Refusal::Key));

    // Another payload under the same signature.
    let mut bundle = signer.bundle(&statement(OTHER, SIGN));
    bundle["dsseEnvelope"]["payload"] = BASE64.encode(statement(DIGEST, SIGN).to_string()).into();
    assert_eq!(verified(&signer, &bundle), Err(Refusal::Key));

    // The type is signed, too.
    let mut bundle = signer.bundle(&statement(DIGEST, SIGN));
    bundle["dsseEnvelope"]["payloadType"] = "text/plain".into();
    assert_eq!(verified(&signer, &bundle), Err(Refusal::Key));

    bundle["dsseEnvelope"]["signatures"] = json!([]);
    assert_eq!(verified(&signer, &bundle), Err(Refusal::Key));
}

#[test]
fn refuses_signed_statement_that_is_not_a_signature_of_this_artifact() {
    let signer = Signer::p256();
    let bundle = signer.bundle(&statement(OTHER, SIGN));
    assert_eq!(
        verified(&signer, &bundle),
        Err(Refusal::Digest(OTHER.to_owned()))
    );

    let sbom = signer.bundle(&statement(DIGEST, "https://cyclonedx.org/bom"));
    let statement_of_sbom = opened(&signer, sbom.to_string().as_bytes()).unwrap();
    assert!(!statement_of_sbom.is_signature() && statement_of_sbom.is_sbom());

    let mut empty = statement(DIGEST, SIGN);
    empty["subject"] = json!([]);
    let refusal = verified(&signer, &signer.bundle(&empty));
    assert_eq!(refusal, Err(Refusal::Digest("no digest".to_owned())));
}

#[test]
fn refusal_names_other_kinds_of_bundles() {
    let signer = Signer::p256();
    let bundle = signer.bundle(&statement(DIGEST, SIGN));
    let changed = |change: fn(&mut Value)| {
        let mut bundle = bundle.clone();
        change(&mut bundle);
        verified(&signer, &bundle).unwrap_err()
    };
    let keyless = changed(|bundle| {
        bundle["verificationMaterial"] = json!({"certificate": {"rawBytes": "AA=="}});
    });
    assert_eq!(keyless, Refusal::NoRoot);
    let older = changed(|bundle| {
        bundle["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.2".into();
    });
    assert!(matches!(older, Refusal::Version(_)), "{older}");
    let blob = changed(|bundle| {
        bundle.as_object_mut().unwrap().remove("dsseEnvelope");
        bundle["messageSignature"] = json!({"signature": "AA=="});
    });
    assert_eq!(blob, Refusal::Blob);
    let refusal = opened(&signer, b"{\"mediaType\": 1}").unwrap_err();
    assert!(matches!(refusal, Refusal::Unreadable(_)), "{refusal}");
}
