//! Measures the reference policy in every language: the same Pod and settings in one run, with ratios to Rust.
//!
//! The figures are those that `tollgate check` and `tollgate bench` print. The languages take turns, so that other load
//! on the machine affects all of them alike.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::test::languages::{self, Built};
use crate::workspace::Workspace;
use crate::{cargo, terminal};

/// Variable for a binary to use instead of building one.
const BINARY: &str = "TOLLGATE_BIN";
const PLUGIN: &str = "trusted-registries";
/// The language that the others are compared with.
const REFERENCE: &str = "rust";
const ROUNDS: usize = 5;
const CALLS: &str = "300";
/// Number of registries in the longer of the two settings.
const MANY_REGISTRIES: usize = 1000;
/// Number of registries that the policy in C has room for.
const MANY_REGISTRIES_IN_C: usize = 250;
const DOCUMENT: &str = "docs/guides/languages/README.md";
const BEGIN: &str = "<!-- results: written by `cargo xtask bench --languages --plots` -->";
const END: &str = "<!-- end of results -->";

/// The results of a language.
struct Row {
    name: String,
    size_bytes: u64,
    loaded_in: Duration,
    /// Calls with the short settings and with the long ones.
    calls: [Call; 2],
    more_registries: usize,
}

/// A call of `validate` in a fresh instance.
#[derive(Clone, Copy)]
struct Call {
    milliseconds: f64,
    fuel: u64,
}

/// Builds the plugins in every language whose commands are installed.
pub(super) fn build(workspace: &Workspace) -> anyhow::Result<()> {
    languages::built(workspace).map(drop)
}

/// Measures, prints the table, and writes it into the documentation if asked.
pub(super) fn run(workspace: &Workspace, write: bool) -> anyhow::Result<ExitCode> {
    terminal::heading("build");
    let tollgate = binary(workspace)?;
    let built = languages::built(workspace)?;
    terminal::heading("measure");
    let scratch = workspace.target().join("bench-languages");
    std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let mut rows = Vec::new();
    for language in &built {
        rows.push(first(&tollgate, language, &scratch)?);
    }
    measure(&tollgate, &mut rows, &scratch)?;
    let table = table(&rows)?;
    println!("\n{table}");
    if write {
        put_into(&workspace.root().join(DOCUMENT), &table)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn binary(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    if let Some(binary) = std::env::var_os(BINARY) {
        return Ok(PathBuf::from(binary));
    }
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--workspace", "--bin", "tollgate"]);
    println!("$ {}", cargo::typed(&command));
    cargo::run(&mut command)?;
    Ok(workspace.target().join("release/tollgate"))
}

/// Loads a plugin for the first time, without compiled code.
fn first(tollgate: &Path, language: &Built, scratch: &Path) -> anyhow::Result<Row> {
    let file = language.output.join(format!("{PLUGIN}.wasm"));
    let size_bytes = std::fs::metadata(&file)
        .with_context(|| file.display().to_string())?
        .len();
    let more_registries = match language.name.as_str() {
        "c" => MANY_REGISTRIES_IN_C,
        _ => MANY_REGISTRIES,
    };
    let compiled = scratch.join(format!("{}.compiled", language.name));
    if compiled.exists() {
        std::fs::remove_dir_all(&compiled).with_context(|| compiled.display().to_string())?;
    }
    for (settings, count) in [(0, 0), (1, more_registries)] {
        let others = (0..count).map(|index| format!("registry-{index}.example.net/team"));
        let allowed: Vec<String> = std::iter::once("registry.example.com".to_owned())
            .chain(others)
            .collect();
        let config = json!({
            "engine": {"cacheDirectory": compiled, "loadTimeout": "5m"},
            "plugins": [{
                "name": PLUGIN,
                "source": format!("file:{}", file.display()),
                "settings": {"allowed": allowed, "defaultTag": "stable"},
            }],
        });
        let path = configuration(scratch, &language.name, settings);
        std::fs::write(&path, config.to_string()).with_context(|| path.display().to_string())?;
    }
    let began = Instant::now();
    let mut command = Command::new(tollgate);
    command
        .args(["check", "--config"])
        .arg(configuration(scratch, &language.name, 0));
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", tollgate.display()))?;
    ensure!(
        output.status.success(),
        "{}: rejected by the host:\n{}{}",
        language.name,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let loaded_in = began.elapsed();
    println!(
        "  {:12} loaded in {}",
        language.name,
        terminal::time(loaded_in)
    );
    Ok(Row {
        name: language.name.clone(),
        size_bytes,
        loaded_in,
        calls: [Call {
            milliseconds: f64::MAX,
            fuel: 0,
        }; 2],
        more_registries,
    })
}

fn configuration(scratch: &Path, language: &str, settings: usize) -> PathBuf {
    scratch.join(format!("{language}-{settings}.json"))
}

/// Calls all plugins in turn. The result is the median of the rounds' medians.
fn measure(tollgate: &Path, rows: &mut [Row], scratch: &Path) -> anyhow::Result<()> {
    let mut medians = vec![[Vec::new(), Vec::new()]; rows.len()];
    for round in 1..=ROUNDS {
        println!("  round {round} of {ROUNDS}");
        for (row, medians) in rows.iter_mut().zip(&mut medians) {
            for (settings, medians) in medians.iter_mut().enumerate() {
                let config = configuration(scratch, &row.name, settings);
                let call = bench(tollgate, &config).with_context(|| row.name.clone())?;
                row.calls[settings].fuel = call.fuel;
                medians.push(call.milliseconds);
            }
        }
    }
    for (row, medians) in rows.iter_mut().zip(medians) {
        for (call, mut medians) in row.calls.iter_mut().zip(medians) {
            medians.sort_unstable_by(f64::total_cmp);
            call.milliseconds = medians[medians.len() / 2];
        }
    }
    Ok(())
}

fn bench(tollgate: &Path, config: &Path) -> anyhow::Result<Call> {
    let mut command = Command::new(tollgate);
    command
        .args(["bench", PLUGIN, "--calls", CALLS, "-o", "json", "--config"])
        .arg(config);
    let output = command.output().context("cannot run `tollgate bench`")?;
    ensure!(
        output.status.success(),
        "`tollgate bench` failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let measured: Value =
        serde_json::from_slice(&output.stdout).context("`tollgate bench` printed no JSON")?;
    let mut phases = measured["phases"].as_array().into_iter().flatten();
    let validate = phases.find(|phase| phase["phase"] == "validate");
    // The first row is the Pod as it is. The other rows are padded.
    let row = validate.map(|phase| &phase["rows"][0]);
    let call = row
        .filter(|row| row["answer"] == "allowed")
        .and_then(|row| {
            Some(Call {
                milliseconds: row["median"].as_f64()?,
                fuel: row["fuel"].as_u64()?,
            })
        });
    call.with_context(|| format!("expected validate to allow the object, got {measured}"))
}

#[expect(clippy::cast_precision_loss, reason = "figures to be looked at")]
fn table(rows: &[Row]) -> anyhow::Result<String> {
    let reference = rows.iter().find(|row| row.name == REFERENCE);
    let reference = reference.with_context(|| format!("{REFERENCE} was not measured"))?;
    let mut text = String::from(
        "| language | size | loaded in | call | / Rust | fuel | / Rust | 100 more registries: call | fuel |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let [plain, long] = row.calls;
        let hundreds = row.more_registries as f64 / 100.0;
        let fuel = long.fuel as f64 - plain.fuel as f64;
        writeln!(
            text,
            "| {} | {} | {} | {:.3} ms | {:.1} | {} | {:.1} | {:+.3} ms | {:+.0} |",
            row.name,
            size(row.size_bytes as f64),
            terminal::time(row.loaded_in),
            plain.milliseconds,
            plain.milliseconds / reference.calls[0].milliseconds,
            terminal::grouped(plain.fuel),
            plain.fuel as f64 / reference.calls[0].fuel as f64,
            (long.milliseconds - plain.milliseconds) / hundreds,
            fuel / hundreds,
        )?;
    }
    Ok(text)
}

fn size(bytes: f64) -> String {
    match bytes {
        ..1_000_000.0 => format!("{:.0} kB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}

fn put_into(document: &Path, table: &str) -> anyhow::Result<()> {
    let shown = || document.display().to_string();
    let text = std::fs::read_to_string(document).with_context(shown)?;
    let replaced = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
    });
    let replaced = replaced.with_context(|| {
        format!(
            "{}: expected a line `{BEGIN}` and below it a line `{END}`",
            shown()
        )
    })?;
    std::fs::write(document, replaced).with_context(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, milliseconds: f64, fuel: u64) -> Row {
        let long = Call {
            milliseconds: milliseconds + 1.0,
            fuel: fuel + 5000,
        };
        Row {
            name: name.to_owned(),
            size_bytes: 1_890_000,
            loaded_in: Duration::from_secs(2),
            calls: [Call { milliseconds, fuel }, long],
            more_registries: 1000,
        }
    }

    #[test]
    fn compares_languages_with_rust_and_settings_per_hundred() {
        let table = table(&[row("go", 0.3, 40_000), row("rust", 0.1, 10_000)]).unwrap();
        let go = table.lines().nth(2).unwrap();
        assert!(go.starts_with("| go | 1.9 MB |"), "{go}");
        assert!(
            go.ends_with("| 0.300 ms | 3.0 | 40,000 | 4.0 | +0.100 ms | +500 |"),
            "{go}"
        );
    }

    #[test]
    fn writes_table_between_markers_of_documentation() {
        let folder = std::env::temp_dir().join(format!("tollgate-table-{}", std::process::id()));
        std::fs::write(&folder, format!("a\n{BEGIN}\nold\n{END}\nb\n")).unwrap();
        put_into(&folder, "| new |\n").unwrap();
        let text = std::fs::read_to_string(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(text, format!("a\n{BEGIN}\n\n| new |\n\n{END}\nb\n"));
    }
}
