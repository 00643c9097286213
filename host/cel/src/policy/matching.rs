//! Matches requests: rules, names and label selectors.

use std::fmt;

use super::spec::{MatchPolicy, MatchResources, NamedRule, Selector, SelectorOperator};
use super::{Abilities, Problem};
use crate::eval::{Found, Source};
use crate::json;
use crate::node::Document;
use crate::value::{Key, Map, Value};
use tollgate_shape::Look;

/// The label that every Namespace has, with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// kube-apiserver calls no policy for these resources, whatever the rules say: administrators can always repair policies,
/// and who may do something does not depend on them.
const NEVER: [(&str, &[&str]); 3] = [
    (
        "admissionregistration.k8s.io",
        &[
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
        ],
    ),
    (
        "authentication.k8s.io",
        &["selfsubjectreviews", "tokenreviews"],
    ),
    (
        "authorization.k8s.io",
        &[
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        ],
    ),
];

/// A selector needs the labels of a Namespace that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownNamespace(String);

// === impl UnknownNamespace ===

impl fmt::Display for UnknownNamespace {
    /// The words of kube-apiserver.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "namespaces {:?} not found", self.0)
    }
}

/// Reports the parts that cannot be matched.
pub(super) fn check(
    resources: &MatchResources,
    at: &str,
    abilities: Abilities,
    problems: &mut Vec<Problem>,
) {
    let Some(selector) = &resources.namespace_selector else {
        return;
    };
    if let (Some(key), false) = (other_label(selector), abilities.namespace) {
        problems.push(Problem::new(
            format!("{at}/namespaceSelector"),
            format!(
                "cannot select by the label {key:?}: the host does not pass the Namespace to plugins; only \
                 {NAME_LABEL:?} is known"
            ),
        ));
    }
}

/// Finds a label that the name of a Namespace does not tell.
fn other_label(selector: &Selector) -> Option<&String> {
    let by_label = selector.match_labels.keys();
    let by_expression = selector.match_expressions.iter().map(|one| &one.key);
    by_label.chain(by_expression).find(|key| *key != NAME_LABEL)
}

/// Whether a request matches.
///
/// # Errors
/// When everything else matches, and `namespaceSelector` needs a Namespace that the source does not have.
pub(super) fn matches(
    resources: &MatchResources,
    source: &dyn Source,
    has_namespace: bool,
) -> Result<bool, UnknownNamespace> {
    if resources.is_unlimited() {
        return Ok(true);
    }
    let request = Request::read(source);
    if request.is_of(&NEVER) {
        return Ok(false);
    }
    let policy = resources.match_policy.unwrap_or_default();
    let any = |rules: &[NamedRule]| rules.iter().any(|rule| request.fits(rule, policy));
    let is_selected = (resources.resource_rules.is_empty() || any(&resources.resource_rules))
        && !any(&resources.exclude_resource_rules)
        && selects_object(resources.object_selector.as_ref(), source);
    if !is_selected {
        return Ok(false);
    }
    request.selects_namespace(resources.namespace_selector.as_ref(), source, has_namespace)
}

/// Whether a label selector selects labels.
pub(super) fn selects(selector: &Selector, labels: Option<&Value>) -> bool {
    let label = |key: &str| {
        labels
            .and_then(|labels| labels.field(key))
            .and_then(Value::as_text)
    };
    let all_labels = selector
        .match_labels
        .iter()
        .all(|(key, value)| label(key) == Some(value));
    all_labels
        && selector.match_expressions.iter().all(|one| {
            let found = label(&one.key);
            let is_in = found.is_some_and(|found| one.values.iter().any(|value| value == found));
            match one.operator {
                SelectorOperator::In => is_in,
                SelectorOperator::NotIn => !is_in,
                SelectorOperator::Exists => found.is_some(),
                SelectorOperator::DoesNotExist => found.is_none(),
            }
        })
}

/// Reads a string of the request. The empty string for nothing.
pub(super) fn request_text(source: &dyn Source, pointer: &str) -> String {
    match source.value(Document::Request, pointer) {
        Some(Found::Value(Value::String(text))) => text.to_string(),
        _ => String::new(),
    }
}

/// Reads a value of any shape.
pub(super) fn read(source: &dyn Source, document: Document, pointer: &str) -> Option<Value> {
    match source.value(document, pointer)? {
        Found::Value(value) => Some(value),
        Found::Json(text) => json::parse(&text),
    }
}

impl MatchResources {
    /// Whether every request matches, so that the request need not be read.
    fn is_unlimited(&self) -> bool {
        let is_empty =
            |selector: &Option<Selector>| selector.as_ref().is_none_or(Selector::is_empty);
        self.resource_rules.is_empty()
            && self.exclude_resource_rules.is_empty()
            && is_empty(&self.object_selector)
            && is_empty(&self.namespace_selector)
    }
}

impl Selector {
    fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// Whether a selector selects the object or the old object.
fn selects_object(selector: Option<&Selector>, source: &dyn Source) -> bool {
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
        return true;
    };
    [Document::Object, Document::OldObject]
        .into_iter()
        .filter(|document| source.exists(*document, "/metadata"))
        .any(|document| {
            let labels = read(source, document, "/metadata/labels");
            selects(selector, labels.as_ref())
        })
}

/// The parts of a request that rules match.
struct Request {
    group: String,
    version: String,
    resource: String,
    /// Group, version and resource before kube-apiserver converted the object.
    original: (String, String, String),
    sub_resource: String,
    operation: String,
    namespace: String,
    name: String,
}

// === impl Request ===

impl Request {
    fn read(source: &dyn Source) -> Self {
        const POINTERS: [&str; 10] = [
            "/resource/group",
            "/resource/version",
            "/resource/resource",
            "/requestResource/group",
            "/requestResource/version",
            "/requestResource/resource",
            "/subResource",
            "/operation",
            "/namespace",
            "/name",
        ];
        let found = source.look(Document::Request, &POINTERS.map(str::to_owned));
        let mut texts = found.into_iter().map(|value| match value {
            Some(Look::Scalar(Value::String(text))) => Some(text.to_string()),
            _ => None,
        });
        let mut three = || [(); 3].map(|()| texts.next().flatten());
        let [group, version, resource] = three().map(Option::unwrap_or_default);
        let original = match three() {
            [group, version, Some(resource)] => (
                group.unwrap_or_default(),
                version.unwrap_or_default(),
                resource,
            ),
            _ => (group.clone(), version.clone(), resource.clone()),
        };
        let mut text = || texts.next().flatten().unwrap_or_default();
        Self {
            group,
            version,
            resource,
            original,
            sub_resource: text(),
            operation: text(),
            namespace: text(),
            name: text(),
        }
    }

    /// Whether the resource is one of these, by group.
    fn is_of(&self, resources: &[(&str, &[&str])]) -> bool {
        let (group, _, resource) = &self.original;
        let mut groups = resources.iter();
        groups.any(|(name, resources)| name == group && resources.contains(&resource.as_str()))
    }

    fn fits(&self, rule: &NamedRule, policy: MatchPolicy) -> bool {
        let (group, version, resource) = &self.original;
        let is_equivalent = policy == MatchPolicy::Equivalent
            && self.fits_resource(rule, &self.group, &self.version, &self.resource);
        (is_equivalent || self.fits_resource(rule, group, version, resource))
            && has(&rule.operations, &self.operation)
            && (rule.resource_names.is_empty() || rule.resource_names.contains(&self.name))
    }

    fn fits_resource(&self, rule: &NamedRule, group: &str, version: &str, resource: &str) -> bool {
        let is_namespaced = resource != "namespaces" && !self.namespace.is_empty();
        let fits_scope = match rule.scope.as_deref() {
            Some("Namespaced") => is_namespaced,
            Some("Cluster") => !is_namespaced,
            _ => true,
        };
        fits_scope
            && has(&rule.api_groups, group)
            && has(&rule.api_versions, version)
            && rule.resources.iter().any(|wanted| {
                let (wanted, sub_resource) = wanted.split_once('/').unwrap_or((wanted, ""));
                (wanted == "*" || wanted == resource)
                    && (sub_resource == "*" || sub_resource == self.sub_resource)
            })
    }

    /// Whether a selector selects the Namespace. Objects outside of Namespaces are always selected.
    ///
    /// # Errors
    /// When the source does not have the Namespace.
    fn selects_namespace(
        &self,
        selector: Option<&Selector>,
        source: &dyn Source,
        has_namespace: bool,
    ) -> Result<bool, UnknownNamespace> {
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            return Ok(true);
        };
        let is_namespace = self.resource == "namespaces" && self.group.is_empty();
        if self.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let name = if is_namespace {
            &self.name
        } else {
            &self.namespace
        };
        let labels = if is_namespace && self.sub_resource.is_empty() {
            let document = if self.operation == "DELETE" {
                Document::OldObject
            } else {
                Document::Object
            };
            read(source, document, "/metadata/labels")
        } else if has_namespace && other_label(selector).is_some() {
            let labels = read(source, Document::Namespace, "/metadata/labels");
            // A Namespace without labels is not the same as none.
            if labels.is_none() && !source.exists(Document::Namespace, "/metadata/name") {
                return Err(UnknownNamespace(name.clone()));
            }
            labels
        } else {
            None
        };
        // kube-apiserver sets this label on every Namespace.
        let mut known = match labels {
            Some(Value::Map(map)) => (*map).clone(),
            _ => Map::default(),
        };
        if known.get(&Key::String(NAME_LABEL.into())).is_none() {
            *known.entry(NAME_LABEL) = Value::text(name.as_str());
        }
        Ok(selects(selector, Some(&Value::Map(known.into()))))
    }
}

/// Whether a list has a value or the wildcard.
fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == "*" || one == wanted)
}
