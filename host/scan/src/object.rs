//! An object that exists, as the review that the pipeline gets for it.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tollgate_cluster::Served;
use tollgate_json::document::Json;

use super::finding::Place;
use super::key::Key;

/// An object to be judged.
#[derive(Clone, Debug)]
pub struct Item {
    /// The AdmissionReview of the CREATE.
    pub review: Json,
    /// The identity of the object.
    pub place: Place,
    /// `apiVersion` of the object.
    pub api_version: String,
    /// The uid, if the object has one.
    pub uid: Option<String>,
    /// The key among the results of earlier scans.
    pub id: String,
    /// The version among the results of earlier scans. None if results for the object must not be used again.
    pub version: Option<Key>,
}

/// The origin of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// kube-apiserver: uid and resourceVersion identify the content.
    Cluster,
    /// A file, which people may have changed.
    Dump,
}

/// An object: one to be judged, or one that is being deleted.
#[derive(Debug)]
pub enum Read {
    /// An object to be judged.
    Item(Box<Item>),
    /// An object that is being deleted.
    Deleted,
}

/// The user whose request a scan stands for.
const USER: &str = "tollgate-scan";
/// The group of every user who is logged in.
const GROUP: &str = "system:authenticated";
/// The namespace of a namespaced object that names none.
const NAMESPACE: &str = "default";

/// Makes the review of an object of a resource.
///
/// # Errors
/// When the value is not a Kubernetes object.
pub fn read(resource: &Served, content: &Json, origin: Origin) -> anyhow::Result<Read> {
    let metadata = content.member("metadata");
    let metadata = metadata.context("missing `metadata`, expected a Kubernetes object")?;
    let text = |name: &str| {
        let text = metadata.member(name)?.as_text()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    if text("deletionTimestamp").is_some() {
        return Ok(Read::Deleted);
    }
    let name = text("name");
    ensure!(
        name.is_some() || text("generateName").is_some() || origin == Origin::Cluster,
        "missing `metadata.name`, expected an object that exists"
    );
    let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
    let namespace = resource
        .namespaced
        .then(|| text("namespace").unwrap_or_else(|| NAMESPACE.to_owned()));
    let place = Place {
        namespace,
        kind: resource.kind.clone(),
        group: resource.group.clone(),
        name: name
            .clone()
            .or_else(|| text("generateName").map(|name| format!("{name}…")))
            .unwrap_or_default(),
    };
    let api_version = resource.api_version();
    let id = id(resource, place.namespace.as_deref(), &place.name);
    // kube-apiserver says that a Namespace is in itself.
    let requested = match is_namespace {
        true => Some(place.name.clone()),
        false => place.namespace.clone(),
    };
    Ok(Read::Item(Box::new(Item {
        review: review(resource, &id, name, requested, content),
        version: match origin {
            // There is no hash of a Secret, because its content could be guessed from the hash.
            Origin::Dump if !is_secret(resource) => Some(Key::of(&[&content.to_text()])),
            Origin::Dump | Origin::Cluster => {
                version(text("uid").as_deref(), text("resourceVersion").as_deref())
            }
        },
        uid: text("uid"),
        place,
        api_version,
        id,
    })))
}

/// Returns what identifies the content of an object in a cluster.
#[must_use]
pub fn version(uid: Option<&str>, resource_version: Option<&str>) -> Option<Key> {
    Some(Key::of(&[uid?, resource_version?]))
}

/// Returns the key of an object among the results of earlier scans.
#[must_use]
pub fn id(resource: &Served, namespace: Option<&str>, name: &str) -> String {
    let api_version = resource.api_version();
    let kind = resource.kind.as_str();
    [
        api_version.as_str(),
        kind,
        namespace.unwrap_or_default(),
        name,
    ]
    .join("/")
}

fn is_secret(resource: &Served) -> bool {
    resource.group.is_empty() && resource.kind == "Secret"
}

/// Returns the AdmissionReview, with its members in kube-apiserver's order.
fn review(
    resource: &Served,
    id: &str,
    name: Option<String>,
    namespace: Option<String>,
    content: &Json,
) -> Json {
    let Served {
        group,
        version,
        kind,
        plural,
        ..
    } = resource;
    let of_kind = json!({ "group": group, "version": version, "kind": kind });
    let of_resource = json!({ "group": group, "version": version, "resource": plural });
    let user = json!({ "username": USER, "groups": [GROUP] });
    let options = json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" });
    let members = [
        ("uid", Some(Json::text(&uid(id)))),
        ("kind", Some(Json::from(of_kind.clone()))),
        ("resource", Some(Json::from(of_resource.clone()))),
        ("requestKind", Some(Json::from(of_kind))),
        ("requestResource", Some(Json::from(of_resource))),
        ("name", name.as_deref().map(Json::text)),
        ("namespace", namespace.as_deref().map(Json::text)),
        ("operation", Some(Json::text("CREATE"))),
        ("userInfo", Some(Json::from(user))),
        ("object", Some(content.clone())),
        ("oldObject", Some(Json::Null)),
        ("dryRun", Some(Json::Bool(false))),
        ("options", Some(Json::from(options))),
    ];
    let members = members
        .into_iter()
        .filter_map(|(name, value)| Some((Arc::from(name), value?)));
    let review = [
        ("kind", Json::text("AdmissionReview")),
        ("apiVersion", Json::text("admission.k8s.io/v1")),
        ("request", Json::Object(Arc::new(members.collect()))),
    ];
    let review = review
        .into_iter()
        .map(|(name, value)| (Arc::from(name), value));
    Json::Object(Arc::new(review.collect()))
}

/// Returns the uid of the review of an object: the same in every scan. RFC 9562 leaves version 8 to applications.
fn uid(id: &str) -> String {
    let mut digits = Key::of(&[id]).to_string();
    digits.replace_range(12..13, "8");
    digits.replace_range(16..17, "8");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| digits[part].to_owned()).join("-")
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn served(group: &str, kind: &str, plural: &str, namespaced: bool) -> Served {
        Served {
            group: group.to_owned(),
            plural: plural.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespaced,
            is_preferred: true,
        }
    }

    fn item(resource: &Served, object: Value, origin: Origin) -> Item {
        match read(resource, &Json::from(object), origin).unwrap() {
            Read::Item(item) => *item,
            Read::Deleted => panic!("it is not being deleted"),
        }
    }

    fn pods() -> Served {
        served("", "Pod", "pods", true)
    }

    fn object(kind: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": "web", "uid": "1", "resourceVersion": "7"},
        })
    }

    #[test]
    fn object_becomes_a_create_in_its_namespace() {
        let pod = item(&pods(), object("Pod"), Origin::Cluster);
        assert_eq!(pod.place.namespace.as_deref(), Some("default"));
        assert_eq!(pod.id, "v1/Pod/default/web");
        let request = pod.review.member("request").unwrap();
        let text = |name: &str| request.member(name).and_then(Json::as_text);
        assert_eq!(text("operation"), Some("CREATE"));
        assert_eq!(text("uid").map(str::len), Some(36));
        let namespaces = served("", "Namespace", "namespaces", false);
        let namespace = item(&namespaces, object("Namespace"), Origin::Cluster);
        assert_eq!(namespace.place.namespace, None);
        let request = namespace.review.member("request").unwrap();
        let named = request.member("namespace").and_then(Json::as_text);
        assert_eq!(named, Some("web"));
        let deployments = served("apps", "Deployment", "deployments", true);
        let deployment = item(&deployments, object("Deployment"), Origin::Dump);
        assert_eq!(deployment.place.full_kind(), "Deployment.apps");
        assert_eq!(deployment.api_version, "apps/v1");
    }

    #[test]
    fn version_is_that_of_the_cluster_or_a_hash_except_for_secrets() {
        let secrets = served("", "Secret", "secrets", true);
        let in_cluster = Some(Key::of(&["1", "7"]));
        let pod = |origin| item(&pods(), object("Pod"), origin).version;
        assert_eq!(pod(Origin::Cluster), in_cluster);
        assert!(pod(Origin::Dump).is_some_and(|key| Some(key) != in_cluster));
        let secret = item(&secrets, object("Secret"), Origin::Dump);
        assert_eq!(secret.version, in_cluster);
        let mut changed = object("Pod");
        changed["spec"] = json!({});
        assert_ne!(
            item(&pods(), changed, Origin::Dump).version,
            pod(Origin::Dump)
        );
        let bare = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        assert_eq!(item(&secrets, bare, Origin::Dump).version, None);
    }

    #[test]
    fn leaves_out_objects_that_are_being_deleted() {
        let mut gone = object("Pod");
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let read = |object: Value| read(&pods(), &Json::from(object), Origin::Dump);
        assert!(matches!(read(gone), Ok(Read::Deleted)));
        assert!(read(json!({"kind": "Pod"})).is_err());
        assert!(read(json!({"kind": "Pod", "metadata": {}})).is_err());
    }
}
