//! An object that exists, as the review that the pipeline gets for it.

use anyhow::ensure;
use tollgate_json::document::Json;

use super::finding::Place;
use super::judge::hash;
use crate::review::input::Document;
use crate::review::request::Maker;

/// An object to be judged.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The AdmissionReview of the CREATE.
    pub(super) review: Json,
    pub(super) place: Place,
    pub(super) api_version: String,
    pub(super) uid: Option<String>,
    /// The key in the state file.
    pub(super) id: String,
    /// The version for the state file. None if results for the object must not be used again.
    pub(super) version: Option<String>,
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// kube-apiserver: uid and resourceVersion identify the content.
    Cluster,
    /// A file, which people may have changed.
    Dump,
}

/// A document: an object to be judged, or one that is being deleted.
pub(super) enum Read {
    Item(Box<Item>),
    Deleted,
}

/// Makes the review of an object.
///
/// # Errors
/// When the document is not a Kubernetes object that exists.
pub(super) fn read(maker: &Maker<'_>, content: Json, origin: Origin) -> anyhow::Result<Read> {
    let is_review = content.member("kind").and_then(Json::as_text) == Some("AdmissionReview");
    ensure!(
        !is_review,
        "an AdmissionReview is a request and no object: use `tollgate review`"
    );
    // Neither the file nor the position is part of the review, so that its uid stays the same.
    let document = Document {
        file: String::new(),
        number: 0,
        content,
    };
    let prepared = maker.prepare(&document)?;
    let content = &document.content;
    let metadata = |name: &str| {
        let text = content.member("metadata")?.member(name)?.as_text()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    if metadata("deletionTimestamp").is_some() {
        return Ok(Read::Deleted);
    }
    let request = prepared.review.member("request");
    let part = |pointer: &str| {
        let found = request.and_then(|request| request.at(pointer).ok().flatten()?.as_text());
        found.unwrap_or_default().to_owned()
    };
    let (group, kind, version) = (
        part("/kind/group"),
        part("/kind/kind"),
        part("/kind/version"),
    );
    let is_namespace = group.is_empty() && part("/resource/resource") == "namespaces";
    let namespace = part("/namespace");
    let name = metadata("name")
        .or_else(|| metadata("generateName").map(|name| format!("{name}…")))
        .unwrap_or_default();
    let place = Place {
        // kube-apiserver says that a Namespace is in itself.
        namespace: (!namespace.is_empty() && !is_namespace).then_some(namespace),
        kind,
        group,
        name,
    };
    let api_version = match place.group.as_str() {
        "" => version,
        group => format!("{group}/{version}"),
    };
    let namespace = place.namespace.as_deref().unwrap_or_default();
    let id = [&*api_version, &*place.kind, namespace, &*place.name].join("/");
    Ok(Read::Item(Box::new(Item {
        version: self::version(content, &place, origin),
        uid: metadata("uid"),
        review: prepared.review,
        place,
        api_version,
        id,
    })))
}

/// Returns what identifies the content of an object. There is no hash of a Secret, because its content could be guessed
/// from the hash.
fn version(content: &Json, place: &Place, origin: Origin) -> Option<String> {
    let is_secret = place.group.is_empty() && place.kind == "Secret";
    if origin == Origin::Dump && !is_secret {
        return Some(hash(&[&content.to_text()]));
    }
    let metadata = content.member("metadata")?;
    let text = |name: &str| metadata.member(name)?.as_text();
    Some(format!("{}/{}", text("uid")?, text("resourceVersion")?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::review::ReviewOptions;

    fn item(object: Value, origin: Origin) -> Item {
        let options = ReviewOptions::default();
        let maker = Maker::new(&options, &[], Vec::new());
        match read(&maker, Json::from(object), origin).unwrap() {
            Read::Item(item) => *item,
            Read::Deleted => panic!("it is not being deleted"),
        }
    }

    fn object(kind: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": "web", "uid": "1", "resourceVersion": "7"},
        })
    }

    #[test]
    fn object_becomes_a_create_in_its_namespace() {
        let pod = item(object("Pod"), Origin::Cluster);
        assert_eq!(pod.place.namespace.as_deref(), Some("default"));
        assert_eq!(pod.id, "v1/Pod/default/web");
        let request = pod.review.member("request").unwrap();
        let operation = request.member("operation").and_then(Json::as_text);
        assert_eq!(operation, Some("CREATE"));
        let namespace = item(object("Namespace"), Origin::Cluster);
        assert_eq!(namespace.place.namespace, None);
        let deployment =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}});
        assert_eq!(
            item(deployment, Origin::Dump).place.full_kind(),
            "Deployment.apps"
        );
    }

    #[test]
    fn version_is_that_of_the_cluster_or_a_hash_except_for_secrets() {
        let version = |kind: &str, origin| item(object(kind), origin).version;
        assert_eq!(version("Pod", Origin::Cluster).as_deref(), Some("1/7"));
        assert_eq!(
            version("Pod", Origin::Dump).map(|hash| hash.len()),
            Some(64)
        );
        assert_eq!(version("Secret", Origin::Dump).as_deref(), Some("1/7"));
        let mut changed = object("Pod");
        changed["spec"] = json!({});
        let changed = item(changed, Origin::Dump).version;
        assert_ne!(changed, version("Pod", Origin::Dump));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        assert_eq!(item(secret, Origin::Dump).version, None);
    }

    #[test]
    fn leaves_out_objects_that_are_being_deleted_and_refuses_reviews() {
        let options = ReviewOptions::default();
        let maker = Maker::new(&options, &[], Vec::new());
        let mut gone = object("Pod");
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let read = |object: Value| read(&maker, Json::from(object), Origin::Dump);
        assert!(matches!(read(gone), Ok(Read::Deleted)));
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        assert!(read(review).is_err());
        assert!(read(json!({"kind": "Pod"})).is_err());
    }
}
