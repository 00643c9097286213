//! Serves a connection: the TLS handshake, HTTP/1.1 or HTTP/2 as agreed by ALPN, and a close that loses no answer.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hyper::{
    body::{Body, Incoming},
    rt::bounds::Http2ServerConnExec,
    server::conn::{http1, http2},
    service::{HttpService, service_fn},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::BufReader,
    net::TcpStream,
    sync::watch,
    time::{interval, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tollgate_admission::Gate;
use tollgate_config::Requests;
use tollgate_telemetry::metrics::{AuthenticationFailure, Metrics};

use crate::activity::{Activity, Circumstances, FRESH_TIMEOUT, Phase, Standing, Verdict};
use crate::authentication::{Authentication, Peer};
use crate::budget::Budget;
use crate::exchange;
use crate::places::Place;
use crate::transport::Transport;

/// Time limit for a TLS handshake, which normally takes milliseconds.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit for the orderly close of an evicted connection.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Shortest time between two log lines of a kind. A wrong `caBundle` fails every call, and one line a minute is enough
/// to report it.
const REFUSAL_REPORT_PERIOD: Duration = Duration::from_secs(60);

/// Time between checks of a connection while serving. No timeout is shorter.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Time between checks of a connection in the drain, where it determines how long the drain takes.
const DRAIN_WATCH_PERIOD: Duration = Duration::from_millis(20);

/// Limit for an HTTP/1.1 head, and for the buffer through which bodies are read.
const HTTP1_BUFFER_BYTES: usize = 64 * 1024;
/// Number of bytes that are read from the socket at once. rustls alone asks for less, which takes more system calls.
const SOCKET_BUFFER_BYTES: usize = 16 * 1024;
const HTTP2_HEADER_BYTES: u32 = 16 * 1024;

/// Bytes that a client may send before anybody reads them. The cap on bytes in flight does not cover them, so the limit
/// is small. kube-apiserver speaks HTTP/2 on loopback only.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 128 * 1024;
const HTTP2_STREAMS: u32 = 250;
const HTTP2_PING_PERIOD: Duration = Duration::from_secs(30);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Shared<G> {
    pub(super) gate: Arc<G>,
    pub(super) requests: Requests,
    pub(super) metrics: Arc<Metrics>,
    pub(super) budget: Arc<Budget>,
    pub(super) phase: watch::Sender<Phase>,
    /// The credentials that clients must present.
    pub(super) authentication: Arc<Authentication>,
    /// Whether `traceparent` of a review counts: reviews are traced, and every caller is authenticated.
    pub(super) believes_traces: bool,
    /// When the log last reported a client that rejected the certificate.
    refusal_reported: Mutex<Option<Instant>>,
    /// When the log last reported an unauthenticated client, by kind of failure.
    failure_reported: Mutex<HashMap<AuthenticationFailure, Instant>>,
}

/// A connection of either HTTP version.
trait Drive: Future<Output = hyper::Result<()>> {
    /// Starts an orderly close: the requests in flight are still answered.
    fn retire(self: Pin<&mut Self>);
}

/// Serves a connection until it closes.
pub(super) async fn serve<G: Gate>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    shared: Arc<Shared<G>>,
    activity: Arc<Activity>,
    place: &Place,
) {
    let evicted = place.evicted();
    let stream = tokio::select! {
        biased;
        stream = handshake(stream, acceptor, &shared) => stream,
        () = evicted.cancelled() => None,
    };
    let Some(stream) = stream else {
        shared.metrics.tls_handshake_failures.inc();
        return;
    };
    activity.established();
    let (tcp, tls) = stream.get_ref();
    let multiplexed = tls.alpn_protocol() == Some(b"h2");
    let peer = Arc::new(Peer::new(
        tcp.get_ref().peer_addr().ok(),
        tls.peer_certificates(),
    ));
    let transport = TokioIo::new(Transport::new(stream, Arc::clone(&activity)));
    let service = {
        let shared = Arc::clone(&shared);
        let activity = Arc::clone(&activity);
        let peer = Arc::clone(&peer);
        service_fn(move |request| {
            Box::pin(exchange::answer(
                Arc::clone(&shared),
                Arc::clone(&activity),
                Arc::clone(&peer),
                request,
            ))
        })
    };
    if multiplexed {
        drive(
            http2_builder().serve_connection(transport, service),
            true,
            &activity,
            &peer,
            place,
            &shared,
        )
        .await;
    } else {
        drive(
            http1_builder().serve_connection(transport, service),
            false,
            &activity,
            &peer,
            place,
            &shared,
        )
        .await;
    }
}

async fn handshake<G>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    shared: &Shared<G>,
) -> Option<TlsStream<BufReader<TcpStream>>> {
    let address = stream.peer_addr().ok();
    let stream = BufReader::with_capacity(SOCKET_BUFFER_BYTES, stream);
    let mut phase = shared.phase.subscribe();
    let too_late = async {
        // Fails only if the sender is dropped, but `shared` holds the sender.
        let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
        sleep(FRESH_TIMEOUT).await;
    };
    let failure = tokio::select! {
        accepted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => match accepted {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        },
        () = too_late => return None,
    };
    let of_tls = failure
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let refused = matches!(of_tls, Some(rustls::Error::AlertReceived(_)));
    // The only certificates that a server verifies are client certificates.
    if let Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) =
        of_tls
    {
        shared.not_authenticated(AuthenticationFailure::Certificate, address);
    }
    let error = &failure as &dyn std::error::Error;
    if refused && shared.refusal_is_news() {
        tracing::warn!(
            error,
            "a client aborted the TLS handshake; if it is kube-apiserver, check the webhook's caBundle, and that the \
             certificate covers the name that kube-apiserver calls"
        );
    } else {
        // Most of these are port scans and TCP probes.
        tracing::debug!(error, "TLS handshake failed");
    }
    None
}

/// Drives the connection and closes it when its activity requires that.
async fn drive<G>(
    connection: impl Drive,
    multiplexed: bool,
    activity: &Activity,
    peer: &Peer,
    place: &Place,
    shared: &Shared<G>,
) {
    let evicted = place.evicted();
    let mut evicted_at = None;
    let mut connection = pin!(connection);
    let mut phase = shared.phase.subscribe();
    let mut watch = interval(WATCH_PERIOD);
    if *phase.borrow_and_update() != Phase::Serving {
        watch = interval(DRAIN_WATCH_PERIOD);
    }
    loop {
        // Biased: read the socket before checking whether the connection is idle.
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = evicted.cancelled(), if evicted_at.is_none() => {
                evicted_at = Some(Instant::now());
                match activity.standing() {
                    // There is no answer to lose.
                    Standing::Unproven { .. } | Standing::Receiving { .. } => return,
                    // GOAWAY or the end of keep-alive. A request on its way is either answered or safe to send again.
                    Standing::Idle { .. } | Standing::Busy => connection.as_mut().retire(),
                }
            }
            _ = phase.changed() => watch = interval(DRAIN_WATCH_PERIOD),
            _ = watch.tick() => {}
        }
        let overdue = evicted_at.is_some_and(|at: Instant| at.elapsed() >= EVICTION_TIMEOUT);
        if overdue && activity.standing() != Standing::Busy {
            return;
        }
        let circumstances = Circumstances {
            phase: *phase.borrow(),
            idle_timeout: shared.requests.idle_timeout,
            multiplexed,
        };
        match activity.verdict(circumstances) {
            Verdict::Keep if peer.is_rejected() => connection.as_mut().retire(),
            Verdict::Keep => {}
            Verdict::Retire => connection.as_mut().retire(),
            Verdict::Cut => return,
        }
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // The watcher enforces this: hyper's own timer cannot tell a slow head from an idle client.
        .header_read_timeout(None)
        .max_buf_size(HTTP1_BUFFER_BYTES);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(HTTP2_HEADER_BYTES)
        .keep_alive_interval(HTTP2_PING_PERIOD)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT);
    builder
}

// === impl Shared ===

impl<G> Shared<G> {
    pub(crate) fn new(
        gate: Arc<G>,
        requests: Requests,
        authentication: Arc<Authentication>,
        traces: bool,
        metrics: Arc<Metrics>,
    ) -> Self {
        let budget = Budget::new(
            requests.max_bytes_in_flight,
            requests.max_body_bytes,
            metrics.bytes_in_flight.clone(),
        );
        Self {
            gate,
            budget,
            requests,
            metrics,
            phase: watch::Sender::new(Phase::Serving),
            believes_traces: traces && authentication.is_required(),
            authentication,
            refusal_reported: Mutex::new(None),
            failure_reported: Mutex::default(),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }

    /// Counts a client that failed authentication, and logs each kind at most once a minute.
    pub(super) fn not_authenticated(
        &self,
        failure: AuthenticationFailure,
        address: Option<SocketAddr>,
    ) {
        self.metrics.authentication_failed(failure);
        let mut reported = self
            .failure_reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let then = reported.get(&failure);
        if then.is_some_and(|then| then.elapsed() < REFUSAL_REPORT_PERIOD) {
            return;
        }
        reported.insert(failure, Instant::now());
        tracing::warn!(
            reason = failure.name(),
            client = address.map(tracing::field::display),
            "rejected a client that failed authentication; if it is kube-apiserver, compare `authentication` with the \
             kubeconfig that its admission configuration names for webhooks"
        );
    }

    fn refusal_is_news(&self) -> bool {
        let mut reported = self
            .refusal_reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let news = reported.is_none_or(|then| then.elapsed() >= REFUSAL_REPORT_PERIOD);
        if news {
            *reported = Some(Instant::now());
        }
        news
    }
}

// === impl Drive ===

impl<I, S, B> Drive for http1::Connection<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn retire(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, B, E> Drive for http2::Connection<I, S, E>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: Http2ServerConnExec<S::Future, B> + Unpin,
{
    fn retire(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
