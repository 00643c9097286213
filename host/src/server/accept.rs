//! Accepting connections, and the drain at the end.

use std::{
    future::Future,
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use crate::server::{
    Gate, Stop,
    activity::Phase,
    connection::{self, Shared},
    tls::Certificates,
};

/// Connections at once. kube-apiserver keeps 25 idle ones; this is that for forty of them, and
/// below the usual limit of 1,024 open files. At the cap new ones wait in the kernel's queue, and
/// idle ones are closed to make room.
const MAX_CONNECTIONS: usize = 1_000;

/// How many idle connections are closed at a time to make room.
const ROOM: usize = 50;

/// The pause after the system refused a connection, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// With no new connection for so long, the kernel's queue is taken to be empty.
const QUEUE_EMPTY: Duration = Duration::from_millis(10);

/// How the drain ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drained {
    /// Connections that were still open when the grace period was over, and were cut.
    pub cut_connections: usize,
}

/// The listener and what its connections need.
struct Acceptor<G> {
    listener: TcpListener,
    certificates: Arc<Certificates>,
    shared: Arc<Shared<G>>,
    places: Arc<Semaphore>,
    connections: JoinSet<()>,
}

/// A connection's place under the cap, and in the metrics.
struct Place {
    open: prometheus_client::metrics::gauge::Gauge,
    _permit: OwnedSemaphorePermit,
}

/// Serves until `stop`, then drains.
pub(super) async fn run<G: Gate>(
    listener: TcpListener,
    certificates: Arc<Certificates>,
    shared: Arc<Shared<G>>,
    stop: impl Future<Output = Stop>,
) -> Drained {
    let mut acceptor = Acceptor {
        listener,
        certificates,
        shared: Arc::clone(&shared),
        places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        connections: JoinSet::new(),
    };
    let stop = acceptor.accept_until(stop).await;
    let grace_period = shared.requests.shutdown_grace_period;
    let end = Instant::now() + grace_period;
    let accept_for = stop.accept_for(grace_period);
    tracing::info!(
        ?stop,
        accept_for_milliseconds = u64::try_from(accept_for.as_millis()).unwrap_or(u64::MAX),
        connections = acceptor.connections.len(),
        requests = shared.metrics.requests_in_flight.get(),
        "draining"
    );
    shared.phase.send_replace(Phase::Draining);
    let closing = Instant::now() + accept_for;
    acceptor.accept_until(sleep_until(closing)).await;
    let mut connections = acceptor.close().await;
    shared.phase.send_replace(Phase::Closing);
    let all = async { while connections.join_next().await.is_some() {} };
    // Past the end, what is left is counted and cut: pods are killed anyway soon after.
    drop(timeout_at(end, all).await);
    let drained = Drained {
        cut_connections: connections.len(),
    };
    tracing::info!(cut_connections = drained.cut_connections, "drained");
    drained
}

// === impl Acceptor ===

impl<G: Gate> Acceptor<G> {
    async fn accept_until<T>(&mut self, until: impl Future<Output = T>) -> T {
        tokio::pin!(until);
        loop {
            let next = async {
                let permit = permit(&self.places, &self.shared).await;
                (self.listener.accept().await, permit)
            };
            tokio::select! {
                biased;
                output = &mut until => return output,
                (accepted, permit) = next => match accepted {
                    Ok((stream, _)) => self.serve(stream, permit),
                    Err(error) => pause(&error, &self.shared).await,
                },
            }
            while self.connections.try_join_next().is_some() {}
        }
    }

    /// Takes what the kernel has queued – closing the listener would reset it – and closes.
    async fn close(mut self) -> JoinSet<()> {
        let empty = Instant::now() + 100 * QUEUE_EMPTY;
        while Instant::now() < empty {
            let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
                break;
            };
            match timeout(QUEUE_EMPTY, self.listener.accept()).await {
                Ok(Ok((stream, _))) => self.serve(stream, permit),
                Ok(Err(_)) => {}
                Err(_) => break,
            }
        }
        self.connections
    }

    fn serve(&mut self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let place = Place::new(&self.shared, permit);
        // Answers are small and written at once; Nagle would only delay them.
        drop(stream.set_nodelay(true));
        let tls = self.certificates.acceptor();
        let shared = Arc::clone(&self.shared);
        self.connections.spawn(async move {
            connection::serve(stream, tls, shared).await;
            drop(place);
        });
    }
}

async fn permit<G>(places: &Arc<Semaphore>, shared: &Shared<G>) -> OwnedSemaphorePermit {
    let permit = match Arc::clone(places).try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            shared.room_wanted.store(ROOM, Ordering::Relaxed);
            Arc::clone(places)
                .acquire_owned()
                .await
                .expect("the semaphore is never closed")
        }
    };
    if places.available_permits() > 0 {
        shared.room_wanted.store(0, Ordering::Relaxed);
    }
    permit
}

async fn pause<G>(error: &io::Error, shared: &Shared<G>) {
    let of_one_connection = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    );
    if !of_one_connection {
        shared.room_wanted.store(ROOM, Ordering::Relaxed);
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "cannot accept connections; is the limit of open files too low?"
        );
        sleep(ACCEPT_PAUSE).await;
    }
}

// === impl Place ===

impl Place {
    fn new<G>(shared: &Shared<G>, permit: OwnedSemaphorePermit) -> Self {
        let open = shared.metrics.connections.clone();
        open.inc();
        Self {
            open,
            _permit: permit,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.dec();
    }
}
