//! Formats tables for a terminal of 100 columns.

use std::fmt::Write as _;

use super::{Report, Target, peers};
use crate::fairness::Latencies;
use crate::measure::{Figures, Group, Results, Subject};
use crate::servers::Side;

const HEADER: &str = "side         plugins  work              object  conn thr   CPU µs  ×nat   req/s   p50 ms   p90   p99 p99.9 RSS MB";

pub(super) fn whole(report: &Report) -> String {
    let mut text = format!("\n{}\n", report.machine.describe());
    for (of, results) in &report.groups {
        text.push_str(&group(of, results));
    }
    if let Some(fairness) = &report.fairness {
        text.push_str("\nfairness: a good plugin, ms           p50     p99     max\n");
        for (what, latencies) in [
            ("alone", &fairness.alone),
            ("beside two endless ones", &fairness.beside_spinners),
        ] {
            text.push_str(&good_line(what, latencies));
        }
    }
    text.push_str(&peers::lines(report));
    let targets = report.targets();
    if targets.is_empty() {
        return text;
    }
    text.push_str("\ntargets                                                                                        figure  at most\n");
    for target in targets {
        text.push_str(&target_line(&target));
    }
    text
}

pub(super) fn group(group: &Group, results: &Results) -> String {
    let mut text = format!("\n{}\n{HEADER}\n", group.name);
    for subject in &group.subjects {
        if let Some(figures) = results.get(subject) {
            text.push_str(&line(subject, figures, results));
        }
    }
    text
}

fn line(subject: &Subject, figures: &Figures, results: &Results) -> String {
    let setup = &subject.setup;
    let native = results.get(&subject.on(Side::Native));
    let ratio = match (setup.side, native) {
        (side, Some(native)) if side.is_host() => format!("{:.2}", figures.cpu() / native.cpu()),
        _ => String::new(),
    };
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|share| figures.latency(share) / 1e3);
    let mut text = String::new();
    let _: std::fmt::Result = writeln!(
        text,
        "{:<12} {:>7}  {:<18}{:>6}  {:>4} {:>3} {:>8.1} {ratio:>5} {:>7.0}  {p50:>7.3} {p90:>5.2} {p99:>5.2} {p999:>5.2} {:>6.1}",
        setup.side.name(),
        setup.plugins,
        setup.work(),
        bytes(subject.object_bytes),
        subject.connections,
        setup.threads,
        figures.cpu(),
        figures.rate(),
        figures.memory.resident_bytes as f64 / 1e6,
    );
    text
}

fn good_line(what: &str, latencies: &Latencies) -> String {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| latencies.at(share));
    format!("  {what:<30} {p50:>8.2} {p99:>7.2} {max:>7.2}\n")
}

fn target_line(target: &Target) -> String {
    let Target {
        id,
        figure,
        target: limit,
        met,
        what,
    } = target;
    let met = if *met { "met" } else { "NOT MET" };
    format!("  {id:<3} {what:<86} {figure:>8.2} {limit:>8.2}  {met}\n")
}

/// Formats a size: `250 B`, `5 kB`, `1 MB`.
pub(super) fn bytes(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_sizes_in_fitting_unit() {
        assert_eq!(
            [250, 5_000, 100_000, 1_000_000].map(bytes),
            ["250 B", "5 kB", "100 kB", "1 MB"]
        );
    }
}
