//! A registry on loopback that takes what `tollgate push` sends, so that a release has the artifacts that users publish.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;

use crate::image::layout::digest;

/// The registry. It ends with the process.
pub(super) struct Intake {
    address: SocketAddr,
    pushed: Arc<Mutex<Pushed>>,
}

/// Everything that was pushed.
#[derive(Default)]
struct Pushed {
    /// Bytes by digest. Manifests are among them.
    blobs: BTreeMap<String, Vec<u8>>,
    /// Digests of the manifests by repository.
    manifests: BTreeMap<String, String>,
}

/// A pushed artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Artifact {
    /// Digest of the manifest.
    pub(super) digest: String,
    /// The manifest and what it names, by digest.
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
}

/// A request of a client.
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

/// Largest body, in bytes. A plugin of `plugins/` has less than 3 MB.
const MAX_BODY: usize = 64 << 20;

// === impl Intake ===

impl Intake {
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let pushed = Arc::<Mutex<Pushed>>::default();
        let shared = pushed.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The client reports what failed.
                drop(serve(&stream, &shared));
            }
        });
        Ok(Self { address, pushed })
    }

    /// Host and port, as references write them.
    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the artifact that was pushed to a repository last.
    pub(super) fn artifact(&self, repository: &str) -> anyhow::Result<Artifact> {
        let pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || format!("nothing whole was pushed to {repository}");
        let of_manifest = pushed.manifests.get(repository).with_context(missing)?;
        let bytes = pushed.blobs.get(of_manifest).with_context(missing)?;
        let manifest: serde_json::Value = serde_json::from_slice(bytes)?;
        let layers = manifest["layers"].as_array().into_iter().flatten();
        let parts = layers.chain([&manifest["config"]]);
        let mut blobs = BTreeMap::from([(of_manifest.clone(), bytes.clone())]);
        for part in parts {
            let named = part["digest"].as_str().with_context(missing)?;
            let blob = pushed.blobs.get(named).with_context(missing)?;
            blobs.insert(named.to_owned(), blob.clone());
        }
        Ok(Artifact {
            digest: of_manifest.clone(),
            blobs,
        })
    }
}

/// Answers one request, and closes the connection.
fn serve(mut stream: &TcpStream, pushed: &Mutex<Pushed>) -> anyhow::Result<()> {
    let request = Request::read(stream)?;
    let mut pushed = pushed.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, headers) = pushed.answer(request);
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    Ok(())
}

// === impl Pushed ===

impl Pushed {
    fn answer(&mut self, request: Request) -> (&'static str, String) {
        let Request { method, path, body } = request;
        match (method.as_str(), path.split_once("/manifests/")) {
            ("PUT", Some((repository, _))) => {
                let of_manifest = digest(&body);
                let repository = repository.trim_start_matches("/v2/").to_owned();
                self.blobs.insert(of_manifest.clone(), body);
                self.manifests.insert(repository, of_manifest.clone());
                (
                    "201 Created",
                    format!("Docker-Content-Digest: {of_manifest}\r\n"),
                )
            }
            ("POST", _) => ("202 Accepted", format!("Location: {path}upload\r\n")),
            ("PUT", None) => {
                self.blobs.insert(digest(&body), body);
                ("201 Created", String::new())
            }
            ("GET", _) if path == "/v2/" => ("200 OK", String::new()),
            _ => ("404 Not Found", String::new()),
        }
    }
}

// === impl Request ===

impl Request {
    fn read(stream: &TcpStream) -> anyhow::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ');
        let (method, path) = (words.next(), words.next());
        let (method, path) = (
            method.unwrap_or_default().to_owned(),
            path.unwrap_or_default().to_owned(),
        );
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim().split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
            if name.eq_ignore_ascii_case("expect") {
                let mut stream = stream;
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
        }
        anyhow::ensure!(length <= MAX_BODY, "a body of {length} bytes is too large");
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Self { method, path, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_artifacts_apart_by_repository() {
        let intake = Intake::start().unwrap();
        let agent = ureq::agent();
        let base = format!("http://{}/v2/plugins/guard", intake.host());
        let layer = b"wasm".as_slice();
        for blob in [layer, b"{}"] {
            let begun = agent
                .post(format!("{base}/blobs/uploads/"))
                .send_empty()
                .unwrap();
            let at = begun.headers()["location"].to_str().unwrap().to_owned();
            let at = format!("http://{}{at}?digest={}", intake.host(), digest(blob));
            agent.put(at).send(blob).unwrap();
        }
        let manifest = format!(
            r#"{{"layers":[{{"digest":"{}"}}],"config":{{"digest":"{}"}}}}"#,
            digest(layer),
            digest(b"{}")
        );
        agent
            .put(format!("{base}/manifests/1"))
            .send(manifest.as_bytes())
            .unwrap();
        let artifact = intake.artifact("plugins/guard").unwrap();
        assert_eq!(artifact.digest, digest(manifest.as_bytes()));
        assert_eq!(artifact.blobs[&digest(layer)], layer);
        assert_eq!(artifact.blobs.len(), 3);
        assert!(intake.artifact("plugins/other").is_err());
    }
}
