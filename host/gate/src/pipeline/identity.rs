//! Identifies a request in log records. With it, an operator gets from a user's complaint to the log record and back.
//!
//! Log records may hold the names of objects and users: a name is not a value of the object, and a Secret's name is
//! not its content. Where logs must not contain names, `log.identities` leaves them out.

use std::borrow::Cow;

use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::PluginConfig;
use tollgate_json::document::Json;

use tollgate_admission::text::{Limit, one_line};

/// The fields of a log record that identify a request.
pub(super) struct Identity<'r> {
    pub(super) uid: Cow<'r, str>,
    pub(super) operation: &'static str,
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) resource: String,
    pub(super) subresource: Option<String>,
    pub(super) dry_run: bool,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) generate_name: Option<String>,
    pub(super) user: Option<String>,
}

/// Logs an event about a request: its identity, further fields, and a message, as in `tracing::info!`.
macro_rules! log_request {
    ($level:ident, $identity:expr, $($rest:tt)+) => {{
        let identity = $identity;
        tracing::$level!(
            uid = &*identity.uid,
            operation = identity.operation,
            group = identity.group,
            kind = identity.kind,
            resource = identity.resource,
            subresource = identity.subresource,
            namespace = identity.namespace,
            name = identity.name,
            generate_name = identity.generate_name,
            user = identity.user,
            dry_run = identity.dry_run,
            $($rest)+
        );
    }};
}

pub(super) use log_request;

/// Longest name in a log record. Names come from the sender of the review, and may be as long as the body.
const LONGEST_NAME: Limit = Limit::Bytes(256);

/// The name of a plugin in a record about a request. A plugin of a namespace is called for requests of that namespace
/// alone, so its whole name would name the namespace of the request.
pub(super) fn logged(config: &PluginConfig) -> &str {
    if config.log_identities {
        config.name.as_str()
    } else {
        config.name.without_namespace()
    }
}

// === impl Identity ===

impl<'r> Identity<'r> {
    /// Takes the identity from a request, for a derived request from the one that kube-apiserver sent. Without
    /// `with_names`, it has no names.
    pub(super) fn of(request: &'r AdmissionRequest, with_names: bool) -> Self {
        let request = request.received();
        let short = |text: &str| one_line(text, LONGEST_NAME);
        let named = |text: Option<&str>| {
            let text = text.filter(|text| with_names && !text.is_empty());
            text.map(short)
        };
        let name = request.object_name();
        let generate_name = match name {
            Some(_) => None,
            None => request.object.as_ref().and_then(|object| {
                object
                    .member("metadata")?
                    .member("generateName")
                    .and_then(Json::as_text)
            }),
        };
        Self {
            uid: Cow::Borrowed(&request.uid),
            operation: request.operation.as_str(),
            group: short(&request.resource.group),
            kind: short(&request.kind.kind),
            resource: short(&request.resource.resource),
            subresource: request.sub_resource.as_deref().map(short),
            dry_run: request.dry_run,
            namespace: named(request.namespace.as_deref()),
            name: named(name),
            generate_name: named(generate_name),
            user: named(Some(request.username())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tollgate_config::{PluginName, Source};

    use super::*;

    #[test]
    fn namespace_in_the_name_of_a_plugin_is_left_out_with_the_identities() {
        let name = PluginName::of_tenant("team-a", "guard").expect("a name");
        let mut config = PluginConfig::new(name, Source::File(PathBuf::from("/guard.wasm")));
        assert_eq!(logged(&config), "team-a/guard");
        config.log_identities = false;
        assert_eq!(logged(&config), "guard");
        config.name = PluginName::parse("labels").expect("a name");
        assert_eq!(logged(&config), "labels");
    }
}
