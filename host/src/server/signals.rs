//! The signals that end the host, and what each means for the drain.

use std::{io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How the server was told to stop.
///
/// Either way readiness goes red at once, HTTP/1.1 answers carry `Connection: close`, HTTP/2
/// connections get GOAWAY, requests in flight are answered, and `requests.shutdownGracePeriod`
/// bounds it all. The difference is for how long connections are still accepted: behind a Service,
/// nodes keep sending for a moment after the pod began to end, and what they send must not be
/// refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// SIGTERM, the orderly end of a pod: accept for another 3 s, at most a quarter of the grace
    /// period.
    Terminate,
    /// SIGINT, somebody at a terminal: accept what has already come (100 ms), then close.
    Interrupt,
}

/// A stream of SIGTERM and SIGINT. From its creation on, these no longer end the process by
/// themselves.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Stop ===

impl Stop {
    pub(super) fn accept_for(self, grace_period: Duration) -> Duration {
        match self {
            Self::Terminate => Duration::from_secs(3).min(grace_period / 4),
            Self::Interrupt => Duration::from_millis(100).min(grace_period / 4),
        }
    }
}

// === impl Signals ===

impl Signals {
    /// Starts listening. Needs a running tokio runtime.
    ///
    /// # Errors
    ///
    /// When the system refuses a signal handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next signal. A second one, during the drain, is a wish to end now: stop polling
    /// [`Server::run`](crate::server::Server::run) and exit.
    pub async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }
}
