//! `telemetry`: where traces and decisions are exported to, by OTLP over HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::limit::{self, Limit};
use super::read::{Fields, Node};
use super::record::is_in_share;

/// The exports of the server. Each is off unless the configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// The export of traces.
    pub traces: Option<TraceExport>,
    /// The export of decisions.
    pub decisions: Option<DecisionExport>,
}

/// The export of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceExport {
    /// The receiver of the spans.
    pub collector: CollectorConfig,
    /// Share of the reviews that is traced if no trusted caller has decided about it, in percent.
    pub share_percent: u32,
}

/// The export of decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionExport {
    /// The receiver of the log records.
    pub collector: CollectorConfig,
    /// Share of the decisions to allow that is exported, in percent. All other decisions are exported.
    pub allowed_share_percent: u32,
}

/// A receiver of OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorConfig {
    /// The URL of the signal, with its path.
    pub endpoint: String,
    /// Headers of each request, whose values are in files.
    pub headers: Vec<CollectorHeader>,
    /// PEM file of the CAs to trust. None means the system's.
    pub ca: Option<PathBuf>,
    /// Time limit of one request.
    pub timeout: Duration,
    /// Maximum size of what waits to be exported, in bytes of memory.
    pub max_queue_bytes: u64,
}

/// A header of each request to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorHeader {
    /// The name.
    pub name: String,
    /// The file with the value.
    pub file: PathBuf,
}

/// The limits of one export, and the path of its signal.
struct Signal {
    path: &'static str,
    timeout: &'static Limit,
    max_queue: &'static Limit,
}

const TRACES: Signal = Signal {
    path: "/v1/traces",
    timeout: &limit::TRACES_TIMEOUT,
    max_queue: &limit::MAX_TRACE_QUEUE,
};
const DECISIONS: Signal = Signal {
    path: "/v1/logs",
    timeout: &limit::DECISIONS_TIMEOUT,
    max_queue: &limit::MAX_EXPORT_QUEUE,
};

const ENDPOINT_EXPECTED: &str = "an http or https URL without user name, query and fragment, such as \
     https://otel-collector.monitoring:4318";
const NAME_EXPECTED: &str = "the name of an HTTP header, such as Authorization";
const VALUE_EXPECTED: &str = "a file with the value of the header";
/// Headers that Tollgate sets itself.
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

// === impl Telemetry ===

impl Telemetry {
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let mut section = fields.section("telemetry");
        let traces = section
            .optional("traces")
            .and_then(|node| TraceExport::read(&node, folder));
        let decisions = section
            .optional("decisions")
            .and_then(|node| DecisionExport::read(&node, folder));
        section.finish();
        Self { traces, decisions }
    }

    /// Returns the collectors, each with the key of its export.
    pub fn collectors(&self) -> impl Iterator<Item = (&'static str, &CollectorConfig)> {
        let traces = self.traces.as_ref().map(|export| &export.collector);
        let decisions = self.decisions.as_ref().map(|export| &export.collector);
        let traces = traces.map(|collector| ("telemetry.traces", collector));
        let decisions = decisions.map(|collector| ("telemetry.decisions", collector));
        traces.into_iter().chain(decisions)
    }
}

// === impl TraceExport ===

impl TraceExport {
    fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        let mut fields = node.object()?;
        let collector = CollectorConfig::read(&mut fields, folder, &TRACES);
        let share = &limit::TRACE_SHARE;
        let share_percent = fields.amount_u32(share, share.default_u32());
        fields.finish();
        Some(Self {
            collector: collector?,
            share_percent,
        })
    }
}

// === impl DecisionExport ===

impl DecisionExport {
    fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        let mut fields = node.object()?;
        let collector = CollectorConfig::read(&mut fields, folder, &DECISIONS);
        let share = &limit::ALLOWED_SHARE;
        let allowed_share_percent = fields.amount_u32(share, share.default_u32());
        fields.finish();
        Some(Self {
            collector: collector?,
            allowed_share_percent,
        })
    }

    /// Whether a decision is exported. The share goes by a hash of the review's uid, so it does not depend on the object.
    #[must_use]
    pub fn selects(&self, is_allowed: bool, uid: &str) -> bool {
        !is_allowed || is_in_share(uid, self.allowed_share_percent)
    }
}

// === impl CollectorConfig ===

impl CollectorConfig {
    fn read(fields: &mut Fields<'_>, folder: &Path, signal: &Signal) -> Option<Self> {
        let endpoint = fields
            .required("endpoint", ENDPOINT_EXPECTED)
            .and_then(|node| endpoint(&node, signal.path));
        let headers = fields
            .optional("headers")
            .and_then(|node| node.elements("headers"))
            .unwrap_or_default();
        let headers = headers
            .iter()
            .filter_map(|node| CollectorHeader::read(node, folder))
            .collect();
        let ca = fields.optional("ca").and_then(|node| node.path_in(folder));
        let is_plain = endpoint
            .as_ref()
            .is_some_and(|url| url.starts_with("http:"));
        if ca.is_some() && is_plain {
            fields.problem(
                "ca",
                "expected no ca for an http endpoint, because there is no TLS",
            );
        }
        let timeout = fields.duration(signal.timeout, signal.timeout.default_duration());
        let max_queue_bytes = fields.amount(signal.max_queue, signal.max_queue.default);
        Some(Self {
            endpoint: endpoint?,
            headers,
            ca,
            timeout,
            max_queue_bytes,
        })
    }
}

// === impl CollectorHeader ===

impl CollectorHeader {
    fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        let mut fields = node.object()?;
        let name = fields
            .required("name", NAME_EXPECTED)
            .and_then(|node| header_name(&node));
        let file = fields
            .required("file", VALUE_EXPECTED)
            .and_then(|node| node.path_in(folder));
        fields.finish();
        Some(Self {
            name: name?,
            file: file?,
        })
    }
}

/// Reads a URL. One without a path gets the path of the signal.
fn endpoint(node: &Node<'_>, path: &str) -> Option<String> {
    let text = node.text(ENDPOINT_EXPECTED)?;
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_valid = rest.is_some_and(|rest| {
        let authority = rest.split('/').next().unwrap_or_default();
        let is_clean = |byte: u8| byte.is_ascii_graphic() && !br#"@?#"<>\^`{|}"#.contains(&byte);
        !authority.is_empty() && !authority.starts_with(':') && rest.bytes().all(is_clean)
    });
    if !is_valid {
        node.reject(ENDPOINT_EXPECTED);
        return None;
    }
    let has_path = rest
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, path)| !path.is_empty());
    if has_path {
        return Some(text.to_owned());
    }
    Some(format!("{}{path}", text.trim_end_matches('/')))
}

fn header_name(node: &Node<'_>) -> Option<String> {
    let text = node.text(NAME_EXPECTED)?;
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_own = OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(text));
    if text.is_empty() || is_own || !text.bytes().all(is_name_byte) {
        node.reject(NAME_EXPECTED);
        return None;
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigError};

    use super::*;

    fn parse(telemetry: &str) -> Result<Telemetry, ConfigError> {
        let text = format!("allowEmpty: true\ntelemetry: {telemetry}");
        Config::parse(&text, Path::new("/etc/tollgate")).map(|config| config.telemetry)
    }

    #[test]
    fn exports_nothing_unless_told_to() {
        let config = Config::parse("allowEmpty: true", Path::new(".")).unwrap();
        assert_eq!(config.telemetry, Telemetry::default());
        assert_eq!(parse("{}").unwrap(), Telemetry::default());
    }

    #[test]
    fn reads_every_key() {
        let telemetry = parse(
            "{ traces: { endpoint: 'https://collector.monitoring:4318/custom', share: 25, ca: ca.crt, timeout: 3s,
                 maxQueue: 1Mi, headers: [{ name: Authorization, file: token }] },
               decisions: { endpoint: 'http://[::1]:4318/', allowedShare: 0 } }",
        )
        .unwrap();
        let traces = telemetry.traces.unwrap();
        assert_eq!(traces.share_percent, 25);
        let folder = Path::new("/etc/tollgate");
        assert_eq!(
            traces.collector,
            CollectorConfig {
                endpoint: "https://collector.monitoring:4318/custom".to_owned(),
                headers: vec![CollectorHeader {
                    name: "Authorization".to_owned(),
                    file: folder.join("token"),
                }],
                ca: Some(folder.join("ca.crt")),
                timeout: Duration::from_secs(3),
                max_queue_bytes: 1 << 20,
            }
        );
        let decisions = telemetry.decisions.unwrap();
        assert_eq!(decisions.collector.endpoint, "http://[::1]:4318/v1/logs");
        assert_eq!(decisions.collector.timeout, Duration::from_secs(10));
        assert!(!decisions.selects(true, "u"));
        assert!(decisions.selects(false, "u"));
    }

    #[test]
    fn adds_path_of_signal_to_endpoint_without_path() {
        let table = [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("https://collector/", "https://collector/v1/traces"),
            (
                "https://collector/otlp/v1/traces",
                "https://collector/otlp/v1/traces",
            ),
        ];
        for (given, expected) in table {
            let telemetry = parse(&format!("{{ traces: {{ endpoint: '{given}' }} }}")).unwrap();
            assert_eq!(telemetry.traces.unwrap().collector.endpoint, expected);
        }
    }

    #[test]
    fn rejects_unusable_keys() {
        for endpoint in [
            "collector:4318",
            "grpc://collector:4317",
            "https://",
            "https://:4318",
            "https://user:password@collector",
            "https://collector/v1/traces?token=x",
            "https://collector/v1/tra ces",
        ] {
            let error = parse(&format!("{{ traces: {{ endpoint: '{endpoint}' }} }}")).unwrap_err();
            let text = tollgate_admission::chain(&error);
            assert!(text.contains("telemetry.traces.endpoint: got"), "{text}");
        }
        let error = parse(
            "{ traces: { share: 101, headers: [{ name: 'a b', file: x }, { name: Content-Type, file: x }] },
               decisions: { endpoint: 'http://c', ca: ca.crt, share: 3 } }",
        );
        let text = tollgate_admission::chain(&error.unwrap_err());
        for part in [
            "telemetry.traces.endpoint: missing",
            "telemetry.traces.share: got 101, expected 0 to 100",
            "telemetry.traces.headers[0].name: got",
            "telemetry.traces.headers[1].name: got",
            "telemetry.decisions.ca: expected no ca",
            "telemetry.decisions.share: unknown key",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
