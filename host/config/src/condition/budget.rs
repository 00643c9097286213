//! The remaining budget of an evaluation.
//!
//! For CEL, the budget is an ordinary value. The metered expression passes it to the functions that charge it.
//! An expression of an operator cannot contain its name.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString, Type};
use cel::common::value::{StaticVal, Val};

/// The name of the budget in the context.
pub(super) const VARIABLE: &str = "@budget";
/// Length of text that costs one unit.
const BYTES_PER_UNIT: usize = 64;

static TYPE: Type = Type::new_unspecified_type("@budget");

/// The remaining units, shared by all conditions of a plugin's turn.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicU64>);

// === impl Budget ===

impl Budget {
    pub(super) fn new(units: u64) -> Self {
        Self(Arc::new(AtomicU64::new(units)))
    }

    /// Subtracts units. Returns an error once no units are left.
    pub(super) fn charge(&self, units: usize) -> Result<(), ExecutionError> {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        let left = self.0.load(Ordering::Relaxed).saturating_sub(units);
        self.0.store(left, Ordering::Relaxed);
        if left == 0 {
            return Err(ExecutionError::function_error(VARIABLE, "spent"));
        }
        Ok(())
    }

    pub(super) fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Charges for text and bytes by their length. Any other value costs one unit.
    pub(super) fn weigh_text(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        let bytes = if let Some(text) = value.downcast_ref::<CelString<'_>>() {
            text.inner().len()
        } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
            bytes.inner().len()
        } else {
            0
        };
        self.charge(1 + bytes / BYTES_PER_UNIT)
    }

    /// Charges for a value and everything in it.
    pub(super) fn weigh(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        if let Some(list) = value.downcast_ref::<CelList<'_>>() {
            self.charge(1)?;
            return list
                .inner()
                .iter()
                .try_for_each(|element| self.weigh(element.as_ref()));
        }
        if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
            self.charge(1)?;
            return map.inner().values().try_for_each(|member| {
                // Each member's name costs one unit.
                self.charge(1)?;
                self.weigh(member.as_ref())
            });
        }
        if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
            self.charge(1)?;
            return optional.option().map_or(Ok(()), |inner| self.weigh(inner));
        }
        if let Some(list) = value.as_iterable() {
            let mut elements = list.iter();
            while let Some(element) = elements.next() {
                self.weigh(element)?;
            }
        }
        self.weigh_text(value)
    }

    /// Charges for the right side of `in`. A look-up in a map costs one unit. A list costs its whole size.
    pub(super) fn weigh_container(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        if value.downcast_ref::<CelMap<'_>>().is_some() {
            self.charge(1)
        } else {
            self.weigh(value)
        }
    }
}

impl Val for Budget {
    fn get_type(&self) -> &Type {
        &TYPE
    }

    fn cel_type() -> &'static Type {
        &TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Budget {}
