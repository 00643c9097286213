//! `shadow` of an entry under `plugins`: a version that sees the same requests and decides nothing. The new version of a
//! `rollout` is read and loaded in the same way.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::access::Access;
use super::grants::read_capabilities;
use super::limit::Limits;
use super::lookup::Lookups;
use super::plugin::{
    Capability, Defaults, FailurePolicy, Mode, PluginConfig, SOURCE_EXPECTED, Source, read_settings,
};
use super::policy::{Conflicts, ReinvocationPolicy};
use super::problem::Collector;
use super::read::Node;
use super::signature::Signatures;

/// Values of the serving plugin. The shadow version takes those that its own keys do not set.
pub(super) struct Live<'l> {
    pub(super) limits: &'l Limits,
    pub(super) signatures: &'l Signatures,
    pub(super) capabilities: &'l BTreeSet<Capability>,
    /// The source of a version without one. None if a version must have its own.
    pub(super) source: Option<Source>,
}

/// The keys of the shadow version itself.
pub(super) struct Shadow {
    source: Source,
    signatures: Signatures,
    settings: Option<Value>,
    limits: Limits,
    capabilities: BTreeSet<Capability>,
}

// === impl Live ===

impl<'l> Live<'l> {
    pub(super) fn of(
        limits: &'l Limits,
        source: Option<&Source>,
        signatures: &'l Signatures,
        defaults: &'l Defaults,
        capabilities: &'l BTreeSet<Capability>,
    ) -> Self {
        Self {
            limits,
            signatures: match source {
                Some(Source::Oci(_)) if !defaults.signatures.is_by_repository() => signatures,
                _ => &defaults.signatures,
            },
            capabilities,
            source: None,
        }
    }
}

// === impl Shadow ===

impl Shadow {
    pub(crate) fn read(
        node: &Node<'_>,
        live: &Live<'_>,
        folder: &Path,
        max_concurrent_calls: u32,
        problems: &Collector,
    ) -> Option<Self> {
        let mut fields = node.object()?;
        let given = match &live.source {
            Some(_) => fields.optional("source"),
            None => fields.required("source", SOURCE_EXPECTED),
        };
        let source = match given {
            Some(node) => Source::read(&node, folder),
            None => live.source.clone(),
        };
        let signatures =
            Signatures::read_entry(&mut fields, source.as_ref(), folder, live.signatures);
        let settings = read_settings(&mut fields, problems);
        let limits = Limits::read(fields.section("limits"), live.limits, max_concurrent_calls);
        let says = fields.has("capabilities");
        let granted = read_capabilities(&mut fields);
        for more in granted.difference(live.capabilities) {
            fields.problem(
                "capabilities",
                format!(
                    "got {more}, which the plugin itself does not have: a shadow may have only capabilities of \
                     its plugin"
                ),
            );
        }
        let capabilities = if says {
            granted
        } else {
            live.capabilities.clone()
        };
        fields.finish();
        Some(Self {
            source: source?,
            signatures,
            settings,
            limits,
            capabilities,
        })
    }

    /// Returns the shadow version as it runs. It uses the plugin's rules and the plugin's reading of answers. Its mode
    /// is audit and its failurePolicy is Ignore, so it decides nothing.
    pub(crate) fn of(self, plugin: &PluginConfig) -> PluginConfig {
        PluginConfig {
            name: plugin.name.of_shadow(),
            source: self.source,
            signatures: self.signatures,
            settings: self.settings.unwrap_or_else(|| plugin.settings.clone()),
            limits: self.limits,
            lookups: if self.capabilities.contains(&Capability::Cluster) {
                plugin.lookups.clone()
            } else {
                Lookups::new()
            },
            access: if self.capabilities.contains(&Capability::Access) {
                plugin.access
            } else {
                Access::default()
            },
            images: if self.capabilities.contains(&Capability::Images) {
                plugin.images.clone()
            } else {
                None
            },
            capabilities: self.capabilities,
            mode: Mode::Audit,
            failure_policy: FailurePolicy::Ignore,
            reinvocation_policy: ReinvocationPolicy::default(),
            conflicts: Conflicts::default(),
            exceptions: Vec::new(),
            rollout: None,
            ..plugin.clone()
        }
    }
}
