//! Finds what a whole object lost on its way through a plugin.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::IntegrityError;
use crate::document::{Json, Pointer};
use crate::patch::Operation;
use crate::patch::apply::{Applier, ApplyLimits};
use crate::patch::diff::{Fingerprints, Identity, diff, identity};

#[derive(Default)]
struct Losses {
    dropped: Found,
    rounded: Found,
}

#[derive(Default)]
struct Found {
    first: Option<Pointer>,
    count: usize,
}

pub(super) fn check(
    before: &Json,
    changes: &[Operation],
    allow_removals: bool,
) -> Result<(), IntegrityError> {
    let mut losses = Losses::default();
    losses.find(&Pointer::root(), before, changes);
    // Check rounding first, because it is never intended.
    if let Some(path) = losses.rounded.first {
        return Err(IntegrityError::PrecisionLost {
            path,
            others: losses.rounded.count - 1,
        });
    }
    match losses.dropped.first {
        Some(path) if !allow_removals => Err(IntegrityError::FieldsDropped {
            path,
            others: losses.dropped.count - 1,
        }),
        _ => Ok(()),
    }
}

/// Elements that were added to arrays, to recognise an element that only moved.
#[derive(Default)]
struct Arrivals<'c> {
    by_value: HashMap<(Pointer, u64), Vec<usize>, RandomState>,
    by_identity: HashMap<(Pointer, Identity<'c>), usize, RandomState>,
}

// === impl Losses ===

impl Losses {
    /// Looks for losses between a value at `at` and the result of `changes`.
    fn find(&mut self, at: &Pointer, before: &Json, changes: &[Operation]) {
        let mut document = before.clone();
        let mut applier = Applier::new(ApplyLimits::NONE);
        let mut gone = Vec::new();
        for operation in changes {
            let array = operation.path().split_last().map(|(parent, _)| parent);
            let array = array.filter(|parent| {
                document
                    .lookup(parent)
                    .is_some_and(|json| json.as_array().is_some())
            });
            let Ok(displaced) = applier.operation(&mut document, operation) else {
                break;
            };
            match (displaced, operation.value(), array) {
                (None, ..) => {}
                (Some(old), Some(new), _) => self.replaced(&join(at, operation.path()), &old, new),
                (Some(old), None, _) if old.is_null() => {}
                (Some(old), None, Some(array)) => gone.push((array, operation.path(), old)),
                (Some(_), None, None) => self.dropped.add(&join(at, operation.path())),
            }
        }
        if !gone.is_empty() {
            self.left(at, &gone, changes);
        }
    }

    fn replaced(&mut self, at: &Pointer, old: &Json, new: &Json) {
        match (old, new) {
            (Json::Null, _) => {}
            (_, Json::Null) => self.dropped.add(at),
            (Json::Number(old), Json::Number(new))
                if old.as_f64().to_bits() == new.as_f64().to_bits() =>
            {
                self.rounded.add(at);
            }
            // The diff replaces a container by one of the same type only as a fallback, without the details.
            (Json::Object(old), Json::Object(new)) => {
                for (name, old) in old.iter().filter(|(_, old)| !old.is_null()) {
                    match new.get(name) {
                        Some(new) => self.compare(&at.child(name), old, new),
                        None => self.dropped.add(&at.child(name)),
                    }
                }
            }
            (Json::Array(old), Json::Array(new)) => self.unordered(at, old, new),
            (Json::Object(old), _) if !old.is_empty() => self.dropped.add(at),
            (Json::Array(old), _) if !old.is_empty() => self.dropped.add(at),
            _ => {}
        }
    }

    fn compare(&mut self, at: &Pointer, old: &Json, new: &Json) {
        match diff(old, new).as_slice() {
            [Operation::Replace { path, value }] if path.is_root() => self.replaced(at, old, value),
            changes => self.find(at, old, changes),
        }
    }

    /// Handles removed elements. Some of them were added again in the same array.
    fn left(&mut self, at: &Pointer, gone: &[(Pointer, &Pointer, Json)], changes: &[Operation]) {
        let mut fingerprints = Fingerprints::default();
        let mut arrivals = Arrivals::default();
        for (index, change) in changes.iter().enumerate() {
            let Operation::Add { path, value } = change else {
                continue;
            };
            let Some((array, _)) = path.split_last() else {
                continue;
            };
            if let Some(identity) = identity(value) {
                arrivals
                    .by_identity
                    .insert((array.clone(), identity), index);
            }
            arrivals
                .by_value
                .entry((array, fingerprints.of(value)))
                .or_default()
                .push(index);
        }
        for (array, path, old) in gone {
            let equal = arrivals
                .by_value
                .get_mut(&(array.clone(), fingerprints.of(old)));
            if equal.and_then(Vec::pop).is_some() {
                continue;
            }
            let same = identity(old)
                .and_then(|identity| arrivals.by_identity.remove(&(array.clone(), identity)));
            match same.map(|index| &changes[index]) {
                Some(Operation::Add { path, value }) => self.compare(&join(at, path), old, value),
                _ => self.dropped.add(&join(at, path)),
            }
        }
    }

    /// Handles arrays that were too large and too different to align. An element may be at any index.
    fn unordered(&mut self, at: &Pointer, old: &[Json], new: &[Json]) {
        let mut fingerprints = Fingerprints::default();
        let mut by_value: HashMap<u64, usize, RandomState> = HashMap::default();
        let mut by_identity = HashMap::<_, _, RandomState>::default();
        for (index, element) in new.iter().enumerate() {
            *by_value.entry(fingerprints.of(element)).or_default() += 1;
            if let Some(identity) = identity(element) {
                by_identity.insert(identity, index);
            }
        }
        for (index, element) in old
            .iter()
            .enumerate()
            .filter(|(_, element)| !element.is_null())
        {
            if let Some(count) = by_value
                .get_mut(&fingerprints.of(element))
                .filter(|count| **count > 0)
            {
                *count -= 1;
                continue;
            }
            match identity(element).and_then(|identity| by_identity.remove(&identity)) {
                Some(position) => {
                    self.compare(&at.child(&position.to_string()), element, &new[position])
                }
                None => self.dropped.add(&at.child(&index.to_string())),
            }
        }
    }
}

// === impl Found ===

impl Found {
    fn add(&mut self, path: &Pointer) {
        self.first.get_or_insert_with(|| path.clone());
        self.count += 1;
    }
}

fn join(at: &Pointer, path: &Pointer) -> Pointer {
    Pointer::from_tokens(at.tokens().chain(path.tokens()))
}
