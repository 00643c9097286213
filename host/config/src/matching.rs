//! Decides whether a request is one that a plugin is called for.
//!
//! Rules, selectors and conditions work exactly as kube-apiserver's do for a webhook, so they mean the same here as
//! in a webhook configuration. Cheap checks that often exclude a plugin come first:
//!
//! ```text
//! rules → namespaces → users → labels → labels of the namespace → conditions
//! ```
//!
//! Matching allocates nothing before the labels of the namespace, because the host checks every plugin for every
//! request. The labels of the namespace are not in the review. If the host does not have them yet, matching ends there
//! ([`Decided::AwaitsNamespace`]), and begins again after the lookup.

mod labels;

use std::borrow::Cow;

use tollgate_admission::namespaces::{Namespace, OfRequest};
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::Json;

use crate::condition::{Condition, ConditionError, Decision, decide_inline};
use crate::{Exception, Match, PluginConfig, Rule, Scope};

/// Why a plugin does not match a request. Matching makes one for every request, so it holds an index and no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The plugin does not take part in this phase.
    Phase,
    /// The plugin is confined to a namespace, and the object is not in it.
    Tenant,
    /// None of its rules matches the request.
    Rules,
    /// `namespaces` or `excludeNamespaces` excludes the request.
    Namespaces,
    /// `excludeUsers` lists the user.
    Users,
    /// `excludeGroups` lists a group of the user.
    Groups,
    /// `objectSelector` does not select the object.
    Labels,
    /// `namespaceSelector` does not select the object's namespace.
    NamespaceLabels,
    /// One of `matchConditions` is false: its index in the list.
    Condition(usize),
    /// The plugin gets pod templates, and a controller made this workload from a template that the plugin gets there.
    MadeByController,
    /// The plugin gets pod templates, and the request does not change the workload's template.
    SameTemplate,
}

/// Whether a plugin matches a request, before exceptions are considered.
#[derive(Debug)]
pub enum Decided<'p> {
    /// The request matches.
    Holds,
    /// The request does not match, for this reason.
    Fails(Mismatch),
    /// A condition cannot be evaluated.
    Unclear(ConditionError),
    /// The namespace is needed, and nobody has looked it up yet.
    AwaitsNamespace,
    /// The namespace is needed and cannot be looked up. The text says why.
    NoNamespace(String),
    /// The conditions have to be evaluated on another thread: all of them, and one that costs too much here.
    Costly(&'p [Condition], &'p Condition),
}

// === impl Mismatch ===

impl Mismatch {
    /// Describes the reason in words. `matching` is the plugin's `match`.
    #[must_use]
    pub fn describe(self, matching: Option<&Match>) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Phase => "it does not take part in this phase",
            Self::Tenant => {
                "it is confined to its namespace, and the object is cluster-scoped or in another namespace"
            }
            Self::Rules => "none of its rules matches",
            Self::Namespaces => {
                "a rule matches, but `namespaces` or `excludeNamespaces` excludes this namespace"
            }
            Self::Users => "a rule matches, but `excludeUsers` lists this user",
            Self::Groups => "a rule matches, but `excludeGroups` lists a group of this user",
            Self::Labels => "a rule matches, but its `objectSelector` does not",
            Self::NamespaceLabels => {
                "a rule matches, but its `namespaceSelector` does not select this namespace"
            }
            Self::MadeByController => {
                "podTemplates is on, but a controller made this object from a template of its own"
            }
            Self::SameTemplate => {
                "podTemplates is on, but the request does not change the pod template"
            }
            Self::Condition(index) => {
                let condition = matching.and_then(|matching| matching.conditions.get(index));
                let Some(condition) = condition else {
                    return Cow::Borrowed(
                        "a rule matches, but one of its `matchConditions` is false",
                    );
                };
                return Cow::Owned(format!(
                    "a rule matches, but its matchCondition `{}` is false",
                    condition.name()
                ));
            }
        })
    }
}

// === impl Decided ===

impl From<Decision> for Decided<'_> {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Holds => Self::Holds,
            Decision::Fails(index) => Self::Fails(Mismatch::Condition(index)),
            Decision::Unclear(error) => Self::Unclear(error),
        }
    }
}

// === impl Match ===

impl Match {
    /// Returns the index of the first rule that the request matches, or none if the plugin does not match.
    ///
    /// The host compares namespaces by name:
    ///
    /// - A Namespace object counts as being in itself, as it does for a namespaceSelector.
    /// - Any other cluster-scoped object is in no namespace. As with a namespaceSelector, such an object is never
    ///   excluded by `namespaces` or `excludeNamespaces`. To exclude it, use `scope`.
    ///
    /// Labels and conditions are not checked.
    #[must_use]
    pub fn matches(&self, request: &AdmissionRequest) -> Option<usize> {
        let rule = self.matching_rule(request)?;
        self.leaves_out(request).is_none().then_some(rule)
    }

    /// Decides whether a request matches, with the object as it is at the plugin's turn.
    #[must_use]
    pub fn decide(&self, request: &AdmissionRequest, object: Option<&Json>) -> Decided<'_> {
        if self.matching_rule(request).is_none() {
            return Decided::Fails(Mismatch::Rules);
        }
        if let Some(mismatch) = self.leaves_out(request) {
            return Decided::Fails(mismatch);
        }
        if !self
            .object_selector
            .selects(object, request.old_object.as_ref())
        {
            return Decided::Fails(Mismatch::Labels);
        }
        if self.needs_namespace() {
            match request.namespace_of(object) {
                OfRequest::Awaited(_) => return Decided::AwaitsNamespace,
                OfRequest::Failed(what) => return Decided::NoNamespace(what),
                // As in kube-apiserver, the selector never excludes a cluster-scoped object.
                OfRequest::None => {}
                OfRequest::Known(namespace) => {
                    if !self.selects_namespace(&namespace) {
                        return Decided::Fails(Mismatch::NamespaceLabels);
                    }
                }
            }
        }
        if self.conditions.is_empty() {
            return Decided::Holds;
        }
        match decide_inline(&self.conditions, request, object) {
            Ok(decision) => decision.into(),
            Err(condition) => Decided::Costly(&self.conditions, condition),
        }
    }

    /// Whether the Namespace of a request decides about the match.
    #[must_use]
    pub fn needs_namespace(&self) -> bool {
        !self.namespace_selector.requirements.is_empty()
            || self.conditions.iter().any(Condition::needs_namespace)
    }

    fn selects_namespace(&self, namespace: &Namespace) -> bool {
        self.namespace_selector
            .selects(Some(namespace.document()), None)
    }

    /// Returns which namespace or user setting excludes a request that a rule matches, if one does.
    pub fn leaves_out(&self, request: &AdmissionRequest) -> Option<Mismatch> {
        let named = |list: &[Box<str>], name: &str| list.iter().any(|one| **one == *name);
        if !self.covers_namespace(request) {
            return Some(Mismatch::Namespaces);
        }
        if !self.exclude_users.is_empty() && named(&self.exclude_users, request.username()) {
            return Some(Mismatch::Users);
        }
        let is_excluded = !self.exclude_groups.is_empty()
            && request
                .groups()
                .any(|group| named(&self.exclude_groups, group));
        is_excluded.then_some(Mismatch::Groups)
    }

    /// Returns the index of the first rule that the request matches, regardless of all other settings.
    pub fn matching_rule(&self, request: &AdmissionRequest) -> Option<usize> {
        self.rules.iter().position(|rule| rule.matches(request))
    }

    fn covers_namespace(&self, request: &AdmissionRequest) -> bool {
        if self.namespaces.is_empty() && self.exclude_namespaces.is_empty() {
            return true;
        }
        let Some(name) = namespace_or_itself(request) else {
            return true;
        };
        let contains = |list: &[Box<str>]| list.iter().any(|one| **one == *name);
        (self.namespaces.is_empty() || contains(&self.namespaces))
            && !contains(&self.exclude_namespaces)
    }
}

// === impl PluginConfig ===

impl PluginConfig {
    /// Whether the plugin may see the request at all. A plugin of a namespace sees the objects of its namespace only,
    /// whatever its rules say, and whichever webhook brought the request.
    #[must_use]
    pub fn sees(&self, request: &AdmissionRequest) -> bool {
        let namespace = self.name.namespace();
        namespace.is_none_or(|namespace| request.is_in_namespace(namespace))
    }
}

// === impl Exception ===

impl Exception {
    /// Whether the exception covers this request, regardless of the time.
    #[must_use]
    pub fn covers(&self, request: &AdmissionRequest) -> bool {
        // The Pod of a template has no name. The exception means the workload.
        let request = request.received();
        let holds = |list: &[Box<str>], name: Option<&str>| {
            list.is_empty() || name.is_some_and(|name| list.iter().any(|one| **one == *name))
        };
        let is_confined = self.confined_to.as_deref();
        is_confined.is_none_or(|namespace| request.is_in_namespace(namespace))
            && holds(&self.namespaces, namespace_or_itself(request))
            && holds(&self.names, request.object_name())
            && holds(&self.users, Some(request.username()))
            && (self.groups.is_empty()
                || request
                    .groups()
                    .any(|group| holds(&self.groups, Some(group))))
    }
}

// === impl Rule ===

impl Rule {
    fn matches(&self, request: &AdmissionRequest) -> bool {
        self.matches_scope(request)
            && self.operations.contains(request.operation)
            && self
                .api_groups
                .iter()
                .any(|group| group.matches(&request.resource.group))
            && self
                .api_versions
                .iter()
                .any(|version| version.matches(&request.resource.version))
            && self.matches_resource(request)
    }

    fn matches_scope(&self, request: &AdmissionRequest) -> bool {
        // kube-apiserver sets a Namespace object's namespace to its own name, but the object is cluster-scoped.
        let namespaced = || {
            let is_namespace = request.is_about_namespaces() && request.resource.version == "v1";
            !is_namespace && namespace(request).is_some()
        };
        match self.scope {
            Scope::All => true,
            Scope::Cluster => !namespaced(),
            Scope::Namespaced => namespaced(),
        }
    }

    fn matches_resource(&self, request: &AdmissionRequest) -> bool {
        let resource = request.resource.resource.as_str();
        let sub_resource = request.sub_resource.as_deref().unwrap_or_default();
        let mut patterns = self.resources.iter();
        patterns.any(|pattern| {
            pattern.resource.matches(resource) && pattern.sub_resource.matches(sub_resource)
        })
    }
}

/// Returns the request's namespace. An empty one counts as none.
fn namespace(request: &AdmissionRequest) -> Option<&str> {
    request.namespace.as_deref().filter(|name| !name.is_empty())
}

/// Returns the namespace that the object is in. A Namespace object is in itself. With generateName, a Namespace has
/// no name yet, so no list can name its namespace.
fn namespace_or_itself(request: &AdmissionRequest) -> Option<&str> {
    namespace(request).or_else(|| {
        request
            .is_about_namespaces()
            .then_some(request.name.as_str())
    })
}

#[cfg(test)]
mod tests;
