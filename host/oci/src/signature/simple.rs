//! Verifies a signature in the format that cosign wrote up to its version 2.
//!
//! The signed text is JSON in the format "simple signing". Source: cosign's specification SIGNATURE_SPEC.md.

use serde::Deserialize;

use super::key::PublicKey;
use super::shown;

/// The signed text: cosign's "simple signing" format.
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(default)]
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
struct Identity {
    #[serde(default, rename = "docker-reference")]
    reference: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// The `type` that a signed text must have.
const KIND: &str = "cosign container image signature";

/// Verifies a signature of the manifest with this digest. Returns the place of the key's owner among `owners`, the
/// fingerprint of the key, and the repository that the text names. Fails with the reason, which completes "one …".
pub(super) fn verify<'k>(
    owners: &[(usize, &'k [PublicKey])],
    digest: &str,
    payload: &[u8],
    signature: &[u8],
) -> Result<(usize, &'k str, String), String> {
    let mut keys = owners
        .iter()
        .flat_map(|(owner, keys)| keys.iter().map(move |key| (*owner, key)));
    let signer = keys.find(|(_, key)| key.has_signed(payload, signature));
    let Some((owner, key)) = signer else {
        return Err("made with another key".to_owned());
    };
    // From here on, the text comes from a trusted signer.
    let Ok(Payload { critical }) = serde_json::from_slice(payload) else {
        return Err("with a payload that is not cosign's".to_owned());
    };
    if critical.kind != KIND {
        return Err(format!("with a payload that is not of type `{KIND}`"));
    }
    if critical.image.digest != digest {
        return Err(format!("for {}", shown(&critical.image.digest)));
    }
    Ok((owner, key.fingerprint.as_str(), critical.identity.reference))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    /// A signature that cosign itself has made.
    struct Made {
        repository: &'static str,
        key: &'static str,
        signature: &'static str,
    }

    /// Digest of the artifact that all of these signatures are for.
    const DIGEST: &str = "sha256:6709a7cac516f66eaafca9072c7eea2de1217ef62cb4f2043080c803b464ffa8";
    /// ECDSA P-384 by cosign 2.5.3, over SHA-256.
    const P384_OF_2_5: Made = Made {
        repository: "v25p384",
        key: "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE7pfCQmAdxplWkDl7KOLRhhpj3+mdSBkIwwVhdg2UvLksUcCw+eFhMsJFwlTAetPaKeOD\
              goU8rwy8+MI9V6P/sXmIABlQPc2uki9Zw0QEVb9wpf4XnxavzGd1oYUmEuCm",
        signature: "MGYCMQCmkpYEdEvqreXmdxvoD/UFLDuM5G9yUjV9hnyGjm2tmycdDrmFWM+xah3Uf5gd5TUCMQD7Kw8JeS6lszbApksoXRHN8ski\
              IaOm/bYXgmGi/B1tBAucuxw3dczUaWCS1rj9cKY=",
    };
    /// ECDSA P-384 by cosign 2.6.5, over SHA-384.
    const P384_OF_2_6: Made = Made {
        repository: "v26p384",
        key: "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEkXvUarRf+yezudl2I/2zwSHv3GQZ0vLheXiD95GBTRKRU+1rkmIODljpmFQGOU+5lF2l\
              FotoW9X3/u6rtbFwt1A30fzSUZsmuM0ww+Ehrb3/qGRKkUspmUyLLj6nDYjI",
        signature: "MGYCMQDpAuwThJGlEYmXFmkxtZTP/Ba2bEaAfWtCAMdHPn8+h5gF3rFlBwEFgJfBLvNotS0CMQCPFZxPaKaVzsp4FUE1p5fabZwj\
              bJeWjIp6pKOSnDQIFbfkJcvwN7H52hpSCRKNmB8=",
    };
    /// Ed25519 by cosign 2.5.3.
    const ED25519_OF_2_5: Made = Made {
        repository: "v25ed",
        key: "MCowBQYDK2VwAyEA1pNhdKT5JLhSwVuxeZYSC2F0bQc6Q7vnlGRRKHjwpUk=",
        signature: "Z1j+OBdzI2rt24Xrvi5X0ZEjc821q/Vlpauu+cXzyr2a5CJwyU8paUx4rt3+1iVr8E5kMkyqRecAEBKOMX7RDg==",
    };
    /// Ed25519 by cosign 2.6.5, prehashed.
    const ED25519_OF_2_6: Made = Made {
        repository: "v26ed",
        key: "MCowBQYDK2VwAyEAnfxInosWfkZtqNuYQD9JaIUMRCl4hTwOAU10kDcDo2U=",
        signature: "zCwnnTofGXCaO/+Y3UKDQGOEI9+0l0ymY86ujEtjWDo0ES0bjWQla9U5DpB6Teq8wzqWlw3Adcvm93K5oDBcDA==",
    };

    fn decode(text: &str) -> Vec<u8> {
        BASE64.decode(text).unwrap()
    }

    fn verified(made: &Made, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        let repository = made.repository;
        let mut payload = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"127.0.0.1:23411/sig/{repository}"}},"#
        );
        payload.push_str(&format!(
            r#""image":{{"docker-manifest-digest":"{DIGEST}"}},"type":"{KIND}"}},"optional":null}}"#
        ));
        let mut payload = payload.into_bytes();
        change(&mut payload);
        let keys = [PublicKey::of(&decode(made.key)).unwrap()];
        verify(&[(0, &keys)], DIGEST, &payload, &decode(made.signature)).map(drop)
    }

    #[test]
    fn accepts_cosign_signatures_of_every_key_kind() {
        for made in [P384_OF_2_5, P384_OF_2_6, ED25519_OF_2_5, ED25519_OF_2_6] {
            assert_eq!(verified(&made, |_| ()), Ok(()), "{}", made.repository);
            let changed = verified(&made, |payload| payload.push(b' '));
            assert!(changed.is_err(), "{}", made.repository);
        }
    }
}
