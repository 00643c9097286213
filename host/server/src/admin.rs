//! The admin listener: loaded plugins, recent decisions, rollouts, and reload.
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
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;
use tollgate_admission::tokens::Right;
use tollgate_admission::{Gate, Reloaded, RolloutAnswer, RolloutChange};

use self::access::Access;
use crate::authentication::{Authentication, Peer, Refused};
use crate::bounded;
use crate::bounded::{HEAD_TIMEOUT, Progress};
use crate::connection::Shared;
use crate::page::Page;

mod access;
mod listing;
pub(crate) mod local;
mod query;
mod read;
mod site;

/// Cap on connections: enough for administrators and their scripts.
const MAX_CONNECTIONS: usize = 64;

/// Time limit for a password check, including the wait for checks of other passwords.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The path that reloads.
const RELOAD: &str = "/reload";
/// The rollouts. Below it, a path with a plugin and a change makes the change.
const ROLLOUTS: &str = "/rollouts";

const MISSING: &str =
    "the credentials are missing or wrong: send those that admin.authentication asks for\n";
/// Hint for the user of a browser, which sends no tokens.
const FOR_BROWSERS: &str =
    "a browser sends no token: run `tollgate page`, which shows this page on your machine\n";

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
    /// The name of this replica, for readers of the page.
    replica: String,
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
            pages: Arc::new(Pages {
                shared,
                access,
                replica: replica(),
            }),
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
        "/plugins" | "/exceptions" | "/replica" => "/tollgate/plugins",
        "/shadows" => "/tollgate/shadows",
        "/scan" => "/tollgate/scan",
        "/costs" => "/tollgate/decisions",
        RELOAD => "/tollgate/reload",
        path if is_below(path, ROLLOUTS) => "/tollgate/rollouts",
        path if is_below(path, "/decisions") => "/tollgate/decisions",
        // The page itself has no data.
        path if is_below(path, site::PAGE) => "/tollgate/plugins",
        _ => "/tollgate",
    };
    let verb = match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "post",
        _ => "other",
    };
    Right { verb, path }
}

/// Returns the plugin and the change that a path names.
fn rollout_change(path: &str) -> Option<(&str, RolloutChange)> {
    let (plugin, change) = path
        .strip_prefix(ROLLOUTS)?
        .strip_prefix('/')?
        .split_once('/')?;
    let mut changes = [RolloutChange::Promote, RolloutChange::RollBack].into_iter();
    let change = changes.find(|known| known.name() == change)?;
    Some((plugin, change))
}

/// Whether a path is `top` or below it.
fn is_below(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The name of this replica: that of its pod, or of the host.
fn replica() -> String {
    let pod = std::env::var("POD_NAME").ok();
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = pod.or_else(host).unwrap_or_default();
    match name.trim() {
        "" => "this replica".to_owned(),
        name => name.to_owned(),
    }
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
                let mut text = MISSING.to_owned();
                if is_below(request.uri().path(), site::PAGE) {
                    text.push_str(FOR_BROWSERS);
                }
                Page::text(StatusCode::UNAUTHORIZED, text)
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
        let change = rollout_change(uri.path());
        let allowed = if is_reload || change.is_some() {
            CHANGING
        } else {
            READING
        };
        if !allowed.contains(method) {
            return Page::only(allowed);
        }
        if let Err(refusal) = self.access.check(method, uri, request.headers()) {
            return Page::text(refusal.status(), refusal.text());
        }
        if is_reload {
            return self.reload().await;
        }
        if let Some((plugin, change)) = change {
            return self.change_rollout(plugin, change).await;
        }
        let gate = &*self.shared.gate;
        let read = AssertUnwindSafe(|| read::read(gate, &self.replica, uri));
        catch_unwind(read).unwrap_or_else(|_| Page::failed())
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

    /// Changes a rollout, and answers with the rollout after the change.
    async fn change_rollout(&self, plugin: &str, change: RolloutChange) -> Page {
        match self.shared.gate.change_rollout(plugin, change).await {
            RolloutAnswer::Done(rollout) => Page::json(StatusCode::OK, &rollout),
            RolloutAnswer::Unknown => Page::text(
                StatusCode::NOT_FOUND,
                "the plugin has no rollout: GET /rollouts lists those that have one\n",
            ),
            RolloutAnswer::Refused(reason) => {
                Page::text(StatusCode::CONFLICT, format!("{reason}\n"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_plugin_and_change() {
        let table = [
            (
                "/rollouts/guard/promote",
                Some(("guard", RolloutChange::Promote)),
            ),
            (
                "/rollouts/guard/rollback",
                Some(("guard", RolloutChange::RollBack)),
            ),
            ("/rollouts/guard", None),
            ("/rollouts/guard/delete", None),
            ("/rollouts", None),
            ("/rolloutsguard/promote", None),
        ];
        for (path, expected) in table {
            assert_eq!(rollout_change(path), expected, "{path}");
        }
    }

    #[test]
    fn rollouts_have_their_own_right() {
        for (method, path, verb) in [
            (Method::GET, "/rollouts", "get"),
            (Method::POST, "/rollouts/guard/rollback", "post"),
        ] {
            let right = right(&method, path);
            assert_eq!((right.verb, right.path), (verb, "/tollgate/rollouts"));
        }
    }
}
