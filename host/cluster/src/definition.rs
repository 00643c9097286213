//! The CustomResourceDefinitions, with structural schemas.
//!
//! The schemas name every key, so that kubectl refuses a mistyped one. Tollgate's parser checks the values, and its
//! messages say which values are valid. The plugin alone knows the keys under `settings`.

mod editor;
mod images;
mod rollout;

use serde_json::{Map, Value, json};
use tollgate_config::lookup::MOST_LOOKUPS;
use tollgate_config::{LIMITS, MOST_MEMBERS};

use crate::kinds::{GROUP, Kind, VERSION};

pub use editor::editor_schema;

/// The prefix of a plugin's limits in the table of all limits.
const LIMITS_OF_PLUGIN: &str = "limits.";
const MOST_ELEMENTS: usize = 256;
const LONGEST_TEXT_CHARACTERS: usize = 4096;

/// Returns the definition of a kind.
#[must_use]
pub fn definition(kind: Kind) -> Value {
    let (scope, short_names, columns, schema) = match kind {
        Kind::Plugin => (
            "Cluster",
            json!(["cap", "caps"]),
            plugin_columns(),
            plugin_schema(),
        ),
        Kind::TenantPlugin => (
            "Namespaced",
            json!(["ap", "aps"]),
            tenant_columns(),
            tenant_schema(),
        ),
        Kind::Exception => (
            "Namespaced",
            json!(["pex"]),
            exception_columns(),
            exception_schema(),
        ),
    };
    let (name, plural) = (kind.name(), kind.plural());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": name,
                "listKind": format!("{name}List"),
                "plural": plural,
                "singular": name.to_lowercase(),
                "shortNames": short_names,
                "categories": ["tollgate"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
                "additionalPrinterColumns": columns,
            }],
        },
    })
}

/// Returns the definition of a kind as YAML.
///
/// # Errors
/// When the document cannot be written.
pub fn definition_yaml(kind: Kind) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! {
        // Folding would add line breaks to CEL.
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(&definition(kind), options)
}

fn plugin_columns() -> Value {
    json!([
        column(
            "Ready",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].status",
            0
        ),
        column(
            "Reason",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].reason",
            0
        ),
        column(
            "Registered",
            "string",
            ".status.conditions[?(@.type==\"Registered\")].status",
            0
        ),
        column(
            "Effective",
            "string",
            ".status.conditions[?(@.type==\"Effective\")].status",
            0
        ),
        column(
            "Verified",
            "string",
            ".status.conditions[?(@.type==\"Verified\")].status",
            1
        ),
        column("Mode", "string", ".spec.mode", 0),
        column("Rollout", "string", ".status.rollouts[0].summary", 0),
        column("Source", "string", ".spec.source", 0),
        column("Digest", "string", ".status.shortDigest", 0),
        column("Order", "integer", ".spec.order", 1),
        column("Age", "date", ".metadata.creationTimestamp", 0),
    ])
}

/// The columns of a plugin of a namespace, which has no rollout.
fn tenant_columns() -> Value {
    let mut columns = plugin_columns();
    if let Some(columns) = columns.as_array_mut() {
        columns.retain(|column| column["name"] != "Rollout");
    }
    columns
}

fn exception_columns() -> Value {
    json!([
        column(
            "Ready",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].status",
            0
        ),
        column(
            "State",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].reason",
            0
        ),
        column("Plugins", "string", ".spec.plugins", 0),
        column("Expires", "string", ".spec.expires", 0),
        column("Reason", "string", ".spec.reason", 1),
        column("Age", "date", ".metadata.creationTimestamp", 0),
    ])
}

fn column(name: &str, kind: &str, path: &str, priority: u32) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path, "priority": priority })
}

fn plugin_schema() -> Value {
    let mut spec = code();
    let more = json!({
        "order": {
            "description": "Place among the plugins; mutators run in this order. The plugins of the configuration file have order 0 and come first among equals; others follow by name.",
            "type": "integer", "format": "int32", "default": 0,
        },
        "enabled": { "description": "Whether the plugin is loaded and called.", "type": "boolean", "default": true },
        "match": matching(),
        "settingsFrom": {
            "description": "Settings from ConfigMaps and Secrets of the installation's namespace, as YAML or JSON. Later ones go over earlier ones, and `settings` over all.",
            "type": "array", "maxItems": 16,
            "items": {
                "type": "object",
                "properties": { "configMapKeyRef": key_ref(), "secretKeyRef": key_ref() },
                "x-kubernetes-validations": [{
                    "rule": "has(self.configMapKeyRef) != has(self.secretKeyRef)",
                    "message": "expected configMapKeyRef or secretKeyRef",
                }],
            },
        },
        "mode": words("The effect of the plugin's verdicts.", &["enforce", "warn", "audit"], Some("enforce")),
        "failurePolicy": words("The effect of the plugin's faults.", &["Fail", "Ignore"], Some("Fail")),
        "reinvocationPolicy": words("Whether the plugin is called again after a later plugin changed the object.", &["Never", "IfNeeded"], None),
        "conflicts": words("The effect of changing a value that an earlier plugin wrote.", &["last", "deny"], None),
        "existingViolations": words("The effect of a denial that the old object would have caused too.", &["deny", "allow"], None),
        "exceptions": {
            "description": "Requests that the plugin is not called for until a given time.",
            "type": "array", "maxItems": MOST_ELEMENTS,
            "items": exception(json!({
                "name": { "description": "The name in metrics and reports.", "type": "string", "maxLength": 253 },
                "until": text("The last day, or a time in RFC 3339."),
            }), &["reason", "until"]),
        },
        "lookups": lookups(),
        "access": access(),
        "images": images::images(),
        "allowRemovals": { "description": "Whether a whole object that the plugin returns may lack fields.", "type": "boolean" },
        "allowNamespaceExceptions": { "description": "Whether a PluginException of any namespace counts for the plugin, in that namespace. Needs tenancy.", "type": "boolean" },
        "group": group(),
        "shadow": {
            "description": "A version that sees the same requests and decides nothing.",
            "type": "object", "required": ["source"], "properties": code(),
        },
        "rollout": rollout::plan(code()),
    });
    extend(&mut spec, &more);
    let replicas = json!({
        "description": "What each replica serves.",
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": { "type": "string" },
                "ready": { "type": "boolean" },
                "reason": { "type": "string" },
                "message": { "type": "string" },
                "digest": { "type": "string" },
                "observedGeneration": { "type": "integer", "format": "int64" },
                "since": { "type": "string", "format": "date-time" },
                "installation": { "description": "Namespace and name of the replica's installation.", "type": "string" },
                "signature": { "description": "The verdict about the signature of the artifact.", "type": "string", "enum": ["NotRequired", "Trusted", "Untrusted"] },
                "keys": texts("Whose signatures of the artifact are required, in words."),
                "rollout": rollout::report(),
                "lastReview": { "description": "When the replica called the plugin last. It is written at most every 30 minutes.", "type": "string", "format": "date-time" },
                "effective": {
                    "description": "The words of the leader about the effect of the plugin.",
                    "type": "object",
                    "properties": { "status": { "type": "string" }, "reason": { "type": "string" }, "message": { "type": "string" } },
                },
                "registered": {
                    "description": "The words of the leader about the registration of the plugin.",
                    "type": "object",
                    "properties": { "status": { "type": "string" }, "reason": { "type": "string" }, "message": { "type": "string" } },
                },
            },
        },
    });
    let digest = json!({ "description": "SHA-256 of the plugin's bytes, if all replicas serve the same.", "type": "string" });
    let short = json!({ "description": "The beginning of the digest.", "type": "string" });
    json!({
        "description": "A plugin: WebAssembly that mutates and validates objects before kube-apiserver stores them.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object" },
            "spec": {
                "description": "An entry under `plugins` of the configuration file, without its name.",
                "type": "object",
                "properties": spec,
                "x-kubernetes-validations": [{
                    "rule": "has(self.source) != has(self.group)",
                    "message": "expected source, or group with the sources of its members",
                }],
            },
            "status": status(&json!({
                "replicas": replicas, "digest": digest, "shortDigest": short, "rollouts": rollout::decisions(),
            })),
        },
        "x-kubernetes-validations": [{
            "rule": "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "message": "a plugin's name has at most 40 characters of a-z, 0-9 and -, and begins and ends with a letter or digit",
        }],
    })
}

/// The schema of a plugin of a namespace: that of the cluster's plugins, without the keys that only an administrator of
/// the cluster sets. Its defaults for `mode` and `failurePolicy` come from `tenancy`.
fn tenant_schema() -> Value {
    let mut schema = plugin_schema();
    schema["description"] = json!(
        "A plugin of this namespace: it is called for the objects of this namespace only, within what `tenancy` of the configuration allows."
    );
    let spec = &mut schema["properties"]["spec"];
    spec["description"] = json!(
        "An entry under `plugins` of the configuration file, without its name and without the keys of administrators."
    );
    spec["required"] = json!(["match"]);
    let properties = &mut spec["properties"];
    if let Some(properties) = properties.as_object_mut() {
        for key in ["signatures", "shadow", "allowNamespaceExceptions", "images"] {
            properties.remove(key);
        }
    }
    for key in ["mode", "failurePolicy"] {
        if let Some(schema) = properties[key].as_object_mut() {
            schema.remove("default");
        }
    }
    properties["rollout"] = json!({
        "description": "Not supported in an AdmissionPlugin.",
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    });
    properties["order"]["description"] = json!(
        "Place among the plugins of the namespace; mutators run in this order, before those of the cluster."
    );
    properties["settingsFrom"]["description"] = json!(
        "Settings from ConfigMaps and Secrets of this namespace, if tenancy.settingsFrom allows them, as YAML or JSON. Later ones go over earlier ones, and `settings` over all."
    );
    let members = &mut properties["group"]["properties"]["members"]["items"]["properties"];
    if let Some(members) = members.as_object_mut() {
        for key in ["signatures", "images"] {
            members.remove(key);
        }
    }
    for path in [
        "/source",
        "/group/properties/members/items/properties/source",
    ] {
        let Some(source) = properties.pointer_mut(path) else {
            continue;
        };
        source["description"] =
            json!("Where the plugin is: oci:// and a reference that tenancy.registries allows.");
        source["x-kubernetes-validations"] = json!([{
            "rule": "self.startsWith('oci://')",
            "message": "expected oci:// and a reference",
        }]);
    }
    schema
}

/// The keys that a plugin and its shadow version share.
fn code() -> Value {
    let limits = LIMITS
        .iter()
        .filter_map(|limit| limit.key.strip_prefix(LIMITS_OF_PLUGIN));
    let limits: Map<String, Value> = limits
        .map(|key| {
            (
                key.to_owned(),
                json!({ "x-kubernetes-int-or-string": true }),
            )
        })
        .collect();
    json!({
        "source": {
            "description": "Where the plugin is: oci:// and a reference, or file: and a path on the replicas.",
            "type": "string", "maxLength": LONGEST_TEXT_CHARACTERS,
            "x-kubernetes-validations": [{
                "rule": "self.startsWith('oci://') || self.startsWith('file:')",
                "message": "expected oci:// and a reference, or file: and a path",
            }],
        },
        "signatures": {
            "type": "object",
            "properties": { "keys": texts("PEM files with public keys on the replicas. The artifact must be signed by one of them.") },
        },
        "settings": {
            "description": "The plugin defines the keys.",
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        },
        "limits": { "type": "object", "properties": limits },
        "capabilities": texts("Imports that the plugin may use in addition to the contract."),
    })
}

/// One verdict from several plugins.
fn group() -> Value {
    let mut member = code();
    let more = json!({
        "name": {
            "description": "The name in the expression: a-z, 0-9 and _.",
            "type": "string", "maxLength": 40, "pattern": "^[a-z][a-z0-9_]*$",
        },
        "lookups": lookups(),
        "access": access(),
        "images": images::images(),
    });
    extend(&mut member, &more);
    json!({
        "description": "One verdict from several plugins that validate, with one message, instead of a source.",
        "type": "object",
        "required": ["members", "expression", "message"],
        "properties": {
            "members": {
                "description": "The plugins.",
                "type": "array", "minItems": 1, "maxItems": MOST_MEMBERS,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name", "source"], "properties": member },
            },
            "expression": text("When the group allows a request: any, all, or members in CEL, such as signed() || (trusted() && labelled())."),
            "message": text("The message for the user of a denied request."),
        },
    })
}

fn access() -> Value {
    json!({
        "description": "What the plugin may ask about the rights of users. It grants the capability access, also as {}.",
        "type": "object",
        "properties": {
            "serviceAccounts": { "description": "Whether the plugin may also ask about service accounts.", "type": "boolean" },
        },
    })
}

/// Objects of the cluster that the plugin may see.
fn lookups() -> Value {
    json!({
        "description": "The objects of the cluster that the plugin may see. They grant the capability cluster.",
        "type": "array", "maxItems": MOST_LOOKUPS,
        "items": {
            "type": "object",
            "required": ["name", "resource"],
            "properties": {
                "name": { "description": "The name by which the plugin asks.", "type": "string", "maxLength": 63 },
                "resource": {
                    "description": "The resource of the objects.",
                    "type": "object",
                    "required": ["group", "version", "resource"],
                    "properties": {
                        "group": text("The API group; the core group is the empty text."),
                        "version": text("The API version, such as v1."),
                        "resource": text("The resource in the plural, such as ingresses."),
                    },
                },
                "namespaces": {
                    "description": "all, or a list of names of namespaces. Without it, all.",
                    "x-kubernetes-preserve-unknown-fields": true,
                },
                "labelSelector": selector(),
                "fields": texts("The fields that the plugin sees, such as /spec/rules/*/host. Nothing else is kept."),
                "indexes": {
                    "description": "The keys by which the plugin finds objects: by name, a place such as /spec/rules/*/host.",
                    "type": "object", "additionalProperties": { "type": "string" },
                },
                "secrets": { "description": "Must be true if the objects are Secrets.", "type": "boolean" },
            },
        },
    })
}

fn selector() -> Value {
    let requirement = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": { "key": { "type": "string" }, "operator": { "type": "string" }, "values": texts("Values of the label.") },
    });
    json!({
        "type": "object",
        "properties": {
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            "matchExpressions": { "type": "array", "items": requirement },
        },
    })
}

fn matching() -> Value {
    let selector = selector();
    json!({
        "description": "The requests that the plugin is called for. Without it, the plugin's own rules apply.",
        "type": "object",
        "required": ["rules"],
        "properties": {
            "rules": {
                "type": "array", "minItems": 1, "maxItems": MOST_ELEMENTS,
                "items": {
                    "type": "object",
                    "required": ["operations", "apiGroups", "apiVersions", "resources"],
                    "properties": {
                        "operations": texts("CREATE, UPDATE, DELETE, CONNECT or *."),
                        "apiGroups": texts("API groups; the core group is the empty text."),
                        "apiVersions": texts("API versions, such as v1."),
                        "resources": texts("Resources, such as pods or pods/status."),
                        "scope": words("The scope of the objects.", &["*", "Cluster", "Namespaced"], None),
                    },
                },
            },
            "podTemplates": {
                "description": "Whether the plugin gets the pod templates of workloads, as Pods.",
                "type": "boolean",
            },
            "namespaces": texts("The namespaces of the objects. Without it, all."),
            "excludeNamespaces": texts("Namespaces whose objects the plugin does not see."),
            "excludeUsers": texts("Users whose requests the plugin does not see."),
            "excludeGroups": texts("Groups whose members' requests the plugin does not see."),
            "namespaceSelector": selector,
            "objectSelector": selector,
            "matchConditions": {
                "type": "array", "maxItems": 64,
                "items": {
                    "type": "object",
                    "required": ["name", "expression"],
                    "properties": { "name": { "type": "string" }, "expression": { "type": "string" } },
                },
            },
        },
    })
}

fn exception_schema() -> Value {
    let plugins = json!({
        "plugins": {
            "description": "The plugins that are not called.",
            "type": "array", "minItems": 1, "maxItems": MOST_ELEMENTS,
            "items": { "type": "string", "maxLength": 40 },
        },
        "expires": text("The last day (in UTC), or a time in RFC 3339. Without it, the exception applies until it is deleted."),
    });
    json!({
        "description": "Requests that some plugins are not called for. In the namespace of the installation it counts for all objects and all plugins of the cluster. In another namespace it counts if the configuration has `tenancy`: for objects of that namespace, plugins of that namespace, and plugins of the cluster with allowNamespaceExceptions.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object" },
            "spec": exception(plugins, &["plugins", "reason"]),
            "status": status(&json!({})),
        },
    })
}

/// The keys of an exception: the lists and the reason, and more.
fn exception(mut more: Value, required: &[&str]) -> Value {
    let lists = json!({
        "namespaces": texts("Namespaces of the objects."),
        "names": texts("Names of the objects."),
        "users": texts("Names of the users."),
        "groups": texts("Groups of the users."),
        "reason": { "description": "Why. The audit log repeats it.", "type": "string", "minLength": 1, "maxLength": 500 },
    });
    extend(&mut more, &lists);
    json!({
        "type": "object",
        "required": required,
        "properties": more,
        "x-kubernetes-validations": [{
            "rule": "has(self.namespaces) || has(self.names) || has(self.users) || has(self.groups)",
            "message": "expected at least one of namespaces, names, users or groups",
        }],
    })
}

fn status(more: &Value) -> Value {
    let mut properties = json!({
        "observedGeneration": { "type": "integer", "format": "int64" },
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status", "reason", "message", "lastTransitionTime"],
                "properties": {
                    "type": { "type": "string" },
                    "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                    "reason": { "type": "string" },
                    "message": { "type": "string" },
                    "observedGeneration": { "type": "integer", "format": "int64" },
                    "lastTransitionTime": { "type": "string", "format": "date-time" },
                },
            },
        },
    });
    extend(&mut properties, more);
    json!({ "type": "object", "properties": properties })
}

fn key_ref() -> Value {
    json!({
        "type": "object",
        "required": ["name", "key"],
        "properties": { "name": { "type": "string", "minLength": 1 }, "key": { "type": "string", "minLength": 1 } },
    })
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": "string" })
}

fn texts(description: &str) -> Value {
    json!({ "description": description, "type": "array", "maxItems": MOST_ELEMENTS, "items": { "type": "string" } })
}

fn words(description: &str, words: &[&str], default: Option<&str>) -> Value {
    let mut schema = json!({ "description": description, "type": "string", "enum": words });
    if let Some(default) = default {
        schema["default"] = json!(default);
    }
    schema
}

fn extend(properties: &mut Value, more: &Value) {
    if let (Some(properties), Some(more)) = (properties.as_object_mut(), more.as_object()) {
        properties.extend(more.clone());
    }
}
