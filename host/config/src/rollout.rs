//! `rollout` of an entry under `plugins`: how a new version, or the mode `enforce`, takes effect step by step.

mod share;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::plugin::{Mode, PluginConfig};
use super::problem::Collector;
use super::quantity::{format_duration, parse_go_duration};
use super::read::{Fields, Node};
use super::shadow::{Live, Shadow};

pub use share::Share;

/// The plan of a rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// Whether another version is rolled out. If not, the plugin's own version gets the mode `enforce`.
    pub is_version: bool,
    /// The entry of the other version. Known before the version is loaded.
    pub to: Option<Box<PluginConfig>>,
    /// The steps in order. The list is not empty, and the last step enforces.
    pub steps: Vec<RolloutStep>,
    /// The conditions of every step.
    pub gates: RolloutGates,
    /// The effect of new denials or added time above the gates. Faults always roll back.
    pub on_failure: OnFailure,
}

/// One step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// The part of the new version.
    pub mode: StepMode,
    /// The namespaces that the step is for.
    pub share: Share,
    /// Minimum duration of the step.
    pub duration: Duration,
}

/// The part of the new version in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepMode {
    /// The new version runs after the answer and is only compared.
    Shadow,
    /// The new version runs before the answer, and its denials are warnings.
    Warn,
    /// The new version answers.
    Enforce,
}

/// The conditions for going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutGates {
    /// Maximum number of requests in a step that the new version denies and the old one does not.
    pub new_denials: u64,
    /// Maximum number of faults of the new version in a step.
    pub faults: u64,
    /// Maximum CPU time that a call of the new version takes longer than one of the old version, on average. None if
    /// the time does not matter.
    pub added_time: Option<Duration>,
    /// Minimum number of calls of the new version in a step.
    pub min_reviews: u64,
}

/// The effect of a gate that new denials or added time do not pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// The old version answers everything again.
    #[default]
    RollBack,
    /// The rollout stays at its step until somebody promotes it or rolls it back.
    Stop,
}

const STEPS_EXPECTED: &str = "a list of steps; the last one has mode: enforce";
const DURATION_EXPECTED: &str = "a positive duration, such as 30m or 24h";
const COUNT_EXPECTED: &str = "a whole number";
/// Maximum number of steps.
const MOST_STEPS: usize = 16;
/// Maximum duration of a step.
const LONGEST_STEP: Duration = Duration::from_secs(90 * 24 * 3600);
const DEFAULT_MIN_REVIEWS: u64 = 20;

// === impl Rollout ===

impl Rollout {
    /// Reads the plan, and the new version if there is one.
    pub(super) fn read(
        node: &Node<'_>,
        live: &Live<'_>,
        mode: Mode,
        folder: &Path,
        max_concurrent_calls: u32,
        problems: &Collector,
    ) -> Option<(Self, Option<Shadow>)> {
        let mut fields = node.object()?;
        let to = fields.optional("to");
        let is_version = to.is_some();
        let version =
            to.and_then(|node| Shadow::read(&node, live, folder, max_concurrent_calls, problems));
        if !is_version && mode == Mode::Enforce {
            fields.problem(
                "to",
                "missing, expected the new version: the plugin enforces already, so there is no mode to roll out",
            );
        }
        let steps = fields
            .required("steps", STEPS_EXPECTED)
            .and_then(|node| read_steps(&node, is_version, problems));
        let gates = RolloutGates::read(fields.section("gates"));
        let on_failure = fields
            .optional("onFailure")
            .and_then(|node| node.word(OnFailure::WORDS));
        fields.finish();
        if is_version && version.is_none() {
            return None;
        }
        let plan = Self {
            is_version,
            to: None,
            steps: steps?,
            gates,
            on_failure: on_failure.unwrap_or_default(),
        };
        Some((plan, version))
    }

    /// Describes the plan, one line for each step.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let count = self.steps.len();
        let steps = self.steps.iter().enumerate();
        steps.map(move |(index, step)| format!("step {} of {count}: {step}", index + 1))
    }
}

impl PluginConfig {
    /// Returns the entry of the new version as it answers requests. It has the name, the rules and the policies of
    /// this entry, and the code of `version`.
    #[must_use]
    pub fn rolled_out(&self, version: &Self) -> Self {
        Self {
            source: version.source.clone(),
            signatures: version.signatures.clone(),
            settings: version.settings.clone(),
            limits: version.limits.clone(),
            capabilities: version.capabilities.clone(),
            access: version.access,
            images: version.images.clone(),
            lookups: version.lookups.clone(),
            mode: Mode::Enforce,
            rollout: None,
            ..self.clone()
        }
    }

    /// Ends the rollout: the entry's own version answers.
    pub fn end_rollout(&mut self) {
        if self.rollout.take().is_some() {
            self.written = self.written.without("rollout");
        }
    }

    /// Returns the plan of the rollout, if the entry has one and is enabled.
    #[must_use]
    pub fn active_rollout(&self) -> Option<&Arc<Rollout>> {
        self.rollout.as_ref().filter(|_| self.enabled)
    }
}

fn read_steps(node: &Node<'_>, is_version: bool, problems: &Collector) -> Option<Vec<RolloutStep>> {
    let nodes = node.elements("steps")?;
    if nodes.is_empty() || nodes.len() > MOST_STEPS {
        problems.add(
            node.path(),
            format!(
                "got {} steps, expected 1 to {MOST_STEPS}; the last one has mode: enforce",
                nodes.len()
            ),
        );
        return None;
    }
    let steps: Vec<RolloutStep> = nodes.iter().filter_map(RolloutStep::read).collect();
    if steps.len() < nodes.len() {
        return None;
    }
    let mut is_usable = true;
    for (index, pair) in steps.windows(2).enumerate() {
        if !pair[1].follows(&pair[0]) {
            is_usable = false;
            problems.add(
                format!("{}[{}]", node.path(), index + 1),
                "goes back behind the step before: expected the modes in the order shadow, warn, enforce, and a share \
                 that does not shrink within a mode",
            );
        }
    }
    if !is_version && steps[0].mode == StepMode::Shadow {
        is_usable = false;
        problems.add(
            format!("{}[0].mode", node.path()),
            "got shadow, expected warn or enforce: the plugin's own version runs already",
        );
    }
    if steps.last().map(|step| step.mode) != Some(StepMode::Enforce) {
        is_usable = false;
        problems.add(
            format!("{}[{}].mode", node.path(), steps.len() - 1),
            "the last step must have mode: enforce",
        );
    }
    is_usable.then_some(steps)
}

// === impl RolloutStep ===

impl RolloutStep {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut fields = node.object()?;
        let mode = fields
            .required("mode", "shadow, warn or enforce")
            .and_then(|node| node.word(StepMode::WORDS));
        let duration = fields
            .required("for", DURATION_EXPECTED)
            .and_then(|node| read_duration(&node));
        let share = Share::read(&mut fields, mode == Some(StepMode::Shadow));
        fields.finish();
        Some(Self {
            mode: mode?,
            share: share?,
            duration: duration?,
        })
    }

    /// Whether this step may come after `earlier`.
    fn follows(&self, earlier: &Self) -> bool {
        if self.mode != earlier.mode {
            return self.mode > earlier.mode;
        }
        let mut named = earlier.share.namespaces.iter();
        self.share.percent >= earlier.share.percent
            && (self.share.is_all() || named.all(|name| self.share.namespaces.contains(name)))
    }
}

impl fmt::Display for RolloutStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, duration) = (self.mode.as_str(), format_duration(self.duration));
        write!(f, "{mode} in {} for at least {duration}", self.share)
    }
}

// === impl RolloutGates ===

impl RolloutGates {
    fn read(mut fields: Fields<'_>) -> Self {
        let mut count = |key, default| {
            let node = fields.optional(key);
            node.and_then(|node| node.integer(COUNT_EXPECTED))
                .unwrap_or(default)
        };
        let new_denials = count("newDenials", 0);
        let faults = count("faults", 0);
        let min_reviews = count("minReviews", DEFAULT_MIN_REVIEWS);
        let added_time = fields
            .optional("addedTime")
            .and_then(|node| read_duration(&node));
        if min_reviews == 0 {
            fields.problem(
                "minReviews",
                "got 0, expected 1 or more: without any review, no gate proves anything",
            );
        }
        fields.finish();
        Self {
            new_denials,
            faults,
            added_time,
            min_reviews,
        }
    }
}

impl fmt::Display for RolloutGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "per step at least {} review(s), at most {} new denial(s) and {} fault(s)",
            self.min_reviews, self.new_denials, self.faults
        )?;
        if let Some(added) = self.added_time {
            write!(f, ", at most {} more per call", format_duration(added))?;
        }
        Ok(())
    }
}

fn read_duration(node: &Node<'_>) -> Option<Duration> {
    let duration = parse_go_duration(node.text(DURATION_EXPECTED)?).ok();
    let duration = duration.filter(|duration| !duration.is_zero() && *duration <= LONGEST_STEP);
    if duration.is_none() {
        node.reject(DURATION_EXPECTED);
    }
    duration
}

// === impl StepMode, OnFailure ===

impl StepMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("shadow", Self::Shadow),
        ("warn", Self::Warn),
        ("enforce", Self::Enforce),
    ];

    /// Returns the mode as it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Warn => "warn",
            Self::Enforce => "enforce",
        }
    }
}

impl OnFailure {
    const WORDS: &'static [(&'static str, Self)] =
        &[("rollback", Self::RollBack), ("stop", Self::Stop)];

    /// Returns the word as it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RollBack => "rollback",
            Self::Stop => "stop",
        }
    }
}

#[cfg(test)]
mod tests;
