//! The answers of the admin and probes listeners: a status, a media type and a text.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use tollgate_telemetry::metrics;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// An answer of the admin or the probes listener.
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

    /// JSON that is written already.
    pub(super) fn bytes(status: StatusCode, content: Bytes) -> Self {
        Self::new(status, JSON, content)
    }

    /// A file that is part of the program.
    pub(super) fn file(media_type: &'static str, content: &'static str) -> Self {
        Self::new(StatusCode::OK, media_type, content)
    }

    pub(super) fn metrics(content: Bytes) -> Self {
        Self::new(StatusCode::OK, metrics::CONTENT_TYPE, content)
    }

    /// 405: the path exists but allows other methods.
    pub(super) fn only(allowed: &'static [Method]) -> Self {
        let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        let page = Self::text(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("method not allowed: use {}\n", names.join(" or ")),
        );
        let names = HeaderValue::from_str(&names.join(", "));
        // Methods are tokens, so a list of them is a valid header value.
        names.map_or(Self::failed(), |names| page.with(header::ALLOW, names))
    }

    /// 500: the host failed to make the page.
    pub(super) fn failed() -> Self {
        Self::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to create this page\n",
        )
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
