//! Denies changes to workloads outside of configured windows: days and times in a time zone, except for frozen dates.
//!
//! Only a change of `spec` counts. Labels, annotations, finalizers and the status can change at any time, so
//! controllers continue to work. A label forces a change, which leaves a warning and an audit annotation.

mod schedule;

use tollgate_sdk::clock;
use tollgate_sdk::prelude::*;

use schedule::{Closed, Schedule};
pub use schedule::{Day, Freeze, Window};

/// The policy.
pub struct DeployWindow {
    schedule: Schedule,
    force_label: Option<QualifiedName>,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    time_zone: String,
    windows: Vec<Window>,
    freezes: Vec<Freeze>,
    force_label: Option<QualifiedName>,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        let force_label = "deploy-window.tollgate.dev/force";
        Self {
            time_zone: "UTC".to_owned(),
            windows: Vec::new(),
            freezes: Vec::new(),
            force_label: Some(force_label.parse().expect("the default is a key")),
        }
    }
}

// === impl DeployWindow ===

impl Policy for DeployWindow {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let schedule = Schedule::read(&settings.time_zone, &settings.windows, settings.freezes)?;
        Ok(Self {
            schedule,
            force_label: settings.force_label,
        })
    }
}

impl Validate for DeployWindow {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if !review.changes("/spec") {
            return Ok(());
        }
        match self.schedule.closed(clock::now()) {
            None => Ok(()),
            Some(closed) => self.check(review, &closed),
        }
    }
}

impl DeployWindow {
    /// Decides about a change while no window is open.
    fn check(&self, review: &Review, closed: &Closed) -> Result<(), Denial> {
        let denial = Denial::new(closed.to_string());
        let Some(label) = &self.force_label else {
            return Err(denial);
        };
        // For a deletion, only the old object exists.
        let object = match review.operation() {
            Operation::Delete => review.old_object(),
            _ => review.object(),
        };
        let field = pointer!["metadata", "labels", label];
        if object.text(&field).as_deref() != Some("true") {
            return Err(denial.at(field, "must be \"true\" to go ahead all the same"));
        }
        review.warn(format!(
            "forced through while no deployment window is open; remove the label {label} afterwards"
        ));
        review.annotate("forced", closed.to_string());
        Ok(())
    }
}

tollgate_sdk::validator! {
    DeployWindow,
    rules: [
        Rule::on([Operation::Create, Operation::Update], "apps", "v1", ["daemonsets", "deployments", "statefulsets"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
