//! A repository that python-tuf has written, and what a changed trusted root means for signatures. `cargo xtask oracles`
//! writes the repository.

use tollgate_config::{SignaturePolicy, Signatures, Signer, SignerProof, TextPattern, TrustedRoot};

use super::*;
use crate::signature::testing::{DIGEST, Identity, reference, statement};
use crate::signature::{Form, Proof, Trust};

#[test]
fn follows_a_repository_of_python_tuf() {
    let states: serde_json::Value = serde_json::from_str(include_str!("python-tuf.json")).unwrap();
    let published = |state: &str, so_far: &mut Published| {
        for (path, text) in states[state].as_object().unwrap() {
            so_far.insert(path.clone(), text.as_str().unwrap().into());
        }
    };
    let mut so_far = Published::new();
    published("first", &mut so_far);
    let server = Server::start(&so_far);
    let client = Client::pinning(&so_far["1.root.json"], &server);
    for (state, root) in [("first", 1), ("second", 3), ("delegated", 3)] {
        published(state, &mut so_far);
        server.publish(&so_far);
        let report = client.refresh();
        assert_eq!(report.refreshed, Refreshed::Changed, "{state}");
        let text = client.in_use().unwrap();
        assert!(
            text.contains(&format!("\"commonName\": \"{state}\"")),
            "{text}"
        );
        let described = report.in_use.unwrap();
        println!("{state}: {described}");
        let expected = [format!("root {root}, "), "expires 2100-01-01".to_owned()];
        assert!(
            expected.iter().all(|part| described.contains(part)),
            "{described}"
        );
    }
    // Nothing of it needs the network any more, the delegated role neither.
    server.set(Answers::Away);
    let client = client.restarted();
    assert!(client.in_use().unwrap().contains("\"delegated\""));
}

#[test]
fn signatures_count_by_the_root_in_use() {
    let (old, new) = (Sigstore::new(), Sigstore::new());
    let mut repository = Repository::new(&old.root().to_string());
    let server = Server::start(&repository.published);
    let client = Client::of(&repository, &server);
    let signer = Signer {
        name: "ci".into(),
        proof: SignerProof::Identity {
            issuer: TextPattern::everything(),
            subject: TextPattern::everything(),
        },
    };
    let signatures = Signatures::of_policy(SignaturePolicy {
        trusted_root: Some(TrustedRoot::Tuf(client.tuf.clone())),
        ..SignaturePolicy::of_signers("guards", vec![signer])
    });
    let bundle = |sigstore: &Sigstore| {
        let statement = statement(DIGEST, "https://sigstore.dev/cosign/sign/v1");
        let bundle = sigstore.bundle(&statement, &Identity::workflow());
        bundle.to_string().into_bytes()
    };
    let (by_old, by_new) = (bundle(&old), bundle(&new));
    let accepts = |bundle: &[u8]| {
        let Trust::Policy(trusted) = Trust::read(&signatures, &reference(), &client.roots).unwrap()
        else {
            panic!("there is a policy");
        };
        let proof = trusted.examine(DIGEST, bundle, &Form::Bundle);
        matches!(proof, Proof::Signature { .. })
    };
    assert!(Trust::read(&signatures, &reference(), &client.roots).is_err());
    client.refresh();
    assert!(accepts(&by_old) && !accepts(&by_new));
    repository.rotate();
    repository.publish(&new.root().to_string());
    server.publish(&repository.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert!(!accepts(&by_old) && accepts(&by_new));
}
