//! The signals that end the host, and how each one drains.

use std::{io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The way in which the server was told to stop.
///
/// In both cases:
///
/// - Readiness fails at once.
/// - HTTP/1.1 answers carry `Connection: close`, and HTTP/2 connections get GOAWAY.
/// - Requests in flight are answered.
/// - `requests.shutdownGracePeriod` limits the whole drain.
///
/// The cases differ in how long the server still accepts connections. Behind a Service, nodes keep sending for a moment
/// after the pod began to end, and these requests must not be refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// SIGTERM, the orderly end of a pod: accept for another 3 s, at most a quarter of the grace period.
    Terminate,
    /// SIGINT, from a user at a terminal: accept for another 100 ms, at most a quarter of the grace period.
    Interrupt,
}

/// A stream of SIGTERM and SIGINT. Once it has been created, these signals no longer end the process directly.
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
    /// Fails if the system refuses a signal handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal. A second signal during the drain asks for an immediate end: stop polling
    /// [`Server::run`](crate::Server::run) and exit.
    pub async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }
}
