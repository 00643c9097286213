//! The admin listener: loaded plugins, recent decisions, and reload.
//!
//! On a loopback address it speaks plain HTTP with anyone on the machine. On other addresses it speaks TLS with clients
//! that pass `admin.authentication`.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;
use tollgate_admission::tokens::Right;
use tollgate_admission::{Gate, Reloaded};

use self::access::Access;
use crate::authentication::{Authentication, Peer, Refused};
use crate::bounded;
use crate::bounded::{HEAD_TIMEOUT, Progress};
use crate::connection::Shared;
use crate::page::Page;

mod access;

/// Cap on connections: enough for administrators and their scripts.
const MAX_CONNECTIONS: usize = 64;

/// Time limit for a password check, including the wait for checks of other passwords.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The only path that changes something.
const RELOAD: &str = "/reload";

const READING: &[Method] = &[Method::GET, Method::HEAD];
const CHANGING: &[Method] = &[Method::POST];

/// The admin listener before it serves.
pub(super) struct Admin<G> {
    listener: TcpListener,
    address: SocketAddr,
    pages: Arc<Pages<G>>,
    clients: Option<Clients>,
}

/// The TLS setup and the authentication of the listener's clients.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) acceptor: TlsAcceptor,
    pub(super) authentication: Arc<Authentication>,
}

struct Pages<G> {
    shared: Arc<Shared<G>>,
    access: Access,
}

// === impl Admin ===

impl<G: Gate> Admin<G> {
    /// Creates the listener. `hosts` are names of this listener in addition to those of the loopback interface.
    pub(crate) fn new(
        listener: TcpListener,
        address: SocketAddr,
        shared: Arc<Shared<G>>,
        clients: Option<Clients>,
        hosts: Vec<String>,
    ) -> Self {
        let access = match clients {
            Some(_) => Access::AnyHost,
            None => Access::Hosts(hosts),
        };
        Self {
            listener,
            address,
            pages: Arc::new(Pages { shared, access }),
            clients,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped.
    pub(crate) async fn run(self) {
        let serve = |stream, progress| {
            serve(
                stream,
                progress,
                Arc::clone(&self.pages),
                self.clients.clone(),
            )
        };
        bounded::accept(self.listener, MAX_CONNECTIONS, serve).await;
    }
}

async fn serve<G: Gate>(
    stream: TcpStream,
    progress: Arc<Progress>,
    pages: Arc<Pages<G>>,
    clients: Option<Clients>,
) {
    let Some(clients) = clients else {
        let answer = |request| answer(Arc::clone(&pages), None, request);
        return bounded::serve_one(stream, &progress, answer).await;
    };
    let address = stream.peer_addr().ok();
    let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, clients.acceptor.accept(stream)).await else {
        pages.shared.metrics.tls_handshake_failures.inc();
        return;
    };
    let chain = stream.get_ref().1.peer_certificates();
    let peer = Arc::new(Peer::new(address, chain));
    let answer = |request| {
        let client = (Arc::clone(&clients.authentication), Arc::clone(&peer));
        answer(Arc::clone(&pages), Some(client), request)
    };
    bounded::serve_one(stream, &progress, answer).await;
}

async fn answer<G: Gate, B>(
    pages: Arc<Pages<G>>,
    client: Option<(Arc<Authentication>, Arc<Peer>)>,
    request: Request<B>,
) -> Response<Full<Bytes>> {
    if let Some((authentication, peer)) = client
        && let Some(refusal) = pages.refusal(&authentication, &peer, &request).await
    {
        return refusal;
    }
    pages.page(&request).await.into_response()
}

/// Returns the right that a request needs. A ClusterRole grants it with `nonResourceURLs`.
fn right(method: &Method, path: &str) -> Right {
    let path = match path {
        "/plugins" => "/tollgate/plugins",
        "/shadows" => "/tollgate/shadows",
        RELOAD => "/tollgate/reload",
        path if path == "/decisions" || path.starts_with("/decisions/") => "/tollgate/decisions",
        _ => "/tollgate",
    };
    let verb = match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "post",
        _ => "other",
    };
    Right { verb, path }
}

// === impl Pages ===

impl<G: Gate> Pages<G> {
    /// Returns the answer to a client that fails authentication, or none if it passes.
    async fn refusal<B>(
        &self,
        authentication: &Authentication,
        peer: &Peer,
        request: &Request<B>,
    ) -> Option<Response<Full<Bytes>>> {
        let deadline = Instant::now() + AUTHENTICATION_TIMEOUT;
        let right = right(request.method(), request.uri().path());
        let admitted = authentication.admit(peer, request.headers(), Some(right), deadline);
        let page = match admitted.await {
            Ok(()) => return None,
            Err(Refused::Busy) => Page::text(
                StatusCode::TOO_MANY_REQUESTS,
                "other password checks are in progress: try again\n",
            ),
            Err(Refused::Forbidden) => {
                let text = format!(
                    "the user of this token must not {} {}: grant it with a ClusterRole that has nonResourceURLs\n",
                    right.verb, right.path
                );
                return Some(Page::text(StatusCode::FORBIDDEN, text).into_response());
            }
            Err(Refused::Unavailable) => {
                let text =
                    "kube-apiserver does not say whether the token is valid: try again later\n";
                return Some(Page::text(StatusCode::SERVICE_UNAVAILABLE, text).into_response());
            }
            Err(Refused::Client(failure)) => {
                self.shared.metrics.authentication_failed(failure);
                Page::text(
                    StatusCode::UNAUTHORIZED,
                    "the credentials are missing or wrong: send those that admin.authentication asks for\n",
                )
            }
        };
        let mut response = page.into_response();
        for challenge in authentication.challenges() {
            let headers = response.headers_mut();
            headers.append(header::WWW_AUTHENTICATE, challenge);
        }
        Some(response)
    }

    async fn page<B>(&self, request: &Request<B>) -> Page {
        let (method, uri) = (request.method(), request.uri());
        let is_reload = uri.path() == RELOAD;
        let allowed = if is_reload { CHANGING } else { READING };
        if !allowed.contains(method) {
            return Page::only(allowed);
        }
        if let Err(refusal) = self.access.check(method, uri, request.headers()) {
            return Page::text(refusal.status(), refusal.text());
        }
        if is_reload {
            return self.reload().await;
        }
        catch_unwind(AssertUnwindSafe(|| self.read(uri))).unwrap_or_else(|_| Page::failed())
    }

    /// Reloads and answers when the reload is done. This takes as long as loading the changed plugins.
    async fn reload(&self) -> Page {
        match self.shared.gate.reload().await {
            None => Page::text(StatusCode::NOT_FOUND, "no configuration to reload\n"),
            Some(Reloaded { complete, report }) => {
                let status = if complete {
                    StatusCode::OK
                } else {
                    StatusCode::INTERNAL_SERVER_ERROR
                };
                Page::json(status, &report)
            }
        }
    }

    fn read(&self, uri: &Uri) -> Page {
        let gate = &self.shared.gate;
        match uri.path() {
            "/plugins" => Page::json(StatusCode::OK, &gate.plugins()),
            "/shadows" => Page::json(StatusCode::OK, &gate.shadows()),
            "/decisions" => Page::json(StatusCode::OK, &gate.decisions(None)),
            path => match path.strip_prefix("/decisions/") {
                Some(uid) => self.decisions_of(uid),
                None => Page::text(
                    StatusCode::NOT_FOUND,
                    "no such path: expected /plugins, /shadows, /decisions or, with POST, /reload; /livez, /readyz \
                     and /metrics are on the probes listener (probes.listen)\n",
                ),
            },
        }
    }

    fn decisions_of(&self, uid: &str) -> Page {
        let decisions = self.shared.gate.decisions(Some(uid));
        let none = decisions["decisions"].as_array().is_none_or(Vec::is_empty);
        if none {
            return Page::text(
                StatusCode::NOT_FOUND,
                "no decision is kept for this uid: Tollgate keeps the most recent ones (admin.decisions) until the \
                 process ends\n",
            );
        }
        Page::json(StatusCode::OK, &decisions)
    }
}
