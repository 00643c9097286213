//! What the plugins of a webhook may take together, and how long kube-apiserver therefore has to wait.

use std::{ops::RangeInclusive, time::Duration};

use super::Participant;
use crate::{
    config::{Margin, Mode, format_duration},
    server::{Endpoint, usable_time},
};

/// What Kubernetes takes as `timeoutSeconds`.
pub const TIMEOUT_BOUNDS_SECONDS: RangeInclusive<u32> = 1..=30;

/// Less is not printed unasked: a new connection, or a moment without a processor, is no reason to fail.
const LEAST_SECONDS: u32 = 5;

/// The plugins may take longer than kube-apiserver waits.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{what} may take {} ({sum}), and of the {seconds} s that kube-apiserver waits ({setting}) {} are left when \
     requests.deadlineMargin is kept back: {remedy}",
    format_duration(*.chain), format_duration(*.left)
)]
pub struct TooSlow {
    what: &'static str,
    chain: Duration,
    sum: String,
    seconds: u32,
    setting: &'static str,
    left: Duration,
    remedy: String,
}

/// The `timeoutSeconds` of a webhook for these plugins: as asked for, else the least that is enough.
pub(super) fn seconds(
    endpoint: Endpoint,
    plugins: &[Participant<'_>],
    margin: Margin,
    asked: Option<u32>,
) -> Result<u32, TooSlow> {
    let chain = chain(endpoint, plugins);
    let left = |seconds: u32| usable_time(Duration::from_secs(seconds.into()), margin);
    let enough = TIMEOUT_BOUNDS_SECONDS
        .clone()
        .find(|seconds| left(*seconds) >= chain);
    let most = *TIMEOUT_BOUNDS_SECONDS.end();
    let chosen = match (asked, enough) {
        (Some(asked), _) => asked,
        (None, Some(enough)) => enough.max(LEAST_SECONDS),
        (None, None) => most,
    };
    if left(chosen) >= chain {
        return Ok(chosen);
    }
    let setting = if asked.is_some() {
        "--timeout-seconds"
    } else {
        "the most that Kubernetes allows"
    };
    let remedy = match enough {
        Some(enough) => format!("--timeout-seconds {enough} is enough, or lower limits.timeout"),
        None if plugins.len() > 1 && endpoint == Endpoint::Mutate => format!(
            "lower limits.timeout so that the sum is at most {}, or register the plugins one by one with --per-plugin",
            format_duration(left(most))
        ),
        None => format!(
            "lower limits.timeout to at most {}",
            format_duration(left(most))
        ),
    };
    let what = match endpoint {
        Endpoint::Mutate => "the mutating plugins, one after another,",
        Endpoint::Validate => "the validating plugins, at the same time,",
    };
    Err(TooSlow {
        what,
        chain,
        sum: sum(endpoint, plugins),
        seconds: chosen,
        setting,
        left: left(chosen),
        remedy,
    })
}

/// Mutators run one after another, validators at the same time, and audits after the answer.
fn chain(endpoint: Endpoint, plugins: &[Participant<'_>]) -> Duration {
    let timeouts = waited_for(plugins).map(|plugin| plugin.timeout);
    match endpoint {
        Endpoint::Mutate => timeouts.sum(),
        Endpoint::Validate => timeouts.max().unwrap_or_default(),
    }
}

fn sum(endpoint: Endpoint, plugins: &[Participant<'_>]) -> String {
    let one =
        |plugin: &Participant<'_>| format!("{} {}", plugin.name, format_duration(plugin.timeout));
    let all: Vec<String> = waited_for(plugins).map(one).collect();
    all.join(match endpoint {
        Endpoint::Mutate => " + ",
        Endpoint::Validate => ", ",
    })
}

fn waited_for<'a, 'b>(plugins: &'a [Participant<'b>]) -> impl Iterator<Item = &'a Participant<'b>> {
    plugins.iter().filter(|plugin| plugin.mode != Mode::Audit)
}
