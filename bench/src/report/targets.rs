//! The figures that the project promises, and whether this run meets them.

use serde::Serialize;

use super::{Report, peers};
use crate::measure::Subject;
use crate::plan::{
    BASE, BY_OBJECT, BY_PLUGINS, FAIRNESS, HUGE, LATENCY, MUTATORS, SMALL, at, empty,
    five_mutators, plugins,
};
use crate::plugins::Work;
use crate::servers::Side;

/// A promised figure and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The number of the promise, with a letter if it has several conditions.
    pub id: &'static str,
    /// The measured figure.
    pub figure: f64,
    /// The highest allowed figure.
    pub target: f64,
    /// Whether the figure does not exceed the target.
    pub met: bool,
    /// Description of the figure.
    pub what: &'static str,
}

/// The definition of a promise.
struct Promise {
    id: &'static str,
    what: &'static str,
    target: f64,
    figure: fn(&Report) -> anyhow::Result<f64>,
}

const PROMISES: [Promise; 12] = [
    Promise {
        id: "1",
        what: "one validator that reads fields, 5 kB, 2 threads: CPU per request, host / native",
        target: 1.3,
        figure: |report| {
            let one = plugins(1);
            let host = report.figures(BY_PLUGINS, &one)?.cpu();
            let native = report.figures(BY_PLUGINS, &one.on(Side::Native))?.cpu();
            Ok(host / native)
        },
    },
    Promise {
        id: "2a",
        what: "cost of one more plugin, from 1 to 20, 5 kB: CPU in µs",
        target: 6.0,
        figure: |report| report.results(BY_PLUGINS)?.slope(&plugins(1), &plugins(20)),
    },
    Promise {
        id: "2b",
        what: "cost of one more plugin, from 1 to 100: relative difference of 250 B to 5 kB",
        target: 0.25,
        figure: |report| slope_elsewhere(report, BY_OBJECT[0], SMALL),
    },
    Promise {
        id: "2c",
        what: "cost of one more plugin, from 1 to 100: relative difference of 1 MB to 5 kB",
        target: 0.25,
        figure: |report| slope_elsewhere(report, BY_OBJECT[3], HUGE),
    },
    Promise {
        id: "3",
        what: "CPU per plugin: relative difference of 100 distinct plugins to 5",
        target: 0.25,
        figure: |report| {
            let results = report.results(BY_PLUGINS)?;
            let per_plugin = |count| results.slope(&plugins(0), &plugins(count));
            Ok(deviation(per_plugin(100)?, per_plugin(5)?))
        },
    },
    Promise {
        id: "4a",
        what: "5 plugins at half of the saturating rate: p99 in ms",
        target: 2.0,
        figure: |report| Ok(report.figures(LATENCY, &BASE)?.latency(0.99) / 1e3),
    },
    Promise {
        id: "4b",
        what: "5 plugins at half of the saturating rate: p99 / p50",
        target: 3.0,
        figure: |report| {
            let figures = report.figures(LATENCY, &BASE)?;
            Ok(figures.latency(0.99) / figures.latency(0.5))
        },
    },
    Promise {
        id: "5",
        what: "five mutators on 100 kB: CPU per request, host / native",
        target: 3.0,
        figure: |report| {
            let five = five_mutators();
            let host = report.figures(MUTATORS, &five)?.cpu();
            let native = report.figures(MUTATORS, &five.on(Side::Native))?.cpu();
            Ok(host / native)
        },
    },
    Promise {
        id: "6",
        what: "100 distinct plugins in Rust: resident memory in MB",
        target: 80.0,
        figure: |report| {
            let memory = report.figures(BY_PLUGINS, &plugins(100))?.memory;
            Ok(memory.resident_bytes as f64 / 1e6)
        },
    },
    Promise {
        id: "7a",
        what: "20 policies: CPU of one merged call / 20 calls of an empty native webhook",
        target: 1.0,
        figure: |report| {
            let merged = report.figures(BY_PLUGINS, &plugins(20))?.cpu();
            Ok(merged / (20.0 * report.figures(BY_PLUGINS, &empty())?.cpu()))
        },
    },
    Promise {
        id: "7b",
        what: "fewest policies whose merged call costs less than as many empty native webhooks",
        target: 20.0,
        figure: crossing,
    },
    Promise {
        id: "8",
        what: "a good plugin beside two endless ones: p50 in ms",
        target: 2.0,
        figure: |report| {
            let fairness = report.fairness.as_ref();
            let fairness =
                fairness.ok_or_else(|| anyhow::anyhow!("{FAIRNESS} was not measured"))?;
            Ok(fairness.beside_spinners.at(0.5))
        },
    },
];

/// Compares the results with the promises. Promises that the run does not cover are left out.
pub(super) fn compare(report: &Report) -> Vec<Target> {
    let target = |promise: &Promise| {
        let figure = (promise.figure)(report).ok()?;
        Some(Target {
            id: promise.id,
            figure,
            target: promise.target,
            met: figure <= promise.target,
            what: promise.what,
        })
    };
    let own = PROMISES.iter().filter_map(target);
    own.chain(peers::targets(report)).collect()
}

fn slope_elsewhere(report: &Report, group: &str, bytes: usize) -> anyhow::Result<f64> {
    let fields = |count| -> Subject { at(bytes, Work::ReadsFields, count) };
    let there = report.results(group)?.slope(&fields(1), &fields(100))?;
    let here = report.results(BY_PLUGINS)?;
    Ok(deviation(there, here.slope(&plugins(1), &plugins(100))?))
}

fn deviation(figure: f64, reference: f64) -> f64 {
    (figure / reference - 1.0).abs()
}

/// Returns the number of policies from which one merged call is cheaper than as many calls of an empty native webhook.
/// The function interpolates linearly between the measured points.
pub(super) fn crossing(report: &Report) -> anyhow::Result<f64> {
    let each = report.figures(BY_PLUGINS, &empty())?.cpu();
    let mut before: Option<(f64, f64)> = None;
    for count in [1, 5, 20] {
        let policies = count as f64;
        // The extra cost of the merged call, compared with separate calls.
        let more = report.figures(BY_PLUGINS, &plugins(count))?.cpu() - policies * each;
        if more <= 0.0 {
            return Ok(before.map_or(policies, |(earlier, more_before)| {
                earlier + (policies - earlier) * more_before / (more_before - more)
            }));
        }
        before = Some((policies, more));
    }
    anyhow::bail!("one merged call never costs less, up to 20 policies")
}
