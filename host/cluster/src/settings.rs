//! `settingsFrom`: settings from ConfigMaps and Secrets of the installation's namespace, or of the namespace of an
//! `AdmissionPlugin`. No reference can name another namespace.
//!
//! No text of this module contains a value, because values may be secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};
use tollgate_config::SettingsSource;
use tollgate_config::problem::Collector;
use tollgate_config::read::Node;
use tollgate_config::yaml;

use crate::desired::Refusal;

/// A kind of object that holds settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HolderKind {
    ConfigMap,
    Secret,
}

/// An object that holds settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) kind: HolderKind,
    /// The namespace of an `AdmissionPlugin`. None means the namespace of the installation.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// A key of an object that holds settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingsRef {
    pub(crate) holder: Holder,
    pub(crate) key: String,
}

/// The content of an object that holds settings, as it was last seen.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Held {
    /// The object does not exist.
    Missing,
    /// The object's keys.
    Keys(BTreeMap<String, Vec<u8>>),
    /// The object cannot be read, for this reason.
    Unreadable(String),
}

const SOURCE_EXPECTED: &str = "configMapKeyRef or secretKeyRef, with name and key";

/// Lists the objects that hold settings for this spec of a resource in this namespace.
pub(crate) fn holders(spec: &Value, namespace: Option<&str>) -> BTreeSet<Holder> {
    let unused = Collector::default();
    let refs = read(spec, namespace, &unused).into_iter();
    refs.map(|reference| reference.holder).collect()
}

/// Reads `settingsFrom` of a spec. The objects are in `namespace`, or else in that of the installation.
pub(crate) fn read(
    spec: &Value,
    namespace: Option<&str>,
    problems: &Collector,
) -> Vec<SettingsRef> {
    let Some(list) = spec.get("settingsFrom") else {
        return Vec::new();
    };
    let nodes = Node::at("spec.settingsFrom", list, problems).elements("references");
    let nodes = nodes.unwrap_or_default();
    let refs = nodes.iter();
    refs.filter_map(|node| SettingsRef::read(node, namespace))
        .collect()
}

/// Returns the settings of a spec: those that it refers to, in order, and over them its own.
pub(crate) fn merge(
    spec: &Value,
    refs: &[SettingsRef],
    held: &BTreeMap<Holder, Held>,
) -> Result<Value, Refusal> {
    let mut settings = Value::Object(Map::new());
    for reference in refs {
        settings = over(settings, reference.resolve(held)?);
    }
    match spec.get("settings") {
        Some(own) => Ok(over(settings, own.clone())),
        None => Ok(settings),
    }
}

/// Merges `upper` over `lower`. Objects are merged member by member. Any other value replaces the lower one.
fn over(lower: Value, upper: Value) -> Value {
    match (lower, upper) {
        (Value::Object(mut lower), Value::Object(upper)) => {
            for (key, value) in upper {
                let below = lower.remove(&key).unwrap_or(Value::Null);
                lower.insert(key, over(below, value));
            }
            Value::Object(lower)
        }
        (_, upper) => upper,
    }
}

// === impl SettingsRef ===

impl SettingsRef {
    fn read(node: &Node<'_>, namespace: Option<&str>) -> Option<Self> {
        let mut fields = node.object()?;
        let sources = [
            (HolderKind::ConfigMap, fields.optional("configMapKeyRef")),
            (HolderKind::Secret, fields.optional("secretKeyRef")),
        ];
        fields.finish();
        let mut given = sources
            .into_iter()
            .filter_map(|(kind, node)| Some((kind, node?)));
        let (Some((kind, source)), None) = (given.next(), given.next()) else {
            node.reject(SOURCE_EXPECTED);
            return None;
        };
        let mut fields = source.object()?;
        let name = fields.required("name", "the object's name");
        let name = name.and_then(|node| node.quotable_text("the object's name"));
        let key = fields.required("key", "a key of the object");
        let key = key.and_then(|node| node.quotable_text("a key of the object"));
        fields.finish();
        Some(Self {
            holder: Holder {
                kind,
                namespace: namespace.map(str::to_owned),
                name: name?.to_owned(),
            },
            key: key?.to_owned(),
        })
    }

    fn resolve(&self, held: &BTreeMap<Holder, Held>) -> Result<Value, Refusal> {
        let Self { holder, key } = self;
        let refuse = |reason, message| Err(Refusal { reason, message });
        let keys = match held.get(holder) {
            None => {
                let message = format!("{holder} has not been read yet");
                return refuse("SettingsPending", message);
            }
            Some(Held::Unreadable(why)) => {
                let remedy = match &holder.namespace {
                    None => String::new(),
                    Some(namespace) => format!(
                        "; if that is forbidden, a Role in {namespace} must let the service account of Tollgate list and \
                         watch this object"
                    ),
                };
                let message = format!("cannot read {holder}: {why}{remedy}");
                return refuse("SettingsUnreadable", message);
            }
            Some(Held::Missing) => {
                let namespace = holder.namespace.as_deref();
                let place = namespace.unwrap_or("the namespace of the installation");
                let message = format!(
                    "{holder} does not exist in {place}: create it, or remove it from spec.settingsFrom"
                );
                return refuse("SettingsMissing", message);
            }
            Some(Held::Keys(keys)) => keys,
        };
        let Some(bytes) = keys.get(key) else {
            let message = format!("{holder} has no key {key:?}");
            return refuse("SettingsMissing", message);
        };
        // The parser's words may quote the text, and the text may be secret.
        let text = std::str::from_utf8(bytes).ok();
        let value = text.and_then(|text| yaml::read(text, &Collector::default()));
        match value {
            Some(value) if value.is_object() => Ok(value),
            _ => {
                let message = format!("key {key:?} of {holder} is not an object in YAML or JSON");
                refuse("SettingsInvalid", message)
            }
        }
    }
}

// === impl HolderKind ===

impl HolderKind {
    /// The kind as `tenancy.settingsFrom` has it.
    pub(crate) fn source(self) -> SettingsSource {
        match self {
            Self::ConfigMap => SettingsSource::ConfigMap,
            Self::Secret => SettingsSource::Secret,
        }
    }
}

// === impl Holder, Held ===

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            HolderKind::ConfigMap => "ConfigMap",
            HolderKind::Secret => "Secret",
        };
        match &self.namespace {
            None => write!(f, "{kind} {}", self.name),
            Some(namespace) => write!(f, "{kind} {namespace}/{}", self.name),
        }
    }
}

/// Hides the values, because they may be secret.
impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("Missing"),
            Self::Keys(keys) => f.debug_set().entries(keys.keys()).finish(),
            Self::Unreadable(why) => f.debug_tuple("Unreadable").field(why).finish(),
        }
    }
}
