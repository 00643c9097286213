//! Finds out whether an UPDATE removes finalizers and owners from an object, and does nothing else.

use std::collections::HashMap;

use tollgate_json::document::Json;

use super::Objects;
use super::steps::Steps;

const FINALIZERS: &str = "finalizers";
const OWNER_REFERENCES: &str = "ownerReferences";
/// The record of who last wrote which field. kube-apiserver ignores it here, too.
const MANAGED_FIELDS: &str = "managedFields";
/// Member of an owner reference. The garbage collector clears it before a deletion.
const BLOCKS_DELETION: &str = "blockOwnerDeletion";

/// Whether the request removes finalizers or owners, or unblocks the deletion of an owner, and changes nothing else.
/// Also true for a request that changes nothing. Returns none if the steps run out.
pub(super) fn only_removes(objects: Objects<'_>, steps: &mut Steps) -> Option<bool> {
    let Objects { new, old, .. } = objects;
    let has_finalizers_in_spec = objects.is_finalizing_namespace();
    let but: &[&str] = if has_finalizers_in_spec {
        &["metadata", "spec"]
    } else {
        &["metadata"]
    };
    if !steps.is_equal_but(new, old, but)? {
        return Some(false);
    }
    if has_finalizers_in_spec {
        let (new, old) = (new.member("spec"), old.member("spec"));
        if !members(new, old, &[FINALIZERS], steps)? || !finalizers(new, old, steps)? {
            return Some(false);
        }
    }
    let (new, old) = (new.member("metadata"), old.member("metadata"));
    let but = [FINALIZERS, OWNER_REFERENCES, MANAGED_FIELDS];
    Some(
        members(new, old, &but, steps)? && finalizers(new, old, steps)? && owners(new, old, steps)?,
    )
}

/// Whether all members except those in `but` are the same.
fn members(
    new: Option<&Json>,
    old: Option<&Json>,
    but: &[&str],
    steps: &mut Steps,
) -> Option<bool> {
    let empty = Json::empty_object();
    steps.is_equal_but(new.unwrap_or(&empty), old.unwrap_or(&empty), but)
}

/// Whether the new finalizers are among the old ones.
fn finalizers(new: Option<&Json>, old: Option<&Json>, steps: &mut Steps) -> Option<bool> {
    let Some(new) = list(new, FINALIZERS) else {
        return Some(false);
    };
    let mut left: HashMap<&str, usize> = HashMap::new();
    for finalizer in list(old, FINALIZERS).unwrap_or_default() {
        let finalizer = finalizer.as_text().unwrap_or_default();
        steps.take_text(finalizer)?;
        *left.entry(finalizer).or_default() += 1;
    }
    for finalizer in new {
        let Some(finalizer) = finalizer.as_text() else {
            return Some(false);
        };
        steps.take_text(finalizer)?;
        match left.get_mut(finalizer) {
            Some(count) if *count > 0 => *count -= 1,
            _ => return Some(false),
        }
    }
    Some(true)
}

/// Whether the new owners are among the old ones, and block no deletion that they did not block before.
fn owners(new: Option<&Json>, old: Option<&Json>, steps: &mut Steps) -> Option<bool> {
    let Some(new) = list(new, OWNER_REFERENCES) else {
        return Some(false);
    };
    let uid = |owner: &Json| Some(owner.member("uid")?.as_text()?.to_owned());
    let mut left: HashMap<Option<String>, &Json> = HashMap::new();
    for owner in list(old, OWNER_REFERENCES).unwrap_or_default() {
        let uid = uid(owner);
        steps.take_text(uid.as_deref().unwrap_or_default())?;
        left.insert(uid, owner);
    }
    for owner in new {
        let uid = uid(owner);
        steps.take_text(uid.as_deref().unwrap_or_default())?;
        let Some(old) = left.remove(&uid) else {
            return Some(false);
        };
        let blocks = |owner: &Json| owner.member(BLOCKS_DELETION).and_then(Json::as_bool);
        let blocks_more = blocks(owner) == Some(true) && blocks(old) != Some(true);
        if blocks_more || !steps.is_equal_but(owner, old, &[BLOCKS_DELETION])? {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns the list with that name. A missing list is empty. Returns none if the member is not a list.
fn list<'o>(of: Option<&'o Json>, name: &str) -> Option<&'o [Json]> {
    match of.and_then(|of| of.member(name)) {
        None | Some(Json::Null) => Some(&[]),
        Some(value) => value.as_array(),
    }
}
