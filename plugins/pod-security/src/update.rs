//! Detects updates that change nothing relevant. The plugin accepts violations from before the policy.

use tollgate_sdk::prelude::*;

/// Whether the plugin has to check an update of a Pod.
///
/// Nearly all of a Pod's spec is immutable. Only the set of containers and their images can change. Kubernetes checks a
/// Pod again only for a new image.
pub(crate) fn is_significant(pod: Document, old: Document) -> bool {
    let is_list_changed = |list: &str| {
        let at = ["/spec/", list].concat();
        let images = [&at, "/*/image"].concat();
        length(pod, &at) != length(old, &at) || pod.select(&images) != old.select(&images)
    };
    is_list_changed("containers")
        || is_list_changed("initContainers")
        || has_new_ephemeral_image(pod, old)
}

/// Whether the template at a place is unchanged.
pub(crate) fn is_unchanged(review: &Review, at: &Pointer) -> bool {
    review.object().json(at) == review.old_object().json(at)
}

/// Whether an update adds an ephemeral container or changes its image. Containers are matched by name, and removed ones
/// do not count.
fn has_new_ephemeral_image(pod: Document, old: Document) -> bool {
    let containers = |document: Document| {
        let at = "/spec/ephemeralContainers";
        (0..length(document, at)).map(move |index| {
            let container = Pointer::from(at).child(index);
            (
                document.text(container.child("name")),
                document.text(container.child("image")),
            )
        })
    };
    let mut new = containers(pod).peekable();
    if new.peek().is_none() {
        return false;
    }
    let old: Vec<_> = containers(old).collect();
    new.any(|(name, image)| {
        let before = old.iter().find(|(known, _)| *known == name);
        before.is_none_or(|(_, known)| *known != image)
    })
}

fn length(document: Document, at: &str) -> usize {
    document.length(at).unwrap_or(0)
}
