//! Volumes: their names, and what they are made of.

use tollgate_sdk::prelude::*;

/// A volume of a Pod.
pub(crate) struct Volume {
    pub(crate) at: Pointer,
    pub(crate) name: String,
    /// Its members that say what it is made of, such as `emptyDir`. There is one in a valid volume.
    pub(crate) sources: Vec<String>,
}

/// All of a Pod's, in order. Which members a volume has says enough.
pub(crate) fn all(document: Document, spec: &Pointer) -> Vec<Volume> {
    let at = spec.child("volumes");
    let length = document.length(&at).unwrap_or(0);
    let mut volumes: Vec<_> = (0..length)
        .map(|index| Volume {
            at: at.child(index),
            name: String::new(),
            sources: Vec::new(),
        })
        .collect();
    if volumes.is_empty() {
        return volumes;
    }
    for node in document.select(at.child("*").child("*")) {
        let member = Pointer::from(node.pointer);
        let volume = member.parent().and_then(|volume| volume.last());
        let volume = volume.and_then(|index| volumes.get_mut(index.parse::<usize>().ok()?));
        let (Some(volume), Some(member)) = (volume, member.last()) else {
            continue;
        };
        match (member.as_str(), node.value) {
            (_, Value::Null) => {}
            ("name", value) => volume.name = value.into_text().unwrap_or_default(),
            _ => volume.sources.push(member),
        }
    }
    volumes
}
