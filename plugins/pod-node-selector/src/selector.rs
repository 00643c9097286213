//! Selectors such as `env=prod, tier=web`, with kube-apiserver's errors.

use std::collections::BTreeMap;

/// Labels by their keys.
pub(crate) type Labels = BTreeMap<String, String>;

const MAX_PREFIX: usize = 253;
const MAX_NAME: usize = 63;

const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                   with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                   validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and \
                   '/' (e.g. 'example.com/MyName')";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                      '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
                      used for validation is \
                      '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Parses a selector. Of a key that is there twice, the last value counts.
///
/// # Errors
/// The text that kube-apiserver would print.
pub(crate) fn parse(text: &str) -> Result<Labels, String> {
    if text.is_empty() {
        return Ok(Labels::new());
    }
    text.split(',').map(label).collect()
}

fn label(text: &str) -> Result<(String, String), String> {
    let parts: Vec<&str> = text.split('=').collect();
    let [key, value] = parts[..] else {
        return Err(format!("invalid selector: [{}]", parts.join(" ")));
    };
    let (key, value) = (key.trim(), value.trim());
    let errors = key_errors(key);
    if !errors.is_empty() {
        return Err(format!(
            "<nil>: Invalid value: {key:?}: {}",
            errors.join("; ")
        ));
    }
    let errors = value_errors(value);
    if !errors.is_empty() {
        return Err(format!(
            "[{key}]: Invalid value: {value:?}: {}",
            errors.join("; ")
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn key_errors(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<&str>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => return vec![KEY.to_owned()],
    };
    let mut errors = Vec::new();
    if let Some(prefix) = prefix {
        errors.extend(prefix_errors(prefix));
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME {
        errors.push(format!("name part must be no more than {MAX_NAME} bytes"));
    }
    if !is_name(name) {
        errors.push(NAME.to_owned());
    }
    errors
}

fn prefix_errors(prefix: &str) -> Vec<String> {
    if prefix.is_empty() {
        return vec!["prefix part must be non-empty".to_owned()];
    }
    let mut errors = Vec::new();
    if prefix.len() > MAX_PREFIX {
        errors.push(format!(
            "prefix part must be no more than {MAX_PREFIX} bytes"
        ));
    }
    let is_subdomain = prefix.split('.').all(is_dns_label);
    if !is_subdomain {
        errors.push(PREFIX.to_owned());
    }
    errors
}

/// Whether a text has the characters of a DNS label, at any length.
fn is_dns_label(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    text.bytes().all(is_allowed) && is_name(text)
}

fn value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > MAX_NAME {
        errors.push(format!("must be no more than {MAX_NAME} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE.to_owned());
    }
    errors
}

/// Whether a text has the characters of a name, at any length.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.bytes().all(is_allowed)
        && is_end(text.as_bytes().first())
        && is_end(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of `ConvertSelectorToLabelsMap` in k8s.io/apimachinery/pkg/labels.
    #[test]
    fn errors_are_those_of_kube_apiserver() {
        let long = "a".repeat(64);
        for (text, error) in [
            ("a", "invalid selector: [a]".to_owned()),
            ("a=b=c", "invalid selector: [a b c]".to_owned()),
            ("a=b,", "invalid selector: []".to_owned()),
            ("a==b", "invalid selector: [a  b]".to_owned()),
            ("a!=b=c", "invalid selector: [a! b c]".to_owned()),
            ("a b=c", format!("<nil>: Invalid value: \"a b\": {NAME}")),
            (
                "=b",
                format!("<nil>: Invalid value: \"\": name part must be non-empty; {NAME}"),
            ),
            (
                "/a=b",
                "<nil>: Invalid value: \"/a\": prefix part must be non-empty".to_owned(),
            ),
            ("A/a=b", format!("<nil>: Invalid value: \"A/a\": {PREFIX}")),
            ("a/b/c=d", format!("<nil>: Invalid value: \"a/b/c\": {KEY}")),
            ("a=b c", format!("[a]: Invalid value: \"b c\": {VALUE}")),
            (
                &format!("a={long}"),
                format!("[a]: Invalid value: \"{long}\": must be no more than 63 bytes"),
            ),
            (
                &format!("{long}=a"),
                format!(
                    "<nil>: Invalid value: \"{long}\": name part must be no more than 63 bytes"
                ),
            ),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn white_space_and_empty_values_are_accepted() {
        let labels = parse(" example.com/a = b ,c=, c = d").unwrap();
        let expected = [("c", "d"), ("example.com/a", "b")];
        assert!(
            labels
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .eq(expected)
        );
        assert_eq!(parse(""), Ok(Labels::new()));
    }
}
