//! The owners of the webhook configurations. They let the configurations go with the installation, in any order of
//! deletion.
//!
//! Kubernetes deletes an object when *all* of its owners are gone, and a cluster-scoped object can have cluster-scoped
//! owners only. `helm uninstall` leaves the Namespace, and `kubectl delete namespace` leaves cluster-scoped objects. So
//! the owners form a chain, where the end of either link is enough:
//!
//! ```text
//! Namespace ──owns──▶ anchor (an empty ClusterRole of the chart) ──owns──▶ webhook configurations
//! ```
//!
//! The garbage collector takes a moment. Every replica therefore also deletes the configurations itself when the anchor
//! or the Namespace is being deleted. A missing anchor alone is no reason: its name may be misspelt. So a replica deletes
//! only the configurations that the missing anchor owns, which the garbage collector deletes, too.

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ObjectMeta, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::words;

const CLUSTER_ROLE: &str = "ClusterRole";

/// An owner of the webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnerReference {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    uid: String,
}

/// Whether the installation exists, and the owner of its webhook configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Not known yet.
    #[default]
    Unknown,
    /// The installation exists.
    Present {
        /// The owner of the configurations.
        owner: OwnerReference,
        /// The owner that the anchor lacks.
        untied: Option<OwnerReference>,
    },
    /// The Namespace is being deleted or is gone, and the installation with it.
    Removed,
    /// There is no anchor: somebody deleted it, or its configured name is wrong.
    Missing {
        /// The configured name of the anchor.
        anchor: String,
    },
}

/// The state of an object that the installation depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Object {
    #[default]
    Unknown,
    Absent,
    Here {
        uid: String,
        owners: Vec<String>,
    },
}

/// An object that is followed.
#[derive(Debug, Default)]
struct Followed {
    object: Object,
    /// Whether the list that is being read has the object.
    is_listed: bool,
}

/// Follows the Namespace and the anchor, for as long as the process lives. Without an anchor, the Namespace owns the
/// configurations.
pub(crate) async fn follow_owner(
    client: Client,
    namespace: String,
    anchor: Option<String>,
    owner: watch::Sender<Owner>,
) {
    let of_name = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let mut namespaces = watcher::watcher(namespaces, of_name(&namespace))
        .default_backoff()
        .boxed();
    let roles: Api<PartialObjectMeta<ClusterRole>> = Api::all(client);
    let mut roles = watcher::watcher(roles, of_name(anchor.as_deref().unwrap_or_default()))
        .default_backoff()
        .boxed();
    let (mut of_namespace, mut of_anchor) = (Followed::default(), Followed::default());
    loop {
        tokio::select! {
            () = next(&mut namespaces, &mut of_namespace, "Namespace") => {}
            () = next(&mut roles, &mut of_anchor, "ClusterRole"), if anchor.is_some() => {}
        }
        let anchor = anchor.as_deref().map(|name| (name, &of_anchor.object));
        let now = combine((&namespace, &of_namespace.object), anchor);
        owner.send_if_modified(|before| {
            let is_news = *before != now;
            *before = now;
            is_news
        });
    }
}

/// Makes the Namespace own the anchor.
pub(super) async fn tie(
    client: Client,
    anchor: &str,
    manager: &PatchParams,
    namespace: &OwnerReference,
) -> Result<(), kube::Error> {
    let roles: Api<ClusterRole> = Api::all(client);
    let patch = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": CLUSTER_ROLE,
        "metadata": { "name": anchor, "ownerReferences": [namespace] },
    });
    // The anchor has no rules. So the patch cannot give anybody a right.
    roles
        .patch_metadata(anchor, manager, &Patch::Apply(&patch))
        .await?;
    Ok(())
}

/// Waits for the next event, and takes note of it.
async fn next<K>(
    events: &mut (impl Stream<Item = watcher::Result<Event<PartialObjectMeta<K>>>> + Unpin),
    followed: &mut Followed,
    kind: &str,
) {
    match events.next().await {
        None => {}
        Some(Ok(Event::Init)) => followed.is_listed = false,
        Some(Ok(Event::InitDone)) if followed.is_listed => {}
        Some(Ok(Event::InitDone)) => followed.object = Object::Absent,
        Some(Ok(Event::Apply(seen) | Event::InitApply(seen))) => {
            followed.is_listed = true;
            followed.object = Object::of(&seen.metadata);
        }
        Some(Ok(Event::Delete(_))) => followed.object = Object::Absent,
        Some(Err(error)) => {
            let error = words(&error);
            tracing::debug!(
                kind,
                error,
                "cannot watch what owns the webhook configurations; retrying"
            );
        }
    }
}

/// Whether an anchor of this name owns the configuration. Without the anchor, the garbage collector deletes it.
pub(super) fn is_owned_by(configuration: &Value, anchor: &str) -> bool {
    let owners = configuration["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["kind"] == CLUSTER_ROLE && owner["name"] == anchor)
}

fn combine(namespace: (&str, &Object), anchor: Option<(&str, &Object)>) -> Owner {
    let (name, object) = namespace;
    let of_namespace = match object {
        Object::Unknown => return Owner::Unknown,
        Object::Absent => return Owner::Removed,
        Object::Here { uid, .. } => OwnerReference::new("v1", "Namespace", name, uid),
    };
    match anchor {
        None => Owner::Present {
            owner: of_namespace,
            untied: None,
        },
        Some((_, Object::Unknown)) => Owner::Unknown,
        Some((name, Object::Absent)) => Owner::Missing {
            anchor: name.to_owned(),
        },
        Some((name, Object::Here { uid, owners })) => {
            let is_tied = owners.contains(&of_namespace.uid);
            Owner::Present {
                owner: OwnerReference::new("rbac.authorization.k8s.io/v1", CLUSTER_ROLE, name, uid),
                untied: (!is_tied).then_some(of_namespace),
            }
        }
    }
}

// === impl OwnerReference ===

impl OwnerReference {
    pub(super) fn new(
        api_version: &'static str,
        kind: &'static str,
        name: &str,
        uid: &str,
    ) -> Self {
        Self {
            api_version,
            kind,
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }
}

// === impl Object ===

impl Object {
    fn of(metadata: &ObjectMeta) -> Self {
        if metadata.deletion_timestamp.is_some() {
            return Self::Absent;
        }
        let owners = metadata.owner_references.iter().flatten();
        Self::Here {
            uid: metadata.uid.clone().unwrap_or_default(),
            owners: owners.map(|owner| owner.uid.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(uid: &str, owners: &[&str]) -> Object {
        Object::Here {
            uid: uid.to_owned(),
            owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
        }
    }

    #[test]
    fn installation_is_removed_with_its_namespace_and_a_missing_anchor_is_named() {
        let of = |namespace: &Object, anchor: &Object| {
            combine(("system", namespace), Some(("anchor", anchor)))
        };
        let (namespace, anchor) = (here("n", &[]), here("a", &["n"]));
        let missing = Owner::Missing {
            anchor: "anchor".to_owned(),
        };
        assert_eq!(of(&namespace, &Object::Absent), missing);
        assert_eq!(of(&Object::Absent, &anchor), Owner::Removed);
        assert_eq!(of(&Object::Absent, &Object::Absent), Owner::Removed);
        assert_eq!(of(&Object::Unknown, &anchor), Owner::Unknown);
        assert_eq!(of(&namespace, &Object::Unknown), Owner::Unknown);
        let Owner::Present { owner, untied } = of(&namespace, &anchor) else {
            panic!("the installation is there");
        };
        assert_eq!(
            (owner.kind, &*owner.uid, untied),
            ("ClusterRole", "a", None)
        );
    }

    #[test]
    fn missing_anchor_takes_only_the_configurations_that_it_owns() {
        let owned = |kind: &str, name: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u"}]}});
        assert!(is_owned_by(&owned("ClusterRole", "anchor"), "anchor"));
        // The configured name is misspelt.
        assert!(!is_owned_by(&owned("ClusterRole", "anchor"), "anchro"));
        assert!(!is_owned_by(&owned("Namespace", "anchor"), "anchor"));
        assert!(!is_owned_by(&json!({"metadata": {}}), "anchor"));
    }

    #[test]
    fn anchor_of_another_namespace_is_tied_anew() {
        let anchor = here("a", &["before"]);
        let owner = combine(("system", &here("n", &[])), Some(("anchor", &anchor)));
        let Owner::Present { untied, .. } = owner else {
            panic!("the installation is there");
        };
        assert_eq!(
            untied,
            Some(OwnerReference::new("v1", "Namespace", "system", "n"))
        );
    }

    #[test]
    fn namespace_owns_without_an_anchor() {
        let owner = combine(("system", &here("n", &[])), None);
        let expected = OwnerReference::new("v1", "Namespace", "system", "n");
        assert_eq!(
            owner,
            Owner::Present {
                owner: expected,
                untied: None
            }
        );
    }
}
