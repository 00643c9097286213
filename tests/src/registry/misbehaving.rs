//! A registry over plain HTTP that behaves correctly or wrongly, on request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The content and the behaviour of the registry.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// The plugin.
    pub layer: Vec<u8>,
    /// The manifest for the plugin.
    pub manifest: Value,
    /// The kind of misbehaviour.
    pub fault: Fault,
}

/// The kinds of misbehaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Correct behaviour.
    None,
    /// Every answer has this status.
    Status(u16),
    /// The registry does not answer.
    Silent,
    /// Blobs are truncated.
    Truncated,
    /// Blobs have a changed byte.
    Altered,
    /// Blobs never end.
    Endless,
    /// Blobs are redirected.
    Redirect(String),
    /// Tokens come from another URL.
    Realm(String),
    /// Tokens are required, and come from this registry.
    Token,
    /// Manifests never end.
    EndlessManifest,
}

/// The server. It ends with the runtime.
pub struct Misbehaving {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
}

// === impl Behaviour ===

impl Behaviour {
    /// Creates the behaviour for a plugin in the layout for WebAssembly.
    #[must_use]
    pub fn of(layer: Vec<u8>) -> Self {
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": part("application/vnd.wasm.config.v0+json", b"{}"),
            "layers": [part("application/wasm", &layer)],
        });
        Self {
            layer,
            manifest,
            fault: Fault::None,
        }
    }

    /// Adds a kind of misbehaviour.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }
}

// === impl Misbehaving ===

impl Misbehaving {
    /// Starts the registry.
    ///
    /// # Panics
    /// If loopback has no free port.
    pub async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let behaviour = Arc::new(Mutex::new(behaviour));
        let shared = behaviour.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let behaviour = shared.clone();
                // A client may break off, and some clients should.
                tokio::spawn(async move { drop(serve(stream, &behaviour, address).await) });
            }
        });
        Self { address, behaviour }
    }

    /// Returns host and port, as in references.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Changes the behaviour from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        *self
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = behaviour;
    }
}

async fn serve(
    stream: TcpStream,
    behaviour: &Mutex<Behaviour>,
    address: SocketAddr,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut authorized) = (String::new(), false);
    stream.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line == "\r\n" {
            break;
        }
        authorized |= line.to_ascii_lowercase().trim_end() == "authorization: bearer the-token";
    }
    let Behaviour {
        layer,
        manifest,
        fault,
    } = behaviour
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let manifest = manifest.to_string().into_bytes();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let reading = !first.starts_with("HEAD");
    let challenge = |realm: &str| {
        let header = format!(
            "www-authenticate: Bearer realm=\"{realm}\",service=\"tests\",scope=\"pull\"\r\n"
        );
        (401, header, Vec::new())
    };
    let (status, headers, body) = match &fault {
        Fault::Silent => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            return Ok(());
        }
        Fault::Status(status) => (*status, String::new(), b"no".to_vec()),
        Fault::Realm(realm) => challenge(realm),
        Fault::Token if path.starts_with("/token") => {
            (200, String::new(), br#"{"token": "the-token"}"#.to_vec())
        }
        Fault::Token if !authorized => challenge(&format!("http://{address}/token")),
        _ if path.contains("/manifests/") => {
            let headers = format!("docker-content-digest: {}\r\n", digest(&manifest));
            if fault == Fault::EndlessManifest && reading {
                return endless(stream).await;
            }
            (200, headers, manifest)
        }
        Fault::Redirect(to) => (307, format!("location: {to}\r\n"), Vec::new()),
        Fault::Altered => {
            let mut other = layer;
            other.reverse();
            (200, String::new(), other)
        }
        Fault::Endless => return endless(stream).await,
        _ => (200, String::new(), layer),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    if reading {
        let end = if fault == Fault::Truncated && path.contains("/blobs/") {
            length / 2
        } else {
            length
        };
        stream.write_all(&body[..end]).await?;
    }
    stream.shutdown().await?;
    // Waits until the other side closes the connection.
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

/// Sends a body without a length until the other side closes the connection.
async fn endless(mut stream: BufReader<TcpStream>) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n")
        .await?;
    loop {
        stream.write_all(&[b' '; 65536]).await?;
    }
}

/// Formats a digest like a registry.
fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256:{:x}", Sha256::digest(bytes))
}
