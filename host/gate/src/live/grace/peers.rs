//! Asks the other replicas whether one of them is ready with all of its plugins.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, Request, StatusCode, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tollgate_admission::{COMPLETE, INSTANCE, Instance};
use tollgate_config::PeerAddress;

/// Timeout for resolving one name, and for the answer of one replica.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of replicas that are polled.
const MAX_ADDRESSES: usize = 128;
/// Maximum number of replicas that are polled at the same time.
const AT_A_TIME: usize = 16;

/// The state of the other replicas, as far as it is known.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// The peers have not been polled yet.
    NotPolled,
    /// No peers are configured.
    NoPeers,
    /// No peer is ready with all of its plugins. A peer that does not answer counts as not ready.
    NoneComplete,
    /// The peer at this address is ready with all of its plugins.
    Complete(SocketAddr),
    /// The address of a peer could not be resolved, for this reason.
    Unknown(String),
}

// === impl Standing ===

impl Standing {
    /// A word for each state. The caller logs a state only when this word changes.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::NotPolled => "not asked",
            Self::NoPeers => "no peers",
            Self::NoneComplete => "none complete",
            Self::Complete(_) => "complete",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Asks all peers. `own` tells this replica from the others.
pub(super) async fn poll(peers: &[PeerAddress], own: Instance) -> Standing {
    if peers.is_empty() {
        return Standing::NoPeers;
    }
    let found = futures_util::future::join_all(peers.iter().map(resolve)).await;
    ask_at(found, own).await
}

/// Asks the replicas at the resolved addresses. A complete replica counts even if another name could not be resolved.
async fn ask_at(found: Vec<Result<Vec<SocketAddr>, String>>, own: Instance) -> Standing {
    let mut addresses = Vec::new();
    let mut unknown = None;
    for found in found {
        match found {
            Ok(found) => addresses.extend(found),
            Err(why) => unknown = Some(why),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    let polls = addresses.into_iter().map(|address| async move {
        let answered = timeout(TIMEOUT, is_complete(address, own)).await;
        matches!(answered, Ok(Ok(true))).then_some(address)
    });
    let answers: Vec<_> = futures_util::stream::iter(polls)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    match (answers.into_iter().flatten().next(), unknown) {
        (Some(address), _) => Standing::Complete(address),
        (None, Some(why)) => Standing::Unknown(why),
        (None, None) => Standing::NoneComplete,
    }
}

async fn resolve(peer: &PeerAddress) -> Result<Vec<SocketAddr>, String> {
    let unknown = |why: &dyn std::fmt::Display| {
        format!(
            "cannot resolve {peer} (startupPeers): {why}; expected a headless Service with publishNotReadyAddresses: true, \
             whose name resolves to at least this replica's address"
        )
    };
    let looking = timeout(TIMEOUT, lookup_host((peer.host.as_str(), peer.port)));
    let found = looking
        .await
        .map_err(|_| unknown(&format_args!("no answer within {} s", TIMEOUT.as_secs())))?
        .map_err(|error| unknown(&error))?;
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(unknown(&"the name has no address"));
    }
    Ok(found)
}

/// Whether another replica answers at this address and is ready with all of its plugins.
async fn is_complete(address: SocketAddr, own: Instance) -> anyhow::Result<bool> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get("/readyz")
        .header(header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .context("failed to build the request")?;
    let response = sender.send_request(request).await?;
    let has_header = |name: HeaderName, value: &str| {
        let header = response.headers().get(name);
        header.is_some_and(|header| header.as_bytes() == value.as_bytes())
    };
    let is_own = has_header(INSTANCE, &own.to_string());
    Ok(response.status() == StatusCode::OK && has_header(COMPLETE, "true") && !is_own)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a replica that answers every request with this head.
    async fn replica(head: String) -> PeerAddress {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                drop(stream.read(&mut request).await);
                let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
                drop(stream.write_all(answer.as_bytes()).await);
            }
        });
        PeerAddress {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }

    fn gone() -> PeerAddress {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        PeerAddress {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().expect("bound").port(),
        }
    }

    #[tokio::test]
    async fn finds_replica_with_all_plugins() {
        let (own, other) = (Instance::new(), Instance::new());
        let of = |status: &str, complete, instance: Instance| {
            format!("{status}\r\ntollgate-complete: {complete}\r\ntollgate-instance: {instance}")
        };
        for (what, head, expected) in [
            ("a complete one", of("200 OK", true, other), true),
            ("one without a plugin", of("200 OK", false, other), false),
            (
                "one that is not ready",
                of("503 Service Unavailable", true, other),
                false,
            ),
            ("this one", of("200 OK", true, own), false),
            ("another program", "200 OK".to_owned(), false),
            ("an earlier version", "404 Not Found".to_owned(), false),
        ] {
            let peer = replica(head).await;
            let standing = poll(&[gone(), peer], own).await;
            let is_complete = matches!(standing, Standing::Complete(_));
            assert_eq!(is_complete, expected, "{what}: {standing:?}");
            if !expected {
                assert_eq!(standing, Standing::NoneComplete, "{what}");
            }
        }
    }

    #[tokio::test]
    async fn silent_peer_counts_as_incomplete_and_unresolved_name_as_unknown() {
        let own = Instance::new();
        assert_eq!(poll(&[], own).await, Standing::NoPeers);
        // This peer accepts connections and never answers.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let silent = silent.expect("a port");
        let peer = PeerAddress {
            host: "127.0.0.1".to_owned(),
            port: silent.local_addr().expect("bound").port(),
        };
        assert_eq!(poll(&[peer, gone()], own).await, Standing::NoneComplete);
        // A complete replica counts, even if another name cannot be resolved.
        let unknown = || Err("cannot resolve peers:8080".to_owned());
        let complete = replica("200 OK\r\ntollgate-complete: true".to_owned()).await;
        let complete = SocketAddr::from((Ipv4Addr::LOCALHOST, complete.port));
        let gone = SocketAddr::from((Ipv4Addr::LOCALHOST, gone().port));
        assert_eq!(
            ask_at(vec![unknown(), Ok(vec![gone])], own).await,
            Standing::Unknown("cannot resolve peers:8080".to_owned())
        );
        assert_eq!(
            ask_at(vec![unknown(), Ok(vec![gone, complete])], own).await,
            Standing::Complete(complete)
        );
    }
}
