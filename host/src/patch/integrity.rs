//! What a mutation may not do, whatever its plugin says.
//!
//! A patched object that Kubernetes cannot decode, or that is suddenly another object, is refused by
//! kube-apiserver in the user's face and past the webhook's `failurePolicy`. Here it is the plugin's fault
//! instead. Only what changed is looked at: an object that came in odd may go out odd.
//!
//! A whole object as the answer has two more ways to go wrong that nobody notices for months: it went through
//! types that do not know all of its fields, or through a language whose numbers are doubles.

mod loss;
mod metadata;

use super::{Operation, Shown};
use crate::document::{Json, Pointer};

/// In which form a mutator gave its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// Operations or a merge patch: everything in it was meant.
    Operations,
    /// The object as it should be: what is not in it may have been dropped unawares.
    WholeObject {
        /// Whether the plugin declared that what is missing is meant to be.
        allow_removals: bool,
    },
}

/// A mutation that must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntegrityError {
    /// What came out is no object.
    #[error("the mutated object is of type {found}; a Kubernetes object was expected")]
    NotAnObject {
        /// Its type.
        found: &'static str,
    },
    /// The object would be another one, the update one of another version, or its field managers' record be falsified.
    #[error("{} was changed; a mutation keeps apiVersion, kind and metadata.{{name,namespace,uid,resourceVersion,managedFields}}", Shown(.path))]
    IdentityChanged {
        /// The field.
        path: Pointer,
    },
    /// Kubernetes cannot decode the metadata.
    #[error("{} is {found} and Kubernetes cannot decode that; it has to be {expected}", Shown(.path))]
    MetadataUndecodable {
        /// The field.
        path: Pointer,
        /// What Kubernetes decodes there.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// A whole object came back without something that it had.
    #[error(
        "the returned object lacks {}, which the object had, and {others} more; return all fields, answer with a \
         patch, or set allowRemovals if it was meant to go",
        Shown(.path)
    )]
    FieldsDropped {
        /// One of the places; what stands left of it in the same arrays may have been dropped already.
        path: Pointer,
        /// How many there are besides.
        others: usize,
    },
    /// A whole object came back with numbers that are the same double but were written otherwise.
    #[error(
        "the number at {} came back with another text but the same value as a double, and so did {others} more; \
         pass numbers through unchanged, or answer with a patch",
        Shown(.path)
    )]
    PrecisionLost {
        /// The first of the numbers, in the object as it is after.
        path: Pointer,
        /// How many there are besides.
        others: usize,
    },
}

/// Refuses a mutation that must not be. `changes` has to be [`diff`](super::diff)`(before, after)`.
///
/// `metadata.generateName` may change: kube-apiserver derives the name from it after admission, and on update
/// does not look at it. For Kubernetes an absent member and a null one are the same, and here too: neither
/// counts as changed into the other, nor as dropped.
///
/// In a whole object, a member or an array element that `changes` remove counts as dropped, unless an equal
/// element comes elsewhere in the same array; and a value that became null. A value that became another one does
/// not, save an object or array with content that became something else.
///
/// # Errors
/// Names the first thing that is wrong.
pub fn check(
    before: &Json,
    after: &Json,
    changes: &[Operation],
    form: AnswerForm,
) -> Result<(), IntegrityError> {
    if before.is_same(after) || changes.is_empty() {
        return Ok(());
    }
    if after.as_object().is_none() {
        return Err(IntegrityError::NotAnObject {
            found: after.type_name(),
        });
    }
    metadata::check(before, after)?;
    match form {
        AnswerForm::Operations => Ok(()),
        AnswerForm::WholeObject { allow_removals } => loss::check(before, changes, allow_removals),
    }
}

// === impl IntegrityError ===

impl IntegrityError {
    /// Whether this is the fault `lossy object`; otherwise it is `bad patch`.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        matches!(
            self,
            Self::FieldsDropped { .. } | Self::PrecisionLost { .. }
        )
    }

    /// The place that it is about.
    #[must_use]
    pub fn path(&self) -> Pointer {
        match self {
            Self::NotAnObject { .. } => Pointer::root(),
            Self::IdentityChanged { path }
            | Self::MetadataUndecodable { path, .. }
            | Self::FieldsDropped { path, .. }
            | Self::PrecisionLost { path, .. } => path.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
