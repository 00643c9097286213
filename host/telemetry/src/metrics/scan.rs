//! The metrics of the background scan.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// The metrics of the background scan of this replica. Each replica scans a part of the cluster, so sums over the replicas
/// are about the whole cluster.
#[derive(Debug, Default)]
pub struct ScanMetrics {
    interval: Gauge<f64, AtomicU64>,
    duration: Gauge<f64, AtomicU64>,
    last_complete: Gauge<f64, AtomicU64>,
    objects: Gauge,
    memory: Gauge,
    omitted: Gauge,
    results: Family<ResultLabels, Gauge>,
    scans: Family<EndLabels, Counter>,
    calls: Counter,
    reports: Counter,
}

/// The results of a scan of this replica.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Whether everything could be read and written.
    pub is_complete: bool,
    /// The time that it took.
    pub duration: Duration,
    /// The objects in the namespaces of this replica.
    pub objects: u64,
    /// The estimated size of the results in memory.
    pub memory_bytes: usize,
    /// The results that are only counted.
    pub omitted: u64,
    /// The number of results of each kind.
    pub results: Vec<(&'static str, u64)>,
    /// The calls of plugins.
    pub calls: u64,
    /// The reports that were written or deleted.
    pub reports: u64,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndLabels {
    end: &'static str,
}

/// How scans end.
const ENDS: [&str; 3] = ["complete", "incomplete", "failed"];
const RESULTS: [&str; 5] = ["error", "fail", "warn", "skip", "pass"];

// === impl ScanMetrics ===

impl ScanMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for end in ENDS {
            drop(metrics.scans.get_or_create(&EndLabels { end }));
        }
        for result in RESULTS {
            drop(metrics.results.get_or_create(&ResultLabels { result }));
        }
        registry.register_with_unit(
            "scan_interval",
            "Time between background scans; 0 if they are off",
            Unit::Seconds,
            metrics.interval.clone(),
        );
        registry.register_with_unit(
            "scan_duration",
            "Duration of this replica's last background scan",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register_with_unit(
            "scan_last_complete_timestamp",
            "End of this replica's last complete background scan; before the first one, the start of the scans",
            Unit::Seconds,
            metrics.last_complete.clone(),
        );
        registry.register(
            "scan_objects",
            "Objects in this replica's part of the last background scan",
            metrics.objects.clone(),
        );
        registry.register_with_unit(
            "scan_memory",
            "Estimated memory of the results of background scans, limited by scan.maxMemory",
            Unit::Bytes,
            metrics.memory.clone(),
        );
        registry.register(
            "scan_omitted_results",
            "Results of the last background scan that are counted in reports and not listed",
            metrics.omitted.clone(),
        );
        registry.register(
            "scan_results",
            "Results in this replica's part of the last background scan, by result",
            metrics.results.clone(),
        );
        registry.register(
            "scans",
            "Background scans of this replica, by their end: incomplete if something could not be read or written, \
             failed if nothing could",
            metrics.scans.clone(),
        );
        registry.register(
            "scan_calls",
            "Calls of plugins by background scans",
            metrics.calls.clone(),
        );
        registry.register(
            "scan_report_writes",
            "Policy reports that background scans wrote or deleted",
            metrics.reports.clone(),
        );
        metrics
    }

    /// Takes note that background scans are on.
    pub fn begin(&self, interval: Duration) {
        self.interval.set(interval.as_secs_f64());
        self.last_complete.set(now());
    }

    /// Takes note of a scan.
    pub fn scanned(&self, scanned: &Scanned) {
        self.duration.set(scanned.duration.as_secs_f64());
        self.objects.set(whole(scanned.objects));
        self.memory.set(whole(scanned.memory_bytes as u64));
        self.omitted.set(whole(scanned.omitted));
        for (result, count) in &scanned.results {
            let labels = ResultLabels { result };
            self.results.get_or_create(&labels).set(whole(*count));
        }
        self.calls.inc_by(scanned.calls);
        self.reports.inc_by(scanned.reports);
        let end = if scanned.is_complete {
            self.last_complete.set(now());
            "complete"
        } else {
            "incomplete"
        };
        self.scans.get_or_create(&EndLabels { end }).inc();
    }

    /// Takes note of a scan that read nothing.
    pub fn failed(&self) {
        self.scans.get_or_create(&EndLabels { end: "failed" }).inc();
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;

    use super::*;

    #[test]
    fn only_complete_scans_renew_the_timestamp() {
        let metrics = Metrics::new();
        let page = || metrics.encode();
        assert!(page().contains("tollgate_scan_interval_seconds 0.0"));
        assert!(page().contains("tollgate_scans_total{end=\"complete\"} 0"));
        metrics.scan.begin(Duration::from_secs(60));
        metrics.scan.last_complete.set(7.0);
        let mut scanned = Scanned {
            results: vec![("fail", 3)],
            calls: 5,
            ..Scanned::default()
        };
        metrics.scan.scanned(&scanned);
        assert!(page().contains("tollgate_scan_last_complete_timestamp_seconds 7.0"));
        assert!(page().contains("tollgate_scan_results{result=\"fail\"} 3"));
        assert!(page().contains("tollgate_scans_total{end=\"incomplete\"} 1"));
        scanned.is_complete = true;
        metrics.scan.scanned(&scanned);
        assert!(!page().contains("tollgate_scan_last_complete_timestamp_seconds 7.0"));
        assert!(page().contains("tollgate_scan_calls_total 10"));
        metrics.scan.failed();
        assert!(page().contains("tollgate_scans_total{end=\"failed\"} 1"));
    }
}
