//! Counts the instructions of single pieces with callgrind. Counts vary less than times, so a test can fail on them.
//!
//! Each piece runs n times and 2n times. The difference divided by n is the count of one run, without the cost of the
//! setup. The programs are the unoptimised ones of the tests, because the counts are compared between commits and not
//! with times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::terminal::{self, BAD, FAINT, GOOD, NOTABLE};
use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Allowed increase over the recorded count.
const TOLERANCE_PERCENT: f64 = 15.0;
/// The file of the recorded counts.
const RECORD: &str = "bench/instructions.json";

/// A piece, and the number n of its first runs.
struct Piece {
    name: &'static str,
    times: u64,
}

const PIECES: [Piece; 7] = [
    Piece {
        name: "decode-5kB",
        times: 100,
    },
    Piece {
        name: "decode-100kB",
        times: 10,
    },
    Piece {
        name: "respond",
        times: 200,
    },
    Piece {
        name: "merge",
        times: 200,
    },
    Piece {
        name: "diff-100kB",
        times: 50,
    },
    Piece {
        name: "review-1-plugin",
        times: 50,
    },
    Piece {
        name: "review-6-plugins",
        times: 50,
    },
];

/// The piece that loads a plugin.
const WARM_UP: &str = "review-1-plugin";

/// Counts, then compares with the record or replaces it.
pub(crate) fn run(workspace: &Workspace, update: bool) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        toolchain::ensure_valgrind(),
        "valgrind is needed to count instructions: install it and run this again"
    );
    let counted = count(workspace)?;
    let file = workspace.root().join(RECORD);
    if update {
        write(&file, &counted)?;
        println!("  recorded in {}", workspace.shown(&file));
        return Ok(ExitCode::SUCCESS);
    }
    let exceeded = compare(&read(&file)?, &counted)?;
    Ok(if exceeded.is_empty() {
        ExitCode::SUCCESS
    } else {
        terminal::failure(&advice(&exceeded));
        ExitCode::FAILURE
    })
}

/// Counts and compares. Fails if a piece takes more than recorded. Does nothing if valgrind is missing.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    if !toolchain::ensure_valgrind() {
        anstream::println!(
            "  {NOTABLE}valgrind is not installed, so instructions are not compared; install it and run this \
             again{NOTABLE:#}"
        );
        return Ok(());
    }
    let recorded = read(&workspace.root().join(RECORD))?;
    let counted = count(workspace)?;
    let exceeded = compare(&recorded, &counted)?;
    anyhow::ensure!(exceeded.is_empty(), "{}", advice(&exceeded));
    Ok(())
}

fn advice(exceeded: &[&str]) -> String {
    format!(
        "{} exceed the counts in {RECORD} by more than {TOLERANCE_PERCENT} %: find out why, or record the new counts \
         with `cargo xtask bench --instructions --update`",
        exceeded.join(", ")
    )
}

fn count(workspace: &Workspace) -> anyhow::Result<BTreeMap<String, f64>> {
    // With these suites, cargo builds the binaries of their packages. `cargo build` would select other features, and build
    // half of the host a second time.
    let mut command = workspace.cargo();
    command.args([
        "test",
        "--workspace",
        "--no-run",
        "--test",
        "control",
        "--test",
        "help",
    ]);
    println!("$ {}", cargo::typed(&command));
    cargo::run(&mut command)?;
    let program = workspace.target().join("debug/instructions");
    let mut counted = BTreeMap::new();
    // The first run keeps the plugin's compiled code for the runs that follow.
    instructions(&program, WARM_UP, 0)?;
    for Piece { name, times } in PIECES {
        // valgrind uses one processor, and another process does not change the counts.
        let (once, twice) = std::thread::scope(|scope| {
            let once = scope.spawn(|| instructions(&program, name, times));
            let twice = instructions(&program, name, 2 * times);
            (once.join().expect("counting does not panic"), twice)
        });
        let (once, twice) = (once?, twice?);
        let each = (twice as f64 - once as f64) / times as f64;
        counted.insert(name.to_owned(), each.round());
    }
    let of = |name: &str| counted.get(name).copied().unwrap_or_default();
    let further = (of("review-6-plugins") - of("review-1-plugin")) / 5.0;
    counted.insert("further-plugin".to_owned(), further.round());
    Ok(counted)
}

/// Counts the instructions of one process with all its threads.
fn instructions(program: &Path, piece: &str, times: u64) -> anyhow::Result<u64> {
    let report = tempfile(piece, times);
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", report.display()))
        .arg(program)
        .args([piece, &times.to_string()])
        // Idle worker threads that look for work would count too.
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .output()
        .context("cannot run valgrind")?;
    let text = std::fs::read_to_string(&report);
    // The report is no longer needed, and it is in a temporary folder.
    let _: std::io::Result<()> = std::fs::remove_file(&report);
    anyhow::ensure!(
        output.status.success(),
        "cannot count the instructions of {piece} ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = text.with_context(|| format!("callgrind wrote no {}", report.display()))?;
    summary(&text).with_context(|| format!("callgrind's report on {piece} has no `summary:`"))
}

fn tempfile(piece: &str, times: u64) -> PathBuf {
    let process = std::process::id();
    std::env::temp_dir().join(format!("tollgate-{process}-{piece}-{times}.callgrind"))
}

/// Returns the number in the line `summary: 123` of a report, or in `totals: 123` if there is none.
fn summary(report: &str) -> Option<u64> {
    let of = |key: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|number| number.trim().parse().ok())
    };
    of("summary:").or_else(|| of("totals:"))
}

fn read(file: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(file).with_context(|| {
        format!(
            "cannot read {}; record it with `cargo xtask bench --instructions --update`",
            file.display()
        )
    })?;
    let record: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
    let pieces = record["instructions"].as_object();
    let pieces =
        pieces.with_context(|| format!("{} has no object `instructions`", file.display()))?;
    let number = |(name, count): (&String, &Value)| {
        let count = count.as_f64();
        let count = count.with_context(|| format!("{}: {name} is not a number", file.display()))?;
        Ok((name.clone(), count))
    };
    pieces.iter().map(number).collect()
}

fn write(file: &Path, counted: &BTreeMap<String, f64>) -> anyhow::Result<()> {
    let counted: BTreeMap<&String, u64> = counted
        .iter()
        .map(|(name, count)| (name, *count as u64))
        .collect();
    for (name, count) in &counted {
        println!("  {name:<18} {:>12}", terminal::grouped(*count));
    }
    let record = json!({
        "what": "instructions of one run of each piece, in the dev profile; cargo xtask bench --instructions",
        "instructions": counted,
    });
    std::fs::write(file, format!("{record:#}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Prints both counts side by side. Returns the pieces that take too many instructions.
fn compare<'p>(
    recorded: &BTreeMap<String, f64>,
    counted: &'p BTreeMap<String, f64>,
) -> anyhow::Result<Vec<&'p str>> {
    let mut exceeded = Vec::new();
    println!("  instructions of one run    recorded      counted");
    for (name, count) in counted {
        let before = *recorded.get(name).with_context(|| {
            format!("{RECORD} has no `{name}`: record it with `cargo xtask bench --instructions --update`")
        })?;
        let percent = (count / before - 1.0) * 100.0;
        let style = if percent > TOLERANCE_PERCENT {
            exceeded.push(name.as_str());
            BAD
        } else if percent < -TOLERANCE_PERCENT {
            GOOD
        } else {
            FAINT
        };
        let (before, count) = (before as u64, *count as u64);
        anstream::println!(
            "  {name:<20} {:>14} {:>12}  {style}{percent:+.1} %{style:#}",
            terminal::grouped(before),
            terminal::grouped(count),
        );
    }
    Ok(exceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(entries: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let entries = entries
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        entries.collect()
    }

    #[test]
    fn reports_only_pieces_beyond_tolerance() {
        let recorded = counts(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0)]);
        let counted = counts(&[("a", 1140.0), ("b", 1160.0), ("c", 10.0)]);
        assert_eq!(compare(&recorded, &counted).unwrap(), ["b"]);
    }

    #[test]
    fn rejects_piece_without_record() {
        let error = compare(&counts(&[]), &counts(&[("new", 1.0)])).unwrap_err();
        assert!(error.to_string().contains("--update"), "{error}");
    }

    #[test]
    fn reads_total_from_report() {
        assert_eq!(
            summary("version: 1\nsummary: 123\nfn=(1) main\ntotals: 124"),
            Some(123)
        );
        assert_eq!(summary("version: 1\nfn=(1) main\ntotals: 124"), Some(124));
        assert_eq!(summary("nothing"), None);
    }
}
