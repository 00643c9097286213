//! The objects of a cluster as kube-apiserver lists them, for a scan.
//!
//! Lists come page by page and as text, so that the numbers of an object stay as they are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::core::Request;
use kube::core::params::ListParams;

use crate::api::is_gone;
use crate::watch::words;

/// A resource that kube-apiserver serves in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// The API group. It is empty for the core group.
    pub group: String,
    /// The plural name, such as `pods`.
    pub plural: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Pod`.
    pub kind: String,
    /// Whether the resource's objects are in namespaces.
    pub namespaced: bool,
    /// Whether kube-apiserver prefers this version of the group.
    pub is_preferred: bool,
}

/// Why kube-apiserver did not give what a scan needs.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The request failed.
    #[error("cannot {what}: {why}")]
    Failed {
        /// The request, such as `list pods.v1`.
        what: String,
        /// The reason.
        why: String,
    },
    /// The list is too old to be continued, because kube-apiserver has compacted its history.
    #[error("cannot {what}: the list expired before its last page")]
    Expired {
        /// The request.
        what: String,
    },
}

/// Number of objects in a page.
const PAGE: u32 = 500;
/// The only version of the core group.
const CORE_VERSION: &str = "v1";

/// Returns the resources that can be listed and created, in the group versions that `wants` selects.
///
/// A group version that kube-apiserver cannot describe is left out and noted in `unread`. An aggregated API that is down
/// is one.
///
/// # Errors
/// When kube-apiserver does not list its groups.
pub async fn discover(
    client: &Client,
    wants: impl Fn(&str, &str) -> bool,
    unread: &mut Vec<String>,
) -> Result<Vec<Served>, InventoryError> {
    let groups = client.list_api_groups().await;
    let groups = groups.map_err(|error| InventoryError::of("list the API groups", &error))?;
    let mut all = Vec::new();
    if wants("", CORE_VERSION) {
        let listed = client.list_core_api_resources(CORE_VERSION).await;
        let listed =
            listed.map_err(|error| InventoryError::of("list the core resources", &error))?;
        all.extend(served("", CORE_VERSION, true, listed.resources));
    }
    for group in groups.groups {
        let preferred = group.preferred_version.as_ref();
        let preferred = preferred.or(group.versions.first());
        let preferred = preferred.map(|version| version.version.clone());
        for version in group.versions {
            if !wants(&group.name, &version.version) {
                continue;
            }
            let is_preferred = preferred.as_ref() == Some(&version.version);
            match client
                .list_api_group_resources(&version.group_version)
                .await
            {
                Ok(listed) => all.extend(served(
                    &group.name,
                    &version.version,
                    is_preferred,
                    listed.resources,
                )),
                Err(error) => unread.push(format!(
                    "cannot list the resources of {}: {}",
                    version.group_version,
                    words(&error)
                )),
            }
        }
    }
    all.sort();
    Ok(all)
}

fn served(
    group: &str,
    version: &str,
    is_preferred: bool,
    resources: Vec<APIResource>,
) -> impl Iterator<Item = Served> {
    let can = |verbs: &[String], verb: &str| verbs.iter().any(|one| one == verb);
    let usable = resources.into_iter().filter(move |resource| {
        !resource.name.contains('/')
            && can(&resource.verbs, "list")
            && can(&resource.verbs, "create")
    });
    usable.map(move |resource| Served {
        group: group.to_owned(),
        plural: resource.name,
        version: version.to_owned(),
        kind: resource.kind,
        namespaced: resource.namespaced,
        is_preferred,
    })
}

/// Returns a page of all objects of a resource, as kube-apiserver wrote it. `continued` is `metadata.continue` of the
/// page before.
///
/// # Errors
/// When the request fails. [`InventoryError::Expired`] means that the list has to begin again.
pub async fn page(
    client: &Client,
    resource: &Served,
    continued: Option<&str>,
) -> Result<String, InventoryError> {
    let what = format!("list {resource}");
    let mut params = ListParams::default().limit(PAGE);
    if let Some(token) = continued {
        params = params.continue_token(token);
    }
    let request = Request::new(resource.path(None)).list(&params);
    let request = request
        .map_err(kube::Error::BuildRequest)
        .map_err(|error| InventoryError::of(&what, &error))?;
    client.request_text(request).await.map_err(|error| {
        if continued.is_some() && is_gone(&error) {
            return InventoryError::Expired { what };
        }
        InventoryError::of(&what, &error)
    })
}

// === impl Served ===

impl Served {
    /// Returns `apiVersion` of the objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the path of the collection, in one namespace or in all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            "/api"
        } else {
            "/apis"
        };
        let version = self.api_version();
        match namespace {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{version}/{}", self.plural),
        }
    }
}

/// Writes the resource as kubectl takes it, such as `pods` or `deployments.v1.apps`.
impl std::fmt::Display for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{}.{group}", self.plural, self.version),
        }
    }
}

// === impl InventoryError ===

impl InventoryError {
    pub(crate) fn of(what: &str, error: &kube::Error) -> Self {
        Self::Failed {
            what: what.to_owned(),
            why: words(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, verbs: &[&str]) -> APIResource {
        APIResource {
            name: name.to_owned(),
            kind: "Pod".to_owned(),
            namespaced: true,
            verbs: verbs.iter().map(ToString::to_string).collect(),
            ..APIResource::default()
        }
    }

    #[test]
    fn keeps_resources_that_can_be_listed_and_created() {
        let all = vec![
            resource("pods", &["create", "list", "get"]),
            resource("pods/status", &["create", "list"]),
            resource("componentstatuses", &["list", "get"]),
            resource("bindings", &["create"]),
        ];
        let kept: Vec<_> = served("", "v1", true, all).collect();
        let names: Vec<_> = kept.iter().map(|served| served.plural.as_str()).collect();
        assert_eq!(names, ["pods"]);
        assert_eq!(kept[0].path(None), "/api/v1/pods");
        assert_eq!(kept[0].path(Some("shop")), "/api/v1/namespaces/shop/pods");
    }

    #[test]
    fn names_a_resource_as_kubectl_does() {
        let served = Served {
            group: "apps".to_owned(),
            plural: "deployments".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespaced: true,
            is_preferred: true,
        };
        assert_eq!(served.to_string(), "deployments.v1.apps");
        assert_eq!(served.path(None), "/apis/apps/v1/deployments");
    }
}
