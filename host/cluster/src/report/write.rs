//! Writes parts of a status, each under its own field manager.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api::words;
use crate::kinds::{Kind, Resource, api_version};
use crate::status;
use crate::store::Store;

pub(super) const LONGEST_WRITE: Duration = Duration::from_secs(10);
const CONFLICT: u16 = 409;

/// Removes the entries of a replica from every status, because it ends.
pub(crate) async fn leave(client: &Client, store: &Store, replica: &str) {
    let of_kind = |kind| {
        let resources = store.resources(kind).into_iter();
        resources.map(move |resource| (kind, resource))
    };
    for (kind, resource) in Kind::PLUGINS.into_iter().flat_map(of_kind) {
        let entries = status::entries(&resource);
        if entries.iter().any(|entry| entry.name == replica)
            && let Err(reason) = remove_entry(client, kind, &resource, replica).await
        {
            tracing::debug!(
                name = resource.name,
                reason,
                "cannot remove an entry of a status"
            );
        }
    }
}

/// Removes the entry of a replica, and returns the resource as it is then.
pub(super) async fn remove_entry(
    client: &Client,
    kind: Kind,
    resource: &Resource,
    replica: &str,
) -> Result<Resource, String> {
    let (manager, nothing) = (manager(replica), json!({}));
    write(client, kind, resource, &manager, &nothing).await
}

/// The field manager of a replica's entries.
pub(super) fn manager(replica: &str) -> String {
    format!("tollgate-replica-{replica}")
}

/// The reason why a write was not made.
#[derive(Debug)]
pub(super) enum Refused {
    /// Somebody has changed the resource meanwhile.
    Stale,
    /// Another reason.
    Failed(String),
}

/// Applies a part of the status under a field manager, in place of the part that the manager applied before.
pub(super) async fn write(
    client: &Client,
    kind: Kind,
    resource: &Resource,
    manager: &str,
    status: &Value,
) -> Result<Resource, String> {
    let written = apply(client, kind, resource, manager, status, None).await;
    written.map_err(|refused| match refused {
        Refused::Stale => "somebody has changed the resource meanwhile".to_owned(),
        Refused::Failed(why) => why,
    })
}

/// Applies a part of the status like [`write`], but only if nobody has changed the resource meanwhile.
pub(super) async fn write_unchanged(
    client: &Client,
    kind: Kind,
    resource: &Resource,
    manager: &str,
    status: &Value,
) -> Result<Resource, Refused> {
    let version = Some(resource.version.as_str());
    apply(client, kind, resource, manager, status, version).await
}

async fn apply(
    client: &Client,
    kind: Kind,
    resource: &Resource,
    manager: &str,
    status: &Value,
    version: Option<&str>,
) -> Result<Resource, Refused> {
    let api: Api<DynamicObject> = match &resource.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    };
    // The uid keeps the write from another resource of the same name.
    let mut document = json!({
        "apiVersion": api_version(),
        "kind": kind.name(),
        "metadata": { "name": resource.name, "uid": resource.uid },
        "status": status,
    });
    if let Some(version) = version {
        document["metadata"]["resourceVersion"] = json!(version);
    }
    let parameters = PatchParams::apply(manager).force();
    let patch = Patch::Apply(&document);
    let writing = api.patch_status(&resource.name, &parameters, &patch);
    match timeout(LONGEST_WRITE, writing).await {
        Ok(Ok(object)) => Ok(Resource::of(object)),
        Ok(Err(kube::Error::Api(status))) if version.is_some() && status.code == CONFLICT => {
            Err(Refused::Stale)
        }
        Ok(Err(error)) => Err(Refused::Failed(words(&error))),
        Err(_) => Err(Refused::Failed(format!(
            "no answer within {} s",
            LONGEST_WRITE.as_secs()
        ))),
    }
}
