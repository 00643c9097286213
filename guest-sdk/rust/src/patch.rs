//! The answers of a mutator: nothing, a JSON Patch, a merge patch or a whole object.

use serde::Serialize;

use crate::bindings::imports::tollgate::admission::types;
use crate::pointer::checked;
use crate::{Denial, Document, NewValue, PatchOperation, Pointer, Value};

/// The answer of a mutator that does not deny.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Mutation {
    /// The object stays as it is.
    #[default]
    Unchanged,
    /// A JSON Patch, RFC 6902. An empty patch changes nothing.
    Patch(Patch),
    /// A merge patch, RFC 7386, as JSON text.
    Merge(String),
    /// The whole new object as JSON text. A missing member is removed.
    Object(String),
}

/// A JSON Patch, RFC 6902, under construction.
///
/// ```
/// use tollgate_sdk::Patch;
///
/// let patch = Patch::new().replace("/spec/replicas", 3).add("/metadata/labels/tier", "web").remove("/spec/paused");
/// assert_eq!(patch.operations().len(), 3);
/// ```
///
/// Strings are passed as they are. Booleans, integers and `serde_json::Value` become JSON. Every function with a pointer
/// panics at the caller's line if the pointer is malformed.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a patch does nothing unless it is returned"]
pub struct Patch {
    operations: Vec<PatchOperation>,
    created: Vec<Pointer>,
}

// === impl Mutation ===

impl Mutation {
    /// Creates a merge patch, RFC 7386. Members are merged, null removes a member, and arrays are replaced as a whole.
    ///
    /// # Panics
    /// If the value has no JSON form, such as a map whose keys are not strings.
    pub fn merge(patch: &impl Serialize) -> Self {
        Self::Merge(serde_json::to_string(patch).expect("a merge patch has a JSON form"))
    }

    /// Returns the whole new object. Fields that the plugin's own type does not know get lost, so prefer a patch.
    ///
    /// # Panics
    /// If the value has no JSON form, such as a map whose keys are not strings.
    pub fn object(object: &impl Serialize) -> Self {
        Self::Object(serde_json::to_string(object).expect("an object has a JSON form"))
    }

    pub(crate) fn answer(result: Result<Self, Denial>) -> types::Mutation {
        match result {
            Ok(Self::Unchanged) => types::Mutation::Unchanged,
            Ok(Self::Patch(patch)) if patch.is_empty() => types::Mutation::Unchanged,
            Ok(Self::Patch(patch)) => types::Mutation::JsonPatch(patch.operations),
            Ok(Self::Merge(json)) => types::Mutation::MergePatch(json),
            Ok(Self::Object(json)) => types::Mutation::Object(json),
            Err(denial) => types::Mutation::Deny(denial),
        }
    }
}

impl From<Patch> for Mutation {
    fn from(patch: Patch) -> Self {
        if patch.is_empty() {
            Self::Unchanged
        } else {
            Self::Patch(patch)
        }
    }
}

// === impl Patch ===

impl Patch {
    /// Creates an empty patch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a member, or inserts before an array's element (`-`: after the last). The parent must exist.
    #[track_caller]
    pub fn add(self, path: impl Into<Pointer>, value: impl Into<NewValue>) -> Self {
        self.with(PatchOperation::Add(types::PlaceValue {
            path: path.into().into(),
            value: value.into(),
        }))
    }

    /// Replaces an existing value.
    #[track_caller]
    pub fn replace(self, path: impl Into<Pointer>, value: impl Into<NewValue>) -> Self {
        self.with(PatchOperation::Replace(types::PlaceValue {
            path: path.into().into(),
            value: value.into(),
        }))
    }

    /// Removes an existing value.
    #[track_caller]
    pub fn remove(self, path: impl Into<Pointer>) -> Self {
        self.with(PatchOperation::Remove(path.into().into()))
    }

    /// Moves an existing value.
    #[track_caller]
    pub fn rename(self, from: impl Into<Pointer>, path: impl Into<Pointer>) -> Self {
        self.with(PatchOperation::Move(types::FromPath {
            from: from.into().into(),
            path: path.into().into(),
        }))
    }

    /// Copies an existing value.
    #[track_caller]
    pub fn copy(self, from: impl Into<Pointer>, path: impl Into<Pointer>) -> Self {
        self.with(PatchOperation::Copy(types::FromPath {
            from: from.into().into(),
            path: path.into().into(),
        }))
    }

    /// Tests that a value exists. Otherwise the patch fails, as a fault of the plugin.
    #[track_caller]
    pub fn test(self, path: impl Into<Pointer>, value: impl Into<NewValue>) -> Self {
        self.with(PatchOperation::Test(types::PlaceValue {
            path: path.into().into(),
            value: value.into(),
        }))
    }

    /// Sets a member, and creates missing objects on the way. For `/metadata/annotations/a` of an object without
    /// annotations, this creates `/metadata/annotations`. An array's element is replaced.
    ///
    /// The function reads the document, which is the object before this patch. It knows the results of earlier `set`s
    /// in the same patch, but not those of other operations.
    #[track_caller]
    pub fn set(
        mut self,
        object: Document,
        path: impl Into<Pointer>,
        value: impl Into<NewValue>,
    ) -> Self {
        let path = path.into();
        checked(path.as_str());
        let mut missing = Vec::new();
        let mut parent = path.parent();
        let mut in_array = false;
        while let Some(place) = parent {
            if place.is_root() || self.created.contains(&place) {
                break;
            }
            match object.get(&place) {
                None | Some(Value::Null) => {
                    parent = place.parent();
                    missing.push(place);
                }
                Some(found) => {
                    in_array = missing.is_empty() && matches!(found, Value::Array(_));
                    break;
                }
            }
        }
        for place in missing.into_iter().rev() {
            self = self.add(&place, NewValue::Json("{}".to_owned()));
            self.created.push(place);
        }
        if in_array {
            self.replace(path, value)
        } else {
            self.add(path, value)
        }
    }

    /// Inserts before an element of a list, and creates the list if it is missing. The index is at most the current
    /// length of the list.
    ///
    /// Reads the document like [`set`](Self::set).
    #[track_caller]
    pub fn insert(
        self,
        object: Document,
        list: impl Into<Pointer>,
        index: usize,
        value: impl Into<NewValue>,
    ) -> Self {
        let list = list.into();
        let place = list.child(index);
        self.with_list(object, list).add(place, value)
    }

    /// Adds after the last element of a list, and creates the list if it is missing.
    ///
    /// Reads the document like [`set`](Self::set).
    #[track_caller]
    pub fn append(
        self,
        object: Document,
        list: impl Into<Pointer>,
        value: impl Into<NewValue>,
    ) -> Self {
        let list = list.into();
        let place = list.child("-");
        self.with_list(object, list).add(place, value)
    }

    /// Appends an operation.
    #[track_caller]
    pub fn push(&mut self, operation: PatchOperation) {
        check_places(&operation);
        self.push_unchecked(operation);
    }

    /// Appends an operation whose pointers may be malformed, for tests of the host.
    #[doc(hidden)]
    pub fn push_unchecked(&mut self, operation: PatchOperation) {
        self.operations.push(operation);
    }

    /// The operations so far.
    #[must_use]
    pub fn operations(&self) -> &[PatchOperation] {
        &self.operations
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    #[track_caller]
    fn with_list(mut self, object: Document, list: Pointer) -> Self {
        checked(list.as_str());
        let is_missing = || matches!(object.get(&list), None | Some(Value::Null));
        if !self.created.contains(&list) && is_missing() {
            self = self.set(object, &list, NewValue::Json("[]".to_owned()));
            self.created.push(list);
        }
        self
    }

    #[track_caller]
    fn with(mut self, operation: PatchOperation) -> Self {
        self.push(operation);
        self
    }
}

#[track_caller]
fn check_places(operation: &PatchOperation) {
    match operation {
        PatchOperation::Add(at) | PatchOperation::Replace(at) | PatchOperation::Test(at) => {
            checked(&at.path);
        }
        PatchOperation::Remove(path) => {
            checked(path);
        }
        PatchOperation::Move(places) | PatchOperation::Copy(places) => {
            checked(&places.from);
            checked(&places.path);
        }
    }
}

// === impl NewValue ===

impl From<&str> for NewValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for NewValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for NewValue {
    fn from(boolean: bool) -> Self {
        Self::Json(boolean.to_string())
    }
}

impl From<i32> for NewValue {
    fn from(integer: i32) -> Self {
        Self::Json(integer.to_string())
    }
}

impl From<i64> for NewValue {
    fn from(integer: i64) -> Self {
        Self::Json(integer.to_string())
    }
}

impl From<serde_json::Value> for NewValue {
    fn from(value: serde_json::Value) -> Self {
        Self::Json(value.to_string())
    }
}
