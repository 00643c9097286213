//! Handles one request, from its head to its answer.

use std::{
    convert::Infallible,
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join};
use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::sleep_until;
use tollgate_admission::{Body, Call, Gate, Reply};
use tollgate_config::deadline::deadline_after;
use tollgate_telemetry::metrics::{AuthenticationFailure, Metrics, Overload};

use crate::activity::Activity;
use crate::answer::{Answer, AnswerBody};
use crate::authentication::{Peer, Refused};
use crate::body::Received;
use crate::connection::Shared;
use crate::{body, route};

/// Limit on the bytes of an oversized body that are drained before the answer, as a multiple of the cap.
const DRAIN_FACTOR: u64 = 4;

/// Time limit for draining an oversized body before the answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for draining a refused body before the answer. Draining holds no memory, and costs both sides less than
/// the handshake of a new connection.
const REFUSED_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Status code under which a request is counted if its client disconnected before the answer.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A request in flight, counted from its head until its answer is sent or abandoned.
#[derive(Debug)]
pub(super) struct Exchange {
    metrics: Arc<Metrics>,
    activity: Arc<Activity>,
    endpoint: &'static str,
    received: Instant,
    answered: bool,
    /// Whether the body of the request has arrived.
    answering: bool,
    /// Whether a review was answered.
    proves: bool,
}

/// Answers one request, without failing or panicking.
pub(super) async fn answer<G: Gate>(
    shared: Arc<Shared<G>>,
    activity: Arc<Activity>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let version = request.version();
    let mut exchange = Exchange::begin(Arc::clone(&shared.metrics), activity, request.uri().path());
    let handled = {
        // Pinned here, because its kilobytes shall not be moved.
        let handling = pin!(handle(&shared, &peer, &mut exchange, request));
        AssertUnwindSafe(handling).catch_unwind().await
    };
    let answer = handled.unwrap_or_else(|_| {
        shared.metrics.panics.inc();
        let mut answer = Answer::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Tollgate failed while it handled this request; its log shows where",
        );
        answer.close = true;
        answer
    });
    exchange.answered(answer.status);
    Ok(answer.into_response(version, shared.is_stopping(), exchange))
}

async fn handle<G: Gate>(
    shared: &Shared<G>,
    peer: &Peer,
    exchange: &mut Exchange,
    request: Request<Incoming>,
) -> Answer {
    let received = exchange.received;
    let (parts, mut incoming) = request.into_parts();
    let limit_bytes = shared.requests.max_body_bytes;
    let until = received + shared.requests.default_timeout;
    let admitted = shared
        .authentication
        .admit(peer, &parts.headers, None, until.into())
        .await;
    if let Err(why) = admitted {
        let mut answer = not_admitted(shared, peer, why);
        answer.close |= !refused(&mut incoming, limit_bytes).await;
        return answer;
    }
    let route = match route::resolve(&parts, shared.requests.default_timeout) {
        Ok(route) => route,
        Err(refusal) => {
            let mut answer = Answer::new(refusal.status, refusal.text);
            answer.close = !refused(&mut incoming, limit_bytes).await;
            return answer;
        }
    };
    let deadline = deadline_after(received, route.timeout, &shared.requests.deadline_margin);
    let body = {
        let (incoming, budget) = (&mut incoming, &shared.budget);
        let receiving = pin!(body::receive(incoming, limit_bytes, budget, peer.ip()));
        by(deadline, receiving).await
    };
    let (body, lease) = match body {
        Some(Received::Whole(bytes, lease)) => (Body::Whole(bytes), lease),
        Some(Received::TooLarge(head, lease)) => {
            shared.metrics.oversized_bodies.inc();
            (Body::TooLarge { head, limit_bytes }, lease)
        }
        Some(Received::Crowded) => {
            shared.metrics.overloaded(Overload::Bytes);
            let mut answer = Answer::overloaded();
            answer.close = !refused(&mut incoming, limit_bytes).await;
            return answer;
        }
        Some(Received::Slow) => {
            return incomplete(
                "the body arrived too slowly: no data for 3 s, or less than 64 KiB per second",
            );
        }
        Some(Received::Broken) => return incomplete("the body ended before it was complete"),
        None => return incomplete("the body did not arrive within the request's timeout"),
    };
    exchange.body_came();
    let oversized = matches!(body, Body::TooLarge { .. });
    let review = pin!(
        shared.gate.review(Call {
            endpoint: route.endpoint,
            plugin: route.plugin,
            received,
            deadline,
            trace: shared
                .believes_traces
                .then(|| route::trace_parent(&parts.headers))
                .flatten(),
            body,
        })
    );
    // The gate enforces the deadline itself. This timeout is a safety net: when it fires, the client has given up.
    let review = by(received + route.timeout, review);
    let (reply, drained) = if oversized {
        let until = deadline.min(Instant::now() + DRAIN_TIMEOUT);
        let drain_bytes = limit_bytes.saturating_mul(DRAIN_FACTOR);
        let draining = body::drain(&mut incoming, drain_bytes, until.into());
        Box::pin(join(review, draining)).await
    } else {
        (review.await, true)
    };
    let mut answer = match reply {
        Some(Reply::Review(review)) => Answer::new(StatusCode::OK, review),
        Some(Reply::Overloaded) => {
            shared.metrics.overloaded(Overload::Instances);
            Answer::overloaded()
        }
        Some(Reply::Crowded) => {
            shared.metrics.overloaded(Overload::Decoded);
            Answer::overloaded()
        }
        Some(Reply::Starting) => Answer::starting(),
        Some(Reply::NotYet(text)) => Answer::new(StatusCode::SERVICE_UNAVAILABLE, text),
        Some(Reply::BadRequest(text)) => Answer::new(StatusCode::BAD_REQUEST, text),
        Some(Reply::NoSuchPlugin(text)) => Answer::new(StatusCode::NOT_FOUND, text),
        Some(Reply::TooLarge(text)) => Answer::new(StatusCode::PAYLOAD_TOO_LARGE, text),
        Some(Reply::Internal(text)) => Answer::new(StatusCode::INTERNAL_SERVER_ERROR, text),
        None => Answer::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the review was not answered within the request's timeout",
        ),
    };
    answer.close = !drained;
    answer.lease = Some(lease);
    answer
}

/// Waits for a future until a deadline. Returns none after that.
///
/// Nearly all futures here end at their first poll. They need no timer, which all threads have to be told of.
async fn by<T>(
    deadline: Instant,
    mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
) -> Option<T> {
    let mut timer = None;
    let ended = poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline.into())));
        timer.as_mut().poll(context).map(|()| None)
    });
    ended.await
}

/// Builds the answer to a client that failed authentication, or that could not be checked in time.
fn not_admitted<G>(shared: &Shared<G>, peer: &Peer, why: Refused) -> Answer {
    let failure = match why {
        Refused::Client(failure) => failure,
        Refused::Busy => {
            shared.metrics.overloaded(Overload::Passwords);
            return Answer::overloaded();
        }
        // Only tokens of the cluster come to this, and reviews have none.
        Refused::Forbidden | Refused::Unavailable => AuthenticationFailure::Bearer,
    };
    shared.not_authenticated(failure, peer.address);
    let (status, text) = match failure {
        AuthenticationFailure::Certificate => (
            StatusCode::FORBIDDEN,
            "the client certificate of this connection is no longer accepted",
        ),
        AuthenticationFailure::Missing => (
            StatusCode::UNAUTHORIZED,
            "the request has no credentials: send credentials of a kind that WWW-Authenticate names",
        ),
        AuthenticationFailure::Bearer => {
            (StatusCode::UNAUTHORIZED, "the bearer token is not accepted")
        }
        AuthenticationFailure::Basic => (
            StatusCode::UNAUTHORIZED,
            "the user name or the password is wrong",
        ),
    };
    let mut answer = Answer::new(status, text);
    if status == StatusCode::UNAUTHORIZED {
        answer.challenges = shared.authentication.challenges();
    }
    // A new connection gets its certificate checked in the handshake.
    answer.close = failure == AuthenticationFailure::Certificate;
    answer
}

/// Drains the body of a request that is refused without reading it. Returns true if the whole body arrived.
async fn refused(incoming: &mut Incoming, limit_bytes: u64) -> bool {
    if incoming.is_end_stream() {
        return true;
    }
    let until = tokio::time::Instant::now() + REFUSED_DRAIN_TIMEOUT;
    body::drain(incoming, limit_bytes, until).await
}

fn incomplete(text: &'static str) -> Answer {
    let mut answer = Answer::new(StatusCode::REQUEST_TIMEOUT, text);
    answer.close = true;
    answer
}

// === impl Exchange ===

impl Exchange {
    fn begin(metrics: Arc<Metrics>, activity: Arc<Activity>, path: &str) -> Self {
        metrics.requests_in_flight.inc();
        activity.request_began();
        Self {
            metrics,
            activity,
            endpoint: route::place(path).map_or("other", |(endpoint, _)| endpoint.name()),
            received: Instant::now(),
            answered: false,
            answering: false,
            proves: false,
        }
    }

    fn body_came(&mut self) {
        self.answering = true;
        self.activity.answer_began();
    }

    fn answered(&mut self, status: StatusCode) {
        self.answered = true;
        self.proves = status == StatusCode::OK;
        self.count(status.as_u16());
    }

    fn count(&self, code: u16) {
        let duration = self.received.elapsed();
        self.metrics.request(self.endpoint, code, duration);
        tracing::debug!(
            endpoint = self.endpoint,
            code,
            duration_microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            "request"
        );
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.answered {
            self.count(CLIENT_CLOSED_REQUEST);
        }
        self.metrics.requests_in_flight.dec();
        if self.answering {
            self.activity.answer_ended(self.proves);
        }
        self.activity.request_ended();
    }
}
