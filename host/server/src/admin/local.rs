//! The page on a loopback address, for a person at this machine. The source asks the replicas, with the credentials of
//! that person. The browser never sees these credentials.
//!
//! Every user of the machine reaches a loopback address. So the address of the page has a secret part, which only the
//! person who started the server sees. Other paths are not found.

use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;

use super::access::Access;
use super::{MAX_CONNECTIONS, READING, site};
use crate::page::Page;
use crate::{bounded, listener};

/// The source of the page's content.
pub trait Source: Send + Sync + 'static {
    /// Returns the names of the replicas.
    ///
    /// # Errors
    ///
    /// Fails with the reason if they are not known.
    fn replicas(&self) -> impl Future<Output = Result<Vec<String>, String>> + Send;

    /// Gets a path of a replica's admin listener, with its query.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the replica does not answer.
    fn get(
        &self,
        replica: &str,
        path: &str,
    ) -> impl Future<Output = Result<(StatusCode, Bytes), String>> + Send;
}

/// A server for the page that has its socket but does not serve yet.
pub struct LocalPage {
    listener: TcpListener,
    address: SocketAddr,
    secret: String,
}

/// Error when the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LocalPageError {
    /// Other machines would reach the page.
    #[error(
        "{0} is not a loopback address: the page is served with your credentials, so only this machine may reach it"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: its port must be free")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
}

/// Bytes of the secret part of the address.
const SECRET_BYTES: usize = 16;
/// Longest query, in bytes. The page asks shorter ones.
const LONGEST_PATH: usize = 4096;

// === impl LocalPage ===

impl LocalPage {
    /// Binds a loopback address. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// Fails if the address is not a loopback address or is not free.
    pub fn bind(address: SocketAddr) -> Result<Self, LocalPageError> {
        if !address.ip().to_canonical().is_loopback() {
            return Err(LocalPageError::NotLoopback(address));
        }
        let failed = |source| LocalPageError::Listen { address, source };
        let listener = listener::listen(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            secret: secret()?,
        })
    }

    /// The URL of the page, with its secret part.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/{}{}/", self.address, self.secret, site::PAGE)
    }

    /// Serves until dropped.
    pub async fn run(self, source: impl Source) {
        let pages = Arc::new(Pages {
            secret: self.secret,
            access: Access::Hosts(Vec::new()),
            source,
        });
        let serve = |stream, progress: Arc<bounded::Progress>| {
            let pages = Arc::clone(&pages);
            async move {
                let answer = |request| answer(Arc::clone(&pages), request);
                bounded::serve_one(stream, &progress, answer).await;
            }
        };
        bounded::accept(self.listener, MAX_CONNECTIONS, serve).await;
    }
}

struct Pages<S> {
    secret: String,
    access: Access,
    source: S,
}

async fn answer<S: Source, B>(pages: Arc<Pages<S>>, request: Request<B>) -> Response<Full<Bytes>> {
    let page = pages.page(&request).await;
    site::guarded(page).into_response()
}

// === impl Pages ===

impl<S: Source> Pages<S> {
    async fn page<B>(&self, request: &Request<B>) -> Page {
        let (method, uri) = (request.method(), request.uri());
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Page::only(READING);
        }
        if let Err(refusal) = self.access.check(method, uri, request.headers()) {
            return Page::text(refusal.status(), refusal.text());
        }
        let Some(path) = self.behind_secret(uri.path()) else {
            return not_found();
        };
        if path == site::REPLICAS {
            return self.replicas().await;
        }
        if let Some(file) = site::file(path) {
            return file;
        }
        let asked = path.strip_prefix("/replica/").and_then(|rest| {
            let (name, _) = rest.split_once('/')?;
            Some((name, &rest[name.len()..]))
        });
        let Some((name, path)) = asked else {
            return not_found();
        };
        let path = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        if path.len() > LONGEST_PATH {
            return Page::text(StatusCode::URI_TOO_LONG, "the request is too long\n");
        }
        match self.source.get(name, &path).await {
            // The source asks programs of this project, which write JSON or one line of text.
            Ok((StatusCode::OK, content)) => Page::bytes(StatusCode::OK, content),
            Ok((status, content)) => Page::text(status, content),
            Err(reason) => Page::text(StatusCode::BAD_GATEWAY, format!("{reason}\n")),
        }
    }

    async fn replicas(&self) -> Page {
        match self.source.replicas().await {
            Ok(names) => {
                let replicas = names.iter().filter(|name| is_segment(name));
                let replicas = replicas.map(|name| (&**name, format!("../replica/{name}/")));
                Page::json(StatusCode::OK, &site::replicas(replicas))
            }
            Err(reason) => Page::text(StatusCode::BAD_GATEWAY, format!("{reason}\n")),
        }
    }

    /// Returns the part of a path behind the secret. The comparison takes the same time for every wrong secret.
    fn behind_secret<'p>(&self, path: &'p str) -> Option<&'p str> {
        let path = path.strip_prefix('/')?;
        let (secret, _) = path.split_once('/')?;
        let is_right = secret.as_bytes().ct_eq(self.secret.as_bytes());
        bool::from(is_right).then(|| &path[secret.len()..])
    }
}

fn not_found() -> Page {
    Page::text(
        StatusCode::NOT_FOUND,
        "no such path: open the URL that `tollgate page` printed\n",
    )
}

/// Whether a name can stand in a path as it is. Names of pods and addresses can.
fn is_segment(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(fits)
}

fn secret() -> Result<String, LocalPageError> {
    let mut bytes = [0; SECRET_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LocalPageError::NoRandom)?;
    let mut text = String::new();
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
