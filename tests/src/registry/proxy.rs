//! An HTTP proxy on loopback that knows two names and records every requested URL.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// The proxy. It ends with the runtime.
pub struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Limit for a head.
const LONGEST_HEAD_BYTES: usize = 64 * 1024;

// === impl Proxy ===

impl Proxy {
    /// Starts a proxy. It forwards requests for `registry` to `upstream` and answers requests for `storage` with
    /// `layer`. Other names get 502.
    ///
    /// # Panics
    /// Panics if loopback has no free port.
    pub async fn start(
        registry: &'static str,
        upstream: String,
        storage: &'static str,
        layer: Vec<u8>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, upstream, layer) = (shared.clone(), upstream.clone(), layer.clone());
                tokio::spawn(async move {
                    let route = |host: &str| match host {
                        _ if host == registry => Route::To(upstream),
                        _ if host == storage => Route::Answer(layer),
                        _ => Route::Unknown,
                    };
                    // Clients may disconnect.
                    drop(serve(stream, &asked, route).await);
                });
            }
        });
        Self { address, asked }
    }

    /// The URL for `http_proxy`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URLs that were requested since the last call.
    #[must_use]
    pub fn take_asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *asked)
    }
}

enum Route {
    To(String),
    Answer(Vec<u8>),
    Unknown,
}

async fn serve(
    mut stream: TcpStream,
    asked: &Mutex<Vec<String>>,
    route: impl FnOnce(&str) -> Route,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD_BYTES {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let url = head.split(' ').nth(1).unwrap_or_default().to_owned();
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(url.clone());
    let rest = url.strip_prefix("http://").unwrap_or(&url);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    match route(host) {
        Route::To(upstream) => {
            let mut upstream = TcpStream::connect(upstream).await?;
            let head = head.replacen(&url, &format!("/{path}"), 1);
            upstream.write_all(head.as_bytes()).await?;
            copy_bidirectional(&mut stream, &mut upstream).await?;
        }
        Route::Answer(bytes) => answer(&mut stream, "200 OK", &bytes).await?,
        Route::Unknown => answer(&mut stream, "502 Bad Gateway", b"").await?,
    }
    stream.shutdown().await
}

async fn answer(stream: &mut TcpStream, status: &str, bytes: &[u8]) -> std::io::Result<()> {
    let length = bytes.len();
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(bytes).await
}
