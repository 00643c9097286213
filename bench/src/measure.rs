//! Runs the sides of a comparison in turn, round by round, so that changes on the machine affect all of them alike.

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

/// A server with the requests that are sent to it.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The server.
    #[serde(flatten)]
    pub setup: Setup,
    /// The size of the object.
    pub object_bytes: usize,
    /// Number of kept-alive connections.
    pub connections: usize,
}

/// Subjects that are compared with each other.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name of the comparison.
    pub name: &'static str,
    /// The subjects to compare.
    pub subjects: Vec<Subject>,
    /// Number of rounds for each subject.
    pub rounds: usize,
    /// Duration of each round.
    pub window: Duration,
    /// The pace of the requests.
    pub pace: Pace,
    /// Sides with another pace.
    pub own_paces: Vec<(Side, Pace)>,
}

/// The results of one subject, round by round.
#[derive(Clone)]
pub struct Figures {
    /// CPU time of the server's process per request.
    pub cpu_microseconds: Vec<f64>,
    /// Answered requests per second.
    pub requests_per_second: Vec<f64>,
    /// Latencies of all rounds, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Memory of the server's process after the last round.
    pub memory: Memory,
    /// The patch in the answers.
    pub patch: Vec<PatchOperation>,
    rounds: Vec<Histogram<u64>>,
}

/// The figures of each subject.
#[derive(Default)]
pub struct Results(HashMap<Subject, Figures>);

/// Measures groups of subjects.
pub struct Bench {
    fleet: Fleet,
    /// The folder with the reviews.
    folder: TempDir,
}

/// Time before each window, because its connections are new.
const WARM_UP: Duration = Duration::from_millis(250);
/// Number of requests after which a window ends, however fast the server is.
const MAX_REQUESTS: u64 = 1_000_000;

// === impl Bench ===

impl Bench {
    /// Creates a bench without running servers.
    ///
    /// # Errors
    /// Fails if its folders cannot be created.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            fleet: Fleet::new()?,
            folder: tempfile::tempdir().context("cannot create a temporary folder")?,
        })
    }

    /// Measures all subjects of a group in turn.
    ///
    /// # Errors
    /// Fails if a server gives a wrong answer, or if two sides of the same case give different answers.
    ///
    /// # Panics
    /// Panics if a server does not start.
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
            Side::Host | Side::Known | Side::New | Side::Native => setup.plugins,
            Side::Empty | Side::ControllerRuntime | Side::KubeRs | Side::Floor => 0,
        };
        let order = Order {
            address: server.address(),
            ca: server.ca_bundle().to_owned(),
            path: setup.work.path().to_owned(),
            body,
            connections: subject.connections,
            pace: group.pace_of(setup.side),
            warm_up: WARM_UP,
            duration: group.window,
            max_requests: MAX_REQUESTS,
            process: server.process(),
            differ: setup.side == Side::New,
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
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(file)
    }
}

// === impl Group ===

impl Group {
    /// The pace of the requests to a side.
    #[must_use]
    pub fn pace_of(&self, side: Side) -> Pace {
        let own = self.own_paces.iter().find(|(of, _)| *of == side);
        own.map_or(self.pace, |(_, pace)| *pace)
    }
}

// === impl Subject ===

impl Subject {
    /// Describes the subject in a few words.
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

    /// Returns the same case for another side. Only the host has plugins in other languages than Rust.
    #[must_use]
    pub fn on(&self, side: Side) -> Self {
        let mut other = self.clone();
        other.setup.side = side;
        if !side.is_host() {
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
            "no request was answered within the measurement window"
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

    /// CPU time of the server's process per request: the median of the rounds.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        median(self.cpu_microseconds.clone())
    }

    /// Answered requests per second: the median of the rounds.
    #[must_use]
    pub fn rate(&self) -> f64 {
        median(self.requests_per_second.clone())
    }

    /// The latency in microseconds that a share of the requests does not exceed: the median of the rounds.
    #[must_use]
    pub fn latency(&self, share: f64) -> f64 {
        median(self.latencies_at(share))
    }

    /// The latency in microseconds that a share of the requests does not exceed, in each round.
    #[must_use]
    pub fn latencies_at(&self, share: f64) -> Vec<f64> {
        let rounds = self.rounds.iter();
        let at = |round: &Histogram<u64>| round.value_at_quantile(share) as f64 / 1e3;
        rounds.map(at).collect()
    }
}

// === impl Results ===

impl Results {
    /// Returns the figures of a subject.
    ///
    /// # Errors
    /// Fails if the subject was not measured.
    pub fn of(&self, subject: &Subject) -> anyhow::Result<&Figures> {
        let figures = self.0.get(subject);
        figures.with_context(|| format!("{} was not measured", subject.describe()))
    }

    /// Returns the figures of a subject, if it was measured.
    #[must_use]
    pub fn get(&self, subject: &Subject) -> Option<&Figures> {
        self.0.get(subject)
    }

    /// Returns the cost of one more plugin in microseconds of CPU. This is the difference of two subjects in each
    /// round, divided by the number of plugins between them. The result is the median of the rounds.
    ///
    /// # Errors
    /// Fails if one of the two was not measured.
    pub fn slope(&self, few: &Subject, many: &Subject) -> anyhow::Result<f64> {
        Ok(median(self.slopes(few, many)?))
    }

    /// Returns the cost of one more plugin in each round.
    ///
    /// # Errors
    /// Fails if one of the two was not measured.
    pub fn slopes(&self, few: &Subject, many: &Subject) -> anyhow::Result<Vec<f64>> {
        let plugins = many.setup.plugins.saturating_sub(few.setup.plugins) as f64;
        let rounds = self.of(few)?.cpu_microseconds.iter();
        let rounds = rounds.zip(&self.of(many)?.cpu_microseconds);
        Ok(rounds.map(|(few, many)| (many - few) / plugins).collect())
    }

    /// Checks that both sides give the same patch. A side that does something else would be faster.
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

/// Returns the median. For an even number of values it is the mean of the two in the middle, for no values NaN.
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

/// Returns the upper quartile: the smallest value that three quarters of the values do not exceed. For no values it is
/// NaN.
#[must_use]
pub fn upper_quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 3).div_ceil(4);
    let value = rank.checked_sub(1).and_then(|index| values.get(index));
    value.copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_quartile_covers_three_quarters() {
        let values = vec![7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0];
        assert!((upper_quartile(values) - 6.0).abs() < 1e-9);
        assert!((upper_quartile(vec![4.0, 1.0, 2.0, 3.0]) - 3.0).abs() < 1e-9);
        assert!((upper_quartile(vec![1.0]) - 1.0).abs() < 1e-9);
        assert!(upper_quartile(Vec::new()).is_nan());
    }

    #[test]
    fn side_can_have_its_own_pace() {
        let group = Group {
            name: "paces",
            subjects: Vec::new(),
            rounds: 1,
            window: Duration::ZERO,
            pace: Pace::Saturating,
            own_paces: vec![(Side::KubeRs, Pace::PerSecond(1.0))],
        };
        assert_eq!(group.pace_of(Side::KubeRs), Pace::PerSecond(1.0));
        assert_eq!(group.pace_of(Side::Host), Pace::Saturating);
    }

    #[test]
    fn median_is_middle_value() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
    }
}
