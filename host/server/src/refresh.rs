//! Reads certificate and credential files again while serving, because others replace them.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use time::OffsetDateTime;
use tokio::{task::spawn_blocking, time::interval};
use tollgate_admission::chain;
use tollgate_telemetry::metrics::Metrics;

use crate::authentication::Authentication;
use crate::tls::{Certificates, moment};

/// Time between reads of the files. kubelet needs about a minute to deliver a changed Secret.
const PERIOD: Duration = Duration::from_secs(5);

/// Time between log lines about files that stay unusable for the same reason.
const REPORT_PERIOD: Duration = Duration::from_secs(600);

/// The error of one of the files.
type Failure = Box<dyn Error + Send + Sync>;

/// The configuration key of a part, and the result of reading its files.
type Outcome = (String, Result<(), Failure>);

/// Everything that is read again.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) certificates: Arc<Certificates>,
    pub(super) authentication: Arc<Authentication>,
    pub(super) admin_authentication: Option<Arc<Authentication>>,
    pub(super) metrics: Arc<Metrics>,
}

/// The files that are unusable at this moment, for `/readyz`.
#[derive(Debug, Default)]
pub(super) struct Refusals(ArcSwap<Vec<String>>);

/// A part of the configuration whose files are unusable.
#[derive(Debug)]
struct Refused {
    reason: String,
    since: OffsetDateTime,
    reported: Instant,
}

/// Reads all files periodically and applies changes. An unusable file does not replace the version in use. Tollgate
/// reports it for as long as it stays unusable.
pub(super) async fn keep_fresh(sources: Sources, refusals: Arc<Refusals>) {
    let mut periods = interval(PERIOD);
    let mut refused = BTreeMap::new();
    let sources = Arc::new(sources);
    loop {
        periods.tick().await;
        let outcomes = {
            let sources = Arc::clone(&sources);
            spawn_blocking(move || sources.refresh()).await
        };
        // An outcome is missing only after a panic, which the panic hook has reported.
        for (setting, outcome) in outcomes.unwrap_or_default() {
            sources
                .metrics
                .credential_degraded(&setting, outcome.is_err());
            note(&mut refused, setting, outcome, Instant::now());
        }
        refusals.0.store(Arc::new(lines(&refused)));
    }
}

/// Records the outcome of one part and logs news, or a repeat after 10 minutes. Returns true if it logged.
fn note(
    refused: &mut BTreeMap<String, Refused>,
    setting: String,
    outcome: Result<(), Failure>,
    now: Instant,
) -> bool {
    let Err(error) = outcome else {
        let ended = refused.remove(&setting);
        if ended.is_some() {
            tracing::info!(setting, "certificate or credential files are usable again");
        }
        return ended.is_some();
    };
    let reason = chain(&*error);
    let earlier = refused.get(&setting);
    let is_known = earlier.is_some_and(|earlier| {
        earlier.reason == reason && now.duration_since(earlier.reported) < REPORT_PERIOD
    });
    if is_known {
        return false;
    }
    let since = earlier.map_or_else(OffsetDateTime::now_utc, |earlier| earlier.since);
    tracing::warn!(
        setting,
        error = reason,
        since = moment(since),
        "cannot use the new certificate or credential; keeping the previous one"
    );
    let reported = now;
    refused.insert(
        setting,
        Refused {
            reason,
            since,
            reported,
        },
    );
    true
}

fn lines(refused: &BTreeMap<String, Refused>) -> Vec<String> {
    let line = |(setting, refused): (&String, &Refused)| {
        let since = moment(refused.since);
        format!(
            "{setting}: its files have been unusable since {since}, so their previous content stays in force: {}",
            refused.reason
        )
    };
    refused.iter().map(line).collect()
}

// === impl Sources ===

impl Sources {
    fn refresh(&self) -> Vec<Outcome> {
        let certificate = self.certificates.refresh(&self.metrics);
        let mut outcomes = vec![(
            "tls".to_owned(),
            certificate.map(drop).map_err(Failure::from),
        )];
        let admin = self.admin_authentication.as_deref();
        let all = [
            Some(("", &*self.authentication)),
            admin.map(|admin| ("admin.", admin)),
        ];
        for (prefix, authentication) in all.into_iter().flatten() {
            let results = authentication.refresh().into_iter();
            outcomes.extend(results.map(|(setting, result)| {
                let setting = format!("{prefix}{setting}");
                (setting, result.map(drop).map_err(Failure::from))
            }));
            authentication.announce(&self.metrics);
        }
        outcomes
    }
}

// === impl Refusals ===

impl Refusals {
    /// Lines for `/readyz` about the unusable files.
    pub(super) fn lines(&self) -> Arc<Vec<String>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_failure_every_ten_minutes_while_it_lasts() {
        let mut refused = BTreeMap::new();
        let began = Instant::now();
        let mut said = |text: Option<&str>, seconds| {
            let outcome = text.map_or(Ok(()), |text| Err(Failure::from(text)));
            let now = began + Duration::from_secs(seconds);
            let said = note(&mut refused, "tls".to_owned(), outcome, now);
            (said, lines(&refused).join("\n"))
        };
        assert_eq!(said(None, 0), (false, String::new()));
        let (first, line) = said(Some("it expired"), 5);
        assert!(first);
        assert!(
            line.starts_with("tls: its files have been unusable since "),
            "{line}"
        );
        assert!(line.ends_with("stays in force: it expired"), "{line}");
        let times = (10..=1_805).step_by(5);
        let again = times
            .filter(|seconds| said(Some("it expired"), *seconds).0)
            .count();
        assert_eq!(again, 3, "it is repeated after ten minutes");
        let (other, line) = said(Some("it is gone"), 1_810);
        assert!(other, "a new reason is logged at once");
        assert!(line.ends_with("stays in force: it is gone"), "{line}");
        assert_eq!(said(None, 1_815), (true, String::new()));
        assert_eq!(said(None, 1_820), (false, String::new()));
    }
}
