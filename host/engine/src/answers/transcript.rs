//! The questions of a call to the review, and their answers.

use std::ops::ControlFlow;
use std::slice::from_ref;
use std::sync::Arc;

use tollgate_admission::namespaces::{Namespaces, OfRequest};
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::{Json, Pattern, PointerError};

use crate::FUEL_PER_NODE;
use crate::bindings::review::Part;
use crate::fault::Stop;
use crate::host::{fuel_of_match, text_bytes};
use crate::namespaces::namespace_now;
use crate::state::Subject;
use crate::values::{Node, Value};

/// The questions of one call and their answers, in order.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(super) asked: Vec<(Question, Told)>,
    /// The length of all texts. More than [`MOST_BYTES`] means that the call is not kept.
    bytes: usize,
    /// Number of calls of host functions that tell nothing, such as `warn`.
    said: u32,
}

/// A question about the review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Get(Part, Box<str>),
    GetJson(Part, Box<str>),
    GetMany(Part, Box<[Box<str>]>),
    Keys(Part, Box<str>),
    Select(Part, Box<str>),
}

/// The answer of a host function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Value(Option<Scalar>),
    Values(Box<[Option<Scalar>]>),
    Json(Option<Box<str>>),
    Names(Option<Box<[Box<str>]>>),
    /// The values of `select`, and the fuel that looking for them uses. It depends on values that are not among them.
    Nodes {
        nodes: Box<[(Box<str>, Scalar)]>,
        fuel: u64,
    },
}

/// A value of the contract. Numbers are compared by their bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(u64),
    Text(Box<str>),
    Array(u32),
    Object(u32),
}

/// Maximum number of questions of a call that is kept.
const MOST_QUESTIONS: usize = 64;
/// Maximum length of all texts of a call that is kept, in bytes. Longer ones hardly ever come again.
const MOST_BYTES: usize = 8 << 10;

// === impl Transcript ===

impl Transcript {
    /// Writes down a question and its answer, whose texts have this length. If that is too much, neither is computed, and
    /// the transcript is not complete.
    pub(crate) fn adds(&mut self, bytes: usize, entry: impl FnOnce() -> (Question, Told)) {
        if self.asked.len() >= MOST_QUESTIONS || self.bytes.saturating_add(bytes) > MOST_BYTES {
            return;
        }
        let (question, told) = entry();
        self.bytes += question.bytes() + told.bytes();
        self.asked.push((question, told));
    }

    /// Counts the call of a host function that tells nothing.
    pub(crate) fn says(&mut self) {
        self.said += 1;
    }

    /// Whether the transcript is short, and has all calls of host functions.
    pub(crate) fn is_complete(&self, host_calls: u32) -> bool {
        let written = self.asked.len() as u64 + u64::from(self.said);
        self.bytes <= MOST_BYTES && written == u64::from(host_calls)
    }

    /// The length of its texts.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

// === impl Question ===

impl Question {
    /// Asks a review. None if there is no answer without waiting, or one that is too long to be among those of kept calls.
    /// `most_fuel` is what the longest search for a kept answer has used.
    pub(super) fn ask(
        &self,
        subject: &Subject,
        namespaces: &dyn Namespaces,
        most_fuel: u64,
    ) -> Option<Told> {
        let (Self::Get(part, _)
        | Self::GetJson(part, _)
        | Self::GetMany(part, _)
        | Self::Keys(part, _)
        | Self::Select(part, _)) = self;
        let document = document(subject, namespaces, *part).ok()?;
        let find = |at: &str| match &document {
            Some(document) => document.at(at).ok(),
            None => Some(None),
        };
        let short = |value: &Json| text_bytes(value) <= MOST_BYTES;
        Some(match self {
            Self::Get(_, at) => {
                let value = find(at)?;
                if !value.is_none_or(short) {
                    return None;
                }
                Told::value(value)
            }
            Self::GetMany(_, pointers) => {
                let mut values = Vec::with_capacity(pointers.len());
                for at in pointers {
                    let value = find(at)?;
                    if !value.is_none_or(short) {
                        return None;
                    }
                    values.push(value.map(Scalar::of));
                }
                Told::Values(values.into())
            }
            Self::GetJson(_, at) => match find(at)? {
                Some(value) => Told::Json(Some(value.to_text_within(MOST_BYTES)?.into())),
                None => Told::Json(None),
            },
            Self::Keys(_, at) => match find(at)?.and_then(Json::as_object) {
                Some(members) => {
                    // Each name counts as much, even if it is empty.
                    if members.len() > MOST_BYTES / size_of::<Box<str>>() {
                        return None;
                    }
                    Told::names(Some(members.keys().map(|name| &**name)))
                }
                None => Told::Names(None),
            },
            Self::Select(_, pattern) => match &document {
                Some(document) => select(document.whole(), pattern, most_fuel)?,
                None => Told::Nodes {
                    nodes: Box::default(),
                    fuel: 0,
                },
            },
        })
    }

    /// Whether a review gives this answer to the question. Copies nothing, unlike [`Question::ask`]. None if only that one can
    /// tell.
    pub(super) fn is_told(
        &self,
        told: &Told,
        subject: &Subject,
        namespaces: &dyn Namespaces,
    ) -> Option<bool> {
        let (part, pointers, told) = match (self, told) {
            (Self::Get(part, at), Told::Value(told)) => (part, from_ref(at), from_ref(told)),
            (Self::GetMany(part, pointers), Told::Values(told)) => (part, &**pointers, &**told),
            _ => return None,
        };
        let document = document(subject, namespaces, *part).ok()?;
        let mut both = pointers.iter().zip(told);
        let are_same = both.all(|(at, told)| {
            let value = match &document {
                Some(document) => document.at(at),
                None => Ok(None),
            };
            match (told, value) {
                (Some(told), Ok(Some(value))) => told.is(value),
                (None, Ok(None)) => true,
                _ => false,
            }
        });
        Some(are_same && pointers.len() == told.len())
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Get(_, at) | Self::GetJson(_, at) | Self::Keys(_, at) | Self::Select(_, at) => {
                at.len()
            }
            Self::GetMany(_, pointers) => pointers
                .iter()
                .map(|at| at.len() + size_of::<Box<str>>())
                .sum(),
        }
    }
}

/// Does what the host function `select` does, up to some fuel.
fn select(document: &Json, pattern: &str, most_fuel: u64) -> Option<Told> {
    let tokens = Pattern::parse(pattern).ok()?;
    let spent = std::cell::Cell::new(0u64);
    let pay = |amount: u64| {
        spent.set(spent.get().saturating_add(amount));
        match spent.get() <= most_fuel {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    let mut nodes = Vec::new();
    let end = tokens.select(
        document,
        || pay(FUEL_PER_NODE),
        |node| {
            pay(fuel_of_match(&node))?;
            nodes.push((node.pointer.into_boxed_str(), Scalar::of(node.value)));
            ControlFlow::Continue(())
        },
    );
    match end {
        ControlFlow::Continue(()) => Some(Told::Nodes {
            nodes: nodes.into(),
            fuel: spent.get(),
        }),
        ControlFlow::Break(()) => None,
    }
}

/// A document of the review.
pub(crate) enum Document {
    Json(Json),
    /// The AdmissionRequest. It is not made into a document for the sake of single values.
    Request(Arc<AdmissionRequest>),
}

// === impl Document ===

impl Document {
    /// Returns the value at a pointer.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub(crate) fn at(&self, pointer: &str) -> Result<Option<&Json>, PointerError> {
        match self {
            Self::Json(document) => document.at(pointer),
            Self::Request(request) => request.document.at(pointer),
        }
    }

    pub(crate) fn whole(&self) -> &Json {
        match self {
            Self::Json(document) => document,
            Self::Request(request) => request.document.get(),
        }
    }
}

/// Returns a document of the review. None if the review does not have it.
///
/// # Errors
/// When the Namespace is not known, or has to be looked up first.
pub(crate) fn document(
    subject: &Subject,
    namespaces: &dyn Namespaces,
    part: Part,
) -> Result<Option<Document>, Stop> {
    let json = match part {
        Part::Object => subject.object.clone(),
        Part::OldObject => subject.request.old_object.clone(),
        Part::Options => subject.request.options.clone(),
        Part::Request => return Ok(Some(Document::Request(subject.request.clone()))),
        Part::Namespace => {
            match namespace_now(namespaces, &subject.request, subject.object.as_ref()) {
                OfRequest::None => None,
                OfRequest::Known(namespace) => Some(namespace.document().clone()),
                OfRequest::Failed(what) => return Err(Stop::Namespace(what)),
                OfRequest::Awaited(_) => return Err(Stop::AwaitsNamespace),
            }
        }
    };
    Ok(json.map(Document::Json))
}

// === impl Told ===

impl Told {
    pub(crate) fn value(value: Option<&Json>) -> Self {
        Self::Value(value.map(Scalar::of))
    }

    pub(crate) fn names<'n>(names: Option<impl Iterator<Item = &'n str>>) -> Self {
        Self::Names(names.map(|names| names.map(Box::from).collect()))
    }

    pub(crate) fn json(text: &str) -> Self {
        Self::Json(Some(text.into()))
    }

    pub(crate) fn nodes(nodes: &[Node], fuel: u64) -> Self {
        let nodes = nodes.iter();
        let nodes = nodes.map(|node| (node.pointer.as_str().into(), node.value.clone().into()));
        Self::Nodes {
            nodes: nodes.collect(),
            fuel,
        }
    }

    /// The fuel of a search.
    pub(super) fn fuel(&self) -> u64 {
        match self {
            Self::Nodes { fuel, .. } => *fuel,
            _ => 0,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.as_ref().map_or(0, Scalar::bytes),
            Self::Values(values) => values
                .iter()
                .map(|value| value.as_ref().map_or(0, Scalar::bytes))
                .sum(),
            Self::Json(text) => text.as_ref().map_or(0, |text| text.len()),
            Self::Names(names) => {
                let names = names.iter().flatten();
                names.map(|name| name.len() + size_of::<Box<str>>()).sum()
            }
            Self::Nodes { nodes, .. } => {
                let nodes = nodes.iter();
                nodes
                    .map(|(at, value)| at.len() + size_of::<Box<str>>() + value.bytes())
                    .sum()
            }
        }
    }
}

// === impl Scalar ===

impl Scalar {
    /// The value as a plugin gets it.
    pub(crate) fn of(value: &Json) -> Self {
        Self::from(Value::of(value))
    }

    /// Whether a plugin gets this for a value.
    fn is(&self, value: &Json) -> bool {
        match (self, value) {
            // An empty box points nowhere, which is slow to compare: see `Pattern::matches`.
            (Self::Text(own), Json::Text(text)) if own.is_empty() => text.is_empty(),
            (Self::Text(own), Json::Text(text)) => **own == **text,
            (_, Json::Text(_)) => false,
            _ => *self == Self::of(value),
        }
    }

    fn bytes(&self) -> usize {
        let text = match self {
            Self::Text(text) => text.len(),
            _ => 0,
        };
        size_of::<Self>() + text
    }
}

impl From<Value> for Scalar {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(value) => Self::Boolean(value),
            Value::Integer(value) => Self::Integer(value),
            Value::Number(value) => Self::Number(value.to_bits()),
            Value::Text(text) => Self::Text((*text).into()),
            Value::Array(length) => Self::Array(length),
            Value::Object(length) => Self::Object(length),
        }
    }
}
