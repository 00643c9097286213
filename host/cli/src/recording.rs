//! `tollgate recording`

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_recording::audit::import;
use tollgate_recording::{Endpoint, Recording};

use super::FAILURE;
use super::terminal::{NOTABLE, grouped, plain, say, tell};

/// Show a recording, or make one from an audit log.
#[derive(Args, Debug)]
pub(super) struct RecordingArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what a recording contains.
    Show {
        /// Folder of the recording, or one of its segments.
        #[arg(value_name = "RECORDING")]
        recording: PathBuf,
    },
    /// Make a recording from the audit log of kube-apiserver, which has level RequestResponse and JSON lines.
    Import {
        /// Audit log. `-` is standard input.
        #[arg(value_name = "FILE")]
        log: PathBuf,
        /// Folder for the recording. It must be empty or not exist.
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
        /// Confidential place in objects, in addition to the content of Secrets, such as /spec/containers/*/env/*/value.
        /// May be given several times.
        #[arg(long, value_name = "POINTER")]
        redact: Vec<String>,
    },
}

/// An import has no ring: the log is as long as it is.
const MAX_IMPORT_BYTES: u64 = 1 << 40;

// === impl RecordingArgs ===

impl RecordingArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Show { recording } => show(&Recording::open(&recording)?),
            Command::Import { log, to, redact } => run_import(&log, &to, &redact),
        }
    }
}

fn run_import(log: &Path, to: &Path, redact: &[String]) -> anyhow::Result<ExitCode> {
    if std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; give another folder", to.display());
    }
    let host = env!("CARGO_PKG_VERSION");
    let imported = if log.as_os_str() == "-" {
        import(stdin().lock(), to, MAX_IMPORT_BYTES, host, redact)
    } else {
        let file = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
        import(BufReader::new(file), to, MAX_IMPORT_BYTES, host, redact)
    }?;
    say!("{} reviews in {}", grouped(imported.reviews), to.display());
    for (reason, events) in &imported.skipped {
        say!("  left out: {} events, {reason}", grouped(*events));
    }
    tell!(
        "{NOTABLE}the recording is approximate:{NOTABLE:#} an audit log has no old objects, and its objects lack \
         the defaults that kube-apiserver fills in before it asks"
    );
    Ok(if imported.reviews == 0 {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    })
}

fn show(recording: &Recording) -> anyhow::Result<ExitCode> {
    let mut records = recording.records();
    let (mut reviews, mut by_endpoint) = (0_u64, [0_u64; 3]);
    let (mut first, mut last) = (None, None);
    let (mut sets, mut runs) = (Vec::new(), BTreeSet::new());
    let mut is_approximate = false;
    for entry in &mut records {
        reviews += 1;
        by_endpoint[match entry.record.endpoint {
            Endpoint::Mutate => 0,
            Endpoint::Validate => 1,
            Endpoint::Both => 2,
        }] += 1;
        let time = entry.record.time;
        first = Some(first.map_or(time, |first: std::time::SystemTime| first.min(time)));
        last = Some(last.map_or(time, |last: std::time::SystemTime| last.max(time)));
        is_approximate |= entry.header.origin.is_approximate();
        if runs.insert(entry.header.recording.clone()) {
            sets.clear();
        }
        if let Some(set) = entry.plugins
            && !sets.contains(&set)
        {
            let plugins: Vec<String> = set
                .plugins
                .iter()
                .map(|plugin| format!("{} {}", plugin.name, plugin.version))
                .collect();
            say!("plugins: {}", plain(&plugins.join(", ")));
            sets.push(set);
        }
    }
    let [mutate, validate, both] = by_endpoint.map(grouped);
    say!(
        "{} reviews: {mutate} at /mutate, {validate} at /validate, {both} at both",
        grouped(reviews)
    );
    let size = grouped(recording.bytes());
    say!(
        "{} segments of {} runs, {size} bytes",
        recording.segments(),
        runs.len()
    );
    if let (Some(first), Some(last)) = (first, last) {
        let text = |time| {
            OffsetDateTime::from(time)
                .format(&Rfc3339)
                .unwrap_or_default()
        };
        say!("from {} to {}", text(first), text(last));
    }
    if is_approximate {
        say!("approximate: made from an audit log");
    }
    for damage in records.damages() {
        say!("{}: {}", damage.segment.display(), plain(&damage.reason));
    }
    Ok(ExitCode::SUCCESS)
}
