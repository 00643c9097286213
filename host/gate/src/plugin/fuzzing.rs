//! Fuzzing access to the lines that the host reads from a child that prepares a plugin.

use super::protocol::{Line, Manifest};

/// Reads a line. Returns the line as this host would write it, and the bounded manifest if the line has one.
#[must_use]
pub fn line(text: &[u8]) -> Option<(Vec<u8>, Option<Manifest>)> {
    let line: Line = serde_json::from_slice(text).ok()?;
    let written = serde_json::to_vec(&line).ok()?;
    let manifest = match line {
        Line::Configured { manifest, .. } => Some(manifest.bounded()),
        _ => None,
    };
    Some((written, manifest))
}
