//! The page: its files and headers on the admin listener, the parts of lists that it asks for, and the page on a loopback
//! address with a secret in its URL.

use bytes::Bytes;
use reqwest::{Client, Method, Response, StatusCode, redirect};
use serde_json::{Value, json};
use tollgate_server::{LocalPage, LocalPageError, PageSource};

use crate::admin;
use crate::fixture::{Fixture, Settings};

fn client() -> Client {
    let builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none());
    builder.build().expect("a client")
}

async fn get(url: &str) -> Response {
    client().get(url).send().await.expect("an answer")
}

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("a text"))
}

/// Checks the headers that keep other content out of the page.
fn assert_guarded(response: &Response) {
    let policy = header(response, "content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(header(response, name), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_files_of_the_page_with_a_strict_policy() {
    let fixture = Fixture::start(Settings::default()).await;
    let at = |path: &str| format!("http://{}{path}", fixture.admin_address());
    for (path, media_type) in [
        ("/page/", "text/html; charset=utf-8"),
        ("/page/page.css", "text/css; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ] {
        let response = get(&at(path)).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(header(&response, "content-type"), media_type);
        assert_guarded(&response);
    }
    let response = get(&at("/page")).await;
    assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
    assert_eq!(header(&response, "location"), "page/");
    assert_eq!(
        get(&at("/page/nothing")).await.status(),
        StatusCode::NOT_FOUND
    );
    let replicas: Value = get(&at("/page/replicas")).await.json().await.expect("JSON");
    assert_eq!(replicas["replicas"][0]["path"], "../", "{replicas}");
    let posted = client().post(at("/page/")).send().await.expect("an answer");
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_parts_of_lists_and_refuses_other_parameters() {
    let fixture = Fixture::start(Settings::default()).await;
    for (path, key, value) in [
        ("/plugins?limit=1", "total", json!(0)),
        ("/exceptions", "total", json!(0)),
        ("/shadows?search=a", "matched", json!(0)),
        ("/costs?limit=1", "costs", json!([])),
        ("/decisions?user=anna", "matched", json!(0)),
        ("/replica", "complete", json!(true)),
    ] {
        let (status, text) = fixture.admin(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer[key], value, "{path}: {answer}");
    }
    let (_, text) = fixture.admin("/plugins").await;
    assert!(text.contains("echo"), "the whole answer: {text}");
    for path in [
        "/plugins?first=1",
        "/decisions?limit=1000",
        "/decisions?before=last",
        "/exceptions?search=%zz",
    ] {
        let (status, text) = fixture.admin(path).await;
        assert_eq!(status, 400, "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_the_gate_for_a_part_of_the_scan() {
    let fixture = Fixture::start(Settings::default()).await;
    let of = async |path: &str| {
        let (status, text) = fixture.admin(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let whole = of("/scan").await;
    assert_eq!(
        (&whole["by"], &whole["limit"]),
        (&json!("Both"), &json!(50))
    );
    assert_eq!(
        (&whole["search"], &whole["after"]),
        (&Value::Null, &Value::Null)
    );
    let part = of("/scan?search=team&result=fail&by=plugin&after=1+2++labels&limit=200").await;
    let expected = json!({
        "enabled": true, "search": "team", "result": "fail", "by": "Plugin", "after": "1 2  labels", "limit": 200,
        "results": [],
    });
    assert_eq!(part, expected);
    for path in [
        "/scan?limit=201",
        "/scan?result=bad",
        "/scan?by=object",
        "/scan?namespace=shop",
        "/scan?search=%ff",
    ] {
        let (status, text) = fixture.admin(path).await;
        assert_eq!(status, 400, "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_needs_the_credentials_of_the_listener() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = Fixture::start(Settings {
        admin: admin::tokens(&directory),
        ..Settings::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    let port = fixture.admin_address().port();
    for path in [
        "/page/",
        "/page/app.js",
        "/page/replicas",
        "/costs",
        "/scan",
        "/replica",
    ] {
        let request = || client.get(format!("https://localhost:{port}{path}"));
        let refused = request().send().await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{path}");
        let text = refused.text().await.expect("a text");
        let has_hint = text.contains("tollgate page");
        assert_eq!(has_hint, path.starts_with("/page"), "{path}: {text}");
        let answered = request().bearer_auth("administrators-only").send().await;
        assert_eq!(
            answered.expect("an answer").status(),
            StatusCode::OK,
            "{path}"
        );
    }
}

/// Two replicas, one of which is away.
struct Replicas;

impl PageSource for Replicas {
    async fn replicas(&self) -> Result<Vec<String>, String> {
        Ok(["pod-a", "pod-b", "../evil"].map(str::to_owned).into())
    }

    async fn get(&self, replica: &str, path: &str) -> Result<(StatusCode, Bytes), String> {
        match (replica, path) {
            ("pod-a", "/nothing") => Ok((StatusCode::NOT_FOUND, Bytes::from("no such path"))),
            ("pod-a", path) => {
                let answer = json!({ "asked": path }).to_string();
                Ok((StatusCode::OK, answer.into()))
            }
            _ => Err("connection refused".to_owned()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_page_answers_behind_its_secret_alone() {
    let page = LocalPage::bind(([127, 0, 0, 1], 0).into());
    let page = page.expect("the address is free");
    let url = page.url();
    let top = url.strip_suffix("page/").expect("the page").to_owned();
    let serving = tokio::spawn(page.run(Replicas));

    let response = get(&url).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_guarded(&response);
    let replicas: Value = get(&format!("{url}replicas"))
        .await
        .json()
        .await
        .expect("JSON");
    let expected = json!({ "replicas": [
        { "name": "pod-a", "path": "../replica/pod-a/" },
        { "name": "pod-b", "path": "../replica/pod-b/" },
    ] });
    assert_eq!(replicas, expected);
    let response = get(&format!("{top}replica/pod-a/decisions?user=anna&limit=5")).await;
    assert_eq!(header(&response, "content-type"), "application/json");
    assert_guarded(&response);
    let answer: Value = response.json().await.expect("JSON");
    assert_eq!(answer["asked"], "/decisions?user=anna&limit=5");
    for (path, status) in [
        ("replica/pod-a/nothing", 404),
        ("replica/pod-b/plugins", 502),
        ("replica/pod-a", 404),
        ("plugins", 404),
    ] {
        let answered = get(&format!("{top}{path}")).await;
        assert_eq!(answered.status().as_u16(), status, "{path}");
        assert_eq!(
            header(&answered, "content-type"),
            "text/plain; charset=utf-8"
        );
    }

    // Nothing is found without the secret, also not with a part of it.
    let (origin, secret) = top
        .trim_end_matches('/')
        .rsplit_once('/')
        .expect("a secret");
    assert_eq!(secret.len(), 32);
    for wrong in ["", "0", &secret[..31], &"0".repeat(32)] {
        for path in ["page/", "page/replicas", "replica/pod-a/plugins"] {
            let wrong = get(&format!("{origin}/{wrong}/{path}")).await;
            assert_eq!(wrong.status(), StatusCode::NOT_FOUND);
        }
    }
    // Web pages and writing requests get nothing, even with the secret.
    for (method, name, value, status) in [
        (Method::GET, "host", "evil.example", 421),
        (Method::GET, "origin", "http://evil.example", 403),
        (Method::GET, "sec-fetch-site", "cross-site", 403),
        (Method::POST, "tollgate-admin", "1", 405),
    ] {
        let request = client().request(method, format!("{top}replica/pod-a/reload"));
        let answered = request.header(name, value).send().await;
        let answered = answered.expect("an answer");
        assert_eq!(answered.status().as_u16(), status, "{name}: {value}");
    }
    serving.abort();
}

#[tokio::test]
async fn local_page_refuses_addresses_beyond_the_machine() {
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
        let refused = LocalPage::bind(address.parse().expect("an address"));
        assert!(
            matches!(refused, Err(LocalPageError::NotLoopback(_))),
            "{address}"
        );
    }
}
