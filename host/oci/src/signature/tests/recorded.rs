//! Signatures that cosign itself has made: `cargo xtask oracles` records them.

use super::*;

/// One signature or attestation of [`DIGEST`].
struct Recorded {
    tool: String,
    key: String,
    form: String,
    public: Vec<PublicKey>,
    layer: Vec<u8>,
    signature: Vec<u8>,
}

fn recorded() -> Vec<Recorded> {
    let all: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let read = |one: &Value| Recorded {
        tool: text(one, "tool"),
        key: text(one, "key"),
        form: text(one, "form"),
        public: vec![
            PublicKey::of(pem::parse(text(one, "publicKey")).unwrap().contents()).unwrap(),
        ],
        layer: text(one, "layer").into_bytes(),
        signature: BASE64.decode(text(one, "signature")).unwrap(),
    };
    all.iter().map(read).collect()
}

impl Recorded {
    fn form(&self) -> Form {
        match self.form.as_str() {
            "tag" => Form::Simple(self.signature.clone()),
            _ => Form::Bundle,
        }
    }

    /// Judges the layer as a signature of an artifact, by a key.
    fn judge(
        &self,
        more: &str,
        keys: Vec<PublicKey>,
        digest: &str,
        layer: &[u8],
    ) -> Result<(), String> {
        let policy = policy("{ name: one, key: one.pub }", more);
        let trusted = Trusted::of(policy, &reference(), vec![keys], None);
        let manifest = manifest(None);
        let mut assessment = Assessment::new(&trusted, digest, &manifest);
        assessment.add(trusted.examine(digest, layer, &self.form()));
        match assessment.is_met() {
            true => Ok(()),
            false => Err(assessment.refusal().to_string()),
        }
    }

    fn keys(&self) -> Vec<PublicKey> {
        self.public.to_vec()
    }
}

#[test]
fn accepts_signatures_of_cosign_in_every_form() {
    let recorded = recorded();
    let kinds: std::collections::BTreeSet<_> =
        recorded.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    for one in recorded.iter().filter(|one| one.form != "sbom") {
        let what = format!("{} | {} | {}", one.tool, one.key, one.form);
        assert_eq!(
            one.judge("", one.keys(), DIGEST, &one.layer),
            Ok(()),
            "{what}"
        );
        println!("{what} | accepted");
    }
}

#[test]
fn refuses_signatures_of_cosign_that_do_not_fit() {
    for one in recorded() {
        println!("{} | {} | {}", one.tool, one.key, one.form);
        let stranger = vec![Signer::p256().public()];
        refused(
            one.judge("", stranger, DIGEST, &one.layer),
            &["one made with another key"],
        );
        let wrong_digest = one.judge("", one.keys(), OTHER, &one.layer).unwrap_err();
        assert!(
            wrong_digest.contains(&format!("one for {DIGEST}")),
            "{wrong_digest}"
        );
        // A character inside the signed text.
        let mut changed = one.layer.clone();
        let payload = String::from_utf8_lossy(&changed)
            .find("\"payload\"")
            .unwrap_or(0)
            + 60;
        changed[payload] = if changed[payload] == b'0' { b'1' } else { b'0' };
        let changed = one.judge("", one.keys(), DIGEST, &changed);
        assert!(changed.is_err(), "{changed:?}");
        if one.form == "sbom" {
            refused(
                one.judge("", one.keys(), DIGEST, &one.layer),
                &["that attests https://cyclonedx.org/bom, which is not a signature"],
            );
        }
    }
}

#[test]
fn binds_signatures_of_cosign_to_the_repository() {
    for one in recorded().iter().filter(|one| one.form != "sbom") {
        let judged = one.judge("bindRepository: true", one.keys(), DIGEST, &one.layer);
        match one.form.as_str() {
            // cosign was given an annotation with this repository.
            "bundle" => assert_eq!(judged, Ok(()), "{} | {}", one.tool, one.key),
            // The old format names the repository that was signed.
            _ => refused(
                judged,
                &["/policies/guard (docker-reference); expected registry.example.com"],
            ),
        }
    }
}
