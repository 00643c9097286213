//! The metrics of one plugin: calls, faults and costs.
//!
//! A lookup in a family hashes and compares labels under a lock. The series of a plugin are therefore resolved once, at
//! load. After that, a call touches only atomics.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU64};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use rustix::time::{ClockId, clock_gettime};
use tollgate_admission::{Cost, Phase};

use super::ExceptionUses;

/// Buckets for the duration of a call, in seconds. A small policy takes 10 µs. The last bucket, 1 s, is above the
/// default limit.
const CALL_BUCKETS_SECONDS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0,
];

/// The result of a call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// A validator let the object pass.
    Allowed,
    /// The plugin denied the request.
    Denied,
    /// A mutator changed the object.
    Patched,
    /// A mutator left the object as it was.
    Unchanged,
    /// The plugin gave no answer, or an invalid one.
    Fault,
}

/// The metrics of one plugin. Cloning is cheap, and counting a call takes no lock.
#[derive(Clone, Debug)]
pub struct PluginMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    families: PluginFamilies,
    // A phase is resolved when a plugin that exports it is loaded. A plugin that only validates therefore does not show
    // twenty series of zeros for `mutate`.
    phases: [OnceLock<PhaseMetrics>; 2],
}

#[derive(Debug)]
struct PhaseMetrics {
    calls: [Counter; Outcome::ALL.len()],
    duration: Histogram,
    cpu_seconds: Counter<f64, AtomicU64>,
    fuel: Counter,
    reused: Counter,
    last_call: Gauge<f64, AtomicU64>,
}

/// The families that [`PluginMetrics`] is resolved from.
#[derive(Clone, Debug)]
pub(super) struct PluginFamilies {
    calls: Family<CallLabels, Counter>,
    faults: Family<FaultLabels, Counter>,
    duration: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    cpu_seconds: Family<PhaseLabels, Counter<f64, AtomicU64>>,
    fuel: Family<PhaseLabels, Counter>,
    reused: Family<PhaseLabels, Counter>,
    excepted: Family<PhaseLabels, Counter>,
    exception_uses: Family<ExceptionLabels, Counter>,
    exception_last_use: Family<ExceptionLabels, Gauge<f64, AtomicU64>>,
    /// The exceptions that have series, by plugin and name, and since when.
    exceptions: Arc<Mutex<Exceptions>>,
    existing_violations: Family<PluginLabels, Counter>,
    reinvocations: Family<PluginLabels, Counter>,
    not_converging: Family<PluginLabels, Counter>,
    degraded: Family<PluginLabels, Gauge>,
    held: Family<PluginLabels, Gauge>,
    effective: Family<PluginLabels, Gauge>,
    /// The plugins that have a series in `effective`.
    examined: Arc<Mutex<HashSet<String>>>,
    last_call: Family<PhaseLabels, Gauge<f64, AtomicU64>>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CallLabels {
    plugin: String,
    phase: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FaultLabels {
    plugin: String,
    phase: &'static str,
    fault: &'static str,
    failure_policy: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PhaseLabels {
    plugin: String,
    phase: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PluginLabels {
    plugin: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ExceptionLabels {
    plugin: String,
    exception: String,
}

type Exceptions = HashMap<(String, String), SystemTime>;

/// Maximum number of exceptions with series of their own. Names of resources come and go while the host runs.
const MOST_EXCEPTIONS: usize = 1_000;
/// The label of all further exceptions of a plugin.
const OTHER_EXCEPTIONS: &str = "other";

/// The time since 1970, at the kernel's last tick: some milliseconds ago. Reading it is much faster than reading the exact time.
fn coarse_now() -> Duration {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

// === impl Outcome ===

impl Outcome {
    const ALL: [Self; 5] = [
        Self::Allowed,
        Self::Denied,
        Self::Patched,
        Self::Unchanged,
        Self::Fault,
    ];

    /// Returns the value of the label `outcome`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Patched => "patched",
            Self::Unchanged => "unchanged",
            Self::Fault => "fault",
        }
    }
}

// === impl PluginMetrics ===

impl PluginMetrics {
    /// Returns the metrics of another plugin in the same registry.
    #[must_use]
    pub fn of_other(&self, name: &str) -> Self {
        self.inner.families.resolve(name)
    }

    /// Creates the series of these faults at zero, because an alert on an increase needs a value before the first
    /// fault.
    pub fn expect(&self, phase: Phase, faults: &[&'static str], failure_policy: &'static str) {
        for fault in faults {
            let labels = self.fault_labels(phase, fault, failure_policy);
            drop(self.inner.families.faults.get_or_create(&labels));
        }
    }

    /// Creates all other series of a phase at zero.
    pub fn begin(&self, phase: Phase) {
        self.phase(phase);
        let families = &self.inner.families;
        drop(families.excepted.get_or_create(&self.phase_labels(phase)));
        match phase {
            Phase::Mutate => {
                drop(families.reinvocations.get_or_create(&self.labels()));
                drop(families.not_converging.get_or_create(&self.labels()));
            }
            Phase::Validate => {
                drop(families.existing_violations.get_or_create(&self.labels()));
            }
        }
    }

    /// Counts a call that ran, whatever its result.
    pub fn call(&self, phase: Phase, outcome: Outcome, cost: Cost) {
        let metrics = self.phase(phase);
        metrics.calls[outcome as usize].inc();
        metrics.duration.observe(cost.duration.as_secs_f64());
        metrics.cpu_seconds.inc_by(cost.cpu_time.as_secs_f64());
        metrics.fuel.inc_by(cost.fuel);
        if cost.reused > 0 {
            metrics.reused.inc_by(cost.reused.into());
        }
        metrics.last_call.set(coarse_now().as_secs_f64());
    }

    /// Counts a fault by its kind and by the failure policy that applied to it. Call [`PluginMetrics::call`] with
    /// [`Outcome::Fault`] as well.
    pub fn fault(&self, phase: Phase, fault: &'static str, failure_policy: &'static str) {
        let labels = self.fault_labels(phase, fault, failure_policy);
        self.inner.families.faults.get_or_create(&labels).inc();
    }

    /// Creates the counter of an exception at zero.
    pub fn expect_exception(&self, name: &str) {
        let labels = self.exception_labels(name);
        drop(self.inner.families.exception_uses.get_or_create(&labels));
    }

    /// Counts a request that was not sent to the plugin because of this exception.
    pub fn excepted(&self, phase: Phase, name: &str, now: SystemTime) {
        let families = &self.inner.families;
        let labels = self.phase_labels(phase);
        families.excepted.get_or_create(&labels).inc();
        let labels = self.exception_labels(name);
        families.exception_uses.get_or_create(&labels).inc();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = families.exception_last_use.get_or_create(&labels);
        last.set(since.as_secs_f64());
    }

    /// Returns the uses of an exception. None if it has no counter of its own.
    #[must_use]
    pub fn exception_uses(&self, name: &str) -> Option<ExceptionUses> {
        let families = &self.inner.families;
        let labels = ExceptionLabels {
            plugin: self.inner.name.clone(),
            exception: name.to_owned(),
        };
        let since = {
            let known = families.exceptions.lock();
            let known = known.unwrap_or_else(PoisonError::into_inner);
            *known.get(&(labels.plugin.clone(), labels.exception.clone()))?
        };
        let count = families.exception_uses.get(&labels)?.get();
        let last = families.exception_last_use.get(&labels);
        let last = last.map(|last| UNIX_EPOCH + Duration::from_secs_f64(last.get()));
        Some(ExceptionUses { count, last, since })
    }

    /// Counts an UPDATE that was allowed because its violation existed before.
    pub fn existing_violation(&self) {
        let family = &self.inner.families.existing_violations;
        family.get_or_create(&self.labels()).inc();
    }

    /// Counts a second call, made because a later plugin changed the object.
    pub fn reinvocation(&self) {
        let family = &self.inner.families.reinvocations;
        family.get_or_create(&self.labels()).inc();
    }

    /// Counts an object that the plugin would have changed once more after its second call.
    pub fn not_converging(&self) {
        let family = &self.inner.families.not_converging;
        family.get_or_create(&self.labels()).inc();
    }

    fn fault_labels(
        &self,
        phase: Phase,
        fault: &'static str,
        failure_policy: &'static str,
    ) -> FaultLabels {
        FaultLabels {
            plugin: self.inner.name.clone(),
            phase: phase.name(),
            fault,
            failure_policy,
        }
    }

    fn phase_labels(&self, phase: Phase) -> PhaseLabels {
        PhaseLabels {
            plugin: self.inner.name.clone(),
            phase: phase.name(),
        }
    }

    fn exception_labels(&self, name: &str) -> ExceptionLabels {
        let plugin = self.inner.name.clone();
        let known = &self.inner.families.exceptions;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (plugin, name.to_owned());
        let has_series = known.contains_key(&key) || known.len() < MOST_EXCEPTIONS;
        let (plugin, name) = key;
        if !has_series {
            let exception = OTHER_EXCEPTIONS.to_owned();
            return ExceptionLabels { plugin, exception };
        }
        let key = (plugin.clone(), name.clone());
        known.entry(key).or_insert_with(SystemTime::now);
        ExceptionLabels {
            plugin,
            exception: name,
        }
    }

    fn labels(&self) -> PluginLabels {
        PluginLabels {
            plugin: self.inner.name.clone(),
        }
    }

    fn phase(&self, phase: Phase) -> &PhaseMetrics {
        self.inner.phases[phase as usize]
            .get_or_init(|| self.inner.families.phase(&self.inner.name, phase))
    }
}

// === impl PluginFamilies ===

impl PluginFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            calls: Family::default(),
            faults: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS_SECONDS)),
            cpu_seconds: Family::default(),
            fuel: Family::default(),
            reused: Family::default(),
            excepted: Family::default(),
            exception_uses: Family::default(),
            exception_last_use: Family::default(),
            exceptions: Arc::default(),
            existing_violations: Family::default(),
            reinvocations: Family::default(),
            not_converging: Family::default(),
            degraded: Family::default(),
            held: Family::default(),
            effective: Family::default(),
            examined: Arc::default(),
            last_call: Family::default(),
        };
        registry.register(
            "plugin_calls",
            "Calls of a plugin, by export and outcome",
            families.calls.clone(),
        );
        registry.register(
            "plugin_faults",
            "Faults of a plugin, by kind and by the failure policy that applied",
            families.faults.clone(),
        );
        registry.register_with_unit(
            "plugin_duration",
            "Wall time of one call of a plugin",
            Unit::Seconds,
            families.duration.clone(),
        );
        registry.register_with_unit(
            "plugin_cpu",
            "CPU time that a plugin used",
            Unit::Seconds,
            families.cpu_seconds.clone(),
        );
        registry.register(
            "plugin_fuel",
            "Fuel that a plugin used",
            families.fuel.clone(),
        );
        registry.register(
            "plugin_reused_answers",
            "Calls of a plugin that did not run, because the answer of an earlier call was known to be theirs",
            families.reused.clone(),
        );
        registry.register(
            "plugin_excepted",
            "Requests for which a plugin was not called because of an exception",
            families.excepted.clone(),
        );
        registry.register(
            "exception_uses",
            "Requests for which a plugin was not called because of this exception",
            families.exception_uses.clone(),
        );
        registry.register(
            "exception_last_use_timestamp_seconds",
            "When this exception last kept a plugin from a request, in seconds since 1970",
            families.exception_last_use.clone(),
        );
        registry.register(
            "plugin_existing_violations",
            "Updates allowed because all violations that a plugin denied existed before",
            families.existing_violations.clone(),
        );
        registry.register(
            "plugin_reinvocations",
            "Second calls of a mutator because a later plugin changed the object",
            families.reinvocations.clone(),
        );
        registry.register(
            "plugin_not_converging",
            "Objects that a mutator would have changed again after its second call",
            families.not_converging.clone(),
        );
        registry.register(
            "plugin_degraded",
            "1 while the desired state of a plugin cannot be loaded and its previous state serves",
            families.degraded.clone(),
        );
        registry.register(
            "plugin_held",
            "1 while a plugin is kept at its previous configuration because another enforcing plugin does not serve as desired",
            families.held.clone(),
        );
        registry.register(
            "plugin_effective",
            "1 if kube-apiserver calls the webhooks of a plugin and gets answers, 0 if not; on the leader alone, and only if it could be shown",
            families.effective.clone(),
        );
        registry.register(
            "plugin_last_call_timestamp_seconds",
            "When a plugin was called last, in seconds since 1970; 0 if it was not called since the start",
            families.last_call.clone(),
        );
        families
    }

    /// Sets the plugins that are effective or not. Others have no series.
    pub(super) fn effective(&self, plugins: &BTreeMap<String, bool>) {
        let mut examined = self.examined.lock().unwrap_or_else(PoisonError::into_inner);
        for name in examined.iter().filter(|name| !plugins.contains_key(*name)) {
            let plugin = name.clone();
            self.effective.remove(&PluginLabels { plugin });
        }
        for (name, is_effective) in plugins {
            let plugin = name.clone();
            let gauge = self.effective.get_or_create_owned(&PluginLabels { plugin });
            gauge.set((*is_effective).into());
        }
        *examined = plugins.keys().cloned().collect();
    }

    /// When a plugin was called last. None if it was not called since the start.
    pub(super) fn last_call(&self, name: &str) -> Option<SystemTime> {
        let of_phase = |phase: Phase| {
            let labels = PhaseLabels {
                plugin: name.to_owned(),
                phase: phase.name(),
            };
            let seconds = self.last_call.get(&labels)?.get();
            (seconds > 0.0).then(|| UNIX_EPOCH + Duration::from_secs_f64(seconds))
        };
        [Phase::Mutate, Phase::Validate]
            .into_iter()
            .filter_map(of_phase)
            .max()
    }

    pub(super) fn degraded(&self, name: &str, degraded: bool) {
        let plugin = name.to_owned();
        let gauge = self.degraded.get_or_create_owned(&PluginLabels { plugin });
        gauge.set(degraded.into());
    }

    pub(super) fn held(&self, name: &str, held: bool) {
        let plugin = name.to_owned();
        let gauge = self.held.get_or_create_owned(&PluginLabels { plugin });
        gauge.set(held.into());
    }

    pub(super) fn gone(&self, name: &str) {
        let labels = PluginLabels {
            plugin: name.to_owned(),
        };
        self.degraded.remove(&labels);
        self.held.remove(&labels);
    }

    pub(super) fn resolve(&self, name: &str) -> PluginMetrics {
        PluginMetrics {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                families: self.clone(),
                phases: [OnceLock::new(), OnceLock::new()],
            }),
        }
    }

    fn phase(&self, name: &str, phase: Phase) -> PhaseMetrics {
        let labels = PhaseLabels {
            plugin: name.to_owned(),
            phase: phase.name(),
        };
        PhaseMetrics {
            calls: Outcome::ALL.map(|outcome| {
                self.calls.get_or_create_owned(&CallLabels {
                    plugin: name.to_owned(),
                    phase: phase.name(),
                    outcome: outcome.name(),
                })
            }),
            duration: self.duration.get_or_create_owned(&labels),
            cpu_seconds: self.cpu_seconds.get_or_create_owned(&labels),
            fuel: self.fuel.get_or_create_owned(&labels),
            reused: self.reused.get_or_create_owned(&labels),
            last_call: self.last_call.get_or_create_owned(&labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn exports_counters_as_zero_before_first_event() {
        let metrics = Metrics::new();
        let plugin = metrics.plugin("labels");
        plugin.expect(Phase::Validate, &["deadline", "trap"], "Ignore");
        plugin.begin(Phase::Validate);
        let text = metrics.encode();
        let labels = "plugin=\"labels\",phase=\"validate\"";
        for line in [
            format!("tollgate_plugin_calls_total{{{labels},outcome=\"fault\"}} 0"),
            format!(
                "tollgate_plugin_faults_total{{{labels},fault=\"deadline\",failure_policy=\"Ignore\"}} 0"
            ),
            format!(
                "tollgate_plugin_faults_total{{{labels},fault=\"trap\",failure_policy=\"Ignore\"}} 0"
            ),
            format!("tollgate_plugin_fuel_total{{{labels}}} 0"),
            format!("tollgate_plugin_excepted_total{{{labels}}} 0"),
            "tollgate_plugin_existing_violations_total{plugin=\"labels\"} 0".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("phase=\"mutate\""));
        // A reload does not reset the counters.
        plugin.fault(Phase::Validate, "trap", "Ignore");
        metrics
            .plugin("labels")
            .expect(Phase::Validate, &["trap"], "Ignore");
        let counted = format!(
            "tollgate_plugin_faults_total{{{labels},fault=\"trap\",failure_policy=\"Ignore\"}} 1"
        );
        assert!(metrics.encode().contains(&counted));
    }

    #[test]
    fn counts_each_outcome_under_its_own_label() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        let metrics = Metrics::new();
        let plugin = metrics.plugin("labels");
        let cost = Cost {
            duration: Duration::from_micros(80),
            cpu_time: Duration::from_millis(500),
            fuel: 1_234,
            fuel_of_one_call: 1_234,
            reused: 2,
        };
        plugin.call(Phase::Mutate, Outcome::Patched, cost);
        metrics
            .plugin("labels")
            .call(Phase::Mutate, Outcome::Fault, cost);
        plugin.fault(Phase::Mutate, "out-of-fuel", "Fail");
        plugin.expect_exception("unused");
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        plugin.excepted(Phase::Mutate, "legacy", time);
        plugin.existing_violation();
        plugin.reinvocation();
        plugin.not_converging();
        let text = metrics.encode();
        let labels = "plugin=\"labels\",phase=\"mutate\"";
        for line in [
            format!("tollgate_plugin_calls_total{{{labels},outcome=\"patched\"}} 1"),
            format!("tollgate_plugin_calls_total{{{labels},outcome=\"fault\"}} 1"),
            format!(
                "tollgate_plugin_faults_total{{{labels},fault=\"out-of-fuel\",failure_policy=\"Fail\"}} 1"
            ),
            format!("tollgate_plugin_duration_seconds_bucket{{le=\"0.0001\",{labels}}} 2"),
            format!("tollgate_plugin_cpu_seconds_total{{{labels}}} 1.0"),
            format!("tollgate_plugin_fuel_total{{{labels}}} 2468"),
            format!("tollgate_plugin_excepted_total{{{labels}}} 1"),
            "tollgate_exception_uses_total{plugin=\"labels\",exception=\"legacy\"} 1".to_owned(),
            "tollgate_exception_uses_total{plugin=\"labels\",exception=\"unused\"} 0".to_owned(),
            "tollgate_exception_last_use_timestamp_seconds{plugin=\"labels\",exception=\"legacy\"} 1700000000.0"
                .to_owned(),
            "tollgate_plugin_existing_violations_total{plugin=\"labels\"} 1".to_owned(),
            "tollgate_plugin_reinvocations_total{plugin=\"labels\"} 1".to_owned(),
            "tollgate_plugin_not_converging_total{plugin=\"labels\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("phase=\"validate\""));
    }

    #[test]
    fn knows_when_a_plugin_was_called_last() {
        let metrics = Metrics::new();
        let plugin = metrics.plugin("labels");
        plugin.begin(Phase::Validate);
        assert_eq!(metrics.last_call("labels"), None);
        // The kernel ticks at least every 10 ms.
        let before = SystemTime::now() - Duration::from_millis(11);
        plugin.call(Phase::Validate, Outcome::Allowed, Cost::default());
        let called = metrics.last_call("labels").expect("it was called");
        let after = SystemTime::now() + Duration::from_millis(1);
        assert!(before <= called && called <= after);
        assert_eq!(metrics.last_call("others"), None);
    }

    #[test]
    fn only_examined_plugins_have_a_series_of_their_effect() {
        let metrics = Metrics::new();
        let set = |plugins: &[(&str, bool)]| {
            let plugins = plugins.iter().map(|(name, is)| ((*name).to_owned(), *is));
            metrics.plugins_effective(&plugins.collect());
            metrics.encode()
        };
        let text = set(&[("a", true), ("b", false)]);
        assert!(
            text.contains("tollgate_plugin_effective{plugin=\"a\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("tollgate_plugin_effective{plugin=\"b\"} 0"),
            "{text}"
        );
        let text = set(&[("b", true)]);
        assert!(
            !text.contains("tollgate_plugin_effective{plugin=\"a\"}"),
            "{text}"
        );
        assert!(
            text.contains("tollgate_plugin_effective{plugin=\"b\"} 1"),
            "{text}"
        );
        assert!(!set(&[]).contains("tollgate_plugin_effective{"));
    }

    #[test]
    fn number_of_exceptions_with_series_is_limited() {
        let metrics = Metrics::new();
        let plugin = metrics.plugin("labels");
        for index in 0..MOST_EXCEPTIONS + 5 {
            plugin.excepted(Phase::Validate, &format!("e-{index}"), UNIX_EPOCH);
        }
        plugin.excepted(Phase::Validate, "e-0", UNIX_EPOCH);
        let text = metrics.encode();
        let uses = "tollgate_exception_uses_total{plugin=\"labels\",exception=";
        assert_eq!(text.matches(uses).count(), MOST_EXCEPTIONS + 1);
        assert!(text.contains(&format!("{uses}\"other\"}} 5")));
        assert!(text.contains(&format!("{uses}\"e-0\"}} 2")));
        assert_eq!(plugin.exception_uses("e-0").map(|uses| uses.count), Some(2));
        let without_series = format!("e-{MOST_EXCEPTIONS}");
        assert_eq!(plugin.exception_uses(&without_series), None);
    }

    #[test]
    fn knows_the_uses_of_an_exception() {
        let metrics = Metrics::new();
        let plugin = metrics.plugin("labels");
        assert_eq!(plugin.exception_uses("legacy"), None);
        plugin.expect_exception("legacy");
        let unused = plugin.exception_uses("legacy").expect("a counter");
        assert_eq!((unused.count, unused.last), (0, None));
        let now = SystemTime::now();
        plugin.excepted(Phase::Mutate, "legacy", now);
        plugin.excepted(Phase::Validate, "legacy", now);
        let uses = metrics.plugin("labels").exception_uses("legacy");
        let uses = uses.expect("a counter");
        assert_eq!((uses.count, uses.since), (2, unused.since));
        let last = uses.last.expect("a use");
        let difference = last
            .duration_since(now)
            .or_else(|_| now.duration_since(last));
        assert!(difference.is_ok_and(|difference| difference < Duration::from_millis(1)));
        assert_eq!(metrics.plugin("other").exception_uses("legacy"), None);
    }
}
