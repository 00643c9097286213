//! Decides whether a plugin is called for a request.
//!
//! Rules, selectors and conditions work exactly as kube-apiserver's do for a webhook, so they mean the same here as
//! in a webhook configuration. Cheap checks that often exclude a plugin come first:
//!
//! ```text
//! rules → namespaces → users → labels → conditions → exceptions
//! ```
//!
//! Matching allocates nothing before the conditions, because the host checks every plugin for every request.
//!
//! The cost of a condition depends on the object, which the user chooses. If the conditions take more than a
//! millisecond, the host evaluates them on another thread. The plugin's standing is then found in two steps.

mod labels;

use std::time::SystemTime;

use crate::condition::{Condition, ConditionError, Decision, decide_inline};
use crate::config::{Exception, Match, Rule, Scope};
use crate::document::Json;
use crate::engine::Phase;
use crate::plugin::{Asked, Plugin};
use crate::review::request::AdmissionRequest;

/// How a plugin stands towards a request.
#[derive(Debug)]
pub enum Standing<'p> {
    /// The plugin does not match the request.
    NotAsked(Mismatch),
    /// The plugin is called.
    Asked,
    /// The plugin matches, but an exception covers the request.
    Excepted(&'p Exception),
    /// The host cannot tell whether the plugin matches.
    Unclear(ConditionError),
    /// The plugin's conditions have to be evaluated on another thread: all of them, and one that costs too much here.
    Costly(&'p [Condition], &'p Condition),
}

/// Why a plugin does not match a request. Matching makes one for every request, so it holds an index and no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The plugin does not take part in this phase.
    Phase,
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
    /// One of `matchConditions` is false: its index in the list.
    Condition(usize),
}

/// Whether a plugin matches a request, before exceptions are considered.
enum Decided<'p> {
    Holds,
    Fails(Mismatch),
    Unclear(ConditionError),
    Costly(&'p [Condition], &'p Condition),
}

// === impl Plugin ===

impl Plugin {
    /// Finds the plugin's standing, with the object as it is at the plugin's turn.
    pub(crate) fn standing(
        &self,
        phase: Phase,
        request: &AdmissionRequest,
        object: Option<&Json>,
    ) -> Standing<'_> {
        let decided = match self.asked(phase) {
            Asked::Nothing => Decided::Fails(Mismatch::Phase),
            Asked::Everything => Decided::Holds,
            Asked::About(matching) => matching.decide(request, object),
        };
        self.standing_after(decided, request)
    }

    /// Finds the plugin's standing after its conditions have been decided.
    pub(crate) fn standing_by(
        &self,
        decision: Decision,
        request: &AdmissionRequest,
    ) -> Standing<'_> {
        self.standing_after(decision.into(), request)
    }

    fn standing_after<'p>(
        &'p self,
        decided: Decided<'p>,
        request: &AdmissionRequest,
    ) -> Standing<'p> {
        match decided {
            Decided::Fails(mismatch) => return Standing::NotAsked(mismatch),
            Decided::Costly(conditions, condition) => {
                return Standing::Costly(conditions, condition);
            }
            Decided::Holds | Decided::Unclear(_) => {}
        }
        if let Some(exception) = self.exception(request) {
            return Standing::Excepted(exception);
        }
        match decided {
            Decided::Unclear(error) => Standing::Unclear(error),
            _ => Standing::Asked,
        }
    }

    /// Whether the plugin could be called for a request whose object is not known. Labels and conditions count as
    /// met.
    pub(crate) fn could_be_asked(&self, phase: Phase, request: &AdmissionRequest) -> bool {
        let matches = match self.asked(phase) {
            Asked::Nothing => false,
            Asked::Everything => true,
            Asked::About(matching) => matching.matches(request).is_some(),
        };
        matches && self.exception(request).is_none()
    }

    fn exception(&self, request: &AdmissionRequest) -> Option<&Exception> {
        let exceptions = &self.config.exceptions;
        if exceptions.is_empty() {
            return None;
        }
        let now = SystemTime::now();
        exceptions
            .iter()
            .find(|exception| exception.covers(request) && exception.is_active(now))
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

    fn decide(&self, request: &AdmissionRequest, object: Option<&Json>) -> Decided<'_> {
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
        if self.conditions.is_empty() {
            return Decided::Holds;
        }
        match decide_inline(&self.conditions, request, object) {
            Ok(decision) => decision.into(),
            Err(condition) => Decided::Costly(&self.conditions, condition),
        }
    }

    /// Returns which namespace or user setting excludes a request that a rule matches, if one does.
    pub(super) fn leaves_out(&self, request: &AdmissionRequest) -> Option<Mismatch> {
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
    pub(crate) fn matching_rule(&self, request: &AdmissionRequest) -> Option<usize> {
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

// === impl Exception ===

impl Exception {
    /// Whether the exception covers this request, regardless of the time.
    #[must_use]
    pub fn covers(&self, request: &AdmissionRequest) -> bool {
        let holds = |list: &[Box<str>], name: Option<&str>| {
            list.is_empty() || name.is_some_and(|name| list.iter().any(|one| **one == *name))
        };
        holds(&self.namespaces, namespace_or_itself(request))
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
            let is_namespace = is_about_namespaces(request) && request.resource.version == "v1";
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
    namespace(request).or_else(|| is_about_namespaces(request).then_some(request.name.as_str()))
}

fn is_about_namespaces(request: &AdmissionRequest) -> bool {
    request.resource.group.is_empty() && request.resource.resource == "namespaces"
}

#[cfg(test)]
mod tests;
