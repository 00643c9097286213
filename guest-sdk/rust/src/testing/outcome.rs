//! The result of a policy for a test review.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::log::Level;
use crate::{Denial, PatchOperation};

/// The answer of a policy, with its warnings, annotations and log.
#[derive(Debug)]
#[must_use = "a test asserts something of the outcome"]
pub struct Outcome<T> {
    answer: Result<T, Denial>,
    effects: Effects,
}

/// The object after a mutator.
#[derive(Clone, Debug)]
pub struct Mutated {
    pub(super) object: Option<Json>,
    pub(super) operations: Vec<PatchOperation>,
    pub(super) is_changed: bool,
}

/// The warnings, annotations and log of a policy.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    pub(super) warnings: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) logs: Vec<(Level, String)>,
}

// === impl Outcome ===

impl<T> Outcome<T> {
    pub(super) fn new(answer: Result<T, Denial>, effects: Effects) -> Self {
        Self { answer, effects }
    }

    /// Whether the policy did not deny.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.answer.is_ok()
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// The denial.
    pub fn answer(&self) -> Result<&T, &Denial> {
        self.answer.as_ref()
    }

    /// Returns the denial.
    ///
    /// # Panics
    /// If the policy did not deny.
    #[must_use]
    pub fn denial(&self) -> &Denial {
        self.answer.as_ref().err().expect("the policy did not deny")
    }

    /// The causes of the denial, as field (or the empty text) and message. None if the policy did not deny.
    #[must_use]
    pub fn causes(&self) -> Vec<(&str, &str)> {
        let causes = self
            .answer
            .as_ref()
            .err()
            .map(|denial| denial.causes.as_slice())
            .unwrap_or_default();
        causes
            .iter()
            .map(|cause| {
                (
                    cause.field.as_deref().unwrap_or_default(),
                    cause.message.as_str(),
                )
            })
            .collect()
    }

    /// The fields of the denial's causes. None if the policy did not deny.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        self.causes().into_iter().map(|(field, _)| field).collect()
    }

    /// The warnings, in order.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.effects.warnings
    }

    /// The audit annotations.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.effects.annotations
    }

    /// The log, in order.
    #[must_use]
    pub fn logs(&self) -> &[(Level, String)] {
        &self.effects.logs
    }
}

impl Outcome<Mutated> {
    /// Returns the object after the mutation.
    ///
    /// # Panics
    /// If the policy denied, or the review has no object.
    #[must_use]
    pub fn object(&self) -> &Json {
        self.mutated()
            .object
            .as_ref()
            .expect("the review has no object")
    }

    /// Whether the object has changed.
    ///
    /// # Panics
    /// If the policy denied.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.mutated().is_changed
    }

    /// The operations of a JSON Patch. None if the answer was of another kind.
    ///
    /// # Panics
    /// If the policy denied.
    #[must_use]
    pub fn operations(&self) -> &[PatchOperation] {
        &self.mutated().operations
    }

    fn mutated(&self) -> &Mutated {
        match &self.answer {
            Ok(mutated) => mutated,
            Err(denial) => panic!("the policy denied: {}", denial.message),
        }
    }
}

// === impl Effects ===

impl Effects {
    pub(super) const fn none() -> Self {
        Self {
            warnings: Vec::new(),
            annotations: BTreeMap::new(),
            logs: Vec::new(),
        }
    }
}
