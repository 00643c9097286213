//! The admin listener: no web page has a browser read or change anything through it, and beyond the machine it is for
//! those who show who they are.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{fs, net::SocketAddr};

use reqwest::{Client, Method};
use tempfile::TempDir;
use tollgate_admission::tokens::{PendingVerdict, Right, TokenReviewer, TokenVerdict};
use tollgate_config::{Admin, Authentication, TokenReview};
use tollgate_server::BindError;

use crate::fixture::{ANY_PORT, Fixture, Settings};

async fn call(
    fixture: &Fixture,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let url = format!("http://{}{path}", fixture.admin_address());
    let client = Client::builder().no_proxy().build().expect("a client");
    let mut request = client.request(method, url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.text().await.expect("a text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_requests_from_web_pages() {
    let fixture = Fixture::start(Settings::default()).await;
    let local = fixture.admin_address().to_string();
    let forwarded = "localhost:18081";
    let own_origin = format!("http://{local}");
    let confirmed = ("tollgate-admin", "1");
    for (what, method, path, headers, expected) in [
        ("curl", "GET", "/plugins", vec![], 200),
        (
            "a forwarded port",
            "GET",
            "/decisions",
            vec![("host", forwarded)],
            200,
        ),
        (
            "a name that resolves to 127.0.0.1",
            "GET",
            "/decisions",
            vec![("host", "evil.example")],
            421,
        ),
        (
            "a page of another origin",
            "GET",
            "/decisions",
            vec![("origin", "http://evil.example")],
            403,
        ),
        (
            "a page of another origin",
            "GET",
            "/plugins",
            vec![("sec-fetch-site", "cross-site")],
            403,
        ),
        (
            "its own origin",
            "GET",
            "/plugins",
            vec![("origin", &*own_origin)],
            200,
        ),
        (
            "a form of a page",
            "POST",
            "/reload",
            vec![("origin", "http://evil.example"), confirmed],
            403,
        ),
        (
            "a form of a page that hides where it is from",
            "POST",
            "/reload",
            vec![],
            403,
        ),
        (
            "rebinding",
            "POST",
            "/reload",
            vec![("host", "evil.example"), confirmed],
            421,
        ),
        (
            "a rollback by a page",
            "POST",
            "/rollouts/guard/rollback",
            vec![],
            403,
        ),
        (
            "a rollback of a plugin without a rollout",
            "POST",
            "/rollouts/guard/rollback",
            vec![confirmed],
            404,
        ),
        (
            "a rollback as a link",
            "GET",
            "/rollouts/guard/rollback",
            vec![],
            405,
        ),
        (
            "curl with the header",
            "POST",
            "/reload",
            vec![confirmed],
            200,
        ),
    ] {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (status, text) = call(&fixture, method.clone(), path, &headers).await;
        println!(
            "{what}: {method} {path} {headers:?}: {status} {}",
            text.lines().next().unwrap_or_default()
        );
        assert_eq!(status, expected, "{what}: {text}");
    }
    assert_eq!(fixture.gate.reloads(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_public_address_without_authentication() {
    let mut settings = Settings::default();
    settings.admin.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Fixture::try_start(settings).await.err().expect("refused");
    assert!(matches!(refused, BindError::Exposed(_)), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("admin.authentication: missing"),
        "{refused}"
    );
}

pub(crate) fn tokens(directory: &TempDir) -> Admin {
    let file = directory.path().join("tokens");
    fs::write(&file, "administrators-only\n").expect("written");
    Admin {
        listen: ANY_PORT,
        authentication: Some(Authentication {
            bearer: Some(file),
            ..Authentication::default()
        }),
        hosts: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requires_configured_token_over_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let admin = tokens(&directory);
    let fixture = Fixture::start(Settings {
        admin,
        ..Settings::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    let get = async |token: Option<&str>, path: &str| {
        let url = format!("https://localhost:{}{path}", fixture.admin_address().port());
        let mut request = client.get(url);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.headers().clone())
    };
    let (status, headers) = get(None, "/plugins").await;
    assert_eq!(status, 401);
    assert_eq!(headers["www-authenticate"], "Bearer realm=\"tollgate\"");
    assert_eq!(get(Some("guessed"), "/decisions").await.0, 401);
    assert_eq!(get(Some("administrators-only"), "/decisions").await.0, 200);
    // In the clear, nothing is said.
    let url = format!("http://{}/plugins", fixture.admin_address());
    let plain = Client::new().get(url).send().await;
    assert!(plain.is_err(), "{plain:?}");
    let failures = "tollgate_authentication_failures_total{reason=\"bearer\"}";
    assert_eq!(fixture.metric(failures), "1");
    // Its tokens are not those of the reviews.
    assert_eq!(fixture.post(&client, "/mutate", "{}").await.status(), 200);
}

/// A reviewer that knows two tokens, and what it was asked.
#[derive(Debug, Default)]
struct Reviewer {
    asked: Mutex<Vec<(String, Right)>>,
}

impl TokenReviewer for Reviewer {
    fn review<'a>(&'a self, token: &'a str, right: Right) -> PendingVerdict<'a> {
        let mut asked = self.asked.lock().expect("no panic");
        asked.push((token.to_owned(), right));
        Box::pin(async move {
            match (token, right.verb) {
                ("reader", "get") => TokenVerdict::Allowed,
                ("reader", _) => TokenVerdict::Forbidden,
                ("away", _) => TokenVerdict::Unavailable {
                    reason: "kube-apiserver is away".into(),
                },
                ("hanging", _) => std::future::pending().await,
                _ => TokenVerdict::NotAuthenticated,
            }
        })
    }
}

fn reviewed(bearer: Option<PathBuf>) -> Admin {
    Admin {
        listen: ANY_PORT,
        authentication: Some(Authentication {
            bearer,
            token_review: Some(TokenReview::default()),
            ..Authentication::default()
        }),
        hosts: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepts_tokens_of_cluster_that_have_the_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    fs::write(&file, "from-file\n").expect("written");
    let reviewer = Arc::new(Reviewer::default());
    let fixture = Fixture::start(Settings {
        admin: reviewed(Some(file)),
        token_reviewer: Some(reviewer.clone()),
        ..Settings::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    let call = async |method: Method, path: &str, authorization: Option<&str>| {
        let url = format!("https://localhost:{}{path}", fixture.admin_address().port());
        let mut request = client.request(method, url).header("tollgate-admin", "1");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.text().await.expect("a text"))
    };
    let long = format!("Bearer {}", "a".repeat(9 << 10));
    for refused in [
        None,
        Some("Bearer "),
        Some("Bearer two words"),
        Some("Basic cmVhZGVyOg=="),
        Some("reader"),
        Some(&long),
    ] {
        let (status, text) = call(Method::GET, "/decisions", refused).await;
        assert_eq!(status, 401, "{text}");
    }
    assert_eq!(
        call(Method::GET, "/plugins", Some("Bearer from-file"))
            .await
            .0,
        200
    );
    // Nobody was asked about any of these.
    assert!(reviewer.asked.lock().expect("no panic").is_empty());

    let reader = Some("Bearer reader");
    for path in [
        "/plugins",
        "/shadows",
        "/rollouts",
        "/decisions",
        "/page/",
        "/exceptions",
        "/costs",
        "/scan",
    ] {
        assert_eq!(call(Method::GET, path, reader).await.0, 200, "{path}");
    }
    let (status, _) = call(Method::POST, "/rollouts/guard/rollback", reader).await;
    assert_eq!(status, 403);
    let (status, text) = call(Method::POST, "/reload", reader).await;
    assert_eq!(status, 403);
    assert!(text.contains("must not post /tollgate/reload"), "{text}");
    assert_eq!(fixture.gate.reloads(), 0);
    assert_eq!(
        call(Method::GET, "/decisions/705ab4f5", reader).await.0,
        404
    );
    assert_eq!(
        call(Method::GET, "/plugins", Some("Bearer guessed"))
            .await
            .0,
        401
    );
    assert_eq!(
        call(Method::GET, "/plugins", Some("Bearer away")).await.0,
        503
    );
    let asked = reviewer.asked.lock().expect("no panic");
    let rights: Vec<String> = asked
        .iter()
        .map(|(token, right)| format!("{token} {} {}", right.verb, right.path))
        .collect();
    let expected = [
        "reader get /tollgate/plugins",
        "reader get /tollgate/shadows",
        "reader get /tollgate/rollouts",
        "reader get /tollgate/decisions",
        "reader get /tollgate/plugins",
        "reader get /tollgate/plugins",
        "reader get /tollgate/decisions",
        "reader get /tollgate/scan",
        "reader post /tollgate/rollouts",
        "reader post /tollgate/reload",
        "reader get /tollgate/decisions",
        "guessed get /tollgate/plugins",
        "away get /tollgate/plugins",
    ];
    assert_eq!(rights, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_requests_while_nobody_reviews_tokens() {
    let settings = Settings {
        admin: reviewed(None),
        ..Settings::default()
    };
    let refused = Fixture::try_start(settings).await.err().expect("refused");
    assert!(matches!(refused, BindError::NoTokenReviewer), "{refused}");
    let fixture = Fixture::start(Settings {
        admin: reviewed(None),
        token_reviewer: Some(Arc::new(Reviewer::default())),
        ..Settings::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    let url = format!(
        "https://localhost:{}/plugins",
        fixture.admin_address().port()
    );
    let response = client.get(&url).send().await.expect("an answer");
    assert_eq!(response.status().as_u16(), 401);
    assert_eq!(
        response.headers()["www-authenticate"],
        "Bearer realm=\"tollgate\""
    );
    let hanging = client.get(&url).bearer_auth("hanging").send().await;
    let status = hanging.map(|response| response.status().as_u16());
    assert_eq!(status.expect("an answer within ten seconds"), 503);
}
