//! The results of the floods, as a table.

use std::fmt::Write as _;
use std::time::Duration;

use super::client::Fared;
use super::{ATTACKER, Flood, Setting};

/// The result of one flood.
#[derive(Clone, Debug)]
pub struct Row {
    /// The flood that was run.
    pub flood: Flood,
    /// Whether the attack came from another address than the client.
    pub other_address: bool,
    /// Results of the well-behaved client.
    pub fared: Fared,
    /// The server's peak memory, in KiB.
    pub peak_kib: u64,
    /// Further remarks.
    pub note: String,
}

// === impl Row ===

impl Row {
    pub(super) fn new(flood: Flood, setting: &Setting, fared: Fared, peak_kib: u64) -> Self {
        Self {
            flood,
            other_address: setting.source == ATTACKER,
            fared,
            peak_kib,
            note: String::new(),
        }
    }

    /// Formats the row of a table, with the name of the binary.
    #[must_use]
    pub fn line(&self, binary: &str) -> String {
        let Fared {
            failed, retried, ..
        } = self.fared;
        let time = |percent| {
            self.fared
                .percentile(percent)
                .map_or("–".to_owned(), milliseconds)
        };
        let source = match self.flood.has_source() {
            false => "–",
            true if self.other_address => "other",
            true => "same",
        };
        let mut line = String::new();
        let _infallible = write!(
            line,
            "| {} | {source} | {binary} | {} | {failed} | {retried} | {} | {} | {} | {} | {} |",
            self.flood.name(),
            self.fared.answered(),
            time(50),
            time(99),
            time(100),
            self.peak_kib / 1024,
            self.note,
        );
        line
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1000.0)
}

/// The head of the table.
#[must_use]
pub fn markdown() -> &'static str {
    "| flood | address | binary | answered | failed | tried again | p50 ms | p99 ms | longest ms | peak MiB | note |\n\
     |---|---|---|---|---|---|---|---|---|---|---|"
}
