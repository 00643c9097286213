//! Exceptions: requests that a plugin is not called for until a given time.
//!
//! An exception must have an end and a reason. Otherwise people would forget it.

use std::fmt;
use std::time::SystemTime;

use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime, Time};

use super::read::{Fields, Node};

/// An exception: requests that a plugin is not called for until a given time.
///
/// Every list that is not empty must match the request. At least one list is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The object's namespace.
    pub namespaces: Vec<Box<str>>,
    /// The object's name.
    pub names: Vec<Box<str>>,
    /// The user's name.
    pub users: Vec<Box<str>>,
    /// One of the user's groups.
    pub groups: Vec<Box<str>>,
    until: Until,
    reason: Box<str>,
}

/// The end of an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Until {
    /// The end as it was written.
    text: Box<str>,
    /// The first moment at which the exception no longer applies.
    end: OffsetDateTime,
}

const LISTS: &str = "namespaces, names, users or groups";
const UNTIL_EXPECTED: &str = "a day, such as 2026-12-31, which is the last one (in UTC), or a time, such as \
    2026-12-31T18:00:00Z";
const REASON_EXPECTED: &str = "a text that says why";
/// Maximum length of a reason. The host repeats it in annotations.
const LONGEST_REASON_BYTES: usize = 500;

// === impl Exception ===

impl Exception {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let mut fields = node.object()?;
        let namespaces = read_names(&mut fields, "namespaces");
        let names = read_names(&mut fields, "names");
        let users = read_names(&mut fields, "users");
        let groups = read_names(&mut fields, "groups");
        let given = ["namespaces", "names", "users", "groups"];
        if !given.iter().any(|key| fields.has(key)) {
            node.reject(&format!(
                "at least one of {LISTS}; to disable the plugin, write enabled: false"
            ));
        }
        let until = fields
            .required("until", UNTIL_EXPECTED)
            .and_then(|node| Until::read(&node));
        let reason = fields
            .required("reason", REASON_EXPECTED)
            .and_then(|node| read_reason(&node));
        fields.finish();
        Some(Self {
            namespaces: namespaces?,
            names: names?,
            users: users?,
            groups: groups?,
            until: until?,
            reason: reason?,
        })
    }

    /// Returns whether the exception still applies.
    #[must_use]
    pub fn is_active(&self, now: SystemTime) -> bool {
        OffsetDateTime::from(now) < self.until.end
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

/// Writes the reason and the end.
impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (until {})", self.reason, self.until.text)
    }
}

// === impl Until ===

impl Until {
    fn read(node: &Node<'_>) -> Option<Self> {
        let text = node.quotable_text(UNTIL_EXPECTED)?;
        let end = end_of_day(text).or_else(|| OffsetDateTime::parse(text, &Rfc3339).ok());
        if end.is_none() {
            node.reject(UNTIL_EXPECTED);
        }
        Some(Self {
            text: text.into(),
            end: end?,
        })
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
