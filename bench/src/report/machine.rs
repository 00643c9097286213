//! Describes the machine and the commit of a run, because figures of different ones must not be compared.

use std::process::Command;

use serde_json::{Value, json};
use tollgate_tests::binary::workspace;

/// The machine and the commit.
pub(super) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    commit: String,
}

const UNKNOWN: &str = "unknown";

// === impl Machine ===

impl Machine {
    pub(super) fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            processor: model.unwrap_or_else(|| UNKNOWN.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: commit(),
        }
    }

    /// Returns the load of the last minute.
    pub(super) fn load() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }

    /// Describes the machine in one line.
    pub(super) fn describe(&self) -> String {
        format!(
            "{} cores of {}, Linux {}, commit {}",
            self.cores, self.processor, self.kernel, self.commit
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "kernel": self.kernel,
            "commit": self.commit,
        })
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(workspace())
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return UNKNOWN.to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => format!("{commit} with changes"),
        _ => commit,
    }
}
