//! Configures a policy from the JSON text of its settings. Every error has the pointer of its setting.

use serde_path_to_error::Segment;

use crate::{Pointer, Policy, SettingsError};

/// All errors in the settings.
///
/// ```
/// use tollgate_sdk::SettingsErrors;
///
/// fn check(limit: u32) -> Result<u32, SettingsErrors> {
///     let mut errors = SettingsErrors::new();
///     if limit == 0 {
///         errors.at("/limit", "must be at least 1");
///     }
///     errors.or(limit)
/// }
///
/// assert_eq!(check(3).unwrap(), 3);
/// assert_eq!(check(0).unwrap_err().to_string(), "/limit: must be at least 1");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsErrors(Vec<SettingsError>);

/// Reads the settings and calls the policy's `configure`.
///
/// The text is parsed directly into the type. A `serde_json::Value` in between would cost every plugin 6 kB, and would
/// hide a setting that is given twice.
pub(crate) fn configure<P: Policy>(settings: &str) -> Result<P, SettingsErrors> {
    if !settings.trim_start().starts_with('{') {
        // A derived struct also accepts an array, by position.
        return Err(SettingsErrors::whole("the settings are not an object"));
    }
    let mut deserializer = serde_json::Deserializer::from_str(settings);
    let read: P::Settings =
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let mut errors = SettingsErrors::new();
            errors.at(pointer_to(error.path()), message(error.inner()));
            errors
        })?;
    deserializer
        .end()
        .map_err(|error| SettingsErrors::whole(message(&error)))?;
    P::configure(read)
}

/// The error's text without line and column, because they refer to this text and not to the configuration.
fn message(error: &serde_json::Error) -> String {
    let mut message = error.to_string();
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    message
}

fn pointer_to(path: &serde_path_to_error::Path) -> Pointer {
    let mut pointer = Pointer::root();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push(index),
            Segment::Map { key } => pointer.push(key),
            // A variant is not a place in a document. After an unknown segment, the place is unknown.
            Segment::Enum { .. } => {}
            Segment::Unknown => break,
        }
    }
    pointer
}

// === impl SettingsErrors ===

impl SettingsErrors {
    /// Creates an empty list of errors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a list with one error that is not about a single setting.
    #[must_use]
    pub fn whole(message: impl Into<String>) -> Self {
        Self(vec![SettingsError {
            field: None,
            message: message.into(),
        }])
    }

    /// Adds an error about the setting at a pointer.
    pub fn at(&mut self, setting: impl Into<Pointer>, message: impl Into<String>) -> &mut Self {
        let setting = setting.into();
        let field = if setting.is_root() {
            None
        } else {
            Some(setting.into())
        };
        self.0.push(SettingsError {
            field,
            message: message.into(),
        });
        self
    }

    /// Returns the errors if there are any, and otherwise the value.
    ///
    /// # Errors
    /// If there are errors.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// Whether there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors, in the order of their addition.
    pub fn iter(&self) -> impl Iterator<Item = &SettingsError> {
        self.0.iter()
    }
}

impl From<SettingsErrors> for Vec<SettingsError> {
    fn from(errors: SettingsErrors) -> Self {
        errors.0
    }
}

impl std::fmt::Display for SettingsErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            if let Some(field) = &error.field {
                write!(f, "{field}: ")?;
            }
            f.write_str(&error.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsErrors {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Settings {
        limits: BTreeMap<String, Vec<u8>>,
    }

    #[derive(Debug)]
    struct Limits(Settings);

    impl Policy for Limits {
        type Settings = Settings;

        fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
            let mut errors = SettingsErrors::new();
            for (name, values) in &settings.limits {
                if values.is_empty() {
                    errors.at(crate::pointer!["limits", name], "is empty");
                }
            }
            errors.or(Self(settings))
        }
    }

    fn error(settings: &str) -> String {
        configure::<Limits>(settings).unwrap_err().to_string()
    }

    #[test]
    fn settings_become_a_policy() {
        let policy = configure::<Limits>(r#"{"limits": {"a": [1]}}"#).unwrap();
        assert_eq!(policy.0.limits["a"], [1]);
        assert!(configure::<Limits>("{}").is_ok());
    }

    #[test]
    fn a_wrong_value_is_reported_with_its_pointer() {
        assert_eq!(
            error(r#"{"limits": {"a/b": [1, "x"]}}"#),
            "/limits/a~1b/1: invalid type: string \"x\", expected u8"
        );
    }

    #[test]
    fn an_unknown_setting_is_reported_with_its_pointer() {
        assert_eq!(
            error(r#"{"limit": 1}"#),
            "/limit: unknown field `limit`, expected `limits`"
        );
    }

    #[test]
    fn what_is_no_object_is_reported_as_a_whole() {
        assert_eq!(error("{"), "EOF while parsing an object");
        assert_eq!(error("{} x"), "trailing characters");
        assert_eq!(error("[{}]"), "the settings are not an object");
    }

    #[test]
    fn the_policy_reports_several_errors_at_once() {
        assert_eq!(
            error(r#"{"limits": {"a": [], "b": []}}"#),
            "/limits/a: is empty; /limits/b: is empty"
        );
    }
}
