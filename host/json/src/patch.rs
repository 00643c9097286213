//! Patches: applies a mutator's answer strictly, writes the result minimally, and records which plugin wrote what.
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
//! The module has two vocabularies. A plugin may use all of RFC 6902. The patch that leaves the host uses only `add`,
//! `replace` and `remove`, in the subset that strict RFC 6902 and kube-apiserver's library read alike. A plugin's own
//! text never leaves the host; only the difference that it made does.

mod apply;
mod diff;
mod integrity;
mod measure;
mod merge_patch;
mod operation;
mod provenance;

pub use apply::{ApplyError, ApplyErrorKind, ApplyLimits, apply, apply_within};
pub use diff::{diff, diff_within};
pub use integrity::{AnswerForm, IntegrityError, check};
pub use merge_patch::{merge_patch, merge_patch_within};
pub use operation::{Operation, OperationError, OperationErrorKind, write_all};
pub use provenance::{Conflict, Provenance};

use std::fmt;

use crate::document::Pointer;

/// A pointer for messages, cut after 256 bytes. A patch chooses its own paths, and a path of a megabyte must not
/// become a log line.
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
