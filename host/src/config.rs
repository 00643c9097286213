//! The configuration file: raw YAML in, a validated [`Config`] out, in one step.
//!
//! Nothing behind this module asks again whether a value is there or makes sense. What is wrong is reported
//! all at once, by key path, because an operator who is told one mistake at a time tries as often as there
//! are mistakes.

mod authentication;
mod candidate;
mod directory;
mod everybody;
mod exception;
mod limit;
mod origin;
mod plugin;
mod policy;
pub(crate) mod problem;
mod quantity;
pub(crate) mod read;
mod registry;
mod rule;
mod salvage;
mod selector;
mod server;
#[cfg(test)]
mod tests;
mod written;
pub(crate) mod yaml;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use authentication::{Authentication, ClientCertificate};
pub(crate) use everybody::{is_of_namespace, why_everybody};
pub use exception::Exception;
pub use limit::{LIMITS, Limit, Limits, Unit};
pub use origin::Origin;
pub use plugin::{
    Capability, FailurePolicy, Mode, PluginConfig, PluginName, PluginNameError, Source,
};
pub(crate) use plugin::{Defaults, is_label};
pub use policy::{Conflicts, ExistingViolations, ReinvocationPolicy};
pub use problem::{ConfigError, Problem, Problems};
pub use quantity::{DurationError, format_bytes, format_count, format_duration, parse_go_duration};
pub use registry::{Reference, ReferenceError, Registries, RegistryHost};
pub use rule::{ManifestRule, Match, Rule};
pub(crate) use rule::{Operations, Pattern, ResourcePattern, Scope};
pub use salvage::cache_directories;
pub use selector::LabelSelector;
pub(crate) use selector::LabelTest;
pub use server::{DecisionLimits, EngineConfig, Margin, Requests, SelfSigned, ServiceName, Tls};

use problem::Collector;
use read::Node;
pub(crate) use written::Written;
pub(crate) use yaml::folder_of;

/// Everything that the host has to know, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where kube-apiserver connects to, over TLS.
    pub listen: SocketAddr,
    /// Where people and probes connect to, in the clear.
    pub admin_listen: SocketAddr,
    /// How many decisions are kept for those who ask afterwards.
    pub decisions: DecisionLimits,
    /// Where the certificate comes from.
    pub tls: Tls,
    /// What a client has to show.
    pub authentication: Authentication,
    /// How requests are treated.
    pub requests: Requests,
    /// What the engine may use.
    pub engine: EngineConfig,
    /// How registries are spoken to.
    pub registries: Registries,
    /// How long a start waits for plugins without which requests are denied.
    pub startup_grace: Duration,
    /// The plugins, in the order in which mutators run.
    pub plugins: Vec<PluginConfig>,
    /// The candidates of some of them, which see what these see and decide nothing.
    pub candidates: Vec<PluginConfig>,
    /// The file as it was written, without its plugins.
    pub(crate) written: Written,
}

// === impl Config ===

impl Config {
    /// Reads a configuration file; relative paths in it start at its folder.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or all that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Read {
            what: "configuration file",
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        // One byte more than allowed tells a long file from one that just fits.
        let file = File::open(path).map_err(unreadable)?;
        file.take(yaml::LONGEST_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        let invalid = |problems| ConfigError::Invalid {
            origin: path.display().to_string(),
            problems,
        };
        if bytes.len() as u64 > yaml::LONGEST_FILE_BYTES {
            let longest = format_bytes(yaml::LONGEST_FILE_BYTES);
            return Err(invalid(Problems::one(
                "",
                format!("the file is longer than {longest}"),
            )));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            invalid(Problems::one(
                "",
                format!("the file is not UTF-8 text, from byte {at} on"),
            ))
        })?;
        resolve(&text, yaml::folder_of(path)).map_err(invalid)
    }

    /// The sections that differ and that a running server cannot change, by their keys.
    #[must_use]
    pub fn needs_restart(&self, running: &Self) -> Vec<&'static str> {
        [
            ("listen", self.listen != running.listen),
            ("admin.listen", self.admin_listen != running.admin_listen),
            ("admin.decisions", self.decisions != running.decisions),
            ("tls", self.tls != running.tls),
            (
                "authentication",
                self.authentication != running.authentication,
            ),
            ("requests", self.requests != running.requests),
            ("engine", self.engine != running.engine),
            ("registries", self.registries != running.registries),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
    }

    /// Takes everything that is to be loaded out of it: the plugins, and then the candidates.
    #[must_use]
    pub fn take_plugins(&mut self) -> Vec<PluginConfig> {
        let mut plugins = std::mem::take(&mut self.plugins);
        plugins.append(&mut self.candidates);
        plugins
    }

    /// Reads the text of a configuration file that stands in `folder`.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        resolve(text, folder).map_err(|problems| ConfigError::Invalid {
            origin: "configuration".to_owned(),
            problems,
        })
    }

    /// Makes a plugin with every default of each `*.wasm` file in a folder, in the order of their names.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read, has no such file, or has one whose name cannot name a plugin.
    pub fn for_directory(directory: &Path) -> Result<Self, ConfigError> {
        let plugins = directory::plugins(directory)?;
        // The folder of the plugins may be read-only, so what is written goes to the working directory.
        let mut config = Self::parse("allowEmpty: true", Path::new("."))?;
        config.plugins = plugins;
        Ok(config)
    }
}

fn resolve(text: &str, folder: &Path) -> Result<Config, Problems> {
    let problems = Collector::default();
    let document = if yaml::is_blank(text) {
        Some(Value::Object(serde_json::Map::new()))
    } else {
        yaml::read(text, &problems)
    };
    let config = document.and_then(|document| read_config(&document, folder, &problems));
    problems.finish(config)
}

fn read_config(document: &Value, folder: &Path, problems: &Collector) -> Option<Config> {
    let mut fields = Node::root(document, problems).object()?;
    let (listen, admin_listen, decisions) = server::read_listen(&mut fields);
    let tls = Tls::read(&mut fields, folder);
    let authentication = Authentication::read(&mut fields, folder);
    let requests = Requests::read(&mut fields);
    let engine = EngineConfig::read(&mut fields, folder);
    let registries = Registries::read(&mut fields, folder);
    let startup_grace = fields.duration(
        &limit::STARTUP_GRACE,
        limit::STARTUP_GRACE.default_duration(),
    );
    let max_calls = engine.max_concurrent_calls;
    let limits = Limits::read(fields.section("limits"), &Limits::default(), max_calls);
    let conflicts = fields
        .optional("conflicts")
        .and_then(|node| node.word(Conflicts::WORDS))
        .unwrap_or_default();
    let defaults = Defaults {
        limits,
        conflicts,
        signature_keys: plugin::read_keys(fields.section("signatures"), folder, &[]),
        log_identities: read_log_identities(fields.section("log")),
    };
    let allow_empty = fields
        .optional("allowEmpty")
        .and_then(|node| node.boolean())
        .unwrap_or(false);
    let expected = "a list of plugins; write allowEmpty: true to run without any";
    let nodes = if allow_empty {
        fields.optional("plugins")
    } else {
        fields.required("plugins", expected)
    };
    let nodes = nodes.and_then(|node| {
        let nodes = node.elements("plugins")?;
        if nodes.is_empty() && !allow_empty {
            node.reject(expected);
        }
        Some(nodes)
    });
    let nodes = nodes.unwrap_or_default();
    let mut first = BTreeMap::new();
    let mut plugins = Vec::with_capacity(nodes.len());
    let mut candidates = Vec::new();
    for node in &nodes {
        reject_duplicate_name(node, &mut first, problems);
        let written = Written::of_entry(node.value(), document);
        let read = PluginConfig::read(node, folder, &defaults, max_calls, problems);
        if let Some((plugin, candidate)) = read {
            let plugin = plugin.written_as(&written);
            let candidate = candidate.map(|candidate| candidate.written_as(&written));
            plugins.push(plugin);
            candidates.extend(candidate);
        }
    }
    fields.finish();
    Some(Config {
        listen,
        admin_listen,
        decisions,
        tls,
        authentication,
        requests,
        engine,
        registries,
        startup_grace,
        plugins,
        candidates,
        written: Written::of_file(document),
    })
}

/// Whether log records name objects and users.
fn read_log_identities(mut fields: read::Fields<'_>) -> bool {
    let identities = fields
        .optional("identities")
        .and_then(|node| node.boolean());
    fields.finish();
    identities.unwrap_or(true)
}

/// Compares names as they are given, so that a name that is wrong otherwise is compared too.
fn reject_duplicate_name<'a>(
    node: &Node<'a>,
    first: &mut BTreeMap<&'a str, String>,
    problems: &Collector,
) {
    let Some(name) = node.value().get("name").and_then(Value::as_str) else {
        return;
    };
    match first.get(name) {
        Some(earlier) => problems.add(
            format!("{}.name", node.path()),
            format!(
                "got {}, which is the name of {earlier} already",
                read::quoted(name)
            ),
        ),
        None => {
            first.insert(name, node.path().to_owned());
        }
    }
}
