//! The configuration file: raw YAML in, a validated [`Config`] out, in one step.
//!
//! Code outside this module does not check again whether a value exists or makes sense. All problems are reported at
//! once, by key path. An operator who sees one problem at a time has to try again for each of them.

mod access;
mod authentication;
mod cluster;
pub mod condition;
pub mod deadline;
mod directory;
mod entry;
mod everybody;
mod exception;
pub mod file;
mod grants;
mod group;
mod images;
pub mod kubernetes;
mod limit;
mod listener;
pub mod lookup;
pub mod matching;
mod origin;
mod plugin;
mod policy;
pub mod problem;
mod quantity;
pub mod read;
mod record;
mod registry;
mod rollout;
mod rule;
mod salvage;
mod scan;
pub mod schema;
mod selector;
mod server;
mod serving;
mod shadow;
mod signature;
pub mod stamp;
mod startup;
mod telemetry;
mod tenancy;
#[cfg(test)]
mod tests;
mod written;
pub mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

pub use access::Access;
pub use authentication::{Authentication, ClientCertificate, TokenReview};
pub use cluster::{Cluster, ClusterRegistration};
pub use everybody::{is_of_namespace, why_everybody};
pub use exception::{Exception, SharedException};
pub use group::{
    Group, GroupExpression, GroupStep, MOST_MEMBERS, MemberVerdict, entries, together,
};
pub use images::{ImageNameError, ImageRefusal, Images};
pub use limit::{LIMITS, Limit, Limits, Unit};
pub use listener::Admin;
pub use origin::Origin;
pub use plugin::{
    Capability, FailurePolicy, Mode, PluginConfig, PluginName, PluginNameError, Source,
};
pub use plugin::{Defaults, is_label};
pub use policy::{Conflicts, ExistingViolations, ReinvocationPolicy};
pub use problem::{ConfigError, Problem, Problems};
pub use quantity::{DurationError, format_bytes, format_count, format_duration, parse_go_duration};
pub use record::Record;
pub use registry::{Reference, ReferenceError, Registries, RegistryHost};
pub use rollout::{OnFailure, Rollout, RolloutGates, RolloutStep, Share, StepMode};
pub use rule::{ManifestRule, Match, Rule};
pub use rule::{Operations, Pattern, ResourcePattern, Scope};
pub use salvage::cache_directories;
pub use scan::{ReportFormat, Scan, ScannedResources};
pub use selector::LabelSelector;
pub use selector::{LabelTest, Requirement};
pub use server::{DecisionLimits, EngineConfig, Margin, Requests, SelfSigned, ServiceName, Tls};
pub use serving::{Serving, ServingPlugin, ServingState};
pub use signature::{
    Attestations, Provenance, SignaturePolicy, SignatureRequirement, Signatures, Signer,
    SignerProof, TextPattern, TrustedRoot, TufSource, Version,
};
pub use startup::{PeerAddress, Startup};
pub use telemetry::{CollectorConfig, CollectorHeader, DecisionExport, Telemetry, TraceExport};
pub use tenancy::{SettingsSource, Tenancy, TenantBudget, TenantRefusal};

use listener::Listeners;
use read::Node;
pub use written::Written;
pub use yaml::folder_of;

/// The configuration of the host, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address that kube-apiserver connects to, over TLS.
    pub listen: SocketAddr,
    /// The admin listener.
    pub admin: Admin,
    /// Address that kubelet and Prometheus connect to, without TLS.
    pub probes_listen: SocketAddr,
    /// Limits for the decisions that are kept for later questions.
    pub decisions: DecisionLimits,
    /// The source of the server's certificate.
    pub tls: Tls,
    /// The authentication of clients.
    pub authentication: Authentication,
    /// The handling of requests.
    pub requests: Requests,
    /// The resources that the engine may use.
    pub engine: EngineConfig,
    /// The access to registries.
    pub registries: Registries,
    /// The behaviour of a start while required plugins cannot be loaded.
    pub startup: Startup,
    /// The recording of reviews. None if they are not recorded.
    pub record: Option<Record>,
    /// The export of traces and decisions.
    pub telemetry: Telemetry,
    /// The use of the cluster that the server runs in.
    pub cluster: Cluster,
    /// The background scan. None if it is off.
    pub scan: Option<Scan>,
    /// The permissions of plugins of namespaces. None if namespaces may not have plugins.
    pub tenancy: Option<Tenancy>,
    /// The plugins, in the order in which mutators run. Each member of a group is one; [`entries`] puts them together.
    pub plugins: Vec<PluginConfig>,
    /// The shadow versions of some plugins. They see the same requests and decide nothing.
    pub shadows: Vec<PluginConfig>,
    /// Names of custom resources that are not valid and have no earlier version that could serve. Requests to their
    /// plugins are not allowed as if nobody wanted the plugins.
    pub refused: BTreeSet<String>,
    /// The file as it was written, without its plugins.
    pub(crate) written: Written,
}

// === impl Config ===

impl Config {
    /// Reads a configuration file. Relative paths in it start at the file's folder.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or the list of all problems in it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, true)
    }

    /// Like [`Config::load`], for what works with artifacts only: the file need not name plugins.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or the list of all problems in it.
    pub fn load_without_plugins(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, false)
    }

    fn load_with(path: &Path, needs_plugins: bool) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Read {
            what: "configuration file",
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        // Reading one byte more than allowed tells a file that is too long from one that just fits.
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
        resolve(&text, yaml::folder_of(path), needs_plugins).map_err(invalid)
    }

    /// Returns the keys of the sections that differ from the running configuration and need a restart.
    #[must_use]
    pub fn needs_restart(&self, running: &Self) -> Vec<&'static str> {
        [
            ("listen", self.listen != running.listen),
            ("admin.listen", self.admin.listen != running.admin.listen),
            (
                "admin.authentication",
                self.admin.authentication != running.admin.authentication,
            ),
            ("admin.hosts", self.admin.hosts != running.admin.hosts),
            ("probes.listen", self.probes_listen != running.probes_listen),
            ("admin.decisions", self.decisions != running.decisions),
            ("tls", self.tls != running.tls),
            (
                "authentication",
                self.authentication != running.authentication,
            ),
            ("requests", self.requests != running.requests),
            ("engine", self.engine != running.engine),
            ("registries", self.registries != running.registries),
            ("startupGrace", self.startup.grace != running.startup.grace),
            ("startupPeers", self.startup.peers != running.startup.peers),
            ("record", self.record != running.record),
            ("telemetry", self.telemetry != running.telemetry),
            ("cluster", self.cluster != running.cluster),
            ("scan", self.scan != running.scan),
            (
                "tenancy",
                self.tenancy.is_some() != running.tenancy.is_some(),
            ),
            (
                "tenancy.budget",
                self.tenancy
                    .as_ref()
                    .zip(running.tenancy.as_ref())
                    .is_some_and(|(one, other)| one.budget != other.budget),
            ),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
    }

    /// Removes and returns everything that has to be loaded: the plugins, then the shadow versions.
    #[must_use]
    pub fn take_plugins(&mut self) -> Vec<PluginConfig> {
        let mut plugins = std::mem::take(&mut self.plugins);
        plugins.append(&mut self.shadows);
        plugins
    }

    /// Reads the text of a configuration file. Relative paths in it start at `folder`.
    ///
    /// # Errors
    ///
    /// The list of all problems in the text.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        resolve(text, folder, true).map_err(|problems| ConfigError::Invalid {
            origin: "configuration".to_owned(),
            problems,
        })
    }

    /// Creates a configuration with a plugin for each `*.wasm` file in a folder, in the order of their names. All other
    /// values are defaults.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read, has no such file, or has a file whose name cannot name a plugin.
    pub fn for_directory(directory: &Path) -> Result<Self, ConfigError> {
        let plugins = directory::plugins(directory)?;
        // The plugins' folder may be read-only, so the host writes its own files to the working directory.
        let mut config = Self::parse("allowEmpty: true", Path::new("."))?;
        config.plugins = plugins;
        Ok(config)
    }
}

fn resolve(text: &str, folder: &Path, needs_plugins: bool) -> Result<Config, Problems> {
    let problems = problem::Collector::default();
    let document = if yaml::is_blank(text) {
        Some(Value::Object(serde_json::Map::new()))
    } else {
        yaml::read(text, &problems)
    };
    let config =
        document.and_then(|document| read_config(&document, folder, needs_plugins, &problems));
    problems.finish(config)
}

fn read_config(
    document: &Value,
    folder: &Path,
    needs_plugins: bool,
    problems: &problem::Collector,
) -> Option<Config> {
    let mut fields = Node::root(document, problems).object()?;
    let listeners = Listeners::read(&mut fields, folder);
    let tls = Tls::read(&mut fields, folder);
    let authentication = Authentication::read(&mut fields, folder);
    let requests = Requests::read(&mut fields);
    let engine = EngineConfig::read(&mut fields, folder);
    let registries = Registries::read(&mut fields, folder);
    let startup = Startup::read(&mut fields);
    let record = record::read_record(&mut fields, folder, problems);
    let telemetry = Telemetry::read(&mut fields, folder);
    let cluster = Cluster::read(&mut fields);
    let scan = scan::read_scan(&mut fields, &cluster, problems);
    let admin = listeners.admin.authentication.as_ref();
    if !cluster.enabled && admin.is_some_and(|settings| settings.token_review.is_some()) {
        problems.add(
            "admin.authentication.tokenReview".to_owned(),
            "needs cluster.enabled: true, because kube-apiserver verifies the tokens",
        );
    }
    let max_calls = engine.max_concurrent_calls;
    let cache = registries.cache_directory.as_deref();
    let defaults = read_defaults(&mut fields, folder, max_calls, cache);
    let tenancy = Tenancy::read(&mut fields, folder, &cluster, &engine, &defaults);
    let allow_empty = fields
        .optional("allowEmpty")
        .and_then(|node| node.boolean())
        .unwrap_or(false);
    // Custom resources can bring the plugins.
    let allow_empty = allow_empty || cluster.enabled || !needs_plugins;
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
    let mut shadows = Vec::new();
    for node in &nodes {
        reject_duplicate_name(node, &mut first, problems);
        let written = Written::of_entry(node.value(), document);
        let read = PluginConfig::read(node, folder, &defaults, max_calls, problems);
        if let Some((read, shadow)) = read {
            let has_rollout = read.iter().any(|plugin| plugin.rollout.is_some());
            if has_rollout && registries.cache_directory.is_none() {
                problems.add(
                    format!("{}.rollout", node.path()),
                    "needs registries.cacheDirectory, which keeps the state of the rollout over a restart",
                );
            }
            let read = read.into_iter();
            plugins.extend(read.map(|plugin| plugin.written_as(&written)));
            shadows.extend(shadow.map(|shadow| shadow.written_as(&written)));
        }
    }
    fields.finish();
    Some(Config {
        listen: listeners.listen,
        admin: listeners.admin,
        probes_listen: listeners.probes,
        decisions: listeners.decisions,
        tls,
        authentication,
        requests,
        engine,
        registries,
        startup,
        record,
        telemetry,
        cluster,
        scan,
        tenancy,
        plugins,
        shadows,
        refused: BTreeSet::new(),
        written: Written::of_file(document),
    })
}

/// Reads the values that entries take from the file. `cache` is the folder for pulled artifacts.
fn read_defaults(
    fields: &mut read::Fields<'_>,
    folder: &Path,
    max_calls: u32,
    cache: Option<&Path>,
) -> Defaults {
    Defaults {
        limits: Limits::read(fields.section("limits"), &Limits::default(), max_calls),
        conflicts: fields
            .optional("conflicts")
            .and_then(|node| node.word(Conflicts::WORDS))
            .unwrap_or_default(),
        signatures: Signatures::read(
            fields.section("signatures"),
            folder,
            &Signatures::kept_in(cache),
        ),
        log_identities: read_log_identities(fields.section("log")),
    }
}

/// Reads whether log records name objects and users.
fn read_log_identities(mut fields: read::Fields<'_>) -> bool {
    let identities = fields
        .optional("identities")
        .and_then(|node| node.boolean());
    fields.finish();
    identities.unwrap_or(true)
}

/// Compares names as written, so that a name with another problem is compared too.
fn reject_duplicate_name<'a>(
    node: &Node<'a>,
    first: &mut BTreeMap<&'a str, String>,
    problems: &problem::Collector,
) {
    let Some(name) = node.value().get("name").and_then(Value::as_str) else {
        return;
    };
    match first.get(name) {
        Some(earlier) => problems.add(
            format!("{}.name", node.path()),
            format!(
                "got {}, which is already the name of {earlier}",
                read::quoted(name)
            ),
        ),
        None => {
            first.insert(name, node.path().to_owned());
        }
    }
}
