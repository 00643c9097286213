//! Kubernetes' format library: named formats such as `dns1123Label`.

use super::{Native, text, url::Url};
use crate::error::{EvalError, Result};
use crate::meter::Meter;
use crate::value::Value;

/// A named format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedFormat(&'static str);

/// The formats that `format.NAME()` and `format.named("NAME")` return.
pub(crate) const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    /// Returns the function of one format.
    macro_rules! constant {
        ($($name:literal)*) => {
            match name {
                $(concat!("format.", $name) => {
                    return Some(|_, _| Ok(Value::Format(NamedFormat($name))));
                })*
                _ => {}
            }
        };
    }
    if !is_member {
        constant!("dns1123Label" "dns1123Subdomain" "dns1035Label" "qualifiedName" "dns1123LabelPrefix"
            "dns1123SubdomainPrefix" "dns1035LabelPrefix" "labelValue" "uri" "uuid" "byte" "date" "datetime");
    }
    Some(match (name, is_member) {
        ("format.named", false) => |args, _| {
            let wanted = text(&args[0])?;
            let found = NAMES.iter().find(|name| **name == wanted);
            Ok(found.map_or(Value::Optional(None), |name| {
                Value::some(Value::Format(NamedFormat(name)))
            }))
        },
        ("validate", true) => validate,
        _ => return None,
    })
}

fn validate(args: &[Value], meter: &mut Meter) -> Result<Value> {
    let Value::Format(format) = &args[0] else {
        return Err(EvalError::no_such_overload());
    };
    let subject = text(&args[1])?;
    // The patterns of Kubernetes' formats have up to 60 bytes.
    meter.charge_search(subject.len(), 60)?;
    let problems = format.problems(subject);
    if problems.is_empty() {
        return Ok(Value::Optional(None));
    }
    let problems = problems.into_iter().map(Value::text).collect();
    Ok(Value::some(Value::list(problems)))
}

// === impl NamedFormat ===

impl NamedFormat {
    fn problems(self, subject: &str) -> Vec<String> {
        let one = |is_right: bool, problem: &str| {
            if is_right {
                Vec::new()
            } else {
                vec![problem.to_owned()]
            }
        };
        match self.0 {
            "dns1123Label" => label(subject),
            "dns1123LabelPrefix" => label(&masked(subject)),
            "dns1123Subdomain" => subdomain(subject),
            "dns1123SubdomainPrefix" => subdomain(&masked(subject)),
            "dns1035Label" => label_1035(subject),
            "dns1035LabelPrefix" => label_1035(&masked(subject)),
            "qualifiedName" => qualified_name(subject),
            "labelValue" => label_value(subject),
            "uri" => Url::parse_request(subject).err().into_iter().collect(),
            "uuid" => one(is_uuid(subject), "does not match the UUID format"),
            "byte" => one(is_base64(subject), "invalid base64"),
            "date" => one(is_date(subject), "invalid date"),
            _ => one(is_datetime(subject), "invalid datetime"),
        }
    }
}

/// Replaces a dash at the end, because a suffix follows it.
fn masked(name: &str) -> String {
    match name.strip_suffix('-') {
        // Kubernetes also drops the character before the dash.
        Some(rest) if !rest.is_empty() => {
            let mut kept: String = rest.chars().collect();
            kept.pop();
            kept + "a"
        }
        _ => name.to_owned(),
    }
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn pattern(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

fn is_label(subject: &str, is_first: impl Fn(u8) -> bool) -> bool {
    let bytes = subject.as_bytes();
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(|first| is_first(*first))
        && bytes.last().is_some_and(|last| is_letter(*last))
        && bytes.iter().all(|byte| is_letter(*byte) || *byte == b'-')
}

fn is_label_1123(subject: &str) -> bool {
    is_label(subject, |byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit()
    })
}

fn is_subdomain(subject: &str) -> bool {
    subject.split('.').all(is_label_1123)
}

fn label(subject: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if subject.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label_1123(subject) {
        problems.push(if is_subdomain(subject) {
            // Only dots are wrong.
            "must not contain dots".to_owned()
        } else {
            pattern(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    problems
}

fn subdomain(subject: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if subject.len() > 253 {
        problems.push(too_long(253));
    }
    if !is_subdomain(subject) {
        problems.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    problems
}

fn label_1035(subject: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if subject.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(subject, |byte| byte.is_ascii_lowercase()) {
        problems.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    problems
}

fn is_key(subject: &str) -> bool {
    let bytes = subject.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn qualified_name(subject: &str) -> Vec<String> {
    let words = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character";
    let rule = || pattern(words, KEY, &["MyName", "my.name", "123-abc"]);
    let parts: Vec<&str> = subject.split('/').collect();
    let mut problems = Vec::new();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let wrong = subdomain(prefix);
                problems.extend(wrong.iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                rule()
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !is_key(name) {
        problems.push(format!("name part {}", rule()));
    }
    problems
}

fn label_value(subject: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if subject.len() > 63 {
        problems.push(too_long(63));
    }
    if !subject.is_empty() && !is_key(subject) {
        problems.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &format!("({KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// Whether the text is a UUID, with or without dashes.
fn is_uuid(subject: &str) -> bool {
    let digits: Vec<u8> = subject.bytes().filter(|byte| *byte != b'-').collect();
    let dashes: Vec<usize> = subject
        .bytes()
        .enumerate()
        .filter_map(|(at, byte)| (byte == b'-').then_some(at - subject[..at].matches('-').count()))
        .collect();
    digits.len() == 32
        && digits.iter().all(u8::is_ascii_hexdigit)
        && dashes.iter().all(|at| [8, 12, 16, 20].contains(at))
        && dashes.windows(2).all(|pair| pair[0] < pair[1])
}

fn is_base64(subject: &str) -> bool {
    let digits = subject.trim_end_matches('=');
    subject.len().is_multiple_of(4)
        && subject.len() - digits.len() <= 2
        && !digits.is_empty()
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn is_date(subject: &str) -> bool {
    subject.len() == 10 && subject.parse::<jiff::civil::Date>().is_ok()
}

/// Whether the text is a date and a time, with an optional fraction and an optional zone.
fn is_datetime(subject: &str) -> bool {
    let (Some(date), Some(time)) = (subject.get(..10), subject.get(11..)) else {
        return false;
    };
    let separator = subject.as_bytes()[10];
    if !is_date(date) || !matches!(separator, b'T' | b't' | b' ') {
        return false;
    }
    let end = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(end);
    let is_zone = zone.is_empty()
        || zone.eq_ignore_ascii_case("z")
        || (zone.len() >= 5
            && format!("2000-01-01T00:00:00{zone}")
                .parse::<jiff::Timestamp>()
                .is_ok());
    is_zone && clock.len() >= 8 && clock.parse::<jiff::civil::Time>().is_ok()
}
