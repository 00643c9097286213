//! The rights that the `imagePullSecrets` of Pods need.

use std::collections::BTreeSet;

use tollgate_config::PluginConfig;

/// Returns the roles that the namespaces of all plugins need, as YAML. None if no plugin lists a namespace.
pub(super) fn roles<'p>(plugins: impl IntoIterator<Item = &'p PluginConfig>) -> Option<String> {
    let enabled = plugins.into_iter().filter(|plugin| plugin.enabled);
    let images = enabled.filter_map(|plugin| plugin.images.as_ref());
    let namespaces: BTreeSet<&str> = images
        .flat_map(|images| &images.pull_secret_namespaces)
        .map(|namespace| &**namespace)
        .collect();
    let roles: Vec<String> = namespaces.into_iter().map(role).collect();
    (!roles.is_empty()).then(|| roles.join("---\n"))
}

fn role(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{ name: tollgate-pull-secrets, namespace: \
         {namespace} }}\nrules:\n  - {{ apiGroups: [''], resources: [secrets, serviceaccounts], verbs: [get] }}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_config::Config;

    use super::*;

    #[test]
    fn each_namespace_has_one_role() {
        let entry = |name: &str, namespaces: &str| {
            format!(
                "{{ name: {name}, source: 'file:a.wasm', images: {{ registries: [a.example], pullSecretNamespaces: \
                 {namespaces}, policies: [{{ name: a, signers: [{{ key: a.pem }}] }}] }} }}"
            )
        };
        let roles = |entries: &[String]| {
            let text = format!("plugins: [{}]", entries.join(", "));
            roles(&Config::parse(&text, Path::new(".")).unwrap().plugins)
        };
        assert_eq!(roles(&[entry("a", "[]")]), None);
        let both = roles(&[entry("a", "[shop, blog]"), entry("b", "[shop]")]).unwrap();
        assert_eq!(both.matches("kind: Role").count(), 2);
        for line in [
            "metadata: { name: tollgate-pull-secrets, namespace: shop }",
            "  - { apiGroups: [''], resources: [secrets, serviceaccounts], verbs: [get] }",
        ] {
            assert!(both.contains(line), "{both}");
        }
    }
}
