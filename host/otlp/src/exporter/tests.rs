//! The exporter against a receiver that this file has.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use prost::Message as _;
use tollgate_config::CollectorHeader;

use super::*;
use crate::message::{ExportTraceServiceRequest, Span};

/// A span, as an item.
struct Named(&'static str, u64);

impl Item for Named {
    type Record = Span;

    fn count(&self) -> u64 {
        1
    }

    fn bytes(&self) -> u64 {
        self.1
    }

    fn write(self, records: &mut Vec<Span>) {
        records.push(Span {
            name: self.0.to_owned(),
            ..Span::default()
        });
    }
}

/// A request that a receiver got.
struct Got {
    head: String,
    body: Vec<u8>,
}

/// Answers each connection with the next of these answers, and then with the last one.
fn receiver(answers: &'static [&'static [u8]]) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert_ne!(reader.read_line(&mut head).unwrap(), 0);
            }
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap()];
            reader.read_exact(&mut body).unwrap();
            let answer = answers[number.min(answers.len() - 1)];
            (&stream).write_all(answer).unwrap();
            drop(stream);
            if sender.send(Got { head, body }).is_err() {
                return;
            }
        }
    });
    (url, received)
}

fn collector(endpoint: String, max_queue_bytes: u64) -> CollectorConfig {
    CollectorConfig {
        endpoint,
        headers: Vec::new(),
        ca: None,
        timeout: Duration::from_secs(5),
        max_queue_bytes,
    }
}

fn exporter(collector: CollectorConfig) -> (Exporter<Named>, Arc<Metrics>) {
    let metrics = Metrics::new();
    let resource = Resource::new(&[("service.name", "tollgate")]);
    let exporter = Exporter::start(collector, resource, metrics.clone()).unwrap();
    (exporter, metrics)
}

fn names(got: &Got) -> Vec<String> {
    let request = ExportTraceServiceRequest::decode(&*got.body).unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    spans.iter().map(|span| span.name.clone()).collect()
}

fn assert_counted(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.encode();
    for line in lines {
        let line = format!("tollgate_telemetry_{line}");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[test]
fn exports_in_batches_and_everything_at_the_end() {
    let (url, received) = receiver(&[OK]);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "Bearer secret\n").unwrap();
    let headers = vec![CollectorHeader {
        name: "Authorization".to_owned(),
        file: token,
    }];
    let (exporter, metrics) = exporter(CollectorConfig {
        headers,
        ..collector(url, 1 << 20)
    });
    exporter.offer(Named("a", 10));
    exporter.offer(Named("b", 10));
    assert!(exporter.finish(Duration::from_secs(20)));
    let got = received.recv().unwrap();
    assert_eq!(names(&got), ["a", "b"]);
    let head = got.head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"));
    assert!(head.contains("authorization: bearer secret"));
    assert_counted(
        &metrics,
        &[
            "exported_total{signal=\"traces\"} 2",
            "dropped_total{signal=\"traces\",reason=\"queue\"} 0",
        ],
    );
}

#[test]
fn tries_again_when_collector_is_busy() {
    const BUSY: &[u8] =
        b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (url, received) = receiver(&[BUSY, OK]);
    let (exporter, metrics) = exporter(collector(url, 1 << 20));
    exporter.offer(Named("a", 10));
    assert_eq!(names(&received.recv().unwrap()), ["a"]);
    assert_eq!(names(&received.recv().unwrap()), ["a"]);
    assert!(exporter.finish(Duration::from_secs(20)));
    assert_counted(&metrics, &["exported_total{signal=\"traces\"} 1"]);
}

#[test]
fn counts_what_the_collector_refuses() {
    const REFUSED: &[u8] = b"HTTP/1.1 400 Bad\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (url, _received) = receiver(&[REFUSED]);
    let (exporter, metrics) = exporter(collector(url, 1 << 20));
    exporter.offer(Named("a", 10));
    assert!(exporter.finish(Duration::from_secs(20)));
    assert_counted(
        &metrics,
        &["dropped_total{signal=\"traces\",reason=\"failed\"} 1"],
    );
}

#[test]
fn follows_no_redirect() {
    let (other, elsewhere) = receiver(&[OK]);
    let answer = format!(
        "HTTP/1.1 307 Elsewhere\r\nlocation: {other}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let answers: &'static [&'static [u8]] = vec![&*answer.into_bytes().leak()].leak();
    let (url, _received) = receiver(answers);
    let (exporter, metrics) = exporter(collector(url, 1 << 20));
    exporter.offer(Named("a", 10));
    assert!(exporter.finish(Duration::from_secs(20)));
    assert!(elsewhere.try_recv().is_err());
    assert_counted(
        &metrics,
        &["dropped_total{signal=\"traces\",reason=\"failed\"} 1"],
    );
}

#[test]
fn counts_rejected_spans_of_a_partial_success() {
    const PARTIAL: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\n\x0a\x02\x08\x01";
    let (url, _received) = receiver(&[PARTIAL]);
    let (exporter, metrics) = exporter(collector(url, 1 << 20));
    exporter.offer(Named("a", 10));
    exporter.offer(Named("b", 10));
    assert!(exporter.finish(Duration::from_secs(20)));
    assert_counted(
        &metrics,
        &[
            "exported_total{signal=\"traces\"} 1",
            "dropped_total{signal=\"traces\",reason=\"rejected\"} 1",
        ],
    );
}

#[test]
fn drops_and_counts_what_does_not_fit_while_the_collector_is_gone() {
    // Nobody accepts connections: the backlog of the listener takes them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", silent.local_addr().unwrap());
    let (exporter, metrics) = exporter(collector(url, 100));
    let began = Instant::now();
    for _ in 0..1_000 {
        exporter.offer(Named("a", 50));
    }
    assert!(began.elapsed() < Duration::from_secs(4), "an offer waited");
    assert_counted(
        &metrics,
        &["dropped_total{signal=\"traces\",reason=\"queue\"} 998"],
    );
    assert!(!exporter.finish(Duration::from_millis(10)));
}

#[test]
fn reads_rotated_files_again() {
    let (url, received) = receiver(&[OK]);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "one").unwrap();
    let headers = vec![CollectorHeader {
        name: "X-Token".to_owned(),
        file: token.clone(),
    }];
    let (exporter, _) = exporter(CollectorConfig {
        headers,
        ..collector(url, 1 << 20)
    });
    exporter.offer(Named("a", 10));
    let first = received.recv().unwrap();
    std::fs::write(&token, "two").unwrap();
    exporter.offer(Named("b", 10));
    let second = received.recv().unwrap();
    assert!(first.head.contains("x-token: one"), "{}", first.head);
    assert!(second.head.contains("x-token: two"), "{}", second.head);
    assert!(exporter.finish(Duration::from_secs(20)));
}
