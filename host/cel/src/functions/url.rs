//! Kubernetes' URL library, which reads URLs as Go does.

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::value::{Key, Value};

/// A parsed URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: String,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("url", false) => |args, _| {
            let wrong = |error: String| {
                EvalError::new(format!(
                    "URL parse error during conversion from string: {error}"
                ))
            };
            let written = text(&args[0])?;
            Url::parse_request(written).map_err(wrong)?;
            let url = Url::parse(written, false).map_err(wrong)?;
            Ok(Value::Url(url.into()))
        },
        ("isURL", false) => |args, _| Ok(Value::Bool(Url::parse_request(text(&args[0])?).is_ok())),
        ("getScheme", true) => |args, _| Ok(Value::text(of(&args[0])?.scheme.as_str())),
        ("getHost", true) => |args, _| Ok(Value::text(of(&args[0])?.host.as_str())),
        ("getHostname", true) => |args, _| Ok(Value::text(of(&args[0])?.host_and_port().0)),
        ("getPort", true) => |args, _| Ok(Value::text(of(&args[0])?.host_and_port().1)),
        ("getEscapedPath", true) => |args, _| Ok(Value::text(of(&args[0])?.path.as_str())),
        ("getQuery", true) => |args, _| Ok(of(&args[0])?.query()),
        _ => return None,
    })
}

fn of(value: &Value) -> Result<&Url> {
    match value {
        Value::Url(url) => Ok(url),
        _ => Err(EvalError::no_such_overload()),
    }
}

// === impl Url ===

impl Url {
    /// Reads an absolute URL or an absolute path, without treating `#` as the start of a fragment.
    ///
    /// # Errors
    /// The text of Go's error.
    pub fn parse_request(written: &str) -> std::result::Result<Self, String> {
        Self::parse(written, true)
    }

    fn parse(written: &str, is_request: bool) -> std::result::Result<Self, String> {
        let failed = |problem: &str| format!("parse {written:?}: {problem}");
        let (rest, fragment) = match written.split_once('#') {
            Some((rest, fragment)) if !is_request => (rest, fragment),
            _ => (written, ""),
        };
        if rest.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(failed("net/url: invalid control character in URL"));
        }
        if rest.is_empty() && is_request {
            return Err(failed("empty url"));
        }
        let (scheme, rest) = scheme(rest).map_err(failed)?;
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            fragment: unescaped(fragment, false).map_err(|error| failed(&error))?,
            ..Self::default()
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if is_request {
                return Err(failed("invalid URI for request"));
            }
        }
        let has_authority = rest.starts_with("//")
            && (!url.scheme.is_empty() || !is_request && !rest.starts_with("///"));
        let mut path = rest;
        if has_authority {
            let rest = &rest[2..];
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, behind) = rest.split_at(end);
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            url.host = host_of(host).map_err(|error| failed(&error))?;
            if !user.bytes().all(is_of_user) {
                return Err(failed("net/url: invalid userinfo"));
            }
            user.clone_into(&mut url.user);
            path = behind;
        }
        let plain = unescaped(path, false).map_err(|error| failed(&error))?;
        url.path = if path.bytes().all(is_of_encoded_path) {
            path.to_owned()
        } else {
            escaped_path(&plain)
        };
        Ok(url)
    }

    /// Returns the host without brackets, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':') {
            Some(colon) if is_port(&self.host[colon..]) => {
                (&self.host[..colon], &self.host[colon + 1..])
            }
            _ => (self.host.as_str(), ""),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        (host, port)
    }

    fn query(&self) -> Value {
        let mut all: Vec<(String, Vec<Value>)> = Vec::new();
        for part in self.query.split('&') {
            if part.is_empty() || part.contains(';') {
                continue;
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Ok(name), Ok(value)) = (unescaped(name, true), unescaped(value, true)) else {
                continue;
            };
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(Value::text(value)),
                None => all.push((name, vec![Value::text(value)])),
            }
        }
        let entries = all.into_iter();
        Value::map(
            entries
                .map(|(name, values)| (Key::String(name.into()), Value::list(values)))
                .collect(),
        )
    }
}

/// Splits the scheme off.
fn scheme(text: &str) -> std::result::Result<(&str, &str), &'static str> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme"),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn host_of(host: &str) -> std::result::Result<String, String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        let address = &host[1..end];
        let address = address
            .split_once("%25")
            .map_or(address, |(address, _)| address);
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("invalid host".to_owned());
        }
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |colon| &host[colon..])
    };
    if !is_port(port) {
        return Err(format!("invalid port {port:?} after host"));
    }
    let wrong = host.bytes().find(|byte| {
        byte.is_ascii()
            && !byte.is_ascii_alphanumeric()
            && !b"-_.~!$&'()*+,;=:[]<>\"%".contains(byte)
    });
    if let Some(wrong) = wrong {
        return Err(format!(
            "invalid character {:?} in host name",
            char::from(wrong).to_string()
        ));
    }
    unescaped(host, false)
}

fn is_of_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)
}

fn is_of_encoded_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte)
}

fn escaped_path(plain: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::new();
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
    escaped
}

/// Replaces `%XX`, and in a query `+` by a space.
fn unescaped(text: &str, is_query: bool) -> std::result::Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'%' => {
                let digits = behind
                    .get(..2)
                    .and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let Some(byte) = byte else {
                    let shown: String = text[text.len() - behind.len() - 1..]
                        .chars()
                        .take(3)
                        .collect();
                    return Err(format!("invalid URL escape {shown:?}"));
                };
                bytes.push(byte);
                rest = &behind[2..];
            }
            b'+' if is_query => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
