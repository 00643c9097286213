//! Signatures of challenges and proofs. Does no IO.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::json;
use tollgate_admission::canary::Challenge;

/// The word before the plugins that a replica does not call.
const LACKS: &str = " lacks ";
const NONCE_BYTES: usize = 24;

/// The key pair of this process.
pub(crate) struct Key(Ed25519KeyPair);

/// A proof whose signature is not checked yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proof<'t> {
    signature: &'t str,
    /// The plugins that the replica does not call.
    pub(super) lacking: Vec<&'t str>,
}

/// Makes a number that nobody can guess.
pub(super) fn nonce() -> Option<String> {
    let mut bytes = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

fn challenge_text(installation: &str, challenge: &Challenge) -> String {
    let Challenge {
        name,
        nonce,
        plugins,
        signature: _,
    } = challenge;
    json!([
        "tollgate canary challenge",
        installation,
        name,
        nonce,
        plugins
    ])
    .to_string()
}

fn proof_text(installation: &str, nonce: &str, path: &str, lacking: &[&str]) -> String {
    json!(["tollgate canary proof", installation, nonce, path, lacking]).to_string()
}

fn is_signed(public: &str, text: &str, signature: &str) -> bool {
    let (Ok(public), Ok(signature)) = (
        URL_SAFE_NO_PAD.decode(public),
        URL_SAFE_NO_PAD.decode(signature),
    ) else {
        return false;
    };
    let key = UnparsedPublicKey::new(&ED25519, public);
    key.verify(text.as_bytes(), &signature).is_ok()
}

/// Whether one of the keys has signed the challenge for this installation.
pub(super) fn is_own(challenge: &Challenge, installation: &str, keys: &[&str]) -> bool {
    let text = challenge_text(installation, challenge);
    keys.iter()
        .any(|key| is_signed(key, &text, &challenge.signature))
}

// === impl Key ===

impl Key {
    /// Makes a key pair. None if the system has no random numbers.
    pub(crate) fn generate() -> Option<Self> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).ok()?;
        Some(Self(pair))
    }

    /// The public key, as replicas announce it.
    pub(crate) fn public(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key())
    }

    /// Signs a challenge.
    pub(super) fn challenge(&self, installation: &str, mut challenge: Challenge) -> Challenge {
        challenge.signature = self.sign(&challenge_text(installation, &challenge));
        challenge
    }

    /// Writes the proof that this replica has answered a challenge at a path.
    pub(super) fn prove(
        &self,
        installation: &str,
        nonce: &str,
        path: &str,
        lacking: &[&str],
    ) -> String {
        let signature = self.sign(&proof_text(installation, nonce, path, lacking));
        if lacking.is_empty() {
            signature
        } else {
            format!("{signature}{LACKS}{}", lacking.join(","))
        }
    }

    fn sign(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

// === impl Proof ===

impl<'t> Proof<'t> {
    pub(super) fn read(text: &'t str) -> Self {
        match text.split_once(LACKS) {
            None => Self {
                signature: text,
                lacking: Vec::new(),
            },
            Some((signature, lacking)) => Self {
                signature,
                lacking: lacking.split(',').collect(),
            },
        }
    }

    /// Whether one of the keys has signed the proof for this nonce and path.
    pub(super) fn is_valid(
        &self,
        installation: &str,
        nonce: &str,
        path: &str,
        keys: &[&str],
    ) -> bool {
        let text = proof_text(installation, nonce, path, &self.lacking);
        keys.iter().any(|key| is_signed(key, &text, self.signature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEM: &str = "system/gate";

    fn key() -> Key {
        Key::generate().expect("random numbers")
    }

    fn challenge(key: &Key) -> Challenge {
        let challenge = Challenge {
            name: "guard.validate.gate".to_owned(),
            nonce: nonce().expect("random numbers"),
            plugins: vec!["guard".to_owned()],
            signature: String::new(),
        };
        key.challenge(SYSTEM, challenge)
    }

    #[test]
    fn challenge_counts_as_it_was_signed_and_in_its_installation_only() {
        let (leader, other) = (key(), key());
        let signed = challenge(&leader);
        let public = leader.public();
        let keys = [other.public(), public.clone()];
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert!(is_own(&signed, SYSTEM, &keys));
        assert!(!is_own(&signed, "system/other", &keys));
        assert!(!is_own(&signed, SYSTEM, &[&other.public()]));
        assert!(!is_own(&signed, SYSTEM, &[]));
        for change in [
            Challenge {
                name: "guard.mutate.gate".to_owned(),
                ..signed.clone()
            },
            Challenge {
                nonce: "n".to_owned(),
                ..signed.clone()
            },
            Challenge {
                plugins: Vec::new(),
                ..signed.clone()
            },
            Challenge {
                signature: String::new(),
                ..signed.clone()
            },
        ] {
            assert!(!is_own(&change, SYSTEM, &keys), "{change:?}");
        }
    }

    #[test]
    fn proof_is_for_one_nonce_one_path_and_one_set_of_plugins() {
        let replica = key();
        let public = replica.public();
        let valid = |text: &str, nonce: &str, path: &str| {
            Proof::read(text).is_valid(SYSTEM, nonce, path, &[&public])
        };
        let whole = replica.prove(SYSTEM, "n", "/validate", &[]);
        assert!(valid(&whole, "n", "/validate"));
        assert!(!valid(&whole, "m", "/validate"));
        assert!(!valid(&whole, "n", "/mutate"));
        assert!(!valid("", "n", "/validate") && !valid("unknown", "n", "/validate"));
        assert!(!Proof::read(&whole).is_valid("system/other", "n", "/validate", &[&public]));
        assert!(!Proof::read(&whole).is_valid(SYSTEM, "n", "/validate", &[&key().public()]));
        let part = replica.prove(SYSTEM, "n", "/validate", &["a", "b"]);
        assert_eq!(Proof::read(&part).lacking, ["a", "b"]);
        assert!(valid(&part, "n", "/validate"));
        let (signature, _) = part.split_once(' ').expect("a list follows");
        assert!(!valid(signature, "n", "/validate"), "the list is signed");
        // kube-apiserver advises at most 120 characters for a warning.
        assert!(whole.len() < 100, "{}", whole.len());
    }
}
