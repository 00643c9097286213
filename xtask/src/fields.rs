//! `cargo xtask fields`: writes the fields of Kubernetes' kinds for `tollgate test --strict-paths`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::{Map, Value};
use tollgate_kube_apiserver::{release, sources};

use crate::workspace::Workspace;

/// Write the fields of Kubernetes' kinds, as its Go module publishes them, for `tollgate test --strict-paths`.
///
/// The release is the one that the end-to-end suites build. Downloads its module, if it is not in Go's cache.
#[derive(Args, Debug)]
pub(crate) struct Fields;

const FILE: &str = "host/cli/src/test/paths/kubernetes.fields";
const OPENAPI: &str = "api/openapi-spec/swagger.json";
const REFERENCE: &str = "#/definitions/";
/// A name keeps its group, version and kind, such as `apps.v1.Deployment`.
const PARTS: usize = 3;
const KINDS: &str = "x-kubernetes-group-version-kind";

// === impl Fields ===

impl Fields {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let openapi = sources()?.join(OPENAPI);
        let text = std::fs::read(&openapi)
            .with_context(|| format!("cannot read {}", openapi.display()))?;
        let document: Value = serde_json::from_slice(&text)?;
        let path = workspace.root().join(FILE);
        let text = write(&document, release())?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", workspace.shown(&path));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the fields of all types of an OpenAPI document, one type on a line.
fn write(document: &Value, release: &str) -> anyhow::Result<String> {
    let definitions = document.get("definitions").and_then(Value::as_object);
    let definitions = definitions.context("the OpenAPI document has no definitions")?;
    let mut lines = BTreeMap::new();
    for (name, definition) in definitions {
        let Some(properties) = definition.get("properties").and_then(Value::as_object) else {
            continue;
        };
        let kind = kind(definition).map(|kind| format!(" {kind}"));
        let mut line = format!("{}{}:", short(name), kind.unwrap_or_default());
        for (field, schema) in properties {
            line.push(' ');
            line.push_str(field);
            let of = expression(schema, definitions)?;
            if !of.is_empty() {
                line.push('=');
                line.push_str(&of);
            }
        }
        let earlier = lines.insert(short(name), line);
        ensure!(
            earlier.is_none(),
            "two types have the short name {}",
            short(name)
        );
    }
    let mut text = format!(
        "# The fields of the kinds of Kubernetes {release}. Written by `cargo xtask fields`: do not edit.\n\
         # TYPE [APIVERSION KIND]: FIELD FIELD=TYPE …  A list is [TYPE], a map {{TYPE}}, and * is anything.\n"
    );
    for line in lines.values() {
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

/// Returns `apps/v1 Deployment` for a type that is one kind. Types such as DeleteOptions are kinds of every group.
fn kind(definition: &Value) -> Option<String> {
    let [kind] = &definition.get(KINDS)?.as_array()?[..] else {
        return None;
    };
    let text = |member: &str| kind.get(member)?.as_str();
    let (group, version) = (text("group")?, text("version")?);
    let api_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    Some(format!("{api_version} {}", text("kind")?))
}

/// Returns the type of a field. A value without members is the empty text.
fn expression(schema: &Value, definitions: &Map<String, Value>) -> anyhow::Result<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.strip_prefix(REFERENCE).unwrap_or(reference);
        let definition = definitions.get(name);
        let definition = definition.with_context(|| format!("{name} is not defined"))?;
        return match definition.get("properties") {
            Some(_) => Ok(short(name)),
            None => expression(definition, definitions),
        };
    }
    Ok(match schema.get("type").and_then(Value::as_str) {
        Some("array") => {
            let items = schema.get("items").context("a list has no items")?;
            format!("[{}]", expression(items, definitions)?)
        }
        Some("object") => match schema.get("additionalProperties") {
            Some(values) => format!("{{{}}}", expression(values, definitions)?),
            None => "*".to_owned(),
        },
        Some(_) => String::new(),
        None => "*".to_owned(),
    })
}

fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    parts[parts.len().saturating_sub(PARTS)..].join(".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_a_type_are_one_line() {
        let time = json!({"type": "string", "format": "date-time"});
        let document = json!({"definitions": {
            "io.k8s.api.apps.v1.Deployment": {
                "x-kubernetes-group-version-kind": [{"group": "apps", "kind": "Deployment", "version": "v1"}],
                "properties": {
                    "args": {"type": "array", "items": {"type": "string"}},
                    "created": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Time"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "lists": {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
                    "raw": {"type": "object"},
                    "spec": {"$ref": "#/definitions/io.k8s.api.apps.v1.DeploymentSpec"},
                },
            },
            "io.k8s.api.apps.v1.DeploymentSpec": {"properties": {"replicas": {"type": "integer"}}},
            "io.k8s.apimachinery.pkg.apis.meta.v1.Time": time,
        }});
        let text = write(&document, "v1.2.3").unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "apps.v1.Deployment apps/v1 Deployment: args=[] created labels={} lists={[*]} raw=* \
                 spec=apps.v1.DeploymentSpec",
                "apps.v1.DeploymentSpec: replicas",
            ]
        );
        assert!(text.contains("Kubernetes v1.2.3."));
    }

    #[test]
    fn kind_of_every_group_is_left_out() {
        let kind = |group: &str| json!({"group": group, "kind": "DeleteOptions", "version": "v1"});
        let definition = json!({"x-kubernetes-group-version-kind": [kind(""), kind("apps")]});
        assert_eq!(self::kind(&definition), None);
    }

    #[test]
    fn written_file_is_of_the_release_that_suites_build() {
        let file = include_str!("../../host/cli/src/test/paths/kubernetes.fields");
        let first = format!("# The fields of the kinds of Kubernetes {}.", release());
        assert!(
            file.starts_with(&first),
            "run `cargo xtask fields`: the file is of another release"
        );
    }
}
