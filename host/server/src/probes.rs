//! The probes listener: `/livez`, `/readyz` and `/metrics`, which kubelet and Prometheus read at the pod's address.
//!
//! The listener has its own thread and runtime, so probes never wait for the threads that answer reviews. Its answers
//! take no lock that is held during work. The listener answers until the drain is over.

use std::{
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use time::OffsetDateTime;
use tokio::{
    net::TcpListener,
    sync::{Mutex, oneshot},
    task::spawn_blocking,
    time::timeout,
};
use tollgate_admission::{COMPLETE, Gate, INSTANCE, Instance};

use crate::authentication::Authentication;
use crate::bounded;
use crate::bounded::Progress;
use crate::connection::Shared;
use crate::page::Page;
use crate::refresh::Refusals;
use crate::tls::Certificates;

/// Cap on connections: enough for kubelet, a few scrapers and the other replicas.
const MAX_CONNECTIONS: usize = 128;

/// Time limit for a client to read a whole answer. The metrics of a hundred plugins take a megabyte.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

const READING: &[Method] = &[Method::GET, Method::HEAD];

/// The probes listener. It serves until this value is dropped.
#[derive(Debug)]
pub(super) struct Probes {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

/// The state that the probes report.
pub(super) struct ProbeState<G> {
    pub(super) shared: Arc<Shared<G>>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) admin_authentication: Option<Arc<Authentication>>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) instance: Instance,
}

/// The last metrics text and when its encoding began. Requests that arrived before that moment share the text.
type Scrape = Mutex<Option<(Instant, Bytes)>>;

// === impl Probes ===

impl Probes {
    /// Starts serving.
    ///
    /// # Errors
    ///
    /// Fails if the thread or the runtime cannot be created.
    pub(super) fn start<G: Gate>(
        listener: TcpListener,
        address: SocketAddr,
        state: ProbeState<G>,
    ) -> io::Result<Self> {
        let listener = listener.into_std()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Blocking threads encode the metrics, one text at a time.
            .max_blocking_threads(1)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                let listener = match TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "cannot serve probes (probes.listen)");
                        return;
                    }
                };
                tokio::select! {
                    () = run(listener, state) => {}
                    // An error means that the sender was dropped, which is also a stop.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        thread::Builder::new()
            .name("tollgate-probes".to_owned())
            .spawn(serve)?;
        Ok(Self {
            address,
            stop: Some(stop),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Sending fails if the thread has already ended.
            let _: Result<(), ()> = stop.send(());
        }
    }
}

async fn run<G: Gate>(listener: TcpListener, state: ProbeState<G>) {
    let state = Arc::new(state);
    let scrape = Arc::new(Scrape::default());
    let serve = |stream, progress: Arc<Progress>| {
        let (state, scrape) = (Arc::clone(&state), Arc::clone(&scrape));
        async move {
            let served = bounded::serve_one(stream, &progress, |request| {
                answer(Arc::clone(&state), Arc::clone(&scrape), request)
            });
            // A client that exceeds the timeout is not reading.
            drop(timeout(CONNECTION_TIMEOUT, served).await);
        }
    };
    bounded::accept(listener, MAX_CONNECTIONS, serve).await;
}

async fn answer<G: Gate, B>(
    state: Arc<ProbeState<G>>,
    scrape: Arc<Scrape>,
    request: Request<B>,
) -> Response<Full<Bytes>> {
    let uri = request.uri();
    let page = if !READING.contains(request.method()) {
        Page::only(READING)
    } else if uri.path() == "/metrics" {
        metrics(&state, &scrape).await
    } else {
        catch_unwind(AssertUnwindSafe(|| state.page(uri))).unwrap_or_else(|_| Page::failed())
    };
    page.into_response()
}

/// Encodes the metrics off this thread, one text at a time. Probes do not wait for scrapes, however many there are.
async fn metrics<G: Gate>(state: &ProbeState<G>, scrape: &Scrape) -> Page {
    let asked = Instant::now();
    let mut last = scrape.lock().await;
    if let Some((began, text)) = &*last
        && *began >= asked
    {
        return Page::metrics(text.clone());
    }
    let began = Instant::now();
    let metrics = Arc::clone(&state.shared.metrics);
    match spawn_blocking(move || Bytes::from(metrics.encode())).await {
        Ok(text) => {
            *last = Some((began, text.clone()));
            Page::metrics(text)
        }
        // The panic hook has reported the panic.
        Err(_) => Page::failed(),
    }
}

// === impl ProbeState ===

impl<G: Gate> ProbeState<G> {
    fn page(&self, uri: &http::Uri) -> Page {
        match uri.path() {
            "/livez" => Page::text(StatusCode::OK, "ok\n"),
            "/readyz" => self.readiness(is_verbose(uri)),
            _ => Page::text(
                StatusCode::NOT_FOUND,
                "no such path: expected /livez, /readyz or /metrics; /plugins, /shadows and /decisions are on the \
                 admin listener (admin.listen)\n",
            ),
        }
    }

    fn readiness(&self, is_verbose: bool) -> Page {
        let mut readiness = self.shared.gate.readiness();
        let now = OffsetDateTime::now_utc();
        if let Some(reason) = self.certificates.unusable(now) {
            readiness.ready = false;
            readiness.detail.push(reason);
        }
        readiness.detail.extend(self.certificates.detail(now));
        readiness
            .detail
            .extend(self.shared.authentication.detail(now));
        if let Some(authentication) = &self.admin_authentication {
            readiness.detail.extend(authentication.detail(now));
        }
        let refusals = self.refusals.lines();
        readiness.detail.extend(refusals.iter().cloned());
        let stopping = self.shared.is_stopping();
        let ready = readiness.ready && !stopping;
        let mut content = String::new();
        if is_verbose || !ready {
            for line in &readiness.detail {
                content.push_str(line);
                content.push('\n');
            }
        }
        let (status, summary) = match (ready, stopping) {
            (true, _) => (StatusCode::OK, "ok\n"),
            (false, true) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: shutting down\n",
            ),
            (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        };
        content.push_str(summary);
        let complete = if readiness.complete { "true" } else { "false" };
        let page = Page::text(status, content).with(COMPLETE, HeaderValue::from_static(complete));
        // A header value may hold hexadecimal digits, so this does not fail.
        match HeaderValue::from_str(&self.instance.to_string()) {
            Ok(instance) => page.with(INSTANCE, instance),
            Err(_) => page,
        }
    }
}

fn is_verbose(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair == "verbose" || pair.starts_with("verbose="))
    })
}
