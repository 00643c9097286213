//! A collector: receives OTLP over HTTP and decodes it, by the numbers of the `.proto` files and without the host's code.

mod wire;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::kubernetes::authority::Issued;
use wire::Message;

/// A collector on loopback. Its threads end with the test binary.
pub struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    is_tls: bool,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The path.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

/// A span that arrived.
#[derive(Clone, Debug)]
pub struct Span {
    /// The id of the trace, in hexadecimal digits.
    pub trace_id: String,
    /// The id of the span.
    pub span_id: String,
    /// The id of the parent. Empty if there is none.
    pub parent: String,
    /// The name.
    pub name: String,
    /// The kind: 1 is internal, 2 is a server.
    pub kind: u64,
    /// The start, in nanoseconds since 1970.
    pub began: u64,
    /// The end.
    pub ended: u64,
    /// The attributes.
    pub attributes: BTreeMap<String, Value>,
    /// The code of the status: 2 is an error.
    pub status: u64,
    /// The flags.
    pub flags: u64,
}

/// A log record that arrived.
#[derive(Clone, Debug)]
pub struct Record {
    /// The kind of event.
    pub event: String,
    /// The severity.
    pub severity: u64,
    /// The attributes.
    pub attributes: BTreeMap<String, Value>,
    /// The body.
    pub body: Value,
    /// The id of the trace. Empty if the record belongs to none.
    pub trace_id: String,
}

/// Time limit for something to arrive.
const PATIENCE: Duration = Duration::from_secs(60);

// === impl Collector ===

impl Collector {
    /// Starts a collector in plain HTTP.
    ///
    /// # Panics
    /// Panics if there is no free port.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a collector with TLS.
    ///
    /// # Panics
    /// Panics if the certificate is not usable.
    #[must_use]
    pub fn with_tls(issued: &Issued) -> Self {
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("the key fits");
        Self::start_with(Some(Arc::new(tls)))
    }

    fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let is_tls = tls.is_some();
        let received = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let (tls, received) = (tls.clone(), received.clone());
                std::thread::spawn(move || serve(stream, tls, &received));
            }
        });
        Self {
            address,
            requests,
            is_tls,
        }
    }

    /// The endpoint, without a path.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// The spans so far.
    ///
    /// # Panics
    /// Panics if a request to `/v1/traces` is not as the protocol says.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let bodies = self.requests().into_iter();
        let bodies = bodies.filter(|request| request.path == "/v1/traces");
        bodies.flat_map(|request| spans(&request.body)).collect()
    }

    /// The log records so far.
    ///
    /// # Panics
    /// Panics if a request to `/v1/logs` is not as the protocol says.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let bodies = self.requests().into_iter();
        let bodies = bodies.filter(|request| request.path == "/v1/logs");
        bodies.flat_map(|request| records(&request.body)).collect()
    }

    /// Waits until the spans are as expected, and returns them.
    ///
    /// # Panics
    /// Panics if they never are.
    pub async fn spans_when(&self, what: &str, are: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        until(what, || self.spans(), are).await
    }

    /// Waits until the log records are as expected, and returns them.
    ///
    /// # Panics
    /// Panics if they never are.
    pub async fn records_when(&self, what: &str, are: impl Fn(&[Record]) -> bool) -> Vec<Record> {
        until(what, || self.records(), are).await
    }
}

/// Waits until what has arrived is as expected.
async fn until<T: std::fmt::Debug>(
    what: &str,
    arrived: impl Fn() -> Vec<T>,
    are: impl Fn(&[T]) -> bool,
) -> Vec<T> {
    let began = Instant::now();
    loop {
        let arrived = arrived();
        if are(&arrived) {
            return arrived;
        }
        assert!(began.elapsed() < PATIENCE, "not {what}: {arrived:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one connection. A client that goes away ends it.
fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    received: &Mutex<Vec<Request>>,
) {
    match tls {
        None => answer(BufReader::new(stream), received),
        Some(tls) => {
            let session = rustls::ServerConnection::new(tls).expect("the settings are usable");
            let stream = rustls::StreamOwned::new(session, stream);
            answer(BufReader::new(stream), received);
        }
    }
}

fn answer<S: Read + Write>(mut stream: BufReader<S>, received: &Mutex<Vec<Request>>) {
    const OK: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    while let Some(request) = read(&mut stream) {
        lock(received).push(request);
        let stream = stream.get_mut();
        if stream.write_all(OK).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

fn read(stream: &mut impl BufRead) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    let headers = lines.iter().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    let headers: BTreeMap<String, String> = headers.collect();
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some(Request {
        path,
        headers,
        body,
    })
}

/// Returns the spans or log records of an export: both are below a resource and its scopes, with the same numbers.
fn exported(body: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let request = Message::parse(body);
    let resources: Vec<Message<'_>> = request.messages(1).collect();
    let scopes = resources
        .into_iter()
        .flat_map(|resource| resource.messages(2).collect::<Vec<_>>());
    scopes.flat_map(|scope| scope.messages(2).collect::<Vec<_>>())
}

/// Decodes an `ExportTraceServiceRequest`.
fn spans(body: &[u8]) -> Vec<Span> {
    exported(body)
        .map(|span| Span {
            trace_id: span.hex(1),
            span_id: span.hex(2),
            parent: span.hex(4),
            name: span.text(5),
            kind: span.number(6),
            began: span.number(7),
            ended: span.number(8),
            attributes: span.attributes(9),
            status: span.messages(15).map(|status| status.number(3)).sum(),
            flags: span.number(16),
        })
        .collect()
}

/// Decodes an `ExportLogsServiceRequest`.
fn records(body: &[u8]) -> Vec<Record> {
    exported(body)
        .map(|record| Record {
            event: record.text(12),
            severity: record.number(2),
            attributes: record.attributes(6),
            body: record
                .messages(5)
                .map(|body| body.value())
                .next()
                .unwrap_or_default(),
            trace_id: record.hex(9),
        })
        .collect()
}
