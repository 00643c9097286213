//! The review as typed access to four JSON documents. The host parsed them; a read costs what it returns.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::bindings::imports::tollgate::admission::review::Part;
use crate::{AdmissionRequest, Node, Operation, Value, host};

/// The one review that the exported function was called for.
///
/// A handle without content: there is nothing to keep, and nothing carries over to another review.
pub struct Review(());

/// One of the JSON documents of a review.
///
/// Every function that takes a pointer ends the call, as a fault of the plugin, when the text is not an RFC 6901
/// pointer: a typo must not read as "absent". Anything that has text is accepted: `"/spec/replicas"`, a
/// [`Pointer`](crate::Pointer), the `pointer` of a [`Node`].
#[derive(Clone, Copy)]
pub struct Document(Part);

/// A value that is there and is not of the type asked for.
#[derive(Debug)]
pub struct ReadError {
    pointer: String,
    error: serde_json::Error,
}

// === impl Review ===

impl Review {
    /// The review is ambient; only code that runs within a call may ask for it.
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

    /// What kube-apiserver says of the request. Each call crosses to the host and brings a dozen strings: keep the
    /// answer where it is used more than once, and see [`Review::operation`] and [`Review::sub_resource`].
    #[must_use]
    pub fn request(&self) -> AdmissionRequest {
        host::request()
    }

    /// What is to be done with the object: [`Review::request`]'s, for a fraction of its cost.
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

    /// What of the object is asked for, such as `status` or `scale`; none when it is the object itself:
    /// [`Review::request`]'s, for a fraction of its cost.
    #[must_use]
    pub fn sub_resource(&self) -> Option<String> {
        let name = self.request_document().text("/subResource")?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether the request makes something else of what stands at a pointer. Creating and deleting it is a change, too.
    ///
    /// Costs the size of both values, which are compared as JSON text: kube-apiserver writes the members of both objects
    /// in the same order.
    pub fn changes(&self, at: impl AsRef<str>) -> bool {
        let at = at.as_ref();
        self.object().json(at) != self.old_object().json(at)
    }

    /// Shows a warning to the user who made the request. At most 120 characters are advised.
    pub fn warn(&self, message: impl AsRef<str>) {
        host::warn(message.as_ref());
    }

    /// Records something in kube-apiserver's audit log. A key has at most 63 characters and no slash.
    pub fn annotate(&self, key: impl AsRef<str>, value: impl AsRef<str>) {
        host::annotate(key.as_ref(), value.as_ref());
    }
}

impl fmt::Debug for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the content: a review may be of a Secret.
        f.write_str("Review")
    }
}

// === impl Document ===

impl Document {
    /// Whether the document is there at all.
    #[must_use]
    pub fn exists(self) -> bool {
        self.get("").is_some()
    }

    /// What stands at a pointer; none when there is nothing. JSON null is `Some(Value::Null)`.
    pub fn get(self, at: impl AsRef<str>) -> Option<Value> {
        host::get(self.0, at.as_ref())
    }

    /// The string at a pointer; none when nothing or something else is there.
    pub fn text(self, at: impl AsRef<str>) -> Option<String> {
        self.get(at)?.into_text()
    }

    /// The integer at a pointer; none when nothing or something else is there.
    pub fn integer(self, at: impl AsRef<str>) -> Option<i64> {
        match self.get(at)? {
            Value::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    /// The number at a pointer, rounded to a double; none when nothing or something else is there.
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

    /// The boolean at a pointer; none when nothing or something else is there.
    pub fn boolean(self, at: impl AsRef<str>) -> Option<bool> {
        match self.get(at)? {
            Value::Boolean(boolean) => Some(boolean),
            _ => None,
        }
    }

    /// How many elements or members the array or object at a pointer has; none when neither is there.
    pub fn length(self, at: impl AsRef<str>) -> Option<usize> {
        match self.get(at)? {
            Value::Array(length) | Value::Object(length) => Some(length as usize),
            _ => None,
        }
    }

    /// The member names of the object at a pointer, not escaped; none when no object is there.
    pub fn keys(self, at: impl AsRef<str>) -> Option<Vec<String>> {
        host::keys(self.0, at.as_ref())
    }

    /// Every place that matches a pattern, in document order: in `/spec/containers/*/image` the `*` stands for any
    /// element or member. Bounded by the size of the document.
    pub fn select(self, pattern: impl AsRef<str>) -> Vec<Node> {
        host::select(self.0, pattern.as_ref())
    }

    /// The JSON text at a pointer, `""` being the whole document; none when there is nothing.
    pub fn json(self, at: impl AsRef<str>) -> Option<String> {
        host::get_json(self.0, at.as_ref())
    }

    /// The value at a pointer as a type of the plugin's own; none when there is nothing.
    ///
    /// Costs the size of the value, and links a JSON parser into the plugin. For a few fields the other functions are
    /// cheaper. The parser is recursive: its depth is bounded by the stack of 64 KiB that plugins are
    /// built with, which is enough for a `serde_json::Value` of the 120 levels that the host takes.
    ///
    /// # Errors
    /// When the value is not of that type. The error carries the pointer and never the value.
    pub fn read<T: DeserializeOwned>(self, at: impl AsRef<str>) -> Result<Option<T>, ReadError> {
        let at = at.as_ref();
        let Some(json) = self.json(at) else {
            return Ok(None);
        };
        match serde_json::from_str(&json) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(ReadError {
                pointer: at.to_owned(),
                error,
            }),
        }
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Document").field(&self.0).finish()
    }
}

// === impl Value ===

impl Value {
    /// The string; none for a value of another type.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The string; none for a value of another type.
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
    /// The pointer that was read.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // serde's own text quotes the value.
        write!(
            f,
            "{}: not of the expected type, at column {}",
            self.pointer,
            self.error.column()
        )
    }
}

impl std::error::Error for ReadError {}
