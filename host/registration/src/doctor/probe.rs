//! Requests without which a cluster, its nodes or Tollgate cannot start again.

use serde_json::{Value, json};
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;

use super::Installation;

/// The part of a cluster that depends on a request.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Dependent {
    /// Pods of Tollgate: nothing brings a replica back.
    Tollgate,
    /// Nodes: none can join, report or attach volumes.
    Nodes,
    /// The control plane: heartbeats, leader elections and system pods.
    ControlPlane,
}

/// Where a request happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Cluster,
    Own,
    System,
    NodeLease,
}

/// A request as kube-apiserver would send it.
pub(super) struct Probe {
    pub(super) dependent: Dependent,
    pub(super) operation: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) resource: &'static str,
    pub(super) sub_resource: Option<&'static str>,
    /// None for cluster-scoped resources.
    pub(super) namespace: Option<String>,
    /// The request for match conditions.
    pub(super) request: AdmissionRequest,
}

/// The columns: dependent, operation, group, version, resource with its subresource, kind, place, user.
type Row = (
    Dependent,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Place,
    User,
);

#[derive(Clone, Copy)]
enum User {
    Node,
    /// A service account of `kube-system`.
    Controller(&'static str),
    Component(&'static str),
    Own,
}

const ROWS: [Row; 17] = {
    use Dependent::{ControlPlane, Nodes, Tollgate};
    use Place::{Cluster, NodeLease, Own, System};
    const REPLICA_SETS: User = User::Controller("replicaset-controller");
    const DAEMON_SETS: User = User::Controller("daemon-set-controller");
    const SLICES: User = User::Controller("endpointslice-controller");
    const SCHEDULER: User = User::Component("system:kube-scheduler");
    const MANAGER: User = User::Component("system:kube-controller-manager");
    [
        (
            Tollgate,
            "CREATE",
            "",
            "v1",
            "pods",
            "Pod",
            Own,
            REPLICA_SETS,
        ),
        (Tollgate, "DELETE", "", "v1", "pods", "Pod", Own, User::Node),
        (
            Tollgate,
            "CREATE",
            "",
            "v1",
            "pods/binding",
            "Binding",
            Own,
            SCHEDULER,
        ),
        (
            Tollgate,
            "UPDATE",
            "",
            "v1",
            "pods/status",
            "Pod",
            Own,
            User::Node,
        ),
        (
            Tollgate,
            "CREATE",
            "",
            "v1",
            "serviceaccounts/token",
            "TokenRequest",
            Own,
            User::Node,
        ),
        (
            Tollgate,
            "UPDATE",
            "discovery.k8s.io",
            "v1",
            "endpointslices",
            "EndpointSlice",
            Own,
            SLICES,
        ),
        (
            Tollgate,
            "UPDATE",
            "coordination.k8s.io",
            "v1",
            "leases",
            "Lease",
            Own,
            User::Own,
        ),
        (
            Tollgate,
            "UPDATE",
            "",
            "v1",
            "secrets",
            "Secret",
            Own,
            User::Own,
        ),
        (
            Nodes,
            "CREATE",
            "",
            "v1",
            "nodes",
            "Node",
            Cluster,
            User::Node,
        ),
        (
            Nodes,
            "UPDATE",
            "",
            "v1",
            "nodes/status",
            "Node",
            Cluster,
            User::Node,
        ),
        (
            Nodes,
            "CREATE",
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests",
            "CertificateSigningRequest",
            Cluster,
            User::Node,
        ),
        (
            Nodes,
            "UPDATE",
            "certificates.k8s.io",
            "v1",
            "certificatesigningrequests/approval",
            "CertificateSigningRequest",
            Cluster,
            MANAGER,
        ),
        (
            Nodes,
            "CREATE",
            "storage.k8s.io",
            "v1",
            "csinodes",
            "CSINode",
            Cluster,
            User::Node,
        ),
        (
            Nodes,
            "CREATE",
            "storage.k8s.io",
            "v1",
            "volumeattachments",
            "VolumeAttachment",
            Cluster,
            MANAGER,
        ),
        (
            Nodes,
            "UPDATE",
            "coordination.k8s.io",
            "v1",
            "leases",
            "Lease",
            NodeLease,
            User::Node,
        ),
        (
            ControlPlane,
            "UPDATE",
            "coordination.k8s.io",
            "v1",
            "leases",
            "Lease",
            System,
            MANAGER,
        ),
        (
            ControlPlane,
            "CREATE",
            "",
            "v1",
            "pods",
            "Pod",
            System,
            DAEMON_SETS,
        ),
    ]
};

/// Lists the requests.
pub(super) fn all(installation: &Installation) -> Vec<Probe> {
    let probe = |row: &Row| {
        let (dependent, operation, group, version, resource, kind, place, user) = *row;
        let namespace = match place {
            Place::Cluster => None,
            Place::Own => Some(installation.namespace.clone()),
            Place::System => Some("kube-system".to_owned()),
            Place::NodeLease => Some("kube-node-lease".to_owned()),
        };
        let (resource, sub_resource) = match resource.split_once('/') {
            Some((resource, sub_resource)) => (resource, Some(sub_resource)),
            None => (resource, None),
        };
        let api_version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let mut object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": "probe", "namespace": namespace},
        });
        if place == Place::Own && resource == "pods" {
            object["metadata"]["labels"] = json!({"app.kubernetes.io/name": "tollgate"});
        }
        let (new, old) = match operation {
            "CREATE" => (object, Value::Null),
            "DELETE" => (Value::Null, object),
            _ => (object.clone(), object),
        };
        let gvk = json!({"group": group, "version": version, "kind": kind});
        let gvr = json!({"group": group, "version": version, "resource": resource});
        let review = json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "probe", "kind": gvk, "requestKind": gvk, "resource": gvr, "requestResource": gvr,
                "subResource": sub_resource, "requestSubResource": sub_resource,
                "name": "probe", "namespace": namespace, "operation": operation,
                "userInfo": user.info(installation),
                "object": new, "oldObject": old, "dryRun": false, "options": null,
            },
        });
        let review = decode(review.to_string().as_bytes(), 64);
        Probe {
            dependent,
            operation,
            group,
            version,
            resource,
            sub_resource,
            namespace,
            request: review.expect("the review is well-formed").request,
        }
    };
    ROWS.iter().map(probe).collect()
}

// === impl User ===

impl User {
    fn info(self, installation: &Installation) -> Value {
        let account = |namespace: &str, name: &str| {
            json!({
                "username": format!("system:serviceaccount:{namespace}:{name}"),
                "groups": [
                    "system:serviceaccounts", format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated",
                ],
            })
        };
        match self {
            Self::Node => json!({
                "username": "system:node:probe", "groups": ["system:nodes", "system:authenticated"],
            }),
            Self::Component(name) => {
                json!({"username": name, "groups": ["system:authenticated"]})
            }
            Self::Controller(name) => account("kube-system", name),
            Self::Own => account(&installation.namespace, "tollgate"),
        }
    }
}

// === impl Probe ===

/// Writes the request as `CREATE pods in tollgate-system`.
impl std::fmt::Display for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.operation, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(sub_resource) = self.sub_resource {
            write!(f, "/{sub_resource}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        Ok(())
    }
}
