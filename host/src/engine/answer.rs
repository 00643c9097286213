//! What a plugin answered, read once and strictly.

use super::bindings::types::{self, NewValue, PatchOperation, PlaceValue, Verdict};
use super::call::{CallError, Overload};
use super::fault::Fault;
use super::host::cut;
use super::secrecy::{Secrecy, WITHHELD};
use crate::config::Limits;
use crate::document::{Account, Json, NoRoom, ParseError, ParseErrorKind, Pointer, parse_within};
use crate::patch::Operation;
use crate::pipeline::outcome::{Cause, Denial};

/// What a plugin answered.
#[derive(Debug)]
pub enum Answer {
    /// `mutate`: leave the object as it is.
    Unchanged,
    /// `mutate`: change it. The account has what the decoded answer takes.
    Mutation(Mutation, Account),
    /// `validate`: let it pass.
    Allow,
    /// Either: refuse the request.
    Deny(Denial),
}

/// How a mutator wants the object changed.
#[derive(Debug)]
pub enum Mutation {
    /// By RFC 6902 operations.
    Operations(Vec<Operation>),
    /// By an RFC 7386 merge patch.
    MergePatch(Json),
    /// Into this.
    Object(Json),
}

/// An answer as the bindings have it: read when the guest's time has stopped.
pub(super) enum RawAnswer {
    Mutation(types::Mutation),
    Verdict(Verdict),
}

/// Containers nested deeper than this are refused in an answer; what the object may have in all is checked when
/// the answer is applied.
const MAX_DEPTH: u32 = 512;
/// Causes beyond this are dropped from a denial: kubectl prints them one to a line.
const MAX_CAUSES: usize = 256;

// === impl RawAnswer ===

impl RawAnswer {
    /// Reads the answer. `object` is what the plugin was shown; `memory` is the review's.
    pub(super) fn read(
        self,
        secrecy: Secrecy,
        object: Option<&Json>,
        limits: &Limits,
        memory: &Account,
    ) -> Result<Answer, CallError> {
        let memory = memory.part();
        match self {
            Self::Verdict(Verdict::Allow) => Ok(Answer::Allow),
            Self::Mutation(types::Mutation::Unchanged) => Ok(Answer::Unchanged),
            Self::Verdict(Verdict::Deny(denial))
            | Self::Mutation(types::Mutation::Deny(denial)) => {
                Ok(Answer::Deny(read_denial(denial, secrecy, object)))
            }
            Self::Mutation(types::Mutation::JsonPatch(operations)) => {
                let operations = read_operations(operations, limits, &memory)?;
                Ok(Answer::Mutation(Mutation::Operations(operations), memory))
            }
            Self::Mutation(types::Mutation::MergePatch(text)) => {
                let patch =
                    read_json(&text, &memory).map_err(|error| bad("its merge patch", &error))?;
                Ok(Answer::Mutation(Mutation::MergePatch(patch), memory))
            }
            Self::Mutation(types::Mutation::Object(text)) => {
                let object = read_json(&text, &memory)
                    .map_err(|error| bad("the object that it answered", &error))?;
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
            "a patch of {} operations; it may have {limit} (limits.patchOperations)",
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
        // A reason is a word of the plugin's own choosing too.
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
