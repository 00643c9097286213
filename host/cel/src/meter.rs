//! The cost of an evaluation, in the units of cel-go.

use crate::error::{EvalError, Result};

/// The most that one expression may cost, as in kube-apiserver.
pub const EXPRESSION_LIMIT: u64 = 1_000_000;
/// The most that all expressions of one policy may cost together, as in kube-apiserver.
pub const POLICY_LIMIT: u64 = 10_000_000;
/// The most that the match conditions of one policy may cost together, as in kube-apiserver.
pub const CONDITIONS_LIMIT: u64 = 2_500_000;

/// Counts the cost of one expression.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: u64,
    limit: u64,
}

// === impl Meter ===

impl Meter {
    pub(crate) fn new(limit: u64) -> Self {
        Self { spent: 0, limit }
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Adds a cost.
    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> Result<()> {
        self.spent = self.spent.saturating_add(units);
        if self.spent > self.limit {
            return Err(EvalError::CostLimit);
        }
        Ok(())
    }

    /// Adds the cost of a walk over text: a tenth of its length, rounded up.
    pub(crate) fn charge_text(&mut self, bytes: usize) -> Result<()> {
        self.charge(bytes.div_ceil(10) as u64)
    }

    /// Adds the cost of a product of two sizes, as of a search.
    pub(crate) fn charge_search(&mut self, text: usize, pattern: usize) -> Result<()> {
        let text = (text + 1).div_ceil(10) as u64;
        let pattern = pattern.div_ceil(4).max(1) as u64;
        self.charge(text.saturating_mul(pattern))
    }
}
