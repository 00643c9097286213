//! The right that plugins with the capability `access` need.

use tollgate_config::{Capability, PluginConfig};

/// The role that lets Tollgate ask what users may do.
const ROLE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: tollgate-access }
rules:
  - { apiGroups: ['authorization.k8s.io'], resources: [subjectaccessreviews], verbs: [create] }
";

/// Returns the role that the questions of all plugins need, as YAML. None if no plugin asks.
pub(super) fn role<'p>(
    plugins: impl IntoIterator<Item = &'p PluginConfig>,
) -> Option<&'static str> {
    let mut enabled = plugins.into_iter().filter(|plugin| plugin.enabled);
    let asks = enabled.any(|plugin| plugin.capabilities.contains(&Capability::Access));
    asks.then_some(ROLE)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_config::Config;

    use super::*;

    fn plugins(keys: &str) -> Vec<PluginConfig> {
        let text = format!("plugins: [{{ name: a, source: 'file:a.wasm', {keys} }}]");
        Config::parse(&text, Path::new(".")).unwrap().plugins
    }

    #[test]
    fn role_is_needed_only_if_a_plugin_asks() {
        assert!(role(&plugins("capabilities: [access]")).is_some());
        assert!(role(&plugins("access: { serviceAccounts: true }")).is_some());
        assert_eq!(role(&plugins("capabilities: [clock]")), None);
        assert_eq!(
            role(&plugins("capabilities: [access], enabled: false")),
            None
        );
    }
}
