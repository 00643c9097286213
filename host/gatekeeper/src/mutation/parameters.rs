//! The parameters of a mutator: the values that it sets.

use serde::Deserialize;
use serde_json::Value as Json;

use super::change::Setter;
use super::image::Image;
use super::mutator::Kind;
use super::path::Step;
use crate::{Pointer, Problems};

/// The parameters of all kinds. Each kind has some of them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Parameters {
    pub(super) path_tests: Vec<PathTest>,
    assign: Option<Assign>,
    operation: Option<SetOperation>,
    values: Option<Values>,
    assign_domain: Option<String>,
    assign_path: Option<String>,
    assign_tag: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PathTest {
    pub(super) sub_path: String,
    pub(super) condition: Tested,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) enum Tested {
    MustExist,
    MustNotExist,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Assign {
    value: Option<Json>,
    from_metadata: Option<FromMetadata>,
    external_data: Option<Json>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FromMetadata {
    field: MetadataField,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum MetadataField {
    Name,
    Namespace,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum SetOperation {
    Merge,
    Prune,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Values {
    from_list: Vec<Json>,
}

// === impl Parameters ===

impl Parameters {
    /// Returns what the mutator sets.
    pub(super) fn setter(
        &self,
        kind: Kind,
        path: &[Step],
        at: &Pointer,
        problems: &mut Problems,
    ) -> Option<Setter> {
        self.refuse_others(kind, at, problems);
        match kind {
            Kind::Assign | Kind::AssignMetadata => {
                let at = at.child("assign");
                let assign = self.assign.as_ref();
                assign
                    .unwrap_or(&Assign::default())
                    .setter(kind, path, &at, problems)
            }
            Kind::ModifySet => {
                let values = self.values.as_ref().map(|values| values.from_list.clone());
                let Some(values) = values else {
                    problems.at(at.child("values"), "fromList is required");
                    return None;
                };
                Some(match self.operation {
                    Some(SetOperation::Prune) => Setter::Prune(values),
                    Some(SetOperation::Merge) | None => Setter::Merge(values),
                })
            }
            Kind::AssignImage => {
                let image = Image {
                    domain: self.assign_domain.clone().unwrap_or_default(),
                    path: self.assign_path.clone().unwrap_or_default(),
                    tag: self.assign_tag.clone().unwrap_or_default(),
                };
                for (key, problem) in image.problems() {
                    let place = match key.is_empty() {
                        true => at.clone(),
                        false => at.child(key),
                    };
                    problems.at(place, problem);
                }
                Some(Setter::Image(image))
            }
        }
    }

    /// Refuses parameters of other kinds, so that none is ignored silently.
    fn refuse_others(&self, kind: Kind, at: &Pointer, problems: &mut Problems) {
        let is_assign = matches!(kind, Kind::Assign | Kind::AssignMetadata);
        let (is_set, is_image) = (kind == Kind::ModifySet, kind == Kind::AssignImage);
        for (key, is_given, is_own) in [
            (
                "pathTests",
                !self.path_tests.is_empty(),
                kind != Kind::AssignMetadata,
            ),
            ("assign", self.assign.is_some(), is_assign),
            ("operation", self.operation.is_some(), is_set),
            ("values", self.values.is_some(), is_set),
            ("assignDomain", self.assign_domain.is_some(), is_image),
            ("assignPath", self.assign_path.is_some(), is_image),
            ("assignTag", self.assign_tag.is_some(), is_image),
        ] {
            if is_given && !is_own {
                problems.at(at.child(key), format!("{kind:?} has no such parameter"));
            }
        }
    }
}

// === impl Assign ===

impl Assign {
    fn setter(
        &self,
        kind: Kind,
        path: &[Step],
        at: &Pointer,
        problems: &mut Problems,
    ) -> Option<Setter> {
        if self.external_data.is_some() {
            let message = "external data is not supported";
            problems.at(at.child("externalData"), message);
            return None;
        }
        let setter = match (&self.value, &self.from_metadata) {
            (Some(value), None) => Setter::Value(value.clone()),
            (None, Some(from)) => match from.field {
                MetadataField::Name => Setter::Name,
                MetadataField::Namespace => Setter::Namespace,
            },
            _ => {
                let message = "expected exactly one of value and fromMetadata";
                problems.at(at.clone(), message);
                return None;
            }
        };
        let of_metadata = kind == Kind::AssignMetadata;
        if of_metadata && matches!(&setter, Setter::Value(value) if !value.is_string()) {
            problems.at(at.child("value"), "expected a string");
        }
        if let Some(Step::Item {
            key,
            value: Some(wanted),
        }) = path.last()
        {
            let fits = matches!(&setter, Setter::Value(value) if value.get(key) == Some(&wanted.to_json()));
            if !fits {
                let message = format!("expected an object with the {key} of the location");
                problems.at(at.child("value"), message);
            }
        }
        Some(setter)
    }
}
