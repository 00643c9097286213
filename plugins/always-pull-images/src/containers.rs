//! All items in a Pod that name an image, with the field of their pull policy.

use tollgate_sdk::prelude::*;

/// A container of any kind, or an image volume.
pub(crate) struct Container {
    pub(crate) name: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) policy: Option<String>,
    /// The place of the pull policy, which may be missing.
    pub(crate) pull_policy: Pointer,
    pub(crate) is_ephemeral: bool,
}

/// Returns all containers and image volumes of a Pod, in the order of the lists.
pub(crate) fn all(pod: Document) -> Vec<Container> {
    let mut all = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_at = pointer!["spec", list];
        for index in 0..pod.length(&list_at).unwrap_or(0) {
            let at = list_at.child(index);
            let pull_policy = at.child("imagePullPolicy");
            all.push(Container {
                name: pod.text(at.child("name")),
                image: pod.text(at.child("image")),
                policy: pod.text(&pull_policy),
                pull_policy,
                is_ephemeral: list == "ephemeralContainers",
            });
        }
    }
    for volume in pod.select("/spec/volumes/*/image") {
        if !matches!(volume.value, Value::Object(_)) {
            continue;
        }
        let at = Pointer::from(volume.pointer);
        let pull_policy = at.child("pullPolicy");
        all.push(Container {
            name: None,
            image: pod.text(at.child("reference")),
            policy: pod.text(&pull_policy),
            pull_policy,
            is_ephemeral: false,
        });
    }
    all
}
