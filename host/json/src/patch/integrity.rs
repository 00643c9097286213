//! Rejects mutations that no plugin may make.
//!
//! kube-apiserver rejects a patched object that Kubernetes cannot decode, or that has become another object. The user
//! gets that error, and the webhook's `failurePolicy` does not apply. Tollgate makes it the plugin's fault instead.
//! Only changes are checked: an object that was invalid before may stay invalid.
//!
//! A whole object as the answer can go wrong in two more ways, which may stay unnoticed for months. The object went
//! through types that do not know all of its fields, or through a language whose numbers are doubles.

mod loss;
mod metadata;

use super::{Operation, Shown};
use crate::document::{Json, Pointer};

/// The form of a mutator's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// Operations or a merge patch. Everything in them is intended.
    Operations,
    /// The whole object. Parts that are missing may have been dropped by mistake.
    WholeObject {
        /// Whether the plugin declared that missing parts are removed on purpose.
        allow_removals: bool,
    },
}

/// A mutation that is not permitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntegrityError {
    /// The result is not an object.
    #[error("the mutated object is of type {found}; expected a Kubernetes object")]
    NotAnObject {
        /// The type of the result.
        found: &'static str,
    },
    /// A field that must stay was changed. The object would become another one, the update would apply to another
    /// version, or the field managers' record would be falsified.
    #[error("{} was changed; a mutation must keep apiVersion, kind and \
        metadata.{{name,namespace,uid,resourceVersion,managedFields}}", Shown(.path))]
    IdentityChanged {
        /// The changed field.
        path: Pointer,
    },
    /// Kubernetes cannot decode the metadata.
    #[error("{} is {found}, which Kubernetes cannot decode; expected {expected}", Shown(.path))]
    MetadataUndecodable {
        /// The invalid field.
        path: Pointer,
        /// The value that Kubernetes decodes there.
        expected: &'static str,
        /// The value that stands there.
        found: &'static str,
    },
    /// A whole object came back without something that it had.
    #[error(
        "the returned object lacks {}, which the original object has, and {others} more; return all fields, answer \
         with a patch, or set allowRemovals if the removal is intended",
        Shown(.path)
    )]
    FieldsDropped {
        /// One of the dropped places. Elements further left in the same arrays may have been dropped before it, which
        /// shifts its indexes.
        path: Pointer,
        /// The number of other dropped places.
        others: usize,
    },
    /// A whole object came back with numbers that are the same double but are written differently.
    #[error(
        "the number at {} was returned with another text but the same value as a double, and {others} more; return \
         numbers unchanged, or answer with a patch",
        Shown(.path)
    )]
    PrecisionLost {
        /// The first of the numbers, as a place in the new object.
        path: Pointer,
        /// The number of other places.
        others: usize,
    },
}

/// Rejects a mutation that is not permitted. `changes` has to be [`diff`](super::diff)`(before, after)`.
///
/// `metadata.generateName` may change: kube-apiserver derives the name from it after admission, and ignores it on
/// update. An absent member and a null member are the same, as in Kubernetes. A change from one to the other is
/// neither a change nor a loss.
///
/// In a whole object, these values count as dropped:
///
/// - A removed member or array element, unless an equal element is added elsewhere in the same array.
/// - A value that became null.
/// - An object or array with content that became another type.
///
/// Any other changed value does not count as dropped.
///
/// # Errors
/// Names the first problem.
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
    /// Whether this is the fault `lossy object`. Otherwise it is `bad patch`.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        matches!(
            self,
            Self::FieldsDropped { .. } | Self::PrecisionLost { .. }
        )
    }

    /// Returns the place of the problem.
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
