//! The native control: a webhook with the same checks compiled in.
//!
//! The control uses the host's own server, and reads and writes with the host's own code. So the comparison covers only
//! the plugins. It takes the host's configuration file, and does in plain Rust what each plugin in the file does. It
//! matches no rules, meters nothing, records no decisions and writes no audit annotations. A webhook written by hand
//! would not do that either.

mod changes;
mod forbidden_text;
mod image_rewrite;
mod required_labels;
pub mod setup;
mod trusted_registries;

use std::path::Path;

use bytes::Bytes;
use tollgate::config::{PluginConfig, Source};
use tollgate::pipeline::outcome::{Denial, Outcome, Status};
use tollgate::review::decode::decode;
use tollgate::review::request::AdmissionRequest;
use tollgate::review::respond::respond;
use tollgate::server::{Body, Call, Endpoint, Gate, Readiness, Reply};

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

/// The native version of one plugin.
enum Check {
    RequiredLabels(RequiredLabels),
    ForbiddenText(ForbiddenText),
    ImageRewrite(ImageRewrite),
    TrustedRegistries(TrustedRegistries),
}

/// A plugin without a native version.
#[derive(Debug)]
pub struct UnknownPlugin {
    file: String,
}

/// The depth of the object in the review, as the host counts it.
const DEPTH_OF_OBJECT: u32 = 2;

// === impl Control ===

impl Control {
    /// Creates the native versions of the plugins. Without plugins, this is the empty webhook, which reads the review
    /// and allows it.
    ///
    /// # Errors
    /// If a plugin has no native version.
    pub fn new(plugins: &[PluginConfig], max_depth: u32) -> Result<Self, UnknownPlugin> {
        let checks = plugins.iter().map(Check::of);
        Ok(Self {
            checks: checks.collect::<Result<_, _>>()?,
            max_depth,
        })
    }

    /// Answers a review, from body to body.
    ///
    /// # Errors
    /// If the body is not a valid review. The text has the reason.
    pub fn answer(&self, endpoint: Endpoint, body: &[u8]) -> Result<Vec<u8>, String> {
        let review = decode(body, self.max_depth + DEPTH_OF_OBJECT);
        let mut review = review.map_err(|error| error.to_string())?;
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
    /// Finds the check by the name of the plugin's file. The part after a `-` distinguishes copies.
    fn of(plugin: &PluginConfig) -> Result<Self, UnknownPlugin> {
        let path = match &plugin.source {
            Source::File(path) => path.as_path(),
            // The repository corresponds to the file name.
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
            "{}: there is no native twin of this plugin; write one in bench/native/src and name it in bench/native/src/lib.rs",
            self.file
        )
    }
}

impl std::error::Error for UnknownPlugin {}
