//! The cryptography of `sigstore-verify`, by ring.
//!
//! The default of that crate is aws-lc-rs, which would be a second library in C and assembly beside ring. ring lacks two
//! things: signatures over a hash without its text, which only signatures of files need, and ML-DSA.

use std::sync::Once;

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use sigstore_verify::crypto::{
    CryptoProvider, Error, HashContext, Result, SigningScheme, install_default_provider,
};
use sigstore_verify::types::HashAlgorithm;

/// The provider.
#[derive(Debug)]
struct Ring;

/// A hash that is being computed.
struct Hash<D>(D);

static INSTALL: Once = Once::new();

/// Makes ring the provider of the process. `sigstore-verify` panics without one.
pub(crate) fn install() {
    INSTALL.call_once(|| {
        if install_default_provider(&Ring).is_err() {
            tracing::debug!("a program that embeds Tollgate has installed another provider");
        }
    });
}

fn algorithm(scheme: SigningScheme) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match scheme {
        SigningScheme::EcdsaP256Sha256 => &ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &ED25519,
        SigningScheme::RsaPssSha256 => &RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    })
}

// === impl Hash ===

impl<D: sha2::Digest + Send> HashContext for Hash<D> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

// === impl Ring ===

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        Ok(match algorithm {
            HashAlgorithm::Sha2256 => Box::new(Hash(Sha256::new())),
            HashAlgorithm::Sha2384 => Box::new(Hash(Sha384::new())),
            HashAlgorithm::Sha2512 => Box::new(Hash(Sha512::new())),
            other => return Err(Error::UnsupportedAlgorithm(format!("the hash {other}"))),
        })
    }

    fn verify_raw(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        data: &[u8],
        signature: &[u8],
    ) -> Result<()> {
        let unsupported = || Error::UnsupportedAlgorithm(format!("keys for {}", scheme.name()));
        let algorithm = algorithm(scheme).ok_or_else(unsupported)?;
        let key = UnparsedPublicKey::new(algorithm, key);
        let failed = |_| Error::Verification(format!("{} signature invalid", scheme.name()));
        key.verify(data, signature).map_err(failed)
    }

    #[cfg(not(test))]
    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        _key: &[u8],
        _digest: &[u8],
        _signature: &[u8],
    ) -> Result<()> {
        Err(without_text(scheme))
    }

    /// Tests also verify the signatures of files, whose text they know.
    #[cfg(test)]
    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        digest: &[u8],
        signature: &[u8],
    ) -> Result<()> {
        let text = texts::with_hash(digest).ok_or_else(|| without_text(scheme))?;
        self.verify_raw(scheme, key, &text, signature)
    }
}

fn without_text(scheme: SigningScheme) -> Error {
    let scheme = scheme.name();
    Error::UnsupportedAlgorithm(format!("{scheme} over a hash without its text"))
}

/// The text whose hash a test has signed, so that ring can verify it.
#[cfg(test)]
pub(super) mod texts {
    use std::cell::RefCell;

    use sha2::{Digest as _, Sha256, Sha384, Sha512};

    thread_local! {
        static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    pub(in crate::signature) fn remember(text: &[u8]) {
        TEXT.with_borrow_mut(|known| *known = text.to_vec());
    }

    /// The remembered text, if it has this hash.
    pub(super) fn with_hash(digest: &[u8]) -> Option<Vec<u8>> {
        TEXT.with_borrow(|text| {
            let hash = match digest.len() {
                32 => Sha256::digest(text).to_vec(),
                48 => Sha384::digest(text).to_vec(),
                _ => Sha512::digest(text).to_vec(),
            };
            (hash == digest).then(|| text.clone())
        })
    }
}
