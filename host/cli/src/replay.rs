//! `tollgate replay`

mod report;
mod run;
mod show;
mod side;
mod suite;
mod tally;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use tollgate_recording::Recording;
use tollgate_telemetry::logs::LogFormat;

use self::report::Results;
use self::run::{Baseline, Lab, replay};
use self::side::Category;
use self::suite::Choice;
use super::terminal::say;
use super::{FAILURE, USAGE};

/// Judge recorded reviews by another configuration, and show what would be different.
///
/// Every review goes through the server's own code. A review that came to one endpoint goes to this endpoint again, with
/// the time of the recording for plugins that may read the time. Only fuel ends a call, because time depends on the
/// machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Replay {
    /// Folder of the recording, or one of its segments.
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// The new configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Baseline: an old configuration, or `recorded` for the answers in the recording.
    #[arg(long, value_name = "FILE|recorded", default_value = "recorded")]
    against: PathBuf,
    /// Differences that count as a failure.
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_values = ["denied", "allowed", "patched", "faulted"]
    )]
    fail_on: Vec<Kind>,
    /// Number of examples for each kind of difference.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    examples: usize,
    /// Number of reviews at the same time [default: the number of processors]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Print the results as JSON, with all differences.
    #[arg(long)]
    json: bool,
    /// Write the results also as JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results also as Markdown to this file, for a pull request.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write differences as cases of `tollgate test` to this file. Each case expects the old answer.
    #[arg(long, value_name = "FILE")]
    write_suite: Option<PathBuf>,
    /// Differences to write: numbers of reviews, or kinds of difference [default: the first 20]
    #[arg(
        long,
        value_name = "NUMBER|KIND,…",
        value_delimiter = ',',
        requires = "write_suite"
    )]
    cases: Vec<Choice>,
    /// Log to standard error, with a level or target=level pairs such as warn,plugin=debug.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// A kind of difference, as it is written on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind(Category);

const EXAMPLES: &str = "\
Examples:
  tollgate replay recording --config new.yaml
  tollgate replay recording --config new.yaml --against tollgate.yaml
  tollgate replay recording --config new.yaml --markdown comment.md --junit results.xml
  tollgate replay recording --config new.yaml --write-suite wrong.test.yaml --cases denied

Kinds of difference: denied, allowed, patched and faulted are new results of a request. With reworded, only a message, a \
code or a warning differs.

Exit code: 0 when nothing of --fail-on was found, 1 when something was, 2 when the replay could not be run or a review \
could not be judged.";

// === impl Replay ===

impl Replay {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(filter) = &self.log {
            tollgate_telemetry::logs::install(LogFormat::Text, Some(filter))?;
        }
        let recording = Recording::open(&self.recording)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(processors).max(1);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(jobs)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let against_recorded = self.against == Path::new("recorded");
        let (results, new, baseline) = runtime.block_on(async {
            let new = Arc::new(Lab::load(&self.config).await?);
            let baseline = Arc::new(if against_recorded {
                Baseline::Recorded
            } else {
                Baseline::Config(Box::new(Lab::load(&self.against).await?))
            });
            let most = new.config.engine.max_concurrent_calls as usize;
            let (tally, records) = replay(
                recording.records(),
                new.clone(),
                baseline.clone(),
                jobs.min(most),
            )
            .await?;
            if tally.reviews == 0 && records.damages().is_empty() {
                bail!("{} has no reviews", self.recording.display());
            }
            let results = Results {
                tally,
                damages: records.damages().to_vec(),
                against: self.against.display().to_string(),
                plugins: new.plugins.clone(),
            };
            anyhow::Ok((results, new, baseline))
        })?;
        if self.json {
            say!("{:#}", results.json());
        } else {
            show::results(&results, self.examples);
        }
        if let Some(file) = &self.junit {
            write(file, &results.junit()?)?;
        }
        if let Some(file) = &self.markdown {
            write(file, &results.markdown(self.examples))?;
        }
        if let Some(file) = &self.write_suite {
            let chosen = suite::choose(&results.tally, &self.cases);
            let config = &self.config;
            let written = runtime.block_on(suite::write(
                file, config, &recording, &chosen, &new, &baseline,
            ))?;
            if !self.json {
                show::suite(file, &written);
            }
        }
        Ok(self.exit_code(&results))
    }

    fn exit_code(&self, results: &Results) -> ExitCode {
        let fails: BTreeSet<Category> = self.fail_on.iter().map(|kind| kind.0).collect();
        if !results.tally.errors.is_empty() || results.is_damaged() {
            ExitCode::from(USAGE)
        } else if fails
            .iter()
            .any(|category| results.tally.count(*category) > 0)
        {
            ExitCode::from(FAILURE)
        } else {
            ExitCode::SUCCESS
        }
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

// === impl Kind ===

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let category = Category::ALL
            .into_iter()
            .find(|category| category.key() == text);
        category.map(Self).ok_or_else(|| {
            let keys = Category::ALL.map(Category::key);
            format!("expected one of {}", keys.join(", "))
        })
    }
}

impl Kind {
    fn category(self) -> Category {
        self.0
    }
}
