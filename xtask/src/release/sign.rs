//! Signs statements with a key, as Sigstore bundles that `tollgate verify` and cosign 3 accept.

use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A private key.
pub(super) enum Key {
    /// Two signatures over the same text differ.
    P256(EcdsaKeyPair),
    /// Two signatures over the same text are equal.
    Ed25519(Ed25519KeyPair),
}

/// Media type of bundles.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const STATEMENT: &str = "application/vnd.in-toto+json";
/// The beginnings of public keys in DER: the kind of the key. The key itself follows.
const P256_HEAD: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
const ED25519_HEAD: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

// === impl Key ===

impl Key {
    /// Reads an unencrypted private key from a PEM file, as `openssl genpkey` writes it.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(str::trim);
        let lines = lines
            .skip_while(|line| *line != "-----BEGIN PRIVATE KEY-----")
            .skip(1);
        let body: String = lines.take_while(|line| !line.starts_with('-')).collect();
        anyhow::ensure!(
            !body.is_empty(),
            "it has no PRIVATE KEY: expected one that `openssl genpkey -algorithm ED25519` writes"
        );
        let der = BASE64.decode(body).context("its base64 is not valid")?;
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der) {
            return Ok(Self::Ed25519(key));
        }
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &SystemRandom::new());
        key.map(Self::P256).map_err(|error| {
            anyhow::anyhow!("the key is of another kind ({error}): expected Ed25519 or ECDSA P-256")
        })
    }

    /// The public key in DER.
    fn public(&self) -> Vec<u8> {
        match self {
            Self::P256(key) => [P256_HEAD, key.public_key().as_ref()].concat(),
            Self::Ed25519(key) => [ED25519_HEAD, key.public_key().as_ref()].concat(),
        }
    }

    fn sign(&self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        Ok(match self {
            Self::P256(key) => {
                let signature = key.sign(&SystemRandom::new(), bytes);
                let signature = signature.ok().context("the system has no random numbers")?;
                signature.as_ref().to_vec()
            }
            Self::Ed25519(key) => key.sign(bytes).as_ref().to_vec(),
        })
    }

    /// Signs a statement. The bundle has no entry of a transparency log.
    pub(super) fn bundle(&self, statement: &Value) -> anyhow::Result<Vec<u8>> {
        let payload = statement.to_string();
        // The lengths and the type are signed with the payload: the pre-authentication encoding of DSSE.
        let signed = format!(
            "DSSEv1 {} {STATEMENT} {} {payload}",
            STATEMENT.len(),
            payload.len()
        );
        let hint = BASE64.encode(Sha256::digest(self.public()));
        let bundle = json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": hint}},
            "dsseEnvelope": {
                "payload": BASE64.encode(&payload),
                "payloadType": STATEMENT,
                "signatures": [{"sig": BASE64.encode(self.sign(signed.as_bytes())?)}],
            },
        });
        Ok(format!("{bundle}\n").into_bytes())
    }
}
