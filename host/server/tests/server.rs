//! The server over real sockets, with a gate that does as the path says.

#[path = "server/admin.rs"]
mod admin;
#[path = "server/authentication.rs"]
mod authentication;
#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/floods.rs"]
mod floods;
#[path = "server/page.rs"]
mod page;
#[path = "server/probes.rs"]
mod probes;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fixture::{FakeGate, Fixture, Settings, raw};
use reqwest::{StatusCode, Version, tls::Version as TlsVersion};
use tokio::net::TcpStream;
use tollgate_config::Margin;
use tollgate_server::{Drained, Stop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_both_http_versions_over_both_tls_versions() {
    let fixture = Fixture::start(Settings::default()).await;
    for tls in [TlsVersion::TLS_1_2, TlsVersion::TLS_1_3] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut builder = fixture.client().min_tls_version(tls).max_tls_version(tls);
            if version == Version::HTTP_11 {
                builder = builder.http1_only();
            }
            let client = builder.build().expect("a client");
            for path in ["/mutate", "/validate", "/mutate/echo", "/validate/echo"] {
                let response = fixture.post(&client, path, "{\"a\":1}").await;
                assert_eq!(
                    response.status(),
                    StatusCode::OK,
                    "{tls:?} {version:?} {path}"
                );
                assert_eq!(response.version(), version, "{tls:?}");
                assert_eq!(response.headers()["content-type"], "application/json");
                assert_eq!(response.text().await.expect("a body"), "{\"a\":1}");
            }
        }
    }
    assert_eq!(fixture.metric("tollgate_tls_handshake_failures_total"), "0");
    let served = "tollgate_requests_total{endpoint=\"validate\",code=\"200\"}";
    assert_eq!(fixture.metric(served), "8");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepts_a_resumed_tls_session() {
    let fixture = Fixture::start(Settings::default()).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let connector = raw::connector(&fixture.ca_pem(), version);
        let mut resumed = Vec::new();
        for _ in 0..2 {
            let mut stream = raw::connect(&connector, fixture.address()).await;
            raw::send(
                &mut stream,
                &raw::head("/mutate", "content-length: 2", "{}"),
            )
            .await;
            let answer = raw::read_answer(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let kind = stream.get_ref().1.handshake_kind();
            resumed.push(kind == Some(rustls::HandshakeKind::Resumed));
        }
        assert_eq!(resumed, [false, true]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_other_calls_with_reason() {
    let fixture = Fixture::start(Settings::default()).await;
    let client = fixture.client().build().expect("a client");
    let get = client
        .get(fixture.url("/mutate"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(get.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(get.headers()["allow"], "POST");
    let elsewhere = fixture.post(&client, "/elsewhere", "{}").await;
    assert_eq!(elsewhere.status(), StatusCode::NOT_FOUND);
    let plain = client
        .post(fixture.url("/mutate"))
        .body("{}")
        .send()
        .await
        .expect("an answer");
    assert_eq!(plain.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let timeout = fixture.post(&client, "/mutate?timeout=soon", "{}").await;
    assert_eq!(timeout.status(), StatusCode::BAD_REQUEST);
    assert!(
        timeout
            .text()
            .await
            .expect("a text")
            .contains("Go duration")
    );
    let unknown = fixture.post(&client, "/mutate/unknown", "{}").await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        unknown.text().await.expect("a text"),
        "no plugin of that name"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_gets_timeout_minus_margin() {
    let fixture = Fixture::start(Settings::default()).await;
    let client = fixture.client().build().expect("a client");
    for (query, expected) in [("", 9_000), ("?timeout=2s", 1_800), ("?timeout=100ms", 50)] {
        let response = fixture
            .post(&client, &format!("/validate/left{query}"), "{}")
            .await;
        let left: u64 = response
            .text()
            .await
            .expect("a body")
            .parse()
            .expect("a number");
        assert_eq!(left, expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_for_hanging_gate_after_timeout() {
    let fixture = Fixture::start(Settings::default()).await;
    let client = fixture.client().build().expect("a client");
    let started = Instant::now();
    let response = fixture
        .post(&client, "/mutate/hang?timeout=300ms", "{}")
        .await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_panicking_request_with_500_and_keeps_running() {
    let fixture = Fixture::start(Settings::default()).await;
    for builder in [fixture.client(), fixture.client().http1_only()] {
        let client = builder.build().expect("a client");
        let response = fixture.post(&client, "/mutate/panic", "{}").await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let response = fixture.post(&client, "/mutate/echo", "{}").await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(fixture.metric("tollgate_panics_total"), "2");
    fixture
        .expect_metric("tollgate_requests_in_flight", "0")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_requests_over_bytes_in_flight_until_released() {
    let fixture = Fixture::start(Settings {
        max_body_bytes: 1_000,
        max_bytes_in_flight: 1_500,
        ..Settings::default()
    })
    .await;
    let client = fixture.client().http1_only().build().expect("a client");
    let held = {
        let request = fixture.request(&client, "/mutate/hold", vec![b'x'; 1_000]);
        tokio::spawn(async move { request.send().await.expect("an answer").status() })
    };
    fixture.gate.until_held(1).await;
    assert_eq!(fixture.metric("tollgate_in_flight_bytes"), "1000");
    for chunked in [false, true] {
        let body = vec![b'y'; 501];
        let request = if chunked {
            let head = raw::head("/mutate/echo", "transfer-encoding: chunked", "");
            let mut bytes = head.into_bytes();
            bytes.extend_from_slice(b"1f5\r\n");
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(b"\r\n0\r\n\r\n");
            bytes
        } else {
            let mut bytes = raw::head("/mutate/echo", "content-length: 501", "").into_bytes();
            bytes.extend_from_slice(&body);
            bytes
        };
        let mut stream = fixture.connect().await;
        raw::send_bytes(&mut stream, &request).await;
        let answer = raw::read_answer(&mut stream).await;
        assert!(
            answer.starts_with("HTTP/1.1 429"),
            "chunked {chunked}: {answer}"
        );
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
        // The body was taken, so the connection goes on.
        raw::send(
            &mut stream,
            &raw::head("/mutate/echo", "content-length: 2", "{}"),
        )
        .await;
        let answer = raw::read_answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let small = fixture.post(&client, "/mutate/echo", vec![b'y'; 500]).await;
    assert_eq!(small.status(), StatusCode::OK);
    fixture.gate.release();
    assert_eq!(held.await.expect("no panic"), StatusCode::OK);
    fixture.expect_metric("tollgate_in_flight_bytes", "0").await;
    let reason = "tollgate_overload_rejections_total{reason=\"bytes\"}";
    assert_eq!(fixture.metric(reason), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_overloaded_gate_with_429() {
    let fixture = Fixture::start(Settings::default()).await;
    let client = fixture.client().build().expect("a client");
    let response = fixture.post(&client, "/mutate/overloaded", "{}").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_oversized_body_from_its_head() {
    const CAP: usize = 100_000;
    let fixture = Fixture::start(Settings {
        max_body_bytes: CAP as u64,
        ..Settings::default()
    })
    .await;
    for builder in [fixture.client(), fixture.client().http1_only()] {
        let client = builder.build().expect("a client");
        let fits = fixture.post(&client, "/mutate/echo", vec![b'x'; CAP]).await;
        assert_eq!(fits.status(), StatusCode::OK);
        for length in [CAP + 1, 3 * CAP] {
            let response = fixture
                .post(&client, "/mutate/echo", vec![b'x'; length])
                .await;
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
            let text = response.text().await.expect("a text");
            assert_eq!(text, "65536 of the first bytes, limit 100000");
        }
    }
    fixture.expect_metric("tollgate_in_flight_bytes", "0").await;
    assert_eq!(fixture.metric("tollgate_oversized_bodies_total"), "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_clients_that_write_whole_oversized_body_first() {
    const CAP: usize = 100_000;
    let fixture = Fixture::start(Settings {
        max_body_bytes: CAP as u64,
        ..Settings::default()
    })
    .await;
    // Three times the cap is drained before the answer; eighty times is past what is drained, so
    // the answer comes before the client is done, and the rest is read while it lingers.
    for (length, keeps_connection) in [(3 * CAP, true), (80 * CAP, false)] {
        for chunked in [false, true] {
            let mut stream = fixture.connect().await;
            let framing = if chunked {
                "transfer-encoding: chunked".to_owned()
            } else {
                format!("content-length: {length}")
            };
            raw::send(&mut stream, &raw::head("/mutate/echo", &framing, "")).await;
            let piece = vec![b'x'; 10_000];
            for _ in 0..length / piece.len() {
                if chunked {
                    raw::send(&mut stream, "2710\r\n").await;
                    raw::send_bytes(&mut stream, &piece).await;
                    raw::send(&mut stream, "\r\n").await;
                } else {
                    raw::send_bytes(&mut stream, &piece).await;
                }
            }
            if chunked {
                raw::send(&mut stream, "0\r\n\r\n").await;
            }
            let answer = raw::read_answer(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
            let closes = answer.contains("connection: close");
            assert_eq!(closes, !keeps_connection, "{length} {framing}: {answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_missing_body_with_408() {
    let fixture = Fixture::start(Settings::default()).await;
    let mut stream = fixture.connect().await;
    let head = raw::head("/mutate/echo?timeout=200ms", "content-length: 100", "{");
    raw::send(&mut stream, &head).await;
    let answer = raw::read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    fixture.expect_metric("tollgate_in_flight_bytes", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_disconnected_client_and_drops_its_review() {
    let fixture = Fixture::start(Settings::default()).await;
    let mut stream = fixture.connect().await;
    raw::send(
        &mut stream,
        &raw::head("/mutate/hold", "content-length: 2", "{}"),
    )
    .await;
    fixture.gate.until_held(1).await;
    drop(stream);
    let gone = "tollgate_requests_total{endpoint=\"mutate\",code=\"499\"}";
    fixture.expect_metric(gone, "1").await;
    fixture.expect_metric("tollgate_in_flight_bytes", "0").await;
    fixture.expect_metric("tollgate_connections", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drains_two_hundred_requests_without_reset() {
    for http1 in [true, false] {
        let mut fixture = Fixture::start(Settings::default()).await;
        let mut builder = fixture.client();
        if http1 {
            builder = builder.http1_only();
        }
        let client = builder.build().expect("a client");
        let requests: Vec<_> = (0..200)
            .map(|index| {
                let request =
                    fixture.request(&client, "/mutate/hold", format!("{{\"i\":{index}}}"));
                tokio::spawn(async move {
                    let response = request.send().await.expect("an answer, not a reset");
                    let close = response.headers().get("connection").cloned();
                    assert_eq!(response.status(), StatusCode::OK);
                    let text = response.text().await.expect("the whole answer");
                    (text == format!("{{\"i\":{index}}}"), close)
                })
            })
            .collect();
        fixture.gate.until_held(200).await;
        fixture.stop(Stop::Terminate);
        fixture.until_not_ready().await;
        // New connections are still taken: the Service's endpoints lag behind.
        let late = fixture.client().http1_only().build().expect("a client");
        let response = fixture.post(&late, "/mutate/echo", "{}").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["connection"], "close");
        fixture.gate.release();
        for request in requests {
            let (echoed, close) = request.await.expect("no panic");
            assert!(echoed);
            assert_eq!(close.is_some(), http1);
        }
        assert_eq!(fixture.drained().await, Drained { cut_connections: 0 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_answers_on_idle_connections_and_closes_them() {
    let mut fixture = Fixture::start(Settings::default()).await;
    let mut used = fixture.connect().await;
    raw::send(&mut used, &raw::head("/mutate", "content-length: 2", "{}")).await;
    let answer = raw::read_answer(&mut used).await;
    assert!(!answer.contains("connection: close"), "{answer}");
    let mut fresh = fixture.connect().await;
    fixture.stop(Stop::Terminate);
    fixture.until_not_ready().await;
    for stream in [&mut used, &mut fresh] {
        raw::send(stream, &raw::head("/mutate", "content-length: 2", "{}")).await;
        let answer = raw::read_answer(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert_eq!(raw::read_rest(stream).await, "");
    }
    assert_eq!(fixture.drained().await, Drained { cut_connections: 0 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_answers_requests_on_kept_connections() {
    let mut fixture = Fixture::start(Settings::default()).await;
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let client = fixture.client().http1_only().build().expect("a client");
            let request = fixture.request(&client, "/validate", "{}");
            tokio::spawn(async move {
                let mut answered = 0;
                loop {
                    let response = request.try_clone().expect("a clone").send().await;
                    let response = response.expect("an answer, not a reset");
                    assert_eq!(response.status(), StatusCode::OK);
                    answered += 1;
                    if response.headers().contains_key("connection") {
                        break;
                    }
                    drop(response.bytes().await);
                }
                answered
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    fixture.stop(Stop::Terminate);
    let mut answered: u64 = 0;
    for client in clients {
        answered += client.await.expect("no panic");
    }
    assert_eq!(fixture.drained().await, Drained { cut_connections: 0 });
    let served = "tollgate_requests_total{endpoint=\"validate\",code=\"200\"}";
    assert_eq!(fixture.metric(served), answered.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closes_unfinished_requests_after_grace_period() {
    let mut fixture = Fixture::start(Settings {
        shutdown_grace_period: Duration::from_millis(400),
        ..Settings::default()
    })
    .await;
    let mut stream = fixture.connect().await;
    raw::send(
        &mut stream,
        &raw::head("/mutate/hold", "content-length: 2", "{}"),
    )
    .await;
    fixture.gate.until_held(1).await;
    let started = Instant::now();
    fixture.stop(Stop::Interrupt);
    assert_eq!(fixture.drained().await, Drained { cut_connections: 1 });
    assert!(started.elapsed() >= Duration::from_millis(400));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_does_not_wait_for_silent_clients() {
    let mut fixture = Fixture::start(Settings {
        shutdown_grace_period: Duration::from_secs(15),
        ..Settings::default()
    })
    .await;
    let silent = TcpStream::connect(fixture.address())
        .await
        .expect("a connection");
    let fresh = fixture.connect().await;
    let client = fixture.client().build().expect("a client");
    fixture.post(&client, "/mutate", "{}").await;
    fixture.expect_metric("tollgate_connections", "3").await;
    let started = Instant::now();
    fixture.stop(Stop::Interrupt);
    assert_eq!(fixture.drained().await, Drained { cut_connections: 0 });
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
    drop((silent, fresh));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closes_connections_after_idle_timeout() {
    let fixture = Fixture::start(Settings {
        idle_timeout: Duration::from_millis(500),
        ..Settings::default()
    })
    .await;
    let mut stream = fixture.connect().await;
    raw::send(
        &mut stream,
        &raw::head("/mutate", "content-length: 2", "{}"),
    )
    .await;
    let answer = raw::read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(raw::read_rest(&mut stream).await, "");
    fixture.expect_metric("tollgate_connections", "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_probes_metrics_and_plugins_on_plain_listeners() {
    let fixture = Fixture::start(Settings::default()).await;
    assert_eq!(fixture.probe("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(fixture.probe("/readyz").await, (200, "ok\n".to_owned()));
    let (status, verbose) = fixture.probe("/readyz?verbose").await;
    assert_eq!(status, 200);
    let lines: Vec<&str> = verbose.lines().collect();
    assert_eq!(
        (lines[0], lines[3..].join("\n")),
        ("plugin echo: ready", "ok".to_owned())
    );
    assert!(
        lines[1].starts_with("certificate self-signed: expires on 20"),
        "{verbose}"
    );
    assert!(lines[1].ends_with(", in 89 days"), "{verbose}");
    assert!(lines[2].contains("/tls/ca.crt: expires on 20"), "{verbose}");
    fixture.gate.set_ready(false);
    let (status, red) = fixture.probe("/readyz").await;
    assert_eq!(status, 503);
    assert!(
        red.starts_with("plugin echo: ready\n") && red.ends_with("\nnot ready\n"),
        "{red}"
    );
    let (status, plugins) = fixture.admin("/plugins").await;
    assert_eq!(
        (status, plugins.as_str()),
        (200, "[\n  {\n    \"name\": \"echo\"\n  }\n]\n")
    );
    let (status, metrics) = fixture.probe("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.ends_with("# EOF\n"));
    for file in ["{file=\"self-signed\"}", "/tls/ca.crt\"}"] {
        let mut lines = metrics.lines();
        let found = lines.any(|line| {
            line.starts_with("tollgate_certificate_expiry_timestamp_seconds") && line.contains(file)
        });
        assert!(found, "{file}: {metrics}");
    }
    assert_eq!(fixture.admin("/elsewhere").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_authority_across_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut first = Fixture::start_in(Settings::default(), directory.path()).await;
    let ca_pem = first.ca_pem();
    first.stop(Stop::Interrupt);
    first.drained().await;
    let second = Fixture::start_in(Settings::default(), directory.path()).await;
    assert_eq!(second.ca_pem(), ca_pem);
    let client = fixture::client(&ca_pem).build().expect("a client");
    let response = second.post(&client, "/mutate", "{}").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaves_half_of_tiny_timeout_with_any_margin() {
    let fixture = Fixture::start(Settings {
        deadline_margin: Margin {
            percent: 90,
            at_least: Duration::from_secs(5),
        },
        gate: Arc::new(FakeGate::default()),
        ..Settings::default()
    })
    .await;
    let client = fixture.client().build().expect("a client");
    let response = fixture.post(&client, "/mutate/left?timeout=1s", "{}").await;
    assert_eq!(response.text().await.expect("a body"), "500");
}
