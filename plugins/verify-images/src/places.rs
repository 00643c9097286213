//! All places of an object that name an image.

use tollgate_sdk::prelude::*;

/// An image, and where it is.
pub(crate) struct Place {
    pub(crate) at: Pointer,
    pub(crate) image: String,
    /// Whether it is in a Pod itself, and not in a template for Pods.
    pub(crate) is_of_pod: bool,
    /// Whether the object did not have the image before.
    pub(crate) is_new: bool,
}

/// Where kinds have the spec of a Pod: Pod, workloads, CronJob, PodTemplate. Other kinds with such a template are covered
/// if the configuration's rules name them.
const SPECS: [&[&str]; 4] = [
    &["spec"],
    &["spec", "template", "spec"],
    &["spec", "jobTemplate", "spec", "template", "spec"],
    &["template", "spec"],
];
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Returns the images of all containers and image volumes. A container without an image is left out: its image comes
/// from elsewhere, or kube-apiserver refuses it.
pub(crate) fn all(object: Document) -> Vec<Place> {
    let mut all = Vec::new();
    for spec in SPECS {
        let is_of_pod = spec == SPECS[0];
        let mut at = Pointer::default();
        spec.iter().for_each(|token| at.push(token));
        for list in LISTS {
            let list = at.child(list);
            for index in 0..object.length(&list).unwrap_or(0) {
                add(
                    &mut all,
                    object,
                    list.child(index).child("image"),
                    is_of_pod,
                );
            }
        }
        let volumes = at.child("volumes");
        for index in 0..object.length(&volumes).unwrap_or(0) {
            let reference = volumes.child(index).child("image").child("reference");
            add(&mut all, object, reference, is_of_pod);
        }
    }
    all
}

fn add(all: &mut Vec<Place>, object: Document, at: Pointer, is_of_pod: bool) {
    let image = object.text(&at).filter(|image| !image.is_empty());
    if let Some(image) = image {
        all.push(Place {
            at,
            image,
            is_of_pod,
            is_new: true,
        });
    }
}
