//! The actual result of a case, in the terms of a suite.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_gate::pipeline::outcome::{Ended, Report};
use tollgate_json::document::Json;
use tollgate_json::patch::{Operation, write_all};

use super::expect::Verdict;
use crate::review::examine::{Finding, Step};
use crate::terminal::{fault_text, grouped};

/// The actual result of a case.
#[derive(Clone, Debug)]
pub(super) struct Actual {
    pub(super) verdict: Verdict,
    pub(super) code: Option<u16>,
    pub(super) message: Option<String>,
    /// Field and message of each cause, as users see them.
    pub(super) causes: Vec<(Option<String>, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) faults: Vec<Fault>,
    /// The changes that the mutators made to the object.
    pub(super) patch: Vec<Operation>,
    /// The object after the mutators. None if the request was denied before that, or if the review has no object.
    pub(super) object: Option<Json>,
    pub(super) costs: Vec<Cost>,
    /// Why each plugin does not match the review, if no plugin was called.
    pub(super) mismatches: Vec<String>,
}

/// A fault of a plugin.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) plugin: String,
    pub(super) kind: &'static str,
    pub(super) message: String,
}

/// The cost of a plugin's turn: one call, or two if it was called again.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) plugin: String,
    /// `mutate` or `validate`.
    pub(super) phase: &'static str,
    pub(super) fuel: u64,
    /// Highest fuel of one call, which limits count.
    pub(super) fuel_of_one_call: u64,
    pub(super) milliseconds: f64,
}

/// The annotation that lists the versions of the plugins that ran. Results omit it, because every build changes it.
const OF_VERSIONS: &str = "plugins";
/// The lowest code of a denial by a fault. A policy denies with a lower code.
const FIRST_OF_FAULTS: u16 = 500;

// === impl Actual ===

impl Actual {
    pub(super) fn of(finding: &Finding) -> Self {
        let steps = &finding.steps;
        let status = steps.iter().find_map(|step| step.outcome.status.as_ref());
        let verdict = match status {
            Some(status) if status.code >= FIRST_OF_FAULTS => Verdict::Fault,
            Some(_) => Verdict::Deny,
            None if reports(steps).next().is_none() => Verdict::NotCalled,
            None => Verdict::Allow,
        };
        let causes = status.and_then(|status| status.details.as_ref());
        let causes = causes.iter().flat_map(|details| &details.causes);
        let faults = reports(steps).filter_map(|(_, report)| match &report.ended {
            Ended::Faulted(fault) => Some(Fault {
                plugin: report.plugin.as_str().to_owned(),
                kind: fault.kind,
                message: fault.message.clone(),
            }),
            _ => None,
        });
        let costs = reports(steps).map(|(step, report)| Cost {
            plugin: report.plugin.as_str().to_owned(),
            phase: step.endpoint.name(),
            fuel: report.cost.fuel,
            fuel_of_one_call: report.cost.fuel_of_one_call,
            milliseconds: to_the_microsecond(report.cost.duration),
        });
        let outcomes = || steps.iter().map(|step| &step.outcome);
        Self {
            verdict,
            code: status.map(|status| status.code),
            message: status.map(|status| status.message.clone()),
            causes: causes
                .map(|cause| (cause.field.clone(), cause.message.clone()))
                .collect(),
            warnings: outcomes()
                .flat_map(|outcome| outcome.warnings.clone())
                .collect(),
            annotations: outcomes()
                .flat_map(|outcome| outcome.audit_annotations.clone())
                .filter(|(key, _)| key != OF_VERSIONS)
                .collect(),
            faults: faults.collect(),
            patch: steps
                .first()
                .map(|step| step.outcome.patch.clone())
                .unwrap_or_default(),
            object: finding.after.clone(),
            costs: costs.collect(),
            mismatches: Vec::new(),
        }
    }

    /// Describes the fuel of the calls, each as limits count it.
    pub(super) fn fuel_of_calls(&self) -> String {
        let of_call = |cost: &Cost| format!("{} in {}", grouped(cost.fuel_of_one_call), cost.phase);
        let is_one_plugin = self
            .costs
            .windows(2)
            .all(|pair| pair[0].plugin == pair[1].plugin);
        let most = self.costs.iter().map(|cost| cost.fuel_of_one_call).max();
        match (&self.costs[..], most) {
            ([], _) | (_, None) => "no call".to_owned(),
            (costs, _) if is_one_plugin => {
                let calls: Vec<String> = costs.iter().map(of_call).collect();
                format!("fuel {}", calls.join(", "))
            }
            (costs, Some(most)) => {
                format!(
                    "fuel at most {} in each of {} calls",
                    grouped(most),
                    costs.len()
                )
            }
        }
    }

    /// Returns the total fuel of all calls.
    pub(super) fn fuel(&self) -> u64 {
        self.costs.iter().map(|cost| cost.fuel).sum()
    }

    /// Returns the total time of all calls in milliseconds.
    pub(super) fn milliseconds(&self) -> f64 {
        // `sum` of no values would be -0.
        self.costs
            .iter()
            .fold(0.0, |sum, cost| sum + cost.milliseconds)
    }

    /// Returns the parts of the result that are the same in every run. Costs are left out.
    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({ "verdict": self.verdict.as_str() });
        if let Some(code) = self.code {
            value["code"] = code.into();
        }
        if let Some(message) = &self.message {
            value["message"] = message.as_str().into();
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|(field, message)| match field {
                Some(field) => json!({ "field": field, "message": message }),
                None => json!({ "message": message }),
            });
            value["causes"] = causes.collect();
        }
        if !self.warnings.is_empty() {
            value["warnings"] = self.warnings.clone().into();
        }
        if !self.annotations.is_empty() {
            value["annotations"] = json!(self.annotations);
        }
        if !self.faults.is_empty() {
            let faults = self.faults.iter().map(|fault| {
                json!({ "plugin": fault.plugin, "fault": fault.kind, "message": fault.message })
            });
            value["faults"] = faults.collect();
        }
        if !self.patch.is_empty() {
            value["patch"] = operations(&self.patch);
        }
        value
    }

    /// Returns the fuel of each call, by plugin and phase.
    pub(super) fn fuel_by_call(&self) -> BTreeMap<String, u64> {
        let mut fuel = BTreeMap::new();
        for cost in &self.costs {
            *fuel
                .entry(format!("{} {}", cost.plugin, cost.phase))
                .or_default() += cost.fuel;
        }
        fuel
    }
}

// === impl Fault ===

impl Fault {
    /// Describes the fault with its text.
    pub(super) fn described(&self) -> String {
        format!(
            "{} ended with {}",
            self.plugin,
            fault_text(self.kind, &self.message)
        )
    }
}

fn to_the_microsecond(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Returns a patch as JSON.
pub(super) fn operations(patch: &[Operation]) -> Value {
    let mut text = Vec::new();
    write_all(patch, &mut text);
    serde_json::from_slice(&text).unwrap_or_default()
}

fn reports(steps: &[Step]) -> impl Iterator<Item = (&Step, &Report)> {
    steps.iter().flat_map(|step| {
        let reports = step.reports.iter().chain(&step.audits);
        reports.map(move |report| (step, report))
    })
}
