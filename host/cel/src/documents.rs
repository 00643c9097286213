//! The documents of a review, with what evaluations have read of them so far.

use std::cell::{Cell, RefCell};

use tollgate_shape::{Look, Reader};

use crate::eval::{Found, Source};
use crate::json;
use crate::node::Document;
use crate::plan::{Entry, Plan};
use crate::value::{Key, Value};

/// The documents of a source. All that a policy reads of one is read together, when the first expression needs it.
pub(crate) struct Documents<'a> {
    source: &'a dyn Source,
    plan: &'a Plan,
    /// What is known of the entries of the plan.
    known: RefCell<Vec<Known>>,
    /// What has been read without a plan.
    others: RefCell<Vec<(Document, String, Value)>>,
    /// The document that `variables.anyObject` stands for, once it is known.
    any_object: Cell<Option<Document>>,
    /// Whether the request is for a Namespace, in which `namespaceObject` is null as in kube-apiserver. None before it is
    /// known.
    is_of_namespace: Cell<Option<bool>>,
}

/// What is known of a place.
#[derive(Clone)]
enum Known {
    Nothing,
    Absent,
    Value(Value),
    /// A list or a map whose parts nobody has needed so far.
    Array(usize),
    Object,
}

/// A document of a source, whose parts are read.
struct Part<'a> {
    source: &'a dyn Source,
    document: Document,
}

/// A plan without entries.
static UNPLANNED: Plan = Plan {
    entries: Vec::new(),
};

// === impl Documents ===

impl<'a> Documents<'a> {
    /// Reads what expressions name, one by one.
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self::planned(source, &UNPLANNED)
    }

    /// Reads what a plan names.
    pub(crate) fn planned(source: &'a dyn Source, plan: &'a Plan) -> Self {
        Self {
            source,
            plan,
            known: RefCell::new(vec![Known::Nothing; plan.entries.len()]),
            others: RefCell::default(),
            any_object: Cell::new(None),
            is_of_namespace: Cell::new(Some(false)),
        }
    }

    /// Has no `namespaceObject` for a Namespace itself, of which kube-apiserver says that it is in itself.
    pub(crate) fn without_own_namespace(self) -> Self {
        self.is_of_namespace.set(None);
        self
    }

    /// Whether expressions do not have a document, although the source may have it.
    fn is_hidden(&self, document: Document) -> bool {
        if document != Document::Namespace {
            return false;
        }
        self.is_of_namespace.get().unwrap_or_else(|| {
            let pointers = ["/kind/group", "/kind/kind"].map(str::to_owned);
            let found = self.source.look(Document::Request, &pointers);
            let texts = found.iter().map(|look| match look {
                Some(Look::Scalar(Value::String(text))) => &**text,
                _ => "",
            });
            let is_of_namespace = texts.eq(["", "Namespace"]);
            self.is_of_namespace.set(Some(is_of_namespace));
            is_of_namespace
        })
    }

    pub(crate) fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// Returns the document that a source has for a document of an expression.
    fn resolved(&self, document: Document) -> Document {
        if document != Document::AnyObject {
            return document;
        }
        if let Some(known) = self.any_object.get() {
            return known;
        }
        let operation = self.source.value(Document::Request, "/operation");
        let is_delete =
            matches!(operation, Some(Found::Value(Value::String(text))) if &*text == "DELETE");
        let found = match is_delete && !self.source.exists(Document::Object, "/metadata") {
            true => Document::OldObject,
            false => Document::Object,
        };
        self.any_object.set(Some(found));
        found
    }

    /// Returns the number of a planned place, after the source was asked about it.
    fn entry(&self, document: Document, pointer: &str) -> Option<usize> {
        let is_it = |entry: &Entry| entry.document == document && entry.pointer == pointer;
        let index = self.plan.entries.iter().position(is_it)?;
        if matches!(self.known.borrow()[index], Known::Nothing) {
            self.ask(document, index);
        }
        Some(index)
    }

    /// Asks the source about all places of a document. A Namespace may be unknown to the host, which ends the call: it is
    /// asked for only what is needed.
    fn ask(&self, document: Document, index: usize) {
        let entries = self.plan.entries.iter().enumerate();
        let asked: Vec<usize> = match document {
            Document::Namespace => vec![index],
            _ => entries
                .filter(|(_, entry)| entry.document == document)
                .map(|(index, _)| index)
                .collect(),
        };
        let pointers: Vec<String> = asked
            .iter()
            .map(|index| self.plan.entries[*index].pointer.clone())
            .collect();
        let found = self.source.look(self.resolved(document), &pointers);
        let mut known = self.known.borrow_mut();
        for (index, found) in asked.into_iter().zip(found) {
            known[index] = match found {
                None => Known::Absent,
                Some(Look::Scalar(value)) => Known::Value(value),
                Some(Look::Array(length)) => Known::Array(length),
                Some(Look::Object) => Known::Object,
            };
        }
    }

    /// Reads the value at a pointer.
    pub(crate) fn at(&self, document: Document, pointer: &str) -> Option<Value> {
        if self.is_hidden(document) {
            return None;
        }
        let Some(index) = self.entry(document, pointer) else {
            return self.unplanned(document, pointer);
        };
        let known = self.known.borrow()[index].clone();
        let look = match known {
            Known::Nothing | Known::Absent => return None,
            Known::Value(value) => return Some(value),
            Known::Array(length) => Look::Array(length),
            Known::Object => Look::Object,
        };
        let part = Part {
            source: self.source,
            document: self.resolved(document),
        };
        let shape = &self.plan.entries[index].shape;
        let value = tollgate_shape::complete(&part, pointer, shape, look)?;
        self.known.borrow_mut()[index] = Known::Value(value.clone());
        Some(value)
    }

    fn unplanned(&self, document: Document, pointer: &str) -> Option<Value> {
        let document = self.resolved(document);
        let others = self.others.borrow();
        let found = others
            .iter()
            .find(|(known, place, _)| *known == document && place == pointer);
        if let Some((_, _, value)) = found {
            return Some(value.clone());
        }
        drop(others);
        match self.source.value(document, pointer)? {
            Found::Value(value) => Some(value),
            Found::Json(text) => {
                let value = json::parse(&text)?;
                let entry = (document, pointer.to_owned(), value.clone());
                self.others.borrow_mut().push(entry);
                Some(value)
            }
        }
    }

    /// Whether there is a value at a pointer.
    pub(crate) fn exists(&self, document: Document, pointer: &str) -> bool {
        if self.is_hidden(document) {
            return false;
        }
        match self.entry(document, pointer) {
            Some(index) => !matches!(self.known.borrow()[index], Known::Absent),
            None => self.source.exists(self.resolved(document), pointer),
        }
    }
}

// === impl Part ===

impl Reader for Part<'_> {
    type Value = Value;

    fn look(&self, pointers: &[String]) -> Vec<Option<Look<Value>>> {
        self.source.look(self.document, pointers)
    }

    fn keys(&self, pointer: &str) -> Vec<String> {
        self.source.keys(self.document, pointer)
    }

    fn whole(&self, pointer: &str) -> Option<Value> {
        match self.source.value(self.document, pointer)? {
            Found::Value(value) => Some(value),
            Found::Json(text) => json::parse(&text),
        }
    }

    fn null(&self) -> Value {
        Value::Null
    }

    fn list(&self, elements: Vec<Value>) -> Value {
        Value::list(elements)
    }

    fn object(&self, members: Vec<(&str, Value)>) -> Value {
        let member = |(name, value): (&str, Value)| (Key::String(name.into()), value);
        Value::map(members.into_iter().map(member).collect())
    }
}
