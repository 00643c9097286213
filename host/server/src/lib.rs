//! The HTTPS server: TLS, HTTP, routes, caps, deadlines and the drain.
//!
//! The server knows nothing about plugins. It passes every review to a [`Gate`] and turns the gate's
//! [`Reply`](tollgate_admission::Reply) into HTTP. The server also handles slow clients, oversized bodies, too many
//! bytes at once, panics in the gate, and a shutdown with requests in flight.
//!
//! ```text
//! accept → TLS handshake → HTTP/1.1 | HTTP/2 → route → body under two caps → Gate → answer
//!   (connection)  (tls)       (connection)    (route)       (body)         (exchange)
//! ```

use std::{future::Future, net::SocketAddr, path::PathBuf, sync::Arc};

use rustls::crypto::{CryptoProvider, ring};
use tokio::net::TcpListener;
use tollgate_admission::tokens::TokenReviewer;
use tollgate_admission::{Gate, Instance};
use tollgate_config::{self as config, Authentication, Requests, Tls};
use tollgate_telemetry::metrics::Metrics;

use crate::admin::{Admin, Clients};
use crate::connection::Shared;
use crate::probes::{ProbeState, Probes};
use crate::refresh::{Refusals, Sources};
use crate::tls::Certificates;

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
mod exchange;
mod inspect;
mod listener;
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
    admin::local::{LocalPage, LocalPageError, Source as PageSource},
    authentication::AuthenticationError,
    authority::{AuthorityError, bundle_path},
    inspect::{InspectError, Inspected, Usable, inspect},
    signals::{Signals, Stop},
    tls::{CertificateError, Outdated, RegisteredAuthorities},
};

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
    /// The verifier of tokens of the cluster on the admin listener. Needed for `admin.authentication.tokenReview`.
    pub token_reviewer: Option<Arc<dyn TokenReviewer>>,
    /// Whether reviews are traced. Only callers that are authenticated on the HTTPS listener decide which ones.
    pub traces: bool,
    /// The CAs that are registered with kube-apiserver. A new certificate is served when they cover it.
    pub registered_authorities: Option<RegisteredAuthorities>,
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
    /// The server has no verifier for the tokens that administrators present.
    #[error("admin.authentication.tokenReview: nobody verifies the tokens")]
    NoTokenReviewer,
    /// The thread that answers probes cannot start.
    #[error("cannot start the thread that answers probes (probes.listen)")]
    Probes(#[source] std::io::Error),
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
        let admin_authentication = match &listen.admin.authentication {
            None => None,
            Some(settings) => Some(Arc::new(listen.authenticate_admin(settings, &provider)?)),
        };
        let verifier = authentication.verifier();
        let certificates = Certificates::load(&listen.tls, provider, verifier, &metrics)
            .await
            .map_err(BindError::Tls)?;
        let certificates =
            Arc::new(certificates.registered_with(listen.registered_authorities.clone()));
        let (listener, local_address) = bind("listen", listen.address)?;
        let (admin_listener, admin_address) = bind("admin.listen", listen.admin.listen)?;
        let (probes_listener, probes_address) = bind("probes.listen", listen.probes_address)?;
        let shared = Arc::new(Shared::new(
            Arc::clone(&gate),
            requests,
            Arc::new(authentication),
            listen.traces,
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
        let state = ProbeState {
            shared: Arc::clone(&shared),
            certificates: Arc::clone(&certificates),
            admin_authentication: admin_authentication.clone(),
            refusals: Arc::clone(&refusals),
            instance: listen.instance,
        };
        let probes =
            Probes::start(probes_listener, probes_address, state).map_err(BindError::Probes)?;
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

// === impl Listen ===

impl Listen {
    fn authenticate_admin(
        &self,
        settings: &Authentication,
        provider: &Arc<CryptoProvider>,
    ) -> Result<authentication::Authentication, BindError> {
        let reviewer = settings.token_review.as_ref().map(|_| {
            let reviewer = self.token_reviewer.clone();
            reviewer.ok_or(BindError::NoTokenReviewer)
        });
        let authentication = authentication::Authentication::load(settings, provider)
            .map_err(BindError::AdminAuthentication)?;
        Ok(authentication.with_reviewer(reviewer.transpose()?))
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

fn bind(
    setting: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError::Listen {
        setting,
        address,
        source,
    };
    let listener = listener::listen(address).map_err(failed)?;
    let local_address = listener.local_addr().map_err(failed)?;
    Ok((listener, local_address))
}
