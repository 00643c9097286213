//! Puts values of a case into its review: what a manifest cannot say, and what replaces a part of an AdmissionReview.

use serde_json::json;
use tollgate_config::read::Node;
use tollgate_json::document::{Json, Object};

use super::suite::Parts;
use crate::review::RequestedOperation;
use crate::review::request::{AUTHENTICATED, in_namespace, with_member};

/// The resource of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// Group and version. None if they are those of the object.
    of: Option<(String, String)>,
    /// Plural name, such as `pods`.
    name: String,
}

const RESOURCE_EXPECTED: &str =
    "a resource such as pods or apps/v1/deployments, and its subresource under `subResource`";

// === impl Resource ===

impl Resource {
    pub(super) fn read(node: &Node<'_>) -> Option<Self> {
        let text = node.quotable_text(RESOURCE_EXPECTED)?;
        let resource = Self::parse(text);
        if resource.is_none() {
            node.reject(RESOURCE_EXPECTED);
        }
        resource
    }

    /// Parses `NAME`, `VERSION/NAME` or `GROUP/VERSION/NAME`.
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_version = |text: &str| {
            let mut characters = text.chars();
            characters.next() == Some('v') && characters.next().is_some_and(|c| c.is_ascii_digit())
        };
        let (of, name) = match parts[..] {
            [name] => (None, name),
            [version, name] if is_version(version) => (Some(("", version)), name),
            [group, version, name] if is_version(version) => (Some((group, version)), name),
            _ => return None,
        };
        if name.is_empty() {
            return None;
        }
        Some(Self {
            of: of.map(|(group, version)| (group.to_owned(), version.to_owned())),
            name: name.to_owned(),
        })
    }
}

/// Sets the resource and the subresource of a review.
pub(super) fn with_resource(review: &Json, parts: &Parts) -> Json {
    let mut review = review.clone();
    if let Some(resource) = &parts.resource {
        let given = |member: &str| {
            let value = review.member("request")?.member("resource")?;
            value.member(member)?.as_text().map(ToOwned::to_owned)
        };
        let (group, version) = resource.of.clone().unwrap_or_else(|| {
            (
                given("group").unwrap_or_default(),
                given("version").unwrap_or_default(),
            )
        });
        let value = Json::from(
            json!({ "group": group, "version": version, "resource": resource.name.as_str() }),
        );
        review = with_member(&review, "resource", value.clone());
        review = with_member(&review, "requestResource", value);
    }
    if let Some(name) = &parts.sub_resource {
        review = with_member(&review, "subResource", Json::text(name));
        review = with_member(&review, "requestSubResource", Json::text(name));
    }
    review
}

/// Replaces the parts of an AdmissionReview that a case gives. `old` is the object before the request.
pub(super) fn override_review(review: &Json, parts: &Parts, old: Option<Json>) -> Json {
    let mut review = with_resource(review, parts);
    if let Some(old) = &old {
        review = with_member(&review, "oldObject", old.clone());
    }
    let implied = old.is_some().then_some(RequestedOperation::Update);
    if let Some(operation) = parts.operation.or(implied) {
        review = with_operation(review, operation);
    }
    if parts.user.is_some() || parts.groups.is_some() {
        review = with_user(&review, parts);
    }
    if let Some(namespace) = &parts.namespace {
        review = in_other_namespace(review, namespace);
    }
    if let Some(dry_run) = parts.dry_run {
        review = with_member(&review, "dryRun", Json::Bool(dry_run));
        let options = request(&review, "options");
        if let Some(Json::Object(_)) = &options {
            let all = Json::from(json!(["All"]));
            let options = with(options, "dryRun", dry_run.then_some(all));
            review = with_member(&review, "options", options);
        }
    }
    review
}

/// Sets the operation, and moves the objects to where kube-apiserver sends them for it.
fn with_operation(review: Json, operation: RequestedOperation) -> Json {
    use RequestedOperation::{Connect, Create, Delete, Update};
    let (object, old) = (request(&review, "object"), request(&review, "oldObject"));
    let (object, old) = match operation {
        Create | Connect => (object.or(old), None),
        Update => {
            let object = object.or_else(|| old.clone());
            (object.clone(), old.or(object))
        }
        Delete => (None, old.or(object)),
    };
    let options = operation.options().map(|kind| {
        let options = request(&review, "options").or_else(|| Some(Json::from(json!({}))));
        let options = with(options, "kind", Some(Json::text(kind)));
        with(
            Some(options),
            "apiVersion",
            Some(Json::text("meta.k8s.io/v1")),
        )
    });
    let members = [
        ("operation", Some(Json::text(operation.as_str()))),
        ("object", object),
        ("oldObject", old),
        ("options", options),
    ];
    let set = |review: Json, (name, value): (&str, Option<Json>)| {
        with_member(&review, name, value.unwrap_or(Json::Null))
    };
    members.into_iter().fold(review, set)
}

fn with_user(review: &Json, parts: &Parts) -> Json {
    let mut user = request(review, "userInfo");
    if let Some(name) = &parts.user {
        user = Some(with(user, "username", Some(Json::text(name))));
    }
    if let Some(groups) = &parts.groups {
        let mut groups = groups.clone();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        user = Some(with(user, "groups", Some(Json::from(json!(groups)))));
    }
    with_member(review, "userInfo", user.unwrap_or(Json::Null))
}

/// Sets the namespace of the request and of its objects.
fn in_other_namespace(mut review: Json, namespace: &str) -> Json {
    review = with_member(&review, "namespace", Json::text(namespace));
    for name in ["object", "oldObject"] {
        let Some(object) = request(&review, name) else {
            continue;
        };
        let metadata = object.member("metadata").cloned();
        let object = match metadata {
            Some(metadata @ Json::Object(_)) => {
                let metadata = with(Some(metadata), "namespace", None);
                in_namespace(&with(Some(object), "metadata", Some(metadata)), namespace)
            }
            _ => object,
        };
        review = with_member(&review, name, object);
    }
    review
}

/// Returns a member of the request. Null counts as none.
fn request(review: &Json, name: &str) -> Option<Json> {
    let value = review.member("request")?.member(name)?;
    (!value.is_null()).then(|| value.clone())
}

/// Returns the object with another value for one member, or without it.
fn with(object: Option<Json>, name: &str, value: Option<Json>) -> Json {
    let mut members: Object = match object {
        Some(Json::Object(members)) => (**members).clone(),
        _ => Object::default(),
    };
    match value {
        Some(value) => members.insert(name.into(), value),
        None => members.shift_remove(name),
    };
    Json::from(members)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn review() -> Json {
        Json::from(json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "1", "operation": "CREATE", "namespace": "shop",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "userInfo": {"username": "jane", "uid": "7", "groups": ["dev"]},
                "object": {"kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}},
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl"},
            },
        }))
    }

    fn overridden(parts: &Parts, old: Option<Value>) -> Value {
        let review = override_review(&review(), parts, old.map(Json::from));
        serde_json::from_str::<Value>(&review.to_text()).unwrap()["request"].take()
    }

    #[test]
    fn replaces_only_what_the_case_gives() {
        let parts = Parts {
            user: Some("root".to_owned()),
            namespace: Some("kube-system".to_owned()),
            dry_run: Some(true),
            ..Parts::default()
        };
        let request = overridden(&parts, None);
        assert_eq!(
            request["userInfo"],
            json!({"username": "root", "uid": "7", "groups": ["dev"]})
        );
        assert_eq!(request["namespace"], "kube-system");
        assert_eq!(request["object"]["metadata"]["namespace"], "kube-system");
        assert_eq!(request["operation"], "CREATE");
        assert_eq!(request["dryRun"], true);
        assert_eq!(request["options"]["dryRun"], json!(["All"]));
        assert_eq!(request["options"]["fieldManager"], "kubectl");
        let same = overridden(&Parts::default(), None);
        assert_eq!(Json::from(same), *review().member("request").unwrap());
    }

    #[test]
    fn moves_objects_to_where_the_operation_has_them() {
        let of = |operation| Parts {
            operation: Some(operation),
            ..Parts::default()
        };
        let deleted = overridden(&of(RequestedOperation::Delete), None);
        assert_eq!(deleted["object"], Value::Null);
        assert_eq!(deleted["oldObject"]["metadata"]["name"], "web");
        assert_eq!(deleted["options"]["kind"], "DeleteOptions");
        let updated = overridden(&of(RequestedOperation::Update), None);
        assert_eq!(updated["object"], updated["oldObject"]);
        let old = json!({"kind": "Pod", "metadata": {"name": "old"}});
        let updated = overridden(&Parts::default(), Some(old));
        assert_eq!(updated["operation"], "UPDATE");
        assert_eq!(updated["oldObject"]["metadata"]["name"], "old");
        let connected = overridden(&of(RequestedOperation::Connect), None);
        assert_eq!(connected["options"], Value::Null);
    }

    #[test]
    fn groups_include_authenticated_users() {
        let parts = Parts {
            groups: Some(vec!["ops".to_owned()]),
            ..Parts::default()
        };
        let user = overridden(&parts, None)["userInfo"].take();
        assert_eq!(user["groups"], json!(["ops", "system:authenticated"]));
        assert_eq!(user["username"], "jane");
    }

    #[test]
    fn sets_resource_and_subresource() {
        let parts = Parts {
            resource: Resource::parse("pods"),
            sub_resource: Some("exec".to_owned()),
            ..Parts::default()
        };
        let request = overridden(&parts, None);
        let pods = json!({"group": "", "version": "v1", "resource": "pods"});
        assert_eq!(request["resource"], pods);
        assert_eq!(request["requestResource"], pods);
        assert_eq!(request["subResource"], "exec");
        assert_eq!(request["requestSubResource"], "exec");
    }

    #[test]
    fn reads_resources_with_and_without_group() {
        let resource = |text| Resource::parse(text).unwrap();
        assert_eq!(resource("mice").of, None);
        let of = |group: &str, version: &str| Some((group.to_owned(), version.to_owned()));
        assert_eq!(resource("v1/pods").of, of("", "v1"));
        assert_eq!(resource("apps/v1/deployments").of, of("apps", "v1"));
        for wrong in ["", "pods/exec", "apps/deployments/v1", "v1/", "a/v1/b/c"] {
            assert_eq!(Resource::parse(wrong), None, "{wrong}");
        }
    }
}
