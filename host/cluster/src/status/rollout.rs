//! Rollouts in the status of a plugin: what each replica sees, and what the leader has decided. Pure.
//!
//! The leader of each installation has an element of `status.rollouts`, because two installations can serve one resource.

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_config::{Rollout, format_duration};
use tollgate_rollout::{
    Asked, By, Change, Common, Heard, Identity, Observations, Phase, Report, State, Wait,
};

use super::{cut, entries};
use crate::Installation;
use crate::kinds::Resource;

/// The element of an installation in `status.rollouts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) common: Common,
    /// Number of steps of the plan.
    pub(crate) steps: usize,
    /// SHA-256 of the old version's bytes.
    pub(crate) from: Option<String>,
    /// SHA-256 of the new version's bytes.
    pub(crate) to: Option<String>,
    /// What the rollout waits for.
    pub(crate) waits_for: Option<String>,
}

/// Maximum number of changes in a status.
pub(crate) const MOST_CHANGES: usize = 8;
/// Longer reasons of changes are cut.
pub(crate) const LONGEST_REASON_CHARACTERS: usize = 400;

/// Returns what the status of a resource says to a replica about the rollout of its plugin.
pub(crate) fn heard(resource: &Resource, installation: &Installation) -> Heard {
    let own = installation.full_name();
    let mut entries = entries(resource).into_iter();
    let entry =
        entries.find(|entry| entry.name == installation.replica && entry.installation == own);
    Heard {
        state: Decided::read(resource, installation).map(|decided| decided.common.state),
        own: entry.and_then(|entry| entry.rollout),
        asked: resource.asked.as_deref().and_then(Asked::parse),
    }
}

/// Returns what a rollout waits for. The text stays the same while the wait is the same.
pub(crate) fn waits_for(wait: &Wait, plan: &Rollout, state: &State) -> Option<String> {
    Some(match wait {
        Wait::Nothing => return None,
        Wait::Time { .. } => {
            let step = plan.steps.get(state.step)?;
            let duration = u64::try_from(step.duration.as_millis()).unwrap_or(u64::MAX);
            let end = timestamp(state.step_since.saturating_add(duration));
            format!(
                "the end of the step at {end}, after {}",
                format_duration(step.duration)
            )
        }
        Wait::Reviews { needed, .. } => {
            format!("{needed} calls of the new version in this step (gates.minReviews)")
        }
        Wait::OldTime { needed, .. } => {
            format!("{needed} calls of the old version, to compare times (gates.addedTime)")
        }
        Wait::Version => "the leader, which cannot call the new version yet".to_owned(),
        Wait::Leader => "the leader".to_owned(),
        Wait::Operator => "an administrator, who promotes it or rolls it back".to_owned(),
        Wait::Replica { name, why } => format!("replica {name}, which {why}"),
    })
}

// === impl Decided ===

impl Decided {
    /// Reads the element of an installation. None if there is none, or none that can be understood.
    pub(crate) fn read(resource: &Resource, installation: &Installation) -> Option<Self> {
        let own = installation.full_name();
        let mut all = resource.status["rollouts"].as_array()?.iter();
        let value = all.find(|one| one["installation"] == own.as_str())?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let state = State {
            identity: Identity::stored(value["identity"].as_str()?),
            run: value["run"].as_u64()?,
            revision: value["revision"].as_u64()?,
            phase: Phase::parse(value["phase"].as_str()?)?,
            step: step(&value["step"])?,
            started_at: milliseconds(&value["startedAt"])?,
            step_since: milliseconds(&value["since"])?,
            observed: observations(&value["observed"]),
            history: value["history"]
                .as_array()?
                .iter()
                .filter_map(change)
                .collect(),
        };
        let steps = usize::try_from(value["steps"].as_u64()?).ok()?;
        Some(Self {
            common: Common {
                state,
                carried: observations(&value["carried"]),
            },
            steps,
            from: text("from"),
            to: text("to"),
            waits_for: text("waitsFor"),
        })
    }

    /// Returns the element as it is written.
    pub(crate) fn document(&self, installation: &Installation) -> Value {
        let Common { state, carried } = &self.common;
        let last = state.last();
        let history = state.history.iter();
        let history = history.skip(state.history.len().saturating_sub(MOST_CHANGES));
        let mut document = json!({
            "installation": installation.full_name(),
            "identity": state.identity.as_str(),
            "run": state.run,
            "revision": state.revision,
            "phase": state.phase.as_str(),
            "step": state.step + 1,
            "steps": self.steps,
            "summary": self.summary(),
            "startedAt": timestamp(state.started_at),
            "since": timestamp(state.step_since),
            "by": last.map_or(By::Configuration, |last| last.by).as_str(),
            "reason": last.map_or_else(String::new, |last| shortened(&last.reason)),
            "observed": state.observed,
            "carried": carried,
            "history": history.map(change_document).collect::<Vec<Value>>(),
        });
        for (key, text) in [
            ("from", &self.from),
            ("to", &self.to),
            ("waitsFor", &self.waits_for),
        ] {
            if let Some(text) = text {
                document[key] = json!(cut(text.clone()));
            }
        }
        document
    }

    /// The text of the column: the phase, and the step while there is one.
    pub(crate) fn summary(&self) -> String {
        let state = &self.common.state;
        let phase = state.phase.as_str();
        match state.phase {
            Phase::Running | Phase::Stopped => format!("{phase} {}/{}", state.step + 1, self.steps),
            Phase::Promoted | Phase::RolledBack => phase.to_owned(),
        }
    }
}

/// Reads what a replica sees of a rollout.
pub(crate) fn read_report(value: &Value) -> Option<Report> {
    Some(Report {
        identity: value["identity"].as_str().map(Identity::stored),
        run: value["run"].as_u64()?,
        revision: value["revision"].as_u64()?,
        phase: Phase::parse(value["phase"].as_str()?)?,
        step: step(&value["step"])?,
        is_available: value["available"].as_bool()?,
        is_over: value["over"].as_bool()?,
        observed: observations(&value["observed"]),
        by: By::parse(value["by"].as_str()?)?,
        reason: value["reason"].as_str().map(str::to_owned),
        asks_for_promotion: value["asksForPromotion"].as_bool().unwrap_or(false),
    })
}

/// Returns what a replica sees of a rollout, as it is written.
pub(crate) fn report_document(report: &Report) -> Value {
    let mut document = json!({
        "run": report.run,
        "revision": report.revision,
        "phase": report.phase.as_str(),
        "step": report.step + 1,
        "available": report.is_available,
        "over": report.is_over,
        "observed": report.observed,
        "by": report.by.as_str(),
    });
    if let Some(identity) = &report.identity {
        document["identity"] = json!(identity.as_str());
    }
    if let Some(reason) = &report.reason {
        document["reason"] = json!(reason);
    }
    if report.asks_for_promotion {
        document["asksForPromotion"] = json!(true);
    }
    document
}

/// Reads the number of a step, which counts from 1 in a status.
fn step(value: &Value) -> Option<usize> {
    let number = usize::try_from(value.as_u64()?).ok()?;
    number.checked_sub(1)
}

fn observations(value: &Value) -> Observations {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn change(value: &Value) -> Option<Change> {
    Some(Change {
        at: milliseconds(&value["at"])?,
        phase: Phase::parse(value["phase"].as_str()?)?,
        step: step(&value["step"])?,
        by: By::parse(value["by"].as_str()?)?,
        reason: value["reason"].as_str()?.to_owned(),
    })
}

fn change_document(change: &Change) -> Value {
    json!({
        "at": timestamp(change.at),
        "phase": change.phase.as_str(),
        "step": change.step + 1,
        "by": change.by.as_str(),
        "reason": shortened(&change.reason),
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_REASON_CHARACTERS).collect()
}

/// A time in RFC 3339 with milliseconds, so that the state is read as it was decided.
pub(crate) fn timestamp(milliseconds: u64) -> String {
    let nanoseconds = i128::from(milliseconds) * 1_000_000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds);
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

fn milliseconds(value: &Value) -> Option<u64> {
    let time = OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation() -> Installation {
        Installation {
            name: "tollgate".to_owned(),
            namespace: "system".to_owned(),
            replica: "a".to_owned(),
        }
    }

    fn resource(status: Value) -> Resource {
        Resource {
            name: "guard".to_owned(),
            namespace: None,
            uid: "uid".to_owned(),
            generation: 1,
            version: "1".to_owned(),
            asked: Some("rollback-1".to_owned()),
            created: String::new(),
            spec: json!({}),
            status,
        }
    }

    fn decided() -> Decided {
        let begun = State::begin(Identity::stored("abc"), 1_764_000_000_123);
        let state = begun.changed(
            Phase::Running,
            1,
            By::Gates,
            "step 1 passed".to_owned(),
            1_764_000_060_456,
        );
        let carried = Observations {
            reviews: 7,
            ..Observations::default()
        };
        Decided {
            common: Common { state, carried },
            steps: 3,
            from: Some("sha256:1".to_owned()),
            to: None,
            waits_for: Some("something".to_owned()),
        }
    }

    #[test]
    fn decision_is_read_as_it_is_written() {
        let (installation, decided) = (installation(), decided());
        let document = decided.document(&installation);
        assert_eq!(document["since"], "2025-11-24T16:01:00.456Z");
        assert_eq!(
            (&document["step"], &document["summary"]),
            (&json!(2), &json!("running 2/3"))
        );
        let other = json!({ "installation": "other/tollgate", "identity": "x" });
        let written = resource(json!({ "rollouts": [other, document] }));
        assert_eq!(
            Decided::read(&written, &installation),
            Some(decided.clone())
        );
        let heard = heard(&written, &installation);
        assert_eq!(heard.state, Some(decided.common.state));
        assert_eq!(heard.asked, Some(Asked::RollBack { run: Some(1) }));
        assert_eq!(heard.own, None);
    }

    #[test]
    fn status_that_is_not_understood_says_nothing() {
        let installation = installation();
        let mut document = decided().document(&installation);
        for (key, value) in [
            ("phase", json!("sideways")),
            ("step", json!(0)),
            ("since", json!("yesterday")),
            ("run", Value::Null),
        ] {
            let before = document[key].take();
            document[key] = value;
            let written = resource(json!({ "rollouts": [document.clone()] }));
            assert_eq!(Decided::read(&written, &installation), None, "{key}");
            document[key] = before;
        }
        let written = resource(Value::Null);
        assert_eq!(Decided::read(&written, &installation), None);
    }

    #[test]
    fn history_and_reasons_are_bounded() {
        let mut decided = decided();
        for at in 0..40 {
            let reason = "é".repeat(1_000);
            let state = &decided.common.state;
            decided.common.state = state.changed(Phase::Running, 1, By::Operator, reason, at);
        }
        let document = decided.document(&installation());
        assert_eq!(document["history"].as_array().map(Vec::len), Some(8));
        assert!(
            document.to_string().len() < 12_000,
            "{}",
            document.to_string().len()
        );
    }

    #[test]
    fn report_of_a_replica_is_read_as_it_is_written() {
        let report = Report {
            reason: Some("1 fault(s)".to_owned()),
            phase: Phase::RolledBack,
            asks_for_promotion: true,
            ..Report::stateless(Some(Identity::stored("abc")), None)
        };
        for report in [report, Report::stateless(None, Some("not loaded"))] {
            assert_eq!(read_report(&report_document(&report)), Some(report));
        }
        assert_eq!(read_report(&Value::Null), None);
    }

    #[test]
    fn text_of_a_wait_does_not_change_with_the_time() {
        let (installation, decided) = (installation(), decided());
        drop(installation);
        let file = "
registries: { cacheDirectory: /var/lib/tollgate }
plugins: [{ name: guard, source: 'file:/a.wasm', rollout: {
    to: { source: 'file:/b.wasm' },
    steps: [{ mode: warn, for: 10s }, { mode: enforce, for: 90s }],
} }]
";
        let config = tollgate_config::Config::parse(file, std::path::Path::new("/")).unwrap();
        let plan = config.plugins[0].rollout.clone().unwrap();
        let wait = |seconds| {
            let left = std::time::Duration::from_secs(seconds);
            waits_for(&Wait::Time { left }, &plan, &decided.common.state)
        };
        assert_eq!(wait(80), wait(1));
        let text = wait(1).unwrap();
        assert!(text.contains("2025-11-24T16:02:30.456Z"), "{text}");
    }
}
