//! The lines of a segment.
//!
//! A segment is text in JSON lines. The first line is the [`Header`]. A line with a [`PluginSetNote`] comes before the
//! first [`Record`] that refers to it.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_json::document::{Json, parse_up_to};

/// The version of the format that this crate writes and reads.
pub const FORMAT: u32 = 1;
/// Maximum nesting of a line. It exceeds the largest `requests.maxDepth`.
const MAX_DEPTH: u32 = 1000;
/// Maximum number of values of a line.
const MAX_VALUES: u32 = 20_000_000;

/// The first line of each segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The recording that the segment belongs to: random, the same for all segments of one process.
    pub recording: String,
    /// The number of the segment in its recording, from 1 on.
    pub segment: u64,
    /// When the segment was begun.
    pub started: SystemTime,
    /// The version of the program that wrote the segment.
    pub host: String,
    /// The source of the reviews.
    pub origin: Origin,
}

/// The source of the reviews of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A server recorded its reviews as they came.
    Server,
    /// The reviews were rebuilt from an audit log. They are approximate: they lack the old object.
    AuditLog,
}

/// The endpoint that a review came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// The mutating webhook.
    Mutate,
    /// The validating webhook.
    Validate,
    /// Both endpoints, one after the other. Only an imported audit log has such reviews.
    Both,
}

/// The plugins that answered reviews, as one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSetNote {
    /// The plugins, in the order of the configuration.
    pub plugins: Vec<PluginNote>,
}

/// One plugin of a set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginNote {
    /// The name in the configuration.
    pub name: String,
    /// The digest of the code, as `sha256:…`. Empty if no code was loaded.
    pub digest: String,
    /// The version in the plugin's manifest. Empty if no code was loaded.
    pub version: String,
    /// A keyed hash of the settings. Only hashes of the same recording can be compared.
    pub settings: String,
    /// The mode, such as `enforce`.
    pub mode: String,
    /// The failure policy: `Fail` or `Ignore`.
    pub failure_policy: String,
}

/// The part of one plugin in an answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallNote {
    /// The plugin's name.
    pub plugin: String,
    /// How the call ended: `allowed`, `unchanged`, `patched`, `denied`, `fault` or `excepted`.
    pub ended: String,
    /// The mode, such as `enforce`.
    pub mode: String,
    /// The kind of the fault, if the call ended in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The index of the plugin's rule that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The fuel of the plugin's calls.
    pub fuel: u64,
}

/// One review with its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When the review came.
    pub time: SystemTime,
    /// The endpoint that it came to.
    pub endpoint: Endpoint,
    /// The plugin that the path named, if it named one.
    pub only: Option<String>,
    /// The plugin set that answered, by the number that the segment gives it. None if it is not known.
    pub set: Option<u64>,
    /// The plugins that were called.
    pub calls: Vec<CallNote>,
    /// `response` of the answer. `patch` is a JSON Patch as an array, not its Base64 text.
    pub answer: Json,
    /// The AdmissionReview as it came, after redaction.
    pub review: Json,
}

/// A line of a segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Header(Header),
    Plugins(u64, PluginSetNote),
    Record(Box<Record>),
}

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The line is not JSON.
    #[error("a line is not a JSON object")]
    NotJson,
    /// The line is none of the known ones.
    #[error("a line is neither a header, nor a plugin set, nor a review")]
    Unknown,
    /// A member is missing or has the wrong type.
    #[error("`{0}` is missing or has the wrong type")]
    Member(&'static str),
    /// The segment has another version of the format.
    #[error(
        "format {0}, expected {FORMAT}; read the recording with the version of tollgate that wrote it"
    )]
    Version(u64),
    /// The segment does not begin with a header.
    #[error("the first line is not a header of a recording")]
    NoHeader,
}

// === impl Header ===

impl Header {
    pub(crate) fn to_line(&self) -> Vec<u8> {
        let value = json!({ "recording": {
            "format": FORMAT,
            "id": self.recording,
            "segment": self.segment,
            "started": timestamp(self.started),
            "host": self.host,
            "origin": self.origin.as_str(),
        } });
        line(&value)
    }

    fn read(json: &Json) -> Result<Self, FormatError> {
        let value = value(json);
        let format = value["format"]
            .as_u64()
            .ok_or(FormatError::Member("recording.format"))?;
        if format != u64::from(FORMAT) {
            return Err(FormatError::Version(format));
        }
        let text = |member: &str, path| {
            let text = value[member].as_str();
            text.map(str::to_owned).ok_or(FormatError::Member(path))
        };
        Ok(Self {
            recording: text("id", "recording.id")?,
            segment: value["segment"]
                .as_u64()
                .ok_or(FormatError::Member("recording.segment"))?,
            started: parse_timestamp(value["started"].as_str())
                .ok_or(FormatError::Member("recording.started"))?,
            host: text("host", "recording.host")?,
            origin: value["origin"]
                .as_str()
                .and_then(Origin::parse)
                .ok_or(FormatError::Member("recording.origin"))?,
        })
    }
}

// === impl Origin ===

impl Origin {
    /// Returns the word in the header: `server` or `audit-log`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::AuditLog => "audit-log",
        }
    }

    /// Whether the reviews are only similar to those that kube-apiserver sent.
    #[must_use]
    pub fn is_approximate(self) -> bool {
        self == Self::AuditLog
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Server, Self::AuditLog]
            .into_iter()
            .find(|origin| origin.as_str() == text)
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Returns the word in a record: `mutate`, `validate` or `both`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
            Self::Both => "both",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Mutate, Self::Validate, Self::Both]
            .into_iter()
            .find(|endpoint| endpoint.as_str() == text)
    }
}

// === impl PluginSetNote ===

impl PluginSetNote {
    pub(crate) fn to_line(&self, number: u64) -> Vec<u8> {
        line(&json!({ "plugins": self.plugins, "set": number }))
    }
}

// === impl CallNote ===

impl CallNote {
    /// Whether the call denied the request.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.ended == "denied" && self.mode == "enforce"
    }
}

// === impl Record ===

impl Record {
    pub(crate) fn to_line(&self) -> Vec<u8> {
        let mut head = json!({
            "time": timestamp(self.time),
            "endpoint": self.endpoint.as_str(),
            "calls": self.calls,
        });
        if let Some(only) = &self.only {
            head["only"] = only.as_str().into();
        }
        if let Some(set) = self.set {
            head["set"] = set.into();
        }
        let mut line = head.to_string().into_bytes();
        // The two documents keep their numbers and their order, so they are written beside the rest.
        line.pop();
        line.extend_from_slice(b",\"answer\":");
        self.answer.write(&mut line);
        line.extend_from_slice(b",\"review\":");
        self.review.write(&mut line);
        line.extend_from_slice(b"}\n");
        line
    }

    fn read(json: &Json) -> Result<Self, FormatError> {
        let text = |member: &'static str| {
            let text = json.member(member).and_then(Json::as_text);
            text.ok_or(FormatError::Member(member))
        };
        let document = |member: &'static str| {
            let document = json.member(member).cloned();
            document.ok_or(FormatError::Member(member))
        };
        let calls = json.member("calls").map(value).unwrap_or_default();
        let set = json.member("set").map(value);
        Ok(Self {
            time: parse_timestamp(Some(text("time")?)).ok_or(FormatError::Member("time"))?,
            endpoint: Endpoint::parse(text("endpoint")?).ok_or(FormatError::Member("endpoint"))?,
            only: json
                .member("only")
                .and_then(Json::as_text)
                .map(str::to_owned),
            set: set.and_then(|set| set.as_u64()),
            calls: serde_json::from_value(calls).map_err(|_| FormatError::Member("calls"))?,
            answer: document("answer")?,
            review: document("review")?,
        })
    }
}

// === impl Line ===

impl Line {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, FormatError> {
        let json = parse_up_to(text, MAX_DEPTH, MAX_VALUES).map_err(|_| FormatError::NotJson)?;
        if json.member("review").is_some() {
            return Record::read(&json).map(|record| Self::Record(Box::new(record)));
        }
        if let Some(header) = json.member("recording") {
            return Header::read(header).map(Self::Header);
        }
        let Some(plugins) = json.member("plugins") else {
            return Err(FormatError::Unknown);
        };
        let number = json.member("set").map(value).and_then(|set| set.as_u64());
        let plugins = serde_json::from_value(value(plugins));
        Ok(Self::Plugins(
            number.ok_or(FormatError::Member("set"))?,
            PluginSetNote {
                plugins: plugins.map_err(|_| FormatError::Member("plugins"))?,
            },
        ))
    }
}

/// Converts a small part of a line. The two documents of a record stay as they are.
fn value(json: &Json) -> Value {
    serde_json::from_str(&json.to_text()).unwrap_or_default()
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

pub(crate) fn timestamp(time: SystemTime) -> String {
    OffsetDateTime::from(time)
        .format(&Rfc3339)
        .unwrap_or_default()
}

pub(crate) fn parse_timestamp(text: Option<&str>) -> Option<SystemTime> {
    let time = OffsetDateTime::parse(text?, &Rfc3339).ok()?;
    Some(time.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_read_back_unchanged() {
        let header = Header {
            recording: "abc".to_owned(),
            segment: 3,
            started: SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5),
            host: "0.1.0".to_owned(),
            origin: Origin::AuditLog,
        };
        assert_eq!(Line::parse(&header.to_line()), Ok(Line::Header(header)));
        let set = PluginSetNote {
            plugins: vec![PluginNote {
                name: "team".to_owned(),
                digest: "sha256:1".to_owned(),
                ..PluginNote::default()
            }],
        };
        assert_eq!(Line::parse(&set.to_line(7)), Ok(Line::Plugins(7, set)));
        let review = br#"{"kind":"AdmissionReview","n":1.50,"a":[12345678901234567890]}"#;
        let record = Record {
            time: SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789),
            endpoint: Endpoint::Mutate,
            only: Some("team".to_owned()),
            set: Some(7),
            calls: vec![CallNote {
                plugin: "team".to_owned(),
                ended: "fault".to_owned(),
                mode: "enforce".to_owned(),
                fault: Some("trap".to_owned()),
                rule: Some(2),
                fuel: 17,
            }],
            answer: Json::from(json!({ "uid": "u", "allowed": false })),
            review: tollgate_json::document::parse(review, 10).unwrap(),
        };
        let line = record.to_line();
        assert!(String::from_utf8_lossy(&line).contains("1.50"));
        assert_eq!(Line::parse(&line), Ok(Line::Record(Box::new(record))));
    }

    #[test]
    fn rejects_other_formats_and_other_lines() {
        let other = br#"{"recording":{"format":2}}"#;
        assert_eq!(Line::parse(other), Err(FormatError::Version(2)));
        assert_eq!(Line::parse(b"{}"), Err(FormatError::Unknown));
        assert_eq!(Line::parse(b"{"), Err(FormatError::NotJson));
        assert_eq!(
            Line::parse(br#"{"review":{},"time":7}"#),
            Err(FormatError::Member("time"))
        );
    }
}
