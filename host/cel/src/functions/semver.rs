//! Kubernetes' semantic versions.

use std::cmp::Ordering;

use super::{Native, text};
use crate::error::{EvalError, Result};
use crate::value::Value;

/// A semantic version. The build metadata does not count in a comparison.
#[derive(Clone, Debug)]
pub struct Version {
    numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Identifier {
    /// A number is lower than text.
    Number(u64),
    Text(String),
}

pub(super) fn lookup(name: &str, is_member: bool) -> Option<Native> {
    Some(match (name, is_member) {
        ("semver", false) => {
            |args, _| Ok(Value::Semver(read(args)?.map_err(EvalError::new)?.into()))
        }
        ("isSemver", false) => |args, _| Ok(Value::Bool(read(args)?.is_ok())),
        ("major", true) => |args, _| number(&args[0], 0),
        ("minor", true) => |args, _| number(&args[0], 1),
        ("patch", true) => |args, _| number(&args[0], 2),
        _ => return None,
    })
}

fn number(value: &Value, index: usize) -> Result<Value> {
    match value {
        Value::Semver(version) => Ok(Value::Int(
            i64::try_from(version.numbers[index]).unwrap_or(i64::MAX),
        )),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn read(args: &[Value]) -> Result<std::result::Result<Version, String>> {
    let written = text(&args[0])?;
    let normalize = match args.get(1) {
        None => false,
        Some(Value::Bool(normalize)) => *normalize,
        Some(_) => return Err(EvalError::no_such_overload()),
    };
    if !normalize {
        return Ok(Version::parse(written));
    }
    Ok(normalized(written).and_then(|written| Version::parse(&written)))
}

/// Fills up a short version and removes a leading `v` and leading zeros.
fn normalized(written: &str) -> std::result::Result<String, String> {
    let written = written.strip_prefix('v').unwrap_or(written);
    let mut parts: Vec<String> = written
        .splitn(3, '.')
        .map(|part| {
            if part.len() < 2 {
                return part.to_owned();
            }
            let stripped = part.trim_start_matches('0');
            if stripped.starts_with(|first: char| first.is_ascii_digit()) {
                stripped.to_owned()
            } else {
                format!("0{stripped}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

// === impl Version ===

impl Version {
    /// Reads a version.
    ///
    /// # Errors
    /// The problem.
    pub fn parse(written: &str) -> std::result::Result<Self, String> {
        if written.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let (rest, build) = match written.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (written, None),
        };
        let (core, pre_release) = match rest.split_once('-') {
            Some((core, pre_release)) => (core, Some(pre_release)),
            None => (rest, None),
        };
        let parts: Vec<&str> = core.split('.').collect();
        let [major, minor, patch] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let number = |part: &str, name: &str| -> std::result::Result<u64, String> {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!(
                    "Invalid character(s) found in {name} number {part:?}"
                ));
            }
            if part.len() > 1 && part.starts_with('0') {
                return Err(format!(
                    "{name} number must not contain leading zeroes {part:?}"
                ));
            }
            part.parse()
                .map_err(|_| format!("{name} number is too large"))
        };
        let numbers = [
            number(major, "major")?,
            number(minor, "minor")?,
            number(patch, "patch")?,
        ];
        let is_identifier = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if let Some(build) = build
            && !build.split('.').all(is_identifier)
        {
            return Err(format!(
                "Invalid character(s) found in build meta data {build:?}"
            ));
        }
        let mut identifiers = Vec::new();
        for part in pre_release.into_iter().flat_map(|text| text.split('.')) {
            if !is_identifier(part) {
                return Err(format!("Invalid character(s) found in prerelease {part:?}"));
            }
            identifiers.push(if part.bytes().all(|byte| byte.is_ascii_digit()) {
                Identifier::Number(number(part, "Numeric PreRelease version")?)
            } else {
                Identifier::Text(part.to_owned())
            });
        }
        Ok(Self {
            numbers,
            pre_release: identifiers,
        })
    }

    /// Compares two versions by their precedence.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, true) => Ordering::Equal,
                // A release is higher than its pre-releases.
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre_release.cmp(&other.pre_release),
            }
        })
    }
}
