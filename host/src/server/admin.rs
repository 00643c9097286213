//! The plain listener: probes, metrics, what is loaded and what was decided.
//!
//! It has its own small caps, so that whatever happens on the HTTPS listener, kubelet's probes are
//! answered; and it answers until the drain is over.

use std::{
    convert::Infallible,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use time::OffsetDateTime;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet, time::sleep};

use crate::{
    metrics,
    server::{Gate, Reloaded, connection::Shared, tls::Certificates},
};

/// Probes and a few scrapers.
const MAX_CONNECTIONS: usize = 64;

/// Between requests as well as for a head: whoever comes seldom can connect again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

const BUFFER_BYTES: usize = 16 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The one path that changes something.
const RELOAD: &str = "/reload";

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The admin listener, not yet serving.
pub(super) struct Admin<G> {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared<G>>,
    certificates: Arc<Certificates>,
}

struct Page {
    status: StatusCode,
    media_type: &'static str,
    content: String,
}

// === impl Admin ===

impl<G: Gate> Admin<G> {
    pub(super) fn new(
        listener: TcpListener,
        address: SocketAddr,
        shared: Arc<Shared<G>>,
        certificates: Arc<Certificates>,
    ) -> Self {
        Self {
            listener,
            address,
            shared,
            certificates,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until dropped.
    pub(super) async fn run(self) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                continue;
            };
            let shared = Arc::clone(&self.shared);
            let certificates = Arc::clone(&self.certificates);
            connections.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let shared = Arc::clone(&shared);
                    let certificates = Arc::clone(&certificates);
                    async move { Ok::<_, Infallible>(answer(&shared, &certificates, &request).await) }
                });
                // A client that breaks off is its own business.
                drop(
                    http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(IDLE_TIMEOUT)
                        .max_buf_size(BUFFER_BYTES)
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
                drop(place);
            });
        }
    }
}

async fn answer<G: Gate, B>(
    shared: &Shared<G>,
    certificates: &Certificates,
    request: &Request<B>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    let (allowed, done) = if path == RELOAD {
        ("POST", *request.method() == Method::POST)
    } else {
        ("GET, HEAD", reading)
    };
    let page = if !done {
        Page::text(
            StatusCode::METHOD_NOT_ALLOWED,
            &format!("only {}\n", allowed.replace(", ", " and ")),
        )
    } else if path == RELOAD {
        reload(shared).await
    } else {
        catch_unwind(AssertUnwindSafe(|| {
            page(shared, certificates, request.uri())
        }))
        .unwrap_or_else(|_| Page::text(StatusCode::INTERNAL_SERVER_ERROR, "failed\n"))
    };
    let mut response = Response::new(Full::from(page.content));
    *response.status_mut() = page.status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(page.media_type),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !done {
        headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    response
}

/// Answers when it is done, which takes as long as the plugins that have changed take to load.
async fn reload<G: Gate>(shared: &Shared<G>) -> Page {
    match shared.gate.reload().await {
        None => Page::text(StatusCode::NOT_FOUND, "there is nothing to be read again\n"),
        Some(Reloaded { complete, report }) => {
            let status = if complete {
                StatusCode::OK
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            Page::json(status, &report)
        }
    }
}

fn page<G: Gate>(shared: &Shared<G>, certificates: &Certificates, uri: &http::Uri) -> Page {
    match uri.path() {
        "/livez" => Page::text(StatusCode::OK, "ok\n"),
        "/readyz" => readiness(shared, certificates, verbose(uri)),
        "/metrics" => Page {
            status: StatusCode::OK,
            media_type: metrics::CONTENT_TYPE,
            content: shared.metrics.encode(),
        },
        "/plugins" => Page::json(StatusCode::OK, &shared.gate.plugins()),
        "/candidates" => Page::json(StatusCode::OK, &shared.gate.candidates()),
        "/decisions" => Page::json(StatusCode::OK, &shared.gate.decisions(None)),
        path => match path.strip_prefix("/decisions/") {
            Some(uid) => decisions_of(shared, uid),
            None => Page::text(
                StatusCode::NOT_FOUND,
                "no such path: there are /livez, /readyz, /metrics, /plugins, /candidates, /decisions and, with POST, /reload\n",
            ),
        },
    }
}

fn decisions_of<G: Gate>(shared: &Shared<G>, uid: &str) -> Page {
    let decisions = shared.gate.decisions(Some(uid));
    let none = decisions["decisions"].as_array().is_none_or(Vec::is_empty);
    if none {
        return Page::text(
            StatusCode::NOT_FOUND,
            "no decision of this uid is kept: the last ones are (admin.decisions), until the end of the process\n",
        );
    }
    Page::json(StatusCode::OK, &decisions)
}

fn readiness<G: Gate>(shared: &Shared<G>, certificates: &Certificates, verbose: bool) -> Page {
    let mut readiness = shared.gate.readiness();
    // An expired certificate leaves it ready: without endpoints kube-apiserver would only hide the reason.
    let now = OffsetDateTime::now_utc();
    readiness.detail.extend(certificates.detail(now));
    readiness.detail.extend(shared.authentication.detail(now));
    let stopping = shared.is_stopping();
    let ready = readiness.ready && !stopping;
    let mut content = String::new();
    if verbose || !ready {
        for line in &readiness.detail {
            content.push_str(line);
            content.push('\n');
        }
    }
    let summary = match (ready, stopping) {
        (true, _) => "ok\n",
        (false, true) => "not ready: shutting down\n",
        (false, false) => "not ready\n",
    };
    content.push_str(summary);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Page::text(status, &content)
}

fn verbose(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair == "verbose" || pair.starts_with("verbose="))
    })
}

// === impl Page ===

impl Page {
    fn json(status: StatusCode, content: &serde_json::Value) -> Self {
        Self {
            status,
            media_type: JSON,
            content: format!("{content:#}\n"),
        }
    }

    fn text(status: StatusCode, content: &str) -> Self {
        Self {
            status,
            media_type: TEXT,
            content: content.to_owned(),
        }
    }
}
