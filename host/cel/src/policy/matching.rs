//! Matches requests: rules, names and label selectors.

use std::cell::OnceCell;
use std::fmt;
use std::sync::{Arc, LazyLock};

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

/// The parts of a request that rules always look at: group, version and resource before kube-apiserver converted the object,
/// the subresource and the operation.
static FIRST: LazyLock<[String; 5]> = LazyLock::new(|| {
    [
        "/requestResource/group",
        "/requestResource/version",
        "/requestResource/resource",
        "/subResource",
        "/operation",
    ]
    .map(str::to_owned)
});
/// Group, version and resource of the object as the policy gets it.
static CONVERTED: LazyLock<[String; 3]> = LazyLock::new(|| {
    ["/resource/group", "/resource/version", "/resource/resource"].map(str::to_owned)
});

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
    // Made once, when the policy is compiled.
    LazyLock::force(&FIRST);
    LazyLock::force(&CONVERTED);
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

/// The parts of a request that rules match. What few rules need is read when a rule needs it.
struct Request<'s> {
    source: &'s dyn Source,
    /// Before kube-apiserver converted the object.
    original: Resource,
    converted: OnceCell<Resource>,
    sub_resource: Arc<str>,
    operation: Arc<str>,
    namespace: OnceCell<String>,
    name: OnceCell<String>,
}

#[derive(Clone)]
struct Resource {
    group: Arc<str>,
    version: Arc<str>,
    resource: Arc<str>,
}

// === impl Resource ===

impl Resource {
    fn converted(source: &dyn Source) -> Self {
        let mut texts = texts(source, &*CONVERTED);
        let mut text = || texts.next().flatten().unwrap_or_default();
        Self {
            group: text(),
            version: text(),
            resource: text(),
        }
    }
}

fn texts(source: &dyn Source, pointers: &[String]) -> impl Iterator<Item = Option<Arc<str>>> {
    let found = source.look(Document::Request, pointers).into_iter();
    found.map(|look| match look {
        Some(Look::Scalar(Value::String(text))) => Some(text),
        _ => None,
    })
}

// === impl Request ===

impl<'s> Request<'s> {
    fn read(source: &'s dyn Source) -> Self {
        let mut texts = texts(source, &*FIRST);
        let mut text = || texts.next().flatten();
        let (group, version, resource) = (text(), text(), text());
        let converted = OnceCell::new();
        let original = match resource {
            Some(resource) => Resource {
                group: group.unwrap_or_default(),
                version: version.unwrap_or_default(),
                resource,
            },
            None => converted
                .get_or_init(|| Resource::converted(source))
                .clone(),
        };
        Self {
            source,
            original,
            converted,
            sub_resource: text().unwrap_or_default(),
            operation: text().unwrap_or_default(),
            namespace: OnceCell::new(),
            name: OnceCell::new(),
        }
    }

    fn converted(&self) -> &Resource {
        self.converted
            .get_or_init(|| Resource::converted(self.source))
    }

    fn namespace(&self) -> &str {
        self.namespace
            .get_or_init(|| request_text(self.source, "/namespace"))
    }

    fn name(&self) -> &str {
        self.name.get_or_init(|| request_text(self.source, "/name"))
    }

    /// Whether the resource is one of these, by group.
    fn is_of(&self, resources: &[(&str, &[&str])]) -> bool {
        let Resource {
            group, resource, ..
        } = &self.original;
        let mut groups = resources.iter();
        groups.any(|(name, resources)| **name == **group && resources.contains(&&**resource))
    }

    fn fits(&self, rule: &NamedRule, policy: MatchPolicy) -> bool {
        // The operation and the original resource are known, and mostly they decide.
        has(&rule.operations, &self.operation)
            && (self.fits_resource(rule, &self.original)
                || policy == MatchPolicy::Equivalent && self.fits_resource(rule, self.converted()))
            && (rule.resource_names.is_empty()
                || rule.resource_names.iter().any(|name| name == self.name()))
    }

    fn fits_resource(&self, rule: &NamedRule, of: &Resource) -> bool {
        let is_namespaced = || &*of.resource != "namespaces" && !self.namespace().is_empty();
        let fits_scope = || match rule.scope.as_deref() {
            Some("Namespaced") => is_namespaced(),
            Some("Cluster") => !is_namespaced(),
            _ => true,
        };
        has(&rule.api_groups, &of.group)
            && has(&rule.api_versions, &of.version)
            && rule.resources.iter().any(|wanted| {
                let (wanted, sub_resource) = wanted.split_once('/').unwrap_or((wanted, ""));
                (wanted == "*" || wanted == &*of.resource)
                    && (sub_resource == "*" || sub_resource == &*self.sub_resource)
            })
            && fits_scope()
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
        let converted = self.converted();
        let is_namespace = &*converted.resource == "namespaces" && converted.group.is_empty();
        if !is_namespace && self.namespace().is_empty() {
            return Ok(true);
        }
        let name = match is_namespace {
            true => self.name(),
            false => self.namespace(),
        };
        let labels = if is_namespace && self.sub_resource.is_empty() {
            let document = if &*self.operation == "DELETE" {
                Document::OldObject
            } else {
                Document::Object
            };
            read(source, document, "/metadata/labels")
        } else if has_namespace && other_label(selector).is_some() {
            let labels = read(source, Document::Namespace, "/metadata/labels");
            // A Namespace without labels is not the same as none.
            if labels.is_none() && !source.exists(Document::Namespace, "/metadata/name") {
                return Err(UnknownNamespace(name.to_owned()));
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
            *known.entry(NAME_LABEL) = Value::text(name);
        }
        Ok(selects(selector, Some(&Value::Map(known.into()))))
    }
}

/// Whether a list has a value or the wildcard.
fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == "*" || one == wanted)
}
