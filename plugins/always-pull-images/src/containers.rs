//! Everything in a Pod that names an image, with the field that holds its pull policy.

use tollgate_sdk::prelude::*;

/// A container of any kind, or a volume made of an image.
pub(crate) struct Container {
    pub(crate) name: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) policy: Option<String>,
    /// Where the policy is, or would be.
    pub(crate) pull_policy: Pointer,
    pub(crate) is_ephemeral: bool,
}

/// All of a Pod's, in the order of the lists.
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
