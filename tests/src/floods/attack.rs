//! The attacks. Each one continues until it is aborted, and restarts connections that the server ends.

use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connect::Connect;
use crate::reviews::{Review, as_sent, pod};
use crate::server::Server;

/// The kind of traffic that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// No attack.
    None,
    /// Seven requests that together announce 256 MiB and send no body.
    AnnouncedLengths,
    /// 20 HTTP/2 connections with 250 requests each, all with a head and no body.
    HeaderOnlyStreams,
    /// 200 connections with half a head.
    HalfHeads,
    /// 200 bodies of 2 MiB: 64 KiB at once, then one byte every tenth of a second.
    SlowBodies,
    /// 1,000 connections that send nothing after the handshake.
    IdleConnections,
    /// Four clients that keep sending 12 MiB of small objects.
    DecodedBombs,
    /// 16 clients with objects that make a match condition expensive.
    ConditionCost,
    /// A plugin that sleeps while it is loaded at the start of the server.
    SleeperAtStart,
    /// A plugin that sleeps while it is loaded after a change of the configuration.
    SleeperAtReload,
}

const MIB: usize = 1 << 20;
/// Pause before an attack restarts a connection that the server ended.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time for which a connection is held.
const HELD: Duration = Duration::from_secs(600);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

// === impl Flood ===

impl Flood {
    /// All floods.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::AnnouncedLengths,
        Self::HeaderOnlyStreams,
        Self::HalfHeads,
        Self::SlowBodies,
        Self::IdleConnections,
        Self::DecodedBombs,
        Self::ConditionCost,
        Self::SleeperAtStart,
        Self::SleeperAtReload,
    ];

    /// The name of the flood in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AnnouncedLengths => "7 announced lengths",
            Self::HeaderOnlyStreams => "20 × 250 header-only streams",
            Self::HalfHeads => "200 half heads",
            Self::SlowBodies => "200 slow bodies",
            Self::IdleConnections => "1,000 idle connections",
            Self::DecodedBombs => "decoded-memory bombs",
            Self::ConditionCost => "costly match condition",
            Self::SleeperAtStart => "sleeping plugin at start",
            Self::SleeperAtReload => "sleeping plugin at reload",
        }
    }

    /// Whether the source address makes a difference.
    #[must_use]
    pub fn has_source(self) -> bool {
        !matches!(
            self,
            Self::None | Self::SleeperAtStart | Self::SleeperAtReload
        )
    }

    /// The number of open connections at full strength, if that number tells.
    pub(super) fn connections(self) -> Option<f64> {
        match self {
            Self::HeaderOnlyStreams => Some(20.0),
            Self::HalfHeads | Self::SlowBodies => Some(190.0),
            Self::IdleConnections => Some(990.0),
            _ => None,
        }
    }
}

/// Starts the attack, which continues until the set is dropped.
#[must_use]
pub fn start(flood: Flood, server: &Server, source: Ipv4Addr) -> JoinSet<()> {
    let connect = Connect::new(server.address(), source, server.ca_bundle());
    let url = Arc::new(server.url("/validate"));
    let mut tasks = JoinSet::new();
    let (count, pause) = match flood {
        Flood::None | Flood::SleeperAtStart | Flood::SleeperAtReload => (0, Duration::ZERO),
        Flood::AnnouncedLengths => (7, AGAIN),
        Flood::HeaderOnlyStreams => (20, AGAIN),
        Flood::HalfHeads | Flood::SlowBodies => (200, AGAIN),
        Flood::IdleConnections => (1_000, AGAIN),
        Flood::DecodedBombs => (4, Duration::ZERO),
        Flood::ConditionCost => (16, Duration::ZERO),
    };
    let body = Bytes::from(match flood {
        Flood::DecodedBombs => bomb(12 * MIB),
        Flood::ConditionCost => costly(),
        _ => Vec::new(),
    });
    for index in 0..count {
        let (connect, url, body) = (connect.clone(), Arc::clone(&url), body.clone());
        match flood {
            Flood::HeaderOnlyStreams => spawn(&mut tasks, pause, move || {
                streams(connect.clone(), Arc::clone(&url))
            }),
            Flood::DecodedBombs | Flood::ConditionCost => spawn(&mut tasks, pause, move || {
                whole(connect.clone(), body.clone())
            }),
            _ => spawn(&mut tasks, pause, move || {
                partial(flood, index, connect.clone())
            }),
        }
    }
    tasks
}

fn spawn<F: Future<Output = ()> + Send>(
    tasks: &mut JoinSet<()>,
    pause: Duration,
    attempt: impl Fn() -> F + Send + Sync + 'static,
) {
    tasks.spawn(async move {
        loop {
            attempt().await;
            sleep(pause).await;
        }
    });
}

/// Creates a review that is small on the wire and large in memory.
fn bomb(bytes: usize) -> Vec<u8> {
    let mut object = pod("bomb");
    object["spec"]["list"] = json!([]);
    let review = as_sent(&Review::create(object).build());
    let review = String::from_utf8(review).expect("it is JSON");
    let list = vec![r#"{"":0}"#; bytes / 7].join(",");
    review
        .replacen("\"list\":[]", &format!("\"list\":[{list}]"), 1)
        .into_bytes()
}

fn costly() -> Vec<u8> {
    let mut object = pod("costly");
    object["spec"]["list"] = (0..5_000).map(|number| json!(number)).collect();
    as_sent(&Review::create(object).build())
}

fn head(length: usize) -> String {
    format!(
        "POST /validate?timeout=30s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
}

/// Sends a part of a request and holds the connection until the server ends it or answers.
async fn partial(flood: Flood, index: u32, connect: Connect) {
    if flood == Flood::AnnouncedLengths {
        // The last request takes the memory that the others leave.
        sleep(index * AGAIN).await;
    }
    let Some(mut stream) = connect.http1().await else {
        return;
    };
    let (sent, drips) = match flood {
        Flood::AnnouncedLengths if index < 6 => (head(40 * MIB), false),
        Flood::AnnouncedLengths => (head(16 * MIB), false),
        Flood::HalfHeads => ("POST /validate HTTP/1.1\r\nhost: local".to_owned(), false),
        Flood::SlowBodies => (head(2 * MIB) + &" ".repeat(64 * 1024), true),
        _ => (String::new(), false),
    };
    if stream.write_all(sent.as_bytes()).await.is_err() || stream.flush().await.is_err() {
        return;
    }
    let mut answer = [0; 512];
    if !drips {
        // Waits for the answer or the end of the connection.
        drop(timeout(HELD, stream.read(&mut answer)).await);
        return;
    }
    loop {
        match timeout(Duration::from_millis(100), stream.read(&mut answer)).await {
            Ok(_) => return,
            Err(_) => {
                if stream.write_all(b" ").await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Sends a whole request on its own connection and reads the start of the answer.
async fn whole(connect: Connect, body: Bytes) {
    let Some(mut stream) = connect.http1().await else {
        return;
    };
    let exchange = async {
        stream.write_all(head(body.len()).as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.flush().await?;
        let mut answer = [0; 512];
        stream.read(&mut answer).await.map(drop)
    };
    drop(timeout(ANSWER_LIMIT, exchange).await);
}

/// Opens as many requests without a body as the server allows, and holds them.
async fn streams(connect: Connect, url: Arc<String>) {
    let Some(stream) = connect.http2().await else {
        return;
    };
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let Ok((sender, connection)) = handshake.await else {
        return;
    };
    let mut requests = JoinSet::new();
    for _ in 0..250 {
        let (mut sender, url) = (sender.clone(), Arc::clone(&url));
        requests.spawn(async move {
            while sender.ready().await.is_ok() {
                let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
                let request = http::Request::post(&**url)
                    .header("content-type", "application/json")
                    .body(body)
                    .expect("it is a request");
                drop(sender.send_request(request).await);
                sleep(AGAIN).await;
            }
        });
    }
    drop(timeout(HELD, connection).await);
}
