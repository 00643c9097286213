//! The objects of a cluster as kube-apiserver lists them, for a scan.
//!
//! Lists come page by page and as text, so that the numbers of an object stay as they are.

use std::pin::pin;
use std::time::Duration;

use futures_util::io::AsyncReadExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::core::Request;
use kube::core::params::{GetParams, ListParams};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;

use crate::api::{is_gone, is_not_found, words};

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

/// The identity and the version of an object, without its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The namespace. None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The version of the object.
    pub resource_version: String,
    /// Whether the object is being deleted.
    pub is_deleted: bool,
}

/// A page of the versions of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The objects.
    pub objects: Vec<Version>,
    /// Where the next page begins. None for the last page.
    pub continued: Option<String>,
}

/// The part of a list to request from kube-apiserver, and its maximum size.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// `metadata.continue` of the page before.
    pub continued: Option<&'a str>,
    /// Maximum number of objects.
    pub limit: u32,
    /// Maximum number of bytes.
    pub max_bytes: u64,
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
    /// kube-apiserver has no such object, or no such resource.
    #[error("cannot {what}: it does not exist")]
    Missing {
        /// The request.
        what: String,
    },
    /// The answer is larger than the part may be.
    #[error("cannot {what}: the answer has more than {max_bytes} bytes")]
    TooLarge {
        /// The request.
        what: String,
        /// The maximum.
        max_bytes: u64,
    },
    /// The list is too old to be continued, because kube-apiserver has compacted its history.
    #[error("cannot {what}: the list expired before its last page")]
    Expired {
        /// The request.
        what: String,
        /// Where a list can go on, with objects that are newer than those of the pages before.
        continued: Option<String>,
    },
}

/// Number of objects in a page.
const PAGE: u32 = 500;
/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(60);
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
            let continued = continued_after(&error);
            return InventoryError::Expired { what, continued };
        }
        InventoryError::of(&what, &error)
    })
}

/// Returns a page of the versions of all objects of a resource. kube-apiserver sends metadata alone. `selector` selects
/// labels; an empty one selects all.
///
/// # Errors
/// When the request fails, the list expired, or the page is too large.
pub async fn versions(
    client: &Client,
    resource: &Served,
    selector: &str,
    part: Part<'_>,
) -> Result<Versions, InventoryError> {
    let what = format!("list {resource}");
    let mut params = ListParams::default().limit(part.limit);
    if !selector.is_empty() {
        params = params.labels(selector);
    }
    if let Some(token) = part.continued {
        params = params.continue_token(token);
    }
    let request = Request::new(resource.path(None)).list_metadata(&params);
    let request = built(&what, request)?;
    let text = bytes(client, &what, request, part).await?;
    let list: MetadataList = serde_json::from_slice(&text).map_err(|error| {
        let why = format!("kube-apiserver's answer is not a list: {error}");
        let what = what.clone();
        InventoryError::Failed { what, why }
    })?;
    let some = |text: String| (!text.is_empty()).then_some(text);
    let objects = list.items.into_iter().map(|item| Version {
        namespace: some(item.metadata.namespace),
        name: item.metadata.name,
        uid: item.metadata.uid,
        resource_version: item.metadata.resource_version,
        is_deleted: item.metadata.deletion_timestamp.is_some(),
    });
    Ok(Versions {
        objects: objects.collect(),
        continued: some(list.metadata.continued),
    })
}

/// Returns a page of all objects of a resource as kube-apiserver wrote it, like [`page`], within bounds.
///
/// # Errors
/// When the request fails, the list expired, or the page is too large.
pub async fn part(
    client: &Client,
    resource: &Served,
    part: Part<'_>,
) -> Result<Vec<u8>, InventoryError> {
    let what = format!("list {resource}");
    let mut params = ListParams::default().limit(part.limit);
    if let Some(token) = part.continued {
        params = params.continue_token(token);
    }
    let request = Request::new(resource.path(None)).list(&params);
    bytes(client, &what, built(&what, request)?, part).await
}

/// Returns an object as kube-apiserver wrote it. None if it does not exist any more.
///
/// # Errors
/// When the request fails, or the object is larger than `max_bytes`.
pub async fn object(
    client: &Client,
    resource: &Served,
    namespace: Option<&str>,
    name: &str,
    max_bytes: u64,
) -> Result<Option<Vec<u8>>, InventoryError> {
    let what = format!("get {resource} {name}");
    let request = Request::new(resource.path(namespace)).get(name, &GetParams::default());
    let part = Part {
        continued: None,
        limit: 1,
        max_bytes,
    };
    match bytes(client, &what, built(&what, request)?, part).await {
        Ok(text) => Ok(Some(text)),
        Err(InventoryError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn built<T>(
    what: &str,
    request: Result<T, kube::core::request::Error>,
) -> Result<T, InventoryError> {
    request
        .map_err(kube::Error::BuildRequest)
        .map_err(|error| InventoryError::of(what, &error))
}

/// Returns the token that kube-apiserver gives in place of one that expired.
fn continued_after(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let continued = status.metadata.as_ref()?.continue_.clone()?;
    (!continued.is_empty()).then_some(continued)
}

/// Sends a request, and reads at most so many bytes of the answer.
async fn bytes(
    client: &Client,
    what: &str,
    request: http::Request<Vec<u8>>,
    part: Part<'_>,
) -> Result<Vec<u8>, InventoryError> {
    let failed = |why: String| InventoryError::Failed {
        what: what.to_owned(),
        why,
    };
    let read = async {
        let stream = client.request_stream(request).await;
        let stream = stream.map_err(|error| match &error {
            error if part.continued.is_some() && is_gone(error) => InventoryError::Expired {
                what: what.to_owned(),
                continued: continued_after(error),
            },
            error if is_not_found(error) => InventoryError::Missing {
                what: what.to_owned(),
            },
            error => InventoryError::of(what, error),
        })?;
        let mut stream = pin!(stream.take(part.max_bytes.saturating_add(1)));
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes).await;
        read.map_err(|error| failed(words(&error)))?;
        Ok::<_, InventoryError>(bytes)
    };
    let bytes = match timeout(LIMIT, read).await {
        Ok(bytes) => bytes?,
        Err(_) => return Err(failed("kube-apiserver does not answer".to_owned())),
    };
    if bytes.len() as u64 > part.max_bytes {
        return Err(InventoryError::TooLarge {
            what: what.to_owned(),
            max_bytes: part.max_bytes,
        });
    }
    Ok(bytes)
}

/// A list of metadata. Everything else in it is left out while it is read.
#[derive(Deserialize)]
struct MetadataList {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(deserialize_with = "null_is_empty")]
    items: Vec<MetadataItem>,
}

/// Reads `items`, which is null in an empty list of metadata.
fn null_is_empty<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<MetadataItem>, D::Error> {
    Option::deserialize(reader).map(Option::unwrap_or_default)
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    continued: String,
}

#[derive(Deserialize)]
struct MetadataItem {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<String>,
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
    fn list_of_metadata_is_read_without_the_rest() {
        let text = r#"{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9","continue":"next"},
            "items":[{"metadata":{"name":"a","namespace":"shop","uid":"1","resourceVersion":"7",
            "managedFields":[{"manager":"kubectl"}]}},
            {"metadata":{"name":"b","deletionTimestamp":"2026-01-01T00:00:00Z"}}]}"#;
        let list: MetadataList = serde_json::from_str(text).expect("a list");
        assert_eq!(list.metadata.continued, "next");
        assert_eq!(list.items[0].metadata.resource_version, "7");
        assert!(list.items[0].metadata.deletion_timestamp.is_none());
        assert!(list.items[1].metadata.deletion_timestamp.is_some());
        let empty = r#"{"metadata":{"resourceVersion":"9"},"items":null}"#;
        let empty: MetadataList = serde_json::from_str(empty).expect("an empty list");
        assert!(empty.items.is_empty());
        assert!(serde_json::from_str::<MetadataList>(r#"{"metadata":{}}"#).is_err());
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
