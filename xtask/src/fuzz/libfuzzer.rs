//! Builds the targets with instrumentation, runs them, and reads libFuzzer's output.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::terminal::{self, BAD, FAINT};
use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// The built targets.
pub(super) struct LibFuzzer {
    /// The repository's `fuzz` folder.
    fuzz: PathBuf,
    binaries: PathBuf,
    /// The interesting inputs of earlier runs, by target.
    corpora: PathBuf,
}

/// The result of a run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) target: String,
    pub(super) executions: u64,
    /// Number of control-flow edges that were taken.
    pub(super) edges: u64,
    /// Number of features: edges, how often they were taken, and compared values.
    pub(super) features: u64,
    /// Number of inputs that are kept for the target.
    pub(super) inputs: u64,
    pub(super) findings: Vec<PathBuf>,
}

/// Limit for the size of an input, because corpora are committed.
const MAX_INPUT_BYTES: u32 = 2048;
/// Time limit for an input. A run that takes longer is a finding.
const TIMEOUT_SECONDS: u32 = 10;
/// Memory limit for an input. Using more is a finding too.
const MEMORY_MEGABYTES: u32 = 2048;

// === impl LibFuzzer ===

impl LibFuzzer {
    /// Builds all targets.
    pub(super) fn build(workspace: &Workspace, sanitizer: &str) -> anyhow::Result<Self> {
        let target = workspace.target().join("fuzz");
        let triple = host_triple()?;
        let mut command = toolchain::nightly("cargo");
        command
            .args(["fuzz", "build", "--sanitizer", sanitizer])
            .args(["--target", &triple])
            .arg("--target-dir")
            .arg(&target)
            .current_dir(workspace.root());
        println!("$ {}", cargo::typed(&command));
        cargo::run(&mut command)?;
        Ok(Self {
            fuzz: workspace.root().join("fuzz"),
            binaries: target.join(triple).join("release"),
            corpora: target.join("corpus"),
        })
    }

    /// Runs a target for `time`, from the committed corpus and the inputs of earlier runs.
    pub(super) fn run(&self, target: &str, time: Duration) -> anyhow::Result<Found> {
        let artifacts = self.fuzz.join("artifacts").join(target);
        fs::create_dir_all(&artifacts)?;
        let known = files(&artifacts)?;
        let corpus = self.corpora.join(target);
        fs::create_dir_all(&corpus)?;
        let mut command = self.command(target);
        command
            .arg(format!("-max_total_time={}", time.as_secs()))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .arg(&corpus)
            .args(self.committed(target));
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run `{target}`"))?;
        let mut found = Found {
            target: target.to_owned(),
            ..Found::default()
        };
        let stderr = child.stderr.take().context("it is piped")?;
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if !found.read(&line) {
                anstream::println!("{BAD}  {line}{BAD:#}");
            } else if line.contains(" pulse ") {
                anstream::println!("{FAINT}  {line}{FAINT:#}");
            }
        }
        child.wait()?;
        found.inputs = files(&corpus)?.len() as u64;
        let findings = files(&artifacts)?.into_iter();
        found.findings = findings.filter(|path| !known.contains(path)).collect();
        Ok(found)
    }

    /// Adds inputs to the committed corpus that reach code which the corpus does not reach yet.
    pub(super) fn keep(&self, target: &str) -> anyhow::Result<()> {
        let committed = self.fuzz.join("corpus").join(target);
        fs::create_dir_all(&committed)?;
        let before = files(&committed)?.len();
        let status = self
            .command(target)
            .arg("-merge=1")
            .arg(&committed)
            .arg(self.corpora.join(target))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        anyhow::ensure!(status.success(), "`{target} -merge=1` failed ({status})");
        let added = files(&committed)?.len() - before;
        terminal::paragraph(
            "  ",
            &format!("{added} inputs added to fuzz/corpus/{target}"),
        );
        Ok(())
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(self.binaries.join(target));
        command
            .arg(format!("-max_len={MAX_INPUT_BYTES}"))
            .arg(format!("-timeout={TIMEOUT_SECONDS}"))
            .arg(format!("-rss_limit_mb={MEMORY_MEGABYTES}"));
        let dictionary = self.fuzz.join("dictionaries").join(target);
        if dictionary.is_file() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        command
    }

    fn committed(&self, target: &str) -> Option<PathBuf> {
        let committed = self.fuzz.join("corpus").join(target);
        committed.is_dir().then_some(committed)
    }
}

// === impl Found ===

impl Found {
    /// Reads a line of libFuzzer's output. Returns false if it is about a finding.
    fn read(&mut self, line: &str) -> bool {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = count.trim().parse().unwrap_or(0);
        } else if line.starts_with('#') {
            // `#1024 pulse  cov: 300 ft: 900 corp: 12/340b …`
            let words: Vec<&str> = line.split_whitespace().collect();
            let behind = |name: &str| {
                let at = words.iter().position(|word| *word == name)?;
                words.get(at + 1)?.parse::<u64>().ok()
            };
            self.edges = behind("cov:").unwrap_or(self.edges);
            self.features = behind("ft:").unwrap_or(self.features);
        }
        let about_findings = [
            "panicked at",
            "ERROR: libFuzzer",
            "Test unit written",
            "SUMMARY:",
        ];
        !about_findings.iter().any(|sign| line.contains(sign))
    }
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

/// Returns the target triple of this machine.
fn host_triple() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("`rustc -vV` printed no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_executions_and_coverage() {
        let mut found = Found::default();
        for line in [
            "#2\tINITED cov: 310 ft: 311 corp: 1/1b exec/s: 0 rss: 50Mb",
            "#65536\tpulse  cov: 1310 ft: 4311 corp: 120/9Kb lim: 2048 exec/s: 32768 rss: 60Mb",
            "#70000\tDONE   cov: 1312 ft: 4400 corp: 121/9Kb lim: 2048 exec/s: 3500 rss: 60Mb",
            "stat::number_of_executed_units: 70000",
        ] {
            assert!(found.read(line), "{line}");
        }
        assert_eq!(
            (found.executions, found.edges, found.features),
            (70_000, 1312, 4400)
        );
    }

    #[test]
    fn tells_findings_from_progress() {
        let mut found = Found::default();
        for line in [
            "thread '<unnamed>' panicked at src/lib.rs:1:2:",
            "==12== ERROR: libFuzzer: deadly signal",
            "artifact_prefix='a/'; Test unit written to a/crash-1",
        ] {
            assert!(!found.read(line), "{line}");
        }
    }
}
