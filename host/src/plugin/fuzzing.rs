//! For fuzzing: what the host reads of a child that prepares a plugin.

use super::protocol::{Line, Manifest};

/// Reads a line; the same line as this host writes it, and the manifest in it, within its bounds.
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
