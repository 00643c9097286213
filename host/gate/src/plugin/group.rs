//! Groups in a set: the members come as plugins, and each group becomes one plugin that calls them.
//!
//! The reconciler knows members only. A group is therefore made anew with each set, from the members that are in effect.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate_config::{Group as Definition, Match, PluginConfig, together};

use super::protocol::Manifest;
use super::set::{LoadedPlugin, Plugin, PluginState};

/// A group and its members.
pub struct Group {
    /// The expression, the message and the names of the members.
    pub definition: Arc<Definition>,
    /// The members, in the order of the definition. They are called for the group only.
    pub members: Vec<Arc<Plugin>>,
}

/// Puts the members among these plugins together, each group at the place of its first member.
///
/// A group takes effect when all of its members are there, loaded or not: a part of a group says nothing.
pub(super) fn assemble(plugins: Vec<Arc<Plugin>>) -> Vec<Arc<Plugin>> {
    if plugins.iter().all(|plugin| plugin.config.group.is_none()) {
        return plugins;
    }
    together(
        &plugins,
        |plugin| &plugin.config,
        Arc::clone,
        |members| group(members).map(Arc::new),
    )
}

/// Makes the plugin that calls the members.
pub(super) fn group(members: &[&Arc<Plugin>]) -> Option<Plugin> {
    let configs: Vec<&PluginConfig> = members.iter().map(|member| &member.config).collect();
    let config = PluginConfig::of_group(&configs)?;
    let definition = config.group.clone()?;
    let names = definition.members.iter();
    let members = names.filter_map(|name| {
        let name = definition.name.of_member(name);
        let mut members = members.iter();
        members
            .find(|member| member.config.name == name)
            .map(|member| Arc::clone(member))
    });
    let members: Vec<Arc<Plugin>> = members.collect();
    let metrics = members.first()?.metrics.of_other(config.name.as_str());
    let state = state(&config, &definition, &members);
    Some(Plugin {
        digest: digest(&members),
        state,
        metrics,
        config,
        group: Some(Arc::new(Group {
            definition,
            members,
        })),
    })
}

/// The state of a group. It is loaded if all members are.
fn state(config: &PluginConfig, definition: &Definition, members: &[Arc<Plugin>]) -> PluginState {
    if !config.enabled {
        return PluginState::Disabled;
    }
    let mut reason = String::new();
    for member in members {
        let name = member.config.name.member().unwrap_or_default();
        let problem = match &member.state {
            PluginState::Failed { reason } => reason,
            PluginState::Disabled => "it is disabled",
            PluginState::Loaded(loaded) if loaded.interfaces().validating => continue,
            PluginState::Loaded(_) => {
                "it does not validate: a plugin that only mutates cannot be a member"
            }
        };
        let separator = if reason.is_empty() { "" } else { "; " };
        let _ = write!(reason, "{separator}member {name}: {problem}");
    }
    if !reason.is_empty() {
        return PluginState::Failed { reason };
    }
    let own = members.iter().filter_map(|member| match &member.state {
        PluginState::Loaded(loaded) => Some(&loaded.matching),
        PluginState::Failed { .. } | PluginState::Disabled => None,
    });
    let matching = match &config.matching {
        Some(matching) => matching.clone(),
        None => Match::of_any(own),
    };
    PluginState::Loaded(Box::new(LoadedPlugin {
        guest: None,
        manifest: Manifest {
            name: definition.name.as_str().to_owned(),
            description: definition.message.to_string(),
            ..Manifest::default()
        },
        matching,
    }))
}

/// The digest of a group: that of the names and digests of its members.
fn digest(members: &[Arc<Plugin>]) -> Option<Arc<str>> {
    let mut all = Sha256::new();
    for member in members {
        all.update(member.config.name.as_str());
        all.update([b' ']);
        all.update(member.digest.as_deref()?);
        all.update([b'\n']);
    }
    Some(format!("sha256:{:x}", all.finalize()).into())
}

// === impl Group ===

impl Group {
    /// The same group with members for calls beside those of reviews.
    pub(super) fn apart(&self, apart: impl Fn(&Plugin) -> Plugin) -> Arc<Self> {
        let members = self.members.iter();
        Arc::new(Self {
            definition: self.definition.clone(),
            members: members.map(|member| Arc::new(apart(member))).collect(),
        })
    }

    /// The part of `/plugins` about the group.
    pub(super) fn add_to(&self, status: &mut Value) {
        if let Some(status) = status.as_object_mut() {
            // These keys belong to the members, or have no meaning for a group.
            for key in ["source", "limits", "reinvocationPolicy", "conflicts"] {
                status.remove(key);
            }
        }
        let members = self.members.iter().map(|member| {
            let mut status = member.own_status();
            status["name"] = member.config.name.member().into();
            status
        });
        status["group"] = json!({
            "expression": self.definition.expression.text(),
            "message": &*self.definition.message,
            "members": members.collect::<Vec<_>>(),
        });
    }
}
