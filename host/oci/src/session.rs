//! A session with a registry: sends requests with credentials, retries where that may help, and limits the size of
//! answers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use docker_credential::DockerCredential;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method, Request, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tollgate_admission::images::Login;
use tollgate_config::{Reference, Registries, RegistryHost};

use super::address::Dialer;
use super::cache::digest_of;
use super::causes::{AuthoritiesProblem, ChallengeError, ConnectionError, SetupError};
use super::credentials::credential;
use super::helper::Helpers;
use super::manifest::{Descriptor, OCI_MANIFEST, is_digest};
use super::{Progress, RegistryError, transport};

/// A registry, and the client that reaches it.
pub(super) struct Host {
    name: String,
    base: Url,
    client: Client,
    dialer: Dialer,
}

/// A session about one repository.
pub(super) struct Session<'c> {
    host: Arc<Host>,
    config: &'c Registries,
    helpers: &'c Helpers,
    reference: &'c Reference,
    credentials: Credentials<'c>,
    authorization: Option<HeaderValue>,
    progress: Option<&'c dyn Progress>,
}

/// The credentials with which a session answers a challenge.
#[derive(Clone, Copy)]
enum Credentials<'c> {
    /// Those of `registries.credentials`.
    Configured,
    /// A login of a Pod.
    Login(&'c Login),
    Nothing,
}

/// The kind of content in the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// A plugin, or no body.
    Open,
    /// An identity token, which only one server may get.
    Secret,
}

/// The answer of an authorization server.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time without a received byte.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_REDIRECTS: usize = 5;
const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause before a retry, even if the registry asks for a longer one. The caller retries later if all attempts
/// fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const MAX_TOKEN_BYTES: u64 = 1 << 20;
pub(super) const DOCKER_CONTENT_DIGEST: HeaderName =
    HeaderName::from_static("docker-content-digest");
/// The name of Docker Hub in references, and the host of its registry.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

// === impl Host ===

impl Host {
    /// The file of the CAs that are trusted for a registry. Without its own file, that is the file that `SSL_CERT_FILE`
    /// names in place of the system's.
    pub(super) fn authorities(settings: Option<&RegistryHost>) -> Option<PathBuf> {
        let own = settings.and_then(|settings| settings.ca.clone());
        own.or_else(|| std::env::var_os("SSL_CERT_FILE").map(PathBuf::from))
    }

    pub(crate) fn new(name: &str, settings: Option<&RegistryHost>) -> Result<Self, RegistryError> {
        let setup = |source: SetupError| RegistryError::Setup {
            host: name.to_owned(),
            source,
        };
        let plain_http = settings.is_some_and(|settings| settings.plain_http);
        let at = if name == DOCKER_HUB.0 {
            DOCKER_HUB.1
        } else {
            name
        };
        let scheme = if plain_http { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{at}/v2/"))
            .map_err(|error| setup(SetupError::Url(error)))?;
        let dialer = Dialer::new(at, proxies());
        let mut builder = Client::builder()
            .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .https_only(!plain_http)
            // Redirects are checked before they are followed, and these checks resolve names.
            .redirect(Policy::none())
            .dns_resolver(Arc::new(dialer.share()))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT);
        match settings.and_then(|settings| settings.ca.as_ref()) {
            Some(path) => {
                let failed = |problem: AuthoritiesProblem| {
                    setup(SetupError::Authorities {
                        path: path.clone(),
                        problem,
                    })
                };
                let pem = tollgate_config::file::read(path)
                    .map_err(|error| failed(AuthoritiesProblem::Read(error)))?;
                let authorities = Certificate::from_pem_bundle(&pem)
                    .map_err(|error| failed(AuthoritiesProblem::Pem(error)))?;
                if authorities.is_empty() {
                    return Err(failed(AuthoritiesProblem::Empty));
                }
                for authority in authorities {
                    builder = builder.add_root_certificate(authority);
                }
            }
            // The CAs of the system. If one of hundreds cannot be read, the others are still used.
            None if !plain_http => {
                for authority in rustls_native_certs::load_native_certs().certs {
                    if let Ok(authority) = Certificate::from_der(&authority) {
                        builder = builder.add_root_certificate(authority);
                    }
                }
            }
            None => {}
        }
        let client = builder
            .build()
            .map_err(|error| setup(SetupError::Client(error)))?;
        Ok(Self {
            name: name.to_owned(),
            base,
            client,
            dialer,
        })
    }
}

impl Host {
    fn is_plain_http(&self) -> bool {
        self.base.scheme() == "http"
    }
}

/// The hosts of the proxies that the environment names and `reqwest` uses.
fn proxies() -> Vec<String> {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let values = names.iter().flat_map(|name| {
        [
            std::env::var(name),
            std::env::var(name.to_ascii_uppercase()),
        ]
    });
    let host = |value: String| {
        let url = Url::parse(&value).or_else(|_| Url::parse(&format!("http://{value}")));
        url.ok()?.host_str().map(str::to_ascii_lowercase)
    };
    values.flatten().filter_map(host).collect()
}

// === impl Session ===

impl<'c> Session<'c> {
    pub(crate) fn new(
        host: Arc<Host>,
        config: &'c Registries,
        helpers: &'c Helpers,
        reference: &'c Reference,
        progress: Option<&'c dyn Progress>,
    ) -> Self {
        Self {
            host,
            config,
            helpers,
            reference,
            credentials: Credentials::Configured,
            authorization: None,
            progress,
        }
    }

    /// The longest transfer.
    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Uses a login in place of the configured credentials.
    pub(crate) fn with_login(self, login: Option<&'c Login>) -> Self {
        let credentials = login.map_or(Credentials::Configured, Credentials::Login);
        Self {
            credentials,
            ..self
        }
    }

    /// Sends no credentials, whatever the server asks for.
    pub(crate) fn without_credentials(self) -> Self {
        Self {
            credentials: Credentials::Nothing,
            ..self
        }
    }

    /// The digest of a manifest, from a header of the registry; `None` if the header is missing. The manifest itself is
    /// not requested.
    pub(super) async fn manifest_digest(
        &mut self,
        name: &str,
    ) -> Result<Option<String>, RegistryError> {
        let path = self.path("manifests", name);
        let response = self.ask(Method::HEAD, &path, accept(), None).await?;
        let digest = response.headers().get(DOCKER_CONTENT_DIGEST);
        let digest = digest
            .and_then(|value| value.to_str().ok())
            .filter(|text| is_digest(text));
        Ok(digest.map(str::to_owned))
    }

    /// The manifest, with the digest of the bytes that arrived.
    pub(super) async fn manifest(
        &mut self,
        name: &str,
        limit_bytes: u64,
    ) -> Result<(String, Vec<u8>), RegistryError> {
        let path = self.path("manifests", name);
        let response = self.ask(Method::GET, &path, accept(), None).await?;
        let too_large = || RegistryError::TooLarge {
            what: "the manifest",
            limit_bytes,
            setting: "the limit of the distribution specification",
        };
        let bytes = self.body(response, limit_bytes, too_large).await?;
        Ok((digest_of(&bytes), bytes))
    }

    /// The bytes of a layer, checked against the digest that the manifest names.
    pub(super) async fn blob(&mut self, layer: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        let path = self.path("blobs", &layer.digest);
        let response = self.ask(Method::GET, &path, HeaderMap::new(), None).await?;
        let too_large = || RegistryError::TooLarge {
            what: "the layer",
            limit_bytes: layer.size,
            setting: "the size that its manifest declares",
        };
        if let Some(progress) = self.progress {
            progress.pulling(layer.size);
        }
        let bytes = self.body(response, layer.size, too_large).await;
        if let Some(progress) = self.progress {
            progress.done();
        }
        let bytes = bytes?;
        let found = digest_of(&bytes);
        if found != layer.digest {
            return Err(RegistryError::Digest {
                what: "the layer",
                wanted: layer.digest.clone(),
                found,
            });
        }
        Ok(bytes)
    }

    /// Pushes a blob in one piece, unless the registry already has it.
    pub(super) async fn push_blob(
        &mut self,
        digest: &str,
        bytes: Bytes,
    ) -> Result<(), RegistryError> {
        let path = self.path("blobs", digest);
        match self.ask(Method::HEAD, &path, HeaderMap::new(), None).await {
            Ok(_) => return Ok(()),
            Err(RegistryError::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }) => {}
            Err(error) => return Err(error),
        }
        let path = format!("{}/blobs/uploads/", self.reference.repository);
        let response = self
            .ask(Method::POST, &path, HeaderMap::new(), Some(Bytes::new()))
            .await?;
        let location = response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok());
        let at = location.and_then(|location| response.url().join(location).ok());
        let Some(mut at) = at else {
            return Err(self.unreachable(ConnectionError::NoUploadLocation));
        };
        at.query_pairs_mut().append_pair("digest", digest);
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        if let Some(progress) = self.progress {
            progress.pushing(bytes.len() as u64);
        }
        let pushed = self.ask(Method::PUT, at.as_str(), headers, Some(bytes));
        let pushed = pushed.await.map(drop);
        if let Some(progress) = self.progress {
            progress.done();
        }
        pushed
    }

    pub(super) async fn push_manifest(
        &mut self,
        digest: &str,
        bytes: Bytes,
    ) -> Result<(), RegistryError> {
        let name = self.reference.tag.as_deref().unwrap_or(digest);
        let path = self.path("manifests", name);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(OCI_MANIFEST));
        self.ask(Method::PUT, &path, headers, Some(bytes))
            .await
            .map(drop)
    }

    pub(super) fn reference(&self) -> &'c Reference {
        self.reference
    }

    /// The name that the manifest is requested by: the digest if there is one, else the tag.
    pub(crate) fn name(&self) -> &'c str {
        let Reference { tag, digest, .. } = self.reference;
        digest.as_deref().or(tag.as_deref()).unwrap_or_default()
    }

    pub(super) fn path(&self, kind: &str, name: &str) -> String {
        format!("{}/{kind}/{name}", self.reference.repository)
    }

    /// The URL of a path below `/v2/` of the registry.
    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let url = self.host.base.join(path);
        url.map_err(|error| self.unreachable(ConnectionError::Url(error)))
    }

    /// Sends a request. Adds credentials if the registry asks for them, and retries where that may help.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, RegistryError> {
        let url = self.url(path)?;
        let mut challenged = false;
        let mut attempt = 1;
        loop {
            let sent = self
                .send(method.clone(), url.clone(), headers.clone(), body.clone())
                .await;
            let (error, pause) = match sent {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && !challenged => {
                    challenged = true;
                    self.authorize(response.headers()).await?;
                    continue;
                }
                Ok(response) => {
                    let status = response.status();
                    let pause = retry_after(response.headers());
                    let error = self.status(status, &method, url.path());
                    if !(status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS) {
                        return Err(error);
                    }
                    (error, pause)
                }
                Err(error @ RegistryError::Unreachable { .. }) => (error, None),
                Err(error) => return Err(error),
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            let doubled = FIRST_PAUSE * (1 << (attempt - 1));
            tokio::time::sleep(pause.unwrap_or(doubled).min(LONGEST_PAUSE)).await;
            attempt += 1;
        }
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, RegistryError> {
        // Uploads may go to another server, which must not get the registry's credentials.
        let at_home = url.origin() == self.host.base.origin();
        let mut request = self.host.client.request(method, url).headers(headers);
        if let Some(authorization) = self.authorization.as_ref().filter(|_| at_home) {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = body {
            request = request.header(CONTENT_LENGTH, body.len()).body(body);
        }
        self.follow(request, Body::Open).await
    }

    /// Sends a request and follows redirects. Checks each URL before it is requested.
    async fn follow(&self, request: RequestBuilder, kind: Body) -> Result<Response, RegistryError> {
        let mut request = request.build().map_err(|error| self.failed(error))?;
        for _ in 0..=MAX_REDIRECTS {
            self.check(request.url()).await?;
            if let Some(progress) = self.progress {
                progress.requested();
            }
            let next = request.try_clone();
            let sent = self.host.client.execute(request).await;
            let response = sent.map_err(|error| self.failed(error))?;
            let redirected = next.and_then(|next| redirect(next, &response));
            let Some(next) = redirected else {
                return Ok(response);
            };
            let leaves = next.url().origin() != response.url().origin();
            if leaves && kind == Body::Secret && next.body().is_some() {
                return Err(RegistryError::Challenge {
                    host: self.host.name.clone(),
                    source: ChallengeError::Redirect {
                        origin: next.url().origin().ascii_serialization(),
                    },
                });
            }
            request = next;
        }
        Err(self.unreachable(ConnectionError::TooManyRedirects))
    }

    /// Answers the registry's challenge: gets a token, or prepares the credentials.
    async fn authorize(&mut self, headers: &HeaderMap) -> Result<(), RegistryError> {
        let credential = match self.credentials {
            Credentials::Nothing => None,
            Credentials::Login(Login { username, password }) => Some(
                DockerCredential::UsernamePassword(username.to_string(), password.to_string()),
            ),
            Credentials::Configured => {
                let configured = self.config.credentials.as_deref();
                credential(configured, self.reference, self.helpers).await?
            }
        };
        let challenge = |source: ChallengeError| RegistryError::Challenge {
            host: self.host.name.clone(),
            source,
        };
        for header in headers.get_all(WWW_AUTHENTICATE) {
            let text = header.to_str().unwrap_or_default();
            let challenges =
                http_auth::parse_challenges(text).map_err(|_| challenge(ChallengeError::Header))?;
            for asked in challenges {
                let parameter = |name: &str| {
                    let mut parameters = asked.params.iter();
                    let found = parameters.find(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.map(|(_, value)| value.to_unescaped())
                };
                if asked.scheme.eq_ignore_ascii_case("bearer") {
                    let realm = parameter("realm")
                        .and_then(|realm| Url::parse(&realm).ok())
                        .ok_or_else(|| challenge(ChallengeError::Realm))?;
                    let token = self
                        .token(realm, parameter("service"), parameter("scope"), credential)
                        .await?;
                    self.authorization = Some(secret(&format!("Bearer {token}"))?);
                    return Ok(());
                }
                if asked.scheme.eq_ignore_ascii_case("basic") {
                    return match credential {
                        Some(DockerCredential::UsernamePassword(name, password)) => {
                            self.authorization = Some(secret(&basic(&name, &password))?);
                            Ok(())
                        }
                        // The registry then refuses again, and that error says how to solve the problem.
                        _ => Ok(()),
                    };
                }
            }
        }
        Err(challenge(ChallengeError::Scheme))
    }

    /// Gets a token from the authorization server of the registry.
    async fn token(
        &self,
        mut realm: Url,
        service: Option<String>,
        scope: Option<String>,
        credential: Option<DockerCredential>,
    ) -> Result<String, RegistryError> {
        let challenge = |source: ChallengeError| RegistryError::Challenge {
            host: self.host.name.clone(),
            source,
        };
        if realm.scheme() != "https" && realm.scheme() != self.host.base.scheme() {
            return Err(challenge(ChallengeError::NoTls { realm }));
        }
        let service = service.map(|service| ("service", service));
        let scope = scope.map(|scope| ("scope", scope));
        let parameters: Vec<(&str, String)> = service.into_iter().chain(scope).collect();
        let request = match credential {
            Some(DockerCredential::IdentityToken(token)) => {
                let mut form = url_encoded(&parameters);
                form.push_str(&url_encoded(&[
                    ("grant_type", "refresh_token".to_owned()),
                    ("client_id", "tollgate".to_owned()),
                    ("refresh_token", token),
                ]));
                self.host
                    .client
                    .post(realm.clone())
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form)
            }
            other => {
                for (name, value) in &parameters {
                    realm.query_pairs_mut().append_pair(name, value);
                }
                let request = self.host.client.get(realm.clone());
                match other {
                    Some(DockerCredential::UsernamePassword(name, password)) => {
                        request.header(AUTHORIZATION, secret(&basic(&name, &password))?)
                    }
                    _ => request,
                }
            }
        };
        let response = self.follow(request, Body::Secret).await?;
        if !response.status().is_success() {
            return Err(self.status(response.status(), &Method::GET, realm.path()));
        }
        let too_large = || RegistryError::TooLarge {
            what: "the token",
            limit_bytes: MAX_TOKEN_BYTES,
            setting: "a fixed limit of Tollgate",
        };
        let bytes = self.body(response, MAX_TOKEN_BYTES, too_large).await?;
        // The error shows no part of the answer, which may be a token in another format.
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|_| challenge(ChallengeError::Answer))?;
        token
            .token
            .or(token.access_token)
            .ok_or_else(|| challenge(ChallengeError::NoToken))
    }

    /// Reads a body up to a limit, whatever length it declares.
    pub(super) async fn body(
        &self,
        mut response: Response,
        limit_bytes: u64,
        too_large: impl Fn() -> RegistryError,
    ) -> Result<Vec<u8>, RegistryError> {
        if response
            .content_length()
            .is_some_and(|length| length > limit_bytes)
        {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(error))? {
            if (bytes.len() + chunk.len()) as u64 > limit_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
            if let Some(progress) = self.progress {
                progress.received(chunk.len() as u64);
            }
        }
        Ok(bytes)
    }

    async fn check(&self, url: &Url) -> Result<(), RegistryError> {
        let refused = |source| RegistryError::Refused {
            host: self.host.name.clone(),
            source,
        };
        self.host.dialer.check(url).await.map_err(refused)
    }

    fn failed(&self, error: reqwest::Error) -> RegistryError {
        match self.host.dialer.take_refused() {
            Some(source) => RegistryError::Refused {
                host: self.host.name.clone(),
                source,
            },
            // A URL may carry a signature, so it is left out of the error.
            None => {
                let error = error.without_url();
                let hint = transport::hint(&error, self.host.is_plain_http());
                self.unreachable(ConnectionError::Request { error, hint })
            }
        }
    }

    fn unreachable(&self, source: ConnectionError) -> RegistryError {
        RegistryError::Unreachable {
            host: self.host.name.clone(),
            source,
        }
    }

    fn status(&self, status: StatusCode, method: &Method, path: &str) -> RegistryError {
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => match self.credentials {
                Credentials::Configured => {
                    ": the credentials are missing, wrong or not valid for this repository (registries.credentials)"
                }
                Credentials::Login(_) => {
                    ": the credentials of the Pod's imagePullSecrets are wrong or not valid for this repository"
                }
                Credentials::Nothing => {
                    ": it wants credentials, which Tollgate sends without TLS only to a host with registries.hosts[].plainHTTP"
                }
            },
            StatusCode::NOT_FOUND => {
                ": there is no such repository, tag or digest, or the registry hides it without credentials"
            }
            StatusCode::TOO_MANY_REQUESTS => ": too many requests; raise registries.pollInterval",
            StatusCode::BAD_REQUEST if self.host.is_plain_http() => transport::EXPECTS_TLS,
            _ => "",
        };
        RegistryError::Status {
            host: self.host.name.clone(),
            status,
            method: method.clone(),
            path: path.to_owned(),
            hint,
        }
    }
}

/// The request that a redirect asks for; `None` if the answer is no redirect.
fn redirect(mut request: Request, response: &Response) -> Option<Request> {
    let status = response.status();
    let becomes_get = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *request.method() == Method::POST,
        StatusCode::SEE_OTHER => *request.method() != Method::HEAD,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
        _ => return None,
    };
    let location = response.headers().get(LOCATION)?;
    let location = std::str::from_utf8(location.as_bytes()).ok()?;
    let url = response.url().join(location).ok()?;
    if becomes_get {
        *request.method_mut() = Method::GET;
        *request.body_mut() = None;
        for name in [CONTENT_LENGTH, CONTENT_TYPE] {
            request.headers_mut().remove(name);
        }
    }
    if url.origin() != response.url().origin() {
        request.headers_mut().remove(AUTHORIZATION);
    }
    *request.url_mut() = url;
    Some(request)
}

pub(super) fn accept() -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Accept an index too, so that the error can name it. Without this, the registry could answer 404.
    let kinds = HeaderValue::from_static(
        "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json",
    );
    headers.insert(ACCEPT, kinds);
    headers
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{password}")))
}

fn secret(text: &str) -> Result<HeaderValue, RegistryError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        RegistryError::Credentials(
            "they have characters that an HTTP header must not have".to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn url_encoded(parameters: &[(&str, String)]) -> String {
    // A form is encoded as the query of a URL, with the encoder of the URL library.
    let Ok(mut url) = Url::parse("form:///") else {
        return String::new();
    };
    for (name, value) in parameters {
        url.query_pairs_mut().append_pair(name, value);
    }
    format!("{}&", url.query().unwrap_or_default())
}
