//! Containers of every kind.

use serde::Deserialize;
use tollgate_sdk::ReadError;
use tollgate_sdk::prelude::*;

use super::{SecurityContext, read};

/// The kinds of containers, in the order of Kubernetes' messages.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// The members of a container that are probes.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// The members of a container's `lifecycle` that are handlers.
const HANDLERS: [&str; 2] = ["postStart", "preStop"];
/// The members of a probe or a handler that name a host.
const ACTIONS: [&str; 2] = ["httpGet", "tcpSocket"];

/// A container of any kind.
pub(crate) struct Container {
    at: Pointer,
    pub(crate) name: String,
    pub(crate) security_context: SecurityContext,
    /// The node's ports that the container uses, each with the index of the port.
    pub(crate) host_ports: Vec<(usize, i64)>,
}

/// A host in a probe or a lifecycle handler.
pub(crate) struct Host<'p> {
    pub(crate) container: &'p Container,
    pub(crate) at: Pointer,
    pub(crate) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    host_port: Option<i64>,
}

/// Returns all containers of a Pod.
pub(super) fn all(document: Document, spec: &str) -> Result<Vec<Container>, ReadError> {
    let mut containers = Vec::new();
    for list in LISTS {
        let list = Pointer::from([spec, "/", list].concat());
        for index in 0..document.length(&list).unwrap_or(0) {
            containers.push(Container::read(document, list.child(index))?);
        }
    }
    Ok(containers)
}

/// Returns the hosts of all containers. One pattern reads all places of one form, because each single read would cost
/// more.
pub(super) fn hosts<'p>(document: Document, containers: &'p [Container]) -> Vec<Host<'p>> {
    let mut lists: Vec<_> = containers
        .iter()
        .filter_map(|one| one.at.parent())
        .collect();
    lists.dedup();
    let mut hosts = Vec::new();
    for list in lists {
        for action in ACTIONS {
            for owner in ["/*/*/", "/*/lifecycle/*/"] {
                let pattern = [list.as_str(), owner, action, "/host"].concat();
                let found = document.select(pattern).into_iter();
                hosts.extend(found.filter_map(|node| Host::of(node, containers)));
            }
        }
    }
    hosts
}

// === impl Container ===

impl Container {
    fn read(document: Document, at: Pointer) -> Result<Self, ReadError> {
        let ports: Vec<Port> =
            read(document, &[at.as_str(), "/ports"].concat())?.unwrap_or_default();
        let ports = ports.iter().enumerate();
        let name = document.text([at.as_str(), "/name"].concat());
        Ok(Self {
            name: name.unwrap_or_default(),
            security_context: read(document, &[at.as_str(), "/securityContext"].concat())?
                .unwrap_or_default(),
            host_ports: ports
                .filter_map(|(index, port)| {
                    Some((index, port.host_port.filter(|&port| port != 0)?))
                })
                .collect(),
            at,
        })
    }

    /// Returns the place of a field in the security context. The field may have several levels.
    pub(crate) fn security_context(&self, field: &str) -> Pointer {
        [self.at.as_str(), "/securityContext/", field]
            .concat()
            .into()
    }

    /// Returns the place of a host port.
    pub(crate) fn host_port(&self, index: usize) -> Pointer {
        self.at.child("ports").child(index).child("hostPort")
    }
}

// === impl Host ===

impl<'p> Host<'p> {
    fn of(node: Node, containers: &'p [Container]) -> Option<Self> {
        let name = match node.value {
            Value::Null => return None,
            Value::Text(name) if name.is_empty() => return None,
            Value::Text(name) => name,
            // Kubernetes would not send this, and the check must not allow it.
            _ => String::new(),
        };
        let is_within = |at: &Pointer| {
            let rest = node.pointer.strip_prefix(at.as_str())?;
            rest.strip_prefix('/').map(str::to_owned)
        };
        let (container, rest) = containers
            .iter()
            .find_map(|container| Some((container, is_within(&container.at)?)))?;
        let is_known = match rest.split('/').collect::<Vec<_>>()[..] {
            [probe, _, _] => PROBES.contains(&probe),
            [_, handler, _, _] => HANDLERS.contains(&handler),
            _ => false,
        };
        is_known.then(|| Self {
            container,
            at: node.pointer.into(),
            name,
        })
    }
}
