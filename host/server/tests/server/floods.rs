//! What clients do that send little and hold much: the others are answered all the same.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::StatusCode;
use tokio::{
    io::AsyncReadExt,
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::fixture::{Fixture, Settings, raw};

/// Longer than an answer takes on a busy machine, and much shorter than any timeout of a request.
const SOON: Duration = Duration::from_secs(8);

const MIB: u64 = 1 << 20;

/// A TCP connection from another loopback address.
async fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind(SocketAddr::from((source, 0)))
        .expect("the address is this machine's");
    socket.connect(address).await.expect("a connection")
}

/// Whether the server has closed the connection.
async fn is_closed(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut byte = [0];
    let read = timeout(Duration::from_millis(1), stream.read(&mut byte)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

/// Counts those that the server has closed, until it has closed `count`.
async fn until_closed(streams: &mut [TlsStream<TcpStream>], count: usize) -> usize {
    let until = Instant::now() + SOON;
    let mut closed = vec![false; streams.len()];
    loop {
        for (stream, closed) in streams.iter_mut().zip(&mut closed) {
            *closed = *closed || is_closed(stream).await;
        }
        let found = closed.iter().filter(|closed| **closed).count();
        if found >= count || Instant::now() >= until {
            return found;
        }
    }
}

async fn assert_answered_soon(fixture: &Fixture, what: &str) {
    let client = fixture.client().http1_only().build().expect("a client");
    let began = Instant::now();
    let answer = fixture
        .post(&client, "/mutate/echo", vec![b'x'; 2_000])
        .await;
    assert_eq!(answer.status(), StatusCode::OK, "{what}");
    assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_length_takes_no_budget() {
    let fixture = Fixture::start(Settings {
        max_body_bytes: 4 * MIB,
        max_bytes_in_flight: 8 * MIB,
        ..Settings::default()
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..7 {
        let mut stream = fixture.connect().await;
        let framing = format!("content-length: {}", 4 * MIB);
        raw::send(&mut stream, &raw::head("/mutate/echo", &framing, "")).await;
        silent.push(stream);
    }
    fixture
        .expect_metric("tollgate_requests_in_flight", "7")
        .await;
    assert_eq!(fixture.metric("tollgate_in_flight_bytes"), "0");
    assert_answered_soon(&fixture, "beside seven announced lengths").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_without_body_take_no_budget_and_end_soon() {
    const STREAMS: usize = 100;
    let fixture = Fixture::start(Settings {
        max_body_bytes: MIB,
        max_bytes_in_flight: 2 * MIB,
        ..Settings::default()
    })
    .await;
    let stream = raw::connect_h2(&fixture.ca_pem(), fixture.address()).await;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("an HTTP/2 connection");
    tokio::spawn(connection);
    let began = Instant::now();
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let request = http::Request::post(fixture.url("/mutate/echo"))
                .header("content-type", "application/json")
                .body(StreamBody::new(futures_util::stream::pending::<
                    Result<hyper::body::Frame<Bytes>, std::convert::Infallible>,
                >()))
                .expect("a request");
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request).await })
        })
        .collect();
    fixture
        .expect_metric("tollgate_requests_in_flight", &STREAMS.to_string())
        .await;
    assert_eq!(fixture.metric("tollgate_in_flight_bytes"), "0");
    assert_answered_soon(&fixture, "beside a hundred streams").await;
    for stream in streams {
        let answer = timeout(SOON, stream).await.expect("the stream ends soon");
        let answer = answer.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_stalled_body_long_before_timeout() {
    let fixture = Fixture::start(Settings::default()).await;
    let mut stream = fixture.connect().await;
    let head = raw::head("/mutate/echo?timeout=30s", "content-length: 100", "{");
    raw::send(&mut stream, &head).await;
    let answer = timeout(SOON, raw::read_answer(&mut stream)).await;
    let answer = answer.expect("an answer soon");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    fixture.expect_metric("tollgate_in_flight_bytes", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicts_slow_bodies_when_budget_is_short() {
    let fixture = Fixture::start(Settings {
        max_body_bytes: 2 * MIB,
        max_bytes_in_flight: 8 * MIB,
        ..Settings::default()
    })
    .await;
    let mut slow = Vec::new();
    // Small ones as well, which may take the reserve.
    for (count, length) in [(3, 2 * MIB), (8, 256 * 1024)] {
        for _ in 0..count {
            let mut stream = fixture.connect().await;
            let framing = format!("content-length: {length}");
            let sent = "x".repeat(usize::try_from(length).expect("small") - 1);
            raw::send(&mut stream, &raw::head("/mutate/echo", &framing, &sent)).await;
            slow.push(stream);
        }
    }
    let full = (8 * MIB).to_string();
    fixture
        .expect_metric("tollgate_in_flight_bytes", &full)
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_answered_soon(&fixture, "beside slow bodies").await;
    let refused = "tollgate_overload_rejections_total{reason=\"bytes\"}";
    fixture.expect_metric(refused, "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicts_idle_connections_for_new_ones_at_once() {
    const LIMIT: usize = 20;
    for source in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
        let fixture = Fixture::start(Settings {
            max_connections: u32::try_from(LIMIT).expect("small"),
            ..Settings::default()
        })
        .await;
        // Used, and kept as kube-apiserver keeps its own.
        let mut kept = fixture.connect().await;
        let request = raw::head("/mutate/echo", "content-length: 2", "{}");
        raw::send(&mut kept, &request).await;
        raw::read_answer(&mut kept).await;
        let mut idle = Vec::new();
        for _ in 0..LIMIT - 1 {
            let stream = connect_from(source, fixture.address()).await;
            idle.push(raw::connect_over(&fixture.ca_pem(), stream).await);
        }
        let full = LIMIT.to_string();
        fixture.expect_metric("tollgate_connections", &full).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let began = Instant::now();
        let mut new = Vec::new();
        for _ in 0..5 {
            let mut stream = fixture.connect().await;
            raw::send(&mut stream, &request).await;
            let answer = raw::read_answer(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            new.push(stream);
        }
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        assert_eq!(until_closed(&mut idle, 5).await, 5, "five made room");
        assert!(!is_closed(&mut kept).await);
        raw::send(&mut kept, &request).await;
        let answer = raw::read_answer(&mut kept).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closes_partial_head_and_silent_handshake_within_seconds() {
    let fixture = Fixture::start(Settings::default()).await;
    let mut half = fixture.connect().await;
    raw::send(&mut half, "POST /mutate HTTP/1.1\r\nhost: loc").await;
    let mut silent = TcpStream::connect(fixture.address())
        .await
        .expect("a connection");
    fixture.expect_metric("tollgate_connections", "2").await;
    let mut byte = [0];
    let read = timeout(SOON, half.read(&mut byte)).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    let read = timeout(SOON, silent.read(&mut byte)).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    fixture.expect_metric("tollgate_connections", "0").await;
}
