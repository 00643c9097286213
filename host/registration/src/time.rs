//! Computes how long the plugins of a webhook may take together, and the timeout that kube-apiserver needs for that.

use std::{ops::RangeInclusive, time::Duration};

use tollgate_admission::Endpoint;
use tollgate_config::deadline::usable_time;
use tollgate_config::{ExistingViolations, Margin, Mode, ReinvocationPolicy, format_duration};

use super::Participant;

/// The range that Kubernetes accepts for `timeoutSeconds`.
pub const TIMEOUT_BOUNDS_SECONDS: RangeInclusive<u32> = 1..=30;

/// Shortest timeout that is printed by default. A new connection or a short wait for a processor must not cause a
/// failure.
const LEAST_SECONDS: u32 = 5;

/// The plugins may take longer than kube-apiserver waits.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{what} may take {} ({sum}), but of the {seconds} s that kube-apiserver waits ({setting}) only {} are left after \
     requests.deadlineMargin: {remedy}",
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

/// Returns the `timeoutSeconds` of a webhook for these plugins: the requested value, or else the smallest that is
/// enough.
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
        Some(enough) => format!("set --timeout-seconds {enough}, or lower limits.timeout"),
        None if plugins.len() > 1 && endpoint == Endpoint::Mutate => format!(
            "lower limits.timeout so that the sum is at most {}, or give each plugin its own webhook with \
             --per-plugin",
            format_duration(left(most))
        ),
        None => format!(
            "lower limits.timeout to at most {}",
            format_duration(left(most))
        ),
    };
    let what = match endpoint {
        Endpoint::Mutate => "the mutating plugins, called in sequence,",
        Endpoint::Validate => "the validating plugins, called in parallel,",
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

/// Like [`seconds`], but returns the longest timeout that Kubernetes allows if that is not enough. The host ends a call
/// that takes longer, and its `failurePolicy` decides.
pub(super) fn longest_seconds(
    endpoint: Endpoint,
    plugins: &[Participant<'_>],
    margin: Margin,
    asked: Option<u32>,
) -> u32 {
    seconds(endpoint, plugins, margin, asked)
        .unwrap_or_else(|_| asked.unwrap_or(*TIMEOUT_BOUNDS_SECONDS.end()))
}

/// Returns the longest time of all plugins together. Mutators run in sequence and validators in parallel. Plugins in
/// mode audit run after the answer and do not count.
fn chain(endpoint: Endpoint, plugins: &[Participant<'_>]) -> Duration {
    let times = waited_for(plugins).map(|plugin| plugin.timeout * calls(endpoint, plugin, plugins));
    match endpoint {
        Endpoint::Mutate => times.sum(),
        Endpoint::Validate => times.max().unwrap_or_default(),
    }
}

fn sum(endpoint: Endpoint, plugins: &[Participant<'_>]) -> String {
    let one = |plugin: &Participant<'_>| {
        let timeout = format_duration(plugin.timeout);
        match calls(endpoint, plugin, plugins) {
            1 => format!("{} {timeout}", plugin.name),
            calls => format!("{} {calls} × {timeout}", plugin.name),
        }
    };
    let all: Vec<String> = waited_for(plugins).map(one).collect();
    all.join(match endpoint {
        Endpoint::Mutate => " + ",
        Endpoint::Validate => ", ",
    })
}

/// Returns how often a plugin is called for one request at most.
fn calls(endpoint: Endpoint, plugin: &Participant<'_>, plugins: &[Participant<'_>]) -> u32 {
    let others = plugins.len() > 1;
    match endpoint {
        // The plugin is called again if another plugin changed the object, and a last time to check that nothing
        // changes any more.
        Endpoint::Mutate
            if others && plugin.reinvocation_policy == ReinvocationPolicy::IfNeeded =>
        {
            3
        }
        // The plugin is called once for the new object and once for the old one.
        Endpoint::Validate if plugin.existing_violations == ExistingViolations::Allow => 2,
        _ => 1,
    }
}

fn waited_for<'a, 'b>(plugins: &'a [Participant<'b>]) -> impl Iterator<Item = &'a Participant<'b>> {
    plugins.iter().filter(|plugin| plugin.mode != Mode::Audit)
}
