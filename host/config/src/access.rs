//! `access` of an entry under `plugins`: what the plugin may ask about the rights of users.

use super::read::Fields;

/// What a plugin with the capability `access` may ask. Without more, it asks about the user of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether the plugin may also ask about service accounts.
    pub service_accounts: bool,
}

const KEY: &str = "access";

// === impl Access ===

impl Access {
    /// Reads the section. None if the entry has none. The section alone grants the capability, as `lookups` do.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let node = fields.optional(KEY)?;
        let mut section = node.object()?;
        let service_accounts = section
            .optional("serviceAccounts")
            .and_then(|node| node.boolean());
        section.finish();
        Some(Self {
            service_accounts: service_accounts.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Access, Capability, Config, PluginConfig};

    fn plugin(keys: &str) -> PluginConfig {
        let text = format!("plugins: [{{ name: a, source: 'file:a.wasm', {keys} }}]");
        let mut config = Config::parse(&text, Path::new(".")).unwrap();
        config.plugins.remove(0)
    }

    #[test]
    fn capability_alone_grants_questions_about_the_user() {
        let plugin = plugin("capabilities: [access]");
        assert!(plugin.capabilities.contains(&Capability::Access));
        assert_eq!(plugin.access, Access::default());
        assert!(!plugin.access.service_accounts);
    }

    #[test]
    fn section_grants_the_capability() {
        let plugin = plugin("access: { serviceAccounts: true }");
        assert!(plugin.capabilities.contains(&Capability::Access));
        assert!(plugin.access.service_accounts);
        assert!(!self::plugin("").capabilities.contains(&Capability::Access));
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text =
            "plugins: [{ name: a, source: 'file:a.wasm', access: { serviceAccount: true } }]";
        let error = Config::parse(text, Path::new(".")).unwrap_err().to_string();
        assert!(
            error.contains("plugins[0].access.serviceAccount"),
            "{error}"
        );
    }

    #[test]
    fn another_grant_is_another_way_to_run() {
        let (one, other) = (
            plugin("access: {}"),
            plugin("access: { serviceAccounts: true }"),
        );
        assert!(!one.runs_like(&other));
        assert!(one.runs_like(&plugin("capabilities: [access]")));
    }

    #[test]
    fn shadow_has_the_grant_of_its_plugin_only_with_the_capability() {
        let text = "plugins: [{ name: a, source: 'file:a.wasm', access: { serviceAccounts: true }, shadow: { \
                    source: 'file:b.wasm' KEYS } }]";
        let shadow = |keys: &str| {
            let config = Config::parse(&text.replace("KEYS", keys), Path::new(".")).unwrap();
            let shadow = config
                .plugins
                .iter()
                .chain(&config.shadows)
                .find(|plugin| plugin.is_shadow());
            shadow.expect("there is a shadow").clone()
        };
        assert!(shadow("").access.service_accounts);
        let without = shadow(", capabilities: []");
        assert!(!without.capabilities.contains(&Capability::Access));
        assert_eq!(without.access, Access::default());
    }
}
