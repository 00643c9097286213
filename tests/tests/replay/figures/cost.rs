//! What recording costs a server, beside the same server without.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use tollgate_tests::process::thread_time;
use tollgate_tests::server::Server;

use super::Traffic;

/// Reviews that are sent to one server before it is the other one's turn.
const BATCH: usize = 1_000;
pub(super) const CLIENTS: usize = 8;
/// The thread that redacts, compresses and writes.
const RECORDER: &str = "tollgate-record";

/// A server, and what it has spent and how long its clients have waited in each round.
pub(super) struct Side<'s> {
    server: &'s Server,
    rounds: Vec<Round>,
}

#[derive(Clone, Copy)]
struct Round {
    /// Processor time of the whole process.
    all: Duration,
    /// Processor time of the recorder's thread.
    recorder: Duration,
    elapsed: Duration,
    median: Duration,
    p99: Duration,
}

// === impl Side ===

impl<'s> Side<'s> {
    pub(super) fn new(server: &'s Server) -> Self {
        let rounds = Vec::new();
        Self { server, rounds }
    }

    async fn round(&mut self, traffic: &Traffic, indices: Range<usize>) {
        let spent = || {
            let recorder = thread_time(self.server.process(), RECORDER);
            (self.server.cpu_time().0, recorder)
        };
        let (before, began) = (spent(), Instant::now());
        let mut latencies = send(self.server, traffic, indices).await;
        let elapsed = began.elapsed();
        let after = spent();
        latencies.sort();
        let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
        self.rounds.push(Round {
            all: after.0 - before.0,
            recorder: after.1 - before.1,
            elapsed,
            median: at(50),
            p99: at(99),
        });
    }

    fn sum(&self, of: impl Fn(&Round) -> Duration) -> f64 {
        self.rounds.iter().map(of).sum::<Duration>().as_secs_f64()
    }
}

/// A value of a round.
type Value<'v> = &'v dyn Fn(&Round) -> Duration;

/// Sends reviews by several clients. Returns the latencies.
pub(super) async fn send(
    server: &Server,
    traffic: &Traffic,
    indices: Range<usize>,
) -> Vec<Duration> {
    let answers = stream::iter(indices).map(|index| async move {
        let answer = server.validate(&traffic.review(index)).await;
        assert_eq!(answer.status, 200);
        answer.took
    });
    answers.buffer_unordered(CLIENTS).collect().await
}

/// Sends the reviews to both servers in turns, and prints what recording costs.
pub(super) async fn compare(recording: &Server, plain: &Server, traffic: &Traffic) {
    let (mut with, mut without) = (Side::new(recording), Side::new(plain));
    for (number, from) in (0..traffic.count).step_by(BATCH).enumerate() {
        let indices = from..(from + BATCH).min(traffic.count);
        let sides = if number % 2 == 0 {
            [&mut with, &mut without]
        } else {
            [&mut without, &mut with]
        };
        for side in sides {
            side.round(traffic, indices.clone()).await;
        }
    }
    let path = |round: &Round| round.all.saturating_sub(round.recorder);
    let per_review = |seconds: f64| seconds * 1e6 / traffic.count as f64;
    println!(
        "rounds: {} of {BATCH} reviews for each server, in turns",
        with.rounds.len()
    );
    println!(
        "processor time per review: {:.1} µs with recording ({:.1} µs of it in the recorder's thread), {:.1} µs without",
        per_review(with.sum(|round| round.all)),
        per_review(with.sum(|round| round.recorder)),
        per_review(without.sum(|round| round.all)),
    );
    let rows: [(&str, Value<'_>); 5] = [
        ("processor time of the request path", &path),
        ("processor time of the whole process", &|round| round.all),
        ("elapsed", &|round| round.elapsed),
        ("latency p50", &|round| round.median),
        ("latency p99", &|round| round.p99),
    ];
    for (name, of) in rows {
        let whole = with.sum(of) / without.sum(of);
        let pairs = with.rounds.iter().zip(&without.rounds);
        let mut ratios: Vec<f64> = pairs
            .map(|(with, without)| of(with).as_secs_f64() / of(without).as_secs_f64())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let at = |percent: usize| ratios[(ratios.len() - 1) * percent / 100];
        println!(
            "{name}, with / without: {whole:.3} of the sums; rounds {:.3} (median), {:.3} to {:.3} (quartiles)",
            at(50),
            at(25),
            at(75)
        );
    }
}
