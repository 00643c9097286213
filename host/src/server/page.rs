//! What the plain listeners answer: a status, a media type and a text.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;

use crate::metrics;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// One answer.
pub(super) struct Page {
    status: StatusCode,
    content: Bytes,
    headers: Vec<(HeaderName, HeaderValue)>,
}

// === impl Page ===

impl Page {
    pub(super) fn json(status: StatusCode, content: &serde_json::Value) -> Self {
        Self::new(status, JSON, format!("{content:#}\n"))
    }

    pub(super) fn text(status: StatusCode, content: impl Into<Bytes>) -> Self {
        Self::new(status, TEXT, content)
    }

    pub(super) fn metrics(content: Bytes) -> Self {
        Self::new(StatusCode::OK, metrics::CONTENT_TYPE, content)
    }

    /// The path exists, and is called by other methods.
    pub(super) fn only(allowed: &'static [Method]) -> Self {
        let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        let page = Self::text(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("only {}\n", names.join(" and ")),
        );
        let names = HeaderValue::from_str(&names.join(", "));
        // Methods are tokens, and so are lists of them.
        names.map_or(Self::failed(), |names| page.with(header::ALLOW, names))
    }

    /// The host failed at it.
    pub(super) fn failed() -> Self {
        Self::text(StatusCode::INTERNAL_SERVER_ERROR, "failed\n")
    }

    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.content));
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        response
    }

    fn new(status: StatusCode, media_type: &'static str, content: impl Into<Bytes>) -> Self {
        Self {
            status,
            content: content.into(),
            headers: vec![
                (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
                (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
                (
                    header::X_CONTENT_TYPE_OPTIONS,
                    HeaderValue::from_static("nosniff"),
                ),
            ],
        }
    }
}
