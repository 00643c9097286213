//! Runs suites of `gator verify` as they are: plugins for ConstraintTemplates answer, through the server's own pipeline.
//! The plugin for CEL runs a template that has CEL, as Gatekeeper prefers CEL to Rego. The plugin for Rego runs the
//! others.
//!
//! One engine of the host serves all suites. A plugin is loaded once for each template with a constraint and an inventory, because
//! these are its settings.

mod case;
mod suite;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::{Value, json};
use tollgate::setup::{Options, Setup};
use tollgate_config::problem::Collector;
use tollgate_config::read::Node;
use tollgate_config::{Config, Defaults, PluginConfig};
use tollgate_gate::plugin::{Plugin, PluginSet, PluginState};

use self::case::{mismatches, review_of, violations};
use self::suite::{Case, Languages, Suite, Test};
use super::actual::Actual;
use super::compare::Failure;
use super::run::{Tested, TestedCase};
use crate::review::examine::examine;
use crate::review::input::Document;
use crate::review::request::Prepared;
use tollgate_json::document::Json;

pub(super) use self::suite::is_suite;

/// A plugin that answers for policies of one kind, as a flag names it: `rego=./rego.wasm`.
#[derive(Clone, Debug)]
pub(super) struct EngineSource {
    name: String,
    source: String,
}

/// The plugins for templates, and the host that runs them.
pub(super) struct Lab {
    setup: Setup,
    config: Config,
    sources: Sources,
}

/// The sources of the plugins for templates.
#[derive(Default)]
struct Sources {
    rego: Option<String>,
    cel: Option<String>,
}

/// The name of the plugin for templates with Rego.
const REGO: &str = "rego";
/// The name of the plugin for templates with CEL.
const CEL: &str = "cel";
/// The configuration file of a project, in which the plugin is looked for.
const PROJECT: &str = "tollgate.yaml";
const MISSING: &str = "the suite tests ConstraintTemplates, and no plugin for them is known; name it with --engine \
    rego=./rego.wasm or --engine cel=./cel_policy.wasm, or use it in tollgate.yaml in this folder";

// === impl EngineSource ===

impl std::str::FromStr for EngineSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, source) = text
            .split_once('=')
            .filter(|(_, source)| !source.is_empty())
            .ok_or("expected NAME=SOURCE, such as rego=./rego.wasm")?;
        if ![REGO, CEL].contains(&name) {
            return Err(format!("got the engine {name:?}, expected {REGO} or {CEL}"));
        }
        let has_scheme = ["file:", "oci://"]
            .iter()
            .any(|scheme| source.starts_with(scheme));
        let source = match has_scheme {
            true => source.to_owned(),
            false => format!("file:{source}"),
        };
        Ok(Self {
            name: name.to_owned(),
            source,
        })
    }
}

// === impl Lab ===

impl Lab {
    /// Sets up the host for the plugins that the flags name, or that the project in this folder uses.
    pub(super) fn open(engines: &[EngineSource]) -> anyhow::Result<Self> {
        let sources = Sources::find(engines)?;
        let mut config = Config::parse("allowEmpty: true", Path::new("."))?;
        let known = [(REGO, &sources.rego), (CEL, &sources.cel)];
        let known = known
            .into_iter()
            .filter_map(|(name, source)| Some((name, source.as_deref()?)));
        config.plugins = known
            .map(|(name, source)| plugin(source, name, &json!({})))
            .collect::<anyhow::Result<_>>()?;
        let setup = Setup::new(&config, &Options::default())?;
        Ok(Self {
            setup,
            config,
            sources,
        })
    }

    /// Runs a suite, and calls `on_case` with each finished case.
    pub(super) async fn run(
        &self,
        path: &Path,
        filter: Option<&str>,
        on_case: impl Fn(&TestedCase),
    ) -> anyhow::Result<Tested> {
        let suite = Suite::load(path)?;
        let mut tested = Vec::new();
        for test in &suite.tests {
            let cases = test.cases.iter();
            let selected = cases.filter(|case| filter.is_none_or(|part| case.name.contains(part)));
            let selected: Vec<&Case> = selected.collect();
            let loaded = match self.sources.of(test) {
                Ok((engine, source)) => {
                    let settings = selected.iter().map(|case| test.settings(case, engine));
                    self.load(source, &settings.collect::<Vec<_>>()).await
                }
                Err(error) => {
                    let message = format!("{error:#}");
                    selected.iter().map(|_| Err(anyhow!("{message}"))).collect()
                }
            };
            for (case, plugin) in selected.into_iter().zip(loaded) {
                let mut run = TestedCase {
                    suite: path.to_owned(),
                    name: case.name.clone(),
                    place: case.place.clone(),
                    failures: Vec::new(),
                    error: None,
                    actual: None,
                    comparison: None,
                };
                let result = match plugin {
                    Ok(plugin) => self.case(test, case, &plugin, &mut run).await,
                    Err(error) => Err(error),
                };
                run.error = result.err().map(|error| format!("{error:#}"));
                on_case(&run);
                tested.push(run);
            }
        }
        Ok(Tested {
            suite: path.to_owned(),
            cases: tested,
        })
    }

    /// Loads a plugin with the settings of each case. Cases with the same settings share one.
    async fn load(
        &self,
        source: &str,
        settings: &[anyhow::Result<Value>],
    ) -> Vec<anyhow::Result<Arc<Plugin>>> {
        let mut distinct: Vec<&Value> = Vec::new();
        for settings in settings.iter().flatten() {
            if !distinct.contains(&settings) {
                distinct.push(settings);
            }
        }
        let configs = distinct
            .iter()
            .enumerate()
            .map(|(index, settings)| plugin(source, &format!("template-{index}"), settings));
        let configs: anyhow::Result<Vec<PluginConfig>> = configs.collect();
        let configs = match configs {
            Ok(configs) => configs,
            Err(error) => {
                let message = format!("{error:#}");
                return settings.iter().map(|_| Err(anyhow!("{message}"))).collect();
            }
        };
        let set = self.setup.loader.load_all(configs).await;
        let plugins: Vec<Arc<Plugin>> = set.iter().cloned().collect();
        let of = |settings: &anyhow::Result<Value>| match settings {
            Err(error) => Err(anyhow!("{error:#}")),
            Ok(settings) => {
                let index = distinct.iter().position(|one| *one == settings);
                let plugin = index.and_then(|index| plugins.get(index));
                plugin.cloned().context("the plugin was not loaded")
            }
        };
        settings.iter().map(of).collect()
    }

    async fn case(
        &self,
        test: &Test,
        case: &Case,
        plugin: &Arc<Plugin>,
        run: &mut TestedCase,
    ) -> anyhow::Result<()> {
        if let PluginState::Failed { reason } = &plugin.state {
            if !test.is_invalid {
                run.failures.push(Failure::new(reason.clone()));
            }
            return Ok(());
        }
        if test.is_invalid {
            let what = "expected an invalid template or constraint, and both are valid";
            run.failures.push(Failure::new(what.to_owned()));
            return Ok(());
        }
        ensure!(!case.assertions.is_empty(), "the case has no assertions");
        let review = Json::from(review_of(case.object()?)?);
        let document = Document {
            file: case.object.display().to_string(),
            number: 1,
            content: review.clone(),
        };
        let prepared = Prepared {
            review,
            assumed: Vec::new(),
            from_manifest: false,
        };
        let pipeline = self.setup.pipeline(
            PluginSet::new(vec![plugin.clone()]),
            &self.config.requests,
            &self.config.engine,
        );
        let finding = examine(&pipeline, &self.config.requests, document, Ok(prepared)).await;
        if let Some(error) = &finding.error {
            bail!("{error}");
        }
        run.actual = Some(Actual::of(&finding));
        match violations(&finding) {
            Ok(messages) => run.failures = mismatches(&case.assertions, &messages)?,
            Err(fault) => run.failures.push(Failure::new(fault)),
        }
        Ok(())
    }
}

/// Creates a plugin that is called for all requests, because the template and the constraint decide which requests they
/// match.
fn plugin(source: &str, name: &str, settings: &Value) -> anyhow::Result<PluginConfig> {
    let entry = json!({
        "name": name,
        "source": source,
        "match": { "rules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
        }] },
        "settings": settings,
    });
    let problems = Collector::default();
    let most = Config::parse("allowEmpty: true", Path::new("."))?
        .engine
        .max_concurrent_calls;
    let read = PluginConfig::read(
        &Node::root(&entry, &problems),
        Path::new("."),
        &Defaults::default(),
        most,
        &problems,
    );
    let (plugins, _) = problems
        .finish(read)
        .map_err(|problems| anyhow!("--engine: {problems}"))?;
    let plugin = plugins.into_iter().next();
    plugin.ok_or_else(|| anyhow!("--engine: names no plugin"))
}

// === impl Sources ===

impl Sources {
    /// Finds the plugins that the flags name, or that the project in this folder uses.
    fn find(engines: &[EngineSource]) -> anyhow::Result<Self> {
        let named = |name: &str| {
            let named = engines.iter().find(|engine| engine.name == name);
            named.map(|engine| engine.source.clone())
        };
        let mut sources = Self {
            rego: named(REGO),
            cel: named(CEL),
        };
        if engines.is_empty() {
            sources = Self::of_project(Path::new(PROJECT))?;
        }
        if sources.rego.is_none() && sources.cel.is_none() {
            bail!("{MISSING}");
        }
        Ok(sources)
    }

    /// Returns the sources of the first plugins of a configuration that run templates.
    fn of_project(file: &Path) -> anyhow::Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let config = Config::load(file)?;
        let mut sources = Self::default();
        for plugin in &config.plugins {
            let template = plugin.settings.pointer("/template");
            let source = match template.map(Languages::of) {
                Some(languages) if languages.cel => &mut sources.cel,
                Some(_) => &mut sources.rego,
                None => continue,
            };
            source.get_or_insert_with(|| plugin.source.to_string());
        }
        Ok(sources)
    }

    /// Returns the engine of a test, and the source of its plugin.
    fn of(&self, test: &Test) -> anyhow::Result<(&'static str, &str)> {
        let languages = test.languages();
        if let (Some(cel), true) = (&self.cel, languages.cel) {
            return Ok((CEL, cel));
        }
        match &self.rego {
            Some(rego) if languages.rego || !languages.cel => Ok((REGO, rego)),
            _ if languages.cel => bail!(
                "the template has CEL, and no plugin for it is known; name it with --engine cel=./cel_policy.wasm"
            ),
            _ => bail!(
                "the template has Rego, and no plugin for it is known; name it with --engine rego=./rego.wasm"
            ),
        }
    }
}
