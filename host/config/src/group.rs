//! `group` of an entry under `plugins`: one verdict from several plugins.
//!
//! Each member is a plugin with its own source, settings and grants. The host loads, watches and records it like any
//! other. Everything else is the group's: rules, mode, failurePolicy, exceptions and the message. A [`PluginConfig`]
//! stands for each member, and [`entries`] puts members together into the entries that the operator wrote.

mod expression;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::grants::Grants;
use super::limit::Limits;
use super::plugin::{
    Defaults, PluginConfig, PluginName, SOURCE_EXPECTED, Source, is_label, read_settings,
};
use super::policy::{Conflicts, ReinvocationPolicy};
use super::problem::Collector;
use super::read::{Fields, Node, quoted};
use super::signature::Signatures;

pub use expression::{GroupExpression, GroupStep, MemberVerdict};

/// A group: its members, and how their verdicts become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name of the group's entry.
    pub name: PluginName,
    /// The names of the members, in order.
    pub members: Vec<Arc<str>>,
    /// When the group allows a request.
    pub expression: GroupExpression,
    /// The message for the user of a request that the group denies.
    pub message: Arc<str>,
}

/// The `group` of an entry, with the code of its members.
pub(super) struct GroupKeys {
    members: Vec<Member>,
    expression: GroupExpression,
    message: Arc<str>,
}

/// The keys of a member: the code, and what it may use.
struct Member {
    name: Arc<str>,
    source: Source,
    signatures: Signatures,
    settings: Value,
    limits: Limits,
    grants: Grants,
}

/// The largest number of members of a group.
pub const MOST_MEMBERS: usize = 16;
/// Longest message of a group, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// Longest name of a member.
const LONGEST_NAME: usize = 40;
/// Names that CEL or the host uses otherwise.
const RESERVED: [&str; 19] = [
    "as", "break", "const", "continue", "else", "false", "for", "function", "has", "if", "import",
    "in", "let", "loop", "null", "package", "shadow", "true", "while",
];
/// Keys that say how code runs. A group has no code of its own.
const OF_MEMBERS: [&str; 7] = [
    "source",
    "signatures",
    "settings",
    "capabilities",
    "lookups",
    "access",
    "images",
];
/// Keys for plugins that mutate.
const OF_MUTATORS: [&str; 3] = ["reinvocationPolicy", "conflicts", "allowRemovals"];

const MEMBERS_EXPECTED: &str = "a list of plugins with a name and a source";
const NAME_EXPECTED: &str = "a name of at most 40 characters of a-z, 0-9 and _ that begins with a letter and is no word of CEL, such \
     as signed";
const EXPRESSION_EXPECTED: &str =
    "any, all, or members in CEL, such as signed() || (trusted() && labelled())";
const MESSAGE_EXPECTED: &str = "the message for the user of a denied request";

// === impl GroupKeys ===

impl GroupKeys {
    /// Reads the key `group`. `limits` are those of the entry.
    pub(super) fn read(
        node: &Node<'_>,
        folder: &Path,
        defaults: &Defaults,
        limits: &Limits,
        max_concurrent_calls: u32,
        problems: &Collector,
    ) -> Option<Self> {
        let mut fields = node.object()?;
        let nodes = fields
            .required("members", MEMBERS_EXPECTED)
            .and_then(|node| node.elements("plugins"))
            .unwrap_or_default();
        if fields.has("members") && !(1..=MOST_MEMBERS).contains(&nodes.len()) {
            let count = nodes.len();
            fields.problem(
                "members",
                format!("got {count} members, expected 1 to {MOST_MEMBERS}"),
            );
        }
        let mut members: Vec<Member> = Vec::with_capacity(nodes.len());
        let mut names = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let member = Member::read(
                node,
                folder,
                defaults,
                limits,
                max_concurrent_calls,
                problems,
            );
            if let Some(name) = node.value().get("name").and_then(Value::as_str) {
                if names.iter().any(|known: &Arc<str>| **known == *name) {
                    problems.add(
                        format!("{}.name", node.path()),
                        format!("got {}, which names another member", quoted(name)),
                    );
                }
                names.push(Arc::from(name));
            }
            members.extend(member);
        }
        let text = fields
            .required("expression", EXPRESSION_EXPECTED)
            .and_then(|node| node.text(EXPRESSION_EXPECTED));
        let expression = text.and_then(|text| match GroupExpression::parse(text, &names) {
            Ok(expression) => Some(expression),
            Err(found) => {
                for problem in found {
                    fields.problem("expression", problem);
                }
                None
            }
        });
        let message = fields
            .required("message", MESSAGE_EXPECTED)
            .and_then(|node| node.text(MESSAGE_EXPECTED));
        if message.is_some_and(|message| !(1..=LONGEST_MESSAGE).contains(&message.trim().len())) {
            fields.problem(
                "message",
                format!("expected a text of 1 to {LONGEST_MESSAGE} bytes"),
            );
        }
        fields.finish();
        if members.len() != nodes.len() || members.is_empty() {
            return None;
        }
        Some(Self {
            members,
            expression: expression?,
            message: message?.into(),
        })
    }

    /// Records a problem for every key of the entry that a group cannot have.
    pub(super) fn reject_others(fields: &Fields<'_>) {
        for key in OF_MEMBERS.iter().filter(|key| fields.has(key)) {
            fields.problem(
                key,
                "expected none beside `group`, which has no code of its own: write it into group.members",
            );
        }
        for key in OF_MUTATORS.iter().filter(|key| fields.has(key)) {
            fields.problem(
                key,
                "expected none beside `group`, because a group only validates",
            );
        }
        for key in ["shadow", "rollout"].iter().filter(|key| fields.has(key)) {
            fields.problem(
                key,
                "expected none beside `group`: to try a change, write a second group with mode: audit",
            );
        }
    }

    /// The source that the entry of the group has while it is read.
    pub(super) fn first_source(&self) -> Option<Source> {
        self.members.first().map(|member| member.source.clone())
    }

    /// Returns the members as they run. `entry` is the entry of the group.
    pub(super) fn of(self, entry: &PluginConfig) -> Vec<PluginConfig> {
        let group = Arc::new(Group {
            name: entry.name.clone(),
            members: self
                .members
                .iter()
                .map(|member| member.name.clone())
                .collect(),
            expression: self.expression,
            message: self.message,
        });
        let members = self.members.into_iter().map(|member| PluginConfig {
            name: entry.name.of_member(&member.name),
            source: member.source,
            signatures: member.signatures,
            settings: member.settings,
            limits: member.limits,
            capabilities: member.grants.capabilities,
            access: member.grants.access,
            images: member.grants.images,
            lookups: member.grants.lookups,
            reinvocation_policy: ReinvocationPolicy::default(),
            conflicts: Conflicts::default(),
            group: Some(group.clone()),
            ..entry.clone()
        });
        members.collect()
    }
}

// === impl Member ===

impl Member {
    fn read(
        node: &Node<'_>,
        folder: &Path,
        defaults: &Defaults,
        limits: &Limits,
        max_concurrent_calls: u32,
        problems: &Collector,
    ) -> Option<Self> {
        let mut fields = node.object()?;
        let name = fields.required("name", NAME_EXPECTED).and_then(|node| {
            let name = node.text(NAME_EXPECTED)?;
            if !is_member_name(name) {
                node.reject(NAME_EXPECTED);
                return None;
            }
            Some(Arc::from(name))
        });
        let source = fields
            .required("source", SOURCE_EXPECTED)
            .and_then(|node| Source::read(&node, folder));
        let signatures =
            Signatures::read_entry(&mut fields, source.as_ref(), folder, &defaults.signatures);
        let settings = read_settings(&mut fields, problems);
        let limits = Limits::read(fields.section("limits"), limits, max_concurrent_calls);
        let grants = Grants::read(&mut fields, folder, defaults.signatures.root(), problems);
        fields.finish();
        Some(Self {
            name: name?,
            source: source?,
            signatures,
            settings: settings.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            limits,
            grants,
        })
    }
}

/// Whether text can name a member: a lower-case identifier of CEL, so that an expression can call it.
fn is_member_name(text: &str) -> bool {
    let has_label_form = is_label(&text.replace('_', "-"), LONGEST_NAME);
    has_label_form
        && !text.contains('-')
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && !RESERVED.contains(&text)
}

/// Puts the members of each group together, at the place of the first. `config` gives the configuration of a plugin, and
/// `group` makes one of the members; a group without a result is left out.
pub fn together<'p, P, T>(
    plugins: &'p [P],
    config: impl Fn(&P) -> &PluginConfig,
    alone: impl Fn(&'p P) -> T,
    group: impl Fn(&[&'p P]) -> Option<T>,
) -> Vec<T> {
    let mut entries = Vec::with_capacity(plugins.len());
    let mut names = BTreeSet::new();
    for plugin in plugins {
        let Some(definition) = &config(plugin).group else {
            entries.push(alone(plugin));
            continue;
        };
        if names.insert(&definition.name) {
            let name = definition.name.as_str();
            let members = plugins
                .iter()
                .filter(|member| config(member).name.group() == Some(name));
            entries.extend(group(&members.collect::<Vec<_>>()));
        }
    }
    entries
}

/// Returns the entries that these plugins come from. The members of a group become the entry of their group, at the
/// place of the first.
pub fn entries<'c>(
    plugins: impl IntoIterator<Item = &'c PluginConfig>,
) -> Vec<Cow<'c, PluginConfig>> {
    let plugins: Vec<&'c PluginConfig> = plugins.into_iter().collect();
    together(
        &plugins,
        |plugin| plugin,
        |plugin| Cow::Borrowed(*plugin),
        |members| {
            let members: Vec<&PluginConfig> = members.iter().map(|member| **member).collect();
            PluginConfig::of_group(&members).map(Cow::Owned)
        },
    )
}

// === impl PluginConfig ===

impl PluginConfig {
    /// Returns the entry of the group that these are the members of. None if a member is missing, or if the members differ in
    /// the definition of the group: its names, expression and message. Other keys are not compared, so the caller keeps
    /// members of two versions apart.
    #[must_use]
    pub fn of_group(members: &[&Self]) -> Option<Self> {
        let first = *members.first()?;
        let group = first.group.as_ref()?;
        let find = |name: &str| {
            let name = group.name.of_member(name);
            members.iter().copied().find(|member| member.name == name)
        };
        let is_whole = group.members.iter().all(|name| find(name).is_some())
            && members.len() == group.members.len()
            && members
                .iter()
                .all(|member| member.group.as_ref() == Some(group));
        if !is_whole {
            return None;
        }
        let parts = group.members.iter().filter_map(|name| find(name));
        let parts: Vec<Self> = parts.cloned().collect();
        let mut limits = first.limits.clone();
        limits.fuel = parts.iter().map(|part| part.limits.fuel).sum();
        limits.cpu_time = parts.iter().map(|part| part.limits.cpu_time).sum();
        limits.timeout = parts.iter().map(|part| part.limits.timeout).sum();
        let capabilities = parts.iter().flat_map(|part| &part.capabilities);
        let lookups = parts.iter().flat_map(|part| {
            let own = part.lookups.iter();
            own.map(|(name, lookup)| (format!("{}.{name}", part.name).into(), lookup.clone()))
        });
        Some(Self {
            name: group.name.clone(),
            settings: Value::Object(serde_json::Map::new()),
            limits,
            capabilities: capabilities.copied().collect(),
            lookups: lookups.collect(),
            parts,
            ..first.clone()
        })
    }

    /// Returns the source in words. A group has that of each member.
    #[must_use]
    pub fn source_in_words(&self) -> String {
        match &self.group {
            Some(group) if self.is_group() => format!("group of {}", group.members.join(", ")),
            _ => self.source.to_string(),
        }
    }

    /// Whether this is the entry of a group. Its code is that of its `parts`.
    #[must_use]
    pub fn is_group(&self) -> bool {
        !self.parts.is_empty()
    }
}
