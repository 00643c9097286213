//! A repository whose second trusted root lacks the authority of the first one, and an image that the first one verifies.
//! The tests of the binary serve it. `TOLLGATE_WRITE=1` writes it anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use time::Duration as Span;

use super::*;
use crate::cache::digest_of;
use crate::signature::testing::{DIGEST, Identity, statement};

/// Files by their paths.
type Files = BTreeMap<String, String>;

/// The files of the TUF repository in both states, and those of the registry.
#[derive(Deserialize, Serialize)]
struct Recorded {
    first: Files,
    second: Files,
    registry: Files,
}

const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// How long the metadata is valid. Certificates need not be: the log proves when the signature was made.
const LASTS: Span = Span::days(100 * 365);

impl Recorded {
    fn new() -> Self {
        let (old, new) = (Sigstore::new(), Sigstore::new());
        let mut repository = Repository::lasting(&old.root().to_string(), LASTS);
        let files = |published: &Published| {
            let files = published.iter();
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
            files
                .map(|(path, bytes)| (path.clone(), text(bytes)))
                .collect()
        };
        let first = files(&repository.published);
        repository.publish(&new.root().to_string());
        let bundle = old
            .bundle(&statement(DIGEST, SIGN), &Identity::workflow())
            .to_string();
        let of_bundle = digest_of(bundle.as_bytes());
        let layer = json!({"mediaType": BUNDLE, "digest": of_bundle, "size": bundle.len()});
        let manifest = json!({"schemaVersion": 2, "artifactType": BUNDLE, "layers": [layer]});
        let manifest = manifest.to_string();
        let of_manifest = digest_of(manifest.as_bytes());
        let list = json!({"manifests": [{"digest": of_manifest, "artifactType": BUNDLE}]});
        let path = |kind: &str, name: &str| format!("v2/apps/app/{kind}/{name}");
        Self {
            first,
            second: files(&repository.published),
            registry: Files::from([
                (path("referrers", DIGEST), list.to_string()),
                (path("manifests", &of_manifest), manifest),
                (path("blobs", &of_bundle), bundle),
            ]),
        }
    }

    fn bundle(&self) -> &str {
        let mut files = self.registry.iter();
        let found = files.find(|(path, _)| path.contains("/blobs/"));
        found.unwrap().1
    }
}

#[test]
fn recorded_image_is_verified_by_the_first_root_alone() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tuf/tests/rotation.json");
    if std::env::var_os("TOLLGATE_WRITE").is_some() {
        let text = serde_json::to_string_pretty(&Recorded::new()).unwrap();
        std::fs::write(&file, format!("{text}\n")).unwrap();
    }
    let recorded: Recorded = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let published = |files: &Files| {
        let files = files.iter();
        files
            .map(|(path, text)| (path.clone(), text.clone().into()))
            .collect::<Published>()
    };
    let server = Server::start(&published(&recorded.first));
    let client = Client::pinning(recorded.first["1.root.json"].as_bytes(), &server);
    for (files, is_verified) in [(&recorded.first, true), (&recorded.second, false)] {
        server.publish(&published(files));
        assert_eq!(client.refresh().refreshed, Refreshed::Changed);
        let root = client.roots.current(&client.tuf).unwrap();
        let verified = root.verify(recorded.bundle().as_bytes(), DIGEST);
        assert_eq!(verified.is_ok(), is_verified, "{:?}", verified.err());
    }
}
