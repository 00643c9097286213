//! Reviews one AdmissionReview with one plugin, inside this program.
//!
//! ```text
//! cargo run --package tollgate --example embed -- plugin.wasm review.json
//! cargo run --package tollgate --example embed -- plugin.wasm review.json settings.json
//! ```
//!
//! The exit code is 0 when the request is allowed, 1 when it is denied, and 2 when it could not be reviewed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tollgate::{Answer, Config, Endpoint, Gate, PluginConfig, PluginName, Preparer, Source};

/// Exit code for a denied request.
const DENIED: u8 = 1;
/// Exit code if there is no answer.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    // Plugins are compiled in child processes, which run this program too. Nothing may come before this line.
    Preparer::run_if_child();
    match run() {
        Ok(answer) => {
            show(&answer);
            if answer.allowed() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(DENIED)
            }
        }
        Err(error) => {
            eprintln!("embed: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run() -> anyhow::Result<Answer> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (plugin, review, settings) = match arguments.as_slice() {
        [plugin, review] => (plugin, review, None),
        [plugin, review, settings] => (plugin, review, Some(settings)),
        _ => bail!("usage: embed PLUGIN REVIEW [SETTINGS]"),
    };
    let review = read(review)?;
    let config = configuration(plugin, settings.map(PathBuf::as_path))?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let gate = Gate::builder(config)
            .preparer(Preparer::this_program())
            .timeout(Duration::from_secs(10))
            .build()
            .await?;
        for plugin in gate.plugins() {
            println!("plugin: {} {}", plugin.name, plugin.digest);
        }
        Ok(gate.review(review).await?)
    })
}

/// Creates a configuration with one plugin. A configuration file would do as well: see `Config::load`.
fn configuration(plugin: &Path, settings: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = Config::parse("allowEmpty: true", Path::new("."))?;
    let name = PluginName::parse("example")?;
    let mut plugin = PluginConfig::new(name, Source::File(plugin.to_owned()));
    if let Some(settings) = settings {
        plugin.settings = serde_json::from_slice(&read(settings)?)?;
    }
    config.plugins.push(plugin);
    Ok(config)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn show(answer: &Answer) {
    match answer.status() {
        None => println!("verdict: allowed"),
        Some(status) => println!("verdict: denied with {}: {}", status.code, status.message),
    }
    if let Some(patch) = answer.patch() {
        println!("patch: {patch}");
    }
    for warning in answer.warnings() {
        println!("warning: {warning}");
    }
    for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
        for report in answer.reports(endpoint) {
            let (plugin, fuel) = (&report.plugin, report.cost.fuel);
            println!(
                "{} {plugin}: {}, fuel {fuel}",
                endpoint.name(),
                report.ended.as_str()
            );
        }
    }
    println!(
        "response: {}",
        String::from_utf8_lossy(answer.review_bytes())
    );
}
