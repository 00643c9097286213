//! The results of a scan: what each plugin says about each object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The result of a plugin for an object, in the words of policy reports. The worst is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The plugin gave no answer.
    Error,
    /// The object would be denied.
    Fail,
    /// The object would be allowed, with a warning, a change, or a denial that does not count in this mode.
    Warn,
    /// An exception covers the object.
    Skip,
    /// The plugin has nothing against the object.
    Pass,
}

/// The result of a plugin for an object in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Finding {
    /// The plugin's name.
    pub plugin: String,
    /// `mutate` or `validate`.
    pub phase: String,
    /// The result.
    pub verdict: Verdict,
    /// The reason. Empty for `pass`.
    pub message: String,
    /// The plugin's mode.
    pub mode: String,
    /// The kind of the fault, for `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The plugin's exceptions that cover the object, also those that have expired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covered: Vec<Covered>,
    /// The name of the exception that applies, or else its place, for `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The result without exceptions, for `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Verdict>,
}

/// An exception that covers an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Covered {
    /// The position in the plugin's `exceptions`.
    pub index: usize,
    /// Whether the plugin is not called because of this exception.
    pub applied: bool,
}

/// The identity of an object. The order is that of all output.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The namespace. None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The kind, such as `Pod`.
    pub kind: String,
    /// The API group. Empty for the core group.
    pub group: String,
    /// The name.
    pub name: String,
}

/// The results for one object.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// `apiVersion` of the object.
    pub api_version: String,
    /// The uid, if the object has one.
    pub uid: Option<String>,
    /// The results of all plugins that match.
    pub findings: Vec<Finding>,
}

/// The number of results of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary([u64; Verdict::ALL.len()]);

/// The results of a scan.
#[derive(Debug, Default)]
pub struct Results {
    /// The objects that were read.
    pub objects: u64,
    /// The objects that are being deleted. No plugin is called for them.
    pub deleted: u64,
    /// The results for each object that a plugin matches.
    pub judged: BTreeMap<Place, Judged>,
    /// The calls of plugins.
    pub calls: u64,
    /// The results that came from the state file.
    pub reused: u64,
    /// The resources and objects that could not be read or evaluated, each with the reason.
    pub unread: Vec<String>,
    /// Results that are only counted, by namespace, because there is no memory to list them.
    pub counted: BTreeMap<Option<String>, Summary>,
}

// === impl Verdict ===

impl Verdict {
    /// All verdicts, the worst first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Fail, Self::Warn, Self::Skip, Self::Pass];

    /// Returns the word in policy reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Fail => "fail",
            Self::Warn => "warn",
            Self::Skip => "skip",
            Self::Pass => "pass",
        }
    }
}

// === impl Finding ===

impl Finding {
    /// Estimates the memory that the result takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = [&self.plugin, &self.phase, &self.message, &self.mode];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        size_of::<Self>() + texts + self.covered.len() * size_of::<Covered>()
    }
}

// === impl Place ===

impl Place {
    /// Returns the kind with its group, such as `Deployment.apps`.
    #[must_use]
    pub fn full_kind(&self) -> String {
        match self.group.as_str() {
            "" => self.kind.clone(),
            group => format!("{}.{group}", self.kind),
        }
    }
}

// === impl Summary ===

impl Summary {
    /// Counts results.
    pub fn of<'f>(findings: impl Iterator<Item = &'f Finding>) -> Self {
        let mut summary = Self::default();
        for finding in findings {
            summary.add(finding.verdict);
        }
        summary
    }

    /// Counts a result.
    pub fn add(&mut self, verdict: Verdict) {
        self.0[verdict as usize] += 1;
    }

    /// Adds the counts of another summary.
    pub fn extend(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    /// Returns the number of results of a kind.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.0[verdict as usize]
    }

    /// Returns the number of all results.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the counts under the keys of policy reports.
    #[must_use]
    pub fn to_json(self) -> Value {
        json!({
            "pass": self.count(Verdict::Pass),
            "fail": self.count(Verdict::Fail),
            "warn": self.count(Verdict::Warn),
            "error": self.count(Verdict::Error),
            "skip": self.count(Verdict::Skip),
        })
    }
}

// === impl Results ===

impl Results {
    /// Adds the results for an object. An object that was listed in two versions keeps the worst result of a
    /// plugin.
    pub fn add(&mut self, place: Place, judged: Judged) {
        if judged.findings.is_empty() {
            return;
        }
        let Some(known) = self.judged.get_mut(&place) else {
            self.judged.insert(place, judged);
            return;
        };
        for finding in judged.findings {
            let same =
                |known: &Finding| known.plugin == finding.plugin && known.phase == finding.phase;
            match known.findings.iter().position(same) {
                Some(index) if finding.verdict < known.findings[index].verdict => {
                    known.findings[index] = finding;
                }
                Some(_) => {}
                None => known.findings.push(finding),
            }
        }
    }

    /// Lists all results in the order of the objects.
    pub fn findings(&self) -> impl Iterator<Item = (&Place, &Judged, &Finding)> {
        self.judged.iter().flat_map(|(place, judged)| {
            let findings = judged.findings.iter();
            findings.map(move |finding| (place, judged, finding))
        })
    }

    /// Counts all results.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::of(self.findings().map(|(_, _, finding)| finding));
        for counted in self.counted.values() {
            summary.extend(*counted);
        }
        summary
    }

    /// Counts the results of each plugin.
    #[must_use]
    pub fn by_plugin(&self) -> BTreeMap<&str, Summary> {
        let mut plugins: BTreeMap<&str, Summary> = BTreeMap::new();
        for (_, _, finding) in self.findings() {
            let summary = plugins.entry(&finding.plugin).or_default();
            summary.add(finding.verdict);
        }
        plugins
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn finding(plugin: &str, verdict: Verdict) -> Finding {
        Finding {
            plugin: plugin.to_owned(),
            phase: "validate".to_owned(),
            verdict,
            message: match verdict {
                Verdict::Pass => String::new(),
                _ => format!("{} it", verdict.as_str()),
            },
            mode: "enforce".to_owned(),
            fault: None,
            covered: Vec::new(),
            exception: None,
            without: None,
        }
    }

    pub(crate) fn place(namespace: Option<&str>, name: &str) -> Place {
        Place {
            namespace: namespace.map(str::to_owned),
            kind: "Pod".to_owned(),
            group: String::new(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn judged(findings: Vec<Finding>) -> Judged {
        Judged {
            api_version: "v1".to_owned(),
            uid: None,
            findings,
        }
    }

    #[test]
    fn counts_by_plugin_and_keeps_one_result_of_an_object_in_two_versions() {
        let mut results = Results::default();
        let here = place(Some("shop"), "web");
        results.add(here.clone(), judged(vec![finding("a", Verdict::Fail)]));
        results.add(
            here,
            judged(vec![
                finding("a", Verdict::Pass),
                finding("b", Verdict::Warn),
            ]),
        );
        results.add(place(None, "node"), judged(Vec::new()));
        assert_eq!(results.judged.len(), 1);
        assert_eq!(
            results.summary().to_json(),
            json!({"pass": 0, "fail": 1, "warn": 1, "error": 0, "skip": 0})
        );
        assert_eq!(results.by_plugin()["a"].count(Verdict::Fail), 1);
    }

    #[test]
    fn verdicts_count_at_their_own_place() {
        for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, index);
        }
    }
}
