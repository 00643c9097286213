//! Looks up the Namespace of a request: without waiting where that is enough, and otherwise until a deadline.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use tollgate_admission::namespaces::{Namespaces, NoNamespaces, OfRequest};
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::Json;

use super::Engine;
use super::fault::Fault;
use super::state::Subject;

/// Reason for the fault of a plugin that needs a namespace in a host without a source of namespaces.
const NOT_CONFIGURED: &str = "this host has no source of namespaces: connect it to the cluster (the section \
    `cluster` of the configuration), or give it Namespace objects (`--namespaces FILE`, or the key `namespaces` \
    of a suite)";

static NO_NAMESPACES: LazyLock<Arc<NoNamespaces>> =
    LazyLock::new(|| Arc::new(NoNamespaces::because(NOT_CONFIGURED)));

/// The source of an engine that has none.
pub(super) fn no_namespaces() -> Arc<dyn Namespaces> {
    NO_NAMESPACES.clone()
}

/// Returns the Namespace of a request, and looks it up if that takes no time.
pub(super) fn namespace_now<'r>(
    namespaces: &dyn Namespaces,
    request: &'r AdmissionRequest,
    object: Option<&Json>,
) -> OfRequest<'r> {
    let of = request.namespace_of(object);
    let OfRequest::Awaited(name) = of else {
        return of;
    };
    match namespaces.known(name) {
        Some(lookup) => {
            request.take_lookup(lookup);
            request.namespace_of(object)
        }
        None => OfRequest::Awaited(name),
    }
}

// === impl Engine ===

impl Engine {
    /// Looks up the Namespace of a request if that takes no time. Returns whether it is looked up now.
    pub fn has_namespace(&self, request: &AdmissionRequest, object: Option<&Json>) -> bool {
        let of = namespace_now(self.namespaces.as_ref(), request, object);
        !matches!(of, OfRequest::Awaited(_))
    }

    /// Looks up the Namespace for a call that ended at the question, so that the call can be made again.
    ///
    /// # Errors
    /// The fault of a call that cannot go on.
    pub(super) async fn await_namespace(
        &self,
        subject: &Subject,
        is_first_time: bool,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let (request, object) = (&subject.request, subject.object.as_ref());
        let lookup = self.look_up_namespace(request, object, deadline).await;
        // A source that answers at the first attempt and not at the second does not delay the call again.
        let lookup = match lookup {
            Ok(()) if !is_first_time => Err("the namespace was not kept".to_owned()),
            lookup => lookup,
        };
        lookup.map_err(|what| Fault::NamespaceUnavailable { what })
    }

    /// Looks up the Namespace of a request.
    ///
    /// # Errors
    /// When the deadline passes first. Another plugin of the review may have more time and try again.
    pub async fn look_up_namespace(
        &self,
        request: &AdmissionRequest,
        object: Option<&Json>,
        deadline: Instant,
    ) -> Result<(), String> {
        let OfRequest::Awaited(name) = namespace_now(self.namespaces.as_ref(), request, object)
        else {
            return Ok(());
        };
        let lookup = self.namespaces.look_up(name);
        match tokio::time::timeout_at(deadline.into(), lookup).await {
            Ok(lookup) => {
                request.take_lookup(lookup);
                Ok(())
            }
            Err(_) => Err(format!(
                "cannot look up the namespace `{name}`: no answer before the deadline"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
