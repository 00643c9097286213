//! Takes the sides of a comparison in turn, round by round, so that what changes on the machine meanwhile changes for
//! all of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;
use tempfile::TempDir;
use tollgate_tests::binary::profile_directory;

use crate::documents::{pod, review};
use crate::load::{Expected, Measured, Order, Pace, PatchOperation, histogram};
use crate::plugins::RUST;
use crate::process::Memory;
use crate::servers::{Fleet, Setup, Side};

/// What is sent to which server.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The server.
    #[serde(flatten)]
    pub setup: Setup,
    /// The size of the object.
    pub object_bytes: usize,
    /// Connections that are kept alive.
    pub connections: usize,
}

/// Subjects that are compared with each other.
#[derive(Clone, Debug)]
pub struct Group {
    /// What the comparison is about.
    pub name: &'static str,
    /// Who is compared.
    pub subjects: Vec<Subject>,
    /// How often each is taken.
    pub rounds: usize,
    /// For how long each time.
    pub window: Duration,
    /// How fast.
    pub pace: Pace,
}

/// What was measured of one subject, round by round.
#[derive(Clone)]
pub struct Figures {
    /// CPU time of the server's process per request.
    pub cpu_microseconds: Vec<f64>,
    /// Requests answered in a second.
    pub requests_per_second: Vec<f64>,
    /// Latencies of all rounds, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Memory of the server's process after the last round.
    pub memory: Memory,
    /// The patch in the answers.
    pub patch: Vec<PatchOperation>,
    rounds: Vec<Histogram<u64>>,
}

/// Figures by subject.
#[derive(Default)]
pub struct Results(HashMap<Subject, Figures>);

/// Measures groups.
pub struct Bench {
    fleet: Fleet,
    /// Holds the reviews.
    folder: TempDir,
}

/// Sent before each window: connections are new each time.
const WARM_UP: Duration = Duration::from_millis(250);
/// One window ends after so many, however fast the server.
const MAX_REQUESTS: u64 = 1_000_000;

// === impl Bench ===

impl Bench {
    /// With no server started yet.
    ///
    /// # Errors
    /// Fails if folders for its files cannot be made.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            fleet: Fleet::new()?,
            folder: tempfile::tempdir().context("no temporary folder can be made")?,
        })
    }

    /// Measures all subjects of a group, in turn.
    ///
    /// # Errors
    /// Fails if a server does not answer as it should, or two sides of the same case answer differently.
    ///
    /// # Panics
    /// Panics if a server does not come up.
    pub fn measure(&mut self, group: &Group) -> anyhow::Result<Results> {
        let setups: Vec<&Setup> = group
            .subjects
            .iter()
            .map(|subject| &subject.setup)
            .collect();
        self.fleet.keep(&setups);
        let mut results = Results::default();
        for round in 0..group.rounds {
            let mut subjects: Vec<&Subject> = group.subjects.iter().collect();
            if round % 2 == 1 {
                subjects.reverse();
            }
            for subject in subjects {
                let measured = self
                    .take(subject, group)
                    .with_context(|| format!("{} ({})", subject.describe(), group.name))?;
                let figures = results.0.entry(subject.clone());
                figures.or_insert_with(Figures::none).add(&measured)?;
            }
        }
        for (subject, figures) in &mut results.0 {
            figures.memory = Memory::of(self.fleet.get(&subject.setup)?.process())?;
        }
        results.assert_same_patches()?;
        Ok(results)
    }

    fn take(&mut self, subject: &Subject, group: &Group) -> anyhow::Result<Measured> {
        let body = self.body(subject.object_bytes)?;
        let setup = &subject.setup;
        let server = self.fleet.get(setup)?;
        let plugins = match setup.side {
            Side::Host | Side::Native => setup.plugins,
            Side::Empty => 0,
        };
        let order = Order {
            address: server.address(),
            ca: server.ca_bundle().to_owned(),
            path: setup.work.path().to_owned(),
            body,
            connections: subject.connections,
            pace: group.pace,
            warm_up: WARM_UP,
            duration: group.window,
            max_requests: MAX_REQUESTS,
            process: server.process(),
            expected: Expected {
                allowed: true,
                operations: setup.work.operations(plugins),
            },
        };
        order.run_in_process(&profile_directory().join("load"))
    }

    fn body(&self, bytes: usize) -> anyhow::Result<PathBuf> {
        let file = self.folder.path().join(format!("{bytes}.json"));
        if !file.exists() {
            std::fs::write(&file, review(&pod(bytes)))
                .with_context(|| format!("{} cannot be written", file.display()))?;
        }
        Ok(file)
    }
}

// === impl Subject ===

impl Subject {
    /// In a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let Setup {
            side,
            plugins,
            threads,
            ..
        } = &self.setup;
        format!(
            "{}, {plugins} × {}, {} B, {} connections, {threads} threads",
            side.name(),
            self.setup.work(),
            self.object_bytes,
            self.connections
        )
    }

    /// The same case for another side; whatever plugins are written in, the controls are in Rust.
    #[must_use]
    pub fn on(&self, side: Side) -> Self {
        let mut other = self.clone();
        other.setup.side = side;
        if side != Side::Host {
            other.setup.language = RUST;
        }
        other
    }
}

// === impl Figures ===

impl Figures {
    fn none() -> Self {
        Self {
            cpu_microseconds: Vec::new(),
            requests_per_second: Vec::new(),
            latencies: histogram(),
            memory: Memory::default(),
            patch: Vec::new(),
            rounds: Vec::new(),
        }
    }

    fn add(&mut self, measured: &Measured) -> anyhow::Result<()> {
        anyhow::ensure!(
            measured.requests > 0,
            "no request was answered within the window"
        );
        let requests = measured.requests as f64;
        let cpu = measured.server_cpu_seconds / requests * 1e6;
        self.cpu_microseconds.push(cpu);
        self.requests_per_second
            .push(requests / measured.wall_seconds);
        let mut round = histogram();
        for (nanoseconds, count) in &measured.latencies {
            round.saturating_record_n(*nanoseconds, *count);
        }
        self.latencies.add(&round)?;
        self.rounds.push(round);
        self.patch.clone_from(&measured.patch);
        Ok(())
    }

    /// CPU time of the server's process per request, in the median of the rounds.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        median(self.cpu_microseconds.clone())
    }

    /// Requests answered in a second, in the median of the rounds.
    #[must_use]
    pub fn rate(&self) -> f64 {
        median(self.requests_per_second.clone())
    }

    /// The latency in microseconds that a share of the requests does not exceed, in the median of the rounds.
    #[must_use]
    pub fn latency(&self, share: f64) -> f64 {
        let rounds = self.rounds.iter();
        median(
            rounds
                .map(|round| round.value_at_quantile(share) as f64 / 1e3)
                .collect(),
        )
    }
}

// === impl Results ===

impl Results {
    /// The figures of a subject.
    ///
    /// # Errors
    /// Fails if it was not measured.
    pub fn of(&self, subject: &Subject) -> anyhow::Result<&Figures> {
        let figures = self.0.get(subject);
        figures.with_context(|| format!("{} was not measured", subject.describe()))
    }

    /// The figures of a subject, when it was measured.
    #[must_use]
    pub fn get(&self, subject: &Subject) -> Option<&Figures> {
        self.0.get(subject)
    }

    /// What one more plugin costs, in microseconds of CPU: the difference of two subjects in each round, divided by
    /// the plugins between them, in the median of the rounds.
    ///
    /// # Errors
    /// Fails if one of the two was not measured.
    pub fn slope(&self, few: &Subject, many: &Subject) -> anyhow::Result<f64> {
        let plugins = many.setup.plugins.saturating_sub(few.setup.plugins) as f64;
        let rounds = self.of(few)?.cpu_microseconds.iter();
        let rounds = rounds.zip(&self.of(many)?.cpu_microseconds);
        Ok(median(
            rounds.map(|(few, many)| (many - few) / plugins).collect(),
        ))
    }

    /// The two sides have to make the same of the object, or one of them is fast because it does something else.
    fn assert_same_patches(&self) -> anyhow::Result<()> {
        for (subject, figures) in &self.0 {
            let Some(native) = self.0.get(&subject.on(Side::Native)) else {
                continue;
            };
            let sorted = |patch: &[PatchOperation]| {
                let mut texts: Vec<String> = patch.iter().map(ToString::to_string).collect();
                texts.sort();
                texts
            };
            anyhow::ensure!(
                subject.setup.side == Side::Empty
                    || sorted(&figures.patch) == sorted(&native.patch),
                "{}: the host and the native control answer with different patches: {:?} and {:?}",
                subject.describe(),
                figures.patch,
                native.patch
            );
        }
        Ok(())
    }
}

/// Of an even number of values, the mean of the two in the middle; of none, not a number.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
    }
}
