//! Accepts connections, and drains them at the end.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tollgate_admission::Gate;

use crate::activity::{Activity, Phase};
use crate::connection::Shared;
use crate::places::{Place, Places};
use crate::tls::Certificates;
use crate::{Stop, connection};

/// Sockets beyond `requests.maxConnections`, for connections that wait for a place and for evicted connections that are
/// closing.
const SPARE_SOCKETS: usize = 128;

/// Number of connections to evict when the system has no sockets left.
const ROOM: usize = 50;

/// Time that a new connection waits for a place, and the time between its attempts.
const PLACE_TIMEOUT: Duration = Duration::from_secs(1);
const PLACE_PERIOD: Duration = Duration::from_millis(5);

/// Pause after the system failed to accept a connection, most likely because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time without a new connection after which the kernel's queue counts as empty.
const QUEUE_EMPTY: Duration = Duration::from_millis(10);

/// The result of the drain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drained {
    /// Connections that were still open at the end of the grace period, and were cut.
    pub cut_connections: usize,
}

/// The listener and the state that its connections need.
struct Acceptor<G> {
    listener: TcpListener,
    certificates: Arc<Certificates>,
    shared: Arc<Shared<G>>,
    places: Arc<Places>,
    sockets: Arc<Semaphore>,
    connections: JoinSet<()>,
}

/// Serves until `stop` resolves, then drains.
pub(crate) async fn run<G: Gate>(
    listener: TcpListener,
    certificates: Arc<Certificates>,
    shared: Arc<Shared<G>>,
    stop: impl Future<Output = Stop>,
) -> Drained {
    let max_connections = shared.requests.max_connections as usize;
    allow_open_files();
    let mut acceptor = Acceptor {
        listener,
        certificates,
        shared: Arc::clone(&shared),
        places: Places::new(max_connections, shared.metrics.connections.clone()),
        sockets: Arc::new(Semaphore::new(max_connections + SPARE_SOCKETS)),
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
    // At the end of the grace period, the rest is counted and cut. The kubelet would kill the pod soon after anyway.
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
                let socket = Arc::clone(&self.sockets).acquire_owned().await;
                let socket = socket.expect("the semaphore is never closed");
                (self.listener.accept().await, socket)
            };
            tokio::select! {
                biased;
                output = &mut until => return output,
                (accepted, socket) = next => match accepted {
                    Ok((stream, address)) => self.serve(stream, address, socket),
                    Err(error) => pause(&error, &self.places).await,
                },
            }
            while self.connections.try_join_next().is_some() {}
        }
    }

    /// Accepts the connections that the kernel has queued, because closing the listener would reset them. Then closes
    /// it.
    async fn close(mut self) -> JoinSet<()> {
        let empty = Instant::now() + 100 * QUEUE_EMPTY;
        while Instant::now() < empty {
            let Ok(socket) = Arc::clone(&self.sockets).try_acquire_owned() else {
                break;
            };
            match timeout(QUEUE_EMPTY, self.listener.accept()).await {
                Ok(Ok((stream, address))) => self.serve(stream, address, socket),
                Ok(Err(_)) => {}
                Err(_) => break,
            }
        }
        self.connections
    }

    fn serve(&mut self, stream: TcpStream, address: SocketAddr, socket: OwnedSemaphorePermit) {
        // Answers are small and written at once. Nagle's algorithm would only delay them.
        drop(stream.set_nodelay(true));
        let tls = self.certificates.acceptor();
        let shared = Arc::clone(&self.shared);
        let places = Arc::clone(&self.places);
        self.connections.spawn(async move {
            let activity = Activity::new();
            let peer = address.ip().to_canonical();
            if let Some(place) = place(&places, peer, &activity).await {
                connection::serve(stream, tls, shared, activity, &place).await;
                drop(place);
            }
            drop(socket);
        });
    }
}

/// Waits until a new connection gets a place, for at most a second.
async fn place(places: &Arc<Places>, peer: IpAddr, activity: &Arc<Activity>) -> Option<Place> {
    let until = Instant::now() + PLACE_TIMEOUT;
    loop {
        let place = places.take(peer, activity);
        if place.is_some() || places.has_most(peer) || Instant::now() >= until {
            return place;
        }
        sleep(PLACE_PERIOD).await;
    }
}

/// Raises the soft limit of open files to the hard limit.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(error = %error, "cannot raise the limit on open files");
    }
}

async fn pause(error: &io::Error, places: &Places) {
    let of_one_connection = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    );
    if !of_one_connection {
        places.make_room(ROOM);
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "cannot accept connections; check whether the limit on open files is too low"
        );
        sleep(ACCEPT_PAUSE).await;
    }
}
