//! Repairs of configurations that somebody else changed: how often, and who is told.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::PatchParams;
use kube::runtime::events::{self, EventType, Reporter};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::Installation;
use crate::api::words;

/// The pause after the second repair in a row. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two repairs. Another controller may want the opposite for ever.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Time without a repair after which the next one is immediate again.
const QUIET: Duration = Duration::from_secs(300);

/// The longest text in an Event.
const LONGEST_NOTE: usize = 900;

/// When a configuration may be repaired again. Does no IO.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    last: Option<Instant>,
    pause: Duration,
}

/// Publishes Events about the leader's Lease. An Event about a cluster-scoped object would have to be in the namespace
/// `default`, which needs rights there.
pub(super) struct Recorder {
    recorder: events::Recorder,
    lease: ObjectReference,
}

/// The field managers of an object besides the own one.
pub(super) fn other_managers(live: &Value, own: &PatchParams) -> String {
    let entries = live["metadata"]["managedFields"].as_array();
    let managers: BTreeSet<&str> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["manager"].as_str())
        .filter(|manager| Some(*manager) != own.field_manager.as_deref())
        .collect();
    managers.into_iter().collect::<Vec<_>>().join(", ")
}

/// Says who changed what.
pub(super) fn sentence(by: &str, changes: &str) -> String {
    let by = if by.is_empty() { "somebody" } else { by };
    format!("{by} changed the webhook configuration ({changes})")
}

// === impl Repairs ===

impl Repairs {
    /// When the next repair may begin. None if it may begin now.
    pub(super) fn not_before(&self, now: Instant) -> Option<Instant> {
        let next = self.last? + self.pause;
        (now < next).then_some(next)
    }

    /// Whether somebody changed the configuration again after a repair, and not long ago.
    pub(super) fn is_contested(&self, now: Instant) -> bool {
        let is_recent = self
            .last
            .is_some_and(|last| now.duration_since(last) < QUIET);
        is_recent && self.pause > Duration::ZERO
    }

    /// Takes note that a repair begins.
    pub(super) fn begin(&mut self, now: Instant) {
        let is_repeated = self
            .last
            .is_some_and(|last| now.duration_since(last) < QUIET);
        self.pause = if is_repeated {
            (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE)
        } else {
            Duration::ZERO
        };
        self.last = Some(now);
    }
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(client: Client, installation: &Installation) -> Self {
        let reporter = Reporter {
            controller: "tollgate".to_owned(),
            instance: Some(installation.replica.clone()),
        };
        Self {
            recorder: events::Recorder::new(client, reporter),
            lease: ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                name: Some(installation.leader_lease()),
                namespace: Some(installation.namespace.clone()),
                ..ObjectReference::default()
            },
        }
    }

    /// Publishes an Event about a repair. Failures are logged: the repair matters more.
    pub(super) async fn publish(&self, changes: &str, by: &str, until: Instant) {
        let note = format!("{}; Tollgate restores it", sentence(by, changes));
        self.warn("WebhooksRepaired", "Repair", &note, until).await;
    }

    /// Publishes a warning about the registration.
    pub(super) async fn warn(&self, reason: &str, action: &str, note: &str, until: Instant) {
        let event = events::Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note.chars().take(LONGEST_NOTE).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        let publish = self.recorder.publish(&event, &self.lease);
        if let Ok(Err(error)) = timeout_at(until, publish).await {
            let error = words(&error);
            tracing::debug!(
                reason,
                error,
                "cannot publish an Event about the registration"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_at_once_and_then_with_growing_pauses() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut repairs = Repairs::default();
        assert_eq!(repairs.not_before(start), None);
        repairs.begin(start);
        assert_eq!(repairs.not_before(start), None);
        assert!(!repairs.is_contested(start));
        repairs.begin(start);
        assert_eq!(repairs.not_before(start), Some(after(1)));
        assert!(repairs.is_contested(after(299)) && !repairs.is_contested(after(300)));
        for _ in 0..20 {
            repairs.begin(after(1));
        }
        assert_eq!(repairs.not_before(after(1)), Some(after(61)));
        repairs.begin(after(400));
        assert_eq!(repairs.not_before(after(400)), None);
    }
}
