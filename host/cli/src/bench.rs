//! `tollgate bench`

mod measure;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tollgate::setup::{Options, Setup};
use tollgate_admission::Phase;
use tollgate_config::yaml::folder_of;
use tollgate_config::{Capability, Config, PluginConfig, PluginName, Source, format_bytes};
use tollgate_json::document::Json;

use self::measure::{Measured, Series, series};
use super::build::fresh::{BuildFirst, Project};
use super::build::read_settings;
use super::review::ReviewOptions;
use super::review::input::{self, Document};
use super::review::request::Maker;
use super::terminal::{BAD, FAINT, NOTABLE, STRONG, grouped, milliseconds, plain, say, tell};
use super::test::example::{Example, example_for};
use super::{FAILURE, asked};

/// Measure the calls of a plugin: latency, fuel and memory, and how they grow with the object.
///
/// Every call gets a fresh instance, as in the server. The first call is listed on its own: nothing is warm then, as
/// after a plugin was just loaded.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Bench {
    /// Plugin file, or the plugin's name if --config is given.
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// Configuration file that holds the plugin's settings and limits.
    #[arg(long, value_name = "FILE", conflicts_with = "settings")]
    config: Option<PathBuf>,
    /// Settings of the plugin, as YAML or JSON [default: none]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Manifest or AdmissionReview to call the plugin with [default: that of the first fitting case of a suite beside
    /// the plugin's project or configuration, or else a Pod]
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// File with Namespaces, for a plugin that reads the Namespace of its request.
    #[arg(long, value_name = "FILE")]
    namespaces: Option<PathBuf>,
    /// File or folder with objects of the cluster, for plugins with lookups. For the plugins, no other objects exist.
    #[arg(long, value_name = "FILE|FOLDER")]
    objects: Option<PathBuf>,
    /// File with what users may do, under the key `access` as in a suite, for plugins that ask for rights.
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// File with images and who has signed them, under the key `images` as in a suite, for plugins that verify images.
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Number of calls for each row.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..))]
    calls: u32,
    #[command(flatten)]
    build_first: BuildFirst,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  tollgate bench dist/trusted-registries.wasm --settings settings.yaml
  tollgate bench trusted-registries --config tollgate.yaml --object deploy.yaml
  tollgate bench dist/trusted-registries.wasm -o json

A component in the folder `dist` of a project is built first if its sources have changed.
Fuel is the same on every machine. Times are those of this machine: run nothing else on it.
Exit code: 0 when the plugin was measured, 1 when a call ended as a fault, 2 when it could not be measured.";

/// Sizes that the object is padded to. The object is also measured at its own size.
const SIZES_BYTES: [usize; 3] = [10 << 10, 100 << 10, 1 << 20];

// === impl Bench ===

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (config, plugin) = self.config()?;
        let flags = [&self.config, &self.settings, &self.object, &self.namespaces];
        let apart: Vec<PathBuf> = flags.into_iter().flatten().cloned().collect();
        let projects = Project::all(component(&plugin), &apart);
        self.build_first.bring_up_to_date(&projects)?;
        exists(&plugin)?;
        let subject = self.subject(&plugin, projects.first())?;
        let namespaces = match &self.namespaces {
            Some(file) => Some(super::namespaces::read(file)?),
            None => subject.namespaces.clone(),
        };
        let review = subject.review;
        let objects = self.objects.as_deref();
        let tables = objects.map(super::objects::read).transpose()?;
        let access = self.access.as_deref();
        let authorizer = access.map(super::access::read).transpose()?;
        let images = super::images::of_file(self.images.as_deref())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let (calls, depth) = (self.calls, config.requests.max_depth);
        let measured: Vec<Series> = runtime.block_on(async {
            let options = Options {
                namespaces,
                tables,
                authorizer,
                images: Some(images),
                ..Options::default()
            };
            let setup = Setup::new(&config, &options)?;
            let loaded = setup.loader.check(&plugin).await;
            let loaded = loaded.map_err(|error| {
                let reason = tollgate_admission::chain(&error);
                anyhow!("cannot load {}: {reason}", plugin.name)
            })?;
            let request = asked::read(&review, depth)?;
            if let Some(mismatch) = asked::mismatch(&request, &loaded.matching) {
                tell!(
                    "{NOTABLE}a server would not call {} with this object:{NOTABLE:#} {}",
                    plugin.name,
                    plain(&mismatch)
                );
            }
            let interfaces = loaded.interfaces();
            let guest = loaded.guest.as_ref().context("the plugin has no code")?;
            let mut measured = Vec::new();
            for (phase, exports) in [
                (Phase::Mutate, interfaces.mutating),
                (Phase::Validate, interfaces.validating),
            ] {
                if exports {
                    measured.push(
                        series(
                            &setup.engine,
                            guest,
                            phase,
                            &review,
                            &SIZES_BYTES,
                            calls,
                            depth,
                        )
                        .await?,
                    );
                }
            }
            anyhow::Ok(measured)
        })?;
        match self.output {
            Output::Text => {
                say!("{FAINT}object: {}{FAINT:#}", plain(&subject.from));
                show(&plugin, &measured, calls);
            }
            Output::Json => {
                let phases: Vec<Value> = measured.iter().map(Series::to_json).collect();
                say!(
                    "{:#}",
                    json!({
                        "plugin": plugin.name.as_str(), "object": subject.from, "calls": calls, "phases": phases,
                    })
                );
            }
        }
        let failed = measured
            .iter()
            .flat_map(|series| &series.rows)
            .any(|row| row.fault.is_some());
        Ok(if failed {
            ExitCode::from(FAILURE)
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Returns the review to measure with.
    fn subject(&self, plugin: &PluginConfig, project: Option<&Project>) -> anyhow::Result<Example> {
        if let Some(file) = &self.object {
            let mut documents = input::read(file)?;
            ensure!(
                documents.len() == 1,
                "{}: expected one document, found {}",
                file.display(),
                documents.len()
            );
            return of_document(documents.remove(0), file.display().to_string());
        }
        let folder = match (project, &self.config) {
            (Some(project), _) => Some(project.folder()),
            (None, Some(config)) => Some(folder_of(config)),
            (None, None) => None,
        };
        if let Some(example) = folder.and_then(|folder| example_for(folder, &plugin.source)) {
            return Ok(example);
        }
        let document = Document {
            file: "pod".to_owned(),
            number: 1,
            content: Json::from(pod()),
        };
        of_document(document, "a Pod".to_owned())
    }

    /// Returns the host's configuration and the plugin to measure.
    fn config(&self) -> anyhow::Result<(Config, PluginConfig)> {
        if let Some(file) = &self.config {
            let config = Config::load(file)?;
            let found = config
                .plugins
                .iter()
                .find(|plugin| plugin.name.as_str() == self.plugin);
            let names: Vec<&str> = config
                .plugins
                .iter()
                .map(|plugin| plugin.name.as_str())
                .collect();
            let found = found.ok_or_else(|| {
                anyhow!(
                    "{}: no plugin is named {:?}, expected one of {}",
                    file.display(),
                    self.plugin,
                    names.join(", ")
                )
            })?;
            let found = found.clone();
            return Ok((config, found));
        }
        let file = Path::new(&self.plugin);
        let stem = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace('_', "-");
        // The file's name may not be a valid plugin name. Any valid name will do.
        let name = PluginName::parse(&stem).or_else(|_| PluginName::parse("plugin"))?;
        let mut plugin = PluginConfig::new(name, Source::File(file.to_owned()));
        plugin.capabilities.extend([
            Capability::Clock,
            Capability::Cluster,
            Capability::Access,
            Capability::Images,
        ]);
        if let Some(settings) = &self.settings {
            plugin.settings = read_settings(settings)?;
        }
        let config = Config::parse("allowEmpty: true", Path::new("."))?;
        Ok((config, plugin))
    }
}

/// Returns the plugin's component, if it is a file.
fn component(plugin: &PluginConfig) -> Option<&Path> {
    match &plugin.source {
        Source::File(file) => Some(file),
        Source::Oci(_) => None,
    }
}

fn exists(plugin: &PluginConfig) -> anyhow::Result<()> {
    if let Some(file) = component(plugin) {
        ensure!(
            file.is_file(),
            "{}: no such file; create it with `tollgate build`, or name a plugin of --config",
            file.display()
        );
    }
    Ok(())
}

fn of_document(document: Document, from: String) -> anyhow::Result<Example> {
    let (review_options, documents) = (ReviewOptions::default(), [document]);
    let maker = Maker::new(&review_options, &documents, Vec::new());
    Ok(Example {
        review: maker.prepare(&documents[0])?.review,
        namespaces: None,
        from,
    })
}

fn show(plugin: &PluginConfig, measured: &[Series], calls: u32) {
    for Series { phase, first, rows } in measured {
        say!(
            "{STRONG}{} {}{STRONG:#}  {FAINT}{calls} calls for each row{FAINT:#}",
            plugin.name,
            phase.name()
        );
        say!("first call: {}", milliseconds(first.as_secs_f64() * 1000.0));
        say!(
            "{FAINT}{:>10}  {:10}  {:>12}  {:>10}  {:>9}  {:>9}  {:>9}{FAINT:#}",
            "object",
            "answer",
            "fuel",
            "memory",
            "median",
            "99 %",
            "slowest"
        );
        for row in rows {
            let Measured {
                object_bytes,
                ended,
                fuel,
                memory_bytes,
                median,
                slow,
                slowest,
                fault,
            } = row;
            let time =
                |duration: &std::time::Duration| milliseconds(duration.as_secs_f64() * 1000.0);
            say!(
                "{:>10}  {ended:10}  {:>12}  {:>10}  {:>9}  {:>9}  {:>9}",
                size(*object_bytes as u64),
                grouped(*fuel),
                format_bytes(*memory_bytes),
                time(median),
                time(slow),
                time(slowest),
            );
            if let Some(fault) = fault {
                say!("            {BAD}{}{BAD:#}", plain(fault));
            }
        }
        say!("");
    }
}

/// Formats a size with one decimal, for a column.
fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a size to be looked at")]
    let kibibytes = bytes as f64 / 1024.0;
    match kibibytes {
        ..1024.0 => format!("{kibibytes:.1} KiB"),
        _ => format!("{:.1} MiB", kibibytes / 1024.0),
    }
}

/// Returns an ordinary Pod, used when no object is given.
fn pod() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.2.3"),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "ports": [{"containerPort": 8080}],
            "env": [{"name": "LEVEL", "value": "info"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "team": "shop"}},
        "spec": {
            "serviceAccountName": "web",
            "initContainers": [container("prepare")],
            "containers": [container("web"), container("proxy")],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        },
    })
}
