//! Reads a plugin's answer strictly, after the call has ended.

use tollgate_admission::{Cause, Denial};
use tollgate_config::Limits;
use tollgate_json::document::{
    Account, Json, NoRoom, ParseError, ParseErrorKind, Pointer, parse_within,
};
use tollgate_json::patch::Operation;

use super::bindings::types::{self, NewValue, PatchOperation, PlaceValue, Verdict};
use super::call::{CallError, Overload};
use super::fault::Fault;
use super::host::cut;
use super::secrecy::{Secrecy, WITHHELD};

/// A plugin's answer to a review.
#[derive(Debug)]
pub enum Answer {
    /// `mutate`: leave the object unchanged.
    Unchanged,
    /// `mutate`: change the object. The account holds the memory of the decoded answer.
    Mutation(Mutation, Account),
    /// `validate`: allow the request.
    Allow,
    /// `mutate` or `validate`: deny the request.
    Deny(Denial),
}

/// How a mutator wants to change the object.
#[derive(Debug)]
pub enum Mutation {
    /// Apply RFC 6902 operations.
    Operations(Vec<Operation>),
    /// Apply an RFC 7386 merge patch.
    MergePatch(Json),
    /// Replace the object with this one.
    Object(Json),
}

/// An answer in the types of the bindings. The host reads it after the guest has stopped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RawAnswer {
    Mutation(types::Mutation),
    Verdict(Verdict),
}

/// Maximum nesting of containers in an answer. The limit for the whole object is checked when the answer is applied.
const MAX_DEPTH: u32 = 512;
/// Maximum number of causes in a denial; the rest are dropped. kubectl prints one cause per line.
const MAX_CAUSES: usize = 256;

// === impl RawAnswer ===

impl RawAnswer {
    /// The length of its texts, about.
    pub(super) fn bytes(&self) -> usize {
        const SMALL: usize = 64;
        let place = |PlaceValue { path, value }: &PlaceValue| {
            let (NewValue::Json(value) | NewValue::Text(value)) = value;
            SMALL + path.len() + value.len()
        };
        match self {
            Self::Verdict(Verdict::Allow) | Self::Mutation(types::Mutation::Unchanged) => 0,
            Self::Verdict(Verdict::Deny(denial))
            | Self::Mutation(types::Mutation::Deny(denial)) => {
                let causes = denial.causes.iter().map(|cause| {
                    let field = cause.field.as_ref().map_or(0, String::len);
                    2 * SMALL + field + cause.message.len()
                });
                SMALL + denial.message.len() + causes.sum::<usize>()
            }
            Self::Mutation(types::Mutation::JsonPatch(operations)) => {
                let operations = operations.iter().map(|operation| match operation {
                    PatchOperation::Add(at)
                    | PatchOperation::Replace(at)
                    | PatchOperation::Test(at) => place(at),
                    PatchOperation::Remove(path) => SMALL + path.len(),
                    PatchOperation::Move(places) | PatchOperation::Copy(places) => {
                        SMALL + places.from.len() + places.path.len()
                    }
                });
                operations.sum()
            }
            Self::Mutation(types::Mutation::MergePatch(text) | types::Mutation::Object(text)) => {
                text.len()
            }
        }
    }

    /// Reads the answer.
    ///
    /// `object` is the object as the user sent it; its names may be repeated in texts. `memory` opens an account
    /// for one document of the review. Most answers have no document.
    pub(crate) fn read(
        self,
        secrecy: Secrecy,
        object: Option<&Json>,
        limits: &Limits,
        memory: impl FnOnce() -> Account,
    ) -> Result<Answer, CallError> {
        match self {
            Self::Verdict(Verdict::Allow) => Ok(Answer::Allow),
            Self::Mutation(types::Mutation::Unchanged) => Ok(Answer::Unchanged),
            Self::Verdict(Verdict::Deny(denial))
            | Self::Mutation(types::Mutation::Deny(denial)) => {
                Ok(Answer::Deny(read_denial(denial, secrecy, object)))
            }
            Self::Mutation(types::Mutation::JsonPatch(operations)) => {
                let memory = memory();
                let operations = read_operations(operations, limits, &memory)?;
                Ok(Answer::Mutation(Mutation::Operations(operations), memory))
            }
            Self::Mutation(types::Mutation::MergePatch(text)) => {
                let memory = memory();
                let patch =
                    read_json(&text, &memory).map_err(|error| bad("the merge patch", &error))?;
                Ok(Answer::Mutation(Mutation::MergePatch(patch), memory))
            }
            Self::Mutation(types::Mutation::Object(text)) => {
                let memory = memory();
                let object = read_json(&text, &memory)
                    .map_err(|error| bad("the returned object", &error))?;
                Ok(Answer::Mutation(Mutation::Object(object), memory))
            }
        }
    }
}

fn read_operations(
    operations: Vec<PatchOperation>,
    limits: &Limits,
    memory: &Account,
) -> Result<Vec<Operation>, CallError> {
    let limit = limits.patch_operations as usize;
    if operations.len() > limit {
        let what = format!(
            "the patch has {} operations; the limit is {limit} (limits.patchOperations)",
            operations.len()
        );
        return Err(Fault::OutputTooLarge { what }.into());
    }
    operations
        .into_iter()
        .enumerate()
        .map(|(index, operation)| read_operation(index, operation, memory))
        .collect()
}

fn read_operation(
    index: usize,
    operation: PatchOperation,
    memory: &Account,
) -> Result<Operation, CallError> {
    let pointer = |text: &str| {
        Pointer::parse(text).map_err(|error| Fault::BadPatch {
            what: format!("operation {index}: `{}`: {error}", cut(text.to_owned())),
        })
    };
    let placed = |PlaceValue { path, value }: PlaceValue| -> Result<(Pointer, Json), CallError> {
        let path = pointer(&path)?;
        let value = match value {
            NewValue::Text(text) => Json::text(&text),
            NewValue::Json(text) => read_json(&text, memory)
                .map_err(|error| bad(&format!("operation {index} at `{path}`"), &error))?,
        };
        Ok((path, value))
    };
    Ok(match operation {
        PatchOperation::Add(place) => {
            let (path, value) = placed(place)?;
            Operation::Add { path, value }
        }
        PatchOperation::Replace(place) => {
            let (path, value) = placed(place)?;
            Operation::Replace { path, value }
        }
        PatchOperation::Test(place) => {
            let (path, value) = placed(place)?;
            Operation::Test { path, value }
        }
        PatchOperation::Remove(path) => Operation::Remove {
            path: pointer(&path)?,
        },
        PatchOperation::Move(places) => Operation::Move {
            from: pointer(&places.from)?,
            path: pointer(&places.path)?,
        },
        PatchOperation::Copy(places) => Operation::Copy {
            from: pointer(&places.from)?,
            path: pointer(&places.path)?,
        },
    })
}

fn read_json(text: &str, memory: &Account) -> Result<Json, ParseError> {
    parse_within(text.as_bytes(), MAX_DEPTH, memory)
}

fn bad(where_: &str, error: &ParseError) -> CallError {
    let what = format!("{where_}: {error}");
    match error.kind {
        ParseErrorKind::NoRoom(NoRoom::Crowded) => CallError::Overload(Overload),
        ParseErrorKind::NoRoom(NoRoom::TooLarge { .. }) => Fault::OutputTooLarge { what }.into(),
        _ => Fault::BadPatch { what }.into(),
    }
}

fn read_denial(denial: types::Denial, secrecy: Secrecy, object: Option<&Json>) -> Denial {
    let withheld = secrecy.withholds();
    let text = |text: String| secrecy.text(cut(text));
    Denial {
        message: text(denial.message),
        code: denial.code.filter(|_| !withheld),
        // The plugin chooses the reason freely, so the reason is withheld too.
        reason: denial.reason.filter(|_| !withheld).map(cut),
        causes: denial
            .causes
            .into_iter()
            .take(MAX_CAUSES)
            .map(|cause| Cause {
                field: cause
                    .field
                    .map(|field| cut(secrecy.pointer(&field, object))),
                message: if withheld {
                    WITHHELD.to_owned()
                } else {
                    cut(cause.message)
                },
                reason: cause.reason.filter(|_| !withheld).map(cut),
            })
            .collect(),
    }
}
