//! A registry on loopback that shows repositories to those who have their password.

mod hostile;
mod pages;
mod rotation;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollgate_admission::images::{
    PendingSecrets, PullSecret, PullSecretKind, Puller, Unreadable, Verified,
};
use tollgate_config::Config;

use super::*;

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Media type of bundles.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A body that never ends.
const ENDLESS: &str = "endless";

/// The requests that a server has got: the path, and the name and the password, if there are any.
type Requests = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// What a server answers to a path and a login: a status, headers and a body.
type Respond = dyn Fn(&str, Option<&str>) -> (u16, String, String) + Send + Sync;

struct Server {
    address: SocketAddr,
    requests: Requests,
}

impl Server {
    async fn start(
        respond: impl Fn(&str, Option<&str>) -> (u16, String, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Requests::default();
        let (noted, respond): (Requests, Arc<Respond>) = (requests.clone(), Arc::new(respond));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, respond) = (noted.clone(), respond.clone());
                tokio::spawn(async move { drop(serve(stream, &noted, &*respond).await) });
            }
        });
        Self { address, requests }
    }

    /// The logins that it was sent, each once.
    fn logins(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let mut logins: Vec<String> = requests
            .iter()
            .filter_map(|(_, login)| login.clone())
            .collect();
        logins.sort();
        logins.dedup();
        logins
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: &Requests,
    respond: &Respond,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut headers = lines.filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let login = headers.next().and_then(|(_, value)| {
        let decoded = BASE64.decode(value.strip_prefix("Basic ")?).ok()?;
        String::from_utf8(decoded).ok()
    });
    let (status, more, body) = respond(&path, login.as_deref());
    requests.lock().unwrap().push((path, login));
    if body == ENDLESS {
        stream
            .write_all(b"HTTP/1.1 200 x\r\nconnection: close\r\n\r\n")
            .await?;
        loop {
            stream.write_all(&[b' '; 8192]).await?;
        }
    }
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    // The client asks with HEAD for a tag, and then closes the connection.
    stream.write_all(body.as_bytes()).await
}

/// A registry whose repository `NAME/…` needs the login `NAME:secret`.
async fn private() -> Server {
    Server::start(|path, login| {
        let owner = path.split('/').nth(2).unwrap_or_default();
        match login {
            Some(login) if login == format!("{owner}:secret") => shown(path),
            Some(_) => (403, String::new(), String::new()),
            None => (
                401,
                "www-authenticate: Basic realm=\"tests\"\r\n".to_owned(),
                String::new(),
            ),
        }
    })
    .await
}

/// An image without signatures.
fn shown(path: &str) -> (u16, String, String) {
    if path.ends_with("/manifests/1") || path.ends_with(&format!("/manifests/{DIGEST}")) {
        return (
            200,
            format!("docker-content-digest: {DIGEST}\r\n"),
            String::new(),
        );
    }
    (404, String::new(), String::new())
}

/// Secrets by namespace. None is forbidden.
#[derive(Debug)]
struct Fixed(Vec<(&'static str, Option<String>)>);

impl Fixed {
    fn secrets(&self, puller: &Puller) -> Secrets {
        let mut all = self.0.iter();
        let found = all.find(|(namespace, _)| *namespace == &*puller.namespace);
        let Some((_, content)) = found else {
            return Ok(Arc::default());
        };
        let content = content
            .as_ref()
            .ok_or_else(|| Unreadable::because("forbidden"))?;
        let secret = PullSecret::read(PullSecretKind::DockerConfigJson, content.as_bytes());
        Ok(Arc::from([Arc::new(secret.unwrap())]))
    }
}

impl PullSecrets for Fixed {
    fn known(&self, puller: &Puller) -> Option<Secrets> {
        Some(self.secrets(puller))
    }

    fn read<'a>(&'a self, puller: &'a Puller) -> PendingSecrets<'a> {
        Box::pin(std::future::ready(self.secrets(puller)))
    }
}

#[derive(Debug, Default)]
struct Counts(AtomicUsize);

impl ImageObserver for Counts {
    fn looked(&self, _result: &'static str) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn fell_back(&self) {}

    fn requested(&self) {}
}

struct Verifier {
    bound: BoundImages,
    /// Each session reads its files.
    _folder: tempfile::TempDir,
    registry: String,
}

impl Verifier {
    fn new(server: &Server, secrets: Vec<(&'static str, Option<String>)>) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        Self::of(server, secrets, &key.public_key_pem())
    }

    /// A verifier that requires a signature with this key.
    fn of(server: &Server, secrets: Vec<(&'static str, Option<String>)>, pem: &str) -> Self {
        Self::within("30s", server, secrets, pem)
    }

    /// A verifier whose transfers take this time at most.
    fn within(
        timeout: &str,
        server: &Server,
        secrets: Vec<(&'static str, Option<String>)>,
        pem: &str,
    ) -> Self {
        let registry = server.address.to_string();
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key.pem");
        std::fs::write(&key, pem).unwrap();
        // An empty file in place of the credentials of whoever runs the tests.
        std::fs::write(folder.path().join("docker.json"), "{}").unwrap();
        let text = format!(
            "registries: {{ credentials: ./docker.json, timeout: {timeout}, hosts: [{{ host: '{registry}', plainHTTP: true }}] }}\n\
             plugins: [{{ name: a, source: 'file:a.wasm', images: {{ registries: ['{registry}'], pullSecretNamespaces: \
             [shop, blog, copy, none], policies: [{{ name: release, signers: [{{ key: ./key.pem }}] }}] }} }}]"
        );
        let config = Config::parse(&text, folder.path()).unwrap();
        let reader: Arc<dyn PullSecrets> = Arc::new(Fixed(secrets));
        let images = Images::new(
            config.registries.clone(),
            TrustedRoots::new(Registries::default()),
            Arc::new(Counts::default()),
            Some(reader),
        );
        let bound = images
            .of(config.plugins[0].images.as_ref().unwrap())
            .unwrap();
        Self {
            bound,
            _folder: folder,
            registry,
        }
    }

    fn question(&self, namespace: Option<&str>, image: &str) -> Question {
        let puller = namespace.map(|namespace| {
            Arc::new(Puller {
                namespace: Arc::from(namespace),
                secrets: Arc::from(["login".into()]),
                service_account: Arc::from("default"),
            })
        });
        Question {
            image: Arc::from(format!("{}/{image}", self.registry)),
            policy: Arc::from("release"),
            puller,
        }
    }

    async fn ask(&self, namespace: Option<&str>, image: &str) -> Answer {
        let question = self.question(namespace, image);
        self.bound.ask(&question).await
    }

    fn known(&self, namespace: Option<&str>, image: &str) -> Option<Answer> {
        self.bound.known(&self.question(namespace, image))
    }
}

fn login(place: &str, login: &str) -> String {
    format!(
        r#"{{"auths": {{"{place}": {{"auth": "{}"}}}}}}"#,
        BASE64.encode(login)
    )
}

/// Whether the registry has shown the image.
#[track_caller]
fn assert_seen(answer: &Answer) {
    match answer {
        Err(Failure::Unsigned(refusal)) => assert_eq!(&*refusal.digest, DIGEST),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_away(answer: &Answer, words: &str) {
    match answer {
        Err(Failure::Unavailable(reason)) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn private_image_is_shown_to_those_who_have_the_login_alone() {
    let server = private().await;
    let host = server.address.to_string();
    let verifier = Verifier::new(
        &server,
        vec![
            ("shop", Some(login(&host, "shop:secret"))),
            (
                "copy",
                Some(login(&format!("https://{host}/v2/"), "shop:secret")),
            ),
            ("blog", Some(login(&host, "blog:secret"))),
            ("none", Some(login("other.example", "other:secret"))),
        ],
    );
    for image in ["shop/app:1", &format!("shop/app@{DIGEST}")] {
        assert_seen(&verifier.ask(Some("shop"), image).await);
        let known = verifier.known(Some("shop"), image);
        assert_seen(&known.expect("it is remembered"));
        // Who has the same login in another namespace gets the same answer, and nobody else does.
        let before = server.count();
        assert_seen(&verifier.ask(Some("copy"), image).await);
        assert_eq!(server.count(), before);
        for namespace in [Some("blog"), Some("none"), Some("elsewhere"), None] {
            let known = verifier.known(namespace, image);
            assert!(
                matches!(known, None | Some(Err(Failure::Unavailable(_)))),
                "{known:?}"
            );
            assert_away(&verifier.ask(namespace, image).await, "answered 40");
        }
        assert!(server.count() > before);
    }
    // What is known of others has not changed.
    assert_seen(&verifier.ask(Some("shop"), "shop/app:1").await);
    assert_seen(&verifier.ask(Some("blog"), "blog/app:1").await);
    assert_eq!(server.logins(), ["blog:secret", "shop:secret"]);
}

#[tokio::test]
async fn each_matching_login_is_tried_and_then_the_credentials_of_the_host() {
    let server = private().await;
    let host = server.address.to_string();
    let several = format!(
        r#"{{"auths": {{"{host}/shop": {{"auth": "{}"}}, "{host}": {{"auth": "{}"}}, "other.example": {{"auth": "{}"}}}}}}"#,
        BASE64.encode("wrong:secret"),
        BASE64.encode("shop:secret"),
        BASE64.encode("other:secret"),
    );
    let verifier = Verifier::new(&server, vec![("shop", Some(several))]);
    assert_seen(&verifier.ask(Some("shop"), "shop/app:1").await);
    assert_eq!(server.logins(), ["shop:secret", "wrong:secret"]);
    let open = Server::start(|path, login| match login {
        Some(_) => (401, String::new(), String::new()),
        None => shown(path),
    })
    .await;
    let verifier = Verifier::new(
        &open,
        vec![("shop", Some(login(&open.address.to_string(), "old:secret")))],
    );
    assert_seen(&verifier.ask(Some("shop"), "public/app:1").await);
    assert!(open.logins().is_empty());
}

#[tokio::test]
async fn login_does_not_follow_a_redirect_to_another_host() {
    let stranger = Server::start(|path, _| shown(path)).await;
    let there = stranger.address;
    let server = Server::start(move |path, login| match login {
        Some(_) => (
            307,
            format!("location: http://{there}{path}\r\n"),
            String::new(),
        ),
        None => (
            401,
            "www-authenticate: Basic realm=\"tests\"\r\n".to_owned(),
            String::new(),
        ),
    })
    .await;
    let host = server.address.to_string();
    let verifier = Verifier::new(&server, vec![("shop", Some(login(&host, "shop:secret")))]);
    assert_seen(&verifier.ask(Some("shop"), "shop/app:1").await);
    assert_eq!(server.logins(), ["shop:secret"]);
    assert!(stranger.count() > 0);
    let headers = stranger.requests.lock().unwrap();
    assert!(
        headers.iter().all(|(_, login)| login.is_none()),
        "{headers:?}"
    );
}

#[tokio::test]
async fn image_that_is_hidden_is_not_taken_for_unsigned() {
    // The registry answers everybody that it has nothing, as if there were no signatures.
    let server = Server::start(|_, login| match login {
        Some(_) => (404, String::new(), String::new()),
        None => (
            401,
            "www-authenticate: Basic realm=\"tests\"\r\n".to_owned(),
            String::new(),
        ),
    })
    .await;
    let host = server.address.to_string();
    let verifier = Verifier::new(&server, vec![("shop", Some(login(&host, "shop:secret")))]);
    let pinned = format!("shop/app@{DIGEST}");
    let answer = verifier.ask(Some("shop"), &pinned).await;
    assert!(
        !matches!(answer, Err(Failure::Unsigned(_)) | Ok(Verified { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn secrets_that_cannot_be_read_give_no_answer() {
    let server = Server::start(|path, _| shown(path)).await;
    let verifier = Verifier::new(&server, vec![("shop", None)]);
    assert_away(
        &verifier.ask(Some("shop"), "public/app:1").await,
        "forbidden",
    );
    assert_eq!(server.count(), 0);
    // Without a reader, too.
    let images = Images::new(
        Registries::default(),
        TrustedRoots::new(Registries::default()),
        Arc::new(Counts::default()),
        None,
    );
    let bound = BoundImages {
        images,
        ..verifier.bound
    };
    let question = Question {
        image: Arc::from(format!("{}/public/app:1", verifier.registry)),
        policy: Arc::from("release"),
        puller: Some(Arc::new(Puller {
            namespace: Arc::from("shop"),
            secrets: Arc::default(),
            service_account: Arc::from("default"),
        })),
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), bound.ask(&question)).await;
    assert_away(
        &answer.unwrap(),
        "images.pullSecretNamespaces needs cluster.enabled",
    );
}

#[tokio::test]
async fn refused_login_ends_what_it_has_found() {
    let status = Arc::new(AtomicUsize::new(200));
    let now = status.clone();
    // Whether the registry fails for everybody else once it has refused the login.
    let fails_then = Arc::new(AtomicBool::new(false));
    let fails = fails_then.clone();
    let has_refused = AtomicBool::new(false);
    let server = Server::start(
        move |path, login| match (now.load(Ordering::Relaxed), login) {
            (_, None) if fails.load(Ordering::Relaxed) && has_refused.load(Ordering::Relaxed) => {
                (503, String::new(), String::new())
            }
            (_, None) => (
                401,
                "www-authenticate: Basic realm=\"tests\"\r\n".to_owned(),
                String::new(),
            ),
            (200, Some(_)) => {
                has_refused.store(false, Ordering::Relaxed);
                shown(path)
            }
            (status, Some(_)) => {
                has_refused.store(true, Ordering::Relaxed);
                (u16::try_from(status).unwrap(), String::new(), String::new())
            }
        },
    )
    .await;
    let host = server.address.to_string();
    for (refusal, then, counts) in [
        (503, false, true),
        (401, false, false),
        (403, false, false),
        (401, true, false),
    ] {
        let mut verifier =
            Verifier::new(&server, vec![("shop", Some(login(&host, "shop:secret")))]);
        let lifetimes = verifier.bound.lifetimes;
        for image in ["shop/app:1", &format!("shop/other@{DIGEST}")] {
            status.store(200, Ordering::Relaxed);
            fails_then.store(false, Ordering::Relaxed);
            verifier.bound.lifetimes = lifetimes;
            assert_seen(&verifier.ask(Some("shop"), image).await);
            // As if the image had been signed.
            let question = verifier.question(Some("shop"), image);
            let order = verifier.bound.known_order(&question).unwrap().unwrap();
            let key = order.subject.of_digest(DIGEST);
            let images = &verifier.bound.images;
            images.change(|cache, now| cache.verified(key, vec!["release".into()], now));
            // As if some time had passed.
            verifier.bound.lifetimes.verified = Duration::ZERO;
            verifier.bound.lifetimes.resolved = Duration::ZERO;
            status.store(refusal, Ordering::Relaxed);
            fails_then.store(then, Ordering::Relaxed);
            let fallen_back = |answer: &Answer| {
                let is_good = matches!(answer, Ok(verified) if verified.last_known_good);
                assert_eq!(is_good, counts, "{refusal}: {answer:?}");
                if !counts {
                    assert_away(answer, "imagePullSecrets");
                }
            };
            fallen_back(&verifier.ask(Some("shop"), image).await);
            // It stays so, also for a review that does not wait.
            fallen_back(&verifier.known(Some("shop"), image).expect("it is kept"));
        }
    }
}

#[tokio::test]
async fn refusal_of_anything_but_the_login_keeps_what_it_has_found() {
    // The host has no credentials, so the registry refuses it. The lists of signatures are refused for everybody.
    for (of_login, counts) in [(404, true), (200, true), (403, false)] {
        let server = Server::start(move |path, login| match login {
            None => (
                401,
                "www-authenticate: Basic realm=\"tests\"\r\n".to_owned(),
                String::new(),
            ),
            Some(_) if of_login != 200 => (of_login, String::new(), String::new()),
            Some(_) if path.ends_with(DIGEST) && !path.contains("/referrers/") => shown(path),
            Some(_) => (403, String::new(), String::new()),
        })
        .await;
        let host = server.address.to_string();
        let secrets = vec![("shop", Some(login(&host, "shop:secret")))];
        let mut verifier = Verifier::new(&server, secrets);
        let image = format!("shop/other@{DIGEST}");
        let question = verifier.question(Some("shop"), &image);
        let order = verifier.bound.known_order(&question).unwrap().unwrap();
        let key = order.subject.of_digest(DIGEST);
        let images = &verifier.bound.images;
        images.change(|cache, now| cache.verified(key, vec!["release".into()], now));
        verifier.bound.lifetimes.verified = Duration::ZERO;
        let answer = verifier.ask(Some("shop"), &image).await;
        let is_good = matches!(&answer, Ok(verified) if verified.last_known_good);
        assert_eq!(is_good, counts, "{of_login}: {answer:?}");
    }
}
