//! Computes the cost of each plugin from the kept decisions, as a pure function.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::search::since;
use super::{Called, KeptDecision};

/// The calls of one plugin.
#[derive(Default)]
struct Calls {
    fuel: Vec<u64>,
    cpu_microseconds: Vec<u64>,
    microseconds: Vec<u64>,
    denials: u64,
    faults: u64,
}

/// Returns the cost of each plugin, the plugin with the most CPU time first.
#[must_use]
pub fn costs(kept: &[(u64, Arc<KeptDecision>)]) -> Value {
    let mut plugins: BTreeMap<&str, Calls> = BTreeMap::new();
    for (_, decision) in kept {
        // A plugin that an exception kept from being called cost nothing.
        for (name, called) in decision.names().zip(decision.parts()) {
            if !called.is_excepted() {
                plugins.entry(name).or_default().add(&called);
            }
        }
    }
    let total: u64 = plugins.values().map(Calls::total).sum();
    let mut plugins: Vec<_> = plugins.into_iter().collect();
    // The sort is stable, so plugins of equal cost stay in the order of their names.
    plugins.sort_by_key(|(_, calls)| Reverse(calls.total()));
    let costs = plugins
        .into_iter()
        .map(|(name, calls)| calls.into_value(name, total));
    json!({
        "costs": costs.collect::<Vec<_>>(),
        "decisions": kept.len(),
        "since": since(kept),
    })
}

// === impl Calls ===

impl Calls {
    fn add(&mut self, called: &Called) {
        self.fuel.push(called.fuel);
        self.cpu_microseconds
            .push(microseconds(called.cpu_milliseconds));
        self.microseconds.push(microseconds(called.milliseconds));
        self.denials += u64::from(called.denial.is_some());
        self.faults += u64::from(called.fault.is_some());
    }

    /// The CPU time of all calls, in microseconds.
    fn total(&self) -> u64 {
        self.cpu_microseconds.iter().sum()
    }

    fn into_value(mut self, name: &str, total: u64) -> Value {
        let own = self.total();
        let share = if total == 0 {
            0.0
        } else {
            (own as f64 / total as f64 * 1000.0).round() / 1000.0
        };
        json!({
            "plugin": name,
            "calls": self.fuel.len(),
            "denials": self.denials,
            "faults": self.faults,
            "shareOfCpuTime": share,
            "fuel": summary(&mut self.fuel, |fuel| json!(fuel)),
            "cpuMilliseconds": summary(&mut self.cpu_microseconds, milliseconds),
            "milliseconds": summary(&mut self.microseconds, milliseconds),
        })
    }
}

// === impl Called ===

impl Called {
    fn is_excepted(&self) -> bool {
        self.excepted.is_some()
    }
}

/// Mean, 95th percentile and largest of some values. The list must not be empty.
fn summary(values: &mut [u64], show: impl Fn(u64) -> Value) -> Value {
    values.sort_unstable();
    let count = values.len().max(1);
    let sum: u64 = values.iter().sum();
    let rank = (count * 95).div_ceil(100).max(1) - 1;
    json!({
        "mean": show(sum / count as u64),
        "p95": show(values.get(rank).copied().unwrap_or_default()),
        "most": show(values.last().copied().unwrap_or_default()),
    })
}

fn microseconds(milliseconds: f64) -> u64 {
    // Recorded times are rounded to the microsecond and not negative.
    (milliseconds * 1000.0).round() as u64
}

fn milliseconds(microseconds: u64) -> Value {
    json!(microseconds as f64 / 1000.0)
}
