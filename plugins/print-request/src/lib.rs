//! Logs requests for debugging: the user and the operation, and the documents as JSON.
//!
//! The plugin changes nothing and denies nothing. It keeps secrets out of the log: it leaves out Secrets and tokens
//! entirely, and in other objects the places in the settings.

mod redact;

use tollgate_sdk::prelude::*;
use tollgate_sdk::{AdmissionRequest, info};

use redact::Redaction;

/// The length of a log line. The host cuts a line after 4096 bytes, and this leaves room for the text before the JSON.
const LINE_BYTES: usize = 4000;

/// The limit for `maxBytes`. All three documents fit into the default of 100 lines per call.
const MOST_BYTES: usize = 64 * 1024;

/// The kinds of objects that contain credentials, as group and kind.
const WITHHELD: [(&str, &str); 3] = [
    ("", "Secret"),
    ("authentication.k8s.io", "TokenRequest"),
    ("authentication.k8s.io", "TokenReview"),
];

/// Places that are always redacted. The first is a copy of the whole object, and the second is long and of little use.
const ALWAYS_REDACTED: [&str; 2] = [
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
    "/metadata/managedFields",
];

/// The policy.
pub struct PrintRequest {
    max_bytes: usize,
    redaction: Redaction,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    max_bytes: usize,
    redact: Vec<Pointer>,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_bytes: 16 * 1024,
            redact: Vec::new(),
        }
    }
}

// === impl PrintRequest ===

impl Policy for PrintRequest {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if settings.max_bytes > MOST_BYTES {
            errors.at("/maxBytes", format!("must be at most {MOST_BYTES}"));
        }
        for (index, place) in settings.redact.iter().enumerate() {
            if place.is_root() {
                errors.at(
                    pointer!["redact", index],
                    "must be a place within the object; \"maxBytes\": 0 prints no object at all",
                );
            }
        }
        let always = ALWAYS_REDACTED.map(Pointer::from);
        let redaction = Redaction::new(settings.redact.iter().chain(&always));
        errors.or(Self {
            max_bytes: settings.max_bytes,
            redaction,
        })
    }
}

impl Mutate for PrintRequest {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        self.print("mutate", review);
        Ok(Mutation::Unchanged)
    }
}

impl Validate for PrintRequest {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        self.print("validate", review);
        Ok(())
    }
}

impl PrintRequest {
    fn print(&self, phase: &str, review: &Review) {
        let request = review.request();
        info!("{phase}: {}", describe(&request, review.request_document()));
        if is_withheld(&request) {
            // The document is not even read, because the host withholds every text of a call that has read the content
            // of a Secret.
            info!("{phase}: the object is left out, it holds credentials");
            return;
        }
        for (name, document) in [
            ("object", review.object()),
            ("oldObject", review.old_object()),
            ("options", review.options()),
        ] {
            if self.max_bytes > 0 && document.exists() {
                self.print_document(phase, name, document);
            }
        }
    }

    fn print_document(&self, phase: &str, name: &str, document: Document) {
        let json = self.redaction.print(document, self.max_bytes);
        let shown = &json[..json.floor_char_boundary(self.max_bytes)];
        let mut rest = shown;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.floor_char_boundary(LINE_BYTES));
            let place = if rest.len() == shown.len() { "" } else { "…" };
            info!("{phase}: {name}: {place}{line}");
            rest = after;
        }
        if shown.len() < json.len() {
            let max_bytes = self.max_bytes;
            info!("{phase}: {name}: the rest is left out (maxBytes: {max_bytes})");
        }
    }
}

/// Describes the user and the operation in one line.
fn describe(request: &AdmissionRequest, document: Document) -> String {
    let resource = &request.resource;
    let group = match resource.group.as_str() {
        "" => String::new(),
        group => format!("{group}/"),
    };
    let mut text = format!(
        "{} {group}{} {}",
        request.operation.as_str(),
        resource.version,
        resource.resource
    );
    if let Some(sub_resource) = &request.sub_resource {
        text += &format!("/{sub_resource}");
    }
    match request.name.as_str() {
        "" => text += " without a name",
        name => text += &format!(" {name}"),
    }
    if let Some(namespace) = &request.namespace {
        text += &format!(" in {namespace}");
    }
    let user = document.text("/userInfo/username").unwrap_or_default();
    text += &format!(" by {user}");
    let groups = document.select("/userInfo/groups/*");
    let groups: Vec<_> = groups
        .iter()
        .filter_map(|node| node.value.as_text())
        .collect();
    if !groups.is_empty() {
        text += &format!(" of {}", groups.join(", "));
    }
    if request.dry_run {
        text += ", dry run";
    }
    text
}

fn is_withheld(request: &AdmissionRequest) -> bool {
    let (kind, resource) = (&request.kind, &request.resource);
    let is_secret = resource.group.is_empty() && resource.resource == "secrets";
    is_secret || WITHHELD.contains(&(kind.group.as_str(), kind.kind.as_str()))
}

tollgate_sdk::plugin! {
    PrintRequest,
    rules: [
        Rule::on([Operation::Create, Operation::Update, Operation::Delete, Operation::Connect], "*", "*", ["*/*"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
