//! Signatures on later pages of the list of referrers, and lists that do not end.

use serde_json::json;

use super::*;
use crate::cache::digest_of;
use crate::signature::testing::{Signer, statement};

const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
const EMPTY_CONFIG: &str = "application/vnd.oci.empty.v1+json";
/// The requests that a look may take, whatever a registry answers.
const MOST_REQUESTS: usize = 60;

/// How a registry writes the link to the next page.
#[derive(Clone, Copy, Debug)]
enum Links {
    /// A path.
    Absolute,
    /// A query.
    Relative,
    /// A URL with the host of the registry.
    Full,
}

/// A registry with a list of referrers in pages.
struct Paged {
    referrers: Vec<(String, &'static str)>,
    /// The most referrers on a page.
    size: usize,
    links: Links,
    /// Whether the last page links to a further one.
    is_endless: bool,
    contents: Vec<(String, String)>,
}

// === impl Paged ===

impl Paged {
    /// A list with this number of referrers that sign nothing, and then the signature of the image.
    fn new(before: usize, kind: &'static str, signer: &Signer) -> Self {
        let bundle = signer.bundle(&statement(DIGEST, SIGN)).to_string();
        let manifest = manifest_of(&bundle);
        let digest = digest_of(manifest.as_bytes());
        let others = (0..before).map(|index| {
            let manifest =
                json!({"schemaVersion": 2, "layers": [], "annotations": {"n": index.to_string()}});
            let manifest = manifest.to_string();
            (digest_of(manifest.as_bytes()), manifest)
        });
        let others: Vec<_> = others.collect();
        let mut paged = Self {
            referrers: others
                .iter()
                .map(|(digest, _)| (digest.clone(), kind))
                .collect(),
            size: 1,
            links: Links::Absolute,
            is_endless: false,
            contents: vec![
                (digest_of(bundle.as_bytes()), bundle),
                (digest.clone(), manifest),
            ],
        };
        paged.contents.extend(others);
        paged.referrers.push((digest, BUNDLE));
        paged
    }

    fn answer(&self, host: &str, path: &str) -> (u16, String, String) {
        let Some((list, query)) = path
            .split_once('?')
            .filter(|_| path.contains("/referrers/"))
        else {
            let mut contents = self.contents.iter();
            let found = contents.find(|(digest, _)| path.ends_with(digest));
            return match found {
                Some((_, content)) => (200, String::new(), content.clone()),
                None => shown(path),
            };
        };
        let page = query
            .rsplit_once("page=")
            .map_or(0, |(_, page)| page.parse().unwrap());
        let all = self.referrers.chunks(self.size);
        let count = all.len();
        let entries = all.clone().nth(page).unwrap_or_default().iter();
        let entries: Vec<_> = entries
            .map(|(digest, kind)| json!({"digest": digest, "artifactType": kind}))
            .collect();
        let next = format!("?artifactType=x&page={}", page + 1);
        let next = match self.links {
            Links::Absolute => format!("{list}{next}"),
            Links::Relative => next,
            Links::Full => format!("http://{host}{list}{next}"),
        };
        let link = match page + 1 < count || self.is_endless {
            true => format!("Link: <{next}>; rel=\"next\"\r\n"),
            false => String::new(),
        };
        (200, link, json!({ "manifests": entries }).to_string())
    }

    /// Asks about the image. Returns the answer and the number of requests.
    async fn ask(self, key: &str) -> (Answer, usize) {
        let address = Arc::new(Mutex::new(String::new()));
        let host = address.clone();
        let server = Server::start(move |path, _| self.answer(&host.lock().unwrap(), path)).await;
        *address.lock().unwrap() = server.address.to_string();
        let verifier = Verifier::of(&server, Vec::new(), key);
        let answer = verifier.ask(None, &format!("apps/app@{DIGEST}")).await;
        (answer, server.count())
    }
}

fn manifest_of(bundle: &str) -> String {
    let layer =
        json!({"mediaType": BUNDLE, "digest": digest_of(bundle.as_bytes()), "size": bundle.len()});
    json!({"schemaVersion": 2, "artifactType": BUNDLE, "layers": [layer]}).to_string()
}

#[track_caller]
fn refusal(answer: Answer) -> String {
    match answer {
        Err(Failure::Untrusted(refusal)) => refusal.reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn signature_counts_on_every_page() {
    let signer = Signer::p256();
    for links in [Links::Absolute, Links::Relative, Links::Full] {
        for (size, before) in [(1, 1), (1, 20), (2, 7), (5, 40), (100, 30)] {
            let mut paged = Paged::new(before, "application/spdx+json", &signer);
            (paged.size, paged.links) = (size, links);
            let (answer, requests) = paged.ask(&signer.pem()).await;
            assert!(answer.is_ok(), "{links:?}, {size}, {before}: {answer:?}");
            // The tag, the pages, the manifest and the bundle.
            assert_eq!(requests, 1 + (before + 1).div_ceil(size) + 2);
        }
    }
}

#[tokio::test]
async fn bundles_of_later_pages_come_before_unknown_referrers() {
    let signer = Signer::p256();
    let (answer, requests) = Paged::new(20, EMPTY_CONFIG, &signer)
        .ask(&signer.pem())
        .await;
    assert!(answer.is_ok(), "{answer:?}");
    // None of the manifests of unknown referrers was asked for.
    assert_eq!(requests, 1 + 21 + 2);
}

#[tokio::test]
async fn list_without_an_end_ends_with_its_reason() {
    let (signer, stranger) = (Signer::p256(), Signer::p256());
    for kind in ["application/spdx+json", EMPTY_CONFIG, BUNDLE] {
        for size in [1, 3, 1_000] {
            let mut paged = Paged::new(500, kind, &stranger);
            (paged.size, paged.is_endless) = (size, true);
            let (answer, requests) = paged.ask(&signer.pem()).await;
            assert!(requests < MOST_REQUESTS, "{kind}, {size}: {requests}");
            let reason = refusal(answer);
            println!("{kind}, {size}: {requests} requests: {reason}");
            assert!(reason.contains("; looked at "), "{reason}");
            assert!(reason.contains(" of the referrers, on "), "{reason}");
        }
    }
}

#[tokio::test]
async fn list_never_goes_on_at_another_host() {
    let signer = Signer::p256();
    let stranger = Server::start(|path, _| shown(path)).await;
    for (link, words) in [
        (
            format!("http://{}/v2/apps/app/referrers/x", stranger.address),
            "http://127.0.0.1:",
        ),
        (
            "http://169.254.169.254/latest/meta-data".to_owned(),
            "http://169.254.169.254",
        ),
        (
            "//metadata.google.internal/".to_owned(),
            "http://metadata.google.internal",
        ),
        ("http://user:password@[::1".to_owned(), "no URL"),
        ("file:///etc/passwd".to_owned(), "no URL"),
    ] {
        let header = format!("link: <{link}>; rel=next\r\n");
        let server = Server::start(move |path, _| match path.contains("/referrers/") {
            true => (200, header.clone(), r#"{"manifests": []}"#.to_owned()),
            false => shown(path),
        })
        .await;
        let verifier = Verifier::of(&server, Vec::new(), &signer.pem());
        let answer = verifier.ask(None, &format!("apps/app@{DIGEST}")).await;
        let reason = refusal(answer);
        println!("{reason}");
        assert!(reason.contains("looked at 0 of the referrers"), "{reason}");
        assert!(reason.contains(words), "{reason}");
        assert_eq!(server.count(), 2);
    }
    assert_eq!(stranger.count(), 0);
}

#[tokio::test]
async fn page_that_fails_gives_no_verdict() {
    let signer = Signer::p256();
    let server = Server::start(|path, _| match path {
        path if path.contains("page=2") => (404, String::new(), String::new()),
        path if path.contains("/referrers/") => {
            let link = "link: <?page=2>; rel=next\r\n".to_owned();
            (200, link, r#"{"manifests": []}"#.to_owned())
        }
        path => shown(path),
    })
    .await;
    let verifier = Verifier::of(&server, Vec::new(), &signer.pem());
    let answer = verifier.ask(None, &format!("apps/app@{DIGEST}")).await;
    assert_away(&answer, "answered 404");
}

#[tokio::test]
async fn pages_take_bounded_room() {
    let signer = Signer::p256();
    // Each page has 3 MiB, and names the next one.
    let page = format!(r#"{{"manifests": [], "x": "{}"}}"#, "a".repeat(3 << 20));
    let server = Server::start(move |path, _| match path.contains("/referrers/") {
        true => (
            200,
            "link: <?page=2>; rel=next\r\n".to_owned(),
            page.clone(),
        ),
        false => shown(path),
    })
    .await;
    let verifier = Verifier::of(&server, Vec::new(), &signer.pem());
    let reason = refusal(verifier.ask(None, &format!("apps/app@{DIGEST}")).await);
    assert!(
        reason.contains("on 3 pages of their list: the list has more than 8 MiB"),
        "{reason}"
    );
    assert_eq!(server.count(), 4);
}

#[tokio::test]
async fn slow_list_gives_no_verdict() {
    let signer = Signer::p256();
    let mut paged = Paged::new(50, "application/spdx+json", &signer);
    paged.is_endless = true;
    let server = Server::start(move |path, _| {
        if path.contains("/referrers/") {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        paged.answer("", path)
    })
    .await;
    let image = format!("apps/app@{DIGEST}");
    // No further page after half a second.
    let verifier = Verifier::within("1s", &server, Vec::new(), &signer.pem());
    let answer = verifier.ask(None, &image).await;
    assert_away(&answer, "took more than 0.5 s so far");
    assert_away(
        &answer,
        "no signature that meets the policy was found in time",
    );
    // The tag, and one or two pages. On a busy machine, the first page may take the time.
    assert!((2..=3).contains(&server.count()), "{}", server.count());
}

#[tokio::test]
async fn slow_list_ends_no_verification() {
    let signer = Signer::p256();
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = is_slow.clone();
    // Four pages: they are read at once, or the fourth, with the signature, is not asked for.
    let paged = Paged::new(3, "application/spdx+json", &signer);
    let server = Server::start(move |path, _| {
        if path.contains("/referrers/") && slow.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        paged.answer("", path)
    })
    .await;
    let image = format!("apps/app@{DIGEST}");
    let mut verifier = Verifier::within("1s", &server, Vec::new(), &signer.pem());
    let first = verifier.ask(None, &image).await;
    assert!(first.is_ok_and(|verified| !verified.last_known_good));
    // As if some time had passed.
    verifier.bound.lifetimes.verified = Duration::ZERO;
    is_slow.store(true, Ordering::Relaxed);
    let again = verifier.ask(None, &image).await;
    assert!(again.is_ok_and(|verified| verified.last_known_good));
}

#[tokio::test]
async fn manifest_with_many_layers_costs_few_requests() {
    let (signer, stranger) = (Signer::p256(), Signer::p256());
    let bundle = stranger.bundle(&statement(DIGEST, SIGN)).to_string();
    // Layers in both formats, each with a digest of its own.
    let padded = |index: usize| format!("{bundle}{}", " ".repeat(index));
    let layers = (0..40).map(|index| {
        let text = padded(index);
        let kind = match index % 2 {
            0 => BUNDLE,
            _ => "application/vnd.dev.cosign.simplesigning.v1+json",
        };
        json!({"mediaType": kind, "digest": digest_of(text.as_bytes()), "size": text.len(),
            "annotations": {"dev.cosignproject.cosign/signature": "AAAA"}})
    });
    let layers: Vec<_> = layers.collect();
    let blobs: Vec<_> = (0..40).map(padded).collect();
    let manifest = json!({"schemaVersion": 2, "artifactType": BUNDLE, "layers": layers});
    let manifest = manifest.to_string();
    let digest = digest_of(manifest.as_bytes());
    let list = json!({"manifests": [{"digest": digest, "artifactType": BUNDLE}]}).to_string();
    let server = Server::start(move |path, _| match path {
        path if path.contains("/referrers/") => (200, String::new(), list.clone()),
        path if path.ends_with(&digest) => (200, String::new(), manifest.clone()),
        path if path.contains("/blobs/") => {
            let mut blobs = blobs.iter();
            let blob = blobs.find(|blob| path.ends_with(&digest_of(blob.as_bytes())));
            (200, String::new(), blob.unwrap().clone())
        }
        path => shown(path),
    })
    .await;
    let verifier = Verifier::of(&server, Vec::new(), &signer.pem());
    let answer = verifier.ask(None, &format!("apps/app@{DIGEST}")).await;
    refusal(answer);
    let requests = server.requests.lock().unwrap().clone();
    let blobs = requests.iter().filter(|(path, _)| path.contains("/blobs/"));
    assert_eq!(blobs.count(), 4, "{requests:?}");
}
