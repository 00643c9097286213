//! Reviews one AdmissionReview with one plugin, inside this program.
//!
//! ```text
//! cargo run --package tollgate --example embed -- plugin.wasm review.json
//! cargo run --package tollgate --example embed -- plugin.wasm review.json settings.json
//! cargo run --package tollgate --example embed -- plugin.wasm review.json settings.json namespaces
//! ```
//!
//! `namespaces` is a folder with a file `NAME.json` for each Namespace.
//!
//! The exit code is 0 when the request is allowed, 1 when it is denied, and 2 when it could not be reviewed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tollgate::namespaces::{Json, Lookup, Namespace, Namespaces, Pending};
use tollgate::{Answer, Config, Endpoint, Gate, PluginConfig, PluginName, Preparer, Source};

/// Exit code for a denied request.
const DENIED: u8 = 1;
/// Exit code if there is no answer.
const FAILED: u8 = 2;

/// A source of namespaces that has to wait: a folder with a file for each Namespace.
#[derive(Debug)]
struct Folder(PathBuf);

impl Namespaces for Folder {
    /// Nothing is known without reading a file.
    fn known(&self, _name: &str) -> Option<Lookup> {
        None
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a> {
        Box::pin(async move {
            let path = self.0.join(format!("{name}.json"));
            let unavailable = |reason: String| Lookup::Unavailable {
                reason: reason.into(),
            };
            match tokio::fs::read(&path).await {
                Ok(text) => match serde_json::from_slice::<serde_json::Value>(&text) {
                    Ok(object) => Lookup::Found(Namespace::of(&Json::from(object))),
                    Err(error) => unavailable(format!("{} is not JSON: {error}", path.display())),
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Lookup::NotFound {
                    place: format!("in {}", self.0.display()).into(),
                },
                Err(error) => unavailable(format!("cannot read {}: {error}", path.display())),
            }
        })
    }
}

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
    let (plugin, review, settings, namespaces) = match arguments.as_slice() {
        [plugin, review] => (plugin, review, None, None),
        [plugin, review, settings] => (plugin, review, Some(settings), None),
        [plugin, review, settings, namespaces] => {
            (plugin, review, Some(settings), Some(namespaces))
        }
        _ => bail!("usage: embed PLUGIN REVIEW [SETTINGS [NAMESPACES]]"),
    };
    let review = read(review)?;
    let config = configuration(plugin, settings.map(PathBuf::as_path))?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut builder = Gate::builder(config)
            .preparer(Preparer::this_program())
            .timeout(Duration::from_secs(10));
        if let Some(folder) = namespaces {
            builder = builder.namespaces(Arc::new(Folder(folder.clone())));
        }
        let gate = builder.build().await?;
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
