//! The native control: a webhook with the same checks compiled in.
//!
//! The control runs behind the host's own server, and uses the host's own code to read and write. The comparison
//! therefore covers only the plugins. The control takes the same configuration file as the host, and does the work of
//! each plugin in plain Rust.
//!
//! The control matches no rules, meters nothing, does not record which plugin did what, and writes no audit
//! annotations. A handwritten webhook would not do these things either.

mod changes;
mod forbidden_text;
mod image_rewrite;
mod required_labels;
pub mod setup;
mod trusted_registries;

use std::path::Path;

use bytes::Bytes;
use tollgate_admission::Denial;
use tollgate_admission::review::decode::decode_within;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::{Body, Call, Endpoint, Gate, Readiness, Reply};
use tollgate_config::{PluginConfig, Source};
use tollgate_gate::pipeline::outcome::{Outcome, Status};
use tollgate_gate::pipeline::respond::respond;
use tollgate_json::document::Account;

use changes::Changes;
use forbidden_text::ForbiddenText;
use image_rewrite::ImageRewrite;
pub use required_labels::RequiredLabels;
use trusted_registries::TrustedRegistries;

/// A webhook without plugins.
pub struct Control {
    checks: Vec<Check>,
    max_depth: u32,
}

/// The work of one plugin, in native Rust.
enum Check {
    RequiredLabels(RequiredLabels),
    ForbiddenText(ForbiddenText),
    ImageRewrite(ImageRewrite),
    TrustedRegistries(TrustedRegistries),
}

/// Error for a plugin that the control cannot replace.
#[derive(Debug)]
pub struct UnknownPlugin {
    file: String,
}

/// Depth of the object in the review, as the host counts it.
const DEPTH_OF_OBJECT: u32 = 2;

// === impl Control ===

impl Control {
    /// Creates a control that does the work of these plugins. Without plugins it is the empty webhook, which reads the
    /// review and allows it.
    ///
    /// # Errors
    /// Fails if the control has no native version of a plugin.
    pub fn new(plugins: &[PluginConfig], max_depth: u32) -> Result<Self, UnknownPlugin> {
        let checks = plugins.iter().map(Check::of);
        Ok(Self {
            checks: checks.collect::<Result<_, _>>()?,
            max_depth,
        })
    }

    /// Turns the body of a review into the body of its answer.
    ///
    /// # Errors
    /// Fails if the body is not a valid review. The text gives the reason.
    pub fn answer(&self, endpoint: Endpoint, body: &Bytes) -> Result<Vec<u8>, String> {
        let max_depth = self.max_depth + DEPTH_OF_OBJECT;
        let review = decode_within(body, max_depth, &Account::unlimited());
        let mut review = review.map_err(|error| tollgate_admission::chain(&error))?;
        let outcome = match endpoint {
            Endpoint::Validate => self.validate(&review.request),
            Endpoint::Mutate => self.mutate(&mut review.request),
        };
        Ok(respond(
            review.version,
            &review.request.uid,
            &outcome,
            endpoint,
        ))
    }

    fn validate(&self, request: &AdmissionRequest) -> Outcome {
        let Some(object) = &request.object else {
            return allowed(Changes::default());
        };
        let denials = self.checks.iter().filter_map(|check| match check {
            Check::RequiredLabels(check) => check.validate(request, object).err(),
            Check::ForbiddenText(check) => check.validate(object).err(),
            Check::TrustedRegistries(check) => check.validate(object).err(),
            Check::ImageRewrite(_) => None,
        });
        let denials: Vec<Denial> = denials.collect();
        if denials.is_empty() {
            return allowed(Changes::default());
        }
        let messages: Vec<String> = denials.into_iter().map(|denial| denial.message).collect();
        Outcome {
            allowed: false,
            status: Some(Status {
                code: 403,
                reason: "Forbidden",
                message: messages.join("; "),
                details: None,
            }),
            ..Outcome::default()
        }
    }

    fn mutate(&self, request: &mut AdmissionRequest) -> Outcome {
        let mut changes = Changes::default();
        if let Some(object) = &mut request.object {
            for check in &self.checks {
                if let Check::ImageRewrite(check) = check {
                    check.mutate(object, &mut changes);
                }
            }
        }
        allowed(changes)
    }
}

fn allowed(changes: Changes) -> Outcome {
    Outcome {
        allowed: true,
        patch: changes.into_operations(),
        ..Outcome::default()
    }
}

impl Gate for Control {
    async fn review(&self, call: Call) -> Reply {
        let body = match &call.body {
            Body::Whole(body) => body,
            Body::TooLarge { limit_bytes, .. } => {
                return Reply::TooLarge(format!("the review has more than {limit_bytes} bytes"));
            }
        };
        match self.answer(call.endpoint, body) {
            Ok(answer) => Reply::Review(Bytes::from(answer)),
            Err(why) => Reply::BadRequest(why),
        }
    }

    fn plugins(&self) -> serde_json::Value {
        serde_json::json!({ "plugins": [] })
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            ready: true,
            complete: true,
            detail: Vec::new(),
        }
    }
}

// === impl Check ===

impl Check {
    /// Selects the check by the name of the plugin's file. The part after a `-` distinguishes copies.
    fn of(plugin: &PluginConfig) -> Result<Self, UnknownPlugin> {
        let path = match &plugin.source {
            Source::File(path) => path.as_path(),
            // The name of a file for this plugin.
            Source::Oci(reference) => Path::new(&reference.repository),
        };
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.unwrap_or_default();
        let settings = &plugin.settings;
        match stem.split('-').next() {
            Some("required_labels") => Ok(Self::RequiredLabels(RequiredLabels::new(settings))),
            Some("forbidden_text") => Ok(Self::ForbiddenText(ForbiddenText::new(settings))),
            Some("image_rewrite") => Ok(Self::ImageRewrite(ImageRewrite::new(settings))),
            Some("trusted_registries") => {
                Ok(Self::TrustedRegistries(TrustedRegistries::new(settings)))
            }
            _ => Err(UnknownPlugin {
                file: path.display().to_string(),
            }),
        }
    }
}

// === impl UnknownPlugin ===

impl std::fmt::Display for UnknownPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: this plugin has no native twin; write one in bench/native/src and register it in \
             bench/native/src/lib.rs",
            self.file
        )
    }
}

impl std::error::Error for UnknownPlugin {}
