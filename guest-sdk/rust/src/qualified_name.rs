//! The keys of labels and annotations, as a type for settings. The host rejects an invalid key when it loads the
//! plugin, instead of kube-apiserver rejecting each object that has it.

use std::fmt;
use std::str::FromStr;

/// The key of a label or an annotation: `app.kubernetes.io/name`, or `name` alone.
///
/// In settings, an invalid key is an error with its pointer:
///
/// ```
/// use tollgate_sdk::{QualifiedName, pointer};
///
/// #[derive(serde::Deserialize)]
/// struct Settings {
///     label: QualifiedName,
/// }
///
/// let settings: Settings = serde_json::from_str(r#"{"label": "example.com/tier"}"#).unwrap();
/// assert_eq!(pointer!["metadata", "labels", settings.label], "/metadata/labels/example.com~1tier");
///
/// let error = "example.com/".parse::<QualifiedName>().unwrap_err();
/// assert_eq!(error.to_string(), "is no key of a label or annotation: its name must not be empty");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct QualifiedName(String);

/// The reason why a text is not a [`QualifiedName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QualifiedNameError(&'static str);

const MAX_PREFIX: usize = 253;
const MAX_NAME: usize = 63;

// === impl QualifiedName ===

impl QualifiedName {
    /// The key as it is in an object.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for QualifiedName {
    type Err = QualifiedNameError;

    fn from_str(text: &str) -> Result<Self, QualifiedNameError> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for QualifiedName {
    type Error = QualifiedNameError;

    fn try_from(text: String) -> Result<Self, QualifiedNameError> {
        let name = match text.split_once('/') {
            Some((prefix, name)) => {
                check_prefix(prefix)?;
                name
            }
            None => text.as_str(),
        };
        check_name(name)?;
        Ok(Self(text))
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for QualifiedName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

fn check_prefix(prefix: &str) -> Result<(), QualifiedNameError> {
    if prefix.is_empty() || prefix.len() > MAX_PREFIX {
        return Err(QualifiedNameError(
            "what is before the slash must have 1 to 253 characters",
        ));
    }
    let is_label = |label: &str| {
        label
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && ends_in_alphanumerics(label)
    };
    if !prefix.split('.').all(is_label) {
        return Err(QualifiedNameError(
            "what is before the slash must be a DNS name in lower case, such as example.com",
        ));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), QualifiedNameError> {
    if name.is_empty() {
        return Err(QualifiedNameError("its name must not be empty"));
    }
    if name.len() > MAX_NAME {
        return Err(QualifiedNameError(
            "its name must have at most 63 characters",
        ));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.bytes().all(is_allowed) || !ends_in_alphanumerics(name) {
        return Err(QualifiedNameError(
            "its name must be letters, digits, dashes, underscores and dots, and begin and end with a letter or digit",
        ));
    }
    Ok(())
}

fn ends_in_alphanumerics(text: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_alphanumeric(text.as_bytes().first()) && is_alphanumeric(text.as_bytes().last())
}

// === impl QualifiedNameError ===

impl fmt::Display for QualifiedNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is no key of a label or annotation: {}", self.0)
    }
}

impl std::error::Error for QualifiedNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_that_kubernetes_takes() {
        for text in [
            "a",
            "app.kubernetes.io/name",
            "1-2_3.A",
            "allow-annotation/allow",
            &format!("{}/{}", "a".repeat(253), "b".repeat(63)),
        ] {
            assert_eq!(text.parse::<QualifiedName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn keys_are_refused_that_kubernetes_refuses() {
        for text in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "a-",
            "a b",
            "\u{e4}",
            "Example.com/a",
            "example..com/a",
            "-example.com/a",
            "example_com/a",
            &"a".repeat(64),
            &format!("{}/a", "a".repeat(254)),
        ] {
            assert!(text.parse::<QualifiedName>().is_err(), "{text:?}");
        }
    }
}
