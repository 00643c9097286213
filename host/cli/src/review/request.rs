//! Turns a document into the AdmissionReview that kube-apiserver would send for it, and records the assumptions.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tollgate_config::kubernetes::{Kinds, Known};
use tollgate_json::document::{Json, Object};

use super::input::Document;
use super::{RequestedOperation, ReviewOptions};

/// A review with the assumptions behind it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// The AdmissionReview.
    pub(crate) review: Json,
    /// The assumptions about this document alone.
    pub(crate) assumed: Vec<String>,
    /// Whether the review was made from a manifest. If so, the assumptions about all manifests apply to it too.
    pub(crate) from_manifest: bool,
}

/// The identity of an object: group, kind, namespace and name.
type Identity = (String, String, String, String);

/// Makes reviews from documents.
pub(crate) struct Maker<'a> {
    review_options: &'a ReviewOptions,
    kinds: Kinds,
    old: HashMap<Identity, Json>,
}

const USER: &str = "tollgate-review";
/// Group of every user who is logged in.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const NAMESPACE: &str = "default";

// === impl Maker ===

impl<'a> Maker<'a> {
    pub(crate) fn new(
        review_options: &'a ReviewOptions,
        documents: &[Document],
        old: Vec<Document>,
    ) -> Self {
        let mut kinds = Kinds::default();
        for document in documents {
            kinds.learn(&document.content);
        }
        let namespace = review_options.namespace.as_deref().unwrap_or(NAMESPACE);
        let old = old
            .into_iter()
            .filter_map(|document| {
                let identity = identity(&document.content, &kinds, namespace)?;
                Some((identity, document.content))
            })
            .collect();
        Self {
            review_options,
            kinds,
            old,
        }
    }

    /// Records a kind that kube-apiserver serves.
    pub(crate) fn define(&mut self, group: &str, kind: &str, plural: &str, namespaced: bool) {
        self.kinds.define(group, kind, plural, namespaced);
    }

    /// Lists the assumptions about every manifest.
    pub(crate) fn assumptions(&self) -> Vec<String> {
        let operation = match (
            self.review_options.operation,
            self.review_options.old.is_some(),
        ) {
            (Some(operation), _) => operation.as_str(),
            (None, true) => "UPDATE of the objects in --old, and CREATE of the others",
            (None, false) => "CREATE",
        };
        let groups = self.groups().join(", ");
        vec![
            format!("operation {operation}"),
            format!("user {} in {groups}", self.user()),
            format!("namespace {} if a document names none", self.namespace()),
            "a uid derived from file, place and name".to_owned(),
            "the object as written, without the defaults of kube-apiserver".to_owned(),
        ]
    }

    /// Returns the review for a document. An AdmissionReview is used as it is.
    pub(crate) fn prepare(&self, document: &Document) -> anyhow::Result<Prepared> {
        let object = &document.content;
        let Some(members) = object.as_object() else {
            bail!(
                "got a JSON {}, expected a Kubernetes object",
                object.type_name()
            );
        };
        let text = |member: &str| members.get(member).and_then(Json::as_text);
        let kind = text("kind").filter(|kind| !kind.is_empty());
        let kind = kind.ok_or_else(|| anyhow!("missing `kind`, expected one such as Pod"))?;
        if kind == "AdmissionReview" {
            return Ok(Prepared {
                review: object.clone(),
                assumed: Vec::new(),
                from_manifest: false,
            });
        }
        let api_version = text("apiVersion").filter(|version| !version.is_empty());
        let api_version = api_version
            .ok_or_else(|| anyhow!("missing `apiVersion`, expected one such as v1 or apps/v1"))?;
        self.of_manifest(document, kind, api_version)
    }

    fn of_manifest(
        &self,
        document: &Document,
        kind: &str,
        api_version: &str,
    ) -> anyhow::Result<Prepared> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = self.kinds.resource(group, kind);
        let mut assumed = Vec::new();
        match resource.known {
            Known::BuiltIn => {}
            Known::Defined => assumed.push(format!(
                "resource {} from the CustomResourceDefinition among the documents",
                resource.plural
            )),
            Known::Guessed => assumed.push(format!(
                "resource {} and scope Namespaced, because Kubernetes has no such kind",
                resource.plural
            )),
        }
        let metadata = document.content.member("metadata");
        let field = |name: &str| {
            metadata?
                .member(name)?
                .as_text()
                .filter(|text| !text.is_empty())
        };
        let name = field("name").unwrap_or_default().to_owned();
        if name.is_empty() && field("generateName").is_none() {
            assumed.push("no name: kube-apiserver would reject the object".to_owned());
        }
        let is_namespace = group.is_empty() && kind == "Namespace";
        let namespace = match (resource.namespaced, is_namespace) {
            (true, _) => Some(field("namespace").unwrap_or(self.namespace()).to_owned()),
            (false, true) => Some(name.clone()),
            (false, false) => None,
        };
        let object = match &namespace {
            Some(namespace) if resource.namespaced => in_namespace(&document.content, namespace),
            _ => document.content.clone(),
        };
        let old = identity(&object, &self.kinds, self.namespace())
            .and_then(|identity| self.old.get(&identity));
        let old = old.map(|old| match &namespace {
            Some(namespace) if resource.namespaced => in_namespace(old, namespace),
            _ => old.clone(),
        });
        let operation = self.review_options.operation.unwrap_or(match old {
            Some(_) => RequestedOperation::Update,
            None => RequestedOperation::Create,
        });
        let (object, old) = match operation {
            RequestedOperation::Create | RequestedOperation::Connect => (Some(object), None),
            RequestedOperation::Delete => (None, Some(old.unwrap_or(object))),
            RequestedOperation::Update => {
                if old.is_none() {
                    assumed.push(
                        "the old object is the same as the new one, because --old does not contain it".to_owned(),
                    );
                }
                let old = old.unwrap_or_else(|| object.clone());
                (Some(object), Some(old))
            }
        };
        let of_kind = json!({ "group": group, "version": version, "kind": kind });
        let of_resource =
            json!({ "group": group, "version": version, "resource": resource.plural });
        let options = operation.options().map(|kind| {
            without_nulls(json!({
                "kind": kind, "apiVersion": "meta.k8s.io/v1",
                "dryRun": self.review_options.dry_run.then_some(["All"]),
            }))
        });
        // Members are in kube-apiserver's order. The members that select the plugins come before the object.
        let members = [
            ("uid", Some(Json::text(&uid(document)))),
            ("kind", Some(Json::from(of_kind.clone()))),
            ("resource", Some(Json::from(of_resource.clone()))),
            ("requestKind", Some(Json::from(of_kind))),
            ("requestResource", Some(Json::from(of_resource))),
            ("name", (!name.is_empty()).then(|| Json::text(&name))),
            ("namespace", namespace.as_deref().map(Json::text)),
            ("operation", Some(Json::text(operation.as_str()))),
            (
                "userInfo",
                Some(Json::from(
                    json!({ "username": self.user(), "groups": self.groups() }),
                )),
            ),
            ("object", Some(object.unwrap_or(Json::Null))),
            ("oldObject", Some(old.unwrap_or(Json::Null))),
            ("dryRun", Some(Json::Bool(self.review_options.dry_run))),
            ("options", options),
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
        Ok(Prepared {
            review: Json::Object(Arc::new(review.collect())),
            assumed,
            from_manifest: true,
        })
    }

    fn user(&self) -> &str {
        self.review_options.user.as_deref().unwrap_or(USER)
    }

    fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = self
            .review_options
            .group
            .iter()
            .map(String::as_str)
            .collect();
        if !groups.contains(&AUTHENTICATED) {
            groups.push(AUTHENTICATED);
        }
        groups
    }

    fn namespace(&self) -> &str {
        self.review_options
            .namespace
            .as_deref()
            .unwrap_or(NAMESPACE)
    }
}

/// Returns the review with another object, as kube-apiserver sends it to `/validate` after a mutation.
pub(crate) fn with_object(review: &Json, object: Json) -> Json {
    with_member(review, "object", object)
}

/// Returns the review with another value for one member of its request.
pub(crate) fn with_member(review: &Json, name: &str, value: Json) -> Json {
    let Json::Object(members) = review else {
        return review.clone();
    };
    let Some(Json::Object(request)) = members.get("request") else {
        return review.clone();
    };
    let mut request: Object = (***request).clone();
    request.insert(name.into(), value);
    let mut members: Object = (***members).clone();
    members.insert("request".into(), Json::from(request));
    Json::from(members)
}

/// Returns the request without its two objects.
pub(crate) fn without_objects(review: &Json) -> Json {
    let Some(request) = review.member("request").and_then(Json::as_object) else {
        return Json::Null;
    };
    let rest = request
        .iter()
        .filter(|(name, _)| !matches!(&***name, "object" | "oldObject"))
        .map(|(name, value)| (name.clone(), value.clone()));
    Json::Object(Arc::new(rest.collect()))
}

fn identity(object: &Json, kinds: &Kinds, namespace: &str) -> Option<Identity> {
    let text = |member: &str| object.member(member)?.as_text();
    let (kind, api_version) = (text("kind")?, text("apiVersion")?);
    let (group, _) = api_version.split_once('/').unwrap_or(("", api_version));
    let metadata = object.member("metadata")?;
    let field = |member: &str| metadata.member(member)?.as_text();
    let namespace = if kinds.resource(group, kind).namespaced {
        field("namespace")
            .filter(|name| !name.is_empty())
            .unwrap_or(namespace)
    } else {
        ""
    };
    Some((
        group.to_owned(),
        kind.to_owned(),
        namespace.to_owned(),
        field("name")?.to_owned(),
    ))
}

/// Adds the request's namespace to an object without one, as kube-apiserver does.
pub(crate) fn in_namespace(object: &Json, namespace: &str) -> Json {
    let Json::Object(members) = object else {
        return object.clone();
    };
    let Some(Json::Object(metadata)) = members.get("metadata") else {
        return object.clone();
    };
    let given = metadata.get("namespace").and_then(Json::as_text);
    if given.is_some_and(|name| !name.is_empty()) {
        return object.clone();
    }
    let mut metadata: Object = (***metadata).clone();
    metadata.insert("namespace".into(), Json::text(namespace));
    let mut members: Object = (***members).clone();
    members.insert("metadata".into(), Json::from(metadata));
    Json::from(members)
}

fn text_at<'j>(json: &'j Json, names: &[&str]) -> Option<&'j str> {
    let found = names.iter().try_fold(json, |json, name| json.member(name));
    found?.as_text()
}

fn without_nulls(mut value: serde_json::Value) -> Json {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    Json::from(value)
}

/// Returns a uid that is the same for the same object at the same place, so that two runs can be compared.
///
/// The object's content is not part of it: the uid is shown, and the content of a Secret could be guessed from its
/// hash.
fn uid(document: &Document) -> String {
    let content = &document.content;
    let mut hash = Sha256::new();
    hash.update(document.number.to_le_bytes());
    for part in [
        Some(document.file.as_str()),
        text_at(content, &["apiVersion"]),
        text_at(content, &["kind"]),
        text_at(content, &["metadata", "namespace"]),
        text_at(content, &["metadata", "name"]),
    ] {
        let part = part.unwrap_or_default();
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    let hash = hash.finalize();
    let mut digits: String = hash
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // RFC 9562 leaves version 8 to applications.
    digits.replace_range(12..13, "8");
    digits.replace_range(16..17, "8");
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}
