//! The part of a replica's entry about the effect of a plugin and about its last call.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_config::Serving;

use super::{Reports, Round};
use crate::canary::Effect;
use crate::desired::Verdict;
use crate::kinds::Resource;
use crate::lead::Management;
use crate::status::{self, ReplicaEntry};

/// The replica writes the time of the last call again when it is this much later. A plugin that is always called thus
/// causes two writes an hour on each replica.
const COARSE: Duration = Duration::from_secs(30 * 60);

// === impl Reports ===

impl Reports {
    /// Returns the entry of this replica for this generation, as it is written.
    fn written(&self, resource: &Resource) -> Option<ReplicaEntry> {
        let mut entries = status::entries(resource).into_iter();
        entries.find(|entry| {
            entry.name == self.installation.replica && entry.generation == resource.generation
        })
    }

    /// Returns what this replica's entry says about the effect of a plugin. Words that may right themselves in a moment
    /// wait.
    pub(super) fn effect(
        &mut self,
        name: &str,
        resource: &Resource,
        verdict: &Verdict,
        serving: &Serving,
        round: &mut Round,
    ) -> Option<Effect> {
        let written = self.written(resource).and_then(|entry| entry.effect);
        let said = match &*self.management.borrow() {
            Management::Unknown => return written,
            Management::Others => Effect::not_managed(),
            Management::Own(lead) => {
                let report = lead.report.borrow();
                if !report.leads {
                    return None;
                }
                let (served, sightings) = (serving.get(name), lead.sightings.borrow());
                Effect::of_leader(name, verdict, served, &report, &sightings)
            }
        };
        let is_settled = said.is_settled();
        round.patient(&mut self.ineffective, name, written, said, is_settled)
    }

    /// Returns when this replica called a plugin last, as its entry shall say it.
    pub(super) fn last_review(&self, name: &str, resource: &Resource) -> Option<String> {
        let mut entries = status::entries(resource).into_iter();
        let own = entries.find(|entry| entry.name == self.installation.replica);
        let written = own.and_then(|entry| entry.last_review);
        let called = match &*self.management.borrow() {
            Management::Own(lead) => lead.metrics.last_call(name),
            Management::Unknown | Management::Others => None,
        };
        coarse(written, called)
    }
}

/// Returns the written time, or the later one if that is news.
fn coarse(written: Option<String>, called: Option<SystemTime>) -> Option<String> {
    let Some(called) = called else {
        return written;
    };
    let called = OffsetDateTime::from(called);
    let before = written.as_deref();
    let before = before.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    let is_news = before.is_none_or(|before| called - before >= COARSE);
    if is_news {
        called
            .replace_nanosecond(0)
            .unwrap_or(called)
            .format(&Rfc3339)
            .ok()
    } else {
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_last_call_is_written_twice_an_hour_at_most() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(coarse(None, None), None);
        let first = coarse(None, Some(at(60)));
        assert_eq!(first.as_deref(), Some("1970-01-01T00:01:00Z"));
        assert_eq!(coarse(first.clone(), Some(at(60 + 1_799))), first);
        assert_eq!(coarse(first.clone(), None), first);
        let later = coarse(first, Some(at(60 + 1_800)));
        assert_eq!(later.as_deref(), Some("1970-01-01T00:31:00Z"));
    }
}
