//! The HTTPS server: TLS, HTTP, routes, caps, deadlines and the drain.
//!
//! The server knows nothing about plugins. It passes every review to a [`Gate`] and turns the gate's [`Reply`] into
//! HTTP. The server also handles everything that can go wrong before and after: slow clients, oversized bodies, too
//! many bytes at once, a panic in the gate, and a shutdown with requests in flight.
//!
//! ```text
//! accept → TLS handshake → HTTP/1.1 | HTTP/2 → route → body under two caps → Gate → answer
//!   (connection)  (tls)       (connection)    (route)       (body)         (exchange)
//! ```

use std::{future::Future, net::SocketAddr, path::PathBuf, sync::Arc, time::Instant};

use bytes::Bytes;
use rustls::crypto::ring;
use tokio::net::TcpListener;

use crate::{
    config::{self, Authentication, Requests, Tls},
    metrics::Metrics,
    server::{
        admin::{Admin, Clients},
        connection::Shared,
        probes::{Probes, Told},
        refresh::{Refusals, Sources},
        tls::Certificates,
    },
};

mod accept;
mod activity;
mod admin;
mod answer;
mod authentication;
mod authority;
mod body;
mod bounded;
mod budget;
mod connection;
mod deadline;
mod exchange;
mod inspect;
mod instance;
mod page;
mod places;
mod probes;
mod refresh;
mod route;
mod signals;
mod tls;
mod transport;

pub use self::{
    accept::Drained,
    authentication::AuthenticationError,
    authority::AuthorityError,
    deadline::{MAX_TIMEOUT, after as deadline_after},
    inspect::{InspectError, Inspected, Usable, inspect},
    instance::{COMPLETE, INSTANCE, Instance},
    signals::{Signals, Stop},
    tls::{CertificateError, Outdated},
};
pub(crate) use self::{authority::bundle_path, deadline::usable as usable_time};

/// The endpoint that a webhook call is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Endpoint {
    /// `POST /mutate` or `/mutate/<plugin>`.
    Mutate,
    /// `POST /validate` or `/validate/<plugin>`.
    Validate,
}

/// One review as read from the wire; the server has not parsed its body.
#[derive(Debug)]
pub struct Call {
    /// The endpoint that was called.
    pub endpoint: Endpoint,
    /// The plugin named in the path. If set, only this plugin runs.
    pub plugin: Option<String>,
    /// When the server had read the head of the request.
    pub received: Instant,
    /// When the answer must be ready: `received` plus `?timeout=`, minus the configured margin.
    pub deadline: Instant,
    /// The body, or the part of it that fits under the cap.
    pub body: Body,
}

/// The body of a call.
///
/// The bytes count against the cap on bytes in flight until the last clone is dropped. Work that continues after the
/// answer (audit mode) therefore stays accounted for.
#[derive(Clone, Debug)]
pub enum Body {
    /// The complete body.
    Whole(Bytes),
    /// A body that exceeds the cap for one body. The gate decides the answer. A plain 413 would apply the webhook's
    /// failurePolicy, although plugins may have different ones.
    TooLarge {
        /// The bytes that were read before the cap was exceeded, at most 64 KiB.
        head: Bytes,
        /// The cap, `requests.maxBody`.
        limit_bytes: u64,
    },
}

/// The gate's answer to a call.
#[derive(Debug)]
pub enum Reply {
    /// 200: an AdmissionReview.
    Review(Bytes),
    /// 429 with `Retry-After: 1`. kube-apiserver retries within its deadline.
    Overloaded,
    /// The same 429: other reviews have used up the memory for decoded documents.
    Crowded,
    /// 503 with `Retry-After: 1`: no plugins are loaded yet. kube-apiserver retries this too.
    Starting,
    /// 400: the body is not an AdmissionReview. The text must not quote the body.
    BadRequest(String),
    /// 404: no plugin has the name in the path.
    NoSuchPlugin(String),
    /// 413: the body exceeds the cap. The text names the limit.
    TooLarge(String),
    /// 500: the host failed. The text must not quote the body.
    Internal(String),
}

/// Whether the host should get traffic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// `/readyz` returns 200 if set, else 503. A drain overrides this with 503.
    pub ready: bool,
    /// Whether every plugin without which requests are denied is loaded. `/readyz` sends it in the header [`COMPLETE`].
    pub complete: bool,
    /// One line per fact, shown with `?verbose` and whenever the host is not ready.
    pub detail: Vec<String>,
}

/// The result of a reload.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Whether everything that is configured is now serving: `POST /reload` returns 200, else 500.
    pub complete: bool,
    /// The changes that were made and those that failed.
    pub report: serde_json::Value,
}

/// Answers reviews for the server: the plugins, or something simpler in tests.
pub trait Gate: Send + Sync + 'static {
    /// Answers one review. The future is dropped when the client disconnects or the call's whole timeout is over.
    fn review(&self, call: Call) -> impl Future<Output = Reply> + Send;
    /// Returns the content of `/plugins`.
    fn plugins(&self) -> serde_json::Value;
    /// Returns the content of `/candidates`: an object with the list `candidates`. The default list is empty.
    fn candidates(&self) -> serde_json::Value {
        serde_json::json!({ "candidates": [] })
    }
    /// Returns the content of `/decisions`: an object with the list `decisions`, newest first. With a uid, the list
    /// holds the full decisions of that review. The default list is empty.
    fn decisions(&self, uid: Option<&str>) -> serde_json::Value {
        let _ = uid;
        serde_json::json!({ "decisions": [] })
    }
    /// Reads the configuration and the plugins again, for `POST /reload`. Returns none if there is nothing to read.
    fn reload(&self) -> impl Future<Output = Option<Reloaded>> + Send {
        std::future::ready(None)
    }
    /// Returns the content of `/readyz`.
    fn readiness(&self) -> Readiness;
}

/// A server that has its sockets and certificate but does not serve yet.
///
/// The kernel queues connections as soon as [`Server::bind`] returns. A client that connects between `bind` and
/// [`Server::run`] waits and is not refused.
pub struct Server<G> {
    listener: TcpListener,
    local_address: SocketAddr,
    admin: Admin<G>,
    admin_authentication: Option<Arc<authentication::Authentication>>,
    refusals: Arc<Refusals>,
    /// The probes listener, which answers as soon as [`Server::bind`] returns.
    probes: Probes,
    certificates: Arc<Certificates>,
    shared: Arc<Shared<G>>,
}

/// The addresses that a server listens on.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The HTTPS listener.
    pub address: SocketAddr,
    /// The admin listener.
    pub admin_address: SocketAddr,
    /// The probes listener.
    pub probes_address: SocketAddr,
    /// The file to register as `caBundle`, if the certificate is self-signed.
    pub ca_bundle: Option<PathBuf>,
}

/// The addresses, certificate and identity that a server starts with.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address of the HTTPS listener. Port 0 takes a free port.
    pub address: SocketAddr,
    /// The admin listener. Port 0 takes a free port.
    pub admin: config::Admin,
    /// The address of the plain HTTP listener for probes and metrics. Port 0 takes a free port.
    pub probes_address: SocketAddr,
    /// The source of the certificate.
    pub tls: Tls,
    /// The credentials that clients must present on the HTTPS listener.
    pub authentication: Authentication,
    /// The number that tells this server from the other replicas.
    pub instance: Instance,
}

/// Error when the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A listener cannot bind its address.
    #[error(
        "cannot listen on {address} ({setting}): the address must belong to this host and its port must be free"
    )]
    Listen {
        /// The configuration key.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The certificate is unusable.
    #[error("cannot serve TLS")]
    Tls(#[source] CertificateError),
    /// The credentials that clients must present cannot be read.
    #[error("cannot load the credentials that clients must present (authentication)")]
    Authentication(#[source] AuthenticationError),
    /// The credentials that administrators must present cannot be read.
    #[error("cannot load the credentials that administrators must present (admin.authentication)")]
    AdminAuthentication(#[source] AuthenticationError),
    /// The admin listener would be open to everybody.
    #[error("admin.authentication: {0}")]
    Exposed(String),
    /// The thread that answers probes cannot start.
    #[error("cannot start the thread that answers probes (probes.listen)")]
    Probes(#[source] std::io::Error),
}

// === impl Endpoint ===

impl Endpoint {
    /// Returns `mutate` or `validate`, as used in the path and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

// === impl Server ===

impl<G: Gate> Server<G> {
    /// Loads or creates the certificate and binds all addresses. Probes are answered from then on.
    ///
    /// # Errors
    ///
    /// Fails if an address cannot be bound, if the certificate or the credentials are unusable, or if the admin
    /// listener would be open to everybody.
    pub async fn bind(
        listen: &Listen,
        requests: Requests,
        gate: Arc<G>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BindError> {
        if let Some(problem) = listen.admin.exposed() {
            return Err(BindError::Exposed(problem));
        }
        let provider = Arc::new(ring::default_provider());
        let authentication =
            authentication::Authentication::load(&listen.authentication, &provider)
                .map_err(BindError::Authentication)?;
        let admin_authentication = listen.admin.authentication.as_ref();
        let admin_authentication = admin_authentication
            .map(|settings| authentication::Authentication::load(settings, &provider))
            .transpose()
            .map_err(BindError::AdminAuthentication)?
            .map(Arc::new);
        let verifier = authentication.verifier();
        let certificates = Certificates::load(&listen.tls, provider, verifier, &metrics)
            .await
            .map_err(BindError::Tls)?;
        let certificates = Arc::new(certificates);
        let (listener, local_address) = bind("listen", listen.address).await?;
        let (admin_listener, admin_address) = bind("admin.listen", listen.admin.listen).await?;
        let (probes_listener, probes_address) =
            bind("probes.listen", listen.probes_address).await?;
        let shared = Arc::new(Shared::new(
            Arc::clone(&gate),
            requests,
            Arc::new(authentication),
            metrics,
        ));
        let clients = match &admin_authentication {
            None => None,
            Some(authentication) => Some(Clients {
                acceptor: certificates
                    .admin_acceptor(authentication.verifier())
                    .map_err(BindError::Tls)?,
                authentication: Arc::clone(authentication),
            }),
        };
        let refusals = Arc::<Refusals>::default();
        let told = Told {
            shared: Arc::clone(&shared),
            certificates: Arc::clone(&certificates),
            admin_authentication: admin_authentication.clone(),
            refusals: Arc::clone(&refusals),
            instance: listen.instance,
        };
        let probes =
            Probes::start(probes_listener, probes_address, told).map_err(BindError::Probes)?;
        Ok(Self {
            listener,
            local_address,
            admin: Admin::new(
                admin_listener,
                admin_address,
                Arc::clone(&shared),
                clients,
                listen.admin.hosts.clone(),
            ),
            admin_authentication,
            refusals,
            probes,
            certificates,
            shared,
        })
    }

    /// The address of the HTTPS listener.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// The address of the admin listener.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// The address of the probes listener.
    #[must_use]
    pub fn probes_address(&self) -> SocketAddr {
        self.probes.address()
    }

    /// The file to register as `caBundle`, if the certificate is self-signed.
    #[must_use]
    pub fn ca_bundle(&self) -> Option<PathBuf> {
        self.certificates.ca_bundle()
    }

    /// All addresses and the `caBundle` file, for use after [`Server::run`] has consumed the server.
    #[must_use]
    pub fn listening(&self) -> Listening {
        Listening {
            address: self.local_address(),
            admin_address: self.admin_address(),
            probes_address: self.probes_address(),
            ca_bundle: self.ca_bundle(),
        }
    }

    /// Serves until `stop` resolves, then drains as [`Stop`] describes.
    ///
    /// If the future is dropped, every connection closes at once.
    pub async fn run(self, stop: impl Future<Output = Stop>) -> Drained {
        let Self {
            listener,
            admin,
            admin_authentication,
            refusals,
            // Dropped when the drain is over. Until then the server answers probes and metrics.
            probes: _probes,
            certificates,
            shared,
            ..
        } = self;
        let mut background = tokio::task::JoinSet::new();
        background.spawn(admin.run());
        let sources = Sources {
            certificates: Arc::clone(&certificates),
            authentication: Arc::clone(&shared.authentication),
            admin_authentication,
            metrics: Arc::clone(&shared.metrics),
        };
        background.spawn(refresh::keep_fresh(sources, refusals));
        // When the drain is over, the set of background tasks is dropped, which aborts them.
        accept::run(listener, certificates, shared, stop).await
    }
}

// === impl Listening ===

impl Listening {
    /// Logs that the server answers reviews.
    pub fn announce(&self) {
        tracing::info!(
            address = %self.address,
            admin = %self.admin_address,
            probes = %self.probes_address,
            ca_bundle = self.ca_bundle(),
            "listening"
        );
    }

    /// Logs that the server listens while plugins still load.
    pub fn announce_start(&self) {
        tracing::info!(
            address = %self.address,
            admin = %self.admin_address,
            probes = %self.probes_address,
            ca_bundle = self.ca_bundle(),
            "loading the plugins; reviews are answered with 503 until they are loaded"
        );
    }

    fn ca_bundle(&self) -> Option<String> {
        let path = self.ca_bundle.as_ref();
        path.map(|path| path.display().to_string())
    }
}

impl<G> std::fmt::Debug for Server<G> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Server")
            .field("local_address", &self.local_address)
            .field("ca_bundle", &self.certificates.ca_bundle())
            .finish_non_exhaustive()
    }
}

async fn bind(
    setting: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError::Listen {
        setting,
        address,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local_address = listener.local_addr().map_err(failed)?;
    Ok((listener, local_address))
}
