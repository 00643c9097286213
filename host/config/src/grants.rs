//! What an entry, or a member of a group, may use beyond its review.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::access::Access;
use super::images::Images;
use super::lookup::{Lookup, Lookups};
use super::plugin::Capability;
use super::problem::Collector;
use super::read::Fields;
use super::signature::TrustedRoot;

/// The grants of one plugin. A section such as `lookups` grants its capability, too.
#[derive(Debug)]
pub(super) struct Grants {
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) lookups: Lookups,
    pub(super) access: Access,
    pub(super) images: Option<Arc<Images>>,
}

// === impl Grants ===

impl Grants {
    /// Reads the keys of an entry. Paths begin in `folder`. Images without a trusted root have `root`.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        folder: &Path,
        root: Option<&TrustedRoot>,
        problems: &Collector,
    ) -> Self {
        let mut capabilities = read_capabilities(fields);
        let lookups = Lookup::read_all(fields, problems);
        let access = Access::read(fields);
        let images = Images::read(fields, folder, root).map(Arc::new);
        let granted = [
            (!lookups.is_empty(), Capability::Cluster),
            (access.is_some(), Capability::Access),
            (images.is_some(), Capability::Images),
        ];
        let granted = granted.into_iter().filter(|(is_granted, _)| *is_granted);
        capabilities.extend(granted.map(|(_, capability)| capability));
        Self {
            capabilities,
            lookups,
            access: access.unwrap_or_default(),
            images,
        }
    }
}

/// Reads `capabilities`.
pub(super) fn read_capabilities(fields: &mut Fields<'_>) -> BTreeSet<Capability> {
    let nodes = fields
        .optional("capabilities")
        .and_then(|node| node.elements("capabilities"));
    nodes
        .unwrap_or_default()
        .iter()
        .filter_map(|node| node.word(Capability::WORDS))
        .collect()
}
