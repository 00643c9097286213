//! Takes a mutator's change of a Pod over into the workload whose pod template the Pod shows.
//!
//! The host applies and checks the answer on the Pod first, because the plugin wrote it for the Pod. So a JSON Patch, a
//! merge patch and a whole object all end in a changed Pod, and that is put back into the template.

use tollgate_admission::chain;
use tollgate_admission::review::template::Template;
use tollgate_engine::{Fault, Subject};
use tollgate_json::document::Json;
use tollgate_json::patch::diff;

use super::{Change, Evaluated, depth_of, too_deep};
use crate::pipeline::blocking::blocking_if;
use crate::pipeline::outcome::Ended;

/// The end of a mutator's turn, and its change if there is one.
pub(super) type Taken = (Result<Ended, Fault>, Option<Change>);

/// Takes a change of `pod` over into `workload`, which is the object as it is now. A mutator without a Pod got the object
/// itself.
pub(super) fn into_workload(
    taken: Taken,
    pod: Option<&Subject>,
    workload: Option<&Json>,
    max_depth: u32,
) -> Taken {
    let (ended, change) = taken;
    let template = pod.and_then(|pod| pod.request.template.as_deref());
    let (Some(template), Some(workload)) = (template, workload) else {
        return (ended, change);
    };
    let Some(change) = change else {
        return (ended, None);
    };
    let moved = blocking_if(change.heavy, || {
        moved(change, template, workload, max_depth)
    });
    match moved {
        Ok(Some(change)) => (ended, Some(change)),
        // The plugin changed only what controllers set.
        Ok(None) => (Ok(Ended::Unchanged), None),
        Err(fault) => (Err(fault), None),
    }
}

fn moved(
    change: Change,
    template: &Template,
    workload: &Json,
    max_depth: u32,
) -> Result<Option<Change>, Fault> {
    let put = template.workload.put(workload, &change.after);
    let after = put.map_err(|error| Fault::BadPatch {
        what: chain(&error),
    })?;
    let operations = diff(workload, &after);
    if operations.is_empty() {
        return Ok(None);
    }
    // The template is deeper in the workload than the Pod's fields are in the Pod.
    let depth = operations.iter().map(depth_of).max().unwrap_or_default();
    if depth > max_depth {
        return Err(too_deep(depth, max_depth));
    }
    Ok(Some(Change {
        after,
        operations,
        is_whole: false,
        ..change
    }))
}

// === impl Evaluated ===

impl Evaluated {
    /// Takes the change over into the workload, if the plugin got a pod template.
    pub(super) fn into_workload(
        self,
        pod: Option<&Subject>,
        workload: Option<&Json>,
        max_depth: u32,
    ) -> Self {
        let Self {
            ended,
            change,
            called,
            known_secrecy,
        } = self;
        let (ended, change) = into_workload((ended, change), pod, workload, max_depth);
        Self {
            ended,
            change,
            called,
            known_secrecy,
        }
    }
}
