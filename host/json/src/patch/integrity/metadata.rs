//! Checks object metadata as `k8s.io/apimachinery` decodes it.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::IntegrityError;
use crate::document::{Json, Number, Pointer};
use crate::patch::diff::Fingerprints;

/// Stands for a member that is absent.
const ABSENT: Json = Json::Null;

/// Members that a mutation must not change. Without its resourceVersion, an update of an old object would count as an
/// update of the newest one.
const KEPT: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "managedFields",
];

/// The fields of `metav1.ObjectMeta`. Kubernetes drops unknown fields, whatever they hold.
const FIELDS: &[(&str, Form)] = &[
    ("name", Form::Text),
    ("generateName", Form::Text),
    ("namespace", Form::Text),
    ("selfLink", Form::Text),
    ("uid", Form::Text),
    ("resourceVersion", Form::Text),
    ("generation", Form::Integer),
    ("creationTimestamp", Form::Time),
    ("deletionTimestamp", Form::Time),
    ("deletionGracePeriodSeconds", Form::Integer),
    ("labels", Form::TextMap),
    ("annotations", Form::TextMap),
    ("ownerReferences", Form::OwnerReferences),
    ("finalizers", Form::TextList),
];

/// The forms that Kubernetes decodes, besides null.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Integer,
    Time,
    TextMap,
    TextList,
    OwnerReferences,
}

/// A place in the metadata, before and after the mutation.
struct Field<'f> {
    before: &'f Json,
    after: &'f Json,
    path: Pointer,
}

pub(super) fn check(before: &Json, after: &Json) -> Result<(), IntegrityError> {
    let object = Field {
        before,
        after,
        path: Pointer::root(),
    };
    for name in ["apiVersion", "kind"] {
        object.member(name).is_kept()?;
    }
    let metadata = object.member("metadata");
    if metadata.unchanged() {
        return Ok(());
    }
    for name in KEPT {
        metadata.member(name).is_kept()?;
    }
    if metadata.after.as_object().is_none() {
        return Err(metadata.undecodable("an object"));
    }
    FIELDS
        .iter()
        .try_for_each(|(name, form)| metadata.member(name).is_decodable(*form))
}

// === impl Field ===

impl Field<'_> {
    fn member(&self, name: &str) -> Self {
        Self {
            before: self.before.member(name).unwrap_or(&ABSENT),
            after: self.after.member(name).unwrap_or(&ABSENT),
            path: self.path.child(name),
        }
    }

    fn unchanged(&self) -> bool {
        self.before == self.after
    }

    fn is_kept(&self) -> Result<(), IntegrityError> {
        if self.unchanged() {
            Ok(())
        } else {
            Err(IntegrityError::IdentityChanged {
                path: self.path.clone(),
            })
        }
    }

    fn is_decodable(&self, form: Form) -> Result<(), IntegrityError> {
        if self.unchanged() || self.after.is_null() {
            return Ok(());
        }
        match form {
            Form::Text => self.require(self.after.as_text().is_some(), "a string"),
            Form::Integer => self.require(
                matches!(self.after, Json::Number(Number::Integer(_))),
                "an integer without fraction or exponent",
            ),
            Form::Time => self.require(
                self.after.as_text().is_some_and(is_rfc_3339),
                "a string in RFC 3339 form such as 2006-01-02T15:04:05Z, or null",
            ),
            Form::TextMap => {
                let members = self.after.as_object();
                let members =
                    members.ok_or_else(|| self.undecodable("an object of strings, or null"))?;
                members.iter().try_for_each(|(name, value)| {
                    if value.as_text().is_some() || self.before.member(name) == Some(value) {
                        return Ok(());
                    }
                    let expected =
                        "a string (quote numbers and booleans; to drop the value, remove it)";
                    Err(self.member(name).undecodable(expected))
                })
            }
            Form::TextList => self.each_new("a list of strings, or null", |element| {
                element.require(element.after.as_text().is_some(), "a string")
            }),
            Form::OwnerReferences => self
                .each_new("a list of owner references, or null", |element| {
                    element.is_owner_reference()
                }),
        }
    }

    /// Checks the elements that the list did not have before.
    fn each_new(
        &self,
        expected: &'static str,
        check: impl Fn(&Field<'_>) -> Result<(), IntegrityError>,
    ) -> Result<(), IntegrityError> {
        let elements = self
            .after
            .as_array()
            .ok_or_else(|| self.undecodable(expected))?;
        let mut fingerprints = Fingerprints::default();
        let mut known: Option<HashSet<u64, RandomState>> = None;
        for (index, after) in elements.iter().enumerate() {
            let element = Field {
                before: &ABSENT,
                after,
                path: self.path.child(&index.to_string()),
            };
            if let Err(error) = check(&element) {
                let known = known.get_or_insert_with(|| {
                    let before = self.before.as_array().unwrap_or_default();
                    before
                        .iter()
                        .map(|element| fingerprints.of(element))
                        .collect()
                });
                if !known.contains(&fingerprints.of(after)) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn is_owner_reference(&self) -> Result<(), IntegrityError> {
        self.require(
            self.after.as_object().is_some(),
            "an object with apiVersion, kind, name and uid",
        )?;
        for name in ["apiVersion", "kind", "name", "uid"] {
            let field = self.member(name);
            field.require(field.after.as_text().is_some(), "a string (required)")?;
        }
        for name in ["controller", "blockOwnerDeletion"] {
            let field = self.member(name);
            field.require(
                field.after.is_null() || field.after.as_bool().is_some(),
                "a boolean",
            )?;
        }
        Ok(())
    }

    fn require(&self, holds: bool, expected: &'static str) -> Result<(), IntegrityError> {
        if holds {
            Ok(())
        } else {
            Err(self.undecodable(expected))
        }
    }

    fn undecodable(&self, expected: &'static str) -> IntegrityError {
        let found = match self.after {
            Json::Null => "null or absent",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "a string",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        };
        IntegrityError::MetadataUndecodable {
            path: self.path.clone(),
            expected,
            found,
        }
    }
}

/// Whether Go reads the text as RFC 3339: upper-case `T` and `Z`, and no leap second.
fn is_rfc_3339(text: &str) -> bool {
    OffsetDateTime::parse(text, &Rfc3339).is_ok()
        && text.as_bytes().get(10) == Some(&b'T')
        && !text.ends_with('z')
        && text.as_bytes().get(17..19) != Some(b"60")
}
