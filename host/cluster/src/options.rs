//! Settings for taking part in an installation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tollgate_registration::Registration;
use tollgate_telemetry::metrics::Metrics;

use crate::ClusterNamespaces;
use crate::lease::ElectionTiming;

/// Settings for [`spawn`](crate::spawn).
#[derive(Clone, Debug)]
pub struct Options {
    /// How the plugins are registered. The registrar replaces `name` and `ca_bundle`.
    pub registration: Registration,
    /// Where the certificate of the server comes from.
    pub certificates: Certificates,
    /// The name of the ClusterRole that owns the webhook configurations: an empty one that nobody is bound to, which
    /// goes when the installation goes. Without one, the Namespace owns them, and `helm uninstall` alone leaves them
    /// behind. While a named anchor is missing, nothing is registered.
    pub anchor: Option<String>,
    /// The times of Leases and retries.
    pub timing: Timing,
    /// The clock for certificates.
    pub clock: Clock,
    /// The Namespaces of the cluster, to find plugins whose selectors exclude all of theirs. Without them, nobody looks.
    pub namespaces: Option<Arc<ClusterNamespaces>>,
    /// The metrics of the host.
    pub metrics: Arc<Metrics>,
}

/// Where the certificate of the server comes from.
#[derive(Clone, Debug)]
pub enum Certificates {
    /// The own authority, in a Secret that all replicas share. It issues a certificate for these DNS names and IP
    /// addresses.
    Own {
        /// The DNS names and IP addresses.
        names: Vec<String>,
    },
    /// Another source. The receiver has the CAs to register as `caBundle`.
    Given(watch::Receiver<Trust>),
}

/// The CAs that kube-apiserver shall trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The CAs are not known yet. The leader registers nothing meanwhile.
    #[default]
    Pending,
    /// kube-apiserver uses the CAs of its system.
    System,
    /// The webhook configurations get these CAs, in PEM.
    Bundle(Vec<u8>),
}

/// The times of Leases and retries. The defaults are for clusters. Tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The times of the election.
    pub election: ElectionTiming,
    /// Time between two renewals of a replica's Lease.
    pub announce: Duration,
    /// Time without a renewal after which a replica counts as gone.
    pub replica_gone: Duration,
    /// Time between two looks at the Secret of the authority.
    pub authority: Duration,
    /// Time between two canaries of a webhook.
    pub canary: Duration,
}

/// A clock. [`Clock::system`] is the system's.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> OffsetDateTime + Send + Sync>);

// === impl Timing ===

impl Default for Timing {
    fn default() -> Self {
        Self {
            election: ElectionTiming::default(),
            announce: Duration::from_secs(10),
            replica_gone: Duration::from_secs(30),
            authority: Duration::from_secs(30),
            canary: Duration::from_secs(60),
        }
    }
}

// === impl Clock ===

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self::new(OffsetDateTime::now_utc)
    }

    /// A clock for tests.
    pub fn new(now: impl Fn() -> OffsetDateTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> OffsetDateTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
