//! Calls a plugin many times and records what each call costs.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::{Value, json};
use std::sync::Arc;
use tollgate_admission::Phase;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_engine::{Answer, CallError, CallReport, Engine, Guest, Subject};
use tollgate_json::document::Json;

use crate::asked;
use crate::terminal::fault_text;

/// The measured calls of a plugin in one phase.
pub(super) struct Series {
    pub(super) phase: Phase,
    /// Time of the very first call in this process.
    pub(super) first: Duration,
    /// Results, with a row for each size of the object.
    pub(super) rows: Vec<Measured>,
}

/// The measured calls with one object.
pub(super) struct Measured {
    pub(super) object_bytes: usize,
    /// Result of the last call: `allowed`, `unchanged`, `changed`, `denied` or `fault`.
    pub(super) ended: &'static str,
    /// Highest fuel of any call. All calls use the same fuel if the plugin does not read the clock.
    pub(super) fuel: u64,
    pub(super) memory_bytes: u64,
    pub(super) median: Duration,
    /// 99th percentile.
    pub(super) slow: Duration,
    pub(super) slowest: Duration,
    pub(super) fault: Option<String>,
}

/// Deadline of a call: longer than any limit that a plugin may have.
const DEADLINE: Duration = Duration::from_secs(30);
/// Size of one padding annotation.
const PADDING_BYTES: usize = 1000;

/// Measures a phase: first with the object as given, then with larger objects.
pub(super) async fn series(
    engine: &Engine,
    guest: &Guest,
    phase: Phase,
    review: &Json,
    sizes_bytes: &[usize],
    calls: u32,
    max_depth: u32,
) -> anyhow::Result<Series> {
    let value: Value = serde_json::from_str(&review.to_text())?;
    let own_bytes = value["request"]["object"].to_string().len();
    let request = read(&value, max_depth)?;
    let first = call(engine, guest, phase, &request).await.wall;
    let mut rows = vec![measure(engine, guest, phase, &request, own_bytes, calls).await?];
    if value["request"]["object"].is_object() {
        for &wanted in sizes_bytes.iter().filter(|wanted| **wanted > own_bytes) {
            let mut larger = value.clone();
            pad(&mut larger["request"]["object"], wanted - own_bytes);
            let request = read(&larger, max_depth)?;
            let bytes = larger["request"]["object"].to_string().len();
            rows.push(measure(engine, guest, phase, &request, bytes, calls).await?);
        }
    }
    Ok(Series { phase, first, rows })
}

fn read(review: &Value, max_depth: u32) -> anyhow::Result<Arc<AdmissionRequest>> {
    let request = asked::read(&Json::from(review.clone()), max_depth)?;
    Ok(Arc::new(request))
}

async fn call(
    engine: &Engine,
    guest: &Guest,
    phase: Phase,
    request: &Arc<AdmissionRequest>,
) -> CallReport {
    let subject = Subject {
        request: request.clone(),
        object: request.object.clone(),
    };
    guest
        .call(engine, phase, &subject, Instant::now() + DEADLINE)
        .await
}

async fn measure(
    engine: &Engine,
    guest: &Guest,
    phase: Phase,
    request: &Arc<AdmissionRequest>,
    object_bytes: usize,
    calls: u32,
) -> anyhow::Result<Measured> {
    let mut times = Vec::with_capacity(calls as usize);
    let (mut fuel, mut memory_bytes) = (0, 0);
    let (mut ended, mut fault) = ("fault", None);
    for _ in 0..calls {
        let report = call(engine, guest, phase, request).await;
        times.push(report.wall);
        fuel = fuel.max(report.fuel);
        memory_bytes = memory_bytes.max(report.memory_bytes);
        ended = match report.result {
            Ok(Answer::Allow) => "allowed",
            Ok(Answer::Unchanged) => "unchanged",
            Ok(Answer::Mutation(..)) => "changed",
            Ok(Answer::Deny(_)) => "denied",
            Err(CallError::Fault(error)) => {
                fault = Some(fault_text(error.kind(), &error.to_string()));
                "fault"
            }
            Err(CallError::Overload(_)) => {
                bail!(
                    "the host has no memory left for calls: check the free memory of this machine"
                )
            }
        };
        if fault.is_some() {
            // The remaining calls would end with the same fault, and may take seconds each.
            break;
        }
    }
    times.sort_unstable();
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100];
    Ok(Measured {
        object_bytes,
        ended,
        fuel,
        memory_bytes,
        median: at(50),
        slow: at(99),
        slowest: at(100),
        fault,
    })
}

/// Adds annotations of `bytes` bytes in total.
fn pad(object: &mut Value, bytes: usize) {
    for index in 0..bytes.div_ceil(PADDING_BYTES) {
        let length = PADDING_BYTES.min(bytes - index * PADDING_BYTES);
        let key = format!("bench.example.com/padding-{index}");
        let value = "x".repeat(length.saturating_sub(key.len()));
        object["metadata"]["annotations"][key] = value.into();
    }
}

// === impl Series ===

impl Series {
    /// Returns the series as JSON for machines. Times are in milliseconds.
    pub(super) fn to_json(&self) -> Value {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let rows = self.rows.iter().map(|row| {
            json!({
                "objectBytes": row.object_bytes,
                "answer": row.ended,
                "fuel": row.fuel,
                "memoryBytes": row.memory_bytes,
                "median": milliseconds(row.median),
                "percentile99": milliseconds(row.slow),
                "slowest": milliseconds(row.slowest),
                "fault": row.fault,
            })
        });
        json!({ "phase": self.phase.name(), "firstCall": milliseconds(self.first), "rows": rows.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_object_to_roughly_the_requested_size() {
        let mut object = json!({"metadata": {"name": "web"}});
        pad(&mut object, 100_000);
        let bytes = object.to_string().len();
        assert!((100_000..102_000).contains(&bytes), "{bytes}");
    }
}
