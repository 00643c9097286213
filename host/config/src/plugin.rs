//! An entry under `plugins`: its source, its settings, and the effect of its answers.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::access::Access;
use super::exception::Exception;
use super::grants::Grants;
use super::group::{Group, GroupKeys};
use super::images::Images;
use super::limit::Limits;
use super::lookup::Lookups;
use super::policy::{Conflicts, ExistingViolations, ReinvocationPolicy};
use super::problem::Collector;
use super::read::{Fields, Node, join};
use super::registry::Reference;
use super::rollout::Rollout;
use super::rule::Match;
use super::schema::Values;
use super::shadow::{Live, Shadow};
use super::signature::{Signatures, TufSource};
use super::written::Written;

/// The configuration of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConfig {
    /// The plugin's name, unique among the plugins.
    pub name: PluginName,
    /// Whether the plugin is loaded and called.
    pub enabled: bool,
    /// The source of the plugin's WebAssembly.
    pub source: Source,
    /// The signatures and attestations that the artifact must have before Tollgate loads it.
    pub signatures: Signatures,
    /// The requests that the plugin is called for. None means the rules from its own `describe`.
    pub matching: Option<Match>,
    /// A JSON object for the plugin's `configure`.
    pub settings: Value,
    /// The effect of the plugin's verdicts.
    pub mode: Mode,
    /// The effect of the plugin's faults.
    pub failure_policy: FailurePolicy,
    /// Whether the plugin is called again after a later plugin changed the object.
    pub reinvocation_policy: ReinvocationPolicy,
    /// The effect of changing a value that an earlier plugin wrote.
    pub conflicts: Conflicts,
    /// The effect of a denial that the old object would have caused too.
    pub existing_violations: ExistingViolations,
    /// Requests that the plugin is not called for until a given time.
    pub exceptions: Vec<Exception>,
    /// The plugin's limits.
    pub limits: Limits,
    /// The imports that the plugin may use in addition to the contract.
    pub capabilities: BTreeSet<Capability>,
    /// What the plugin may ask about the rights of users. Counts only with the capability `access`.
    pub access: Access,
    /// The images that the plugin may have verified. None means none. Counts only with the capability `images`.
    pub images: Option<Arc<Images>>,
    /// The objects of the cluster that the plugin may see. Lookups grant the capability `cluster`.
    pub lookups: Lookups,
    /// Whether the plugin may return a whole object that lacks fields of the given object.
    pub allow_removals: bool,
    /// Whether a `PluginException` of another namespace than the installation's counts for the plugin, in that namespace.
    pub allow_namespace_exceptions: bool,
    /// Whether log records name the object and the user of a request.
    pub log_identities: bool,
    /// Whether settings come from a Secret. Texts of the plugin about its settings are withheld then.
    pub secret_settings: bool,
    /// How a new version, or the mode `enforce`, takes effect. None if nothing is rolled out.
    pub rollout: Option<Arc<Rollout>>,
    /// The group that this is a member of, or the entry of.
    pub group: Option<Arc<Group>>,
    /// The members, if this is the entry of a group.
    pub parts: Vec<PluginConfig>,
    /// The entry as it was written. Comparisons ignore it.
    pub written: Written,
}

/// Values for plugins whose entries do not set them.
pub struct Defaults {
    pub(crate) limits: Limits,
    pub(crate) conflicts: Conflicts,
    pub(crate) signatures: Signatures,
    pub(crate) log_identities: bool,
}

/// The name of a plugin: a DNS-1123 label of at most 40 characters. Cloning is cheap.
///
/// The name becomes part of paths, metrics and audit annotation keys, which are limited to 63 characters. A shadow
/// version has the name of its plugin followed by `.shadow`, and a member of a group the name of the group followed by a
/// dot and its own. A plugin of a namespace, which an `AdmissionPlugin` desires, has the name of the namespace and a
/// slash before its own. The forms cannot be mistaken for each other, because a label has neither a dot nor a slash, and
/// no member is named `shadow`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginName(Arc<str>);

/// The error for text that cannot name a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a plugin's name has at most 40 characters of a-z, 0-9 and -, and begins and ends with a letter or digit"
)]
pub struct PluginNameError;

/// The source of a plugin's WebAssembly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file: a component, or a core module that can be turned into one.
    File(PathBuf),
    /// An artifact in a registry.
    Oci(Reference),
}

/// The effect of a plugin's verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Denials deny and mutations mutate.
    #[default]
    Enforce,
    /// Denials become warnings, and mutations have no effect.
    Warn,
    /// The plugin runs after the answer. Its verdicts are only counted and logged.
    Audit,
}

/// The effect of a plugin's faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// A fault denies the request.
    #[default]
    Fail,
    /// The plugin is skipped.
    Ignore,
}

/// An import that a plugin may use only if the configuration grants it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Capability {
    /// The time of day.
    Clock,
    /// Objects of the cluster.
    Cluster,
    /// The rights of users.
    Access,
    /// The signatures of container images.
    Images,
}

/// Suffix of a shadow version's name. No plugin's name contains a dot, so the suffix is unique.
const SHADOW: &str = ".shadow";
/// Between the names of a group and of its member.
const MEMBER: char = '.';
/// Between the namespace and the name of a namespace's plugin. No label contains it.
const TENANT: char = '/';
/// Maximum length of a name. A longer name would leave too little room in an annotation's key.
const LONGEST_NAME: usize = 40;
/// Maximum length of a namespace's name in Kubernetes.
const LONGEST_NAMESPACE: usize = 63;

const NAME_EXPECTED: &str =
    "a name of at most 40 characters of a-z, 0-9 and -, such as image-rewrite";
pub(super) const SOURCE_EXPECTED: &str = "file: and a path, such as file:./plugin.wasm, or oci:// and a reference with a tag or a digest, such as \
     oci://registry.example.com/policies/image-rewrite:1.4";

// === impl Defaults ===

impl Default for Defaults {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            conflicts: Conflicts::default(),
            signatures: Signatures::default(),
            log_identities: true,
        }
    }
}

// === impl PluginConfig ===

impl PluginConfig {
    /// Creates a plugin with every default.
    #[must_use]
    pub fn new(name: PluginName, source: Source) -> Self {
        let written = Written::of_source(&name, &source);
        Self {
            written,
            name,
            enabled: true,
            source,
            signatures: Signatures::default(),
            matching: None,
            settings: Value::Object(serde_json::Map::new()),
            mode: Mode::default(),
            failure_policy: FailurePolicy::default(),
            reinvocation_policy: ReinvocationPolicy::default(),
            conflicts: Conflicts::default(),
            existing_violations: ExistingViolations::default(),
            exceptions: Vec::new(),
            limits: Limits::default(),
            capabilities: BTreeSet::new(),
            access: Access::default(),
            images: None,
            lookups: Lookups::new(),
            allow_removals: false,
            allow_namespace_exceptions: false,
            log_identities: true,
            secret_settings: false,
            rollout: None,
            group: None,
            parts: Vec::new(),
        }
    }

    /// Returns the same configuration with another written form.
    pub(super) fn written_as(self, written: &Written) -> Self {
        Self {
            written: written.clone(),
            ..self
        }
    }

    /// Changes the mode.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.written = self.written.with("mode", mode.as_str().into());
    }

    /// Adds an exception after the plugin's own ones.
    ///
    /// The written form has no exceptions of a namespace: an entry cannot say that an exception is confined to one. A
    /// restart from the record is stricter until the resources are read.
    pub fn add_exception(&mut self, exception: Exception) {
        self.exceptions.push(exception);
        let all = self.exceptions.iter();
        let all = all.filter(|exception| exception.confined_to.is_none());
        let all = all.map(Exception::document);
        self.written = self.written.with("exceptions", all.collect());
    }

    /// Returns whether both configurations run the same code, given the same bytes. The remaining keys only control
    /// when the plugin is called and what its answer means.
    pub fn runs_like(&self, other: &Self) -> bool {
        self.enabled == other.enabled
            && self.source == other.source
            && self.signatures == other.signatures
            && self.settings == other.settings
            && self.limits == other.limits
            && self.capabilities == other.capabilities
            && self.access == other.access
            && self.images == other.images
            && self.lookups == other.lookups
    }

    /// Lists the TUF repositories that publish the trusted roots of the plugin and of the images that it may have
    /// verified.
    pub fn tuf_sources(&self) -> impl Iterator<Item = &Arc<TufSource>> {
        let images = self.images.iter().flat_map(|images| images.tuf_sources());
        self.signatures.tuf_sources().chain(images)
    }

    /// Returns whether this is a shadow version, which decides nothing.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.name.shadow_of().is_some()
    }

    /// Reads an entry: the plugin or the members of the group, and the plugin's shadow version if there is one.
    pub fn read(
        node: &Node<'_>,
        folder: &Path,
        defaults: &Defaults,
        max_concurrent_calls: u32,
        problems: &Collector,
    ) -> Option<(Vec<Self>, Option<Self>)> {
        let mut fields = node.object()?;
        let name = fields
            .required("name", NAME_EXPECTED)
            .and_then(|node| PluginName::read(&node));
        let group = fields.optional("group");
        let source = match group {
            Some(_) => fields.optional("source"),
            None => fields.required("source", SOURCE_EXPECTED),
        };
        let source = source.and_then(|node| Source::read(&node, folder));
        let signatures =
            Signatures::read_entry(&mut fields, source.as_ref(), folder, &defaults.signatures);
        let enabled = fields.optional("enabled").and_then(|node| node.boolean());
        let matching = fields
            .optional("match")
            .and_then(|node| Match::read(&node, problems));
        let settings = read_settings(&mut fields, problems);
        let mode = fields
            .optional("mode")
            .and_then(|node| node.word(Mode::WORDS));
        let failure_policy = fields
            .optional("failurePolicy")
            .and_then(|node| node.word(FailurePolicy::WORDS));
        let reinvocation_policy = fields
            .optional("reinvocationPolicy")
            .and_then(|node| node.word(ReinvocationPolicy::WORDS));
        let own_conflicts = fields
            .optional("conflicts")
            .and_then(|node| node.word(Conflicts::WORDS));
        let existing_violations = fields
            .optional("existingViolations")
            .and_then(|node| node.word(ExistingViolations::WORDS));
        let exceptions = fields
            .optional("exceptions")
            .and_then(|node| node.elements("exceptions"));
        let exceptions = exceptions.unwrap_or_default();
        let exceptions = exceptions.iter().filter_map(Exception::read).collect();
        let limits = Limits::read(
            fields.section("limits"),
            &defaults.limits,
            max_concurrent_calls,
        );
        let is_group = group.is_some();
        let group = group.and_then(|node| {
            GroupKeys::reject_others(&fields);
            GroupKeys::read(
                &node,
                folder,
                defaults,
                &limits,
                max_concurrent_calls,
                problems,
            )
        });
        let Grants {
            capabilities,
            lookups,
            access,
            images,
        } = Grants::read(&mut fields, folder, defaults.signatures.root(), problems);
        let allow_removals = fields
            .optional("allowRemovals")
            .and_then(|node| node.boolean());
        let allow_namespace_exceptions = fields
            .optional("allowNamespaceExceptions")
            .and_then(|node| node.boolean());
        let shadow = fields.optional("shadow").and_then(|node| {
            let live = Live::of(
                &limits,
                source.as_ref(),
                &signatures,
                defaults,
                &capabilities,
            );
            Shadow::read(&node, &live, folder, max_concurrent_calls, problems)
        });
        let mode = mode.unwrap_or_default();
        let rollout = fields.optional("rollout").and_then(|node| {
            let live = Live {
                source: source.clone(),
                ..Live::of(
                    &limits,
                    source.as_ref(),
                    &signatures,
                    defaults,
                    &capabilities,
                )
            };
            Rollout::read(&node, &live, mode, folder, max_concurrent_calls, problems)
        });
        if fields.has("shadow") && fields.has("rollout") {
            fields.problem(
                "rollout",
                "expected none beside `shadow`: a rollout compares its own version, in steps with mode: shadow",
            );
        }
        let (rollout, version) =
            rollout.map_or((None, None), |(plan, version)| (Some(plan), version));
        fields.finish();
        let source = match &group {
            Some(group) => group.first_source(),
            None => source.filter(|_| !is_group),
        };
        let mut plugin = Self {
            enabled: enabled.unwrap_or(true),
            signatures,
            matching,
            settings: settings.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            mode,
            failure_policy: failure_policy.unwrap_or_default(),
            reinvocation_policy: reinvocation_policy.unwrap_or_default(),
            conflicts: own_conflicts.unwrap_or(defaults.conflicts),
            existing_violations: existing_violations.unwrap_or_default(),
            exceptions,
            limits,
            capabilities,
            access,
            images,
            lookups,
            allow_removals: allow_removals.unwrap_or(false),
            allow_namespace_exceptions: allow_namespace_exceptions.unwrap_or(false),
            log_identities: defaults.log_identities,
            ..Self::new(name?, source?)
        };
        if let Some(group) = group {
            return Some((group.of(&plugin), None));
        }
        let shadow = shadow.or(version).map(|shadow| shadow.of(&plugin));
        plugin.rollout = rollout.map(|plan| {
            let to = shadow.clone().filter(|_| plan.is_version).map(Box::new);
            Arc::new(Rollout { to, ..plan })
        });
        Some((vec![plugin], shadow))
    }
}

/// Reads the settings, if there are any.
pub(super) fn read_settings(fields: &mut Fields<'_>, problems: &Collector) -> Option<Value> {
    let node = fields.optional("settings")?;
    // The message does not show the value, because settings may hold secrets.
    if node.members(Values::Any).is_none() {
        problems.add(
            node.path(),
            "expected an object; the plugin defines its keys",
        );
    }
    Some(node.value().clone()).filter(Value::is_object)
}

// === impl PluginName ===

impl PluginName {
    /// Returns the name's shared text.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Reads a name.
    ///
    /// # Errors
    ///
    /// When the text is not a DNS-1123 label, or is longer than 40 characters.
    pub fn parse(text: &str) -> Result<Self, PluginNameError> {
        if is_label(text, LONGEST_NAME) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(PluginNameError)
        }
    }

    /// Reads the name of a plugin of a namespace.
    ///
    /// # Errors
    ///
    /// When one of the texts is not a DNS-1123 label, or the name is longer than 40 characters.
    pub fn of_tenant(namespace: &str, name: &str) -> Result<Self, PluginNameError> {
        if is_label(namespace, LONGEST_NAMESPACE) && is_label(name, LONGEST_NAME) {
            Ok(Self(format!("{namespace}{TENANT}{name}").into()))
        } else {
            Err(PluginNameError)
        }
    }

    /// Reads a name as [`PluginName::as_str`] returns it: that of a plugin, or that of a plugin of a namespace.
    ///
    /// # Errors
    ///
    /// When the text has neither form.
    pub fn parse_any(text: &str) -> Result<Self, PluginNameError> {
        match text.split_once(TENANT) {
            Some((namespace, name)) => Self::of_tenant(namespace, name),
            None => Self::parse(text),
        }
    }

    /// Returns the namespace that the plugin is confined to. None for a plugin of the cluster.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        // Every review asks this for each plugin. Names are short, and for them this is faster than `split_once`.
        let end = self.0.bytes().position(|byte| byte == TENANT as u8)?;
        Some(&self.0[..end])
    }

    /// Returns the name for records that must not name a namespace: a namespace's plugin without its namespace.
    #[must_use]
    pub fn without_namespace(&self) -> &str {
        self.0.split_once(TENANT).map_or(&self.0, |(_, name)| name)
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of this plugin's shadow version.
    #[must_use]
    pub fn of_shadow(&self) -> Self {
        Self(format!("{self}{SHADOW}").into())
    }

    /// Returns the plugin's name if this is a shadow version's name. None if it is a plugin's.
    #[must_use]
    pub fn shadow_of(&self) -> Option<&str> {
        self.0.strip_suffix(SHADOW)
    }

    /// Returns the name of a member of this group.
    #[must_use]
    pub fn of_member(&self, member: &str) -> Self {
        Self(format!("{self}{MEMBER}{member}").into())
    }

    /// Returns the names of the group and of the member if this is a member's name.
    fn split_member(&self) -> Option<(&str, &str)> {
        let parts = self.0.split_once(MEMBER);
        parts.filter(|_| self.shadow_of().is_none())
    }

    /// Returns the name of the group if this is a member's name.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.split_member().map(|(group, _)| group)
    }

    /// Returns the name of the group as a name if this is a member's name.
    #[must_use]
    pub fn of_group(&self) -> Option<Self> {
        self.group().map(|group| Self(group.into()))
    }

    /// Returns the member's own name if this is a member's name.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        self.split_member().map(|(_, member)| member)
    }

    /// Returns the name of the entry under `plugins`. A shadow version shares its plugin's entry, and a member its
    /// group's.
    pub fn entry(&self) -> &str {
        self.0
            .split_once(MEMBER)
            .map_or(&self.0, |(entry, _)| entry)
    }

    pub(super) fn read(node: &Node<'_>) -> Option<Self> {
        let name = Self::parse(node.quotable_text(NAME_EXPECTED)?).ok();
        if name.is_none() {
            node.reject(NAME_EXPECTED);
        }
        name
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for PluginName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Allows look-ups with a `&str` in a map by name.
impl Borrow<str> for PluginName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for PluginName {
    type Err = PluginNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Returns whether text is a DNS-1123 label, which is how Kubernetes names most things.
pub fn is_label(text: &str, longest: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= longest
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

// === impl Source ===

impl Source {
    pub(crate) fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        let text = node.text(SOURCE_EXPECTED)?;
        if let Some(path) = text.strip_prefix("file:") {
            // `file://host/path` has a host. `file:///path` has none.
            let has_host = path.starts_with("//") && !path.starts_with("///");
            if !path.is_empty() && !has_host {
                return Some(Self::File(join(folder, path)));
            }
            node.reject(SOURCE_EXPECTED);
        } else if let Some(reference) = text.strip_prefix("oci://") {
            return Reference::read(node, reference).map(Self::Oci);
        } else {
            node.reject(SOURCE_EXPECTED);
        }
        None
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}

// === impl Mode, FailurePolicy, Capability ===

impl Mode {
    pub(crate) const WORDS: &'static [(&'static str, Self)] = &[
        ("enforce", Self::Enforce),
        ("warn", Self::Warn),
        ("audit", Self::Audit),
    ];

    /// Returns the mode as it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Warn => "warn",
            Self::Audit => "audit",
        }
    }
}

impl FailurePolicy {
    pub(crate) const WORDS: &'static [(&'static str, Self)] =
        &[("Fail", Self::Fail), ("Ignore", Self::Ignore)];

    /// Returns the policy as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

impl Capability {
    pub(crate) const WORDS: &'static [(&'static str, Self)] = &[
        ("clock", Self::Clock),
        ("cluster", Self::Cluster),
        ("access", Self::Access),
        ("images", Self::Images),
    ];

    /// Returns the capability as it is written in a configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Cluster => "cluster",
            Self::Access => "access",
            Self::Images => "images",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
