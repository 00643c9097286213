//! `cargo xtask fuzz`: looks for inputs for which the targets of `tests/fuzzing` fail.
//!
//! ```text
//! TARGET       nightly compiler and cargo-fuzz → build with instrumentation → libFuzzer, each target for a while
//! rewriting    the same generator without libFuzzer, on the stable compiler: thousands of plugins from one seed on
//! ```
//!
//! The target folder keeps libFuzzer's interesting inputs. `--keep` adds the new ones to `fuzz/corpus`, which the tests
//! replay.

mod libfuzzer;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::libfuzzer::{Found, LibFuzzer};
use crate::terminal::{self, BAD, STRONG};
use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Fuzz the code that reads untrusted input, and rewrite generated plugins.
///
/// Installs a nightly compiler with rustup and cargo-fuzz with cargo if they are missing. Builds everything with
/// instrumentation, which takes some twenty minutes the first time. Prints the executions, coverage and findings of
/// each target, and writes findings to fuzz/artifacts/TARGET.
///
/// The target `rewriting` needs only the stable compiler. It generates plugins, rewrites them as the host does and
/// compares their answers.
#[derive(Args, Debug)]
pub(crate) struct Fuzz {
    /// Target to fuzz, a file in fuzz/fuzz_targets; without it, all targets except rewriting.
    target: Option<String>,
    /// Seconds for each target.
    #[arg(long, value_name = "N", default_value_t = 120)]
    seconds: u64,
    /// Number of plugins that `rewriting` generates.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    modules: u64,
    /// First seed of `rewriting`; each plugin has its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Sanitizer: `none`, or `address` for memory errors in C code and unsafe code.
    #[arg(long, value_name = "NAME", default_value = "none")]
    sanitizer: String,
    /// Add inputs that reach new code to fuzz/corpus.
    #[arg(long)]
    keep: bool,
}

/// The target that needs no instrumentation.
const REWRITING: &str = "rewriting";

// === impl Fuzz ===

impl Fuzz {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        if self.target.as_deref() == Some(REWRITING) {
            return self.rewriting(&workspace);
        }
        let all = targets(&workspace.root().join("fuzz/fuzz_targets"))?;
        let targets = match &self.target {
            Some(name) if all.contains(name) => vec![name.clone()],
            Some(name) => anyhow::bail!(
                "unknown target `{name}`, expected one of {}",
                all.join(", ")
            ),
            None => all.into_iter().filter(|name| name != REWRITING).collect(),
        };
        terminal::heading("build");
        println!("  nightly     {}", toolchain::ensure_nightly()?);
        println!("  cargo-fuzz  {}", toolchain::ensure_cargo_command("fuzz")?);
        let fuzzer = LibFuzzer::build(&workspace, &self.sanitizer)?;
        let mut found = Vec::new();
        for target in targets {
            terminal::heading(&target);
            found.push(fuzzer.run(&target, Duration::from_secs(self.seconds))?);
            if self.keep {
                fuzzer.keep(&target)?;
            }
        }
        Ok(sum_up(&found))
    }

    fn rewriting(&self, workspace: &Workspace) -> anyhow::Result<ExitCode> {
        let mut command = workspace.cargo();
        command
            .args(["test", "--workspace", "--test", REWRITING])
            .args(["--", "--nocapture"])
            .env("TOLLGATE_FUZZ_MODULES", self.modules.to_string())
            .env("TOLLGATE_FUZZ_SEED", self.seed.to_string());
        println!("$ {}", cargo::typed(&command));
        cargo::run(&mut command)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the names of the targets in order.
fn targets(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Prints the table. Returns a failure if there are findings.
fn sum_up(found: &[Found]) -> ExitCode {
    terminal::heading("summary");
    anstream::println!(
        "  {STRONG}{:12} {:>12} {:>9} {:>9} {:>7} {:>9}{STRONG:#}",
        "target",
        "executions",
        "edges",
        "features",
        "inputs",
        "findings"
    );
    for Found {
        target,
        executions,
        edges,
        features,
        inputs,
        findings,
    } in found
    {
        let findings_shown = findings.len();
        let executions = terminal::grouped(*executions);
        println!(
            "  {target:12} {executions:>12} {edges:>9} {features:>9} {inputs:>7} {findings_shown:>9}"
        );
    }
    let findings: Vec<_> = found.iter().flat_map(|found| &found.findings).collect();
    for finding in &findings {
        anstream::println!("{BAD}finding: {}{BAD:#}", finding.display());
    }
    if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
