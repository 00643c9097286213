//! Volumes: their names and types.

use tollgate_sdk::prelude::*;

/// A volume of a Pod.
pub(crate) struct Volume {
    pub(crate) at: Pointer,
    pub(crate) name: String,
    /// The members that name the volume's type, such as `emptyDir`. A valid volume has one.
    pub(crate) sources: Vec<String>,
}

/// Returns all volumes of a Pod, in order. The names of the members are enough.
pub(super) fn all(document: Document, spec: &str) -> Vec<Volume> {
    let at = Pointer::from([spec, "/volumes"].concat());
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
    for node in document.select([at.as_str(), "/*/*"].concat()) {
        let place = node.pointer[at.as_str().len() + 1..].split_once('/');
        let volume = place.and_then(|(index, member)| {
            Some((volumes.get_mut(index.parse::<usize>().ok()?)?, member))
        });
        match (volume, node.value) {
            (None, _) | (_, Value::Null) => {}
            (Some((volume, "name")), name) => volume.name = name.into_text().unwrap_or_default(),
            (Some((volume, source)), _) => volume.sources.push(source.to_owned()),
        }
    }
    volumes
}
