//! Maps the head of a request to a review call, or to a refusal with its reason.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header, request::Parts};
use tollgate_admission::Endpoint;
use tollgate_admission::trace::TraceParent;
use tollgate_config::deadline::MAX_TIMEOUT;
use tollgate_config::parse_go_duration;

/// The header of W3C Trace Context.
const TRACE_PARENT: &str = "traceparent";

/// A valid review call.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Route {
    pub(super) endpoint: Endpoint,
    pub(super) plugin: Option<String>,
    pub(super) timeout: Duration,
}

/// The answer to a request that is not a valid review call.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

/// Returns the endpoint and the plugin that a path names.
pub(super) fn place(path: &str) -> Option<(Endpoint, Option<&str>)> {
    let path = path.strip_prefix('/')?;
    let (endpoint, plugin) = match path.split_once('/') {
        None => (path, None),
        Some((endpoint, plugin)) => (endpoint, Some(plugin)),
    };
    let endpoint = match endpoint {
        "mutate" => Endpoint::Mutate,
        "validate" => Endpoint::Validate,
        _ => return None,
    };
    let is_segment = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    };
    // A plugin of a namespace has the name of the namespace before its own.
    let named_well = plugin.is_none_or(|name| match name.split_once('/') {
        None => is_segment(name),
        Some((namespace, name)) => is_segment(namespace) && is_segment(name),
    });
    named_well.then_some((endpoint, plugin))
}

/// Resolves the request to a review call. A missing timeout becomes `default_timeout`. A timeout above [`MAX_TIMEOUT`]
/// is reduced to it.
pub(super) fn resolve(parts: &Parts, default_timeout: Duration) -> Result<Route, Refusal> {
    let Some((endpoint, plugin)) = place(parts.uri.path()) else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "no such path: send reviews to /mutate, /validate, /mutate/<plugin> or /validate/<plugin> (a plugin of a \
             namespace is <namespace>/<plugin>); /plugins, \
             /shadows and /decisions are on the admin listener (admin.listen), and /livez, /readyz and /metrics \
             are on the probes listener (probes.listen)",
        ));
    };
    if parts.method != Method::POST {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "send the AdmissionReview with POST",
        ));
    }
    json(&parts.headers)?;
    let timeout = match timeout_parameter(parts.uri.query()) {
        None => default_timeout,
        Some(text) => match parse_go_duration(text) {
            Ok(timeout) if !timeout.is_zero() => timeout,
            _ => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "the query parameter `timeout` must be a positive Go duration such as 10s or 1m30s",
                ));
            }
        },
    };
    Ok(Route {
        endpoint,
        plugin: plugin.map(str::to_owned),
        timeout: timeout.min(MAX_TIMEOUT),
    })
}

/// Returns the caller's place in its trace. A request with several of the headers has none, as the specification says.
pub(super) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACE_PARENT).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    TraceParent::parse(value.to_str().ok()?)
}

fn timeout_parameter(query: Option<&str>) -> Option<&str> {
    query?
        .split('&')
        .find_map(|pair| match pair.split_once('=') {
            Some(("timeout", value)) => Some(value),
            None if pair == "timeout" => Some(""),
            _ => None,
        })
}

fn json(headers: &HeaderMap) -> Result<(), Refusal> {
    let media_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    if !media_type.is_some_and(|media_type| media_type.eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the Content-Type must be application/json",
        ));
    }
    let identity = headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if !identity {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must not have a Content-Encoding",
        ));
    }
    Ok(())
}

// === impl Refusal ===

impl Refusal {
    fn new(status: StatusCode, text: &str) -> Self {
        Self {
            status,
            text: text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(10);

    fn parts(method: &str, uri: &str, content_type: Option<&str>) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn post(uri: &str) -> Result<Route, Refusal> {
        resolve(&parts("POST", uri, Some("application/json")), DEFAULT)
    }

    fn status(result: Result<Route, Refusal>) -> u16 {
        result.expect_err("refused").status.as_u16()
    }

    #[test]
    fn accepts_both_endpoints_with_and_without_a_plugin() {
        let route = post("/mutate").expect("a route");
        assert_eq!((route.endpoint, route.plugin), (Endpoint::Mutate, None));
        let route = post("/validate/required-labels?timeout=3s").expect("a route");
        assert_eq!(route.endpoint, Endpoint::Validate);
        assert_eq!(route.plugin.as_deref(), Some("required-labels"));
        assert_eq!(route.timeout, Duration::from_secs(3));
        let route = post("/mutate/team-a/guard").expect("a route");
        assert_eq!(route.plugin.as_deref(), Some("team-a/guard"));
    }

    #[test]
    fn accepts_json_media_type_in_any_spelling() {
        for content_type in ["application/json", "Application/JSON; charset=utf-8"] {
            let parts = parts("POST", "/mutate", Some(content_type));
            assert!(resolve(&parts, DEFAULT).is_ok(), "{content_type}");
        }
    }

    #[test]
    fn rejects_other_paths_methods_and_media_types() {
        for path in [
            "/",
            "/mutate/",
            "/mutate/a/b/c",
            "/mutate/a/",
            "/mutate//b",
            "/mutate/a%2Fb",
            "/mutates",
            "/readyz",
            "/validate/é",
        ] {
            if let Ok(uri) = path.parse::<http::Uri>() {
                assert_eq!(place(uri.path()), None, "{path}");
            }
        }
        assert_eq!(status(post("/elsewhere")), 404);
        assert_eq!(
            status(resolve(&parts("GET", "/mutate", None), DEFAULT)),
            405
        );
        assert_eq!(
            status(resolve(&parts("POST", "/mutate", None), DEFAULT)),
            415
        );
        let yaml = parts("POST", "/mutate", Some("application/yaml"));
        assert_eq!(status(resolve(&yaml, DEFAULT)), 415);
    }

    #[test]
    fn accepts_go_durations_up_to_kubernetes_maximum() {
        let timeout = |query: &str| post(&format!("/mutate{query}")).map(|route| route.timeout);
        assert_eq!(timeout(""), Ok(DEFAULT));
        assert_eq!(timeout("?dryRun=All"), Ok(DEFAULT));
        assert_eq!(
            timeout("?a=b&timeout=1.5s"),
            Ok(Duration::from_millis(1500))
        );
        assert_eq!(timeout("?timeout=1h"), Ok(MAX_TIMEOUT));
    }

    #[test]
    fn rejects_timeouts_that_are_not_positive_durations() {
        for query in [
            "timeout=",
            "timeout",
            "timeout=10",
            "timeout=soon",
            "timeout=-1s",
            "timeout=0s",
        ] {
            assert_eq!(status(post(&format!("/mutate?{query}"))), 400, "{query}");
        }
    }
}
