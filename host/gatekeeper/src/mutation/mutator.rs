//! One mutator, as it is written in the cluster.

use std::fmt;

use serde::Deserialize;
use serde_json::Value as Json;

use super::apply_to::{ApplyTo, check_kinds};
use super::change::{Change, Condition, Setter};
use super::parameters::{Parameters, PathTest, Tested};
use super::path::{self, Step};
use super::{Request, Selects};
use crate::{Match, Pointer, Problems, Subject};

/// A mutator.
#[derive(Clone, Debug)]
pub struct Mutator {
    kind: Kind,
    name: String,
    applies_to: Vec<ApplyTo>,
    matching: Match,
    path: Vec<Step>,
    conditions: Vec<Option<Condition>>,
    setter: Setter,
}

/// The kinds in the order of Gatekeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Assign,
    AssignImage,
    AssignMetadata,
    ModifySet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    apply_to: Vec<ApplyTo>,
    #[serde(default, rename = "match")]
    matching: Match,
    location: String,
    #[serde(default)]
    parameters: Parameters,
}

const GROUP: &str = "mutations.gatekeeper.sh/";
/// A longer path is no path that somebody wrote. Changes are recursive.
const LONGEST_PATH: usize = 32;

// === impl Mutator ===

impl Mutator {
    /// Reads a mutator. None if it has errors. `at` is its place.
    pub fn read(written: &Json, at: &Pointer, problems: &mut Problems) -> Option<Self> {
        let before = problems.len();
        let text = |pointer: &str| written.pointer(pointer).and_then(Json::as_str);
        let kind = text("/kind").and_then(Kind::read);
        let is_of_gatekeeper = text("/apiVersion").is_some_and(|text| text.starts_with(GROUP));
        let (Some(kind), true) = (kind, is_of_gatekeeper) else {
            let message =
                "is no Assign, AssignImage, AssignMetadata or ModifySet of mutations.gatekeeper.sh";
            problems.at(at.clone(), message);
            return None;
        };
        let name = text("/metadata/name");
        if name.is_none() {
            problems.at(at.clone(), "metadata.name is required");
        }
        let at = at.child("spec");
        let none = || Json::Object(serde_json::Map::new());
        let spec = written.get("spec").cloned().unwrap_or_else(none);
        let spec: Spec = match serde_json::from_value(spec) {
            Ok(spec) => spec,
            Err(error) => {
                problems.at(at, error.to_string());
                return None;
            }
        };
        for (key, problem) in spec.matching.problems() {
            problems.at(at.below(&["match", key]), problem);
        }
        check_kinds(kind, &spec.apply_to, &at.child("applyTo"), problems);
        let location = at.child("location");
        let path = read_path(kind, &spec.location, &location, problems)?;
        let at = at.child("parameters");
        let setter = spec.parameters.setter(kind, &path, &at, problems);
        let mut conditions = read_conditions(
            &spec.parameters.path_tests,
            &path,
            &at.child("pathTests"),
            problems,
        );
        if kind == Kind::AssignMetadata {
            // Labels and annotations that exist stay as they are.
            conditions = vec![None, None, Some(Condition::Missing)];
        }
        (problems.len() == before).then_some(Self {
            kind,
            name: name?.to_owned(),
            applies_to: spec.apply_to,
            matching: spec.matching,
            path,
            conditions,
            setter: setter?,
        })
    }

    /// The order of the mutators.
    pub(super) fn order(&self) -> (Kind, &str) {
        (self.kind, &self.name)
    }

    /// Whether the mutator changes an object, as it is now.
    pub(super) fn matches(
        &self,
        object: &Json,
        request: Request<'_>,
        selects: Selects<'_>,
    ) -> bool {
        let applies = match self.kind {
            Kind::AssignMetadata => ["CREATE", "UPDATE"].contains(&request.operation),
            _ => self.applies_to.iter().any(|one| one.covers(request)),
        };
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Json::as_str);
            value.unwrap_or_default().to_owned()
        };
        let labels = || object.pointer("/metadata/labels").and_then(Json::as_object);
        applies
            && selects(
                &self.matching,
                &Subject::read(
                    [request.group, request.kind],
                    request.namespace,
                    labels().cloned(),
                    &text,
                ),
                &self.to_string(),
            )
    }

    /// Changes an object.
    pub(super) fn change(&self, object: &mut Json, namespace: &str) -> Result<bool, String> {
        let name = object.pointer("/metadata/name").and_then(Json::as_str);
        let change = Change {
            path: &self.path,
            conditions: &self.conditions,
            setter: &self.setter,
            metadata: [name.unwrap_or_default().to_owned(), namespace.to_owned()],
        };
        change.apply(object, 0)
    }

    /// Whether two mutators take a field of one kind for different types.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let overlaps = |one: &ApplyTo| other.applies_to.iter().any(|two| one.overlaps(two));
        if !self.applies_to.iter().any(overlaps) {
            return false;
        }
        let mut steps = self.path.iter().zip(&other.path);
        let first = steps.find_map(|steps| match steps {
            (Step::Field(one), Step::Field(two)) if one == two => None,
            (Step::Field(_), Step::Field(_)) => Some(false),
            (Step::Item { key: one, .. }, Step::Item { key: two, .. }) => {
                (one != two).then_some(true)
            }
            _ => Some(true),
        });
        // A location of a ModifySet ends at a list without keys.
        let ends_in_set = |short: &Self, long: &Self| {
            short.kind == Kind::ModifySet && short.path.len() < long.path.len()
        };
        first.unwrap_or_else(|| ends_in_set(self, other) || ends_in_set(other, self))
    }
}

impl fmt::Display for Mutator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

fn read_path(
    kind: Kind,
    location: &str,
    at: &Pointer,
    problems: &mut Problems,
) -> Option<Vec<Step>> {
    let path = match path::parse(location) {
        Ok(path) => path,
        Err(error) => {
            problems.at(at.clone(), error);
            return None;
        }
    };
    let mut problem = |message: &str| {
        problems.at(at.clone(), message);
        None
    };
    if path.len() > LONGEST_PATH {
        return problem("has more than 32 steps");
    }
    let field = |index: usize| match path.get(index) {
        Some(Step::Field(name)) => Some(name.as_str()),
        _ => None,
    };
    if kind == Kind::AssignMetadata {
        let is_of_metadata = path.len() == 3
            && field(0) == Some("metadata")
            && matches!(field(1), Some("labels" | "annotations"))
            && field(2).is_some();
        return match is_of_metadata {
            true => Some(path),
            false => problem("expected metadata.labels.NAME or metadata.annotations.NAME"),
        };
    }
    if field(0) == Some("metadata") {
        return problem("must not be in the metadata; only an AssignMetadata changes metadata");
    }
    let last = path.len() - 1;
    match &path[last] {
        Step::Item { value: None, .. } => problem("must not end with `*`"),
        Step::Item { .. } if kind != Kind::Assign => {
            problem("must not end with an element of a list")
        }
        Step::Field(name) => match last.checked_sub(1).map(|index| &path[index]) {
            Some(Step::Item { key, .. }) if key == name && kind != Kind::ModifySet => {
                problem("must not end with the key of the list")
            }
            _ => Some(path),
        },
        Step::Item { .. } => Some(path),
    }
}

fn read_conditions(
    tests: &[PathTest],
    location: &[Step],
    at: &Pointer,
    problems: &mut Problems,
) -> Vec<Option<Condition>> {
    let mut conditions = vec![None; location.len()];
    for (index, test) in tests.iter().enumerate() {
        let at = at.child(index).child("subPath");
        let path = match path::parse(&test.sub_path) {
            Ok(path) => path,
            Err(error) => {
                problems.at(at, error);
                continue;
            }
        };
        if !location.starts_with(&path) {
            problems.at(at, "is no beginning of the location");
            continue;
        }
        let condition = match test.condition {
            Tested::MustExist => Condition::Exists,
            Tested::MustNotExist => Condition::Missing,
        };
        let known = conditions[path.len() - 1].replace(condition);
        if known.is_some_and(|known| known != condition) {
            problems.at(at, "must exist and must not exist");
        }
    }
    let missing = conditions
        .iter()
        .position(|one| *one == Some(Condition::Missing));
    let exists = conditions
        .iter()
        .rposition(|one| *one == Some(Condition::Exists));
    if let (Some(missing), Some(exists)) = (missing, exists)
        && missing < exists
    {
        problems.at(at.clone(), "something must exist below what must not exist");
    }
    conditions
}

// === impl Kind ===

impl Kind {
    fn read(word: &str) -> Option<Self> {
        match word {
            "Assign" => Some(Self::Assign),
            "AssignImage" => Some(Self::AssignImage),
            "AssignMetadata" => Some(Self::AssignMetadata),
            "ModifySet" => Some(Self::ModifySet),
            _ => None,
        }
    }
}
