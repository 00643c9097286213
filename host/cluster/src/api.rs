//! Small helpers for requests to kube-apiserver.

use std::collections::BTreeMap;

use crate::Installation;
use crate::lease::INSTALLATION_LABEL;

/// Whether somebody else wrote the object first.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

/// Whether the object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// Whether the right to do that is missing.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, 403)
}

/// Whether kube-apiserver refused the content of the object.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    has_code(error, 422)
}

/// Whether kube-apiserver no longer has what the request continues.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    has_code(error, 410)
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The labels of every object that the installation creates.
pub(crate) fn labels(installation: &Installation) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "tollgate"),
        ("app.kubernetes.io/instance", &installation.name),
        ("app.kubernetes.io/managed-by", "tollgate"),
        (INSTALLATION_LABEL, &installation.name),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}
