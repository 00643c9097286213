//! The JSON Schema of custom resources, for editors.
//!
//! It extends the schema of the CustomResourceDefinitions for editors: kube-apiserver drops unknown keys, but an
//! editor must show them as mistakes.

use serde_json::{Map, Value, json};
use tollgate_config::schema::{address, require_alternative};

use super::definition;
use crate::kinds::{GROUP, Kind, VERSION};

/// Prefix of the keys that kube-apiserver understands, and editors do not.
const PREFIX: &str = "x-kubernetes-";

/// Returns the JSON Schema of manifests of all kinds.
#[must_use]
pub fn editor_schema() -> Value {
    let kinds = Kind::ALL.map(|kind| {
        let mut schema =
            definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take();
        for (key, value) in [
            ("apiVersion", format!("{GROUP}/{VERSION}")),
            ("kind", kind.name().to_owned()),
        ] {
            schema["properties"][key] = json!({ "const": value });
        }
        schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
        for_editors(schema)
    });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": address("custom-resources"),
        "title": "Custom resources of Tollgate",
        "anyOf": kinds,
    })
}

/// Translates a structural schema.
fn for_editors(schema: Value) -> Value {
    let Value::Object(keys) = schema else {
        return match schema {
            Value::Array(elements) => elements.into_iter().map(for_editors).collect(),
            other => other,
        };
    };
    let is_set = |key: &str| keys.get(&format!("{PREFIX}{key}")) == Some(&Value::Bool(true));
    let (int_or_string, is_free) = (is_set("int-or-string"), is_set("preserve-unknown-fields"));
    let mut translated = Map::new();
    for (key, value) in keys {
        let value = match (key.as_str(), value) {
            // The keys are those of the described object.
            ("properties", Value::Object(properties)) => properties
                .into_iter()
                .map(|(key, schema)| (key, for_editors(schema)))
                .collect(),
            (_, value) => for_editors(value),
        };
        if !key.starts_with(PREFIX) {
            translated.insert(key, value);
        }
    }
    if int_or_string {
        translated.insert(
            "anyOf".to_owned(),
            json!([{ "type": "integer" }, { "type": "string" }]),
        );
    }
    if translated.contains_key("properties") && !is_free {
        translated.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    let mut translated = Value::Object(translated);
    require_alternative(&mut translated);
    translated
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use tollgate_config::problem::Collector;
    use tollgate_config::schema::{config, violations};
    use tollgate_config::yaml;

    use super::*;

    /// Lists the key paths of a schema.
    fn keys(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            keys(schema, &path, into);
            keys(&schema["items"], &format!("{path}[]"), into);
            into.insert(path);
        }
    }

    fn keys_of(schema: &Value) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        keys(schema, "", &mut found);
        found
    }

    /// The schema of the file comes from its parser, which reads a `spec` too.
    #[test]
    fn spec_of_plugin_has_the_keys_of_an_entry_of_the_file() {
        let mut entry = keys_of(&config()["properties"]["plugins"]["items"]);
        assert!(entry.remove(".name") && entry.len() > 60);
        // Policies are about repositories. The file has them, and an entry has them in records only.
        let of_policies = [
            "signatures.policies",
            "signatures.trustedRoot",
            "signatures.tuf",
        ];
        entry.retain(|path| !of_policies.iter().any(|key| path.contains(key)));
        let schema = editor_schema();
        let mut spec = keys_of(&schema["anyOf"][0]["properties"]["spec"]);
        spec.retain(|path| path != ".order" && !path.starts_with(".settingsFrom"));
        let missing: Vec<_> = entry.difference(&spec).collect();
        let more: Vec<_> = spec.difference(&entry).collect();
        assert!(
            missing.is_empty() && more.is_empty(),
            "missing: {missing:?}, more: {more:?}"
        );
    }

    /// Compares the published file with the code. With `TOLLGATE_WRITE=1`, writes the file.
    #[test]
    fn published_schema_is_that_of_the_definitions() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/custom-resources.json");
        if std::env::var_os("TOLLGATE_WRITE").is_some() {
            std::fs::write(&path, format!("{:#}\n", editor_schema())).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        let published: Value = serde_json::from_str(&published).unwrap_or_default();
        assert!(
            published == editor_schema(),
            "docs/schemas/custom-resources.json differs from the code: run TOLLGATE_WRITE=1 cargo test -p \
             tollgate-cluster schema"
        );
    }

    #[test]
    fn examples_of_the_documentation_are_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page =
            std::fs::read_to_string(root.join("docs/reference/custom-resources.md")).unwrap();
        let example =
            std::fs::read_to_string(root.join("deploy/examples/required-labels.yaml")).unwrap();
        let blocks = page.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        let documents = blocks
            .chain([example.as_str()])
            .flat_map(|text| text.split("---\n"));
        let schema = editor_schema();
        let mut count = 0;
        for text in documents.filter(|text| text.contains(&format!("apiVersion: {GROUP}/"))) {
            let document = yaml::read(text, &Collector::default()).unwrap();
            assert_eq!(violations(&schema, &document), [""; 0], "{text}");
            count += 1;
        }
        assert!(count > 1, "{count}");
    }

    #[test]
    fn schema_finds_mistakes() {
        let schema = editor_schema();
        let plugin = |spec: Value| {
            json!({
                "apiVersion": "tollgate.dev/v1alpha1", "kind": "ClusterAdmissionPlugin",
                "metadata": { "name": "a", "labels": { "any": "thing" } }, "spec": spec,
            })
        };
        let valid = json!({
            "source": "oci://registry.example.com/a:1", "settings": { "any": "thing" },
            "limits": { "fuel": 5, "memory": "16Mi" },
        });
        assert_eq!(violations(&schema, &plugin(valid)), [""; 0]);
        for spec in [
            json!({}),
            json!({ "source": 5 }),
            json!({ "source": "file:a.wasm", "mod": "warn" }),
            json!({ "source": "file:a.wasm", "mode": "wran" }),
            json!({ "source": "file:a.wasm", "limits": { "fuel": true } }),
        ] {
            assert_eq!(violations(&schema, &plugin(spec)), [": none of 3 forms"]);
        }
    }
}
