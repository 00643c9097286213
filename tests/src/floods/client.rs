//! The well-behaved client: it sends reviews at a steady rate, as kube-apiserver does.
//!
//! Two in four reviews use a kept HTTP/2 connection, one a kept HTTP/1.1 connection, and one a new connection. After a
//! 429 or 503 the client retries after a second, within the ten seconds that kube-apiserver gives a webhook.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::CLIENT;
use crate::reviews::{Review, as_sent, pod};
use crate::server::Server;

/// kube-apiserver's default `timeoutSeconds`.
const TIMEOUT: Duration = Duration::from_secs(10);
/// kube-apiserver waits this long after `Retry-After: 1`.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Results of the client.
#[derive(Clone, Debug, Default)]
pub struct Fared {
    /// Duration of each answered request, including retries, in ascending order.
    pub took: Vec<Duration>,
    /// Requests without a timely answer.
    pub failed: usize,
    /// Answers that asked for a retry.
    pub retried: usize,
    /// The errors of failed requests, without duplicates.
    pub errors: Vec<String>,
}

/// The result of one request.
pub(super) struct Answered {
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) retried: usize,
    /// Whether the review was allowed, or the error.
    pub(super) allowed: Result<bool, String>,
}

/// Sends reviews for a while, and returns the results.
pub(super) async fn send(server: &Server, rate: u32, lasts: Duration) -> Fared {
    let mut fared = Fared::default();
    for answered in send_each(server, rate, lasts).await {
        fared.add(&answered, true);
    }
    fared.sort();
    fared
}

/// Sends reviews for a while, and returns the result of each.
pub(super) async fn send_each(server: &Server, rate: u32, lasts: Duration) -> Vec<Answered> {
    let body = Arc::new(as_sent(&Review::create(pod("web")).build()));
    let url = Arc::new(server.url("/validate?timeout=10s"));
    let client = |http1: bool| {
        server.client(|builder| {
            let builder = builder.local_address(Some(CLIENT.into()));
            if http1 { builder.http1_only() } else { builder }
        })
    };
    let (http2, http1) = (client(false), client(true));
    let mut requests = JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let count = u64::from(rate) * lasts.as_millis() as u64 / 1_000;
    for number in 0..count {
        ticks.tick().await;
        let client = match number % 4 {
            0 | 1 => http2.clone(),
            2 => http1.clone(),
            // A new client for each request, so that no connection is kept.
            _ => client(true),
        };
        let (url, body) = (Arc::clone(&url), Arc::clone(&body));
        requests.spawn(async move { one(&client, &url, &body).await });
    }
    requests.join_all().await
}

async fn one(client: &Client, url: &str, body: &[u8]) -> Answered {
    let began = Instant::now();
    let mut retried = 0;
    let answer = async {
        loop {
            let request = client.post(url).header("content-type", "application/json");
            let response = request.body(body.to_vec()).send().await;
            let response = response.map_err(|error| format!("{error:?}"))?;
            match response.status().as_u16() {
                200 => {
                    let bytes = response
                        .bytes()
                        .await
                        .map_err(|error| format!("{error:?}"))?;
                    let review: Value = serde_json::from_slice(&bytes)
                        .map_err(|error| format!("no review: {error}"))?;
                    return Ok(review["response"]["allowed"] == true);
                }
                429 | 503 => {
                    retried += 1;
                    sleep(RETRY_AFTER).await;
                }
                status => return Err(format!("HTTP {status}")),
            }
        }
    };
    let allowed = timeout(TIMEOUT, answer).await;
    let allowed = allowed.unwrap_or_else(|_| Err("no answer within 10 s".to_owned()));
    Answered {
        began,
        took: began.elapsed(),
        retried,
        allowed,
    }
}

// === impl Fared ===

impl Fared {
    /// Counts a result. `expected` is the right answer to the review.
    pub(super) fn add(&mut self, answered: &Answered, expected: bool) {
        self.retried += answered.retried;
        let error = match &answered.allowed {
            Ok(allowed) if *allowed == expected => {
                self.took.push(answered.took);
                return;
            }
            Ok(allowed) => format!("allowed: {allowed}"),
            Err(error) => error.chars().take(200).collect(),
        };
        self.failed += 1;
        if !self.errors.contains(&error) && self.errors.len() < 5 {
            self.errors.push(error);
        }
    }

    pub(super) fn sort(&mut self) {
        self.took.sort();
    }

    /// Number of answered requests.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.took.len()
    }

    /// The duration at a percentile of the answers.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let last = self.took.len().checked_sub(1)?;
        self.took.get(last * percent / 100).copied()
    }
}
