//! Measures Tollgate beside the native control. `cargo xtask bench` builds everything that it needs and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use tollgate_bench::fairness::Fairness;
use tollgate_bench::measure::{Bench, Group};
use tollgate_bench::plan::{self, Extent};
use tollgate_bench::plugins::Language;
use tollgate_bench::report::Report;
use tollgate_tests::binary::workspace;

/// Measure Tollgate beside the native control.
#[derive(Debug, Parser)]
#[command(name = "tollgate-bench", about)]
struct Cli {
    /// Measure only the figures that the targets need.
    #[arg(long)]
    quick: bool,
    /// Measure only this group; may be given several times. Latency also needs the group `plugins`.
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
        let names: Vec<&str> = names.chain([plan::LATENCY, plan::FAIRNESS]).collect();
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
            measure(&mut bench, group, report)?;
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
        self.only.is_empty() || self.only.iter().any(|only| only == group)
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
