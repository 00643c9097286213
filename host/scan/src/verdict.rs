//! Turns a plugin's report into the result of a scan.

use tollgate_admission::text::{Limit, one_line};
use tollgate_admission::{Denial, Endpoint};
use tollgate_config::{Mode, PluginConfig};
use tollgate_gate::pipeline::outcome::{Ended, Report};

use super::finding::{Finding, Verdict};

/// Maximum length of a message.
const LONGEST_MESSAGE: Limit = Limit::Bytes(1024);
/// Maximum number of places in a message.
const MOST_PLACES: usize = 10;

/// Returns the result of a report. The texts are those that the server would send: without content of Secrets that the
/// plugin has read.
#[must_use]
pub fn finding(report: &Report, endpoint: Endpoint) -> Finding {
    let enforces = report.mode == Mode::Enforce;
    let (verdict, message) = match &report.ended {
        Ended::Denied(denial) if enforces => (Verdict::Fail, denied(denial)),
        Ended::Denied(denial) => (Verdict::Warn, denied(denial)),
        Ended::Faulted(fault) => (Verdict::Error, fault.message.clone()),
        Ended::Excepted(reason) => (Verdict::Skip, format!("excepted: {reason}")),
        Ended::Patched => (Verdict::Warn, patched(&report.changed)),
        Ended::Allowed | Ended::Unchanged if report.warnings.is_empty() => {
            (Verdict::Pass, String::new())
        }
        Ended::Allowed | Ended::Unchanged => (Verdict::Warn, report.warnings.join("; ")),
    };
    Finding {
        plugin: report.plugin.as_str().to_owned(),
        phase: endpoint.name().to_owned(),
        verdict,
        message: one_line(&message, LONGEST_MESSAGE),
        mode: report.mode.as_str().to_owned(),
        fault: match &report.ended {
            Ended::Faulted(fault) => Some(fault.kind.to_owned()),
            _ => None,
        },
        covered: Vec::new(),
        exception: None,
        without: None,
    }
}

/// Returns the result for a review that the host could not answer.
#[must_use]
pub fn unanswered(config: &PluginConfig, endpoint: Endpoint, error: String) -> Finding {
    Finding {
        plugin: config.name.as_str().to_owned(),
        phase: endpoint.name().to_owned(),
        verdict: Verdict::Error,
        message: one_line(&error, LONGEST_MESSAGE),
        mode: config.mode.as_str().to_owned(),
        fault: None,
        covered: Vec::new(),
        exception: None,
        without: None,
    }
}

/// Returns the message of a denial, with the causes that it does not name.
fn denied(denial: &Denial) -> String {
    let mut text = denial.message.clone();
    for cause in &denial.causes {
        if text.contains(&cause.message) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("; ");
        }
        if let Some(field) = &cause.field {
            text.push_str(field);
            text.push_str(": ");
        }
        text.push_str(&cause.message);
    }
    text
}

/// Returns the places that a mutator would change, without values.
fn patched(places: &[String]) -> String {
    let first: Vec<&str> = places
        .iter()
        .take(MOST_PLACES)
        .map(String::as_str)
        .collect();
    let more = places.len().saturating_sub(MOST_PLACES);
    let mut text = format!("would be changed at {}", first.join(", "));
    if more > 0 {
        text.push_str(&format!(" and {more} more places"));
    }
    text
}

#[cfg(test)]
mod tests {
    use tollgate_admission::Cause;
    use tollgate_config::{PluginName, Source};
    use tollgate_gate::pipeline::outcome::FaultReport;

    use super::*;

    fn report(mode: Mode, ended: Ended) -> Report {
        let name = PluginName::parse("labels").unwrap();
        let mut config = PluginConfig::new(name, Source::File("x.wasm".into()));
        config.mode = mode;
        Report::new(&config, None, ended)
    }

    fn denial() -> Ended {
        let cause = |field: &str, message: &str| Cause {
            field: Some(field.to_owned()),
            message: message.to_owned(),
            reason: None,
        };
        Ended::Denied(Denial {
            message: "label team is missing".to_owned(),
            code: None,
            reason: None,
            causes: vec![
                cause("/metadata/labels", "label team is missing"),
                cause("/spec", "too\nwide"),
            ],
        })
    }

    #[test]
    fn modes_decide_between_fail_and_warn_and_faults_are_errors() {
        let of = |mode, ended| finding(&report(mode, ended), Endpoint::Validate);
        let found = of(Mode::Enforce, denial());
        assert_eq!(found.verdict, Verdict::Fail);
        assert_eq!(found.message, "label team is missing; /spec: too wide");
        assert_eq!(found.phase, "validate");
        assert_eq!(of(Mode::Warn, denial()).verdict, Verdict::Warn);
        assert_eq!(of(Mode::Audit, denial()).verdict, Verdict::Warn);
        let fault = || {
            Ended::Faulted(FaultReport {
                kind: "trap",
                message: "it trapped".to_owned(),
            })
        };
        for mode in [Mode::Enforce, Mode::Warn, Mode::Audit] {
            let found = of(mode, fault());
            assert_eq!(found.verdict, Verdict::Error);
            assert_eq!(found.fault.as_deref(), Some("trap"));
        }
        let excepted = of(Mode::Enforce, Ended::Excepted("legacy".to_owned()));
        assert_eq!(excepted.verdict, Verdict::Skip);
        assert_eq!(of(Mode::Enforce, Ended::Allowed).verdict, Verdict::Pass);
    }

    #[test]
    fn changes_and_warnings_are_warnings() {
        let mut changed = report(Mode::Enforce, Ended::Patched);
        changed.changed = (0..12).map(|index| format!("/spec/{index}")).collect();
        let found = finding(&changed, Endpoint::Mutate);
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(
            found.message.ends_with("/spec/9 and 2 more places"),
            "{}",
            found.message
        );
        let mut warned = report(Mode::Enforce, Ended::Allowed);
        warned.warnings = vec!["old image".to_owned(), "no limits".to_owned()];
        let found = finding(&warned, Endpoint::Validate);
        assert_eq!(found.message, "old image; no limits");
        assert_eq!(found.verdict, Verdict::Warn);
    }
}
