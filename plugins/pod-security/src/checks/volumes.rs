//! Volumes: baseline forbids folders of the node, and restricted allows only types for ordinary users.

use std::collections::BTreeSet;

use crate::pod::{Pod, Volume};
use crate::text::{plural, quoted};
use crate::violation::{Violation, forbidden};

pub(super) const ALLOWED: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// The forbidden types, in the order of Kubernetes. For a volume with several types, Kubernetes names the first one.
pub(super) const RESTRICTED: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn host_path(pod: &Pod) -> Option<Violation> {
    let bad: Vec<_> = pod
        .volumes
        .iter()
        .filter(|volume| has(volume, "hostPath"))
        .collect();
    if bad.is_empty() {
        return None;
    }
    Some(Violation {
        reason: "hostPath volumes",
        detail: named(&bad),
        causes: bad
            .iter()
            .map(|volume| forbidden(volume.at.child("hostPath"), "must be absent"))
            .collect(),
    })
}

pub(super) fn restricted(pod: &Pod) -> Option<Violation> {
    let bad: Vec<_> = pod
        .volumes
        .iter()
        // kube-apiserver turns a volume without a type into an emptyDir.
        .filter(|volume| !volume.sources.is_empty())
        .filter(|volume| !ALLOWED.iter().any(|kind| has(volume, kind)))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &Volume| RESTRICTED.into_iter().find(|kind| has(volume, kind));
    let kinds: BTreeSet<_> = bad
        .iter()
        .map(|volume| kind(volume).unwrap_or("unknown"))
        .collect();
    Some(Violation {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {}",
            named(&bad),
            plural("uses", "use", bad.len()),
            plural(
                "restricted volume type",
                "restricted volume types",
                kinds.len()
            ),
            quoted(kinds)
        ),
        causes: bad
            .iter()
            .map(|volume| {
                let field = match kind(volume) {
                    Some(kind) => volume.at.child(kind),
                    None => volume.at.clone(),
                };
                forbidden(field, format!("must be one of {}", ALLOWED.join(", ")))
            })
            .collect(),
    })
}

fn has(volume: &Volume, kind: &str) -> bool {
    volume.sources.iter().any(|source| source == kind)
}

fn named(volumes: &[&Volume]) -> String {
    let names = volumes.iter().map(|volume| volume.name.as_str());
    format!(
        "{} {}",
        plural("volume", "volumes", volumes.len()),
        quoted(names)
    )
}
