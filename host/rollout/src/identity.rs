//! The identity of a rollout: what is rolled out, and how.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_config::{PluginConfig, Rollout};

/// The identity of a rollout: the plan, the entry of the new version, and the new version's bytes. Another identity is
/// another rollout, which begins at the first step.
///
/// The first half of the digits is about the plan and the entries, which the configuration has. The second half is about
/// the bytes. It is missing while no bytes are known, for example when no registry answers after a restart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(String);

/// Hexadecimal digits of each half.
const HALF: usize = 16;

// === impl Identity ===

impl Identity {
    /// Returns the identity of a rollout. `entry` is the plugin's entry, `version` the entry of the new version, and `digest`
    /// that of the new version's bytes, if they are known.
    ///
    /// The old version's bytes are not part of it: a rollout continues when a tag of the old version moves. A rollout of
    /// the mode has no other bytes, so its identity is always complete.
    #[must_use]
    pub fn of(
        plan: &Rollout,
        entry: &PluginConfig,
        version: &PluginConfig,
        digest: Option<&str>,
    ) -> Self {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        add(entry.name.as_str());
        add(entry.mode.as_str());
        for line in plan.lines() {
            add(&line);
        }
        for step in &plan.steps {
            add(&step.share.namespaces.join(","));
        }
        add(&plan.gates.to_string());
        add(plan.on_failure.as_str());
        // Without bytes, only the source tells two versions apart.
        add(&version.source.to_string());
        add(&version.settings.to_string());
        add(&serde_json::to_string(&version.limits).unwrap_or_default());
        for capability in &version.capabilities {
            add(capability.as_str());
        }
        // What a version may see decides what it answers.
        add(&format!("{:?}", version.access));
        for (name, lookup) in &version.lookups {
            add(name);
            add(&format!("{lookup:?}"));
        }
        let mut digits = half(hash);
        let digest = if plan.is_version { digest } else { Some("") };
        if let Some(digest) = digest {
            digits.push_str(&half(Sha256::new_with_prefix(digest)));
        }
        Self(digits)
    }

    /// Returns the identity with these digits, as a status has it.
    #[must_use]
    pub fn stored(digits: &str) -> Self {
        Self(digits.to_owned())
    }

    /// Returns the identity as hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the bytes of the new version are part of the identity.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.0.len() > HALF
    }

    /// The digits about the plan and the entries.
    #[must_use]
    pub fn plan(&self) -> &str {
        self.0.get(..HALF).unwrap_or(&self.0)
    }

    /// Whether both can be the same rollout: they are equal, or the bytes of one are not known.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        let is_vague = !self.has_bytes() || !other.has_bytes();
        self == other || (is_vague && self.plan() == other.plan())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn half(hash: Sha256) -> String {
    let mut digits = format!("{:x}", hash.finalize());
    digits.truncate(HALF);
    digits
}
