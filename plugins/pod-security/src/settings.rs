//! The settings: a level, a version, and the action for templates.

use std::fmt;

use serde::Deserialize;

/// The newest version that this plugin defines: Kubernetes 1.37.
pub(crate) const NEWEST_MINOR: u8 = 37;

/// The settings as the configuration has them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    level: Level,
    version: Version,
    pub(crate) templates: Templates,
}

/// The strictness of a standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Allows everything.
    Privileged,
    /// Allows ordinary Pods, and forbids known ways to more privileges.
    #[default]
    Baseline,
    /// Allows only hardened Pods.
    Restricted,
}

/// The version that defines a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Version {
    #[default]
    Latest,
    /// Kubernetes 1.N.
    Minor(u8),
}

/// The action for an object whose template violates the standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Templates {
    /// Warns the user. The Pods themselves are denied on creation.
    #[default]
    Warn,
    /// Denies the object.
    Deny,
}

/// A level in one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standard {
    pub(crate) level: Level,
    version: Version,
}

// === impl Settings ===

impl Settings {
    pub(crate) fn standard(&self) -> Standard {
        Standard {
            level: self.level,
            version: self.version,
        }
    }
}

// === impl Level ===

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

// === impl Version ===

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").and_then(|minor| {
            let is_number = minor == "0"
                || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
            minor.parse().ok().filter(|_| is_number)
        });
        match minor {
            Some(minor) if minor <= NEWEST_MINOR => Ok(Self::Minor(minor)),
            _ => Err(format!(
                "`{text}` is no version of the standards: must be `latest` or one of v1.0 to v1.{NEWEST_MINOR}"
            )),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

// === impl Standard ===

impl Standard {
    pub(crate) fn minor(&self) -> u8 {
        match self.version {
            Version::Latest => NEWEST_MINOR,
            Version::Minor(minor) => minor,
        }
    }
}

/// Writes the standard like Kubernetes: `restricted:v1.24`.
impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}
