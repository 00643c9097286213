//! The names of this replica, and the names of the objects that its installation owns.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The longest name of an object in Kubernetes.
const LONGEST_NAME: usize = 253;

/// The names of this replica in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The name of the installation. All replicas share it.
    pub name: String,
    /// The namespace that the installation runs in.
    pub namespace: String,
    /// The name of this replica, unique among the replicas: the name of its pod.
    pub replica: String,
}

// === impl Installation ===

impl Installation {
    /// The namespace and the name, which tell it from every other installation of the cluster.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The name of the leader's Lease.
    #[must_use]
    pub fn leader_lease(&self) -> String {
        format!("{}-leader", self.name)
    }

    /// The name of this replica's Lease.
    ///
    /// A name that Kubernetes would refuse, such as a host's name with capitals, is replaced by its digest.
    #[must_use]
    pub fn replica_lease(&self) -> String {
        self.lease_of(&self.replica)
    }

    /// The name of the Lease of a replica.
    pub(crate) fn lease_of(&self, replica: &str) -> String {
        let name = format!("{}-replica-{replica}", self.name);
        let fits = name.len() <= LONGEST_NAME
            && name.ends_with(|end: char| end.is_ascii_lowercase() || end.is_ascii_digit())
            && !name.contains("..")
            && name
                .chars()
                .all(|char| matches!(char, 'a'..='z' | '0'..='9' | '-' | '.'));
        if fits {
            name
        } else {
            format!("{}-replica-{}", self.name, digest(replica.as_bytes()))
        }
    }

    /// The name of the Secret with the own CA and the certificate of the server.
    #[must_use]
    pub fn authority_secret(&self) -> String {
        format!("{}-authority", self.name)
    }

    /// The name of both webhook configurations.
    #[must_use]
    pub fn webhook_configuration(&self) -> String {
        self.name.clone()
    }
}

/// The first half of a SHA-256, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in &Sha256::digest(bytes)[..16] {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
