//! Files that are read again while serving: certificates and credentials, which others replace.

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::interval};

use crate::{
    metrics::Metrics,
    server::{authentication::Authentication, tls::Certificates},
};

/// How often files are read again. kubelet itself needs about a minute to bring a changed Secret.
const PERIOD: Duration = Duration::from_secs(5);

/// What went wrong with one of the files.
type Failure = Box<dyn Error + Send + Sync>;

/// Takes up what has changed, from time to time. What cannot be used is reported once and does not
/// replace what is in force.
pub(super) async fn keep_fresh(
    certificates: Arc<Certificates>,
    authentication: Arc<Authentication>,
    metrics: Arc<Metrics>,
) {
    let mut periods = interval(PERIOD);
    let mut reported = HashMap::new();
    loop {
        periods.tick().await;
        let results = {
            let certificates = Arc::clone(&certificates);
            let authentication = Arc::clone(&authentication);
            let metrics = Arc::clone(&metrics);
            spawn_blocking(move || refresh(&certificates, &authentication, &metrics)).await
        };
        // The panic hook has reported what ended otherwise.
        for (part, result) in results.unwrap_or_default().into_iter().enumerate() {
            report(part, result, &mut reported);
        }
    }
}

/// Always the same parts in the same order.
fn refresh(
    certificates: &Certificates,
    authentication: &Authentication,
    metrics: &Metrics,
) -> Vec<Result<(), Failure>> {
    let certificate = certificates.refresh(metrics).map(drop).map_err(Into::into);
    let mut results = vec![certificate];
    for result in authentication.refresh() {
        results.push(result.map(drop).map_err(Into::into));
    }
    authentication.announce(metrics);
    results
}

fn report(part: usize, result: Result<(), Failure>, reported: &mut HashMap<usize, String>) {
    match result {
        Ok(()) => {
            reported.remove(&part);
        }
        Err(error) => {
            let text = error.to_string();
            if reported.get(&part) != Some(&text) {
                let error: &dyn Error = &*error;
                tracing::warn!(
                    error,
                    "the new certificate or credential cannot be used; the old one stays"
                );
                reported.insert(part, text);
            }
        }
    }
}
