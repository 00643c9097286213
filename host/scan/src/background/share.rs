//! Computes the part of the cluster that this replica scans: the namespaces for which its hash is the highest among
//! the replicas.
//!
//! When a replica starts or stops, only its namespaces move.

use std::collections::{BTreeSet, HashMap};

use crate::key::Key;

/// The part of the cluster that is this replica's, during one scan.
#[derive(Debug)]
pub(crate) struct Share {
    own: String,
    replicas: BTreeSet<String>,
    /// The results so far, by namespace. Cluster-scoped objects count as one namespace.
    owned: HashMap<Option<String>, bool>,
}

/// Returns the replica that scans a namespace: the one with the highest hash over both names (rendezvous hashing).
pub(crate) fn owner<'r>(
    replicas: &'r BTreeSet<String>,
    namespace: Option<&str>,
) -> Option<&'r String> {
    // A namespace has a name of at least one character.
    let namespace = namespace.unwrap_or_default();
    replicas
        .iter()
        .max_by_key(|replica| Key::of(&[replica.as_str(), namespace]).number())
}

// === impl Share ===

impl Share {
    pub(crate) fn new(own: &str, replicas: BTreeSet<String>) -> Self {
        Self {
            own: own.to_owned(),
            replicas,
            owned: HashMap::new(),
        }
    }

    /// The replicas that share the namespaces.
    pub(crate) fn replicas(&self) -> &BTreeSet<String> {
        &self.replicas
    }

    /// Whether this replica scans the objects of a namespace, or the cluster-scoped ones.
    pub(crate) fn owns(&mut self, namespace: Option<&str>) -> bool {
        let key = namespace.map(str::to_owned);
        if let Some(is_owned) = self.owned.get(&key) {
            return *is_owned;
        }
        let is_owned = owner(&self.replicas, namespace) == Some(&self.own);
        self.owned.insert(key, is_owned);
        is_owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(count: usize) -> BTreeSet<String> {
        (0..count)
            .map(|index| format!("tollgate-replica-{index}"))
            .collect()
    }

    fn namespaces() -> Vec<String> {
        (0..1_000).map(|index| format!("team-{index}")).collect()
    }

    #[test]
    fn every_namespace_belongs_to_exactly_one_replica_and_the_parts_are_alike() {
        let all = replicas(4);
        let mut shares: Vec<Share> = all.iter().map(|own| Share::new(own, all.clone())).collect();
        let mut counts = vec![0; shares.len()];
        for namespace in namespaces()
            .iter()
            .map(|name| Some(name.as_str()))
            .chain([None])
        {
            let owners: Vec<usize> = shares
                .iter_mut()
                .enumerate()
                .filter_map(|(index, share)| share.owns(namespace).then_some(index))
                .collect();
            assert_eq!(owners.len(), 1, "{namespace:?}");
            counts[owners[0]] += 1;
        }
        assert!(
            counts.iter().all(|count| (200..300).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn namespaces_move_only_to_a_new_replica_or_from_one_that_is_gone() {
        let (three, four) = (replicas(3), replicas(4));
        let mut moved = 0;
        for namespace in namespaces() {
            let before = owner(&three, Some(&namespace));
            let after = owner(&four, Some(&namespace));
            if before != after {
                moved += 1;
                assert_eq!(after.map(String::as_str), Some("tollgate-replica-3"));
            }
        }
        assert!((200..300).contains(&moved), "{moved}");
    }

    #[test]
    fn replica_that_is_not_among_them_owns_nothing() {
        let mut share = Share::new("other", replicas(2));
        assert!(!share.owns(Some("shop")));
        assert!(!share.owns(None));
        assert_eq!(owner(&BTreeSet::new(), Some("shop")), None);
    }
}
