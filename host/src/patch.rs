//! Patches: what a mutator asked for, applied strictly; what it came to, written minimally; who wrote what.
//!
//! ```text
//!   a plugin's answer ──► Operation::parse_all ──► apply ─┐
//!                    └──► merge_patch ────────────────────┤
//!                    └──► a whole object ─────────────────┤
//!                                                         ▼
//!   before ───────────────────────► diff(before, after) ──► integrity::check    may a mutation do that?
//!                                            │
//!                                            ├────────────► Provenance::record  whose writes did it undo?
//!                                            ▼
//!   original ─────────────────────► diff(original, final)   the one patch that leaves the host
//! ```
//!
//! Why two vocabularies: a plugin may use all of RFC 6902, while what leaves the host is `add`, `replace` and
//! `remove` only, in the subset that strict RFC 6902 and kube-apiserver's library read alike. No plugin's own
//! text gets out; only the difference that it made does.

mod apply;
mod diff;
mod integrity;
mod measure;
mod merge_patch;
mod operation;
mod provenance;

pub use apply::{ApplyError, ApplyErrorKind, ApplyLimits, apply, apply_within};
pub use diff::diff;
pub use integrity::{AnswerForm, IntegrityError, check};
pub use merge_patch::{merge_patch, merge_patch_within};
pub use operation::{Operation, OperationError, OperationErrorKind, write_all};
pub use provenance::{Conflict, Provenance};

use std::fmt;

use crate::document::Pointer;

/// A pointer as messages show it: whole up to 256 bytes. A patch chooses its own paths, and one of a megabyte
/// must not become a log line.
struct Shown<'p>(&'p Pointer);

// === impl Shown ===

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LIMIT_BYTES: usize = 256;
        let text = self.0.as_str();
        if text.is_empty() {
            return f.write_str("the root (\"\")");
        }
        if text.len() <= LIMIT_BYTES {
            return write!(f, "`{}`", text.escape_debug());
        }
        let end = text.floor_char_boundary(LIMIT_BYTES);
        write!(
            f,
            "`{}…` ({} bytes)",
            text[..end].escape_debug(),
            text.len()
        )
    }
}
