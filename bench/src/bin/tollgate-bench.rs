//! Measures Tollgate beside the native control and webhooks of others. `cargo xtask bench` builds everything that it
//! needs and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use tollgate_bench::fairness::Fairness;
use tollgate_bench::measure::{Bench, Figures, Group, Subject};
use tollgate_bench::plan::{self, Extent};
use tollgate_bench::plugins::Language;
use tollgate_bench::report::Report;
use tollgate_bench::servers::Side;
use tollgate_tests::binary::workspace;

/// Measure Tollgate beside the native control and webhooks of others.
#[derive(Debug, Parser)]
#[command(name = "tollgate-bench", about)]
struct Cli {
    /// Measure only the figures that the targets need.
    #[arg(long)]
    quick: bool,
    /// Measure only this group; may be given several times. Latency also needs the group `plugins`. `peers` stands for
    /// all groups whose names begin with it.
    #[arg(long, value_name = "GROUP", conflicts_with = "plots")]
    only: Vec<String>,
    /// Write all figures to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the plots and write the results into docs/reference/performance.md.
    #[arg(long)]
    plots: bool,
}

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollgate-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

// === impl Cli ===

impl Cli {
    fn run(self) -> anyhow::Result<()> {
        let extent = if self.quick {
            Extent::Quick
        } else {
            Extent::Full
        };
        if let Some(notice) = Report::busy_machine() {
            eprintln!("{notice}");
        }
        let mut report = Report::new(extent);
        self.measure(extent, &mut report)?;
        report.print();
        if let Some(file) = &self.json {
            report.write_json(file)?;
        }
        if self.plots {
            report.write_documentation(&workspace().join("docs/reference"))?;
        }
        Ok(())
    }

    fn measure(&self, extent: Extent, report: &mut Report) -> anyhow::Result<()> {
        let mut groups = plan::groups(extent);
        let names = groups.iter().map(|group| group.name);
        let names: Vec<&str> = names
            .chain([plan::peers::LATENCY, plan::LATENCY, plan::FAIRNESS])
            .collect();
        if let Some(unknown) = self
            .only
            .iter()
            .find(|only| !names.contains(&only.as_str()))
        {
            anyhow::bail!(
                "unknown group `{unknown}`; expected one of: {}",
                names.join(", ")
            );
        }
        groups.retain(|group| self.wants(group.name));
        let mut bench = Bench::new()?;
        for group in groups {
            if group.name == plan::BY_LANGUAGE {
                print_left_out();
            }
            if group.name == plan::peers::GROUPS[0] {
                print_left_out_peers();
            }
            measure(&mut bench, group, report)?;
        }
        if self.wants(plan::peers::LATENCY) {
            let rate = |subject: Subject| {
                report
                    .figures(plan::peers::GROUPS[0], &subject)
                    .map(Figures::rate)
            };
            let host = rate(plan::BASE).with_context(|| {
                format!(
                    "cannot measure the peers' latency without the rates from the group `{}`",
                    plan::peers::GROUPS[0]
                )
            })?;
            let go = rate(plan::peers::go()).ok();
            measure(&mut bench, plan::peers::latency(host, go), report)?;
        }
        if self.wants(plan::LATENCY) {
            let saturating = report
                .figures(plan::BY_PLUGINS, &plan::BASE)
                .context("cannot measure the latency without the rate from the group `plugins`")?
                .rate();
            measure(&mut bench, plan::latency(saturating / 2.0), report)?;
        }
        if self.wants(plan::FAIRNESS) {
            eprintln!("measuring {} …", plan::FAIRNESS);
            report.add_fairness(Fairness::measure(plan::FAIRNESS_WINDOW));
        }
        Ok(())
    }

    fn wants(&self, group: &str) -> bool {
        let names = |only: &String| {
            let rest = group.strip_prefix(only.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.only.is_empty() || self.only.iter().any(names)
    }
}

fn print_left_out() {
    let left_out = Language::all().into_iter();
    for language in left_out.filter(|language| !language.is_built()) {
        eprintln!(
            "skipping {}: its plugins have not been built",
            language.name()
        );
    }
}

fn print_left_out_peers() {
    for side in Side::PEERS.into_iter().filter(|side| !side.is_built()) {
        eprintln!("SKIPPED: {}: it has not been built", side.name());
    }
}

fn measure(bench: &mut Bench, group: Group, report: &mut Report) -> anyhow::Result<()> {
    let subjects = group.subjects.len();
    eprintln!(
        "measuring {}: {subjects} subjects in turn, {} rounds …",
        group.name, group.rounds
    );
    let results = bench.measure(&group)?;
    report.add(group, results);
    Ok(())
}
