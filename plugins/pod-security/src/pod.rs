//! The fields of a Pod that the standards need. The plugin reads them one by one, so the large parts of a Pod, such as
//! the arguments of containers, stay with the host.

mod containers;
mod security_context;
mod volumes;

use serde::de::DeserializeOwned;
use tollgate_sdk::ReadError;
use tollgate_sdk::prelude::*;

pub(crate) use containers::{Container, Host};
pub(crate) use security_context::{Profile, SeLinuxOptions, SecurityContext};
pub(crate) use volumes::Volume;

/// The prefix of the old annotations with AppArmor profiles of containers.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The old annotation with a Pod's seccomp profile.
pub(crate) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The prefix of the old annotations with seccomp profiles of containers.
pub(crate) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// A Pod, or the Pod of a template.
pub(crate) struct Pod {
    document: Document,
    at: Pointer,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) host_network: bool,
    pub(crate) host_pid: bool,
    pub(crate) host_ipc: bool,
    /// Whether its users are those of the node. In a user namespace of its own, root has no rights on the node.
    pub(crate) has_host_users: bool,
    pub(crate) is_windows: bool,
    pub(crate) security_context: SecurityContext,
    pub(crate) volumes: Vec<Volume>,
    /// Init containers, containers and ephemeral containers, in this order.
    pub(crate) containers: Vec<Container>,
}

/// An annotation with a profile.
pub(crate) struct Annotation {
    pub(crate) key: String,
    pub(crate) value: String,
}

// === impl Pod ===

impl Pod {
    /// Reads the Pod at a pointer.
    pub(crate) fn read(document: Document, at: Pointer) -> Result<Self, ReadError> {
        let spec = [at.as_str(), "/spec"].concat();
        let flag = |name: &str| read::<bool>(document, &[&spec, name].concat());
        Ok(Self {
            document,
            annotations: annotations(document, &at)?,
            host_network: flag("/hostNetwork")?.unwrap_or(false),
            host_pid: flag("/hostPID")?.unwrap_or(false),
            host_ipc: flag("/hostIPC")?.unwrap_or(false),
            has_host_users: flag("/hostUsers")?.unwrap_or(true),
            is_windows: read::<String>(document, &[&spec, "/os/name"].concat())?.as_deref()
                == Some("windows"),
            security_context: read(document, &[&spec, "/securityContext"].concat())?
                .unwrap_or_default(),
            volumes: volumes::all(document, &spec),
            containers: containers::all(document, &spec)?,
            at,
        })
    }

    /// Returns the hosts that containers make the kubelet connect to.
    pub(crate) fn hosts(&self) -> Vec<Host<'_>> {
        containers::hosts(self.document, &self.containers)
    }

    /// Returns the place of an annotation.
    pub(crate) fn annotation(&self, key: &str) -> Pointer {
        self.at.child("metadata").child("annotations").child(key)
    }

    /// Returns the place of a field in the Pod's security context. The field may have several levels.
    pub(crate) fn security_context(&self, field: &str) -> Pointer {
        [self.at.as_str(), "/spec/securityContext/", field]
            .concat()
            .into()
    }

    /// Returns the place of a field in the spec.
    pub(crate) fn spec(&self, field: &str) -> Pointer {
        self.at.child("spec").child(field)
    }
}

/// Returns the value at a pointer. JSON null is none, as in Kubernetes.
fn read<T: DeserializeOwned>(document: Document, at: &str) -> Result<Option<T>, ReadError> {
    Ok(document.read::<Option<T>>(at)?.flatten())
}

/// Returns only the annotations with profiles, because `kubectl apply` keeps a copy of the object in another
/// annotation.
fn annotations(document: Document, at: &Pointer) -> Result<Vec<Annotation>, ReadError> {
    let at = Pointer::from([at.as_str(), "/metadata/annotations"].concat());
    let mut annotations = Vec::new();
    for key in document.keys(&at).unwrap_or_default() {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) || key.starts_with(APP_ARMOR) {
            let value = read(document, at.child(&key).as_str())?.unwrap_or_default();
            annotations.push(Annotation { key, value });
        }
    }
    Ok(annotations)
}
