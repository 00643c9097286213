//! The memory and the rights that lookups need.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_config::PluginConfig;
use tollgate_config::kubernetes::kind_of;
use tollgate_config::lookup::{Lookup, LookupNamespaces};
use tollgate_gate::plugin::{Plugin, PluginState};

use crate::test::mistake;

/// Bytes of a megabyte, as Kubernetes writes memory.
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Resources by their API group.
type Resources<'p> = BTreeMap<&'p str, BTreeSet<&'p str>>;

/// Returns a line for each lookup of a plugin. `has_objects` says whether the objects come from a dump.
pub(super) fn lines(plugin: &Plugin, has_objects: bool) -> Vec<String> {
    let PluginState::Loaded(loaded) = &plugin.state else {
        return Vec::new();
    };
    let Some(guest) = &loaded.guest else {
        return Vec::new();
    };
    let line = |name: &str, lookup: &Lookup| {
        let mut tables = guest.lookups().tables();
        let table = tables.find(|(of, _)| *of == name);
        let takes = match table.map(|(_, table)| table.size()) {
            Some(size) if has_objects => {
                #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
                let mebibytes = size.bytes as f64 / MEBIBYTE;
                format!("{} objects, about {mebibytes:.1} MiB", size.objects)
            }
            _ => "--objects with a dump of the objects shows what it takes".to_owned(),
        };
        format!("  lookup {name}: {}; {takes}", lookup.resource)
    };
    let lookups = plugin.config.lookups.iter();
    lookups.map(|(name, lookup)| line(name, lookup)).collect()
}

/// Returns the places in a plugin's lookups that no object of their kind can have. Such a place is like an absent field: the
/// lookup finds nothing. Only Kubernetes' own kinds are known. The flag says whether no release has the place.
pub(super) fn mistakes(plugin: &PluginConfig) -> Vec<(String, bool)> {
    let mut mistakes = Vec::new();
    for (name, lookup) in &plugin.lookups {
        let resource = &lookup.resource;
        let Some(kind) = kind_of(&resource.group, &resource.resource) else {
            continue;
        };
        let api_version = resource.api_version();
        let fields = lookup
            .fields
            .iter()
            .map(|field| ("fields".to_owned(), field));
        let indexes = lookup.indexes.iter();
        let indexes = indexes.map(|(index, field)| (format!("indexes.{index}"), field));
        let wrong = fields.chain(indexes).filter_map(|(key, field)| {
            let (mistake, is_certain) = mistake(&api_version, kind, field.as_str())?;
            let line = format!("  lookup {name}: {key}: {}: {mistake}", field.as_str());
            Some((line, is_certain))
        });
        mistakes.extend(wrong);
    }
    mistakes
}

/// Returns the roles that the lookups of all plugins need, as YAML. Returns none if there are no lookups.
pub(super) fn roles<'p>(plugins: impl IntoIterator<Item = &'p PluginConfig>) -> Option<String> {
    let mut everywhere = Resources::new();
    let mut by_namespace: BTreeMap<&str, Resources<'p>> = BTreeMap::new();
    let enabled = plugins.into_iter().filter(|plugin| plugin.enabled);
    for lookup in enabled.flat_map(|plugin| plugin.lookups.values()) {
        let resource = &lookup.resource;
        let grant = |resources: &mut Resources<'p>| {
            let of_group = resources.entry(&resource.group).or_default();
            of_group.insert(&resource.resource);
        };
        match &lookup.namespaces {
            LookupNamespaces::All => grant(&mut everywhere),
            LookupNamespaces::Named(names) => {
                for name in names {
                    grant(by_namespace.entry(name).or_default());
                }
            }
        }
    }
    let mut documents = Vec::new();
    if !everywhere.is_empty() {
        documents.push(role("ClusterRole", "", &everywhere));
    }
    for (namespace, resources) in by_namespace {
        let namespace = format!(", namespace: {namespace}");
        documents.push(role("Role", &namespace, &resources));
    }
    (!documents.is_empty()).then(|| documents.join("---\n"))
}

fn role(kind: &str, namespace: &str, resources: &Resources<'_>) -> String {
    let rules = resources.iter().map(|(group, resources)| {
        let resources: Vec<&str> = resources.iter().copied().collect();
        let resources = resources.join(", ");
        format!(
            "  - {{ apiGroups: ['{group}'], resources: [{resources}], verbs: [list, watch] }}\n"
        )
    });
    let rules: String = rules.collect();
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: \
         tollgate-lookups{namespace} }}\nrules:\n{rules}"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_config::Config;

    use super::*;

    fn plugins(lookups: &str) -> Vec<PluginConfig> {
        let text = format!("plugins: [{{ name: a, source: 'file:a.wasm', lookups: [{lookups}] }}]");
        Config::parse(&text, Path::new(".")).unwrap().plugins
    }

    #[test]
    fn place_that_no_object_has_is_a_mistake() {
        let resource = "resource: { group: networking.k8s.io, version: v1, resource: ingresses }";
        let lookup = |fields: &str| {
            let plugins = plugins(&format!("{{ name: a, {resource}, {fields} }}"));
            mistakes(&plugins[0])
        };
        let (unsure, sure) = (false, true);
        let good = "fields: [/metadata/labels], indexes: { host: '/spec/rules/*/host' }";
        assert!(lookup(good).is_empty());
        assert_eq!(
            lookup("fields: [/spec/tsl], indexes: { host: '/spec/rule/*/host' }"),
            [
                ("  lookup a: fields: /spec/tsl: networking.k8s.io/v1 Ingress has no field /spec/tsl; the fields there are defaultBackend, ingressClassName, rules, tls".to_owned(), unsure),
                ("  lookup a: indexes.host: /spec/rule/*/host: networking.k8s.io/v1 Ingress has no field /spec/rule; did you \
                 mean /spec/rules/*/host?".to_owned(), sure),
            ]
        );
        let custom = "{ name: a, resource: { group: example.com, version: v1, resource: mice }, fields: [/spec/x] }";
        assert!(mistakes(&plugins(custom)[0]).is_empty());
    }

    #[test]
    fn roles_have_what_lookups_read() {
        let ingresses =
            "{ name: a, resource: { group: networking.k8s.io, version: v1, resource: ingresses } }";
        let maps = "{ name: b, namespaces: [shop, blog], resource: { group: '', version: v1, resource: configmaps } }";
        let plugins = plugins(&format!("{ingresses}, {maps}"));
        insta::assert_snapshot!(roles(&plugins).unwrap(), @r"
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata: { name: tollgate-lookups }
        rules:
          - { apiGroups: ['networking.k8s.io'], resources: [ingresses], verbs: [list, watch] }
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata: { name: tollgate-lookups, namespace: blog }
        rules:
          - { apiGroups: [''], resources: [configmaps], verbs: [list, watch] }
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata: { name: tollgate-lookups, namespace: shop }
        rules:
          - { apiGroups: [''], resources: [configmaps], verbs: [list, watch] }
        ");
    }

    #[test]
    fn no_lookups_need_no_role() {
        assert_eq!(roles(&plugins("")), None);
    }
}
