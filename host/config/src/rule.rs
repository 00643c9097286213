//! The requests that a plugin is called for: Kubernetes' rules, names of namespaces and users, labels, and conditions.
//!
//! Rules are validated as kube-apiserver validates the rules of a webhook, and more strictly:
//!
//! - A rule that could never match anything is a mistake, such as `apiGroups: [core]` or `resources: [Pod]`.
//! - An overlap is a mistake in both orders. kube-apiserver only detects it in one.
//!
//! Patterns are split here once, so that matching allocates nothing.

mod templates;
mod validate;

use std::fmt;

use super::exception::read_names;
use super::problem::{Collector, Problems};
use super::read::{Fields, Node, quoted};
use super::selector::LabelSelector;
use crate::condition::{Condition, MOST_CONDITIONS};
use tollgate_admission::review::request::Operation;
use validate::{Item, Items};

/// The requests that a plugin is called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Rules, at least one of which must match. The list is never empty. With `pod_templates`, the last ones are those
    /// for workloads.
    pub rules: Vec<Rule>,
    /// Whether the plugin gets the pod templates of workloads, as Pods.
    pub pod_templates: bool,
    /// Namespaces of the objects that the plugin is called for. Empty means all namespaces.
    pub namespaces: Vec<Box<str>>,
    /// Namespaces whose objects are excluded.
    pub exclude_namespaces: Vec<Box<str>>,
    /// Users whose requests are excluded.
    pub exclude_users: Vec<Box<str>>,
    /// Groups whose members' requests are excluded.
    pub exclude_groups: Vec<Box<str>>,
    /// Selector that the labels of the object's namespace must match.
    pub namespace_selector: LabelSelector,
    /// Selector that the new or the old labels of the object must match.
    pub object_selector: LabelSelector,
    /// Conditions. All of them must hold.
    pub conditions: Vec<Condition>,
}

/// Kubernetes' RuleWithOperations, in a form that is ready for matching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The operations that match.
    pub operations: Operations,
    /// The API groups that match. The core group is the empty string.
    pub api_groups: Vec<Pattern>,
    /// The versions that match.
    pub api_versions: Vec<Pattern>,
    /// The resources and subresources that match.
    pub resources: Vec<ResourcePattern>,
    /// Whether namespaced objects match, cluster-scoped ones, or both.
    pub scope: Scope,
}

/// A rule from a plugin's `describe`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestRule {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `*`.
    pub operations: Vec<String>,
    /// API groups such as `apps`. The core group is the empty string.
    pub api_groups: Vec<String>,
    /// API versions such as `v1`.
    pub api_versions: Vec<String>,
    /// Resources such as `pods`, `pods/status`, `pods/*`, `*/scale`.
    pub resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`, which is also the default.
    pub scope: Option<String>,
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u8);

/// A name, or all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Written `*`: every name.
    Any,
    /// This name only.
    Exactly(Box<str>),
}

/// A resource and a subresource. An empty subresource means the resource itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The part before the slash.
    pub resource: Pattern,
    /// The part after the slash. Without one, the empty name.
    pub sub_resource: Pattern,
}

/// The scope of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    /// Written `*`: both.
    All,
    /// Cluster-scoped objects, and Namespaces.
    Cluster,
    /// Objects in a namespace.
    Namespaced,
}

const MOST_MANIFEST_RULES: usize = 64;
const MOST_MANIFEST_TEXTS: usize = 128;

const CONDITION_NAME_EXPECTED: &str =
    "a name of at most 63 characters: letters, digits, -, _ and .";

const RECORDED_RULES: &str =
    "at least one rule, as in `match` of a plugin; leave the key out to record all reviews";
const RULE_EXAMPLE: &str = "at least one rule, such as \
    {operations: [CREATE, UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}";

// === impl Match ===

impl Match {
    /// Reads the rules from a plugin's `describe`. They are validated like those of a configuration file.
    ///
    /// # Errors
    ///
    /// The list of all problems, by paths such as `describe.rules[0].operations[1]`.
    pub fn from_manifest_rules(rules: &[ManifestRule]) -> Result<Self, Problems> {
        let problems = Collector::default();
        if rules.is_empty() {
            problems.add(
                "describe.rules",
                "empty; the plugin names no rules, so write `match` in its configuration",
            );
        }
        // A plugin is not trusted. The host compares its rules with every request and logs the errors in them.
        if rules.len() > MOST_MANIFEST_RULES {
            let message = format!(
                "got {} rules, expected at most {MOST_MANIFEST_RULES}",
                rules.len()
            );
            return Err(Problems::one("describe.rules", message));
        }
        let read = |(index, rule)| {
            Rule::from_manifest(&format!("describe.rules[{index}]"), rule, &problems)
        };
        let rules = rules.iter().enumerate().map(read).collect();
        problems.finish(Some(Self::of_rules(rules)))
    }

    /// Returns a match that consists of rules alone.
    pub(crate) fn of_rules(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            pod_templates: false,
            namespaces: Vec::new(),
            exclude_namespaces: Vec::new(),
            exclude_users: Vec::new(),
            exclude_groups: Vec::new(),
            namespace_selector: LabelSelector::default(),
            object_selector: LabelSelector::default(),
            conditions: Vec::new(),
        }
    }

    /// Returns a match for every request that a rule of one of these matches. Only the rules count. Without any of them,
    /// it matches nothing.
    #[must_use]
    pub fn of_any<'m>(all: impl Iterator<Item = &'m Self>) -> Self {
        let mut rules: Vec<Rule> = Vec::new();
        for rule in all.flat_map(|matching| &matching.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        Self::of_rules(rules)
    }

    /// Returns the rules, in the order in which they are tried.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Lists the namespaces that the plugin is limited to. An empty list means all.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(|name| &**name)
    }

    /// Lists the excluded namespaces.
    pub fn excluded_namespaces(&self) -> impl Iterator<Item = &str> {
        self.exclude_namespaces.iter().map(|name| &**name)
    }

    /// Lists the excluded groups.
    pub fn excluded_groups(&self) -> impl Iterator<Item = &str> {
        self.exclude_groups.iter().map(|name| &**name)
    }

    pub(crate) fn read(node: &Node<'_>, problems: &Collector) -> Option<Self> {
        let mut fields = node.object()?;
        let given = fields.required(
            "rules",
            &format!("{RULE_EXAMPLE}; without `match` the plugin's own rules apply"),
        );
        let nodes = given.and_then(|node| {
            let nodes = node.elements("rules")?;
            if nodes.is_empty() {
                node.reject(RULE_EXAMPLE);
            }
            Some(nodes)
        });
        let nodes = nodes.unwrap_or_default();
        let rules = nodes
            .iter()
            .filter_map(|rule| Rule::read(rule, problems))
            .collect();
        let namespaces = read_namespaces(&mut fields, "namespaces", problems);
        let exclude_namespaces = read_namespaces(&mut fields, "excludeNamespaces", problems);
        if fields.has("namespaces") && namespaces.as_ref().is_some_and(Vec::is_empty) {
            fields.problem(
                "namespaces",
                "got an empty list, expected namespaces; leave the key out to match all",
            );
        }
        let (namespaces, exclude_namespaces) = (
            namespaces.unwrap_or_default(),
            exclude_namespaces.unwrap_or_default(),
        );
        for name in namespaces
            .iter()
            .filter(|name| exclude_namespaces.contains(name))
        {
            fields.problem(
                "excludeNamespaces",
                format!("{} is also in `namespaces`", quoted(name)),
            );
        }
        let exclude_users = read_names(&mut fields, "excludeUsers");
        let exclude_groups = read_names(&mut fields, "excludeGroups");
        let namespace_selector = fields
            .optional("namespaceSelector")
            .and_then(|node| LabelSelector::read(&node, problems));
        let object_selector = fields
            .optional("objectSelector")
            .and_then(|node| LabelSelector::read(&node, problems));
        let conditions = fields
            .optional("matchConditions")
            .map(|node| read_conditions(&node, problems));
        let mut matching = Self {
            rules,
            pod_templates: false,
            namespaces,
            exclude_namespaces,
            exclude_users: exclude_users.unwrap_or_default(),
            exclude_groups: exclude_groups.unwrap_or_default(),
            namespace_selector: namespace_selector.unwrap_or_default(),
            object_selector: object_selector.unwrap_or_default(),
            conditions: conditions.unwrap_or_default(),
        };
        matching.read_templates(&mut fields, nodes.len());
        fields.finish();
        Some(matching)
    }
}

/// Reads which reviews are recorded: `rules`, `namespaces` and `excludeNamespaces`. Without rules, all reviews are.
pub(super) fn read_recorded(fields: &mut Fields<'_>, problems: &Collector) -> Option<Match> {
    let everything = |text: &str| vec![text.to_owned()];
    let mut matching = Match::from_manifest_rules(&[ManifestRule {
        operations: everything("*"),
        api_groups: everything("*"),
        api_versions: everything("*"),
        resources: everything("*/*"),
        scope: None,
    }])
    .ok()?;
    if let Some(node) = fields.optional("rules") {
        let nodes = node.elements("rules").unwrap_or_default();
        if nodes.is_empty() {
            node.reject(RECORDED_RULES);
        }
        let rules = nodes.iter().filter_map(|rule| Rule::read(rule, problems));
        matching.rules = rules.collect();
    }
    matching.namespaces = read_namespaces(fields, "namespaces", problems).unwrap_or_default();
    matching.exclude_namespaces =
        read_namespaces(fields, "excludeNamespaces", problems).unwrap_or_default();
    Some(matching)
}

// === impl Rule ===

impl Rule {
    fn from_manifest(path: &str, rule: &ManifestRule, problems: &Collector) -> Self {
        let items = |key: &str, texts: &[String]| {
            let path = format!("{path}.{key}");
            if texts.len() > MOST_MANIFEST_TEXTS {
                let message = format!(
                    "got {} texts, expected at most {MOST_MANIFEST_TEXTS}",
                    texts.len()
                );
                problems.add(path.as_str(), message);
            }
            let item = |(index, text): (usize, &String)| Item {
                path: format!("{path}[{index}]"),
                text: text.clone(),
            };
            let items = texts
                .iter()
                .take(MOST_MANIFEST_TEXTS)
                .enumerate()
                .map(item)
                .collect();
            let items = Items { path, items };
            items.require_one(problems);
            items
        };
        let scope = rule.scope.clone().map(|text| Item {
            path: format!("{path}.scope"),
            text,
        });
        Self {
            operations: validate::operations(&items("operations", &rule.operations), problems),
            api_groups: validate::groups(&items("apiGroups", &rule.api_groups), problems),
            api_versions: validate::versions(&items("apiVersions", &rule.api_versions), problems),
            resources: validate::resources(&items("resources", &rule.resources), problems),
            scope: scope.map_or(Scope::All, |item| validate::scope(&item, problems)),
        }
    }

    fn read(node: &Node<'_>, problems: &Collector) -> Option<Self> {
        let mut fields = node.object()?;
        let mut items = |key, expected: &str| {
            let node = fields.required(key, expected)?;
            let words = match key {
                "operations" => validate::OPERATIONS,
                _ => &[],
            };
            let items = Items::read_words(&node, words)?;
            items.require_one(problems);
            Some(items)
        };
        let operations = items(
            "operations",
            "a list of CREATE, UPDATE, DELETE, CONNECT, or [\"*\"]",
        );
        let groups = items("apiGroups", "a list of API groups; the core group is \"\"");
        let versions = items("apiVersions", "a list of API versions, such as [v1]");
        let resources = items(
            "resources",
            "a list of resources, such as [pods, pods/ephemeralcontainers]",
        );
        let scope = fields.optional("scope").and_then(|node| {
            validate::note_words(&node, validate::SCOPES);
            Item::read(&node)
        });
        fields.finish();
        Some(Self {
            operations: operations.map_or(Operations::default(), |items| {
                validate::operations(&items, problems)
            }),
            api_groups: groups.map_or(Vec::new(), |items| validate::groups(&items, problems)),
            api_versions: versions.map_or(Vec::new(), |items| validate::versions(&items, problems)),
            resources: resources.map_or(Vec::new(), |items| validate::resources(&items, problems)),
            scope: scope.map_or(Scope::All, |item| validate::scope(&item, problems)),
        })
    }
}

/// Writes the rule as one line for people, in Kubernetes' words.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn join<T: fmt::Display>(
            f: &mut fmt::Formatter<'_>,
            name: &str,
            values: &[T],
        ) -> fmt::Result {
            write!(f, " {name}=")?;
            for (index, value) in values.iter().enumerate() {
                write!(f, "{}{value}", if index == 0 { "" } else { "," })?;
            }
            Ok(())
        }
        write!(f, "operations={}", self.operations)?;
        join(f, "apiGroups", &self.api_groups)?;
        join(f, "apiVersions", &self.api_versions)?;
        join(f, "resources", &self.resources)?;
        match self.scope {
            Scope::All => Ok(()),
            scope => write!(f, " scope={scope:?}"),
        }
    }
}

// === impl Operations ===

impl Operations {
    /// All operations, written `*`.
    pub const ALL: Self = Self(0b1111);

    pub(crate) fn insert(&mut self, operation: Operation) {
        self.0 |= Self::bit(operation);
    }

    /// Whether the operation is in the set.
    #[must_use]
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & Self::bit(operation) != 0
    }

    fn bit(operation: Operation) -> u8 {
        match operation {
            Operation::Create => 1,
            Operation::Update => 1 << 1,
            Operation::Delete => 1 << 2,
            Operation::Connect => 1 << 3,
        }
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("*");
        }
        let all = [
            Operation::Create,
            Operation::Update,
            Operation::Delete,
            Operation::Connect,
        ];
        let names: Vec<&str> = all
            .into_iter()
            .filter(|one| self.contains(*one))
            .map(Operation::as_str)
            .collect();
        f.write_str(&names.join(","))
    }
}

// === impl Pattern ===

impl Pattern {
    /// Whether the pattern matches a name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            // The core group is the empty name. An empty box points nowhere. glibc's comparison for AVX-512 loads from there
            // before it sees that there is nothing to compare, which takes some hundred nanoseconds.
            Self::Exactly(exactly) if exactly.is_empty() => name.is_empty(),
            Self::Exactly(exactly) => **exactly == *name,
        }
    }

    pub(crate) fn new(text: &str) -> Self {
        if text == "*" {
            Self::Any
        } else {
            Self::Exactly(text.into())
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exactly(name) if name.is_empty() => f.write_str("\"\""),
            Self::Exactly(name) => f.write_str(name),
        }
    }
}

// === impl ResourcePattern ===

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sub_resource {
            Pattern::Exactly(name) if name.is_empty() => write!(f, "{}", self.resource),
            sub_resource => write!(f, "{}/{sub_resource}", self.resource),
        }
    }
}

fn read_conditions(node: &Node<'_>, problems: &Collector) -> Vec<Condition> {
    let nodes = node.elements("conditions").unwrap_or_default();
    if nodes.len() > MOST_CONDITIONS {
        problems.add(
            node.path(),
            format!(
                "got {} conditions, expected at most {MOST_CONDITIONS}",
                nodes.len()
            ),
        );
        return Vec::new();
    }
    let mut names: Vec<&str> = Vec::new();
    let mut conditions = Vec::new();
    for node in &nodes {
        let Some(mut fields) = node.object() else {
            continue;
        };
        let name = fields
            .required("name", CONDITION_NAME_EXPECTED)
            .and_then(|node| {
                let name = node.quotable_text(CONDITION_NAME_EXPECTED)?;
                if !is_condition_name(name) {
                    node.reject(CONDITION_NAME_EXPECTED);
                } else if names.contains(&name) {
                    node.reject("another name, because another condition already has this one");
                } else {
                    names.push(name);
                }
                Some(name)
            });
        let expected = "a CEL expression, such as \"request.operation != 'DELETE'\"";
        let expression = fields
            .required("expression", expected)
            .and_then(|node| node.quotable_text(expected));
        fields.finish();
        let Some(expression) = expression else {
            continue;
        };
        // A condition without a name is already a problem. Its expression is compiled nevertheless, to report all
        // problems.
        match Condition::compile(name.unwrap_or_default(), expression) {
            Ok(condition) => conditions.push(condition),
            Err(wrong) => {
                for what in wrong {
                    problems.add(format!("{}.expression", node.path()), what);
                }
            }
        }
    }
    conditions
}

/// Returns whether text is the last part of a qualified name. The name appears in messages.
fn is_condition_name(text: &str) -> bool {
    let at_ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && at_ends(bytes.first())
        && at_ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn read_namespaces(
    fields: &mut Fields<'_>,
    key: &'static str,
    problems: &Collector,
) -> Option<Vec<Box<str>>> {
    let items = Items::read(&fields.optional(key)?)?;
    for item in items
        .items
        .iter()
        .filter(|item| !super::plugin::is_label(&item.text, 63))
    {
        item.reject(
            "the name of a namespace; patterns are not supported",
            problems,
        );
    }
    Some(
        items
            .items
            .into_iter()
            .map(|item| item.text.into())
            .collect(),
    )
}
