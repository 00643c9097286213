//! The `cluster` capability: objects of the cluster, from the lookups of the plugin's configuration. The host does not
//! load a plugin that uses this module unless its configuration has `lookups`.
//!
//! ```
//! use tollgate_sdk::cluster::{self, OrFault as _};
//! use tollgate_sdk::prelude::*;
//!
//! fn validate(review: &Review) -> Result<(), Denial> {
//!     let host = review.object().text("/spec/host").unwrap_or_default();
//!     for ingress in cluster::find("ingresses", "host", host) {
//!         let ingress = ingress.or_fault();
//!         if ingress.namespace() != review.request().namespace.as_deref() {
//!             return Err(Denial::new("the host belongs to another namespace"));
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The host follows the cluster with a watch. Its answers can lag behind by moments, and two requests that are reviewed
//! at the same time do not see each other's objects.

use std::cell::OnceCell;
use std::{fmt, vec};

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::bindings::cluster::tollgate::admission::cluster as contract;
use crate::{Node, ReadError, Value, host, tree};

/// An object of the cluster, with the fields that the lookup keeps.
///
/// The functions with a pointer read the kept fields at their places in the object, such as `/spec/rules/0/host`. Like
/// those of [`Document`](crate::Document), they end the call on a malformed pointer. The members of an object are
/// sorted by name, and numbers beyond 64 bits are rounded.
#[derive(Clone)]
pub struct Object {
    namespace: Option<String>,
    name: String,
    json: String,
    /// The parsed fields. Most plugins read the name alone, so nothing is parsed before it is read.
    fields: OnceCell<Json>,
}

/// The reason why a lookup has no answer. The text is for the operator, and names the lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The configuration has no lookup of this name, no index of this name in it, or it does not cover this namespace.
    NotGranted(String),
    /// The host has not read the objects yet, or has lost its connection for too long. It must not count as "there is
    /// none": a plugin that enforces ends the call with [`OrFault::or_fault`], and its failure policy decides.
    NotSynchronised(String),
}

/// Ends the call if a lookup has no answer.
pub trait OrFault<T> {
    /// Returns the answer.
    ///
    /// # Panics
    /// If there is none. That is a fault of the plugin, so its failure policy decides about the request, and the
    /// operator reads the reason.
    #[track_caller]
    fn or_fault(self) -> T;
}

/// The objects that [`find`] or [`list`] asked for, ordered by namespace and name. The iterator asks the host for one
/// page at a time. It ends after a failure.
pub struct Objects {
    request: Request,
    page: vec::IntoIter<contract::Object>,
    next: Next,
}

enum Request {
    Find {
        lookup: String,
        index: String,
        key: String,
    },
    List {
        lookup: String,
        namespace: Option<String>,
    },
}

/// The page that follows.
enum Next {
    First,
    After(String),
    None,
}

/// Returns one object of a lookup by its name. None if there is no such object. A cluster-scoped object has no
/// namespace.
///
/// # Errors
/// If the lookup has no answer.
pub fn get(lookup: &str, namespace: Option<&str>, name: &str) -> Result<Option<Object>, Failure> {
    match host::lookups::get(lookup, namespace, name) {
        Ok(found) => Ok(found.map(Object::from)),
        Err(failure) => Err(failure.into()),
    }
}

/// Returns the objects that have a key in an index of the lookup. The keys are the texts, numbers and booleans at the
/// places of the index's pattern, as text.
pub fn find(
    lookup: impl Into<String>,
    index: impl Into<String>,
    key: impl Into<String>,
) -> Objects {
    Objects::new(Request::Find {
        lookup: lookup.into(),
        index: index.into(),
        key: key.into(),
    })
}

/// Returns all objects of a lookup, or those of one namespace.
pub fn list(lookup: impl Into<String>, namespace: Option<&str>) -> Objects {
    Objects::new(Request::List {
        lookup: lookup.into(),
        namespace: namespace.map(str::to_owned),
    })
}

// === impl Object ===

impl Object {
    /// The object's namespace. None for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value at a pointer. None if the object has no such field, or the lookup does not keep it.
    #[must_use]
    pub fn get(&self, at: impl AsRef<str>) -> Option<Value> {
        self.at(at.as_ref()).map(tree::describe)
    }

    /// Returns the string at a pointer. None for nothing or another type.
    #[must_use]
    pub fn text(&self, at: impl AsRef<str>) -> Option<&str> {
        self.at(at.as_ref())?.as_str()
    }

    /// Returns the integer at a pointer. None for nothing or another type.
    #[must_use]
    pub fn integer(&self, at: impl AsRef<str>) -> Option<i64> {
        self.at(at.as_ref())?.as_i64()
    }

    /// Returns the number at a pointer, rounded to a double. None for nothing or another type.
    #[must_use]
    pub fn number(&self, at: impl AsRef<str>) -> Option<f64> {
        self.at(at.as_ref())?.as_f64()
    }

    /// Returns the boolean at a pointer. None for nothing or another type.
    #[must_use]
    pub fn boolean(&self, at: impl AsRef<str>) -> Option<bool> {
        self.at(at.as_ref())?.as_bool()
    }

    /// Returns the number of elements or members of the array or object at a pointer. None for nothing or another type.
    #[must_use]
    pub fn length(&self, at: impl AsRef<str>) -> Option<usize> {
        match self.at(at.as_ref())? {
            Json::Array(elements) => Some(elements.len()),
            Json::Object(members) => Some(members.len()),
            _ => None,
        }
    }

    /// Returns the member names of the object at a pointer, not escaped. None if there is no object.
    #[must_use]
    pub fn keys(&self, at: impl AsRef<str>) -> Option<Vec<String>> {
        tree::keys(self.at(at.as_ref())?)
    }

    /// Returns every place that matches a pattern. In `/spec/rules/*/host`, the `*` matches any element or member.
    #[must_use]
    pub fn select(&self, pattern: impl AsRef<str>) -> Vec<Node> {
        tree::select(self.fields(), &tree::tokens(pattern.as_ref()))
    }

    /// Returns the JSON text at a pointer; `""` is all kept fields. None if there is nothing.
    #[must_use]
    pub fn json(&self, at: impl AsRef<str>) -> Option<String> {
        match at.as_ref() {
            "" => Some(self.json.clone()),
            at => self.at(at).map(Json::to_string),
        }
    }

    /// Returns the value at a pointer as a type of the plugin's own. None if there is nothing.
    ///
    /// # Errors
    /// If the value is not of that type. The error has the pointer and never the value.
    pub fn read<T: DeserializeOwned>(&self, at: impl AsRef<str>) -> Result<Option<T>, ReadError> {
        let at = at.as_ref();
        self.json(at)
            .map(|json| ReadError::parse(at, &json))
            .transpose()
    }

    fn at(&self, pointer: &str) -> Option<&Json> {
        tree::at(self.fields(), &tree::tokens(pointer))
    }

    fn fields(&self) -> &Json {
        self.fields
            .get_or_init(|| serde_json::from_str(&self.json).expect("the host's fields are JSON"))
    }
}

impl From<contract::Object> for Object {
    fn from(object: contract::Object) -> Self {
        Self {
            namespace: object.namespace,
            name: object.name,
            json: object.fields,
            fields: OnceCell::new(),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never prints the fields, because the object may be a Secret.
        f.debug_struct("Object")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

// === impl Objects ===

impl Objects {
    fn new(request: Request) -> Self {
        Self {
            request,
            page: Vec::new().into_iter(),
            next: Next::First,
        }
    }
}

impl Iterator for Objects {
    type Item = Result<Object, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(object) = self.page.next() {
                return Some(Ok(object.into()));
            }
            let after = match std::mem::replace(&mut self.next, Next::None) {
                Next::None => return None,
                Next::First => None,
                Next::After(after) => Some(after),
            };
            let page = match &self.request {
                Request::Find { lookup, index, key } => {
                    host::lookups::find(lookup, index, key, after.as_deref())
                }
                Request::List { lookup, namespace } => {
                    host::lookups::list(lookup, namespace.as_deref(), after.as_deref())
                }
            };
            match page {
                Ok(page) => {
                    self.page = page.objects.into_iter();
                    self.next = page.next.map_or(Next::None, Next::After);
                }
                Err(failure) => return Some(Err(failure.into())),
            }
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects")
    }
}

// === impl Failure ===

impl From<contract::Failure> for Failure {
    fn from(failure: contract::Failure) -> Self {
        match failure {
            contract::Failure::NotGranted(text) => Self::NotGranted(text),
            contract::Failure::NotSynchronised(text) => Self::NotSynchronised(text),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(text) => write!(f, "not granted: {text}"),
            Self::NotSynchronised(text) => write!(f, "not synchronised: {text}"),
        }
    }
}

impl std::error::Error for Failure {}

// === impl OrFault ===

impl<T> OrFault<T> for Result<T, Failure> {
    #[expect(
        clippy::panic,
        reason = "a panic is how a plugin ends its call as a fault"
    )]
    fn or_fault(self) -> T {
        match self {
            Ok(answer) => answer,
            Err(failure) => panic!("{failure}"),
        }
    }
}
