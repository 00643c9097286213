//! Finds the exceptions that are still needed.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};
use tollgate_config::{Exception, PluginConfig};

use super::finding::{Results, Summary, Verdict};

/// An exception, with what the scan knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The plugin's name.
    pub plugin: String,
    /// The position in the plugin's `exceptions`.
    pub index: usize,
    /// The name, or else the position.
    pub label: String,
    /// The end as it was written.
    pub until: String,
    /// The reason.
    pub reason: String,
    /// Whether it can be deleted.
    pub state: State,
    /// The objects that it covers.
    pub objects: u64,
    /// The objects for which the plugin is not called because of it.
    pub applied: u64,
    /// The results for the objects that it covers, without exceptions.
    pub without: Summary,
}

/// Whether an exception can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The exception has expired and has no effect.
    Expired,
    /// The exception names users or groups, and objects do not show who changes them.
    NotJudged,
    /// The exception covers no object.
    Unused,
    /// The exception covers objects, and the plugin would accept them without it.
    NotNeeded,
    /// Without it, objects would be denied, changed or warned about.
    Needed,
}

/// What a scan knows about the objects that exceptions cover, by the plugin and the position in its `exceptions`.
#[derive(Clone, Debug, Default)]
pub struct Uses(BTreeMap<(String, usize), Used>);

/// The objects that an exception covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    objects: u64,
    /// The objects to which it applied.
    applied: u64,
    /// Those of them that the plugin has something against.
    needed: u64,
    /// The worst results for the objects without it.
    without: Summary,
}

/// Lists the exceptions of all plugins, in the order of the configuration.
#[must_use]
pub fn rows<'c>(
    plugins: impl Iterator<Item = &'c PluginConfig>,
    results: &Results,
    now: SystemTime,
) -> Vec<Row> {
    let mut uses = Uses::default();
    uses.add(results);
    uses.rows(plugins, now)
}

fn row(plugin: &str, index: usize, exception: &Exception, used: Used, now: SystemTime) -> Row {
    let names_users = !exception.users.is_empty() || !exception.groups.is_empty();
    let state = if !exception.is_active(now) {
        State::Expired
    } else if names_users {
        State::NotJudged
    } else if used.applied == 0 {
        State::Unused
    } else if used.needed == 0 {
        State::NotNeeded
    } else {
        State::Needed
    };
    Row {
        plugin: plugin.to_owned(),
        index,
        label: exception.label(index),
        until: exception.until().to_owned(),
        reason: exception.reason().to_owned(),
        state,
        objects: used.objects,
        applied: used.applied,
        without: used.without,
    }
}

// === impl Uses ===

impl Uses {
    /// Adds the objects of some results. Each object must be in them once.
    pub fn add(&mut self, results: &Results) {
        for judged in results.judged.values() {
            // An object counts once for both phases of a plugin.
            let mut of_object: BTreeMap<(&str, usize), (bool, Verdict)> = BTreeMap::new();
            for finding in &judged.findings {
                let without = finding.without.unwrap_or(finding.verdict);
                for covered in &finding.covered {
                    let key = (finding.plugin.as_str(), covered.index);
                    let (applied, worst) = of_object.entry(key).or_insert((false, without));
                    *applied |= covered.applied;
                    *worst = without.min(*worst);
                }
            }
            for ((plugin, index), (applied, worst)) in of_object {
                let used = self.0.entry((plugin.to_owned(), index)).or_default();
                used.objects += 1;
                used.applied += u64::from(applied);
                used.needed += u64::from(applied && worst != Verdict::Pass);
                used.without.add(worst);
            }
        }
    }

    /// Lists the exceptions of all plugins, in the order of the configuration.
    #[must_use]
    pub fn rows<'c>(
        &self,
        plugins: impl Iterator<Item = &'c PluginConfig>,
        now: SystemTime,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for plugin in plugins {
            let name = plugin.name.as_str();
            for (index, exception) in plugin.exceptions.iter().enumerate() {
                rows.push(row(name, index, exception, self.of(name, index), now));
            }
        }
        rows
    }

    fn of(&self, plugin: &str, index: usize) -> Used {
        let used = self.0.get(&(plugin.to_owned(), index));
        used.copied().unwrap_or_default()
    }
}

// === impl State ===

impl State {
    /// Returns the word in JSON.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::NotJudged => "not-judged",
            Self::Unused => "unused",
            Self::NotNeeded => "not-needed",
            Self::Needed => "needed",
        }
    }
}

// === impl Row ===

impl Row {
    /// Returns the row as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "plugin": self.plugin,
            "name": self.label,
            "index": self.index,
            "until": self.until,
            "reason": self.reason,
            "state": self.state.key(),
            "objects": self.objects,
            "applied": self.applied,
            "without": self.without.to_json(),
        })
    }

    /// Returns what to do about the exception, for people.
    #[must_use]
    pub fn advice(&self) -> String {
        let refused = self.without.count(Verdict::Fail) + self.without.count(Verdict::Error);
        match self.state {
            State::Expired if refused > 0 => format!(
                "expired, so it has no effect: delete it; {refused} of {} objects that it named are refused",
                self.objects
            ),
            State::Expired => "expired, so it has no effect: delete it".to_owned(),
            State::NotJudged => {
                "not judged: it names users or groups, and objects do not say who changes them"
                    .to_owned()
            }
            State::Unused if self.objects > 0 => format!(
                "unused: earlier exceptions cover its {} objects already",
                self.objects
            ),
            State::Unused => "unused: it covers no object that the plugin is called for".to_owned(),
            State::NotNeeded => format!(
                "not needed: the plugin has nothing against the {} objects that it covers",
                self.objects
            ),
            State::Needed => {
                let warned = self.without.count(Verdict::Warn);
                format!(
                    "needed: without it, {refused} of {} objects would be refused, and {warned} would be changed or \
                     warned about",
                    self.objects
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::{finding, judged, place};
    use crate::finding::{Covered, Finding};
    use tollgate_config::SharedException;

    fn exception(key: &str, expires: &str) -> Exception {
        let spec =
            json!({"plugins": ["labels"], key: ["x"], "reason": "legacy", "expires": expires});
        SharedException::read(&spec).unwrap().exception
    }

    fn excepted(indices: &[usize], without: Verdict) -> Finding {
        let covered = indices.iter().enumerate();
        Finding {
            covered: covered
                .map(|(position, index)| Covered {
                    index: *index,
                    applied: position == 0,
                })
                .collect(),
            without: Some(without),
            ..finding("labels", Verdict::Skip)
        }
    }

    #[test]
    fn says_for_each_exception_whether_it_is_needed() {
        let mut results = Results::default();
        let mut add =
            |name: &str, findings| results.add(place(Some("shop"), name), judged(findings));
        add("a", vec![excepted(&[0], Verdict::Fail)]);
        add("b", vec![excepted(&[0], Verdict::Pass)]);
        add("c", vec![excepted(&[1, 2], Verdict::Pass)]);
        let refused = Finding {
            covered: vec![Covered {
                index: 4,
                applied: false,
            }],
            ..finding("labels", Verdict::Fail)
        };
        add("d", vec![refused]);
        let exceptions = [
            exception("names", "never"),
            exception("names", "never"),
            exception("names", "never"),
            exception("users", "never"),
            exception("names", "2020-01-01"),
            exception("namespaces", "never"),
        ];
        let mut uses = Uses::default();
        uses.add(&results);
        let now = SystemTime::now();
        let rows: Vec<Row> = exceptions
            .iter()
            .enumerate()
            .map(|(index, exception)| {
                row("labels", index, exception, uses.of("labels", index), now)
            })
            .collect();
        let states: Vec<_> = rows.iter().map(|row| row.state.key()).collect();
        assert_eq!(
            states,
            [
                "needed",
                "not-needed",
                "unused",
                "not-judged",
                "expired",
                "unused"
            ]
        );
        assert_eq!((rows[0].objects, rows[0].applied), (2, 2));
        assert!(
            rows[0].advice().contains("1 of 2 objects"),
            "{}",
            rows[0].advice()
        );
        assert!(
            rows[2].advice().contains("earlier exceptions"),
            "{}",
            rows[2].advice()
        );
        assert!(
            rows[4].advice().contains("1 of 1 objects"),
            "{}",
            rows[4].advice()
        );
    }

    #[test]
    fn one_object_counts_once_for_both_phases() {
        let mut results = Results::default();
        let mut mutate = excepted(&[0], Verdict::Pass);
        mutate.phase = "mutate".to_owned();
        results.add(
            place(None, "a"),
            judged(vec![mutate, excepted(&[0], Verdict::Fail)]),
        );
        let mut uses = Uses::default();
        uses.add(&results);
        let used = uses.of("labels", 0);
        assert_eq!((used.objects, used.applied, used.needed), (1, 1, 1));
        assert_eq!(used.without.count(Verdict::Fail), 1);
        assert_eq!(used.without.total(), 1);
    }
}
