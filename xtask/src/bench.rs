//! `cargo xtask bench`: measures the cost of Tollgate, beside the same checks in plain Rust and webhooks of others.
//!
//! This command builds the programs and runs `bench/` to measure. With `--instructions` it measures no time and counts
//! instructions instead.

pub(crate) mod instructions;
mod languages;
mod peers;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

use crate::terminal::NOTABLE;
use crate::workspace::Workspace;
use crate::{cargo, layout, terminal, toolchain};

/// Measure Tollgate as it ships beside a native control, the same server and checks without WebAssembly, and beside
/// webhooks that use controller-runtime and kube-rs.
///
/// Builds all of them in release mode. The webhook in Go needs Go, and its modules come from Go's module proxy; without
/// them it is skipped. Without --quick, also builds plugins in every language, which needs their compilers. A load
/// generator in a separate process sends requests to all of them in turn over TLS.
///
/// Takes about 16 minutes, or about 10 with --quick, after a first build of some 20. Nothing else should run on the
/// machine. Ends with the targets of docs/reference/performance.md, and whether this run meets them.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Measure only the figures that the targets need.
    #[arg(long)]
    quick: bool,
    /// Measure only this group, such as plugins or peers; may be given several times.
    #[arg(long, value_name = "GROUP", conflicts_with = "plots")]
    only: Vec<String>,
    /// Write all figures and the targets to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the plots and write the results into docs/reference/performance.md; with --languages, into docs/guides/languages/README.md.
    #[arg(long)]
    plots: bool,
    /// Measure no time: count the instructions of single pieces with callgrind and compare them with the recorded
    /// counts.
    #[arg(long, conflicts_with_all = ["quick", "only", "json", "plots"])]
    instructions: bool,
    /// Measure the reference policy in every language, and nothing else.
    #[arg(long, conflicts_with_all = ["quick", "only", "json", "instructions"])]
    languages: bool,
    /// With --instructions: record the new counts.
    #[arg(long, requires = "instructions")]
    update: bool,
}

/// The group that needs the plugins in all languages.
const LANGUAGES: &str = "languages";
/// The programs to build: the host, the native control, the peer in Rust, and the two that measure them.
const BINARIES: [&str; 5] = [
    "tollgate",
    "native-control",
    "peer-kube-rs",
    "tollgate-bench",
    "load",
];

// === impl Bench ===

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        toolchain::ensure_wasm_target()?;
        if self.instructions {
            return instructions::run(&workspace, self.update);
        }
        if self.languages {
            return languages::run(&workspace, self.plots);
        }
        terminal::heading("build");
        let mut command = workspace.cargo();
        // Select all packages, as everywhere else: another selection would build wasmtime again.
        command.args(["build", "--release", "--workspace"]);
        for binary in BINARIES {
            command.args(["--bin", binary]);
        }
        println!("$ {}", cargo::typed(&command));
        cargo::run(&mut command)?;
        layout::report_missing(&workspace)?;
        if peers::are_wanted(&self.only) {
            peers::build(&workspace)?;
        }
        if self.compares_languages()
            && let Err(error) = languages::build(&workspace)
        {
            // The other groups do not need the languages.
            anstream::println!("  {NOTABLE}some languages are not built: {error:#}{NOTABLE:#}");
        }
        terminal::heading("measure");
        self.measure(&workspace)
    }

    fn compares_languages(&self) -> bool {
        let named = |group: &String| group == LANGUAGES;
        !self.quick && (self.only.is_empty() || self.only.iter().any(named))
    }

    fn measure(self, workspace: &Workspace) -> anyhow::Result<ExitCode> {
        let program = workspace.target().join("release/tollgate-bench");
        let mut command = Command::new(&program);
        if self.quick {
            command.arg("--quick");
        }
        for group in &self.only {
            command.args(["--only", group]);
        }
        if let Some(file) = &self.json {
            command.arg("--json").arg(file);
        }
        if self.plots {
            command.arg("--plots");
        }
        let status = command
            .status()
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
