//! `spec.match` of a constraint, decided as Gatekeeper decides it.

use std::fmt;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::selector::LabelSelector;

/// `spec.match`. An absent key matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Match {
    kinds: Vec<Kinds>,
    scope: String,
    namespaces: Vec<Wildcard>,
    excluded_namespaces: Vec<Wildcard>,
    label_selector: Option<LabelSelector>,
    namespace_selector: Option<LabelSelector>,
    name: Wildcard,
    source: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Kinds {
    api_groups: Vec<String>,
    kinds: Vec<String>,
}

/// A name, or a name with `*` at its beginning, its end or both.
#[derive(Clone, Debug, Default, Deserialize)]
struct Wildcard(String);

/// The facts about one object that a match looks at.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// API group of the object's kind.
    pub group: String,
    /// The object's kind.
    pub kind: String,
    /// The object's name. Empty if kube-apiserver generates it.
    pub name: String,
    /// `metadata.generateName`, or empty.
    pub generate_name: String,
    /// The object's namespace, or empty.
    pub namespace: String,
    /// The object's labels.
    pub labels: serde_json::Map<String, Json>,
}

/// The labels of a namespace cannot be read. As in Gatekeeper, the constraint counts as violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNamespace(pub String);

/// Looks up the labels of a namespace by its name.
pub type NamespaceLabels<'a> = &'a dyn Fn(&str) -> Option<serde_json::Map<String, Json>>;

// === impl UnknownNamespace ===

impl fmt::Display for UnknownNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "namespaceSelector: the host does not know the Namespace {name}, and the settings have none under `namespaces`"
        )
    }
}

// === impl Match ===

impl Match {
    /// Whether the match needs labels of namespaces, and not their names alone.
    pub fn needs_namespace_labels(&self) -> bool {
        let selector = self.namespace_selector.as_ref();
        selector.is_some_and(|selector| !selector.is_about_names_only())
    }

    /// Whether the match depends on the object. Otherwise it selects every object.
    #[must_use]
    pub fn needs_facts(&self) -> bool {
        let is_set = |text: &str| !text.is_empty();
        !self.kinds.is_empty()
            || is_set(&self.scope)
            || !self.namespaces.is_empty()
            || !self.excluded_namespaces.is_empty()
            || is_set(&self.name.0)
            || self.needs_labels()
    }

    /// Whether the match depends on the labels of the object. Those of a Namespace count as its own.
    #[must_use]
    pub fn needs_labels(&self) -> bool {
        self.label_selector.is_some() || self.namespace_selector.is_some()
    }

    /// Returns what the match has that no constraint can have.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if !matches!(&*self.scope, "" | "*" | "Cluster" | "Namespaced") {
            problems.push(("scope", "expected *, Cluster or Namespaced".to_owned()));
        }
        if !matches!(&*self.source, "" | "All" | "Original" | "Generated") {
            problems.push(("source", "expected All, Original or Generated".to_owned()));
        }
        for (key, selector) in [
            ("labelSelector", &self.label_selector),
            ("namespaceSelector", &self.namespace_selector),
        ] {
            if let Some(problem) = selector.as_ref().and_then(LabelSelector::problem) {
                problems.push((key, problem));
            }
        }
        problems
    }

    /// Whether the match selects an object.
    ///
    /// # Errors
    /// When `namespaceSelector` needs the labels of a namespace that the look-up does not know.
    pub fn selects(
        &self,
        subject: &Subject,
        labels_of: NamespaceLabels<'_>,
    ) -> Result<bool, UnknownNamespace> {
        Ok(self.selects_kind(subject)
            && self.selects_name(subject)
            && self.selects_scope(subject)
            && self.selects_source()
            && self.selects_namespace(subject)
            && self
                .label_selector
                .as_ref()
                .is_none_or(|selector| selector.selects(&subject.labels))
            && self.selects_namespace_labels(subject, labels_of)?)
    }

    fn selects_kind(&self, subject: &Subject) -> bool {
        let any = |list: &[String], name: &str| {
            list.is_empty() || list.iter().any(|one| one == "*" || one == name)
        };
        self.kinds.is_empty()
            || self.kinds.iter().any(|kinds| {
                any(&kinds.kinds, &subject.kind) && any(&kinds.api_groups, &subject.group)
            })
    }

    fn selects_name(&self, subject: &Subject) -> bool {
        self.name.0.is_empty()
            || self.name.matches(&subject.name)
            || self.name.matches_generated(&subject.generate_name)
    }

    fn selects_scope(&self, subject: &Subject) -> bool {
        let is_namespaced = !subject.is_namespace() && !subject.namespace.is_empty();
        match &*self.scope {
            "Cluster" => !is_namespaced,
            "Namespaced" => is_namespaced,
            _ => true,
        }
    }

    /// Every review is of an object that somebody sent. Generated objects come from an ExpansionTemplate.
    fn selects_source(&self) -> bool {
        self.source != "Generated"
    }

    fn selects_namespace(&self, subject: &Subject) -> bool {
        // A cluster-scoped object is in no namespace, so no list of namespaces rules it out.
        let Some(name) = subject.namespace_or_itself() else {
            return true;
        };
        let lists = |list: &[Wildcard]| list.iter().any(|one| one.matches(name));
        (self.namespaces.is_empty() || lists(&self.namespaces)) && !lists(&self.excluded_namespaces)
    }

    fn selects_namespace_labels(
        &self,
        subject: &Subject,
        labels_of: NamespaceLabels<'_>,
    ) -> Result<bool, UnknownNamespace> {
        let Some(selector) = &self.namespace_selector else {
            return Ok(true);
        };
        if subject.is_namespace() {
            return Ok(selector.selects(&subject.labels));
        }
        if subject.namespace.is_empty() {
            return Ok(true);
        }
        if selector.is_about_names_only() {
            return Ok(selector.selects_name(&subject.namespace));
        }
        match labels_of(&subject.namespace) {
            Some(labels) => Ok(selector.selects(&labels)),
            None => Err(UnknownNamespace(subject.namespace.clone())),
        }
    }
}

// === impl Subject ===

impl Subject {
    /// Reads the facts of an object of a review. `text` returns the string at a pointer into the object, or an empty
    /// one.
    #[must_use]
    pub fn read(
        [group, kind]: [&str; 2],
        request_namespace: &str,
        labels: Option<serde_json::Map<String, Json>>,
        text: &dyn Fn(&str) -> String,
    ) -> Self {
        let namespace = text("/metadata/namespace");
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: text("/metadata/name"),
            generate_name: text("/metadata/generateName"),
            namespace: match namespace.is_empty() {
                true => request_namespace.to_owned(),
                false => namespace,
            },
            labels: labels.unwrap_or_default(),
        }
    }

    fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    fn namespace_or_itself(&self) -> Option<&str> {
        let name = match self.is_namespace() {
            true => &self.name,
            false => &self.namespace,
        };
        (self.is_namespace() || !name.is_empty()).then_some(name)
    }
}

// === impl Wildcard ===

impl Wildcard {
    fn matches(&self, name: &str) -> bool {
        match (self.0.strip_prefix('*'), self.0.strip_suffix('*')) {
            (Some(rest), Some(_)) => name.contains(rest.strip_suffix('*').unwrap_or(rest)),
            (Some(suffix), None) => name.ends_with(suffix),
            (None, Some(prefix)) => name.starts_with(prefix),
            (None, None) => name == self.0,
        }
    }

    /// Compares with the beginning of a name that kube-apiserver has not completed yet. Only a pattern that fixes no
    /// end can match.
    fn matches_generated(&self, generate_name: &str) -> bool {
        !generate_name.is_empty() && self.0.ends_with('*') && self.matches(generate_name)
    }
}
