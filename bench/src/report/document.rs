//! Writes the results into the documentation, between two marks, so that a later run can replace them.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::table::bytes;
use super::{Report, Target, peers};
use crate::measure::{Figures, Group, Results, Subject};
use crate::plan::Extent;
use crate::servers::Side;

const BEGIN: &str = "<!-- results: written by `cargo xtask bench --plots` -->";
const END: &str = "<!-- end of results -->";

/// Replaces the results in the file by those of this run.
pub(super) fn write(report: &Report, file: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = replaced(&text, &results(report)).with_context(|| {
        format!(
            "{} has no place for the results; add a line `{BEGIN}` and below it a line `{END}`",
            file.display()
        )
    })?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn replaced(text: &str, results: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{results}\n{END}{after}"))
}

fn results(report: &Report) -> String {
    let command = match report.extent {
        Extent::Quick => "cargo xtask bench --quick --plots",
        Extent::Full => "cargo xtask bench --plots",
    };
    let mut text = format!("`{command}` on {}.\n\n", report.machine.describe());
    text.push_str("| | what | figure | at most | |\n|---|---|---:|---:|---|\n");
    for target in report.targets() {
        text.push_str(&target_row(&target));
    }
    text.push_str(&peers::rows(report));
    for (group, results) in &report.groups {
        text.push_str(&group_table(group, results));
    }
    text
}

fn target_row(target: &Target) -> String {
    let Target {
        id,
        figure,
        target: limit,
        met,
        what,
    } = target;
    let met = if *met { "met" } else { "**not met**" };
    format!("| {id} | {what} | {figure:.2} | {limit:.2} | {met} |\n")
}

fn group_table(group: &Group, results: &Results) -> String {
    let mut text = format!(
        "\n**{}**\n\n\
         | side | plugins | object | connections | threads | CPU µs | × native | requests/s | p50 ms | p90 | p99 | p99.9 | MB |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        group.name
    );
    for subject in &group.subjects {
        if let Some(figures) = results.get(subject) {
            text.push_str(&row(subject, figures, results));
        }
    }
    text
}

fn row(subject: &Subject, figures: &Figures, results: &Results) -> String {
    let setup = &subject.setup;
    let native = results.get(&subject.on(Side::Native));
    let ratio = match (setup.side, native) {
        (side, Some(native)) if side.is_host() => format!("{:.2}", figures.cpu() / native.cpu()),
        _ => String::new(),
    };
    let plugins = match setup.plugins {
        0 => "none".to_owned(),
        count => format!("{count}, {}", setup.work()),
    };
    let mut text = String::new();
    let _: std::fmt::Result = write!(
        text,
        "| {} | {plugins} | {} | {} | {} | {:.1} | {ratio} | {:.0} |",
        setup.side.name(),
        bytes(subject.object_bytes),
        subject.connections,
        setup.threads,
        figures.cpu(),
        figures.rate(),
    );
    for share in [0.5, 0.9, 0.99, 0.999] {
        let _: std::fmt::Result = write!(text, " {:.2} |", figures.latency(share) / 1e3);
    }
    let megabytes = figures.memory.resident_bytes as f64 / 1e6;
    let _: std::fmt::Result = writeln!(text, " {megabytes:.1} |");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_only_text_between_marks() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\n\nnew\n{END}\nafter\n");
        assert_eq!(replaced(&page, "new").as_deref(), Some(expected.as_str()));
        assert_eq!(replaced("a page without marks", "new"), None);
    }
}
