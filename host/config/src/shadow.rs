//! `shadow` of an entry under `plugins`: a version that sees the same requests and decides nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::limit::Limits;
use super::lookup::Lookups;
use super::plugin::{
    Capability, FailurePolicy, Mode, PluginConfig, SOURCE_EXPECTED, Source, read_capabilities,
    read_settings, read_signature_keys,
};
use super::policy::{Conflicts, ReinvocationPolicy};
use super::problem::Collector;
use super::read::Node;

/// Values of the serving plugin. The shadow version takes those that its own keys do not set.
pub(super) struct Live<'l> {
    pub(super) limits: &'l Limits,
    pub(super) signature_keys: &'l [PathBuf],
    pub(super) capabilities: &'l BTreeSet<Capability>,
}

/// The keys of the shadow version itself.
pub(super) struct Shadow {
    source: Source,
    signature_keys: Vec<PathBuf>,
    settings: Option<Value>,
    limits: Limits,
    capabilities: BTreeSet<Capability>,
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
        let source = fields
            .required("source", SOURCE_EXPECTED)
            .and_then(|node| Source::read(&node, folder));
        let signature_keys =
            read_signature_keys(&mut fields, source.as_ref(), folder, live.signature_keys);
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
            signature_keys,
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
            signature_keys: self.signature_keys,
            settings: self.settings.unwrap_or_else(|| plugin.settings.clone()),
            limits: self.limits,
            lookups: if self.capabilities.contains(&Capability::Cluster) {
                plugin.lookups.clone()
            } else {
                Lookups::new()
            },
            capabilities: self.capabilities,
            mode: Mode::Audit,
            failure_policy: FailurePolicy::Ignore,
            reinvocation_policy: ReinvocationPolicy::default(),
            conflicts: Conflicts::default(),
            exceptions: Vec::new(),
            ..plugin.clone()
        }
    }
}
