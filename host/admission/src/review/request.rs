//! The decoded AdmissionRequest, for matching and for plugins.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tollgate_json::document::{Account, Json, PointerError, Shown};

use super::template::Template;
use crate::namespaces::LookedUp;
use crate::trace::Observed;

/// The operation that the user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Create an object.
    Create,
    /// Change an object.
    Update,
    /// Delete an object or a collection of objects.
    Delete,
    /// Open a connection to a subresource, such as `pods/exec`.
    Connect,
}

/// A kind with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionKind {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The API version, such as `v1`.
    pub version: String,
    /// The kind, such as `Pod`.
    pub kind: String,
}

/// A resource with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionResource {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The API version, such as `v1`.
    pub version: String,
    /// The resource in the plural, such as `pods`.
    pub resource: String,
}

/// The request as kube-apiserver describes it.
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    /// Identifies the call of the webhook, not the user's request.
    pub uid: String,
    /// The requested operation.
    pub operation: Operation,
    /// The kind of `object`, after any conversion.
    pub kind: GroupVersionKind,
    /// The resource, after any conversion.
    pub resource: GroupVersionResource,
    /// The subresource, such as `status`. None for the resource itself.
    pub sub_resource: Option<String>,
    /// The object's name. Empty on CREATE with generateName, and when a collection is deleted.
    pub name: String,
    /// The namespace. None for cluster-scoped resources. For a Namespace object, its own name.
    pub namespace: Option<String>,
    /// Whether this is a dry run, which stores nothing.
    pub dry_run: bool,
    /// The object. None on DELETE.
    pub object: Option<Json>,
    /// The object before the request. None on CREATE and CONNECT.
    pub old_object: Option<Json>,
    /// The options of the operation.
    pub options: Option<Json>,
    /// The whole AdmissionRequest without `object`, `oldObject` and `options`.
    pub document: RequestDocument,
    /// The memory of the request's documents and of the values that the host makes from them.
    pub memory: Account,
    /// The Namespace, once somebody has looked it up.
    pub looked_up: LookedUp,
    /// The observer of the calls of plugins.
    pub observed: Observed,
    /// The workload whose pod template this request would create. None for a request of kube-apiserver.
    pub template: Option<Arc<Template>>,
}

/// An AdmissionRequest as JSON, without its large parts. Hardly any review needs it, so it is made on demand.
#[derive(Clone)]
pub struct RequestDocument {
    /// The AdmissionRequest as it came in.
    whole: Json,
    without_parts: OnceLock<Json>,
    /// The name of the user, which every review needs. None if it is long, because this copy is not accounted for.
    username: Option<Box<str>>,
    members: DocumentMembers,
}

/// Maximum length of a kept user name, in bytes.
const LONGEST_USERNAME_BYTES: usize = 256;

/// The members of a [`RequestDocument`] that are read most.
#[derive(Clone, Default)]
pub(super) struct DocumentMembers {
    pub(super) kind: Option<Json>,
    pub(super) resource: Option<Json>,
    pub(super) sub_resource: Option<Json>,
    pub(super) operation: Option<Json>,
    pub(super) user_info: Option<Json>,
}

// === impl Operation ===

impl Operation {
    /// Returns the operation's name in Kubernetes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Parses the operation's name in Kubernetes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            "CONNECT" => Some(Self::Connect),
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl AdmissionRequest ===

impl AdmissionRequest {
    /// Whether the request is about a core Secret. Its values must reach no log, metric, annotation or text.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "secrets"
            || self.kind.group.is_empty() && self.kind.kind == "Secret"
    }

    /// Returns the user's name. Empty if the user has none.
    #[must_use]
    pub fn username(&self) -> &str {
        match &self.document.username {
            Some(username) => username,
            None => self.user("username").and_then(Json::as_text).unwrap_or(""),
        }
    }

    /// Returns the user's groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let groups = self.user("groups").and_then(Json::as_array);
        groups.unwrap_or_default().iter().filter_map(Json::as_text)
    }

    /// Returns the object's name. When a collection is deleted, it comes from the old object. With generateName, the
    /// object has no name yet.
    #[must_use]
    pub fn object_name(&self) -> Option<&str> {
        if !self.name.is_empty() {
            return Some(&self.name);
        }
        let object = self.object.as_ref().or(self.old_object.as_ref())?;
        object.member("metadata")?.member("name")?.as_text()
    }

    fn user(&self, member: &str) -> Option<&Json> {
        self.document.user_info()?.member(member)
    }
}

/// Shows sizes, as the output of [`Json`] does.
impl fmt::Debug for RequestDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestDocument").field(&self.whole).finish()
    }
}

// === impl DocumentMembers ===

impl DocumentMembers {
    /// Returns a member, which may be missing. None if it is not one of these.
    fn get(&self, name: &str) -> Option<&Option<Json>> {
        Some(match name {
            "kind" => &self.kind,
            "resource" => &self.resource,
            "subResource" => &self.sub_resource,
            "operation" => &self.operation,
            "userInfo" => &self.user_info,
            _ => return None,
        })
    }
}

// === impl RequestDocument ===

impl RequestDocument {
    /// Takes an AdmissionRequest as it came in, with or without its large parts.
    #[must_use]
    pub fn of(whole: Json) -> Self {
        let mut members = DocumentMembers::default();
        if let Json::Object(all) = &whole {
            all.look_over(|name, value| {
                let member = match name {
                    "kind" => &mut members.kind,
                    "resource" => &mut members.resource,
                    "subResource" => &mut members.sub_resource,
                    "operation" => &mut members.operation,
                    "userInfo" => &mut members.user_info,
                    _ => return,
                };
                *member = Some(value.to_json());
            });
        }
        Self::with_members(whole, members)
    }

    /// Takes an AdmissionRequest whose members were looked at already.
    pub(super) fn with_members(whole: Json, members: DocumentMembers) -> Self {
        let mut username = None;
        if let Some(Json::Object(members)) = &members.user_info {
            members.look_over(|name, value| {
                if name == "username" {
                    username = Some(value);
                }
            });
        }
        let username = match username {
            Some(Shown::Text(text)) if text.len() > LONGEST_USERNAME_BYTES => None,
            Some(Shown::Text(text)) => Some(Box::from(&*text)),
            _ => Some(Box::default()),
        };
        Self {
            whole,
            without_parts: OnceLock::new(),
            username,
            members,
        }
    }

    /// Returns the value at a pointer, of the AdmissionRequest without `object`, `oldObject` and `options`.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub fn at(&self, pointer: &str) -> Result<Option<&Json>, PointerError> {
        // A pointer without escapes has the names as they are.
        let names = pointer.strip_prefix('/').filter(|_| !pointer.contains('~'));
        let names = names.unwrap_or_default();
        let first_bytes = names.find('/').unwrap_or(names.len());
        let (first, rest) = names.split_at(first_bytes);
        match self.members.get(first) {
            Some(Some(value)) => value.at(rest),
            Some(None) => Ok(None),
            None => self.get().at(pointer),
        }
    }

    /// Returns the AdmissionRequest without `object`, `oldObject` and `options`.
    pub fn get(&self) -> &Json {
        self.without_parts.get_or_init(|| {
            let Json::Object(members) = &self.whole else {
                return self.whole.clone();
            };
            let rest = members.iter().filter(|(name, _)| !is_part(name));
            // Members that were read already are not built twice.
            let rest = rest.map(|(name, value)| {
                let known = self.members.get(name).and_then(Option::as_ref);
                (Arc::clone(name), known.unwrap_or(value).clone())
            });
            Json::Object(Arc::new(rest.collect()))
        })
    }

    /// Returns the member `userInfo`.
    #[must_use]
    pub fn user_info(&self) -> Option<&Json> {
        self.members.user_info.as_ref()
    }
}

/// Whether a member is one of the three that can be as large as an object.
pub(super) fn is_part(name: &str) -> bool {
    matches!(name, "object" | "oldObject" | "options")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tollgate_json::document::index_within;

    use super::*;

    /// Requests with members that are missing, null, repeated and of the wrong type.
    const REQUESTS: [&str; 5] = [
        r#"{"uid":"1","kind":{"group":"","kind":"Pod"},"resource":{"resource":"pods"},"operation":"CREATE",
            "userInfo":{"username":"jane","groups":["a"]},"object":{"kind":"Pod"},"name":"n","dryRun":true}"#,
        r#"{"subResource":"status","kind":{"kind":"A"},"kind":{"kind":"B"},"operation":"A","operation":"B"}"#,
        r#"{"subResource":null,"kind":null,"userInfo":"jane","resource":["pods"],"oldObject":null,"options":{}}"#,
        r#"{"kin\u0064":{"k\u0069nd":"Pod"},"userInfo":{"username":7}}"#,
        "{}",
    ];
    const POINTERS: [&str; 24] = [
        "",
        "/",
        "/kind",
        "/kind/",
        "/kind/kind",
        "/kind/kind/x",
        "/kind/~0",
        "/kin~64",
        "/kind/~2",
        "kind",
        "~",
        "/resource/resource",
        "/resource/0",
        "/resource/-",
        "/subResource",
        "/subResource/x",
        "/operation",
        "/userInfo/username",
        "/userInfo/groups/0",
        "/object",
        "/object/kind",
        "/options",
        "/name",
        "/uid",
    ];

    fn document(text: &str) -> RequestDocument {
        let text = Bytes::copy_from_slice(text.as_bytes());
        RequestDocument::of(index_within(&text, 20, &Account::unlimited()).unwrap())
    }

    #[test]
    fn single_values_are_those_of_the_whole_document() {
        for request in REQUESTS {
            for pointer in POINTERS {
                let whole = document(request);
                let expected = whole.get().at(pointer);
                assert_eq!(
                    document(request).at(pointer),
                    expected,
                    "{pointer} of {request}"
                );
            }
        }
    }

    #[test]
    fn whole_document_has_no_large_parts_and_the_last_of_repeated_members() {
        let [first, second, ..] = REQUESTS.map(document);
        assert_eq!(first.get().at("/object").unwrap(), None);
        assert_eq!(first.get().at("/name").unwrap(), Some(&Json::text("n")));
        assert_eq!(second.at("/kind/kind").unwrap(), Some(&Json::text("B")));
        assert_eq!(second.at("/operation").unwrap(), Some(&Json::text("B")));
    }

    #[test]
    fn members_are_built_once() {
        let [request, ..] = REQUESTS.map(document);
        let before = request.at("/userInfo").unwrap().unwrap().clone();
        assert!(
            request
                .get()
                .at("/userInfo")
                .unwrap()
                .unwrap()
                .is_same(&before)
        );
        assert!(request.at("/userInfo").unwrap().unwrap().is_same(&before));
    }

    #[test]
    fn username_is_empty_without_a_text_and_complete_if_it_is_long() {
        let username = |user: &str| {
            let review = format!(
                r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"1",
                    "kind":{{"kind":"Pod"}},"resource":{{"resource":"pods"}},"operation":"CREATE","userInfo":{user}}}}}"#
            );
            let review = super::super::decode::decode(review.as_bytes(), 20).unwrap();
            review.request.username().to_owned()
        };
        let long = "j".repeat(1_000);
        for (user, expected) in [
            (r#"{"username":"jane"}"#, "jane"),
            (r#"{"username":"jane","username":"j\u00f6rg"}"#, "jörg"),
            (r#"{"username":7}"#, ""),
            ("{}", ""),
            ("null", ""),
            (&format!(r#"{{"username":"{long}"}}"#), &long),
        ] {
            assert_eq!(username(user), expected, "{user}");
        }
    }

    #[test]
    fn debug_output_has_no_content() {
        let [request, ..] = REQUESTS.map(document);
        assert!(!format!("{request:?}").contains("jane"));
    }
}
