//! What an evaluation may still cost.
//!
//! A value like any other to CEL: the metered expression hands it to the functions that charge it. Its name cannot
//! be written in an expression.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString, Type};
use cel::common::value::{StaticVal, Val};

/// Under which name it stands in the context.
pub(super) const VARIABLE: &str = "@budget";
/// Text of this length counts as one value.
const BYTES_PER_UNIT: usize = 64;

static TYPE: Type = Type::new_unspecified_type("@budget");

/// What is left, shared by all conditions of a plugin's turn.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicU64>);

// === impl Budget ===

impl Budget {
    pub(super) fn new(units: u64) -> Self {
        Self(Arc::new(AtomicU64::new(units)))
    }

    /// Takes units off; an error, from then on, when there are not so many.
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

    /// Charges for text and bytes by their length, for anything else as for one value.
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

    /// Charges for a value and all that is in it.
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
                // The name.
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

    /// Charges for what `in` looks through: a map is asked for a name, a list is gone through.
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
