use std::path::Path;

use ed25519_dalek::SigningKey;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair as _,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::*;

const DIGEST: &str = "sha256:6709a7cac516f66eaafca9072c7eea2de1217ef62cb4f2043080c803b464ffa8";
const OTHER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000001";

/// Returns the signature of bytes.
type Sign = dyn Fn(&[u8]) -> Vec<u8>;

/// Signs, and knows the public key.
struct Signer {
    public: PublicKey,
    sign: Box<Sign>,
}

impl Signer {
    fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, prefix: &[u8]) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let der = [prefix, pair.public_key().as_ref()].concat();
        let public = PublicKey::of(&der, Path::new("cosign.pub")).unwrap();
        let sign = move |bytes: &[u8]| pair.sign(&random, bytes).unwrap().as_ref().to_vec();
        Self {
            public,
            sign: Box::new(sign),
        }
    }

    fn p256() -> Self {
        let prefix = hex("3059301306072a8648ce3d020106082a8648ce3d030107034200");
        Self::ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, &prefix)
    }

    fn p384() -> Self {
        let prefix = hex("3076301006072a8648ce3d020106052b81040022036200");
        Self::ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, &prefix)
    }

    fn ed25519(prehashed: bool) -> Self {
        let key = SigningKey::from_bytes(&[7; 32]);
        let prefix = hex("302a300506032b6570032100");
        let der = [&prefix[..], key.verifying_key().as_bytes()].concat();
        let public = PublicKey::of(&der, Path::new("cosign.pub")).unwrap();
        let sign = move |bytes: &[u8]| {
            let signature = if prehashed {
                key.sign_prehashed(Sha512::new_with_prefix(bytes), None)
                    .unwrap()
            } else {
                ed25519_dalek::Signer::sign(&key, bytes)
            };
            signature.to_vec()
        };
        Self {
            public,
            sign: Box::new(sign),
        }
    }

    /// A bundle over a statement, as cosign 3 writes it.
    fn bundle(&self, statement: &Value) -> Value {
        let payload = statement.to_string().into_bytes();
        let signed = pre_authentication_encoding(STATEMENT_PAYLOAD, &payload);
        json!({
            "mediaType": BUNDLE_V03,
            "verificationMaterial": {"publicKey": {"hint": "a hint"}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": BASE64.encode(&payload),
                "payloadType": STATEMENT_PAYLOAD,
                "signatures": [{"sig": BASE64.encode((self.sign)(&signed))}],
            },
        })
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .map(|digit| digit.to_digit(16).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}

fn statement(digest: &str, predicate: &str) -> Value {
    json!({
        "_type": STATEMENTS[0],
        "subject": [{"name": "", "digest": {"sha256": digest.trim_start_matches("sha256:")}}],
        "predicateType": predicate,
        "predicate": {},
    })
}

fn verified(signer: &Signer, bundle: &Value) -> Result<(), Refusal> {
    verify(
        std::slice::from_ref(&signer.public),
        DIGEST,
        bundle.to_string().as_bytes(),
    )
    .map(drop)
}

#[test]
fn accepts_bundle_of_every_key_kind() {
    for signer in [
        Signer::p256(),
        Signer::p384(),
        Signer::ed25519(false),
        Signer::ed25519(true),
    ] {
        assert_eq!(
            verified(&signer, &signer.bundle(&statement(DIGEST, SIGN))),
            Ok(())
        );
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
    let refusal = verified(&signer, &sbom).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "that attests https://cyclonedx.org/bom, which is not a signature; expected the predicate type \
         https://sigstore.dev/cosign/sign/v1"
    );

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
    assert_eq!(keyless, Refusal::Keyless);
    let older = changed(|bundle| {
        bundle["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.2".into();
    });
    assert!(matches!(older, Refusal::Version(_)), "{older}");
    let blob = changed(|bundle| {
        bundle.as_object_mut().unwrap().remove("dsseEnvelope");
        bundle["messageSignature"] = json!({"signature": "AA=="});
    });
    assert_eq!(blob, Refusal::Blob);
    let refusal = verify(&[], DIGEST, b"{\"mediaType\": 1}").unwrap_err();
    assert!(matches!(refusal, Refusal::Unreadable(_)), "{refusal}");
}
