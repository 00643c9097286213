//! One round of `tollgate dev`: build, serve, test, and review the objects that exist.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::runtime::Runtime;
use tollgate::setup::{Options, Setup};
use tollgate_config::{Config, Source};
use tollgate_gate::plugin::{LoadedPlugin, Plugin, PluginSet, PluginState};

use super::existing::Existing;
use super::playground::{Playground, Serving};
use super::{tell_address, tell_listening};
use crate::build::fresh::{BuildFirst, Project};
use crate::terminal::{BAD, FAINT, GOOD, NOTABLE, STRONG, plain, plain_indented, say};
use crate::test::Test;
use crate::test::watch::Watched;

/// Everything that a round needs.
pub(super) struct Workshop {
    pub(super) config: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) runs_tests: bool,
    /// Folder for compiled code, if the configuration names none.
    pub(super) code: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) ca_bundle: Option<PathBuf>,
    pub(super) existing: Existing,
    pub(super) options: Options<'static>,
    pub(super) playground: Arc<Playground>,
    pub(super) served: Option<Version>,
}

/// The inputs of the version that is served, to notice a change.
pub(super) struct Version {
    config: Config,
    components: BTreeMap<PathBuf, String>,
    /// When it was loaded, as a time of day in UTC.
    since: String,
}

/// Digits of a digest that tell versions apart.
const DIGEST_DIGITS: usize = "sha256:".len() + 12;

// === impl Workshop ===

impl Workshop {
    /// Says what the command does, before the first round.
    pub(super) fn greet(&self) {
        say!(
            "{STRONG}{}{STRONG:#}",
            plain(&self.config.display().to_string())
        );
        tell_listening(self.address);
    }

    /// Builds, serves, tests and reviews. Adds the files that all of that depends on to `watched`, and returns whether it
    /// could add all of them.
    pub(super) fn round(&mut self, runtime: &Runtime, watched: &mut Watched) -> bool {
        watched.add_files([self.config.clone()]);
        watched.add_files(self.existing.files());
        let is_swapped = match self.bring_up_to_date(runtime, watched) {
            Ok(is_swapped) => is_swapped,
            Err(error) => {
                self.tell_failed(&error);
                return false;
            }
        };
        let mut is_complete = true;
        if self.runs_tests {
            is_complete = self.test(runtime, watched);
        }
        if let Some(serving) = self.playground.serving() {
            runtime.block_on(self.existing.review(&serving, is_swapped));
        }
        is_complete
    }

    /// Builds the plugins and serves them. Returns whether another version is served from now on.
    fn bring_up_to_date(
        &mut self,
        runtime: &Runtime,
        watched: &mut Watched,
    ) -> anyhow::Result<bool> {
        let mut config = Config::load(&self.config)?;
        if config.plugins.is_empty() {
            bail!(
                "{}: the configuration has no plugin to serve",
                self.config.display()
            );
        }
        config
            .engine
            .cache_directory
            .get_or_insert_with(|| self.code.clone());
        let components = components(&config);
        watched.add_files(components.iter().map(|path| (*path).to_owned()));
        let projects = Project::all(components.iter().copied(), &self.existing.files());
        for project in &projects {
            watched.add_sources(project.sources());
        }
        BuildFirst::default().bring_up_to_date(&projects)?;
        watched.add_built(components.iter().map(|path| (*path).to_owned()));
        let components = components.into_iter().map(|path| {
            let bytes = std::fs::read(path).unwrap_or_default();
            (path.to_owned(), format!("{:x}", Sha256::digest(&bytes)))
        });
        let components: BTreeMap<PathBuf, String> = components.collect();
        let is_same = |served: &Version| served.config == config && served.components == components;
        if self.served.as_ref().is_some_and(is_same) {
            return Ok(false);
        }
        let serving = runtime.block_on(load(&config, &self.options))?;
        self.playground.swap(Arc::new(serving.serving));
        for line in &serving.lines {
            say!("{GOOD}serving{GOOD:#}  {line}");
        }
        if self.served.is_none() {
            tell_address(self, serving.endpoint);
        }
        self.served = Some(Version {
            config,
            components,
            since: time_of_day(),
        });
        Ok(true)
    }

    fn test(&self, runtime: &Runtime, watched: &mut Watched) -> bool {
        let test = Test::of_folder(&self.folder);
        match test.has_suites() {
            Ok(true) => test.round(runtime, watched),
            Ok(false) => {
                say!(
                    "{FAINT}no suites in {}: write policy.test.yaml to test at every change{FAINT:#}",
                    plain(&self.folder.display().to_string())
                );
                true
            }
            Err(error) => {
                say!("{BAD}NOT TESTED:{BAD:#} {}", text(&error));
                false
            }
        }
    }

    fn tell_failed(&self, error: &anyhow::Error) {
        say!("{BAD}NOT SERVED:{BAD:#} {}", text(error));
        match &self.served {
            Some(Version { since, .. }) => {
                say!("{NOTABLE}still serving the version of {since}{NOTABLE:#}");
            }
            None => say!("{NOTABLE}nothing is served yet: reviews get 503{NOTABLE:#}"),
        }
    }
}

/// Returns the text of an error. Compilers write several lines, and each stays one.
fn text(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let lines: Vec<String> = text.lines().map(plain_indented).collect();
    lines.join("\n  ")
}

/// A version that was loaded, with the messages about it.
struct Loaded {
    serving: Serving,
    /// One line for each plugin.
    lines: Vec<String>,
    /// An endpoint at which some plugin answers.
    endpoint: &'static str,
}

/// Loads all plugins. If one cannot be loaded, there is no new version: half a configuration would mislead.
async fn load(config: &Config, options: &Options<'_>) -> anyhow::Result<Loaded> {
    let setup = Setup::new(
        config,
        &Options {
            namespaces: options.namespaces.clone(),
            tables: options.tables.clone(),
            ..Options::default()
        },
    )?;
    let set: PluginSet = setup.loader.load_all(config.plugins.clone()).await;
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    let mut endpoint = "mutate";
    for plugin in set.iter() {
        let name = &plugin.config.name;
        match &plugin.state {
            PluginState::Loaded(loaded) => {
                if loaded.interfaces().validating {
                    endpoint = "validate";
                }
                lines.push(line(plugin, loaded));
            }
            PluginState::Failed { reason } => {
                failed.push(format!("the plugin {name} cannot be loaded: {reason}"));
            }
            PluginState::Disabled => lines.push(format!("{name}, which is disabled")),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    let plugins = set.iter().map(|plugin| plugin.config.name.to_string());
    let plugins = plugins.collect();
    let serving = Serving {
        pipeline: setup.pipeline(set, &config.requests, &config.engine),
        requests: config.requests.clone(),
        plugins,
        _setup: setup,
    };
    Ok(Loaded {
        serving,
        lines,
        endpoint,
    })
}

/// Describes a plugin that is served.
fn line(plugin: &Plugin, loaded: &LoadedPlugin) -> String {
    let interfaces = loaded.interfaces();
    let does = match (interfaces.mutating, interfaces.validating) {
        (true, true) => "mutates and validates",
        (true, false) => "mutates",
        _ => "validates",
    };
    let digest = plugin.digest.as_deref().unwrap_or_default();
    format!(
        "{STRONG}{}{STRONG:#} {}, {does}  {FAINT}{}{FAINT:#}",
        plugin.config.name,
        plain(&loaded.manifest.version),
        digest.get(..DIGEST_DIGITS).unwrap_or(digest)
    )
}

/// Lists the components that are files.
fn components(config: &Config) -> Vec<&Path> {
    let plugins = config.plugins.iter();
    let files = plugins.filter_map(|plugin| match &plugin.source {
        Source::File(path) => Some(path.as_path()),
        Source::Oci(_) => None,
    });
    files.collect()
}

/// Returns the time of day in UTC, as logs have it.
pub(super) fn time_of_day() -> String {
    let now = OffsetDateTime::now_utc();
    let (hour, minute, second) = (now.hour(), now.minute(), now.second());
    format!("{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_keep_their_lines() {
        let error = anyhow::anyhow!("policy.c:1: error\n  int x\u{1b}[31m\n").context("no build");
        assert_eq!(text(&error), "no build: policy.c:1: error\n    int x [31m");
    }

    #[test]
    fn only_files_are_components() {
        let config = "plugins: [{name: a, source: 'file:dist/a.wasm'}, {name: b, source: 'oci://r.example/b:1'}]";
        let config = Config::parse(config, Path::new("p")).unwrap();
        assert_eq!(components(&config), [Path::new("p/dist/a.wasm")]);
    }
}
