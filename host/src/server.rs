//! The front door: TLS, HTTP, routes, caps, deadlines and the drain.
//!
//! The server knows nothing of plugins. It hands every review to a [`Gate`] and turns the gate's
//! [`Reply`] into HTTP. It owns everything that can go wrong before and after that: slow clients,
//! oversized bodies, too many bytes at once, a panic in the gate, a shutdown with requests in
//! flight.
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

/// What a webhook call asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Endpoint {
    /// `POST /mutate` or `/mutate/<plugin>`.
    Mutate,
    /// `POST /validate` or `/validate/<plugin>`.
    Validate,
}

/// One review, read from the wire and not yet understood.
#[derive(Debug)]
pub struct Call {
    /// Which of the two endpoints was called.
    pub endpoint: Endpoint,
    /// The plugin named in the path: only that one is to run.
    pub plugin: Option<String>,
    /// When the head of the request had been read.
    pub received: Instant,
    /// When the answer has to be ready: `received` plus `?timeout=`, less the configured margin.
    pub deadline: Instant,
    /// The body, or as much of it as the cap lets through.
    pub body: Body,
}

/// The body of a call.
///
/// The bytes count against the cap on bytes in flight for as long as any clone of them is alive,
/// so work that goes on after the answer (audit mode) stays accounted for.
#[derive(Clone, Debug)]
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// Past the cap for one body. The gate still gets to say what that means, because a plain 413
    /// would let the webhook's failurePolicy decide for plugins that fail differently.
    TooLarge {
        /// What was read before the cap was known to be passed, at most 64 KiB.
        head: Bytes,
        /// The cap, `requests.maxBody`.
        limit_bytes: u64,
    },
}

/// What the gate answers.
#[derive(Debug)]
pub enum Reply {
    /// 200: an AdmissionReview.
    Review(Bytes),
    /// 429 with `Retry-After: 1`, which kube-apiserver retries within its deadline.
    Overloaded,
    /// The same: other reviews have taken the memory for decoded documents.
    Crowded,
    /// 503 with `Retry-After: 1`, retried as well: there are no plugins yet.
    Starting,
    /// 400: the body is not an AdmissionReview. The text must not quote the body.
    BadRequest(String),
    /// 404: no plugin has the name in the path.
    NoSuchPlugin(String),
    /// 413: the body is past the cap; the text names the limit.
    TooLarge(String),
    /// 500: the host failed. The text must not quote the body.
    Internal(String),
}

/// Whether the host should get traffic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// `/readyz` is 200 when set, else 503. A drain overrides it.
    pub ready: bool,
    /// Whether all plugins are loaded without which requests are denied: the header [`COMPLETE`] of `/readyz`.
    pub complete: bool,
    /// One line for each thing that matters, shown with `?verbose` and whenever not ready.
    pub detail: Vec<String>,
}

/// What came of a wish to read everything again.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// Whether all that is configured is served now: 200, else 500.
    pub complete: bool,
    /// What has changed and what could not.
    pub report: serde_json::Value,
}

/// What stands behind the server: the plugins, or in tests something simpler.
pub trait Gate: Send + Sync + 'static {
    /// Judges one review. Dropped when the client goes away or the call's whole timeout is over.
    fn review(&self, call: Call) -> impl Future<Output = Reply> + Send;
    /// What `/plugins` shows.
    fn plugins(&self) -> serde_json::Value;
    /// What `/candidates` shows: an object with the list `candidates`. There are none unless this is implemented.
    fn candidates(&self) -> serde_json::Value {
        serde_json::json!({ "candidates": [] })
    }
    /// What `/decisions` shows: an object with the list `decisions`, the newest first; with a uid, those of one
    /// review in full. None are kept unless this is implemented.
    fn decisions(&self, uid: Option<&str>) -> serde_json::Value {
        let _ = uid;
        serde_json::json!({ "decisions": [] })
    }
    /// Reads everything again, for `POST /reload`; none where there is nothing to read.
    fn reload(&self) -> impl Future<Output = Option<Reloaded>> + Send {
        std::future::ready(None)
    }
    /// What `/readyz` shows.
    fn readiness(&self) -> Readiness;
}

/// A server that has its sockets and certificate and does not serve yet.
///
/// The kernel queues connections from the moment of [`Server::bind`], so a client that comes
/// between `bind` and [`Server::run`] waits rather than being refused.
pub struct Server<G> {
    listener: TcpListener,
    local_address: SocketAddr,
    admin: Admin<G>,
    admin_authentication: Option<Arc<authentication::Authentication>>,
    refusals: Arc<Refusals>,
    /// Answers from the moment of [`Server::bind`].
    probes: Probes,
    certificates: Arc<Certificates>,
    shared: Arc<Shared<G>>,
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The HTTPS listener.
    pub address: SocketAddr,
    /// The admin listener.
    pub admin_address: SocketAddr,
    /// The probes listener.
    pub probes_address: SocketAddr,
    /// The file to register as `caBundle`, when the certificate is self-signed.
    pub ca_bundle: Option<PathBuf>,
}

/// Where to listen and as whom.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The HTTPS listener; port 0 takes a free one.
    pub address: SocketAddr,
    /// The admin listener; port 0 takes a free one.
    pub admin: config::Admin,
    /// The plain listener for probes and metrics; port 0 takes a free one.
    pub probes_address: SocketAddr,
    /// The certificate.
    pub tls: Tls,
    /// What clients have to show on the HTTPS listener.
    pub authentication: Authentication,
    /// What tells this server from the other replicas.
    pub instance: Instance,
}

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A listener's address could not be taken.
    #[error(
        "cannot listen on {address} ({setting}): the address must be this host's own and its port free"
    )]
    Listen {
        /// The configuration key.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate could not be used.
    #[error("cannot serve TLS")]
    Tls(#[source] CertificateError),
    /// What clients have to show could not be read.
    #[error("cannot tell who may call")]
    Authentication(#[source] AuthenticationError),
    /// What administrators have to show could not be read.
    #[error("cannot tell who may use the admin listener (admin.authentication)")]
    AdminAuthentication(#[source] AuthenticationError),
    /// The admin listener would be open to everybody.
    #[error("admin.authentication: {0}")]
    Exposed(String),
    /// There is no thread for the probes.
    #[error("cannot start the thread that answers probes (probes.listen)")]
    Probes(#[source] std::io::Error),
}

// === impl Endpoint ===

impl Endpoint {
    /// `mutate` or `validate`, as in the path and in metrics.
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
    /// Loads or makes the certificate, takes all addresses, and answers probes from then on.
    ///
    /// # Errors
    ///
    /// When an address cannot be taken or the certificate cannot be used.
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

    /// The file to register as `caBundle`, when the certificate is self-signed.
    #[must_use]
    pub fn ca_bundle(&self) -> Option<PathBuf> {
        self.certificates.ca_bundle()
    }

    /// All of these, for when the server itself runs.
    #[must_use]
    pub fn listening(&self) -> Listening {
        Listening {
            address: self.local_address(),
            admin_address: self.admin_address(),
            probes_address: self.probes_address(),
            ca_bundle: self.ca_bundle(),
        }
    }

    /// Serves until `stop` resolves, then drains; see [`Stop`] for how.
    ///
    /// Dropping the future closes every connection at once.
    pub async fn run(self, stop: impl Future<Output = Stop>) -> Drained {
        let Self {
            listener,
            admin,
            admin_authentication,
            refusals,
            // Dropped when the drain is over: probes and metrics are answered until the very end.
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
        // The background set is dropped, and with it aborted, when the drain is over.
        accept::run(listener, certificates, shared, stop).await
    }
}

// === impl Listening ===

impl Listening {
    /// Tells those who read the log that reviews are answered.
    pub fn announce(&self) {
        tracing::info!(
            address = %self.address,
            admin = %self.admin_address,
            probes = %self.probes_address,
            ca_bundle = self.ca_bundle(),
            "listening"
        );
    }

    /// The same while there is nothing to answer them with.
    pub fn announce_start(&self) {
        tracing::info!(
            address = %self.address,
            admin = %self.admin_address,
            probes = %self.probes_address,
            ca_bundle = self.ca_bundle(),
            "loading the plugins: reviews are answered with 503 until they are there"
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
