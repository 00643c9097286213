//! When the next scan begins.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tollgate_gate::plugin::PluginSet;

/// The inputs and the time of the last scan.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    began: Instant,
    took: Duration,
    circumstances: Circumstances,
}

/// The inputs whose change begins a scan before its time.
#[derive(Clone, Debug)]
pub(crate) struct Circumstances {
    /// The serving plugins. A set that is gone is another one.
    plugins: Weak<PluginSet>,
    replicas: BTreeSet<String>,
    /// The number of exceptions that have not expired.
    active_exceptions: usize,
}

/// Shortest time between the begins of two scans.
const SHORTEST: Duration = Duration::from_secs(10);

// === impl Circumstances ===

impl Circumstances {
    pub(crate) fn new(
        plugins: &Arc<PluginSet>,
        replicas: BTreeSet<String>,
        now: SystemTime,
    ) -> Self {
        let exceptions = plugins.iter().flat_map(|plugin| &plugin.config.exceptions);
        Self {
            plugins: Arc::downgrade(plugins),
            replicas,
            active_exceptions: exceptions.filter(|one| one.is_active(now)).count(),
        }
    }

    fn are_like(&self, other: &Self) -> bool {
        self.plugins.ptr_eq(&other.plugins)
            && self.replicas == other.replicas
            && self.active_exceptions == other.active_exceptions
    }
}

// === impl Turn ===

impl Turn {
    /// Whether a scan begins now. News wait for at least as long as the last scan took.
    pub(crate) fn is_due(&self, now: Instant, interval: Duration, current: &Circumstances) -> bool {
        let Some(last) = &self.last else {
            return true;
        };
        let since = now.saturating_duration_since(last.began);
        let is_news = !last.circumstances.are_like(current);
        since >= interval || (is_news && since >= SHORTEST.max(last.took * 2).min(interval))
    }

    /// Takes note of a scan.
    pub(crate) fn took(&mut self, began: Instant, took: Duration, circumstances: Circumstances) {
        self.last = Some(Last {
            began,
            took,
            circumstances,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1_800);

    fn circumstances(plugins: &Arc<PluginSet>, replicas: &[&str]) -> Circumstances {
        let replicas = replicas.iter().map(ToString::to_string).collect();
        Circumstances::new(plugins, replicas, SystemTime::now())
    }

    #[test]
    fn scans_at_once_then_by_interval_and_earlier_for_news() {
        let plugins = Arc::new(PluginSet::default());
        let same = circumstances(&plugins, &["a"]);
        let began = Instant::now();
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let mut turn = Turn::default();
        assert!(turn.is_due(began, INTERVAL, &same));
        turn.took(began, Duration::from_secs(30), same.clone());
        assert!(!turn.is_due(after(1_799), INTERVAL, &same));
        assert!(turn.is_due(after(1_800), INTERVAL, &same));
        for news in [
            circumstances(&plugins, &["a", "b"]),
            circumstances(&Arc::new(PluginSet::default()), &["a"]),
        ] {
            assert!(!turn.is_due(after(59), INTERVAL, &news));
            assert!(turn.is_due(after(60), INTERVAL, &news));
        }
        // A scan that takes longer than the interval does not delay the next one further.
        turn.took(began, INTERVAL, same.clone());
        assert!(turn.is_due(after(1_800), INTERVAL, &same));
    }
}
