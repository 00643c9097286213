//! `tollgate build`

mod component;
pub(super) mod fresh;
pub(super) mod sources;
mod stamp;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tollgate::setup::{Options, Setup};
use tollgate_component::imports;
use tollgate_config::{Capability, Config, ManifestRule, Match, PluginConfig, PluginName, Source};
use tollgate_engine::ConfiguredBy;
use tollgate_gate::plugin::{LoadError, LoadedPlugin, Manifest, PrepareError, Stage};

use self::component::make;
use super::language;
use super::terminal::{BAD, FAINT, GOOD, NOTABLE, STRONG, grouped, plain, say};
use super::{FAILURE, review};

/// Build the policy in a folder with the language's own tools, and check the component as the host would.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Build {
    /// Project folder.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Language of the policy [default: detected from the project's files]
    #[arg(long, value_name = "LANGUAGE", value_parser = PossibleValuesParser::new(language::names()))]
    lang: Option<String>,
    /// File for the component [default: dist/NAME.wasm in the project]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Settings file for the check, as YAML or JSON [default: the settings in the project's tollgate.yaml, or none]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
}

/// The project's own configuration file.
const CONFIGURATION: &str = "tollgate.yaml";

const EXAMPLES: &str = "\
Examples:
  tollgate build                              this folder's project, to dist/NAME.wasm
  tollgate build policies/trusted-registries --settings settings.yaml

Exit code: 0 when the host accepts the plugin, 1 when it rejects the plugin, 2 when the build failed.";

// === impl Build ===

impl Build {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.settings.as_deref().map(read_settings).transpose()?;
        let language = match &self.lang {
            Some(name) => language::named(name)?,
            None => language::of_project(&self.folder)?,
        };
        let built = make(
            &self.folder,
            language,
            self.output.as_deref(),
            &BTreeSet::new(),
        )?;
        let (output, component) = (built.file, built.bytes);
        let imports = imports(&component);
        say!("{STRONG}{}{STRONG:#}", output.display());
        say!("  size     {} bytes", grouped(component.len() as u64));
        say!("  digest   sha256:{:x}", Sha256::digest(&component));
        say!("  imports  {}", plain(&imports.join(", ")));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let own = match settings {
            None => own_configuration(&self.folder, &output)?,
            Some(_) => None,
        };
        let is_configured = own.is_some() || settings.is_some();
        let (config, plugin) = match own {
            Some(own) => own,
            None => {
                let (config, plugin) = to_check(&built.name, &output, settings, &imports)?;
                for capability in &plugin.capabilities {
                    let key = match capability {
                        Capability::Clock => "capabilities: [clock]",
                        Capability::Cluster => "lookups",
                        Capability::Access => "capabilities: [access]",
                        Capability::Images => "images",
                    };
                    say!("  {NOTABLE}needs{NOTABLE:#}    {key} in its configuration");
                }
                (config, plugin)
            }
        };
        let setup = Setup::new(&config, &Options::default())?;
        match runtime.block_on(setup.loader.check(&plugin)) {
            Ok(loaded) => {
                print_summary(&loaded);
                Ok(ExitCode::SUCCESS)
            }
            Err(error) if !is_configured && is_at_configure(&error) => {
                say!(
                    "  {NOTABLE}checked{NOTABLE:#}  except for settings: {}",
                    plain(&tollgate_admission::chain(&error))
                );
                say!("           {FAINT}pass settings with --settings FILE to check them{FAINT:#}");
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                say!(
                    "  {BAD}REJECTED BY THE HOST:{BAD:#} {}",
                    plain(&tollgate_admission::chain(&error))
                );
                Ok(ExitCode::from(FAILURE))
            }
        }
    }
}

/// Finds the component in the project's own configuration, if that lists it.
fn own_configuration(
    folder: &Path,
    output: &Path,
) -> anyhow::Result<Option<(Config, PluginConfig)>> {
    let file = folder.join(CONFIGURATION);
    if !file.is_file() {
        return Ok(None);
    }
    let config = Config::load(&file)?;
    let wanted = std::fs::canonicalize(output)?;
    let is_it = |plugin: &&PluginConfig| match &plugin.source {
        Source::File(file) => std::fs::canonicalize(file).is_ok_and(|file| file == wanted),
        Source::Oci(_) => false,
    };
    let plugin = config.plugins.iter().find(is_it).cloned();
    Ok(plugin.map(|plugin| (config, plugin)))
}

fn print_summary(loaded: &LoadedPlugin) {
    let interfaces = loaded.interfaces();
    let does = match (interfaces.mutating, interfaces.validating) {
        (true, true) => "mutates and validates",
        (true, false) => "mutates",
        _ => "validates",
    };
    say!(
        "  {GOOD}checked{GOOD:#}  version {}, {does}",
        plain(&loaded.manifest.version)
    );
    let rules = Match::from_manifest_rules(&rules_of(&loaded.manifest));
    let rules = rules
        .as_ref()
        .map(|rules| rules.rules().iter().map(ToString::to_string).collect());
    let rules: Vec<String> = rules.unwrap_or_default();
    match rules.is_empty() {
        true => say!("  rules    {NOTABLE}none: its configuration needs `match`{NOTABLE:#}"),
        false => say!("  rules    {}", plain(&rules.join("; "))),
    }
    let configured = loaded.guest.as_ref().map(|guest| guest.configured());
    if let Some(ConfiguredBy::EachCall { reason, .. }) = configured {
        say!(
            "  {NOTABLE}configured again in every call:{NOTABLE:#} {}",
            plain(reason)
        );
    }
}

/// Returns the rules that a plugin's own manifest asks for.
pub(super) fn rules_of(manifest: &Manifest) -> Vec<ManifestRule> {
    let rules = manifest.rules.iter().map(|rule| ManifestRule {
        operations: rule.operations.clone(),
        api_groups: rule.api_groups.clone(),
        api_versions: rule.api_versions.clone(),
        resources: rule.resources.clone(),
        scope: rule.scope.clone(),
    });
    rules.collect()
}

/// Builds a configuration for a plugin whose rules match everything. It grants the capabilities that the
/// plugin imports.
pub(super) fn to_check(
    name: &str,
    file: &Path,
    settings: Option<Value>,
    imports: &[String],
) -> anyhow::Result<(Config, PluginConfig)> {
    let name = PluginName::parse(&name.replace('_', "-")).map_err(|error| {
        anyhow!("cannot use the project's name {name:?} as a plugin name: {error}")
    })?;
    let mut config = PluginConfig::new(name, Source::File(file.to_owned()));
    if let Some(settings) = settings {
        config.settings = settings;
    }
    // A plugin that asks what is granted is checked without access.
    let can_do_without = imports
        .iter()
        .any(|import| import.starts_with("tollgate:admission/grants@"));
    for capability in [
        Capability::Clock,
        Capability::Cluster,
        Capability::Access,
        Capability::Images,
    ] {
        if can_do_without && capability == Capability::Access {
            continue;
        }
        let interface = format!("tollgate:admission/{capability}@");
        if imports.iter().any(|import| import.starts_with(&interface)) {
            config.capabilities.insert(capability);
        }
    }
    let all = || vec!["*".to_owned()];
    let everything = ManifestRule {
        operations: all(),
        api_groups: all(),
        api_versions: all(),
        resources: vec!["*/*".to_owned()],
        scope: None,
    };
    config.matching = Match::from_manifest_rules(&[everything]).ok();
    Ok((Config::parse("allowEmpty: true", Path::new("."))?, config))
}

fn is_at_configure(error: &LoadError) -> bool {
    matches!(
        error,
        LoadError::Prepare(PrepareError::Refused {
            stage: Stage::Configure,
            ..
        })
    )
}

/// Reads settings from a file that holds exactly one document.
pub(super) fn read_settings(file: &Path) -> anyhow::Result<Value> {
    let documents = review::input::read(file)?;
    let [document] = &documents[..] else {
        return Err(anyhow!(
            "{}: expected one document with settings, found {}",
            file.display(),
            documents.len()
        ));
    };
    let settings: Value = serde_json::from_str(&document.content.to_text())?;
    match settings.is_object() {
        true => Ok(settings),
        false => Err(anyhow!(
            "{}: expected the settings to be an object",
            file.display()
        )),
    }
}
