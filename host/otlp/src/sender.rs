//! Sends requests to a collector.
//!
//! The endpoint is the operator's, so it may be at any address. Redirects are not followed: a collector must not choose
//! who gets the data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, StatusCode};
use tollgate_config::CollectorConfig;

use crate::message::ExportServiceResponse;

/// Sends the requests of one signal.
pub(crate) struct Sender {
    collector: CollectorConfig,
    /// The client, with the content of the file of CAs that it trusts.
    client: Option<(Vec<u8>, Client)>,
}

/// The answer to an accepted request: the number of records that the collector rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) rejected: u64,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A file cannot be read.
    #[error("cannot read {} ({setting})", path.display())]
    Read {
        /// The key in the section of the export.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The file of CAs holds none.
    #[error("{} (ca) holds no CA certificate: expected PEM with CERTIFICATE sections", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
    },
    /// A file holds no value of a header.
    #[error("{} (headers) holds no header value: expected one line of visible ASCII characters", path.display())]
    Header {
        /// The file.
        path: PathBuf,
    },
    /// The client cannot be set up.
    #[error("cannot set up the client for the collector")]
    Client(#[source] reqwest::Error),
    /// The collector does not answer.
    #[error("cannot reach the collector at {endpoint}")]
    Unreachable {
        /// The URL.
        endpoint: String,
        /// The error of the client.
        source: reqwest::Error,
    },
    /// The collector refuses the request.
    #[error("the collector at {endpoint} answered HTTP {status}")]
    Status {
        /// The URL.
        endpoint: String,
        /// The status.
        status: StatusCode,
        /// How long the collector asks to wait.
        retry_after: Option<Duration>,
    },
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// Maximum size of an answer. The rest is not read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Checks the files of a collector, without sending anything.
///
/// # Errors
/// When a file cannot be read or used.
pub fn check(collector: &CollectorConfig) -> Result<(), SendError> {
    let mut sender = Sender::new(collector.clone());
    sender.headers()?;
    sender.client().map(drop)
}

// === impl Sender ===

impl Sender {
    pub(crate) fn new(collector: CollectorConfig) -> Self {
        Self {
            collector,
            client: None,
        }
    }

    pub(crate) fn collector(&self) -> &CollectorConfig {
        &self.collector
    }

    /// Sends one request. Reads the headers and the CAs again, so that rotated files take effect.
    pub(crate) async fn send(&mut self, body: Vec<u8>) -> Result<Accepted, SendError> {
        let headers = self.headers()?;
        let client = self.client()?;
        let endpoint = &self.collector.endpoint;
        let unreachable = |source: reqwest::Error| SendError::Unreachable {
            endpoint: endpoint.clone(),
            source: source.without_url(),
        };
        let request = client.post(endpoint).headers(headers).body(body);
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            return Err(SendError::Status {
                endpoint: endpoint.clone(),
                status,
                retry_after: retry_after(response.headers()),
            });
        }
        // The collector has accepted the request, whatever happens to its answer.
        let answer = read(response).await.unwrap_or_default();
        let answer = ExportServiceResponse::decode(&*answer).unwrap_or_default();
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected);
        Ok(Accepted {
            rejected: u64::try_from(rejected).unwrap_or(0),
        })
    }

    fn headers(&self) -> Result<HeaderMap, SendError> {
        let mut headers = HeaderMap::new();
        for header in &self.collector.headers {
            let unusable = || SendError::Header {
                path: header.file.clone(),
            };
            let bytes = read_file("headers", &header.file)?;
            let text = bytes.trim_ascii();
            if text.is_empty() {
                return Err(unusable());
            }
            let mut value = HeaderValue::from_bytes(text).map_err(|_| unusable())?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| unusable())?;
            headers.append(name, value);
        }
        headers.insert(CONTENT_TYPE, PROTOBUF);
        Ok(headers)
    }

    /// Returns the client, which is set up anew when the file of CAs has changed.
    fn client(&mut self) -> Result<Client, SendError> {
        let pem = match &self.collector.ca {
            Some(path) => read_file("ca", path)?,
            None => Vec::new(),
        };
        if let Some((known, client)) = &self.client
            && *known == pem
        {
            return Ok(client.clone());
        }
        let client = self.build(&pem)?;
        self.client = Some((pem, client.clone()));
        Ok(client)
    }

    fn build(&self, pem: &[u8]) -> Result<Client, SendError> {
        let mut builder = Client::builder()
            .user_agent(concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(self.collector.timeout);
        if let Some(path) = &self.collector.ca {
            let authorities = Certificate::from_pem_bundle(pem).unwrap_or_default();
            if authorities.is_empty() {
                return Err(SendError::Authorities { path: path.clone() });
            }
            for authority in authorities {
                builder = builder.add_root_certificate(authority);
            }
        } else if self.collector.endpoint.starts_with("https:") {
            // The CAs of the system. If one of hundreds cannot be read, the others are still used.
            for authority in rustls_native_certs::load_native_certs().certs {
                if let Ok(authority) = Certificate::from_der(&authority) {
                    builder = builder.add_root_certificate(authority);
                }
            }
        }
        builder.build().map_err(SendError::Client)
    }
}

fn read_file(setting: &'static str, path: &Path) -> Result<Vec<u8>, SendError> {
    tollgate_config::file::read(path).map_err(|source| SendError::Read {
        setting,
        path: path.to_owned(),
        source,
    })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Reads an answer, up to a limit.
async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
            return None;
        }
        bytes.extend_from_slice(&chunk);
    }
    Some(bytes)
}

// === impl SendError ===

impl SendError {
    /// Whether another attempt may succeed, by the rules of OTLP.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            // The files may be in the middle of a change.
            Self::Read { .. } | Self::Authorities { .. } | Self::Header { .. } => true,
            Self::Unreachable { .. } => true,
            Self::Client(_) => false,
            Self::Status { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }

    /// How long the collector asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
