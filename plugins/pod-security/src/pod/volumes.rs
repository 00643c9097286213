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
