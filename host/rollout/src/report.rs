//! What a replica tells the leader about a rollout, and what the cluster tells a replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate_config::Rollout;

use crate::decide::left;
use crate::identity::Identity;
use crate::state::{By, Observations, Phase, State};

/// What a replica tells the leader about the rollout of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the replica rolls out. None while its new version is not known.
    pub identity: Option<Identity>,
    /// The replica's run; 0 if it has no state yet, and the old version answers everything.
    pub run: u64,
    /// The replica's revision in this run.
    pub revision: u64,
    /// The phase on the replica.
    pub phase: Phase,
    /// Index of the step on the replica.
    pub step: usize,
    /// Whether the replica can call the new version.
    pub is_available: bool,
    /// Whether the step could end, by the replica's clock, when the observations were made.
    pub is_over: bool,
    /// What the replica saw in this step.
    pub observed: Observations,
    /// Who made the replica's last change.
    pub by: By,
    /// Why the rollout was stopped or rolled back, or why the new version cannot be called.
    pub reason: Option<String>,
    /// Whether an administrator asked the replica for the next step.
    pub asks_for_promotion: bool,
}

/// A report, and what only the own process knows beside it.
#[derive(Clone, Debug)]
pub struct Told {
    /// The report.
    pub report: Report,
    /// The plan that the plugin serves with.
    pub plan: Arc<Rollout>,
    /// SHA-256 of the old version's bytes.
    pub from: Option<String>,
    /// SHA-256 of the new version's bytes.
    pub to: Option<String>,
}

/// The reports of this replica, by the name of the plugin.
pub type Reports = BTreeMap<String, Told>;

/// What the cluster says about rollouts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commons {
    /// The plugins of the configuration file, whose rollouts are no matter of the cluster. None if the file was not read
    /// yet: then no rollout goes on by itself.
    pub of_file: Option<BTreeSet<String>>,
    /// What the cluster says, by the name of the plugin.
    pub plugins: BTreeMap<String, Heard>,
}

/// What the cluster says to a replica about the rollout of a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// The common state.
    pub state: Option<State>,
    /// What this replica reported last, perhaps before a restart.
    pub own: Option<Report>,
    /// What an administrator asks for.
    pub asked: Option<Asked>,
}

/// A change that an administrator asks for at the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Begin the next step, or the next run after a rollback. Counts once: for this run and revision.
    Promote {
        /// The run that the administrator saw.
        run: u64,
        /// The revision that the administrator saw.
        revision: u64,
    },
    /// Roll back.
    RollBack {
        /// The run that goes back. None for every run, for as long as the wish stands.
        run: Option<u64>,
    },
}

/// Longer reasons are cut.
const LONGEST_REASON_CHARACTERS: usize = 300;
/// Counts are written at most this often, whatever they are.
const SHORTEST_PERIOD: Duration = Duration::from_secs(2);
/// Counts that decide nothing yet are written at least this often.
const LONGEST_PERIOD: Duration = Duration::from_secs(300);
/// Counts that decide nothing yet are written about this many times in a step.
const WRITES_PER_STEP: u32 = 20;
/// How often counts are written that a step waits for.
const WAITING_PERIOD: Duration = Duration::from_secs(10);

// === impl Report ===

impl Report {
    /// The report of a replica without a state: the old version answers everything.
    #[must_use]
    pub fn stateless(identity: Option<Identity>, blocked: Option<&str>) -> Self {
        Self {
            identity,
            run: 0,
            revision: 0,
            phase: Phase::Running,
            step: 0,
            is_available: blocked.is_none(),
            is_over: false,
            observed: Observations::default(),
            by: By::Configuration,
            reason: blocked.map(cut),
            asks_for_promotion: false,
        }
    }

    /// The report of a replica in this state.
    #[must_use]
    pub fn of(plan: &Rollout, state: &State, blocked: Option<&str>, now: u64) -> Self {
        let last = state.last();
        let is_objection = matches!(state.phase, Phase::Stopped | Phase::RolledBack);
        let reason = last.filter(|_| is_objection).map(|last| &*last.reason);
        Self {
            identity: Some(state.identity.clone()),
            run: state.run,
            revision: state.revision,
            phase: state.phase,
            step: state.step,
            is_available: blocked.is_none(),
            is_over: left(plan, state, now).is_zero(),
            observed: state.observed,
            by: last.map_or(By::Configuration, |last| last.by),
            reason: reason.or(blocked).map(cut),
            asks_for_promotion: false,
        }
    }

    /// Whether the observations are about this step of this rollout.
    #[must_use]
    pub fn is_about(&self, state: &State) -> bool {
        let (identity, run, step) = (Some(&state.identity), state.run, state.step);
        self.identity.as_ref() == identity && self.run == run && self.step == step
    }

    /// Whether the report differs from an earlier one in more than counts.
    #[must_use]
    pub fn is_news_after(&self, earlier: &Self) -> bool {
        let without_counts = |report: &Self| Self {
            observed: Observations::default(),
            ..report.clone()
        };
        without_counts(self) != without_counts(earlier)
    }

    /// Whether the report is to be written, given the written one and the time since it was written. Changes are written
    /// at once, failures of gates soon, and other counts now and then.
    #[must_use]
    pub fn is_due(&self, written: Option<&Self>, since: Duration, plan: &Rollout) -> bool {
        let Some(written) = written else {
            return true;
        };
        self.is_news_after(written)
            || (self.observed != written.observed && since >= self.period(written, plan))
    }

    /// How long to wait after a write before counts are written again.
    #[must_use]
    pub fn period(&self, written: &Self, plan: &Rollout) -> Duration {
        let failed = |report: &Self| (report.observed.faults, report.observed.new_denials);
        if failed(self) != failed(written) {
            return SHORTEST_PERIOD;
        }
        let step = plan.steps.get(self.step);
        let duration = step.map_or(Duration::ZERO, |step| step.duration);
        let period = duration / WRITES_PER_STEP;
        if self.is_over {
            return period.clamp(SHORTEST_PERIOD, WAITING_PERIOD);
        }
        period.clamp(SHORTEST_PERIOD, LONGEST_PERIOD)
    }
}

// === impl Commons ===

impl Commons {
    /// Whether the rollout of a plugin is decided by the leader of the replicas.
    #[must_use]
    pub fn decides(&self, plugin: &str) -> bool {
        let of_file = self.of_file.as_ref();
        of_file.is_none_or(|names| !names.contains(plugin))
    }
}

// === impl Asked ===

impl Asked {
    /// Reads a wish: `promote-RUN.REVISION`, `rollback-RUN`, or `rollback`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "rollback" {
            return Some(Self::RollBack { run: None });
        }
        if let Some(run) = text.strip_prefix("rollback-") {
            let run = run.parse().ok()?;
            return Some(Self::RollBack { run: Some(run) });
        }
        let (run, revision) = text.strip_prefix("promote-")?.split_once('.')?;
        Some(Self::Promote {
            run: run.parse().ok()?,
            revision: revision.parse().ok()?,
        })
    }

    /// Whether the wish is to roll back this run.
    #[must_use]
    pub fn rolls_back(self, state: &State) -> bool {
        match self {
            Self::RollBack { run } => run.is_none_or(|run| run == state.run),
            Self::Promote { .. } => false,
        }
    }

    /// Whether the wish is to go on from this state.
    #[must_use]
    pub fn promotes(self, state: &State) -> bool {
        let (run, revision) = (state.run, state.revision);
        self == Self::Promote { run, revision }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_REASON_CHARACTERS).collect()
}
