//! The probes listener: answered whatever clients hold on to it, and however busy the server is.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use crate::fixture::{Fixture, Settings};

/// kubelet's default is one second; this is for a machine that does much else.
const PROBE_LIMIT: Duration = Duration::from_millis(900);

/// A request without the runtime of the test, which the server shares: the status and how long it took.
fn get(address: SocketAddr, path: &str) -> std::io::Result<(String, Duration)> {
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: pod\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.lines().next().unwrap_or_default().to_owned();
    Ok((status, began.elapsed()))
}

/// The slowest of some probes, all of which are answered with 200.
fn slowest(address: SocketAddr, paths: &[&str]) -> Duration {
    let took = paths.iter().map(|path| {
        let (status, took) = get(address, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(status, "HTTP/1.1 200 OK", "{path}");
        took
    });
    took.max().unwrap_or_default()
}

/// Connections on which a part of a request has been sent.
fn connections(address: SocketAddr, count: usize, sent: &str) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        // One that had to make room has been closed.
        drop(stream.write_all(sent.as_bytes()));
        stream
    };
    (0..count).map(connect).collect()
}

const PROBES: [&str; 6] = [
    "/livez", "/readyz", "/metrics", "/livez", "/readyz", "/livez",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_probes_while_all_server_threads_are_busy() {
    let fixture = Fixture::start(Settings::default()).await;
    let client = fixture.client().http1_only().build().expect("a client");
    for _ in 0..4 {
        let request = fixture.request(&client, "/mutate/block", "{}");
        tokio::spawn(request.send());
    }
    // Without the runtime's help from here on: both of its threads are blocked.
    let began = Instant::now();
    while fixture.gate.blocked() < 2 {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "no thread is busy"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let slowest = slowest(fixture.probes_address(), &PROBES.repeat(5));
    fixture.gate.unblock();
    println!("slowest of 30 probes beside 2 of 2 busy threads: {slowest:?}");
    assert!(slowest < PROBE_LIMIT, "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_probes_while_clients_hold_connections() {
    let fixture = Fixture::start(Settings::default()).await;
    let address = fixture.probes_address();
    for (what, count, sent) in [
        ("half-sent heads", 80, "GET /livez HTTP/1.1\r\nhost: "),
        ("half-sent heads", 400, "GET /livez HTTP/1.1\r\nhost: "),
        ("idle connections", 400, ""),
        (
            "requests of which nobody reads the answer",
            400,
            "GET /metrics HTTP/1.1\r\nhost: pod\r\n\r\n",
        ),
    ] {
        let held = connections(address, count, sent);
        let slowest = slowest(address, &PROBES);
        println!(
            "beside {count} {what}: slowest of {} probes {slowest:?}",
            PROBES.len()
        );
        assert!(slowest < PROBE_LIMIT, "beside {count} {what}: {slowest:?}");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closes_connection_without_request_head() {
    let fixture = Fixture::start(Settings::default()).await;
    for address in [fixture.probes_address(), fixture.admin_address()] {
        for sent in ["", "GET /livez HTTP/1.1\r\nhost: "] {
            let began = Instant::now();
            let mut stream = connections(address, 1, sent).remove(0);
            let limit = Some(Duration::from_secs(15));
            stream.set_read_timeout(limit).expect("a timeout");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("the server closes");
            let took = began.elapsed();
            println!("after {sent:?}: closed after {took:?}");
            assert!(took > Duration::from_secs(1), "{took:?}");
            assert!(took < Duration::from_secs(12), "{took:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_only_probes_and_metrics() {
    let fixture = Fixture::start(Settings::default()).await;
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(fixture.probe(path).await.0, 200, "{path}");
        assert_eq!(fixture.admin(path).await.0, 404, "{path}");
    }
    for path in ["/plugins", "/shadows", "/decisions"] {
        assert_eq!(fixture.admin(path).await.0, 200, "{path}");
    }
    for path in [
        "/plugins",
        "/shadows",
        "/decisions",
        "/decisions/u-1",
        "/reload",
    ] {
        let (status, text) = fixture.probe(path).await;
        assert_eq!(status, 404, "{path}");
        assert!(text.contains("admin listener (admin.listen)"), "{text}");
    }
    let url = format!("http://{}/livez", fixture.probes_address());
    let client = fixture.client().build().expect("a client");
    let post = client.post(url).send().await.expect("an answer");
    assert_eq!(post.status(), 405);
    assert_eq!(post.headers()["allow"], "GET, HEAD");
}
