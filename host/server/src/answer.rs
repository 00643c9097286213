//! Responses, and a response body that releases the request's resources once it is sent.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Version, header};
use hyper::body::{Body, Frame, SizeHint};

use crate::budget::Lease;
use crate::exchange::Exchange;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const POST: HeaderValue = HeaderValue::from_static("POST");
const ONE_SECOND: HeaderValue = HeaderValue::from_static("1");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A response before it is encoded.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content: Bytes,
    /// Close an HTTP/1.1 connection after this answer, because its request body was not read to the end.
    pub(super) close: bool,
    /// The accepted authentication schemes, for 401.
    pub(super) challenges: Vec<HeaderValue>,
    /// The lease on the request's bytes, held until the answer is sent.
    pub(super) lease: Option<Arc<Lease>>,
}

/// A response body in one piece. The server drops it after sending, or when the client has disconnected. The request
/// and its bytes then no longer count as in flight.
#[derive(Debug)]
pub(super) struct AnswerBody {
    content: Bytes,
    _exchange: Exchange,
    _lease: Option<Arc<Lease>>,
}

// === impl Answer ===

impl Answer {
    pub(crate) fn new(status: StatusCode, content: impl Into<Bytes>) -> Self {
        Self {
            status,
            content: content.into(),
            close: false,
            challenges: Vec::new(),
            lease: None,
        }
    }

    pub(super) fn overloaded() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Tollgate has reached one of its own limits and made no decision; try again in a second",
        )
    }

    pub(super) fn starting() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Tollgate is loading its plugins and made no decision; try again in a second",
        )
    }

    /// Builds the response. `last` means that the connection ends with this answer.
    pub(super) fn into_response(
        self,
        version: Version,
        last: bool,
        exchange: Exchange,
    ) -> Response<AnswerBody> {
        let mut response = Response::new(AnswerBody {
            content: self.content,
            _exchange: exchange,
            _lease: self.lease,
        });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let media_type = match self.status {
            StatusCode::OK => JSON,
            _ => TEXT,
        };
        headers.insert(header::CONTENT_TYPE, media_type);
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, ONE_SECOND);
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, POST);
            }
            _ => {}
        }
        for challenge in self.challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge);
        }
        // HTTP/2 forbids this header and uses GOAWAY instead.
        if (last || self.close) && version <= Version::HTTP_11 {
            headers.insert(header::CONNECTION, CLOSE);
        }
        response
    }
}

// === impl AnswerBody ===

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let content = std::mem::take(&mut self.content);
        Poll::Ready((!content.is_empty()).then(|| Ok(Frame::data(content))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.content.len() as u64)
    }
}
