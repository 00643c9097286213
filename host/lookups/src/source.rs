//! Where tables come from.

use std::fmt;
use std::sync::Arc;

use tollgate_config::lookup::Lookup;

use crate::table::Table;

/// Gives the table of a lookup, and starts to fill it. Implemented by files and by the cluster.
///
/// Equal lookups share one table. A source may stop to fill a table that nobody holds any more.
pub trait Tables: fmt::Debug + Send + Sync {
    /// Returns the table of a lookup. The table may not be synchronised yet.
    ///
    /// # Errors
    /// When this source can never have the objects. The text says why, and what to do about it.
    fn table(&self, lookup: &Lookup) -> Result<Arc<Table>, String>;
}

/// No source of tables.
#[derive(Clone, Debug)]
pub struct NoTables {
    reason: String,
}

// === impl NoTables ===

impl NoTables {
    /// Creates a source that has nothing. `reason` says why, and what to do about it.
    #[must_use]
    pub fn because(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
        }
    }
}

impl Tables for NoTables {
    fn table(&self, _lookup: &Lookup) -> Result<Arc<Table>, String> {
        Err(self.reason.clone())
    }
}
