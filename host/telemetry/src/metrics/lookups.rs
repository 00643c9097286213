//! The metrics of lookups: how much each table holds, and how old it is.
//!
//! Tables change all the time, so they are asked when the metrics are written.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// The values of the metrics about one lookup of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LookupReading {
    /// The number of objects.
    pub objects: usize,
    /// An estimate of the memory in bytes.
    pub bytes: usize,
    /// Whether the lookup answers.
    pub is_synchronised: bool,
    /// The time since the last list, event or bookmark. None if there was none.
    pub age: Option<Duration>,
}

/// Asks for the state of one lookup of a plugin.
pub struct LookupProbe {
    /// The plugin's name.
    pub plugin: String,
    /// The lookup's name.
    pub lookup: String,
    /// Returns the state now.
    pub read: Box<dyn Fn() -> LookupReading + Send + Sync>,
}

/// The families, and the lookups of the serving plugins.
#[derive(Debug, Default)]
pub(super) struct LookupMetrics {
    probes: Mutex<Vec<LookupProbe>>,
    objects: Family<LookupLabels, Gauge>,
    bytes: Family<LookupLabels, Gauge>,
    synchronised: Family<LookupLabels, Gauge>,
    age: Family<LookupLabels, Gauge<f64, AtomicU64>>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LookupLabels {
    plugin: String,
    lookup: String,
}

// === impl LookupMetrics ===

impl LookupMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "lookup_objects",
            "Objects that a lookup of a plugin holds",
            metrics.objects.clone(),
        );
        registry.register_with_unit(
            "lookup_memory",
            "Estimated memory of a lookup's objects; equal lookups share it",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        registry.register(
            "lookup_synchronised",
            "1 if a lookup of a plugin answers, otherwise 0",
            metrics.synchronised.clone(),
        );
        registry.register_with_unit(
            "lookup_last_event_age",
            "Time since the last list, event or bookmark of a lookup",
            Unit::Seconds,
            metrics.age.clone(),
        );
        metrics
    }

    pub(super) fn observe(&self, probes: Vec<LookupProbe>) {
        *self.probes.lock().unwrap_or_else(PoisonError::into_inner) = probes;
    }

    /// Asks all lookups. Series of lookups that are gone go, too.
    pub(super) fn refresh(&self) {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        self.objects.clear();
        self.bytes.clear();
        self.synchronised.clear();
        self.age.clear();
        for probe in probes.iter() {
            let labels = LookupLabels {
                plugin: probe.plugin.clone(),
                lookup: probe.lookup.clone(),
            };
            let reading = (probe.read)();
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let objects = number(reading.objects);
            self.objects.get_or_create(&labels).set(objects);
            self.bytes.get_or_create(&labels).set(number(reading.bytes));
            let synchronised = i64::from(reading.is_synchronised);
            self.synchronised.get_or_create(&labels).set(synchronised);
            if let Some(age) = reading.age {
                self.age.get_or_create(&labels).set(age.as_secs_f64());
            }
        }
    }
}

impl fmt::Debug for LookupProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LookupProbe({}, {})", self.plugin, self.lookup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn probe(plugin: &str, reading: LookupReading) -> LookupProbe {
        LookupProbe {
            plugin: plugin.to_owned(),
            lookup: "ingresses".to_owned(),
            read: Box::new(move || reading),
        }
    }

    #[test]
    fn shows_lookups_of_serving_plugins_only() {
        let metrics = Metrics::new();
        assert!(!metrics.encode().contains("lookup_objects{"));
        let full = LookupReading {
            objects: 3,
            bytes: 700,
            is_synchronised: true,
            age: Some(Duration::from_millis(1500)),
        };
        let empty = LookupReading::default();
        metrics.observe_lookups(vec![probe("hosts", full), probe("young", empty)]);
        let text = metrics.encode();
        for line in [
            "tollgate_lookup_objects{plugin=\"hosts\",lookup=\"ingresses\"} 3",
            "tollgate_lookup_memory_bytes{plugin=\"hosts\",lookup=\"ingresses\"} 700",
            "tollgate_lookup_synchronised{plugin=\"hosts\",lookup=\"ingresses\"} 1",
            "tollgate_lookup_synchronised{plugin=\"young\",lookup=\"ingresses\"} 0",
            "tollgate_lookup_last_event_age_seconds{plugin=\"hosts\",lookup=\"ingresses\"} 1.5",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("lookup_last_event_age_seconds{plugin=\"young\""));
        metrics.observe_lookups(vec![probe("young", empty)]);
        assert!(!metrics.encode().contains("plugin=\"hosts\""));
    }
}
