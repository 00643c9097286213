//! The ratios of Tollgate to its peers, round by round.
//!
//! The sides of a round ran one after the other. The ratio of each round therefore suffers less from other load than the
//! ratio of two medians. A promise is about the upper quartile of the rounds: it holds in three rounds of four.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Report, Target};
use crate::measure::{Subject, median, upper_quartile};
use crate::plan::peers::{GROUPS, LATENCY, MANY_VALIDATORS, MUTATORS, OBJECTS};
use crate::plan::{BASE, at, five_mutators, plugins};
use crate::plugins::Work;
use crate::servers::Side;

/// The definition of a ratio.
struct Ratio {
    id: &'static str,
    what: &'static str,
    /// The highest allowed upper quartile, if the project promises one.
    target: Option<f64>,
    rounds: fn(&Report) -> anyhow::Result<Vec<f64>>,
}

/// A ratio of one run.
struct Measured {
    id: &'static str,
    what: &'static str,
    target: Option<f64>,
    median: f64,
    upper_quartile: f64,
    rounds: Vec<f64>,
}

const RATIOS: [Ratio; 28] = [
    Ratio {
        id: "P1",
        what: "20 validators, 5 kB: CPU per request, host / Go webhook with one check",
        target: Some(0.8),
        rounds: |report| cpu(report, Side::Host, 0, 20, Side::ControllerRuntime),
    },
    Ratio {
        id: "P1a",
        what: "5 validators, 5 kB: CPU per request, host / Go webhook with one check",
        target: None,
        rounds: |report| cpu(report, Side::Host, 0, 5, Side::ControllerRuntime),
    },
    Ratio {
        id: "P1b",
        what: "1 validator, 5 kB: CPU per request, host / Go webhook",
        target: None,
        rounds: |report| cpu(report, Side::Host, 0, 1, Side::ControllerRuntime),
    },
    Ratio {
        id: "P1c",
        what: "1 validator, 93 kB: CPU per request, host / Go webhook",
        target: None,
        rounds: |report| cpu(report, Side::Host, 1, 1, Side::ControllerRuntime),
    },
    Ratio {
        id: "P1d",
        what: "1 validator, 0.9 MB: CPU per request, host / Go webhook",
        target: None,
        rounds: |report| cpu(report, Side::Host, 2, 1, Side::ControllerRuntime),
    },
    Ratio {
        id: "P2",
        what: "1 validator, 5 kB: CPU per request, host / kube-rs webhook",
        target: Some(0.8),
        rounds: |report| cpu(report, Side::Host, 0, 1, Side::KubeRs),
    },
    Ratio {
        id: "P3a",
        what: "1 validator, 93 kB: CPU per request, host / kube-rs webhook",
        target: Some(0.3),
        rounds: |report| cpu(report, Side::Host, 1, 1, Side::KubeRs),
    },
    Ratio {
        id: "P3b",
        what: "1 validator, 0.9 MB: CPU per request, host / kube-rs webhook",
        target: Some(0.3),
        rounds: |report| cpu(report, Side::Host, 2, 1, Side::KubeRs),
    },
    Ratio {
        id: "P3c",
        what: "20 validators, 93 kB: CPU per request, host / kube-rs webhook with one check",
        target: None,
        rounds: |report| cpu(report, Side::Host, 1, 20, Side::KubeRs),
    },
    Ratio {
        id: "P3d",
        what: "20 validators, 0.9 MB: CPU per request, host / kube-rs webhook with one check",
        target: None,
        rounds: |report| cpu(report, Side::Host, 2, 20, Side::KubeRs),
    },
    Ratio {
        id: "P3e",
        what: "0.9 MB: CPU per request, the floor / kube-rs webhook",
        target: None,
        rounds: |report| {
            let one = at(OBJECTS[2], Work::ReadsFields, 1);
            let (floor, peer) = (one.on(Side::Floor), one.on(Side::KubeRs));
            Ok(divided(
                rounds(report, 2, &floor)?,
                &rounds(report, 2, &peer)?,
            ))
        },
    },
    Ratio {
        id: "P4a",
        what: "one more validator, from 1 to 20, 5 kB: CPU / a whole request of the native control",
        target: Some(0.18),
        rounds: |report| slope(report, Side::Host),
    },
    Ratio {
        id: "P4b",
        what: "one more validator, 5 kB: CPU from 5 to 100, relative to that from 1 to 5, minus one",
        target: Some(0.15),
        rounds: |report| flatness(report, Side::Host),
    },
    Ratio {
        id: "P5",
        what: "five mutators on 100 kB: CPU per request, host / native control",
        target: None,
        rounds: |report| mutators(report, Side::Host),
    },
    Ratio {
        id: "P6a",
        what: "5 validators at half of the saturating rate: p99, host / native control",
        target: Some(1.5),
        rounds: |report| p99(report, Side::Host, &BASE.on(Side::Native)),
    },
    Ratio {
        id: "P6b",
        what: "5 validators at half of the saturating rate: p99, host / Go webhook with one check",
        target: Some(1.0),
        rounds: |report| p99(report, Side::Host, &plugins(1).on(Side::ControllerRuntime)),
    },
    Ratio {
        id: "P6c",
        what: "5 validators at half of the saturating rate: p99, host / kube-rs webhook with one check",
        target: None,
        rounds: |report| p99(report, Side::Host, &plugins(1).on(Side::KubeRs)),
    },
    Ratio {
        id: "P1k",
        what: "20 validators with known answers, 5 kB: CPU per request, host / Go webhook with one check",
        target: Some(0.8),
        rounds: |report| cpu(report, Side::Known, 0, 20, Side::ControllerRuntime),
    },
    Ratio {
        id: "P1n",
        what: "20 validators, new reviews, 5 kB: CPU per request, host / Go webhook with one check",
        target: None,
        rounds: |report| cpu(report, Side::New, 0, 20, Side::ControllerRuntime),
    },
    Ratio {
        id: "P2k",
        what: "1 validator with known answers, 5 kB: CPU per request, host / kube-rs webhook",
        target: Some(0.8),
        rounds: |report| cpu(report, Side::Known, 0, 1, Side::KubeRs),
    },
    Ratio {
        id: "P2n",
        what: "1 validator, new reviews, 5 kB: CPU per request, host / kube-rs webhook",
        target: None,
        rounds: |report| cpu(report, Side::New, 0, 1, Side::KubeRs),
    },
    Ratio {
        id: "P3k",
        what: "1 validator with known answers, 93 kB: CPU per request, host / kube-rs webhook",
        target: Some(0.3),
        rounds: |report| cpu(report, Side::Known, 1, 1, Side::KubeRs),
    },
    Ratio {
        id: "P3l",
        what: "1 validator with known answers, 0.9 MB: CPU per request, host / kube-rs webhook",
        target: Some(0.3),
        rounds: |report| cpu(report, Side::Known, 2, 1, Side::KubeRs),
    },
    Ratio {
        id: "P4k",
        what: "one more validator with known answers, from 1 to 20, 5 kB: CPU / a request of the native control",
        target: Some(0.18),
        rounds: |report| slope(report, Side::Known),
    },
    Ratio {
        id: "P4l",
        what: "one more validator with known answers, 5 kB: CPU from 5 to 100, relative to 1 to 5, minus one",
        target: Some(0.15),
        rounds: |report| flatness(report, Side::Known),
    },
    Ratio {
        id: "P5k",
        what: "five mutators with known answers on 100 kB: CPU per request, host / native control",
        target: Some(1.5),
        rounds: |report| mutators(report, Side::Known),
    },
    Ratio {
        id: "P6k",
        what: "5 validators with known answers at half of the saturating rate: p99, host / native control",
        target: Some(1.5),
        rounds: |report| p99(report, Side::Known, &BASE.on(Side::Native)),
    },
    Ratio {
        id: "P6l",
        what: "5 validators with known answers at half of the saturating rate: p99, host / Go webhook",
        target: Some(1.0),
        rounds: |report| p99(report, Side::Known, &plugins(1).on(Side::ControllerRuntime)),
    },
];

/// Returns the promised ratios of this run.
pub(super) fn targets(report: &Report) -> impl Iterator<Item = Target> {
    let target = |measured: Measured| {
        let target = measured.target?;
        Some(Target {
            id: measured.id,
            figure: measured.upper_quartile,
            target,
            met: measured.upper_quartile <= target,
            what: measured.what,
        })
    };
    measured(report).into_iter().filter_map(target)
}

/// Formats all ratios for a terminal.
pub(super) fn lines(report: &Report) -> String {
    let measured = measured(report);
    if measured.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\nratios to the peers, by round                                                                 median quartile  at most\n",
    );
    for ratio in measured {
        let target = ratio.target.map(|target| format!("{target:.2}"));
        let _: std::fmt::Result = writeln!(
            text,
            "  {:<3} {:<86} {:>8.2} {:>8.2} {:>8}",
            ratio.id,
            ratio.what,
            ratio.median,
            ratio.upper_quartile,
            target.unwrap_or_default(),
        );
    }
    text
}

/// Formats all ratios as a table of Markdown.
pub(super) fn rows(report: &Report) -> String {
    let measured = measured(report);
    if measured.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n**ratios to the peers**\n\n\
         | | what | median of the rounds | upper quartile | at most |\n\
         |---|---|---:|---:|---:|\n",
    );
    for ratio in measured {
        let target = ratio.target.map(|target| format!("{target:.2}"));
        let _: std::fmt::Result = writeln!(
            text,
            "| {} | {} | {:.2} | {:.2} | {} |",
            ratio.id,
            ratio.what,
            ratio.median,
            ratio.upper_quartile,
            target.unwrap_or_default(),
        );
    }
    text
}

pub(super) fn json(report: &Report) -> Value {
    let ratios = measured(report).into_iter().map(|ratio| {
        json!({
            "id": ratio.id,
            "what": ratio.what,
            "median": ratio.median,
            "upperQuartile": ratio.upper_quartile,
            "target": ratio.target,
            "rounds": ratio.rounds,
        })
    });
    ratios.collect()
}

/// Returns the ratios that this run covers.
fn measured(report: &Report) -> Vec<Measured> {
    let measured = |ratio: &Ratio| {
        let rounds = (ratio.rounds)(report).ok()?;
        Some(Measured {
            id: ratio.id,
            what: ratio.what,
            target: ratio.target,
            median: median(rounds.clone()),
            upper_quartile: upper_quartile(rounds.clone()),
            rounds,
        })
    };
    RATIOS.iter().filter_map(measured).collect()
}

/// Returns the CPU of the host with some validators, divided by that of a side with one check.
fn cpu(
    report: &Report,
    host: Side,
    size: usize,
    validators: usize,
    side: Side,
) -> anyhow::Result<Vec<f64>> {
    let host = at(OBJECTS[size], Work::ReadsFields, validators).on(host);
    let other = at(OBJECTS[size], Work::ReadsFields, 1).on(side);
    Ok(divided(
        rounds(report, size, &host)?,
        &rounds(report, size, &other)?,
    ))
}

/// Returns the CPU of one more validator, divided by that of a whole request of the native control.
fn slope(report: &Report, host: Side) -> anyhow::Result<Vec<f64>> {
    let results = report.results(GROUPS[0])?;
    let slopes = results.slopes(&plugins(1).on(host), &plugins(20).on(host))?;
    let native = rounds(report, 0, &plugins(1).on(Side::Native))?;
    Ok(divided(slopes, &native))
}

/// Returns how much more one more validator takes among many than among few.
fn flatness(report: &Report, host: Side) -> anyhow::Result<Vec<f64>> {
    let results = report.results(GROUPS[0])?;
    let [one, five, many] = [1, 5, MANY_VALIDATORS].map(|count| plugins(count).on(host));
    let few = results.slopes(&one, &five)?;
    let ratios = divided(results.slopes(&five, &many)?, &few);
    Ok(ratios.into_iter().map(|ratio| ratio - 1.0).collect())
}

/// Returns the CPU of five mutators, divided by that of the native control.
fn mutators(report: &Report, host: Side) -> anyhow::Result<Vec<f64>> {
    let cpu = |side| {
        let figures = report.figures(MUTATORS, &five_mutators().on(side))?;
        anyhow::Ok(figures.cpu_microseconds.clone())
    };
    Ok(divided(cpu(host)?, &cpu(Side::Native)?))
}

/// Returns the CPU per request in each round.
fn rounds(report: &Report, size: usize, subject: &Subject) -> anyhow::Result<Vec<f64>> {
    let figures = report.figures(GROUPS[size], subject)?;
    Ok(figures.cpu_microseconds.clone())
}

/// Returns the p99 of the host with five validators, divided by that of another subject.
fn p99(report: &Report, host: Side, other: &Subject) -> anyhow::Result<Vec<f64>> {
    let results = report.results(LATENCY)?;
    let host = results.of(&BASE.on(host))?.latencies_at(0.99);
    Ok(divided(host, &results.of(other)?.latencies_at(0.99)))
}

fn divided(figures: Vec<f64>, by: &[f64]) -> Vec<f64> {
    let rounds = figures.into_iter().zip(by);
    rounds.map(|(figure, by)| figure / by).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_round_by_round() {
        let ratios = divided(vec![2.0, 9.0], &[4.0, 3.0]);
        assert!((ratios[0] - 0.5).abs() < 1e-9 && (ratios[1] - 3.0).abs() < 1e-9);
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<&str> = RATIOS.iter().map(|ratio| ratio.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), RATIOS.len());
    }
}
