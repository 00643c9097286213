//! Judges the objects that exist: by `tollgate scan`, and in the background of a server.
//!
//! ```text
//! inventory   which resources the plugins' rules match
//! object      an object → the CREATE that would make it
//! judge       the server's own pipeline, plugin by plugin → finding, verdict; state: what the next scan uses again
//! report      results → policy reports of bounded size
//! exceptions  results → which exceptions are still needed
//!
//! background  share: which namespaces are this replica's → round: pages, changes, results → writer: reports that differ,
//!             board: counts for readers of the admin listener
//! ```
//!
//! Modes, rules, selectors, conditions and exceptions count as at admission, because the same code decides. Both scans
//! share everything above the line.

pub mod background;
pub mod exceptions;
pub mod finding;
pub mod inventory;
pub mod judge;
pub mod key;
pub mod object;
pub mod report;
pub mod state;
pub mod verdict;
