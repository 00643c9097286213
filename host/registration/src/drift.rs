//! The difference between the configured and the registered webhooks.
//!
//! Rules are compared by the requests that they match, everything else by its value with Kubernetes' defaults.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::live::{Objects, list, name_of};
use crate::webhook::{Address, Webhooks};

/// Both kinds of webhook configurations.
pub const KINDS: [&str; 2] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// One difference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Drift {
    /// Kind of the configuration.
    pub kind: String,
    /// Name of the configuration.
    pub name: String,
    /// Name of the webhook. None if the difference is about the whole configuration.
    pub webhook: Option<String>,
    /// The kind of difference.
    pub effect: Effect,
    /// The field that differs. Empty if the whole configuration or webhook is missing or left over.
    pub field: String,
    /// The lines of the registration that are not in the configuration.
    pub registered: Vec<String>,
    /// The lines of the configuration that are not registered.
    pub configured: Vec<String>,
}

/// The effect of a difference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// The configuration or webhook is not registered, so kube-apiserver does not call plugins.
    Missing,
    /// The configuration or webhook is registered, and no plugin needs it.
    LeftOver,
    /// Rules match requests that no plugin is for.
    TooWide,
    /// Rules do not match requests that a plugin is for.
    TooNarrow,
    /// A field has another value.
    Different,
}

/// Compares registrations with the configuration of an installation.
///
/// `configured` are the configurations to be registered under `name`. Of `live`, only webhook configurations count:
/// those with this name, and others that call `address` with all their webhooks and carry Tollgate's label.
#[must_use]
pub fn compare(
    configured: &[Webhooks],
    live: &Objects,
    name: &str,
    address: &Address,
) -> Vec<Drift> {
    let mut drifts = Vec::new();
    for kind in KINDS {
        let wanted = configured
            .iter()
            .map(|webhooks| json!(webhooks))
            .find(|webhooks| webhooks["kind"] == kind);
        let registered = live.of_kind(kind).find(|object| name_of(object) == name);
        match (&wanted, registered) {
            (Some(wanted), Some(registered)) => between(wanted, registered, &mut drifts),
            (Some(_), None) => drifts.push(Drift::whole(kind, name, Effect::Missing)),
            (None, Some(_)) => drifts.push(Drift::whole(kind, name, Effect::LeftOver)),
            (None, None) => {}
        }
        let others = live
            .of_kind(kind)
            .filter(|object| name_of(object) != name && is_of(object, address));
        drifts.extend(others.map(|object| Drift::whole(kind, name_of(object), Effect::LeftOver)));
    }
    drifts
}

/// Describes the requests that the configured rules match and the registered ones do not. Both are lists of Kubernetes'
/// RuleWithOperations.
#[must_use]
pub fn lacking(configured: &Value, registered: &Value) -> Vec<String> {
    rules::differences(configured, registered).1
}

/// Returns whether all webhooks of a configuration call the address, and the configuration has Tollgate's label.
fn is_of(object: &Value, address: &Address) -> bool {
    let calls = |webhook: &Value| {
        let client = &webhook["clientConfig"];
        match address {
            Address::Service {
                namespace, name, ..
            } => {
                client["service"]["namespace"] == **namespace && client["service"]["name"] == **name
            }
            Address::Url(base) => client["url"].as_str().is_some_and(|url| {
                let rest = url.strip_prefix(base.trim_end_matches('/'));
                rest.is_some_and(|path| {
                    path.starts_with("/mutate") || path.starts_with("/validate")
                })
            }),
        }
    };
    let labels = &object["metadata"]["labels"];
    labels["app.kubernetes.io/name"] == "tollgate"
        && list(&object["webhooks"]).next().is_some()
        && list(&object["webhooks"]).all(calls)
}

fn between(configured: &Value, registered: &Value, drifts: &mut Vec<Drift>) {
    let kind = configured["kind"].as_str().unwrap_or_default();
    let object = name_of(configured);
    let names = |webhooks: &Value| -> Vec<String> {
        let names = list(&webhooks["webhooks"]).filter_map(|webhook| webhook["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let (wanted, present) = (names(configured), names(registered));
    for name in present.iter().filter(|name| !wanted.contains(name)) {
        drifts.push(Drift::whole(kind, object, Effect::LeftOver).of(name));
    }
    for webhook in list(&configured["webhooks"]) {
        let name = webhook["name"].as_str().unwrap_or_default();
        let mut of_name = list(&registered["webhooks"]).filter(|other| other["name"] == name);
        match of_name.next() {
            None => drifts.push(Drift::whole(kind, object, Effect::Missing).of(name)),
            Some(other) => {
                let found = within(webhook, other);
                drifts.extend(found.into_iter().map(|drift| Drift {
                    kind: kind.to_owned(),
                    name: object.to_owned(),
                    webhook: Some(name.to_owned()),
                    ..drift
                }));
            }
        }
    }
    let common = |names: &[String], others: &[String]| -> Vec<String> {
        let both = names.iter().filter(|name| others.contains(name));
        both.cloned().collect()
    };
    let (in_configured, in_registered) = (common(&wanted, &present), common(&present, &wanted));
    if kind == KINDS[0] && in_configured != in_registered {
        let mut drift = Drift::whole(kind, object, Effect::Different);
        drift.field = "order of webhooks".to_owned();
        drift.registered = vec![in_registered.join(", ")];
        drift.configured = vec![in_configured.join(", ")];
        drifts.push(drift);
    }
}

/// Compares two webhooks of the same name.
fn within(configured: &Value, registered: &Value) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let (wide, narrow) = rules::differences(&configured["rules"], &registered["rules"]);
    let mut add = |effect, field: &str, registered: Vec<String>, configured: Vec<String>| {
        if registered != configured {
            drifts.push(Drift {
                kind: String::new(),
                name: String::new(),
                webhook: None,
                effect,
                field: field.to_owned(),
                registered,
                configured,
            });
        }
    };
    add(Effect::TooWide, "rules", wide, Vec::new());
    add(Effect::TooNarrow, "rules", Vec::new(), narrow);
    for (field, default) in [
        ("failurePolicy", json!("Fail")),
        ("matchPolicy", json!("Equivalent")),
        ("reinvocationPolicy", json!("Never")),
        ("sideEffects", Value::Null),
        ("timeoutSeconds", json!(10)),
        ("admissionReviewVersions", Value::Null),
    ] {
        let shown = |webhook: &Value| {
            let value = webhook.get(field).unwrap_or(&default);
            vec![value.to_string()]
        };
        add(
            Effect::Different,
            field,
            shown(registered),
            shown(configured),
        );
    }
    for field in ["namespaceSelector", "objectSelector", "matchConditions"] {
        let shown = if field == "matchConditions" {
            conditions
        } else {
            selector
        };
        let (present, wanted) = (shown(&registered[field]), shown(&configured[field]));
        let present_only = present.difference(&wanted).cloned().collect();
        let wanted_only = wanted.difference(&present).cloned().collect();
        add(Effect::Different, field, present_only, wanted_only);
    }
    let (present, wanted) = (&registered["clientConfig"], &configured["clientConfig"]);
    add(
        Effect::Different,
        "clientConfig",
        vec![address(present)],
        vec![address(wanted)],
    );
    // Without a configured bundle, another tool may add one.
    if let Some(bundle) = wanted["caBundle"].as_str() {
        add(
            Effect::Different,
            "clientConfig.caBundle",
            certificates(present["caBundle"].as_str().unwrap_or_default()),
            certificates(bundle),
        );
    }
    drifts
}

fn selector(selector: &Value) -> BTreeSet<String> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key} In [{}]", value.as_str().unwrap_or("")));
    let expressions = list(&selector["matchExpressions"]).map(|expression| {
        let values: BTreeSet<&str> = crate::live::texts(&expression["values"])
            .into_iter()
            .collect();
        let values: Vec<&str> = values.into_iter().collect();
        let key = expression["key"].as_str().unwrap_or_default();
        let operator = expression["operator"].as_str().unwrap_or_default();
        format!("{key} {operator} [{}]", values.join(", "))
    });
    labels.chain(expressions).collect()
}

fn conditions(conditions: &Value) -> BTreeSet<String> {
    let line = |condition: &Value| {
        let name = condition["name"].as_str().unwrap_or_default();
        let expression = condition["expression"].as_str().unwrap_or_default();
        format!("{name}: {expression}")
    };
    list(conditions).map(line).collect()
}

fn address(client: &Value) -> String {
    if let Some(url) = client["url"].as_str() {
        return url.to_owned();
    }
    let service = &client["service"];
    let part = |key: &str| service[key].as_str().unwrap_or_default();
    format!(
        "service {}/{}:{}{}",
        part("namespace"),
        part("name"),
        service["port"].as_u64().unwrap_or(443),
        part("path")
    )
}

/// Shows the certificates of a bundle by the beginning of their content, because whole ones are unreadable.
fn certificates(bundle: &str) -> Vec<String> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem).into_owned();
    let mut shown: Vec<String> = pem
        .split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .map(|section| {
            let body = section.split("-----END").next().unwrap_or_default();
            let body: String = body.split_whitespace().collect();
            // The start holds the version and the serial number. The end is the signature.
            let end = body.len().saturating_sub(16);
            let tail = body.get(end..).unwrap_or_default();
            format!("certificate of {} bytes, ending in {tail}", body.len())
        })
        .collect();
    if shown.is_empty() {
        shown.push(format!("{} bytes without a certificate", pem.len()));
    }
    shown.sort();
    shown
}

// === impl Drift ===

impl Drift {
    fn whole(kind: &str, name: &str, effect: Effect) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            webhook: None,
            effect,
            field: String::new(),
            registered: Vec::new(),
            configured: Vec::new(),
        }
    }

    fn of(mut self, webhook: &str) -> Self {
        self.webhook = Some(webhook.to_owned());
        self
    }

    /// Returns the command that removes a left-over configuration. None if something else is wrong.
    #[must_use]
    pub fn removal(&self) -> Option<String> {
        let is_object = self.webhook.is_none() && self.effect == Effect::LeftOver;
        is_object.then(|| format!("kubectl delete {} {}", self.kind.to_lowercase(), self.name))
    }

    /// Returns the place of the difference in one line.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.webhook {
            None => format!("{} {}", self.kind, self.name),
            Some(webhook) => format!("{} {}, webhook {webhook}", self.kind, self.name),
        }
    }
}

/// Writes the difference like a diff: `-` before registered lines, `+` before configured ones.
impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.effect)?;
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        for line in &self.registered {
            write!(f, "\n- {line}")?;
        }
        for line in &self.configured {
            write!(f, "\n+ {line}")?;
        }
        Ok(())
    }
}

// === impl Effect ===

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "not registered",
            Self::LeftOver => "left over",
            Self::TooWide => "too wide",
            Self::TooNarrow => "too narrow",
            Self::Different => "different",
        })
    }
}
