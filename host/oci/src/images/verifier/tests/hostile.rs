//! Answers of a registry that would hang the host, or grow it.

use serde_json::json;

use super::*;

/// Longer than any of these looks takes, and shorter than the limit of a look.
const LIMIT: Duration = Duration::from_secs(20);

/// A status, headers and a body.
type Answered = (u16, String, String);

/// What is answered to the path of the signatures' tag, of the list of referrers, and of any other manifest.
#[derive(Clone, Debug)]
struct Hostile {
    tag: Answered,
    list: Answered,
    other: Answered,
}

fn body(text: &str) -> Answered {
    (200, String::new(), text.to_owned())
}

fn missing() -> Answered {
    (404, String::new(), String::new())
}

impl Default for Hostile {
    fn default() -> Self {
        Self {
            tag: missing(),
            list: missing(),
            other: missing(),
        }
    }
}

/// Asks about a digest. Returns the answer and the number of requests.
async fn asked(hostile: Hostile) -> (Answer, usize) {
    let server = Server::start(move |path, _| {
        if path.ends_with(".sig") {
            hostile.tag.clone()
        } else if path.contains("/referrers/") {
            hostile.list.clone()
        } else {
            hostile.other.clone()
        }
    })
    .await;
    let verifier = Verifier::new(&server, Vec::new());
    let image = format!("apps/app@{DIGEST}");
    let asking = tokio::time::timeout(LIMIT, verifier.ask(None, &image));
    let answer = asking.await.expect("the look ends");
    (answer, server.count())
}

#[tokio::test]
async fn endless_answers_end() {
    let list = json!({"manifests": [{"digest": DIGEST, "artifactType": BUNDLE}]}).to_string();
    for hostile in [
        Hostile {
            tag: body(ENDLESS),
            ..Hostile::default()
        },
        Hostile {
            list: body(ENDLESS),
            ..Hostile::default()
        },
        Hostile {
            list: body(&list),
            other: body(ENDLESS),
            ..Hostile::default()
        },
    ] {
        let (answer, requests) = asked(hostile).await;
        assert!(answer.is_err(), "{answer:?}");
        assert!(requests < 10, "{requests}");
    }
}

#[tokio::test]
async fn deep_and_foreign_json_is_no_signature() {
    let deep = "[".repeat(1 << 18);
    let in_list = format!(r#"{{"manifests": {deep}"#);
    let in_manifest = format!(r#"{{"schemaVersion": 2, "layers": {deep}"#);
    for (tag, list) in [
        (in_manifest.as_str(), "{}"),
        ("null", in_list.as_str()),
        ("{}", r#"{"manifests": 5}"#),
    ] {
        let (answer, _) = asked(Hostile {
            tag: body(tag),
            list: body(list),
            ..Hostile::default()
        })
        .await;
        let is_refused = matches!(answer, Err(Failure::Unsigned(_) | Failure::Untrusted(_)));
        assert!(is_refused, "{answer:?}");
    }
}

#[tokio::test]
async fn redirects_lead_to_no_metadata_service_and_end() {
    for (to, words) in [
        ("http://169.254.169.254/latest/meta-data", "never dials"),
        ("http://[fe80::1]/", "never dials"),
        ("http://0.0.0.0/", "never dials"),
        ("http://metadata.google.internal/", "metadata service"),
        ("/v2/apps/app/manifests/again.sig", "redirect"),
    ] {
        let (answer, requests) = asked(Hostile {
            tag: (307, format!("location: {to}\r\n"), String::new()),
            ..Hostile::default()
        })
        .await;
        assert_away(&answer, words);
        assert!(requests <= 20, "{to}: {requests}");
    }
}

#[tokio::test]
async fn number_of_referrers_and_pages_is_bounded() {
    let entries = (0..1_000).map(
        |index: usize| json!({"digest": format!("sha256:{index:064x}"), "artifactType": BUNDLE}),
    );
    let list = json!({"manifests": entries.collect::<Vec<_>>()}).to_string();
    // Each page names another one.
    let next = "link: </v2/apps/app/referrers/next?page=2>; rel=\"next\"\r\n";
    let (answer, requests) = asked(Hostile {
        list: (200, next.to_owned(), list),
        // They exist, and are larger than any manifest of a bundle.
        other: body(&" ".repeat(300 << 10)),
        ..Hostile::default()
    })
    .await;
    assert!(answer.is_err(), "{answer:?}");
    assert!((50..60).contains(&requests), "{requests}");
}
