//! The results of this replica's part of the cluster, within a number of bytes.

use std::collections::{BTreeMap, HashMap};

use tollgate_cluster::Served;

use crate::finding::{Finding, Judged, Place};
use crate::judge::Outcome;
use crate::state::Seen;

/// The results by resource and object.
#[derive(Debug)]
pub(crate) struct Memory {
    resources: BTreeMap<Served, Objects>,
    /// The earlier results of the resource that is being scanned, for objects that the scan has not reached yet.
    earlier: Objects,
    bytes: usize,
    max_bytes: usize,
}

type Objects = HashMap<String, Remembered>;

/// The results for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) place: Place,
    pub(crate) uid: Option<String>,
    /// The results that count as long as nothing changes.
    pub(crate) seen: Option<Seen>,
    /// The results that are asked for again in the next scan.
    pub(crate) others: Vec<Finding>,
}

// === impl Remembered ===

impl Remembered {
    pub(crate) fn new(outcome: &Outcome) -> Self {
        Self {
            place: outcome.item.place.clone(),
            uid: outcome.item.uid.clone(),
            seen: outcome.seen.clone(),
            others: outcome.others.clone(),
        }
    }

    /// Returns the results. `findings` returns those of the plugins that are the same as when the object was judged.
    pub(crate) fn judged(
        &self,
        resource: &Served,
        findings: impl Fn(&Seen) -> Vec<Finding>,
    ) -> Judged {
        let mut known = self.seen.as_ref().map(findings).unwrap_or_default();
        known.extend(self.others.iter().cloned());
        Judged {
            api_version: resource.api_version(),
            uid: self.uid.clone(),
            findings: known,
        }
    }

    fn bytes(&self, id: &str) -> usize {
        let Place {
            namespace,
            kind,
            group,
            name,
        } = &self.place;
        let texts = [
            namespace.as_deref(),
            Some(kind.as_str()),
            Some(group.as_str()),
            Some(name.as_str()),
            self.uid.as_deref(),
            Some(id),
        ];
        let texts: usize = texts.iter().flatten().map(|text| text.len()).sum();
        let others: usize = self.others.iter().map(Finding::bytes).sum();
        let seen = self.seen.as_ref().map_or(0, Seen::bytes);
        size_of::<(String, Self)>() + texts + others + seen
    }
}

// === impl Memory ===

impl Memory {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self {
            resources: BTreeMap::new(),
            earlier: Objects::new(),
            bytes: 0,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
        }
    }

    /// An estimate of the memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins the scan of a resource.
    pub(crate) fn begin(&mut self, resource: &Served) {
        self.earlier = self.resources.remove(resource).unwrap_or_default();
        self.resources.insert(resource.clone(), Objects::new());
    }

    /// Returns what an earlier scan saw of an object of the resource.
    pub(crate) fn seen(&self, id: &str) -> Option<&Seen> {
        self.earlier.get(id)?.seen.as_ref()
    }

    /// Takes what an earlier scan saw of an object of the resource.
    pub(crate) fn recall(&mut self, id: &str) -> Option<Remembered> {
        let recalled = self.earlier.remove(id)?;
        self.bytes = self.bytes.saturating_sub(recalled.bytes(id));
        Some(recalled)
    }

    /// Keeps the results for an object of the resource. Returns false if there is no room for them.
    pub(crate) fn keep(&mut self, resource: &Served, id: String, remembered: Remembered) -> bool {
        let bytes = remembered.bytes(&id);
        if self.bytes + bytes > self.max_bytes {
            return false;
        }
        self.bytes += bytes;
        let objects = self.resources.entry(resource.clone()).or_default();
        if let Some(before) = objects.insert(id.clone(), remembered) {
            self.bytes = self.bytes.saturating_sub(before.bytes(&id));
        }
        true
    }

    /// Ends the scan of a resource. Objects that the scan did not reach are gone. `stays` says which of them are
    /// kept, because a part of the list is missing.
    pub(crate) fn end(&mut self, resource: &Served, mut stays: impl FnMut(&Place) -> bool) {
        for (id, remembered) in std::mem::take(&mut self.earlier) {
            let bytes = remembered.bytes(&id);
            self.bytes = self.bytes.saturating_sub(bytes);
            if stays(&remembered.place) {
                self.keep(resource, id, remembered);
            }
        }
    }

    /// Forgets all resources but these.
    pub(crate) fn retain(&mut self, resources: &[Served]) {
        let gone = self.resources.keys().filter(|one| !resources.contains(one));
        let gone: Vec<Served> = gone.cloned().collect();
        for resource in gone {
            self.begin(&resource);
            self.end(&resource, |_| false);
            self.resources.remove(&resource);
        }
    }

    /// Returns the results of each namespace, and of the cluster-scoped objects.
    pub(crate) fn by_namespace(&self) -> BTreeMap<Option<String>, Vec<(&Served, &Remembered)>> {
        let mut namespaces: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (resource, objects) in &self.resources {
            for remembered in objects.values() {
                let namespace = remembered.place.namespace.clone();
                let own = namespaces.entry(namespace).or_default();
                own.push((resource, remembered));
            }
        }
        namespaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;
    use crate::finding::tests::{finding, place};
    use crate::object::tests::served;

    fn remembered(name: &str, findings: usize) -> Remembered {
        Remembered {
            place: place(Some("shop"), name),
            uid: None,
            seen: None,
            others: vec![finding("labels", Verdict::Fail); findings],
        }
    }

    #[test]
    fn keeps_at_most_so_many_bytes_and_frees_what_is_gone() {
        let pods = served("", "Pod", "pods", true);
        let one = remembered("web-000", 2).bytes("web-000");
        let mut memory = Memory::new(10 * one as u64);
        memory.begin(&pods);
        let kept = (0..20).filter(|index| {
            let name = format!("web-{index:03}");
            memory.keep(&pods, name.clone(), remembered(&name, 2))
        });
        assert_eq!(kept.count(), 10);
        assert_eq!(memory.bytes(), 10 * one);
        memory.end(&pods, |_| false);
        assert_eq!(memory.by_namespace()[&Some("shop".to_owned())].len(), 10);
        // The next scan finds one of them, and does not come to another one.
        memory.begin(&pods);
        let recalled = memory.recall("web-003").expect("kept");
        assert!(memory.keep(&pods, "web-003".to_owned(), recalled));
        memory.end(&pods, |place| place.name == "web-004");
        assert_eq!(memory.bytes(), 2 * one);
        memory.retain(&[]);
        assert_eq!(memory.bytes(), 0);
        assert!(memory.by_namespace().is_empty());
    }
}
