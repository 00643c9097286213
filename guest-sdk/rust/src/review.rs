//! The review as typed access to five JSON documents. The host has parsed them. A read costs the size of its result.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::bindings::imports::tollgate::admission::review::Part;
use crate::pointer::checked;
use crate::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, Node, Operation, Pointers, Value,
    host,
};

/// The review for which the host called the plugin.
///
/// This is a handle without content. Nothing carries over to another review.
pub struct Review(());

/// One of the JSON documents of a review.
///
/// Every function with a pointer panics at the caller's line if the text is not an RFC 6901 pointer. Otherwise a typo
/// would read as "absent". The functions accept any text: `"/spec/replicas"`, a [`Pointer`](crate::Pointer), the
/// `pointer` of a [`Node`]. [`at!`](crate::at) checks a literal at compile time.
#[derive(Clone, Copy)]
pub struct Document(Part);

/// A value exists, but has another type than requested.
#[derive(Debug)]
pub struct ReadError {
    pointer: String,
    error: serde_json::Error,
}

// === impl Review ===

impl Review {
    /// Returns the handle. Only code that runs within a call may use it.
    pub(crate) const fn ambient() -> Self {
        Self(())
    }

    /// The object, as the plugins before this one left it. Absent on DELETE.
    #[must_use]
    pub fn object(&self) -> Document {
        Document(Part::Object)
    }

    /// The object before the request. Absent on CREATE and CONNECT.
    #[must_use]
    pub fn old_object(&self) -> Document {
        Document(Part::OldObject)
    }

    /// The operation's options, such as CreateOptions.
    #[must_use]
    pub fn options(&self) -> Document {
        Document(Part::Options)
    }

    /// The AdmissionRequest itself without object, oldObject and options: `/userInfo/username`, `/requestKind`, ….
    #[must_use]
    pub fn request_document(&self) -> Document {
        Document(Part::Request)
    }

    /// The Namespace of the object: apiVersion, kind and metadata with labels and annotations. No grant is needed.
    ///
    /// Absent only for a cluster-scoped object. A Namespace is in itself. If the host cannot find out about the
    /// namespace, the call ends as a fault, so a rule about labels never fails open. The host's cache can lag behind the
    /// cluster by moments.
    #[must_use]
    pub fn namespace(&self) -> Document {
        Document(Part::Namespace)
    }

    /// Returns the request's metadata. Each call crosses to the host and copies a dozen strings, so keep the result if
    /// you need it more than once.
    ///
    /// The metadata has the uid, which no two reviews share. The host therefore never reuses the answer of a call that
    /// used this function. [`Review::operation`], [`Review::kind`], [`Review::resource`] and [`Review::sub_resource`]
    /// are cheaper and do not have this effect.
    #[must_use]
    pub fn request(&self) -> AdmissionRequest {
        host::request()
    }

    /// Returns the operation of [`Review::request`], for a fraction of its cost.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self.request_document().text("/operation").as_deref() {
            Some("CREATE") => Operation::Create,
            Some("UPDATE") => Operation::Update,
            Some("DELETE") => Operation::Delete,
            Some("CONNECT") => Operation::Connect,
            _ => self.request().operation,
        }
    }

    /// Returns the kind of [`Review::request`].
    #[must_use]
    pub fn kind(&self) -> GroupVersionKind {
        match self.texts(["/kind/group", "/kind/version", "/kind/kind"]) {
            [Some(group), Some(version), Some(kind)] => GroupVersionKind {
                group,
                version,
                kind,
            },
            _ => self.request().kind,
        }
    }

    /// Returns the resource of [`Review::request`].
    #[must_use]
    pub fn resource(&self) -> GroupVersionResource {
        match self.texts(["/resource/group", "/resource/version", "/resource/resource"]) {
            [Some(group), Some(version), Some(resource)] => GroupVersionResource {
                group,
                version,
                resource,
            },
            _ => self.request().resource,
        }
    }

    /// Returns the strings at three places of the request.
    fn texts(&self, at: [&str; 3]) -> [Option<String>; 3] {
        let mut values = self.request_document().get_many(at).into_iter();
        at.map(|_| values.next().flatten().and_then(Value::into_text))
    }

    /// Returns the subresource of [`Review::request`], such as `status` or `scale`, for a fraction of its cost. None
    /// for the object itself.
    #[must_use]
    pub fn sub_resource(&self) -> Option<String> {
        let name = self.request_document().text("/subResource")?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether the request changes the value at a pointer. Creating or deleting the value is also a change.
    ///
    /// The cost is the size of both values. They are compared as JSON text, because kube-apiserver writes the members
    /// of both objects in the same order.
    #[track_caller]
    pub fn changes(&self, at: impl AsRef<str>) -> bool {
        let at = at.as_ref();
        self.object().json(at) != self.old_object().json(at)
    }

    /// Shows a warning to the user who made the request. Kubernetes recommends at most 120 characters.
    pub fn warn(&self, message: impl AsRef<str>) {
        host::warn(message.as_ref());
    }

    /// Adds an annotation to kube-apiserver's audit log. A key has at most 63 characters and no slash.
    pub fn annotate(&self, key: impl AsRef<str>, value: impl AsRef<str>) {
        host::annotate(key.as_ref(), value.as_ref());
    }
}

impl fmt::Debug for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never prints the content, because the review may be of a Secret.
        f.write_str("Review")
    }
}

// === impl Document ===

impl Document {
    /// Whether the document exists.
    #[must_use]
    pub fn exists(self) -> bool {
        self.get("").is_some()
    }

    /// Returns the value at a pointer. None if there is nothing. JSON null is `Some(Value::Null)`.
    #[track_caller]
    pub fn get(self, at: impl AsRef<str>) -> Option<Value> {
        host::get(self.0, checked(at.as_ref()))
    }

    /// Returns the values at several pointers, in their order, with one call of the host. Each is what [`Document::get`]
    /// returns.
    #[track_caller]
    pub fn get_many<T: AsRef<str>>(self, at: impl IntoIterator<Item = T>) -> Vec<Option<Value>> {
        let pointers: Vec<String> = at.into_iter().map(|at| at.as_ref().to_owned()).collect();
        self.get_slice(&pointers)
    }

    /// Returns what [`Document::get_many`] returns, for pointers that are strings already. They are not copied.
    #[track_caller]
    pub fn get_slice(self, at: &[String]) -> Vec<Option<Value>> {
        // A closure has a place of its own, so the check is a loop.
        for at in at {
            checked(at);
        }
        host::get_many(self.0, at)
    }

    /// Returns what [`Document::get_many`] returns, for pointers that were checked before. This costs least.
    #[must_use]
    pub fn get_all(self, at: &Pointers) -> Vec<Option<Value>> {
        host::get_many(self.0, at.texts())
    }

    /// Returns the string at a pointer. None for nothing or another type.
    #[track_caller]
    pub fn text(self, at: impl AsRef<str>) -> Option<String> {
        self.get(at)?.into_text()
    }

    /// Returns the integer at a pointer. None for nothing or another type.
    #[track_caller]
    pub fn integer(self, at: impl AsRef<str>) -> Option<i64> {
        match self.get(at)? {
            Value::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    /// Returns the number at a pointer, rounded to a double. None for nothing or another type.
    #[track_caller]
    pub fn number(self, at: impl AsRef<str>) -> Option<f64> {
        match self.get(at)? {
            #[expect(
                clippy::cast_precision_loss,
                reason = "rounding is what the caller asks for"
            )]
            Value::Integer(integer) => Some(integer as f64),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the boolean at a pointer. None for nothing or another type.
    #[track_caller]
    pub fn boolean(self, at: impl AsRef<str>) -> Option<bool> {
        match self.get(at)? {
            Value::Boolean(boolean) => Some(boolean),
            _ => None,
        }
    }

    /// Returns the number of elements or members of the array or object at a pointer. None for nothing or another type.
    #[track_caller]
    pub fn length(self, at: impl AsRef<str>) -> Option<usize> {
        match self.get(at)? {
            Value::Array(length) | Value::Object(length) => Some(length as usize),
            _ => None,
        }
    }

    /// Returns the member names of the object at a pointer, not escaped. None if there is no object.
    #[track_caller]
    pub fn keys(self, at: impl AsRef<str>) -> Option<Vec<String>> {
        host::keys(self.0, checked(at.as_ref()))
    }

    /// Returns every place that matches a pattern, in document order. In `/spec/containers/*/image`, the `*` matches
    /// any element or member. The size of the document bounds the result.
    #[track_caller]
    pub fn select(self, pattern: impl AsRef<str>) -> Vec<Node> {
        host::select(self.0, checked(pattern.as_ref()))
    }

    /// Returns the JSON text at a pointer; `""` is the whole document. None if there is nothing.
    #[track_caller]
    pub fn json(self, at: impl AsRef<str>) -> Option<String> {
        host::get_json(self.0, checked(at.as_ref()))
    }

    /// Returns the value at a pointer as a type of the plugin's own. None if there is nothing.
    ///
    /// The cost is the size of the value, and the plugin gets a JSON parser. For a few fields, the other functions are
    /// cheaper. The parser is recursive, so the stack of 64 KiB limits its depth. That is enough for a
    /// `serde_json::Value` with the 120 levels that the host accepts.
    ///
    /// # Errors
    /// If the value is not of that type. The error has the pointer and never the value.
    #[track_caller]
    pub fn read<T: DeserializeOwned>(self, at: impl AsRef<str>) -> Result<Option<T>, ReadError> {
        let at = at.as_ref();
        self.json(at)
            .map(|json| ReadError::parse(at, &json))
            .transpose()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Document").field(&self.0).finish()
    }
}

// === impl Value ===

impl Value {
    /// Returns the string. None for another type.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the string. None for another type.
    #[must_use]
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

// === impl ReadError ===

impl ReadError {
    /// Parses the JSON at a pointer.
    pub(crate) fn parse<T: DeserializeOwned>(pointer: &str, json: &str) -> Result<T, Self> {
        serde_json::from_str(json).map_err(|error| Self {
            pointer: pointer.to_owned(),
            error,
        })
    }

    /// The pointer that was read.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // serde's own error text quotes the value.
        write!(
            f,
            "{}: not of the expected type, at column {}",
            self.pointer,
            self.error.column()
        )
    }
}

impl std::error::Error for ReadError {}
