//! The fields of custom kinds, from CustomResourceDefinitions in files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::ensure;
use tollgate_json::document::Json;

use super::fields::{Catalogue, Fields, Kind, Type};
use crate::review::input;

const OBJECT_META: &str = "meta.v1.ObjectMeta";

/// Adds the kinds of the CustomResourceDefinitions in a file. Other objects in it are left out.
///
/// # Errors
/// When the file cannot be read, or has no CustomResourceDefinition with a schema.
pub(super) fn read(file: &Path, catalogue: &mut Catalogue) -> anyhow::Result<()> {
    let mut kinds = 0;
    for document in input::read(file)? {
        kinds += define(&document.content, catalogue);
    }
    ensure!(
        kinds > 0,
        "{}: contains no CustomResourceDefinition of apiextensions.k8s.io/v1 with a schema",
        file.display()
    );
    Ok(())
}

/// Adds the versions of one definition, and returns their number.
fn define(definition: &Json, catalogue: &mut Catalogue) -> usize {
    if text(definition, &["kind"]) != Some("CustomResourceDefinition") {
        return 0;
    }
    let group = text(definition, &["spec", "group"]);
    let kind = text(definition, &["spec", "names", "kind"]);
    let versions = member(definition, &["spec", "versions"]).and_then(Json::as_array);
    let (Some(group), Some(kind)) = (group, kind) else {
        return 0;
    };
    let mut defined = 0;
    for version in versions.unwrap_or_default() {
        let schema = member(version, &["schema", "openAPIV3Schema"]);
        let (Some(name), Some(schema)) = (text(version, &["name"]), schema) else {
            continue;
        };
        let kind = Kind::new(&format!("{group}/{name}"), kind);
        catalogue.define(kind, as_object(of_schema(schema)));
        defined += 1;
    }
    defined
}

/// Returns the type of a schema.
fn of_schema(schema: &Json) -> Type {
    let flag = |name: &str| schema.member(name) == Some(&Json::Bool(true));
    if flag("x-kubernetes-int-or-string") {
        return Type::Scalar;
    }
    let is_open = flag("x-kubernetes-preserve-unknown-fields");
    let properties = schema.member("properties").and_then(Json::as_object);
    let of = match schema.member("type").and_then(Json::as_text) {
        Some("array") => Type::List(Box::new(
            schema.member("items").map_or(Type::Open, of_schema),
        )),
        Some("object") => match (properties, schema.member("additionalProperties")) {
            (Some(properties), _) => {
                let known = properties.iter();
                let known = known.map(|(name, of)| (name.to_string(), of_schema(of)));
                Type::Fields(Fields {
                    known: known.collect(),
                    is_open,
                })
            }
            (None, Some(Json::Bool(_))) => Type::Open,
            (None, Some(values)) => Type::Map(Box::new(of_schema(values))),
            (None, None) if is_open => Type::Open,
            // kube-apiserver removes every member.
            (None, None) => Type::Fields(Fields::default()),
        },
        Some(_) => Type::Scalar,
        None => Type::Open,
    };
    match flag("x-kubernetes-embedded-resource") {
        true => as_object(of),
        false => of,
    }
}

/// Adds the fields that every object has.
fn as_object(of: Type) -> Type {
    let mut fields = match of {
        Type::Fields(fields) => fields,
        Type::Open => Fields {
            known: BTreeMap::new(),
            is_open: true,
        },
        other => return other,
    };
    let known = &mut fields.known;
    for name in ["apiVersion", "kind"] {
        known.insert(name.to_owned(), Type::Scalar);
    }
    // A schema may restrict metadata, but not extend it.
    known.insert("metadata".to_owned(), Type::Named(OBJECT_META.to_owned()));
    Type::Fields(fields)
}

fn member<'j>(json: &'j Json, names: &[&str]) -> Option<&'j Json> {
    names.iter().try_fold(json, |json, name| json.member(name))
}

fn text<'j>(json: &'j Json, names: &[&str]) -> Option<&'j str> {
    member(json, names)?.as_text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalogue() -> Catalogue {
        let mut catalogue = Catalogue::default();
        catalogue.add_lines("meta.v1.ObjectMeta: labels={} name\n");
        let schema = json!({
            "type": "object",
            "properties": {
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer"},
                        "port": {"x-kubernetes-int-or-string": true},
                        "hosts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "values": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "half": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {"known": {"type": "object", "properties": {}}},
                        },
                        "template": {
                            "type": "object", "x-kubernetes-embedded-resource": true,
                            "x-kubernetes-preserve-unknown-fields": true,
                        },
                        "nothing": {"type": "object"},
                    },
                },
            },
        });
        let definition = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
            "spec": {
                "group": "shop.example", "names": {"kind": "Cart"},
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}, {"name": "v2"}],
            },
        });
        assert_eq!(define(&Json::from(definition), &mut catalogue), 1);
        assert_eq!(
            define(&Json::from(json!({"kind": "Pod"})), &mut catalogue),
            0
        );
        catalogue
    }

    #[test]
    fn schema_of_a_definition_is_followed() {
        let catalogue = catalogue();
        let kind = Kind::new("shop.example/v1", "Cart");
        let of = catalogue.of_kind(&kind).expect("it is defined");
        let check = |pointer: &str| catalogue.check(of, pointer, false).is_ok();
        for pointer in [
            "/metadata/labels/a",
            "/apiVersion",
            "/spec/size",
            "/spec/port",
            "/spec/hosts/0/name",
            "/spec/labels/any",
            "/spec/values/any/thing",
            "/spec/half/known",
            "/spec/half/other/0",
            "/spec/template/metadata/name",
            "/spec/template/spec/any",
        ] {
            assert!(check(pointer), "{pointer}");
        }
        for pointer in [
            "/spec/sise",
            "/metadata/nam",
            "/spec/port/0",
            "/spec/hosts/name",
            "/spec/half/known/other",
            "/spec/template/metadata/nam",
            "/spec/nothing/at-all",
        ] {
            assert!(!check(pointer), "{pointer}");
        }
        assert_eq!(
            catalogue.of_kind(&Kind::new("shop.example/v2", "Cart")),
            None
        );
    }

    #[test]
    fn file_without_definitions_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pods.yaml");
        std::fs::write(&file, "kind: Pod\napiVersion: v1\n").unwrap();
        let error = read(&file, &mut Catalogue::default()).unwrap_err();
        assert!(
            error.to_string().contains("no CustomResourceDefinition"),
            "{error}"
        );
    }
}
