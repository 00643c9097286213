//! The results of a run: a table for people, JSON for programs, and plots and a page for the documentation.

mod document;
mod machine;
mod peers;
mod plots;
mod table;
mod targets;

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::fairness::Fairness;
use crate::measure::{Figures, Group, Results, Subject};
use crate::plan::Extent;
use machine::Machine;
pub use targets::Target;

/// All results of one run.
pub struct Report {
    extent: Extent,
    machine: Machine,
    groups: Vec<(Group, Results)>,
    fairness: Option<Fairness>,
}

// === impl Report ===

impl Report {
    /// Creates an empty report with the description of this machine.
    #[must_use]
    pub fn new(extent: Extent) -> Self {
        Self {
            extent,
            machine: Machine::this(),
            groups: Vec::new(),
            fairness: None,
        }
    }

    /// Returns a warning if the machine is busy before the measurements.
    #[must_use]
    pub fn busy_machine() -> Option<String> {
        /// Highest load of an idle machine.
        const IDLE: f64 = 0.5;
        let load = Machine::load().filter(|load| *load > IDLE)?;
        Some(format!(
            "this machine is busy (load {load}): expect wrong rates and latencies; ratios suffer least"
        ))
    }

    /// Adds the results of a group.
    pub fn add(&mut self, group: Group, results: Results) {
        self.groups.push((group, results));
    }

    /// Adds the results of the fairness measurement.
    pub fn add_fairness(&mut self, fairness: Fairness) {
        self.fairness = Some(fairness);
    }

    /// Returns the figures of a subject in a group.
    ///
    /// # Errors
    /// Fails if it was not measured.
    pub fn figures(&self, group: &str, subject: &Subject) -> anyhow::Result<&Figures> {
        self.results(group)?.of(subject)
    }

    /// Returns the project's targets that this run covers.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        targets::compare(self)
    }

    /// Prints all results.
    pub fn print(&self) {
        print!("{}", table::whole(self));
    }

    /// Writes all results as JSON, with the targets at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_json(&self, file: &Path) -> anyhow::Result<()> {
        let text = format!("{:#}\n", self.json());
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Draws the plots, and writes the results into the documentation.
    ///
    /// # Errors
    /// Fails if a file cannot be written, or if the page has no place for the results.
    pub fn write_documentation(&self, folder: &Path) -> anyhow::Result<()> {
        plots::draw(self, &folder.join("performance"))?;
        document::write(self, &folder.join("performance.md"))
    }

    fn results(&self, group: &str) -> anyhow::Result<&Results> {
        let found = self.groups.iter().find(|(known, _)| known.name == group);
        let (_, results) = found.with_context(|| format!("{group} was not measured"))?;
        Ok(results)
    }

    fn json(&self) -> Value {
        let cases = self.groups.iter().flat_map(|(group, results)| {
            let subjects = group.subjects.iter();
            subjects.filter_map(|subject| Some(case(group, subject, results.get(subject)?)))
        });
        // serde_json sorts members unless the feature to keep their order is on. `targets` comes last either way.
        json!({
            "cases": cases.collect::<Vec<_>>(),
            "extent": match self.extent {
                Extent::Quick => "quick",
                Extent::Full => "full",
            },
            "fairness": self.fairness.as_ref().map(fairness),
            "machine": self.machine.json(),
            "ratios": peers::json(self),
            "targets": self.targets(),
        })
    }
}

fn case(group: &Group, subject: &Subject, figures: &Figures) -> Value {
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|share| figures.latency(share));
    json!({
        "group": group.name,
        "subject": subject,
        "pace": group.pace_of(subject.setup.side),
        "cpuMicrosecondsPerRequest": figures.cpu(),
        "requestsPerSecond": figures.rate(),
        "latencyMicroseconds": { "p50": p50, "p90": p90, "p99": p99, "p99.9": p999 },
        "residentBytes": figures.memory.resident_bytes,
        "rounds": { "cpuMicrosecondsPerRequest": figures.cpu_microseconds },
    })
}

fn fairness(fairness: &Fairness) -> Value {
    let good = |latencies: &crate::fairness::Latencies| {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| latencies.at(share));
        json!({ "p50Milliseconds": p50, "p99Milliseconds": p99, "maxMilliseconds": max })
    };
    json!({
        "alone": good(&fairness.alone),
        "besideSpinners": good(&fairness.beside_spinners),
    })
}
