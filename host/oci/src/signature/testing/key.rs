//! Keys of every kind.

use ed25519_dalek::SigningKey;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::super::key::PublicKey;

/// Returns the signature of bytes.
type Sign = dyn Fn(&[u8]) -> Vec<u8>;

/// Signs, and knows the public key.
pub(crate) struct Signer {
    /// The public key, as `SubjectPublicKeyInfo`.
    der: Vec<u8>,
    sign: Box<Sign>,
}

impl Signer {
    fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, prefix: &[u8]) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let der = [prefix, pair.public_key().as_ref()].concat();
        let sign = move |bytes: &[u8]| pair.sign(&random, bytes).unwrap().as_ref().to_vec();
        Self {
            der,
            sign: Box::new(sign),
        }
    }

    pub(crate) fn p256() -> Self {
        let prefix = hex("3059301306072a8648ce3d020106082a8648ce3d030107034200");
        Self::ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, &prefix)
    }

    pub(in super::super) fn p384() -> Self {
        let prefix = hex("3076301006072a8648ce3d020106052b81040022036200");
        Self::ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, &prefix)
    }

    pub(in super::super) fn ed25519(prehashed: bool) -> Self {
        let key = SigningKey::from_bytes(&[7; 32]);
        let prefix = hex("302a300506032b6570032100");
        let der = [&prefix[..], key.verifying_key().as_bytes()].concat();
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
            der,
            sign: Box::new(sign),
        }
    }

    /// An RSA key of openssl, because ring makes none. `encoding` is PKCS #1 v1.5 or PSS.
    fn rsa(encoding: &'static dyn RsaEncoding) -> Self {
        let arguments = [
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ];
        let output = std::process::Command::new("openssl")
            .args(arguments)
            .args(["-outform", "DER"])
            .output();
        let output = output.expect("openssl is installed");
        // openssl 3.0 writes the inner form of PKCS #1.
        let pair = RsaKeyPair::from_pkcs8(&output.stdout);
        let pair = pair.or_else(|_| RsaKeyPair::from_der(&output.stdout));
        let pair = pair.expect("openssl makes keys");
        let key = pair.public_key().as_ref();
        let der = sequence(&[&hex("300d06092a864886f70d0101010500"), &bit_string(key)]);
        let sign = move |bytes: &[u8]| {
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), bytes, &mut signature)
                .unwrap();
            signature
        };
        Self {
            der,
            sign: Box::new(sign),
        }
    }

    /// One key of every kind that cosign signs with, by its name.
    pub(in super::super) fn every_kind() -> Vec<(&'static str, Self)> {
        vec![
            ("ECDSA P-256", Self::p256()),
            ("ECDSA P-384", Self::p384()),
            ("Ed25519", Self::ed25519(false)),
            ("Ed25519ph", Self::ed25519(true)),
            ("RSA PKCS #1 v1.5", Self::rsa(&RSA_PKCS1_SHA256)),
            ("RSA PSS", Self::rsa(&RSA_PSS_SHA256)),
        ]
    }

    /// The public key.
    pub(in super::super) fn public(&self) -> PublicKey {
        PublicKey::of(&self.der).unwrap()
    }

    /// The public key, as cosign writes it.
    pub(crate) fn pem(&self) -> String {
        pem::encode(&pem::Pem::new("PUBLIC KEY", self.der.clone()))
    }

    /// A signature of bytes.
    pub(in super::super) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        (self.sign)(bytes)
    }

    /// A bundle over a statement, as cosign 3 writes it.
    pub(crate) fn bundle(&self, statement: &Value) -> Value {
        let payload = statement.to_string().into_bytes();
        let signature = self.sign(&super::encoding(&payload));
        let material = json!({"publicKey": {"hint": "a hint"}, "tlogEntries": []});
        super::bundle(&material, &payload, &signature)
    }
}

/// A value in DER with a tag.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut bytes = vec![tag];
    match length {
        0..0x80 => bytes.push(length as u8),
        0x80..0x100 => bytes.extend([0x81, length as u8]),
        _ => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    bytes.extend_from_slice(content);
    bytes
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(0x30, &parts.concat())
}

fn bit_string(bytes: &[u8]) -> Vec<u8> {
    tagged(0x03, &[&[0][..], bytes].concat())
}

/// Decodes hexadecimal digits.
pub(in super::super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .map(|digit| digit.to_digit(16).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}
