//! Protects owner references, like the admission plugin OwnerReferencesPermissionEnforcement of kube-apiserver.
//!
//! Who changes the owners of an object can have it deleted, so that needs the right to delete the object. Who blocks the
//! deletion of an owner needs the right to change the owner's finalizers.

mod kinds;

use tollgate_sdk::access::{Action, Decision, OrFault as _};
use tollgate_sdk::prelude::*;

const OWNERS: &str = "/metadata/ownerReferences";

/// The policy, which has no settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerReferences {}

/// A reference to an owner.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

// === impl OwnerReferences ===

impl Policy for OwnerReferences {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for OwnerReferences {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let request = review.request();
        let sub_resource = request.sub_resource.unwrap_or_default();
        let resource = request.resource;
        // Old kubelets lost owners here. kube-apiserver keeps owners in any case when a status is written.
        let is_status =
            sub_resource == "status" && resource.group.is_empty() && resource.resource == "pods";
        let (new, old) = (owners(review.object())?, owners(review.old_object())?);
        if is_status || new == old {
            return Ok(());
        }
        let namespace = request.namespace.unwrap_or_default();
        if request.operation == Operation::Update {
            let delete = Action::resource("delete", resource.group, resource.resource)
                .subresource(sub_resource)
                .namespace(namespace.clone())
                .name(request.name);
            refuse_unless(
                "cannot set an ownerRef on a resource you can't delete",
                &delete.check().or_fault(),
            )?;
        }
        check_blocking(&new, &old, &namespace)
    }
}

/// Denies owners whose deletion is newly blocked, unless the user may change their finalizers.
fn check_blocking(new: &[Owner], old: &[Owner], namespace: &str) -> Result<(), Denial> {
    let blocked = blocked(new, old);
    if blocked.is_empty() {
        return Ok(());
    }
    let anything = Action::resource("update", "*", "*")
        .subresource("finalizers")
        .name("*");
    if anything.check().or_fault().allowed {
        return Ok(());
    }
    for owner in blocked {
        let Some(resource) = kinds::resource(&owner.api_version, &owner.kind) else {
            let Owner {
                api_version, kind, ..
            } = owner;
            return Err(Denial::new(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion \
                 {api_version} Kind {kind}: no matches for kind \"{kind}\" in version \"{api_version}\""
            )));
        };
        let mut update = Action::resource("update", resource.group, resource.plural)
            .subresource("finalizers")
            .name(owner.name.as_str());
        if resource.is_namespaced {
            update = update.namespace(namespace);
        }
        refuse_unless(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
            &update.check().or_fault(),
        )?;
    }
    Ok(())
}

/// Returns the owners whose deletion is blocked and was not before.
fn blocked<'o>(new: &'o [Owner], old: &[Owner]) -> Vec<&'o Owner> {
    let blocks = |owner: &Owner| owner.block_owner_deletion == Some(true);
    let blocked_before = |owner: &Owner| {
        // Of owners with the same uid, kube-apiserver looks at the last one.
        let before = old.iter().rev().find(|other| other.uid == owner.uid);
        before.is_some_and(blocks)
    };
    let new = new.iter();
    new.filter(|owner| blocks(owner) && !blocked_before(owner))
        .collect()
}

fn refuse_unless(message: &str, decision: &Decision) -> Result<(), Denial> {
    if decision.allowed {
        return Ok(());
    }
    let error = decision.error.as_deref().unwrap_or("<nil>");
    Err(Denial::new(format!(
        "{message}: {}, {error}",
        decision.reason
    )))
}

fn owners(object: Document) -> Result<Vec<Owner>, Denial> {
    let owners: Option<Option<Vec<Owner>>> = object
        .read(OWNERS)
        .map_err(|_| Denial::new("metadata.ownerReferences is not a list of owners"))?;
    Ok(owners.flatten().unwrap_or_default())
}

tollgate_sdk::validator! {
    OwnerReferences,
    rules: [Rule::on([Operation::Create, Operation::Update], "*", "*", ["*/*"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
