//! Answers that were found with a trusted root, after another one has taken its place.

use serde_json::json;

use super::*;
use crate::cache::digest_of;
use crate::signature::testing::{Identity, Sigstore, statement};
use crate::tuf::testing::{Repository, Server as TufServer};

const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// A registry with a signed image, and a TUF repository that publishes the trusted root.
struct Rotating {
    verifier: Verifier,
    registry: Server,
    is_away: Arc<std::sync::atomic::AtomicBool>,
    repository: Repository,
    server: TufServer,
    roots: Arc<TrustedRoots>,
    grant: Arc<Grant>,
}

// === impl Rotating ===

impl Rotating {
    /// An image that this installation of Sigstore has signed, and that its trusted root verifies.
    async fn new(sigstore: &Sigstore) -> Self {
        let bundle = sigstore
            .bundle(&statement(DIGEST, SIGN), &Identity::workflow())
            .to_string();
        let layer = json!({"mediaType": BUNDLE, "digest": digest_of(bundle.as_bytes()), "size": bundle.len()});
        let manifest =
            json!({"schemaVersion": 2, "artifactType": BUNDLE, "layers": [layer]}).to_string();
        let digest = digest_of(manifest.as_bytes());
        let list = json!({"manifests": [{"digest": digest, "artifactType": BUNDLE}]}).to_string();
        let is_away = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let away = is_away.clone();
        let registry = Server::start(move |path, _| {
            let body = match path {
                _ if away.load(Ordering::Relaxed) => return (503, String::new(), String::new()),
                path if path.contains("/referrers/") => &list,
                path if path.ends_with(&digest) => &manifest,
                path if path.contains("/blobs/") => &bundle,
                path => return shown(path),
            };
            (200, String::new(), body.clone())
        })
        .await;
        let repository = Repository::new(&sigstore.root().to_string());
        let server = TufServer::start(&repository.published);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("root.json"), repository.pinned()).unwrap();
        std::fs::write(folder.path().join("docker.json"), "{}").unwrap();
        std::fs::create_dir(folder.path().join("cache")).unwrap();
        let (host, url) = (registry.address.to_string(), &server.url);
        let text = format!(
            "registries: {{ cacheDirectory: cache, credentials: docker.json, hosts: [{{ host: '{host}', plainHTTP: true }}] }}\n\
             signatures: {{ tuf: {{ url: '{url}', root: root.json }} }}\n\
             plugins: [{{ name: a, source: 'file:a.wasm', images: {{ registries: ['{host}'], policies: [{{ name: release, \
             signers: [{{ issuer: '**', subject: '**' }}] }}] }} }}]"
        );
        let config = Config::parse(&text, folder.path()).unwrap();
        let grant = config.plugins[0].images.clone().unwrap();
        let roots = TrustedRoots::new(config.registries.clone());
        let observer = Arc::new(Counts::default());
        let images = Images::new(config.registries, roots.clone(), observer, None);
        refresh(&roots, &grant).await;
        let bound = images.of(&grant).unwrap();
        Self {
            verifier: Verifier {
                bound,
                _folder: folder,
                registry: host,
            },
            registry,
            is_away,
            repository,
            server,
            roots,
            grant,
        }
    }

    async fn publish(&mut self, sigstore: &Sigstore) {
        self.repository.publish(&sigstore.root().to_string());
        self.server.publish(&self.repository.published);
        refresh(&self.roots, &self.grant).await;
    }

    fn last_known_good(&self, image: &str) -> Answer {
        let question = self.verifier.question(None, image);
        self.verifier.bound.last_known_good(&question, "away")
    }
}

/// Gets the root that was published.
async fn refresh(roots: &TrustedRoots, grant: &Grant) {
    let tufs: Vec<_> = grant.tuf_sources().cloned().collect();
    let reports = roots.refresh(&tufs).await;
    assert_eq!(reports[0].refreshed, crate::Refreshed::Changed);
}

#[track_caller]
fn assert_verified(answer: &Answer) {
    assert!(
        matches!(answer, Ok(verified) if &*verified.digest == DIGEST && !verified.last_known_good),
        "{answer:?}"
    );
}

#[tokio::test]
async fn answer_of_an_old_root_does_not_count() {
    let (sigstore, other) = (Sigstore::new(), Sigstore::new());
    let mut rotating = Rotating::new(&sigstore).await;
    let images = ["apps/app:1", &format!("apps/app@{DIGEST}")];
    for image in images {
        assert_verified(&rotating.verifier.ask(None, image).await);
        assert_verified(&rotating.verifier.known(None, image).expect("it is kept"));
        assert_verified(&rotating.last_known_good(image));
    }
    // The next root lacks the authority. No plugin was loaded again.
    rotating.publish(&other).await;
    for image in images {
        assert_eq!(rotating.verifier.known(None, image), None);
        assert_away(&rotating.last_known_good(image), "away");
    }
    // Nor does the answer count when the registry is away just then.
    rotating.is_away.store(true, Ordering::Relaxed);
    for image in images {
        assert_away(&rotating.verifier.ask(None, image).await, "answered 503");
    }
    rotating.is_away.store(false, Ordering::Relaxed);
    let bound = &rotating.verifier.bound;
    bound.images.change(|cache, _| *cache = Cache::new());
    let answer = rotating.verifier.ask(None, images[1]).await;
    assert!(matches!(answer, Err(Failure::Untrusted(_))), "{answer:?}");
}

#[tokio::test]
async fn answer_of_the_same_root_counts_after_a_refresh_and_after_a_load() {
    let sigstore = Sigstore::new();
    let mut rotating = Rotating::new(&sigstore).await;
    let image = format!("apps/app@{DIGEST}");
    assert_verified(&rotating.verifier.ask(None, &image).await);
    let before = rotating.registry.count();
    // New metadata, with the same root in it.
    rotating.repository.publish_timestamp(1);
    rotating.server.publish(&rotating.repository.published);
    let tufs: Vec<_> = rotating.grant.tuf_sources().cloned().collect();
    let reports = rotating.roots.refresh(&tufs).await;
    assert_eq!(reports[0].refreshed, crate::Refreshed::Unchanged);
    rotating.verifier.bound = rotating.verifier.bound.images.of(&rotating.grant).unwrap();
    assert_verified(&rotating.verifier.known(None, &image).expect("it is kept"));
    assert_eq!(rotating.registry.count(), before);
}
