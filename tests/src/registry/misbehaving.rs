//! A registry in plain HTTP that behaves as a test tells it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The registry's content, and how it answers.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// The plugin's bytes.
    pub layer: Vec<u8>,
    /// The manifest, once it has been created.
    pub manifest: Value,
    /// The fault to simulate.
    pub fault: Fault,
}

/// A fault of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Every answer has this status.
    Status(u16),
    /// The registry never answers.
    Silent,
    /// Blobs end in the middle.
    Truncated,
    /// Blobs have their bytes in reverse order.
    Altered,
    /// Blobs never end.
    Endless,
    /// Blobs are redirected to this URL.
    Redirect(String),
    /// Tokens are issued by another server.
    Realm(String),
    /// Tokens are required, and issued here.
    Token,
    /// Manifests never end.
    EndlessManifest,
}

/// The registry's server. It ends with the runtime.
pub struct Misbehaving {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
}

// === impl Behaviour ===

impl Behaviour {
    /// A plugin in the layout for WebAssembly artifacts.
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

    /// Sets the fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }
}

// === impl Misbehaving ===

impl Misbehaving {
    /// Starts the server.
    ///
    /// # Panics
    /// Panics if loopback has no free port.
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
                // Clients may disconnect, and some do so on purpose.
                tokio::spawn(async move { drop(serve(stream, &behaviour, address).await) });
            }
        });
        Self { address, behaviour }
    }

    /// Host and port, as references write them.
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
    // Waits until the client disconnects.
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

/// Sends a body without a length until the client disconnects.
async fn endless(mut stream: BufReader<TcpStream>) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n")
        .await?;
    loop {
        stream.write_all(&[b' '; 65536]).await?;
    }
}

/// Formats a digest as registries do.
fn digest(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256:{:x}", Sha256::digest(bytes))
}
