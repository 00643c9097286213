//! A constraint: parameters, a match, and the effect of violations.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::matching::Match;
use crate::{Pointer, Problems, schema};

/// The part of a template that constraints depend on.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// The kind of the constraints.
    pub name: &'a str,
    /// The schema of `spec.parameters`. None means that anything is allowed.
    pub schema: Option<&'a Json>,
}

/// A constraint of the template's kind.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// The constraint's name.
    pub name: String,
    /// The parameters, with the defaults of the schema.
    pub parameters: Json,
    /// Whether the constraint has parameters, or the schema a default for all of them.
    pub has_parameters: bool,
    /// The objects that it is about.
    pub matching: Match,
    /// The effect of a violation.
    pub action: Action,
}

/// The effect of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The plugin only logs it.
    DryRun,
    /// The user gets a warning.
    Warn,
    /// The plugin denies the request.
    Deny,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Scoped {
    action: String,
    enforcement_points: Vec<Point>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Point {
    name: String,
}

/// The problem of a template without constraints.
const NONE: &str =
    "is empty, so the template would allow everything; expected at least one constraint";

// === impl Constraint ===

impl Constraint {
    /// Reads the constraints under `constraints`, without those of which no action is for this enforcement point. An empty
    /// list is a problem: its template would allow everything.
    #[must_use]
    pub fn read_all(
        list: &[Json],
        kind: Kind<'_>,
        point: &str,
        errors: &mut Problems,
    ) -> Vec<Self> {
        let at = Pointer::root().child("constraints");
        if list.is_empty() {
            errors.at(at.clone(), NONE);
        }
        let list = list.iter().enumerate();
        list.filter_map(|(index, one)| Self::read(one, &at.child(index), kind, point, errors))
            .collect()
    }

    /// Reads a constraint. None if it has errors, or if none of its actions is for this enforcement point.
    pub fn read(
        constraint: &Json,
        at: &Pointer,
        kind: Kind<'_>,
        point: &str,
        errors: &mut Problems,
    ) -> Option<Self> {
        let text = |pointer: &str| constraint.pointer(pointer).and_then(Json::as_str);
        let is_of_gatekeeper = text("/apiVersion")
            .is_some_and(|version| version.starts_with("constraints.gatekeeper.sh/"));
        if text("/kind") != Some(kind.name) || !is_of_gatekeeper {
            let expected = format!(
                "is no {} of constraints.gatekeeper.sh, the kind of the template",
                kind.name
            );
            errors.at(at.clone(), expected);
            return None;
        }
        let name = text("/metadata/name");
        if name.is_none() {
            errors.at(at.clone(), "metadata.name is required");
        }
        let spec = at.child("spec");
        let action = read_action(constraint, &spec, point, errors);
        let matching = read_match(constraint, &spec, errors);
        let (parameters, has_parameters) = read_parameters(constraint, &spec, kind, errors);
        Some(Self {
            name: name?.to_owned(),
            parameters,
            has_parameters,
            matching: matching?,
            action: action??,
        })
    }
}

fn read_match(constraint: &Json, spec: &Pointer, errors: &mut Problems) -> Option<Match> {
    let place = spec.child("match");
    let value = constraint
        .pointer("/spec/match")
        .filter(|value| !value.is_null());
    let Some(value) = value else {
        return Some(Match::default());
    };
    let matching: Match = match serde_json::from_value(value.clone()) {
        Ok(matching) => matching,
        Err(error) => {
            errors.at(place, format!("is no match of a constraint: {error}"));
            return None;
        }
    };
    for (key, problem) in matching.problems() {
        errors.at(place.child(key), problem);
    }
    Some(matching)
}

/// Reads the parameters, and sets the defaults of the schema. False if the constraint has none.
fn read_parameters(
    constraint: &Json,
    spec: &Pointer,
    kind: Kind<'_>,
    errors: &mut Problems,
) -> (Json, bool) {
    let given = constraint
        .pointer("/spec/parameters")
        .filter(|value| !value.is_null())
        .or_else(|| kind.schema?.get("default"));
    let is_given = given.is_some();
    let mut parameters = given.cloned().unwrap_or_else(|| Json::Object(Map::new()));
    if let Some(schema) = kind.schema {
        schema::set_defaults(schema, &mut parameters);
        schema::validate(schema, &parameters, &spec.child("parameters"), errors);
    }
    (parameters, is_given)
}

/// Reads the action. The inner option is empty if the constraint has none for this enforcement point.
fn read_action(
    constraint: &Json,
    spec: &Pointer,
    point: &str,
    errors: &mut Problems,
) -> Option<Option<Action>> {
    let word = constraint
        .pointer("/spec/enforcementAction")
        .and_then(Json::as_str);
    if word != Some("scoped") {
        let action = Action::read(word.unwrap_or("deny"));
        if action.is_none() {
            errors.at(
                spec.child("enforcementAction"),
                "expected deny, warn, dryrun or scoped",
            );
        }
        return action.map(Some);
    }
    let place = spec.child("scopedEnforcementActions");
    let scoped = constraint.pointer("/spec/scopedEnforcementActions");
    let scoped: Vec<Scoped> = match scoped.map(|scoped| serde_json::from_value(scoped.clone())) {
        Some(Ok(scoped)) => scoped,
        Some(Err(error)) => {
            errors.at(place, format!("is no list of actions: {error}"));
            return None;
        }
        None => {
            errors.at(place, "is required, because enforcementAction is `scoped`");
            return None;
        }
    };
    let mut strictest = None;
    for (index, one) in scoped.iter().enumerate() {
        let Some(action) = Action::read(&one.action) else {
            let place = place.child(index).child("action");
            errors.at(place, "expected deny, warn or dryrun");
            return None;
        };
        let points = &one.enforcement_points;
        let is_here = points
            .iter()
            .any(|one| one.name == "*" || one.name == point);
        if is_here {
            strictest = strictest.max(Some(action));
        }
    }
    Some(strictest)
}

// === impl Action ===

impl Action {
    fn read(word: &str) -> Option<Self> {
        match word {
            "deny" => Some(Self::Deny),
            "warn" => Some(Self::Warn),
            "dryrun" => Some(Self::DryRun),
            _ => None,
        }
    }
}
