//! The results of earlier scans, for objects that have not changed.
//!
//! The key of a result is the version of the object, its Namespace, and the plugin with its settings and exceptions. A
//! result under another key is not used.

use serde::{Deserialize, Serialize};

use super::finding::{Finding, Verdict};
use super::key::Key;

/// An object that was judged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Seen {
    /// The object's uid and resourceVersion, or a hash of its content.
    pub version: Key,
    /// A hash of its Namespace.
    pub namespace: Key,
    /// The key of all plugins whose rules could match objects of this resource. None if a result of one of them must not
    /// be used again. With the same key, the object need not even be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<Key>,
    /// The results of each plugin whose rules match.
    pub plugins: Vec<Kept>,
}

/// The results of one plugin for one object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Kept {
    /// A hash of the plugin's code, settings, exceptions, and everything else in its entry.
    pub key: Key,
    /// The phases with the result `pass`, and nothing else to say. Nearly all results are like this, so they are small.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    passed: Vec<Passed>,
    /// All other results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
}

/// A phase in which a plugin has nothing against an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Passed {
    Mutate,
    Validate,
}

// === impl Seen ===

impl Seen {
    /// Returns the results of a plugin with this key.
    #[must_use]
    pub fn kept(&self, key: Key) -> Option<&Kept> {
        self.plugins.iter().find(|kept| kept.key == key)
    }

    /// Whether the object is the same, in the same Namespace.
    #[must_use]
    pub fn is_of(&self, version: Key, namespace: Key) -> bool {
        self.version == version && self.namespace == namespace
    }

    /// Estimates the memory that the results take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = self.plugins.iter();
        let kept = kept.map(|kept| {
            let findings = kept.findings.iter().map(Finding::bytes);
            size_of::<Kept>() + kept.passed.len() + findings.sum::<usize>()
        });
        size_of::<Self>() + kept.sum::<usize>()
    }
}

// === impl Kept ===

impl Kept {
    /// Keeps the results of a plugin.
    #[must_use]
    pub fn new(key: Key, findings: &[Finding]) -> Self {
        let mut kept = Self {
            key,
            passed: Vec::new(),
            findings: Vec::new(),
        };
        for finding in findings {
            match Passed::of(finding) {
                Some(passed) => kept.passed.push(passed),
                None => kept.findings.push(finding.clone()),
            }
        }
        kept.passed.shrink_to_fit();
        kept
    }

    /// Returns the results again. `plugin` and `mode` are those of the plugin with this key.
    #[must_use]
    pub fn findings(&self, plugin: &str, mode: &str) -> Vec<Finding> {
        let passed = self.passed.iter().map(|passed| Finding {
            plugin: plugin.to_owned(),
            phase: passed.phase().to_owned(),
            verdict: Verdict::Pass,
            message: String::new(),
            mode: mode.to_owned(),
            fault: None,
            covered: Vec::new(),
            exception: None,
            without: None,
        });
        let mut findings: Vec<_> = passed.chain(self.findings.iter().cloned()).collect();
        // `mutate` is before `validate`.
        findings.sort_by(|one, other| one.phase.cmp(&other.phase));
        findings
    }
}

// === impl Passed ===

impl Passed {
    fn of(finding: &Finding) -> Option<Self> {
        let is_plain = finding.verdict == Verdict::Pass
            && finding.message.is_empty()
            && finding.covered.is_empty()
            && finding.without.is_none();
        let phases = [Self::Mutate, Self::Validate];
        phases
            .into_iter()
            .find(|passed| is_plain && passed.phase() == finding.phase)
    }

    fn phase(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Covered;
    use crate::finding::tests::finding;

    #[test]
    fn kept_results_are_the_same_again() {
        let mutate = Finding {
            phase: "mutate".to_owned(),
            ..finding("labels", Verdict::Pass)
        };
        let expired = Finding {
            covered: vec![Covered {
                index: 0,
                applied: false,
            }],
            ..finding("labels", Verdict::Pass)
        };
        for findings in [
            vec![mutate.clone(), finding("labels", Verdict::Pass)],
            vec![mutate.clone(), finding("labels", Verdict::Fail)],
            vec![mutate, expired],
        ] {
            let kept = Kept::new(Key::of(&["k"]), &findings);
            assert_eq!(kept.findings("labels", "enforce"), findings);
            let text = serde_json::to_string(&kept).unwrap();
            assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept);
        }
    }

    #[test]
    fn results_of_another_version_or_namespace_are_not_used() {
        let [one, other] = ["1", "2"].map(|text| Key::of(&[text]));
        let seen = Seen {
            version: one,
            namespace: one,
            judged_by: None,
            plugins: vec![Kept::new(one, &[finding("labels", Verdict::Fail)])],
        };
        assert!(seen.is_of(one, one));
        assert!(!seen.is_of(other, one));
        assert!(!seen.is_of(one, other));
        assert!(seen.kept(one).is_some());
        assert!(seen.kept(other).is_none());
    }
}
