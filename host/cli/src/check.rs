//! `tollgate check`

mod access;
mod images;
mod lookups;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Args;
use tollgate::FolderError;
use tollgate::setup::{Folder, Options, Setup, check_folder};
use tollgate_admission::chain;
use tollgate_config::kubernetes::{Finding, check_rules};
use tollgate_config::{
    CollectorConfig, Config, Exception, FailurePolicy, Mode, PluginConfig, TufSource, entries,
    why_everybody,
};
use tollgate_engine::ConfiguredBy;
use tollgate_gate::plugin::{Group, Plugin, PluginState};
use tollgate_otlp::SendError;
use tollgate_server::{Inspected, inspect};

use super::inspect::schema_lines;
use super::terminal::say;
use super::{FAILURE, Origin};
use crate::custom_resources::{ResourceFiles, refuse};

/// Check a configuration and everything that it names, as `serve` would load it.
#[derive(Args, Debug)]
pub(super) struct Check {
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    resources: ResourceFiles,
    /// Check only the configuration file, and skip everything that it names.
    #[arg(long)]
    no_plugins: bool,
    /// Skip the files of `tls`, `authentication` and `telemetry`, for files that are not on this machine.
    #[arg(long)]
    no_credentials: bool,
    /// File or folder with objects, such as `kubectl get ingresses -A -o json` prints them. Shows what lookups of them take.
    #[arg(long, value_name = "PATH")]
    objects: Option<PathBuf>,
}

// === impl Check ===

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let origin = self.origin.resolve()?;
        let (config, refused) = self.resources.merge(origin.load()?, &origin)?;
        let code = self.examine(config)?;
        refuse(refused)?;
        Ok(code)
    }

    fn examine(self, mut config: Config) -> anyhow::Result<ExitCode> {
        let plugins = std::mem::take(&mut config.plugins);
        say!(
            "configuration: valid, {} plugin(s)",
            entries(&plugins).len()
        );
        let mut failed = false;
        if self.no_plugins {
            for plugin in &plugins {
                let plan = super::rollout::plan(plugin);
                if !plan.is_empty() {
                    say!("{}:{plan}", plugin.name);
                }
                let findings = plugin
                    .matching
                    .as_ref()
                    .map(|matching| check_rules(matching, true));
                for finding in findings.unwrap_or_default() {
                    failed |= finding.is_certain;
                    say!("{}:{}", plugin.name, rule(&finding));
                }
                for (line, is_certain) in lookups::mistakes(plugin) {
                    failed |= is_certain;
                    say!("{}:{line}", plugin.name);
                }
            }
            return Ok(exit_code(failed));
        }
        if !self.no_credentials {
            let admin = config.admin.authentication.as_ref();
            for inspected in inspect(&config.tls, &config.authentication, admin) {
                failed |= inspected.result.is_err();
                say!("{}", credentials(inspected));
            }
        }
        if !self.no_credentials {
            for (setting, export) in config.telemetry.collectors() {
                let checked = tollgate_otlp::check(export);
                failed |= checked.is_err();
                say!("{setting}: {}", collector(export, checked));
            }
        }
        say!("startup: {}", config.startup);
        config.plugins = plugins;
        // A folder that is not usable is left out of the configuration, so that the rest can still be checked. `check`
        // creates the folder for compiled code, because `serve` then finds the code there. It creates no other folder,
        // and none for another user: `serve` would refuse it.
        for (setting, folder, is_created) in [
            (
                "engine.cacheDirectory",
                &mut config.engine.cache_directory,
                true,
            ),
            (
                "registries.cacheDirectory",
                &mut config.registries.cache_directory,
                false,
            ),
        ] {
            let Some(path) = folder.clone() else {
                continue;
            };
            let checked = check_folder(&path);
            failed |= checked.is_err();
            let is_created = is_created && matches!(checked, Ok(Folder::Missing { is_own: true }));
            if !is_created && !matches!(checked, Ok(Folder::Exists)) {
                *folder = None;
            }
            say!("{}", cache(setting, &path, checked, is_created));
        }
        if let Some(record) = &config.record {
            let (line, is_usable) = recording(&record.directory);
            failed |= !is_usable;
            say!("record.directory: {line}");
        }
        let objects = self.objects.as_deref();
        let options = Options {
            tables: objects.map(super::objects::read).transpose()?,
            ..Options::default()
        };
        let setup = Setup::new(&config, &options)?;
        let roles = lookups::roles(&config.plugins);
        let role_of_access = access::role(&config.plugins);
        let roles_of_images = images::roles(&config.plugins);
        let plugins = config.take_plugins();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        for line in runtime.block_on(trusted_roots(&setup, &plugins)) {
            match line {
                Ok(root) => say!("signatures.tuf: ok, {root}"),
                Err(reason) => {
                    failed = true;
                    say!("signatures.tuf: NO TRUSTED ROOT: {reason}");
                }
            }
        }
        let set = runtime.block_on(setup.loader.load_all(plugins));
        let mut with_schema = BTreeSet::new();
        for plugin in set.all() {
            failed |= matches!(plugin.state, PluginState::Failed { .. });
            say!("{}", line(plugin));
            let members = plugin.group.iter().flat_map(|group| &group.members);
            for part in std::iter::once(plugin).chain(members) {
                for line in settings(part, &mut with_schema) {
                    say!("{line}");
                }
                for line in lookups::lines(part, self.objects.is_some()) {
                    say!("{line}");
                }
                for (line, is_certain) in lookups::mistakes(&part.config) {
                    failed |= is_certain;
                    say!("{line}");
                }
            }
            for finding in rules(plugin) {
                failed |= finding.is_certain;
                say!("{}", rule(&finding));
            }
        }
        if let Some(roles) = roles {
            say!(
                "lookups need these roles, bound to Tollgate's ServiceAccount. Tollgate does not create them:"
            );
            for line in roles.lines() {
                say!("  {line}");
            }
        }
        if let Some(role) = role_of_access {
            say!(
                "plugins that ask what users may do need this role, bound to Tollgate's ServiceAccount. Tollgate does not \
                 create it; the chart does, with access.enabled:"
            );
            for line in role.lines() {
                say!("  {line}");
            }
        }
        if let Some(roles) = roles_of_images {
            say!(
                "plugins that verify images with the imagePullSecrets of Pods need these roles, bound to Tollgate's \
                 ServiceAccount. Tollgate does not create them; the chart does, with images.pullSecretNamespaces:"
            );
            for line in roles.lines() {
                say!("  {line}");
            }
        }
        Ok(exit_code(failed))
    }
}

/// Refreshes the trusted roots of TUF repositories. Returns each root in use, or the reason why there is none.
async fn trusted_roots(setup: &Setup, plugins: &[PluginConfig]) -> Vec<Result<String, String>> {
    let mut sources: Vec<Arc<TufSource>> = Vec::new();
    let enabled = plugins.iter().filter(|plugin| plugin.enabled);
    for source in enabled.flat_map(PluginConfig::tuf_sources) {
        if !sources.contains(source) {
            sources.push(source.clone());
        }
    }
    let reports = setup.loader.roots().refresh(&sources).await;
    reports.into_iter().map(|report| report.in_use).collect()
}

fn exit_code(failed: bool) -> ExitCode {
    if failed {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Returns the settings schema of a plugin, unless it was shown for another plugin with the same file.
fn settings<'p>(plugin: &'p Plugin, shown: &mut BTreeSet<&'p str>) -> Vec<String> {
    let (PluginState::Loaded(loaded), Some(digest)) = (&plugin.state, plugin.digest.as_deref())
    else {
        return Vec::new();
    };
    let schema = schema_lines(&loaded.manifest);
    if schema.is_empty() || !shown.insert(digest) {
        return Vec::new();
    }
    let version = &loaded.manifest.version;
    let title = format!("  settings of {}, version {version}:", loaded.manifest.name);
    let schema = schema.iter().map(|line| format!("    {line}"));
    std::iter::once(title).chain(schema).collect()
}

/// Returns the rules of a plugin that match nothing.
fn rules(plugin: &Plugin) -> Vec<Finding> {
    let configured = plugin.config.matching.as_ref();
    let matching = match &plugin.state {
        PluginState::Loaded(loaded) => Some(&loaded.matching),
        PluginState::Failed { .. } | PluginState::Disabled => configured,
    };
    let findings = matching.map(|matching| check_rules(matching, configured.is_some()));
    findings.unwrap_or_default()
}

fn rule(finding: &Finding) -> String {
    if finding.is_certain {
        format!("  RULE MATCHES NOTHING: {finding}")
    } else {
        format!("  warning: {finding}")
    }
}

fn cache(
    setting: &str,
    path: &Path,
    checked: Result<Folder, FolderError>,
    is_created: bool,
) -> String {
    let path = path.display();
    match checked {
        Ok(Folder::Exists) => format!("{setting}: ok, {path}"),
        Ok(Folder::Missing { .. }) if is_created => {
            format!("{setting}: ok, created {path}; `serve` uses the compiled code in it")
        }
        Ok(Folder::Missing { .. }) => {
            format!("{setting}: ok, {path} does not exist yet; `serve` creates it")
        }
        Err(error) => {
            format!(
                "{setting}: NOT USABLE: {path}: {}\n  `serve` does not start with it",
                chain(&error)
            )
        }
    }
}

/// Says whether the files of an export can be used.
fn collector(export: &CollectorConfig, checked: Result<(), SendError>) -> String {
    let endpoint = &export.endpoint;
    match checked {
        Ok(()) => format!("ok, {endpoint}"),
        Err(error) => format!(
            "NOT USABLE: {endpoint}: {}\n  `serve` starts, and exports nothing there until the file can be used; if the \
             files are on another machine, skip this check with --no-credentials",
            chain(&error)
        ),
    }
}

/// Says whether the folder of a recording can be used.
fn recording(path: &Path) -> (String, bool) {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => (format!("ok, {shown}"), true),
        Ok(_) => (format!("NOT USABLE: {shown} is not a folder"), false),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (
            format!("ok, {shown} does not exist yet; `serve` creates it"),
            true,
        ),
        Err(error) => (format!("NOT USABLE: {shown}: {error}"), false),
    }
}

fn credentials(inspected: Inspected) -> String {
    let setting = inspected.setting;
    match inspected.result {
        Ok(usable) => {
            let warnings = usable
                .warnings
                .iter()
                .map(|warning| format!("\n  warning: {warning}"));
            format!(
                "{setting}: ok, {}{}",
                usable.description,
                warnings.collect::<String>()
            )
        }
        Err(error) => format!(
            "{setting}: NOT USABLE: {}\n  {}; if the files are on another machine, skip this check with \
             --no-credentials",
            chain(&error),
            error.consequence()
        ),
    }
}

/// Lists the excluded groups that callers belong to automatically, with the reason.
fn left_out(config: &PluginConfig) -> impl Iterator<Item = (&str, &'static str)> {
    let groups = config
        .matching
        .iter()
        .flat_map(|matching| matching.excluded_groups());
    groups.filter_map(|group| Some((group, why_everybody(group)?)))
}

/// Describes a group: its expression, its members, and members that are meant for other requests than the rest.
fn of_group(group: &Group) -> String {
    let definition = &group.definition;
    let mut text = format!("group, allows {}", definition.expression.text());
    let own = |member: &Plugin| match &member.state {
        PluginState::Loaded(loaded) => Some(loaded.matching.clone()),
        PluginState::Failed { .. } | PluginState::Disabled => None,
    };
    let first = group.members.first().and_then(|member| own(member));
    for (name, member) in definition.members.iter().zip(&group.members) {
        let PluginState::Loaded(loaded) = &member.state else {
            continue;
        };
        let version = &loaded.manifest.version;
        let digest = member.digest.as_deref().unwrap_or_default();
        text.push_str(&format!("\n  {name}: version {version}, {digest}"));
        if member.config.matching.is_none() && Some(&loaded.matching) != first.as_ref() {
            text.push_str(
                "\n    warning: its own rules differ from those of the first member, and the group asks it about all \
                 requests that any member has a rule for: write `match` into the group",
            );
        }
    }
    text
}

fn expired(plugin: &Plugin) -> impl Iterator<Item = &Exception> {
    let now = SystemTime::now();
    let exceptions = plugin.config.exceptions.iter();
    exceptions.filter(move |exception| !exception.is_active(now))
}

fn line(plugin: &Plugin) -> String {
    let name = &plugin.config.name;
    match &plugin.state {
        PluginState::Disabled => format!("{name}: disabled, not loaded"),
        PluginState::Failed { reason } => {
            let mut line = format!(
                "{name}: NOT LOADED ({}): {reason}",
                plugin.config.source_in_words()
            );
            if plugin.config.matching.is_none()
                && plugin.config.failure_policy == FailurePolicy::Fail
            {
                line.push_str(
                    "\n  it has no `match`, so until it is loaded it applies to every request, and failurePolicy \
                     Fail denies all of them",
                );
            }
            line
        }
        PluginState::Loaded(loaded) => {
            let interfaces = loaded.interfaces();
            let does = match (interfaces.mutating, interfaces.validating) {
                (true, true) => "mutates and validates",
                (true, false) => "mutates",
                _ => "validates",
            };
            let version = &loaded.manifest.version;
            let digest = plugin.digest.as_deref().unwrap_or_default();
            let mut line = match &plugin.group {
                None => format!("{name}: ok, version {version}, {does}, {digest}"),
                Some(group) => format!("{name}: ok, {}", of_group(group)),
            };
            let configured = loaded.guest.as_ref().map(|guest| guest.configured());
            if let Some(ConfiguredBy::EachCall { reason, .. }) = configured {
                line.push_str(&format!("\n  configured again in every call: {reason}"));
            }
            let config = &plugin.config;
            line.push_str(&super::rollout::plan(config));
            let enforces = interfaces.validating && config.mode == Mode::Enforce;
            if enforces && config.failure_policy == FailurePolicy::Ignore {
                line.push_str(
                    "\n  warning: it validates under failurePolicy Ignore, so a user who can make it fail bypasses \
                     it, for example with an object that uses up limits.fuel or limits.cpuTime",
                );
            }
            if loaded.matching.needs_namespace() {
                line.push_str(
                    "\n  needs the namespaces of the cluster (namespaceSelector or namespaceObject): without a source of \
                     namespaces, its requests end as the fault namespace-unavailable",
                );
            }
            let selector = &loaded.matching.object_selector;
            if enforces && !selector.requirements.is_empty() {
                line.push_str(&format!(
                    "\n  warning: it validates only objects with certain labels ({selector}), so a user who may \
                     write an object can choose labels that bypass it"
                ));
            }
            for (group, why) in left_out(config).filter(|_| enforces) {
                line.push_str(&format!(
                    "\n  warning: match.excludeGroups contains {group}, and {why}: their requests bypass it"
                ));
            }
            for exception in expired(plugin) {
                line.push_str(&format!(
                    "\n  warning: an exception has expired and has no effect: {exception}"
                ));
            }
            line
        }
    }
}
