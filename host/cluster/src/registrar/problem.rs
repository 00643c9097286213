//! Why a webhook configuration is not as desired.

use crate::api::is_forbidden;

/// The reason why a configuration is not as desired.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    TooSlow(#[from] tollgate_registration::TooSlow),
    #[error(
        "the webhook configuration {name} belongs to an installation of the same name in namespace {namespace}; give one of them another name"
    )]
    Taken { name: String, namespace: String },
    #[error(
        "there is no ClusterRole {anchor} (cluster.registration.anchor), so nothing is registered, and the webhook configurations that it owned are deleted with it; create it again, or correct its name"
    )]
    AnchorMissing { anchor: String },
    #[error("cannot write the webhook configuration")]
    Write(#[source] Box<kube::Error>),
    #[error("stopped leading during a write")]
    NotLeading,
    #[error("kube-apiserver keeps differences from the applied configuration: {0}")]
    Refused(String),
}

// === impl Problem ===

impl Problem {
    /// The reason in CamelCase, for conditions.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::TooSlow(_) => "TooSlow",
            Self::Taken { .. } => "ConfigurationTaken",
            Self::AnchorMissing { .. } => "AnchorMissing",
            Self::Write(error) if is_forbidden(error) => "Forbidden",
            Self::Write(_) => "WriteFailed",
            Self::NotLeading => "NotLeading",
            Self::Refused(_) => "ForeignChange",
        }
    }
}
