//! Exceptions: requests that a plugin is not called for until a given time.
//!
//! An exception must have a reason, and say when it ends. Otherwise people would forget it.

use std::fmt;
use std::time::SystemTime;

use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime, Time};

use super::plugin::{PluginName, is_label};
use super::problem::{Collector, Problems};
use super::read::{Fields, Node};

/// An exception: requests that a plugin is not called for until a given time.
///
/// Every list that is not empty must match the request. At least one list is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The name in metrics and reports. None for an entry without one.
    pub name: Option<Box<str>>,
    /// The object's namespace.
    pub namespaces: Vec<Box<str>>,
    /// The object's name.
    pub names: Vec<Box<str>>,
    /// The user's name.
    pub users: Vec<Box<str>>,
    /// One of the user's groups.
    pub groups: Vec<Box<str>>,
    /// The namespace that the exception is confined to, whatever its lists say. None if it is not confined.
    pub confined_to: Option<Box<str>>,
    until: Until,
    reason: Box<str>,
}

/// The end of an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Until {
    /// The end as it was written.
    text: Box<str>,
    /// The first moment at which the exception no longer applies. None if it applies until somebody deletes it.
    end: Option<OffsetDateTime>,
}

/// A `PluginException`: an exception, and the plugins that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedException {
    /// The plugins' names.
    pub plugins: Vec<PluginName>,
    /// The exception for each of them.
    pub exception: Exception,
}

const LISTS: &str = "namespaces, names, users or groups";
const UNTIL_EXPECTED: &str = "a day, such as 2026-12-31, which is the last one (in UTC), a time, such as \
    2026-12-31T18:00:00Z, or never";
/// The end of an exception that has none.
const NEVER: &str = "never";
const PLUGINS_EXPECTED: &str = "a list of plugins' names, such as [image-rewrite]";
const NAME_EXPECTED: &str =
    "a name of at most 253 characters of a-z, 0-9, - and ., such as legacy-billing";
/// Longest name, and longest part between dots. A `PluginException` has such a name.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
const REASON_EXPECTED: &str = "a text that says why";
/// Maximum length of a reason. The host repeats it in annotations.
const LONGEST_REASON_BYTES: usize = 500;

// === impl Exception ===

impl Exception {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let mut fields = node.object()?;
        let name = fields.optional("name").map(|node| read_name(&node));
        let exception = Self::read_fields(node, &mut fields, |fields| {
            fields
                .required("until", UNTIL_EXPECTED)
                .and_then(|node| Until::read(&node))
        });
        fields.finish();
        let name = match name {
            Some(name) => Some(name?),
            None => None,
        };
        Some(Self { name, ..exception? })
    }

    /// Reads the keys, with the end as `until` reads it.
    fn read_fields<'a>(
        node: &Node<'a>,
        fields: &mut Fields<'a>,
        until: impl FnOnce(&mut Fields<'a>) -> Option<Until>,
    ) -> Option<Self> {
        let namespaces = read_names(fields, "namespaces");
        let names = read_names(fields, "names");
        let users = read_names(fields, "users");
        let groups = read_names(fields, "groups");
        let given = ["namespaces", "names", "users", "groups"];
        if !given.iter().any(|key| fields.has(key)) {
            node.reject(&format!(
                "at least one of {LISTS}; to disable the plugin, write enabled: false"
            ));
        }
        let until = until(fields);
        let reason = fields
            .required("reason", REASON_EXPECTED)
            .and_then(|node| read_reason(&node));
        Some(Self {
            name: None,
            namespaces: namespaces?,
            names: names?,
            users: users?,
            groups: groups?,
            confined_to: None,
            until: until?,
            reason: reason?,
        })
    }

    /// Returns the exception as an entry under `exceptions` writes it.
    pub(super) fn document(&self) -> Value {
        let mut document = json!({ "until": self.until.text, "reason": self.reason });
        if let Some(name) = &self.name {
            document["name"] = (**name).into();
        }
        for (key, list) in self.lists() {
            document[key] = list.iter().map(|name| &**name).collect();
        }
        document
    }

    /// Returns the same exception with a name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// Returns the same exception, confined to the objects of a namespace.
    #[must_use]
    pub fn confined_to(self, namespace: &str) -> Self {
        Self {
            confined_to: Some(namespace.into()),
            ..self
        }
    }

    /// Returns the name, or else the place in the plugin's `exceptions`, such as `exceptions[0]`.
    #[must_use]
    pub fn label(&self, index: usize) -> String {
        match &self.name {
            Some(name) => name.to_string(),
            None => format!("exceptions[{index}]"),
        }
    }

    /// Returns whether the exception still applies.
    #[must_use]
    pub fn is_active(&self, now: SystemTime) -> bool {
        self.until
            .end
            .is_none_or(|end| OffsetDateTime::from(now) < end)
    }

    /// Returns the end as it was written.
    #[must_use]
    pub fn until(&self) -> &str {
        &self.until.text
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Lists the conditions by their configuration keys. Empty lists are left out.
    pub fn lists(&self) -> impl Iterator<Item = (&'static str, &[Box<str>])> {
        let lists = [
            ("namespaces", self.namespaces.as_slice()),
            ("names", self.names.as_slice()),
            ("users", self.users.as_slice()),
            ("groups", self.groups.as_slice()),
        ];
        lists.into_iter().filter(|(_, list)| !list.is_empty())
    }
}

/// Writes the reason, and the end if there is one.
impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.until.end.is_none() {
            return f.write_str(&self.reason);
        }
        write!(f, "{} (until {})", self.reason, self.until.text)
    }
}

// === impl Until ===

impl Until {
    fn read(node: &Node<'_>) -> Option<Self> {
        let text = node.quotable_text(UNTIL_EXPECTED)?;
        if text == NEVER {
            return Some(Self::never());
        }
        let end = end_of_day(text).or_else(|| OffsetDateTime::parse(text, &Rfc3339).ok());
        if end.is_none() {
            node.reject(UNTIL_EXPECTED);
        }
        Some(Self {
            text: text.into(),
            end: Some(end?),
        })
    }

    fn never() -> Self {
        Self {
            text: NEVER.into(),
            end: None,
        }
    }
}

// === impl SharedException ===

impl SharedException {
    /// Reads the `spec` of a `PluginException`.
    ///
    /// # Errors
    /// The list of all problems in it. Their paths begin with `spec`.
    pub fn read(spec: &Value) -> Result<Self, Problems> {
        let problems = Collector::default();
        let node = Node::at("spec", spec, &problems);
        let read = node.object().and_then(|mut fields| {
            let plugins = fields
                .required("plugins", PLUGINS_EXPECTED)
                .and_then(|node| {
                    let nodes = node.elements("plugins' names")?;
                    if nodes.is_empty() {
                        node.reject(PLUGINS_EXPECTED);
                    }
                    let names: Vec<_> = nodes.iter().map(PluginName::read).collect();
                    names.into_iter().collect::<Option<Vec<_>>>()
                });
            let exception = Exception::read_fields(&node, &mut fields, |fields| {
                match fields.optional("expires") {
                    Some(node) => Until::read(&node),
                    None => Some(Until::never()),
                }
            });
            fields.finish();
            Some(Self {
                plugins: plugins?,
                exception: exception?,
            })
        });
        problems.finish(read)
    }
}

/// Returns the start of the day after a date such as `2026-12-31`.
fn end_of_day(text: &str) -> Option<OffsetDateTime> {
    let digits = |text: &str, count: usize| {
        let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<u16>().ok())?
    };
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let month = Month::try_from(u8::try_from(digits(month, 2)?).ok()?).ok()?;
    let day = u8::try_from(digits(day, 2)?).ok()?;
    let date = Date::from_calendar_date(i32::from(digits(year, 4)?), month, day).ok()?;
    Some(date.next_day()?.with_time(Time::MIDNIGHT).assume_utc())
}

fn read_name(node: &Node<'_>) -> Option<Box<str>> {
    let name = node.quotable_text(NAME_EXPECTED)?;
    let is_name =
        name.len() <= LONGEST_NAME && name.split('.').all(|label| is_label(label, LONGEST_LABEL));
    if !is_name {
        node.reject(NAME_EXPECTED);
        return None;
    }
    Some(name.into())
}

fn read_reason(node: &Node<'_>) -> Option<Box<str>> {
    let reason = node.quotable_text(REASON_EXPECTED)?;
    if reason.trim().is_empty() || reason.len() > LONGEST_REASON_BYTES {
        node.reject(&format!(
            "{REASON_EXPECTED}, of at most {LONGEST_REASON_BYTES} bytes"
        ));
        return None;
    }
    Some(reason.into())
}

/// Reads a list of exact names. An empty list is refused, because it would match nothing.
pub(super) fn read_names(fields: &mut Fields<'_>, key: &'static str) -> Option<Vec<Box<str>>> {
    let Some(node) = fields.optional(key) else {
        return Some(Vec::new());
    };
    let nodes = node.elements("names")?;
    if nodes.is_empty() {
        node.reject("at least one name, or leave the key out");
        return None;
    }
    let names = nodes.iter().map(|node| {
        let name = node.quotable_text("a name")?;
        if name.is_empty() || name.contains('*') {
            node.reject("an exact name; patterns are not supported");
            return None;
        }
        Some(Box::from(name))
    });
    // All names are read before a failure is returned, so that every problem is reported.
    let names: Vec<Option<Box<str>>> = names.collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_exception_may_have_no_end_and_needs_plugins_and_reason() {
        let spec = json!({ "plugins": ["guard"], "users": ["a"], "reason": "why" });
        let read = SharedException::read(&spec).unwrap();
        assert!(read.exception.is_active(SystemTime::now()));
        assert_eq!(read.exception.to_string(), "why");
        let document = read.exception.document();
        let problems = Collector::default();
        let again = Exception::read(&Node::root(&document, &problems));
        assert_eq!(again, Some(read.exception));
        let spec = json!({ "plugins": ["guard"], "users": ["a"], "reason": "why", "expires": "2020-01-01" });
        let read = SharedException::read(&spec).unwrap();
        assert!(!read.exception.is_active(SystemTime::now()));
        let problems = SharedException::read(&json!({ "users": ["a"], "until": "2020-01-01" }));
        let problems = problems.unwrap_err();
        let places: Vec<_> = problems
            .iter()
            .map(|problem| problem.place.as_str())
            .collect();
        assert_eq!(places, ["spec.plugins", "spec.reason", "spec.until"]);
    }

    #[test]
    fn name_is_kept_and_its_place_stands_in_for_it() {
        let read = |name: Value| {
            let document = json!({
                "name": name, "names": ["a"], "reason": "why", "until": "2026-12-31",
            });
            let problems = Collector::default();
            let exception = Exception::read(&Node::root(&document, &problems));
            problems
                .finish(exception)
                .map_err(|problems| problems.to_string())
        };
        assert!(read(json!("legacy.v1")).is_ok());
        let named = read(json!("legacy")).unwrap();
        assert_eq!(named.label(2), "legacy");
        assert_eq!(named.document()["name"], "legacy");
        let unnamed = Exception {
            name: None,
            ..named.clone()
        };
        assert_eq!(unnamed.label(2), "exceptions[2]");
        assert_eq!(unnamed.named("legacy"), named);
        assert!(
            read(json!("Not a label"))
                .unwrap_err()
                .contains("253 characters")
        );
    }

    #[test]
    fn exception_includes_last_day_and_excludes_end_time() {
        let end = |text: &str| end_of_day(text).map(|end| end.format(&Rfc3339).unwrap());
        assert_eq!(end("2026-12-31").as_deref(), Some("2027-01-01T00:00:00Z"));
        assert_eq!(end("2028-02-28").as_deref(), Some("2028-02-29T00:00:00Z"));
        for text in [
            "2026-02-30",
            "2026-13-01",
            "26-12-31",
            "2026-12-1",
            "2026-12-31x",
            "+026-12-31",
            "2026-12-31T00:00:00Z",
            "",
        ] {
            assert_eq!(end(text), None, "{text}");
        }
    }
}
