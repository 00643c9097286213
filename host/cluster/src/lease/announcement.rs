//! The message of a replica to the leader: its plugins with their rules, and whether it is ready.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most bytes of an announcement. Kubernetes takes 256 KiB for all annotations of an object.
const MOST_BYTES: usize = 192 << 10;

/// A digest of the requests that a plugin is called for. Two plugins with the same digest are registered alike.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct RulesDigest(pub(crate) String);

/// The content of a replica's Lease.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Announcement {
    /// Whether kube-apiserver sends reviews to the replica.
    pub(crate) ready: bool,
    /// The plugins that the replica serves, by name.
    pub(crate) plugins: BTreeMap<String, Announced>,
    /// The public key with which the replica proves that it answers reviews. Older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) canary: Option<String>,
}

/// One plugin of a replica.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Announced {
    /// The digest of the plugin's code. Absent if the announcement would have been too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// The digest of its rules.
    pub(crate) rules: RulesDigest,
}

// === impl Announcement ===

impl Announcement {
    /// Writes the announcement as JSON of bounded length. If it is too long, leaves out the digests of code. If that is
    /// not enough, leaves out plugins, too; the leader then does not widen their rules.
    pub(crate) fn encode(&self) -> String {
        let whole = json(self);
        if whole.len() <= MOST_BYTES {
            return whole;
        }
        let mut shorter = self.clone();
        for plugin in shorter.plugins.values_mut() {
            plugin.digest = None;
        }
        let mut text = json(&shorter);
        while text.len() > MOST_BYTES && !shorter.plugins.is_empty() {
            let keep = shorter.plugins.len() / 2;
            shorter.plugins = shorter.plugins.into_iter().take(keep).collect();
            tracing::error!(
                announced = keep,
                "too many plugins for the replica's Lease; the rules of the others are not registered anew"
            );
            text = json(&shorter);
        }
        text
    }

    /// Reads an announcement. Returns none if it is not one.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether the replica serves the plugin with these rules.
    pub(crate) fn serves(&self, plugin: &str, rules: &RulesDigest) -> bool {
        self.plugins
            .get(plugin)
            .is_some_and(|announced| announced.rules == *rules)
    }
}

fn json(announcement: &Announcement) -> String {
    serde_json::to_string(announcement).expect("the keys of the maps are strings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize) -> Announcement {
        let plugin = |index| {
            let announced = Announced {
                digest: Some(format!("sha256:{index:064}")),
                rules: RulesDigest(format!("{index:032}")),
            };
            (format!("plugin-{index:04}"), announced)
        };
        Announcement {
            ready: true,
            plugins: (0..count).map(plugin).collect(),
            canary: Some("key".to_owned()),
        }
    }

    #[test]
    fn is_read_as_written() {
        let announcement = of(3);
        assert_eq!(
            Announcement::decode(&announcement.encode()),
            Some(announcement)
        );
        assert_eq!(Announcement::decode("{}"), None);
    }

    #[test]
    fn leaves_out_digests_and_then_plugins_to_stay_short() {
        let many = of(2_000).encode();
        assert!(many.len() <= MOST_BYTES, "{}", many.len());
        let many = Announcement::decode(&many).expect("readable");
        assert_eq!(many.plugins.len(), 2_000);
        assert_eq!(many.plugins["plugin-0000"].digest, None);
        let too_many = of(10_000).encode();
        assert!(too_many.len() <= MOST_BYTES);
        let too_many = Announcement::decode(&too_many).expect("readable");
        assert!(too_many.plugins.len() < 10_000 && too_many.ready);
    }
}
