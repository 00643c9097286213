//! Who may call: over real sockets, with the right credential, a wrong one, none, and after the files have changed.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use reqwest::{Client, Identity, StatusCode};
use tempfile::TempDir;
use tollgate_config::{Authentication, ClientCertificate};

use crate::fixture::{Fixture, Settings};

/// Files are read again every five seconds.
const RELOAD_PATIENCE: Duration = Duration::from_secs(20);

/// Issues client certificates.
struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

struct Files(TempDir);

// === impl Ca ===

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "clients");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn identity(&self, common_name: &str, alternative_names: &[&str]) -> Identity {
        let names: Vec<String> = alternative_names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(names).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let pem = format!("{}{}", certificate.pem(), key.serialize_pem());
        Identity::from_pem(pem.as_bytes()).expect("an identity")
    }
}

// === impl Files ===

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        replace(&path, text);
        path
    }

    fn client_certificate(&self, ca: &Ca, subjects: &[&str]) -> Authentication {
        Authentication {
            client_certificate: Some(ClientCertificate {
                ca: self.write("ca.crt", &ca.pem),
                subjects: subjects.iter().map(ToString::to_string).collect(),
            }),
            ..Authentication::default()
        }
    }
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("written");
    std::fs::rename(&beside, path).expect("renamed");
}

async fn start(authentication: Authentication) -> Fixture {
    Fixture::start(Settings {
        authentication,
        ..Settings::default()
    })
    .await
}

fn with_identity(fixture: &Fixture, identity: Identity) -> Client {
    let builder = fixture.client().identity(identity);
    builder.build().expect("a client")
}

/// The status, or none when the connection did not come about.
async fn status(fixture: &Fixture, client: &Client, authorization: Option<&str>) -> Option<u16> {
    let mut request = fixture.request(client, "/validate", "{}");
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    let response = request.send().await.ok()?;
    Some(response.status().as_u16())
}

async fn until_status(
    fixture: &Fixture,
    client: &Client,
    authorization: Option<&str>,
    wanted: impl Fn(Option<u16>) -> bool,
) {
    let end = Instant::now() + RELOAD_PATIENCE;
    loop {
        let status = status(fixture, client, authorization).await;
        if wanted(status) {
            return;
        }
        assert!(
            Instant::now() < end,
            "the new file is not loaded: {status:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_only_clients_with_certificate_of_ca() {
    let (ca, files) = (Ca::new(), Files::new());
    let fixture = start(files.client_certificate(&ca, &[])).await;
    let right = with_identity(&fixture, ca.identity("kube-apiserver", &[]));
    assert_eq!(status(&fixture, &right, None).await, Some(200));
    let other = with_identity(&fixture, Ca::new().identity("kube-apiserver", &[]));
    assert_eq!(status(&fixture, &other, None).await, None);
    let without = fixture.client().build().expect("a client");
    assert_eq!(status(&fixture, &without, None).await, None);
    // Clients try again on a new connection, so there may be more than two.
    let failures = "tollgate_authentication_failures_total{reason=\"certificate\"}";
    let counted = || -> u32 { fixture.metric(failures).parse().expect("a number") };
    let began = Instant::now();
    // The client may see the end of its connection before the server has counted it.
    while counted() < 2 {
        assert!(began.elapsed() < Duration::from_secs(5), "{}", counted());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Probes and metrics are for everybody.
    assert_eq!(fixture.probe("/livez").await.0, 200);
    let (_, detail) = fixture.probe("/readyz?verbose").await;
    assert!(detail.contains("/ca.crt: expires on "), "{detail}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_only_configured_subjects() {
    let (ca, files) = (Ca::new(), Files::new());
    let subjects = ["kube-apiserver", "apiserver.example.com"];
    let fixture = start(files.client_certificate(&ca, &subjects)).await;
    for (common_name, alternative_names, served) in [
        ("kube-apiserver", &[][..], true),
        ("someone", &["apiserver.example.com"], true),
        ("someone", &["elsewhere.example.com"], false),
        ("kube-apiserver2", &[], false),
        ("Kube-Apiserver", &[], false),
    ] {
        let client = with_identity(&fixture, ca.identity(common_name, alternative_names));
        let expected = served.then_some(200);
        assert_eq!(
            status(&fixture, &client, None).await,
            expected,
            "{common_name} {alternative_names:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_kept_connection_when_ca_is_removed() {
    let (old, new, files) = (Ca::new(), Ca::new(), Files::new());
    let authentication = files.client_certificate(&old, &[]);
    let fixture = start(authentication).await;
    let before = with_identity(&fixture, old.identity("kube-apiserver", &[]));
    let after = with_identity(&fixture, new.identity("kube-apiserver", &[]));
    assert_eq!(status(&fixture, &before, None).await, Some(200));
    assert_eq!(status(&fixture, &after, None).await, None);
    // What cannot be used changes nothing.
    files.write("ca.crt", "nonsense");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(status(&fixture, &before, None).await, Some(200));
    files.write("ca.crt", &new.pem);
    until_status(&fixture, &after, None, |status| status == Some(200)).await;
    // 403 on the connection that was open, and no handshake after that.
    until_status(&fixture, &before, None, |status| status.is_none()).await;
    assert_eq!(status(&fixture, &after, None).await, Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_only_requests_with_token_from_file() {
    let files = Files::new();
    let path = files.write("tokens", "first-token\nsecond-token\n");
    let fixture = start(Authentication {
        bearer: Some(path.clone()),
        ..Authentication::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    for (authorization, code) in [
        (Some("Bearer first-token"), 200),
        (Some("bearer second-token"), 200),
        (Some("Bearer third-token"), 401),
        (Some("Basic Zmlyc3QtdG9rZW46"), 401),
        (Some("first-token"), 401),
        (None, 401),
    ] {
        assert_eq!(
            status(&fixture, &client, authorization).await,
            Some(code),
            "{authorization:?}"
        );
    }
    let response = fixture.post(&client, "/nowhere", vec![b'x'; 100_000]).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        response.headers()["www-authenticate"],
        "Bearer realm=\"tollgate\""
    );
    let text = response.text().await.expect("a text");
    assert!(text.contains("the request has no credentials"), "{text}");
    let count = |reason: &str| {
        fixture.metric(&format!(
            "tollgate_authentication_failures_total{{reason=\"{reason}\"}}"
        ))
    };
    assert_eq!(
        (count("bearer"), count("missing")),
        ("1".into(), "4".into())
    );
    replace(&path, "third-token");
    let third = Some("Bearer third-token");
    until_status(&fixture, &client, third, |status| status == Some(200)).await;
    let first = Some("Bearer first-token");
    assert_eq!(status(&fixture, &client, first).await, Some(401));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_requests_with_password_from_file() {
    let hashed = |password: &str| bcrypt::hash(password, 4).expect("a hash");
    let files = Files::new();
    let path = files.write("htpasswd", &format!("apiserver:{}\n", hashed("old")));
    let fixture = start(Authentication {
        basic: Some(path.clone()),
        ..Authentication::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    let basic = |name: &str, password: &str| {
        use base64::{Engine, engine::general_purpose::STANDARD};
        format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
    };
    let (old, new) = (basic("apiserver", "old"), basic("apiserver", "new"));
    assert_eq!(status(&fixture, &client, Some(&old)).await, Some(200));
    assert_eq!(status(&fixture, &client, Some(&new)).await, Some(401));
    let stranger = basic("stranger", "old");
    assert_eq!(status(&fixture, &client, Some(&stranger)).await, Some(401));
    replace(&path, &format!("apiserver:{}\n", hashed("new")));
    until_status(&fixture, &client, Some(&new), |status| status == Some(200)).await;
    assert_eq!(status(&fixture, &client, Some(&old)).await, Some(401));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requires_certificate_and_header_when_all_are_configured() {
    let (ca, files) = (Ca::new(), Files::new());
    let password = bcrypt::hash("secret", 4).expect("a hash");
    let fixture = start(Authentication {
        bearer: Some(files.write("tokens", "token")),
        basic: Some(files.write("htpasswd", &format!("apiserver:{password}"))),
        ..files.client_certificate(&ca, &["kube-apiserver"])
    })
    .await;
    let client = with_identity(&fixture, ca.identity("kube-apiserver", &[]));
    let both = [Some("Bearer token"), Some("Basic YXBpc2VydmVyOnNlY3JldA==")];
    for authorization in both {
        assert_eq!(status(&fixture, &client, authorization).await, Some(200));
    }
    assert_eq!(status(&fixture, &client, None).await, Some(401));
    let response = fixture.post(&client, "/validate", "{}").await;
    let challenges = response.headers().get_all("www-authenticate");
    let challenges: Vec<_> = challenges.iter().collect();
    assert_eq!(
        challenges,
        [
            "Bearer realm=\"tollgate\"",
            "Basic realm=\"tollgate\", charset=\"UTF-8\""
        ]
    );
    let without = fixture.client().build().expect("a client");
    assert_eq!(status(&fixture, &without, both[0]).await, None);
}

/// The answer of the gate about the trace of a request with these headers.
async fn trace_of(fixture: &Fixture, headers: &[(&str, &str)]) -> String {
    let client = fixture.client().build().expect("a client");
    let mut request = fixture.request(&client, "/validate/trace", "{}");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    response.text().await.expect("a body")
}

#[tokio::test]
async fn only_authenticated_callers_of_traced_servers_name_their_trace() {
    const PARENT: (&str, &str) = (
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0102030405060708-01",
    );
    const TOKEN: (&str, &str) = ("authorization", "Bearer first-token");
    let files = Files::new();
    let authentication = || Authentication {
        bearer: Some(files.write("tokens", "first-token\n")),
        ..Authentication::default()
    };
    let settings = |authentication, traces| Settings {
        authentication,
        traces,
        ..Settings::default()
    };
    let traced = Fixture::start(settings(authentication(), true)).await;
    assert_eq!(
        trace_of(&traced, &[TOKEN, PARENT]).await,
        "[1, 2, 3, 4, 5, 6, 7, 8]"
    );
    assert_eq!(trace_of(&traced, &[TOKEN]).await, "none");
    assert_eq!(trace_of(&traced, &[TOKEN, PARENT, PARENT]).await, "none");
    let anonymous = Fixture::start(settings(Authentication::default(), true)).await;
    assert_eq!(trace_of(&anonymous, &[PARENT]).await, "none");
    assert_eq!(trace_of(&anonymous, &[TOKEN, PARENT]).await, "none");
    let untraced = Fixture::start(settings(authentication(), false)).await;
    assert_eq!(trace_of(&untraced, &[TOKEN, PARENT]).await, "none");
}
