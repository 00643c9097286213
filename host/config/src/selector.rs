//! Kubernetes' label selectors.
//!
//! They are validated as kube-apiserver validates those of a webhook, so that both refuse the same selectors.

use std::fmt;

use serde_json::Value;

use super::problem::Collector;
use super::read::{Node, child, quoted};
use super::schema::Values;

/// The labels that an object must have. Without requirements, every object matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// The requirements, all of which must hold. An empty list selects everything.
    pub requirements: Vec<Requirement>,
}

/// The requirement for one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: Box<str>,
    /// The condition for the label.
    pub test: LabelTest,
}

/// Kubernetes' operators.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LabelTest {
    /// The label has one of these values.
    In(Vec<Box<str>>),
    /// The label is absent, or has none of these values.
    NotIn(Vec<Box<str>>),
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

#[derive(Clone, Copy)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

const KEY_EXPECTED: &str = "the key of a label, such as app or example.com/tier";
const VALUE_EXPECTED: &str = "the value of a label: at most 63 characters (letters, digits, -, _ and .), with a letter or digit at both ends";
const OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];
/// Kubernetes' limits for names and DNS subdomains.
const LONGEST_NAME_BYTES: usize = 63;
const LONGEST_PREFIX_BYTES: usize = 253;

// === impl LabelSelector ===

impl LabelSelector {
    pub(crate) fn read(node: &Node<'_>, problems: &Collector) -> Option<Self> {
        let mut fields = node.object()?;
        let mut requirements = Vec::new();
        if let Some(labels) = fields.optional("matchLabels") {
            match labels.members(Values::Text) {
                Some(members) => {
                    for (key, value) in members {
                        let path = child(labels.path(), key);
                        requirements.extend(match_label(&path, key, value, problems));
                    }
                }
                None => labels.reject("an object with labels and their values"),
            }
        }
        let expressions = fields
            .optional("matchExpressions")
            .and_then(|node| node.elements("requirements"));
        requirements.extend(
            expressions
                .unwrap_or_default()
                .iter()
                .filter_map(Requirement::read),
        );
        fields.finish();
        Some(Self { requirements })
    }
}

/// Writes the selector as kubectl does: `app=web,tier in (front,back),!legacy`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}

// === impl Requirement ===

impl Requirement {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut fields = node.object()?;
        let key = fields.required("key", KEY_EXPECTED).and_then(|node| {
            let key = node.quotable_text(KEY_EXPECTED)?;
            if !is_key(key) {
                node.reject(KEY_EXPECTED);
                return None;
            }
            Some(Box::from(key))
        });
        let operator = fields
            .required("operator", "In, NotIn, Exists or DoesNotExist")
            .and_then(|node| node.word(OPERATORS));
        let values = fields.optional("values");
        let texts = values.as_ref().and_then(|node| {
            let nodes = node.elements("values")?;
            let texts = nodes.iter().map(|node| {
                let text = node.quotable_text(VALUE_EXPECTED)?;
                if !is_value(text) {
                    node.reject(VALUE_EXPECTED);
                    return None;
                }
                Some(Box::from(text))
            });
            let texts: Vec<Option<Box<str>>> = texts.collect();
            texts.into_iter().collect::<Option<Vec<Box<str>>>>()
        });
        let needs_values = matches!(operator, Some(Operator::In | Operator::NotIn));
        match &values {
            None if needs_values => {
                fields.problem("values", "missing, expected at least one value")
            }
            Some(node) if needs_values && texts.as_ref().is_some_and(Vec::is_empty) => {
                node.reject("at least one value");
            }
            Some(node) if operator.is_some() && !needs_values && texts != Some(Vec::new()) => {
                node.reject("no values: this operator takes none");
            }
            _ => {}
        }
        fields.finish();
        let test = match operator? {
            Operator::In => LabelTest::In(texts?),
            Operator::NotIn => LabelTest::NotIn(texts?),
            Operator::Exists => LabelTest::Exists,
            Operator::DoesNotExist => LabelTest::DoesNotExist,
        };
        Some(Self { key: key?, test })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            LabelTest::In(values) => write!(f, "{key} in ({})", values.join(",")),
            LabelTest::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            LabelTest::Exists => f.write_str(key),
            LabelTest::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

fn match_label(path: &str, key: &str, value: &Value, problems: &Collector) -> Option<Requirement> {
    if !is_key(key) {
        problems.add(path, format!("expected {KEY_EXPECTED}"));
        return None;
    }
    match value.as_str() {
        Some(text) if is_value(text) => Some(Requirement {
            key: key.into(),
            test: LabelTest::In(vec![text.into()]),
        }),
        Some(text) => {
            problems.add(
                path,
                format!("got {}, expected {VALUE_EXPECTED}", quoted(text)),
            );
            None
        }
        None => {
            problems.add(path, format!("expected {VALUE_EXPECTED}; put it in quotes"));
            None
        }
    }
}

/// Returns whether text is Kubernetes' qualified name: `name`, or `prefix/name` with a DNS subdomain as prefix.
fn is_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let is_subdomain = |prefix: &str| {
        prefix.len() <= LONGEST_PREFIX_BYTES
            && prefix
                .split('.')
                .all(|label| super::plugin::is_label(label, LONGEST_PREFIX_BYTES))
    };
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_subdomain)
}

fn is_value(text: &str) -> bool {
    let at_ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= LONGEST_NAME_BYTES
        && at_ends(bytes.first())
        && at_ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
