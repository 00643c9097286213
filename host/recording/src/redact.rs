//! Replaces confidential values by keyed hashes.
//!
//! The key is random, lives in memory only, and is another one for each recording. Equal values therefore have equal
//! hashes within one recording, and nobody can find a value by hashing guesses.
//!
//! Two passes work on each review:
//!
//! 1. Values at confidential places are replaced: the content of Secrets wherever a Secret stands, and configured
//!    places. The places of a patch are those of the object that it changes.
//! 2. Copies of these values are replaced in every other text of the review and of the answer, such as a label or a
//!    message. Members that identify the request keep their values.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SystemRandom;
use tollgate_json::document::{Json, Number, Pointer, PointerError, parse_up_to};

/// Replaces confidential values by keyed hashes.
pub struct Redactor {
    key: hmac::Key,
    patterns: Vec<Vec<String>>,
}

/// A review and its answer without confidential values.
#[derive(Clone, Debug, PartialEq)]
pub struct Redacted {
    /// The AdmissionReview.
    pub review: Json,
    /// `response` of the answer, with its patch as an array.
    pub answer: Json,
}

/// A configured place is not a JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a JSON Pointer such as /spec/token or /spec/containers/*/env/*/value")]
pub struct PatternError {
    /// The place as it was given.
    pub pattern: String,
    /// The problem.
    pub source: PointerError,
}

/// A value that was replaced, and its replacement.
struct Needle {
    text: String,
    replacement: String,
}

/// The treatment of the values at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The values stay.
    Open,
    /// The values are replaced.
    Text,
    /// The values are Base64, and are replaced by Base64.
    Base64,
    /// The text is a whole object as JSON, which is redacted like the object itself.
    Object,
}

/// The kind of the object that places belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Secret,
    /// Carries a bearer token that somebody wants to have checked.
    TokenReview,
    /// Gets a bearer token.
    TokenRequest,
    Other,
}

/// One review at work.
struct Work<'r> {
    redactor: &'r Redactor,
    needles: Vec<Needle>,
}

/// A shorter value is replaced in its place only. Elsewhere the same letters are probably something else.
const SHORTEST_NEEDLE_BYTES: usize = 6;
/// Maximum size of all values that are searched elsewhere. A Secret has at most 1 MiB, and an UPDATE has two of them.
const MOST_NEEDLE_BYTES: usize = 16 << 20;
/// Maximum nesting and size of an object in an annotation.
const MAX_DEPTH: u32 = 200;
const MAX_VALUES: u32 = 500_000;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Members of a request that hold what a user wrote. The others identify the request.
const PARTS: [&str; 3] = ["object", "oldObject", "options"];
/// Members of an object that identify it.
const IDENTITY: [&str; 4] = ["apiVersion", "kind", "type", "immutable"];
/// Members of an object's metadata that identify it.
const METADATA_IDENTITY: [&str; 8] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
];

/// Whether a place of a Secret is replaced in a recording.
///
/// All annotations are: tools keep whole Secrets in them, some of them compressed.
#[must_use]
pub fn is_content(pointer: &str) -> bool {
    let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
    matches!(
        tokens[..],
        ["data" | "stringData", ..] | ["metadata", "annotations", _, ..]
    )
}

// === impl Redactor ===

impl Redactor {
    /// Creates a redactor with a new key. `patterns` are further confidential places in objects: JSON Pointers, in which
    /// `*` stands for every member or element.
    ///
    /// # Errors
    /// When a place is not a JSON Pointer.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .expect("the system has random numbers");
        let patterns = patterns.iter().map(|pattern| {
            let pointer = Pointer::parse(pattern).map_err(|source| PatternError {
                pattern: pattern.clone(),
                source,
            })?;
            Ok(pointer.tokens().map(|token| token.into_owned()).collect())
        });
        Ok(Self {
            key,
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the keyed hash of some bytes, as 16 hexadecimal digits.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> String {
        let tag = hmac::sign(&self.key, bytes);
        let digits = tag.as_ref().iter().take(8);
        digits.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Redacts an AdmissionReview and `response` of its answer.
    ///
    /// Returns none if the review has more confidential values than can be searched.
    #[must_use]
    pub fn redact(&self, review: &Json, answer: &Json) -> Option<Redacted> {
        let mut work = Work {
            redactor: self,
            needles: Vec::new(),
        };
        let kind = Kind::of_request(review.member("request"));
        let review = members(review, |name, value| match name {
            "request" => members(value, |name, value| match name {
                "object" | "oldObject" => work.object(value, kind),
                _ => value.clone(),
            }),
            _ => value.clone(),
        });
        let answer = members(answer, |name, value| match name {
            "patch" => work.patch(value, kind),
            _ => value.clone(),
        });
        let bytes: usize = work.needles.iter().map(|needle| needle.text.len()).sum();
        if bytes > MOST_NEEDLE_BYTES {
            return None;
        }
        if work.needles.is_empty() {
            return Some(Redacted { review, answer });
        }
        let search = Search::new(work.needles)?;
        let review = members(&review, |name, value| match name {
            "request" => members(value, |name, value| {
                if PARTS.contains(&name) {
                    search.object(value)
                } else {
                    value.clone()
                }
            }),
            _ => value.clone(),
        });
        let answer = members(&answer, |name, value| match name {
            "uid" => value.clone(),
            _ => search.everywhere(value),
        });
        Some(Redacted { review, answer })
    }

    fn token(&self, bytes: &[u8]) -> String {
        format!("redacted-{}", self.hash(bytes))
    }
}

// === impl Work ===

impl Work<'_> {
    /// Redacts an object of the given kind, or of the kind that it says itself.
    fn object(&mut self, object: &Json, kind: Kind) -> Json {
        let kind = match (kind, Kind::of_object(object)) {
            (Kind::Other, own) => own,
            (kind, _) => kind,
        };
        self.walk(object, kind, &mut Vec::new())
    }

    /// Redacts the operations of a patch for an object of this kind. Takes Base64 text or an array.
    fn patch(&mut self, patch: &Json, kind: Kind) -> Json {
        let decoded = patch
            .as_text()
            .and_then(|text| STANDARD.decode(text).ok())
            .and_then(|text| parse_up_to(&text, MAX_DEPTH, MAX_VALUES).ok());
        let operations = match (patch, decoded) {
            (Json::Array(_), _) => patch.clone(),
            (_, Some(decoded)) => decoded,
            // It cannot be read, so nobody knows what is in it.
            (_, None) => return Json::Null,
        };
        elements(&operations, |operation| {
            let path = operation.member("path").and_then(Json::as_text);
            let pointer = path.and_then(|path| Pointer::parse(path).ok());
            let tokens = pointer.map(|pointer| {
                let tokens = pointer.tokens().map(|token| token.into_owned());
                tokens.collect::<Vec<String>>()
            });
            members(operation, |name, value| match (name, &tokens) {
                ("value", Some(tokens)) => self.walk(value, kind, &mut tokens.clone()),
                _ => value.clone(),
            })
        })
    }

    fn walk(&mut self, json: &Json, kind: Kind, path: &mut Vec<String>) -> Json {
        let class = self.redactor.class(kind, path);
        match json {
            Json::Object(_) if !path.is_empty() && Kind::of_object(json) == Kind::Secret => {
                self.walk(json, Kind::Secret, &mut Vec::new())
            }
            Json::Object(_) => members(json, |name, value| {
                path.push(name.to_owned());
                let value = self.walk(value, kind, path);
                path.pop();
                value
            }),
            Json::Array(list) => {
                let list = list.iter().enumerate().map(|(index, value)| {
                    path.push(index.to_string());
                    let value = self.walk(value, kind, path);
                    path.pop();
                    value
                });
                Json::Array(Arc::new(list.collect()))
            }
            Json::Text(text) => self.text(text, class, kind),
            Json::Number(number) if class != Class::Open => {
                let text = Json::Number(number.clone()).to_text();
                self.number(&text)
            }
            _ => json.clone(),
        }
    }

    fn text(&mut self, text: &Arc<str>, class: Class, kind: Kind) -> Json {
        match class {
            Class::Open => Json::Text(text.clone()),
            Class::Text => {
                let token = self.redactor.token(text.as_bytes());
                self.found(text, &token);
                self.found(&STANDARD.encode(&**text), &STANDARD.encode(&token));
                Json::text(&token)
            }
            Class::Base64 => {
                let decoded = STANDARD.decode(&**text).ok();
                let token = self
                    .redactor
                    .token(decoded.as_deref().unwrap_or(text.as_bytes()));
                if let Some(plain) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
                    self.found(&plain, &token);
                    self.found(plain.trim(), &token);
                }
                let encoded = STANDARD.encode(&token);
                self.found(text, &encoded);
                Json::text(&encoded)
            }
            Class::Object => {
                let object = parse_up_to(text.as_bytes(), MAX_DEPTH, MAX_VALUES);
                match object {
                    Ok(object @ Json::Object(_)) => {
                        let redacted = self.object(&object, kind);
                        if redacted == object {
                            return Json::Text(text.clone());
                        }
                        Json::text(&redacted.to_text())
                    }
                    _ if kind == Kind::Other => Json::Text(text.clone()),
                    _ => self.text(text, Class::Text, kind),
                }
            }
        }
    }

    /// Replaces a number by another one, so that the place keeps its type.
    fn number(&mut self, text: &str) -> Json {
        let digits = self.redactor.hash(text.as_bytes());
        let number = u32::from_str_radix(&digits[..8], 16).unwrap_or_default();
        let replacement = number.to_string();
        self.found(text, &replacement);
        Json::Number(Number::from_text(&replacement))
    }

    fn found(&mut self, text: &str, replacement: &str) {
        if text.len() >= SHORTEST_NEEDLE_BYTES {
            self.needles.push(Needle {
                text: text.to_owned(),
                replacement: replacement.to_owned(),
            });
        }
    }
}

impl Redactor {
    fn class(&self, kind: Kind, path: &[String]) -> Class {
        let tokens: Vec<&str> = path.iter().take(3).map(String::as_str).collect();
        let class = match (kind, &tokens[..]) {
            (_, ["metadata", "annotations", LAST_APPLIED]) => Class::Object,
            (Kind::Secret, ["data", ..]) => Class::Base64,
            (Kind::Secret, ["stringData", ..] | ["metadata", "annotations", _]) => Class::Text,
            (Kind::TokenReview, ["spec", "token"]) => Class::Text,
            (Kind::TokenRequest, ["status", "token"]) => Class::Text,
            _ => Class::Open,
        };
        let is_configured = || {
            self.patterns.iter().any(|pattern| {
                pattern.len() <= path.len()
                    && pattern
                        .iter()
                        .zip(path)
                        .all(|(token, name)| token == "*" || token == name)
            })
        };
        if class == Class::Open && is_configured() {
            return Class::Text;
        }
        class
    }
}

// === impl Kind ===

impl Kind {
    fn of_request(request: Option<&Json>) -> Self {
        let text = |of: &str, member: &str| {
            let text = request?.member(of)?.member(member)?.as_text();
            text.map(str::to_owned)
        };
        let group = text("kind", "group").unwrap_or_default();
        let kind = text("kind", "kind").unwrap_or_default();
        let is_secrets = text("resource", "resource").as_deref() == Some("secrets")
            && text("resource", "group").unwrap_or_default().is_empty();
        if is_secrets {
            return Self::Secret;
        }
        Self::of(&group, &kind)
    }

    fn of_object(object: &Json) -> Self {
        let text = |member: &str| object.member(member).and_then(Json::as_text);
        let (Some(version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            return Self::Other;
        };
        let (group, _) = version.split_once('/').unwrap_or(("", version));
        Self::of(group, kind)
    }

    fn of(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Secret") => Self::Secret,
            ("authentication.k8s.io", "TokenReview") => Self::TokenReview,
            ("authentication.k8s.io", "TokenRequest") => Self::TokenRequest,
            _ => Self::Other,
        }
    }
}

/// Replaces known values in other texts.
struct Search {
    automaton: AhoCorasick,
    replacements: Vec<String>,
}

// === impl Search ===

impl Search {
    fn new(mut needles: Vec<Needle>) -> Option<Self> {
        needles.sort_by(|one, other| one.text.cmp(&other.text));
        needles.dedup_by(|one, other| one.text == other.text);
        let (texts, replacements): (Vec<String>, Vec<String>) = needles
            .into_iter()
            .map(|needle| (needle.text, needle.replacement))
            .unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts);
        Some(Self {
            automaton: automaton.ok()?,
            replacements,
        })
    }

    /// Searches an object, except for the members that identify it.
    fn object(&self, object: &Json) -> Json {
        members(object, |name, value| match name {
            "metadata" => members(value, |name, value| {
                if METADATA_IDENTITY.contains(&name) {
                    value.clone()
                } else {
                    self.everywhere(value)
                }
            }),
            name if IDENTITY.contains(&name) => value.clone(),
            _ => self.everywhere(value),
        })
    }

    /// Searches all texts, also names of members.
    fn everywhere(&self, json: &Json) -> Json {
        match json {
            Json::Text(text) => match self.replaced(text) {
                Some(text) => Json::text(&text),
                None => json.clone(),
            },
            Json::Array(_) => elements(json, |element| self.everywhere(element)),
            Json::Object(object) => {
                let object = object.iter().map(|(name, value)| {
                    let name = match self.replaced(name) {
                        Some(name) => Arc::from(name),
                        None => name.clone(),
                    };
                    (name, self.everywhere(value))
                });
                Json::Object(Arc::new(object.collect()))
            }
            Json::Number(_) => match self.replaced(&json.to_text()) {
                Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Json::Number(Number::from_text(&text))
                }
                Some(text) => Json::text(&text),
                None => json.clone(),
            },
            _ => json.clone(),
        }
    }

    fn replaced(&self, text: &str) -> Option<String> {
        self.automaton
            .is_match(text)
            .then(|| self.automaton.replace_all(text, &self.replacements))
    }
}

fn members(json: &Json, mut change: impl FnMut(&str, &Json) -> Json) -> Json {
    let Json::Object(object) = json else {
        return json.clone();
    };
    let object = object
        .iter()
        .map(|(name, value)| (name.clone(), change(name, value)));
    Json::Object(Arc::new(object.collect()))
}

fn elements(json: &Json, change: impl FnMut(&Json) -> Json) -> Json {
    let Json::Array(list) = json else {
        return json.clone();
    };
    Json::Array(Arc::new(list.iter().map(change).collect()))
}

#[cfg(test)]
mod tests;
