//! Reads the expected result of a case.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tollgate_admission::text::field_path;
use tollgate_config::read::{Fields, Node, child};
use tollgate_config::schema::Values;
use tollgate_engine::Fault;
use tollgate_json::document::Pointer;

use super::suite::Input;

/// The expected result of a case. Fields that are None are not checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Expectation {
    pub(super) verdict: Option<Verdict>,
    /// Part of the denial's message.
    pub(super) message: Option<String>,
    pub(super) code: Option<u16>,
    /// All causes, in order.
    pub(super) causes: Option<Vec<Cause>>,
    /// A part of each warning. All warnings are listed, in order.
    pub(super) warnings: Option<Vec<String>>,
    /// Expected audit annotations. None means that the annotation must not exist.
    pub(super) annotations: BTreeMap<String, Option<String>>,
    /// The whole object after the mutators.
    pub(super) object: Option<Input>,
    /// Expected values in the object, by JSON Pointer. Null means that there must be no value.
    pub(super) fields: BTreeMap<String, Value>,
    /// Whether the mutators leave the object unchanged.
    pub(super) unchanged: Option<bool>,
    /// The kind of a plugin's fault.
    pub(super) fault: Option<String>,
    /// Part of the reason why a plugin is not loaded, such as an error in its settings.
    pub(super) not_loaded: Option<String>,
    /// Whether the result is compared with the snapshot that `--update` wrote.
    pub(super) snapshot: bool,
}

/// The end of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Deny,
    /// A plugin's fault denies the request.
    Fault,
    /// The review called no plugin.
    NotCalled,
}

/// A reason for a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// The field, as Kubernetes writes it.
    pub(super) field: Option<String>,
    /// Part of the cause's message.
    pub(super) message: Option<String>,
}

const CODE_EXPECTED: &str = "an HTTP status such as 403";
const VERDICTS: &[(&str, Verdict)] = &[
    ("allow", Verdict::Allow),
    ("deny", Verdict::Deny),
    ("fault", Verdict::Fault),
    ("not-called", Verdict::NotCalled),
];

// === impl Expectation ===

impl Expectation {
    pub(super) fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        if !node.value().is_object() {
            return Some(Self {
                verdict: Some(node.word(VERDICTS)?),
                ..Self::default()
            });
        }
        let mut fields = node.object()?;
        let verdict = fields
            .optional("verdict")
            .and_then(|node| node.word(VERDICTS));
        let message = text(&mut fields, "message");
        let fault = fields.optional("fault");
        let names_fault = fault.is_some();
        let fault = fault.and_then(|node| {
            let kind = node.word(&Fault::KINDS.map(|kind| (kind, kind)))?;
            Some(kind.to_owned())
        });
        let not_loaded = text(&mut fields, "notLoaded");
        let code = fields.optional("code").and_then(|node| {
            let code = node.integer(CODE_EXPECTED)?;
            let status = u16::try_from(code).ok();
            if status.is_none() {
                node.reject(CODE_EXPECTED);
            }
            status
        });
        let causes = fields.optional("causes").and_then(|node| {
            let causes = node.elements("causes, each with `field` and `message`")?;
            Some(causes.iter().filter_map(Cause::read).collect::<Vec<_>>())
        });
        let warnings = fields.optional("warnings").and_then(|node| {
            let warnings = node.elements("warnings")?;
            let texts = warnings
                .iter()
                .filter_map(|node| node.quotable_text("a part of a warning"));
            Some(texts.map(ToOwned::to_owned).collect())
        });
        let annotations = fields
            .optional("annotations")
            .and_then(|node| annotations(&node, &mut fields));
        let object = fields
            .optional("object")
            .and_then(|node| Input::read(&node, folder));
        let places = fields
            .optional("fields")
            .and_then(|node| places(&node, &mut fields));
        let unchanged = fields.optional("unchanged").and_then(|node| node.boolean());
        let snapshot = fields
            .optional("snapshot")
            .and_then(|node| node.boolean())
            .unwrap_or(false);
        fields.finish();

        let refuses = message.is_some() || code.is_some() || causes.is_some();
        let allows = object.is_some() || places.is_some() || unchanged.is_some();
        let implied = match (refuses, allows) {
            (true, _) => Some(Verdict::Deny),
            (false, true) => Some(Verdict::Allow),
            (false, false) => None,
        };
        let says_nothing = verdict.or(implied).is_none()
            && warnings.is_none()
            && annotations.is_none()
            && !names_fault
            && not_loaded.is_none()
            && !snapshot;
        if says_nothing {
            node.reject("a verdict (allow, deny, fault or not-called), or another expectation");
        }
        Some(Self {
            // A fault denies the request under failurePolicy Fail and allows it under Ignore, so it implies no verdict.
            verdict: verdict.or(implied.filter(|_| fault.is_none() && not_loaded.is_none())),
            message,
            code,
            causes,
            warnings,
            annotations: annotations.unwrap_or_default(),
            object,
            fields: places.unwrap_or_default(),
            unchanged,
            fault,
            not_loaded,
            snapshot,
        })
    }
}

fn text(fields: &mut Fields<'_>, key: &'static str) -> Option<String> {
    let text = fields.optional(key)?.quotable_text("a text")?;
    Some(text.to_owned())
}

fn annotations(
    node: &Node<'_>,
    fields: &mut Fields<'_>,
) -> Option<BTreeMap<String, Option<String>>> {
    let Some(members) = node.members(Values::TextOrNull) else {
        node.reject("an object with a text, or null, for each key");
        return None;
    };
    let mut annotations = BTreeMap::new();
    for (key, value) in members {
        match value {
            Value::Null => annotations.insert(key.clone(), None),
            Value::String(text) => annotations.insert(key.clone(), Some(text.clone())),
            _ => {
                fields.problem(
                    "annotations",
                    format!(
                        "{}: expected a text, or null if there must be none",
                        child("", key)
                    ),
                );
                None
            }
        };
    }
    Some(annotations)
}

fn places(node: &Node<'_>, fields: &mut Fields<'_>) -> Option<BTreeMap<String, Value>> {
    let Some(members) = node.members(Values::Any) else {
        node.reject("an object with a JSON Pointer for each key, such as /spec/replicas: 3");
        return None;
    };
    for pointer in members.keys() {
        if let Err(error) = Pointer::parse(pointer) {
            fields.problem(
                "fields",
                format!("{pointer:?} is not a JSON Pointer such as /spec/replicas: {error}"),
            );
        }
    }
    Some(members.clone().into_iter().collect())
}

// === impl Cause ===

impl Cause {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut fields = node.object()?;
        let field = text(&mut fields, "field");
        let message = text(&mut fields, "message");
        fields.finish();
        // Suites may write a field as the plugin does or as users see it.
        let field = field.map(|field| match field.starts_with('/') {
            true => field_path(&field).unwrap_or(field),
            false => field,
        });
        Some(Self { field, message })
    }
}

// === impl Verdict ===

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Fault => "fault",
            Self::NotCalled => "not-called",
        }
    }
}
