//! Decodes a request body into an [`AdmissionRequest`].
//!
//! The decoder is written by hand. A derived deserializer quotes the value that it found in its errors, and this
//! value may be a Secret. The decoder accepts that kube-apiserver leaves members out or sends them as null.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use tollgate_json::document::{
    Account, Json, Level, NoRoom, Object, ParseError, ParseErrorKind, Shown, index_within,
};

use crate::namespaces::LookedUp;
use crate::trace::Observed;

use super::request::{
    AdmissionRequest, DocumentMembers, GroupVersionKind, GroupVersionResource, Operation,
    RequestDocument,
};

/// The version of `admission.k8s.io` in which a review came in and is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewVersion {
    /// Version `admission.k8s.io/v1`.
    V1,
    /// Version `admission.k8s.io/v1beta1`.
    V1Beta1,
}

/// An AdmissionReview that asks for an answer.
#[derive(Clone, Debug)]
pub struct Review {
    /// The version to answer in.
    pub version: ReviewVersion,
    /// The request to decide about.
    pub request: AdmissionRequest,
}

/// Why a body is not an AdmissionReview that can be answered. Names places and types, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body is not JSON.
    #[error("the body is not a JSON document")]
    NotJson(#[source] ParseError),
    /// The body is nested too deep.
    #[error("the body is nested deeper than the limit of {max_depth} levels, at byte {offset}")]
    TooDeep {
        /// The limit that was exceeded.
        max_depth: u32,
        /// The byte at which it was noticed.
        offset: usize,
    },
    /// The body has too many values.
    #[error("the body has more than {max_values} JSON values")]
    TooMany {
        /// The limit that was exceeded.
        max_values: u32,
    },
    /// The memory for the review is not available.
    #[error("the review cannot be decoded")]
    NoRoom(#[source] NoRoom),
    /// The member `kind` is not `AdmissionReview`.
    #[error("the body is not an AdmissionReview: `kind` must be `AdmissionReview`")]
    NotAReview,
    /// The member `apiVersion` is not a supported version.
    #[error(
        "the AdmissionReview's `apiVersion` is not supported: expected `admission.k8s.io/v1` or \
         `admission.k8s.io/v1beta1`; check the webhook's admissionReviewVersions"
    )]
    UnsupportedVersion,
    /// The review has no request.
    #[error("the AdmissionReview has no `request`")]
    NoRequest,
    /// A member without which a request cannot be evaluated is missing.
    #[error("`{path}` is missing or empty: expected {expected}")]
    Missing {
        /// The path of the member.
        path: &'static str,
        /// The value that should be there.
        expected: &'static str,
    },
    /// A value has the wrong type.
    #[error("`{path}` must be {expected}, but is {found}")]
    WrongType {
        /// The path of the value.
        path: &'static str,
        /// The type that should be there.
        expected: &'static str,
        /// JSON's name of the type that was found.
        found: &'static str,
    },
    /// The member `operation` is none of the four operations.
    #[error("`request.operation` must be one of CREATE, UPDATE, DELETE and CONNECT")]
    UnknownOperation,
}

/// Decodes an AdmissionReview.
///
/// # Errors
/// When the body is not an AdmissionReview that can be answered.
pub fn decode(body: &[u8], max_depth: u32) -> Result<Review, DecodeError> {
    let body = Bytes::copy_from_slice(body);
    decode_within(&body, max_depth, &Account::unlimited())
}

/// Like [`decode`], but charges an account for the memory. The request keeps the account, and so the memory, for as
/// long as it lives. It keeps the body too: the object is built as far as it is read.
///
/// # Errors
/// When the body is not an AdmissionReview that can be answered, or the account has no room for it.
pub fn decode_within(
    body: &Bytes,
    max_depth: u32,
    account: &Account,
) -> Result<Review, DecodeError> {
    let document = index_within(body, max_depth, account)?;
    let Json::Object(review) = &document else {
        return Err(DecodeError::NotAReview);
    };
    let (mut kind, mut api_version, mut request) = (None, None, None);
    review.look_over(|name, value| match name {
        "kind" => kind = Some(value),
        "apiVersion" => api_version = Some(value),
        "request" => request = Some(value),
        _ => {}
    });
    if text(kind, "kind")?.as_deref() != Some("AdmissionReview") {
        return Err(DecodeError::NotAReview);
    }
    let version = text(api_version, "apiVersion")?
        .and_then(|version| ReviewVersion::from_api_version(&version))
        .ok_or(DecodeError::UnsupportedVersion)?;
    let request = match request {
        None | Some(Shown::Other(Json::Null)) => return Err(DecodeError::NoRequest),
        Some(Shown::Other(Json::Object(request))) => AdmissionRequest {
            memory: account.clone(),
            ..read_request(request)?
        },
        Some(other) => return Err(wrong_type("request", "an object", &other)),
    };
    Ok(Review { version, request })
}

/// The members of `request` that the decoder reads. Of repeated members, the last one.
#[derive(Default)]
struct Members<'j> {
    uid: Option<Shown<'j>>,
    kind: Option<Shown<'j>>,
    resource: Option<Shown<'j>>,
    sub_resource: Option<Shown<'j>>,
    name: Option<Shown<'j>>,
    namespace: Option<Shown<'j>>,
    operation: Option<Shown<'j>>,
    object: Option<Shown<'j>>,
    old_object: Option<Shown<'j>>,
    options: Option<Shown<'j>>,
    dry_run: Option<Shown<'j>>,
    user_info: Option<Shown<'j>>,
}

/// Decodes the members of `request`.
pub(super) fn read_request(request: Arc<Level<Object>>) -> Result<AdmissionRequest, DecodeError> {
    let mut members = Members::default();
    request.look_over(|name, value| {
        let member = match name {
            "uid" => &mut members.uid,
            "kind" => &mut members.kind,
            "resource" => &mut members.resource,
            "subResource" => &mut members.sub_resource,
            "name" => &mut members.name,
            "namespace" => &mut members.namespace,
            "operation" => &mut members.operation,
            "object" => &mut members.object,
            "oldObject" => &mut members.old_object,
            "options" => &mut members.options,
            "dryRun" => &mut members.dry_run,
            "userInfo" => &mut members.user_info,
            _ => return,
        };
        *member = Some(value);
    });
    let uid = required(
        text(members.uid, "request.uid")?,
        "request.uid",
        "the uid of the request",
    )?;
    let kind = object(members.kind, "request.kind")?;
    let resource = object(members.resource, "request.resource")?;
    let operation = required(
        text(members.operation, "request.operation")?,
        "request.operation",
        "one of CREATE, UPDATE, DELETE and CONNECT",
    )?;
    let operation = Operation::parse(&operation).ok_or(DecodeError::UnknownOperation)?;
    let for_document = DocumentMembers {
        kind: Some(Json::Object(Arc::clone(&kind))),
        resource: Some(Json::Object(Arc::clone(&resource))),
        sub_resource: members.sub_resource.as_ref().map(Shown::to_json),
        operation: Some(Json::text(operation.as_str())),
        user_info: members.user_info.as_ref().map(Shown::to_json),
    };
    let [group, version, kind] = names(
        &kind,
        [
            ("group", "request.kind.group"),
            ("version", "request.kind.version"),
            ("kind", "request.kind.kind"),
        ],
        "a kind such as Pod",
    )?;
    let kind = GroupVersionKind {
        group,
        version,
        kind,
    };
    let [group, version, resource] = names(
        &resource,
        [
            ("group", "request.resource.group"),
            ("version", "request.resource.version"),
            ("resource", "request.resource.resource"),
        ],
        "a resource such as pods",
    )?;
    let resource = GroupVersionResource {
        group,
        version,
        resource,
    };
    Ok(AdmissionRequest {
        uid: uid.into_owned(),
        operation,
        kind,
        resource,
        sub_resource: filled(text(members.sub_resource, "request.subResource")?),
        name: owned(text(members.name, "request.name")?),
        namespace: filled(text(members.namespace, "request.namespace")?),
        dry_run: match members.dry_run {
            None | Some(Shown::Other(Json::Null)) => false,
            Some(Shown::Other(Json::Bool(dry_run))) => dry_run,
            Some(other) => return Err(wrong_type("request.dryRun", "a boolean", &other)),
        },
        object: part(members.object, "request.object")?,
        old_object: part(members.old_object, "request.oldObject")?,
        options: part(members.options, "request.options")?,
        document: RequestDocument::with_members(Json::Object(Arc::clone(&request)), for_document),
        memory: Account::unlimited(),
        looked_up: LookedUp::default(),
        observed: Observed::default(),
        template: None,
    })
}

/// Reads three names of an object. The last one is required, and the others are empty if they are missing.
fn names(
    object: &Level<Object>,
    places: [(&'static str, &'static str); 3],
    expected: &'static str,
) -> Result<[String; 3], DecodeError> {
    let mut found = [None, None, None];
    object.look_over(|name, value| {
        if let Some(index) = places.iter().position(|(place, _)| *place == name) {
            found[index] = Some(value);
        }
    });
    let [first, second, third] = found;
    Ok([
        owned(text(first, places[0].1)?),
        owned(text(second, places[1].1)?),
        required(
            Some(owned(text(third, places[2].1)?)),
            places[2].1,
            expected,
        )?,
    ])
}

fn text<'j>(
    value: Option<Shown<'j>>,
    path: &'static str,
) -> Result<Option<Cow<'j, str>>, DecodeError> {
    match value {
        None | Some(Shown::Other(Json::Null)) => Ok(None),
        Some(Shown::Text(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(path, "a string", &other)),
    }
}

fn object(value: Option<Shown<'_>>, path: &'static str) -> Result<Arc<Level<Object>>, DecodeError> {
    match value {
        None | Some(Shown::Other(Json::Null)) => Err(DecodeError::Missing {
            path,
            expected: "an object with group, version and name",
        }),
        Some(Shown::Other(Json::Object(members))) => Ok(members),
        Some(other) => Err(wrong_type(path, "an object", &other)),
    }
}

fn part(value: Option<Shown<'_>>, path: &'static str) -> Result<Option<Json>, DecodeError> {
    match value {
        None | Some(Shown::Other(Json::Null)) => Ok(None),
        Some(Shown::Other(value @ Json::Object(_))) => Ok(Some(value)),
        Some(other) => Err(wrong_type(path, "an object or null", &other)),
    }
}

fn required<T: AsRef<str>>(
    text: Option<T>,
    path: &'static str,
    expected: &'static str,
) -> Result<T, DecodeError> {
    text.filter(|text| !text.as_ref().is_empty())
        .ok_or(DecodeError::Missing { path, expected })
}

fn owned(text: Option<Cow<'_, str>>) -> String {
    text.map(Cow::into_owned).unwrap_or_default()
}

/// Returns a string that is not empty. Go writes an absent string as an empty one.
fn filled(text: Option<Cow<'_, str>>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(Cow::into_owned)
}

fn wrong_type(path: &'static str, expected: &'static str, found: &Shown<'_>) -> DecodeError {
    DecodeError::WrongType {
        path,
        expected,
        found: found.type_name(),
    }
}

// === impl ReviewVersion ===

impl ReviewVersion {
    /// Parses an `apiVersion`.
    #[must_use]
    pub fn from_api_version(text: &str) -> Option<Self> {
        match text {
            "admission.k8s.io/v1" => Some(Self::V1),
            "admission.k8s.io/v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// Returns the `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }

    /// Returns the version alone, for metric labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

// === impl DecodeError ===

impl From<ParseError> for DecodeError {
    fn from(error: ParseError) -> Self {
        match error.kind {
            ParseErrorKind::TooDeep { max_depth } => Self::TooDeep {
                max_depth,
                offset: error.offset,
            },
            ParseErrorKind::TooMany { max_values } => Self::TooMany { max_values },
            ParseErrorKind::NoRoom(no_room) => Self::NoRoom(no_room),
            ParseErrorKind::Syntax(_) => Self::NotJson(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use serde_json::{Value, json};

    use super::*;
    use crate::review::request::is_part;

    fn review() -> Value {
        json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "u-1",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "name": "nginx",
                "namespace": "default",
                "operation": "UPDATE",
                "userInfo": {"username": "jane", "groups": ["dev"]},
                "object": {"spec": {"marker": 1}},
                "oldObject": {"spec": {}},
                "dryRun": true,
                "options": {"kind": "UpdateOptions"}
            }
        })
    }

    fn decode_value(review: &Value) -> Result<Review, DecodeError> {
        decode(review.to_string().as_bytes(), 32)
    }

    fn with(pointer: &str, value: Value) -> Result<Review, DecodeError> {
        let mut review = review();
        *review.pointer_mut(pointer).unwrap() = value;
        decode_value(&review)
    }

    fn without(parent: &str, name: &str) -> Result<Review, DecodeError> {
        let mut review = review();
        review
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(name);
        decode_value(&review)
    }

    #[test]
    fn reads_review_of_kube_apiserver() {
        let Review { version, request } = decode_value(&review()).unwrap();
        assert_eq!(version, ReviewVersion::V1);
        assert_eq!(
            (request.uid.as_str(), request.operation, request.dry_run),
            ("u-1", Operation::Update, true)
        );
        assert_eq!(
            (
                request.kind.kind.as_str(),
                request.resource.resource.as_str()
            ),
            ("Pod", "pods")
        );
        assert_eq!(
            (request.name.as_str(), request.namespace.as_deref()),
            ("nginx", Some("default"))
        );
        assert_eq!(request.sub_resource, None);
        assert_eq!(
            request.object.unwrap().to_text(),
            r#"{"spec":{"marker":1}}"#
        );
        assert_eq!(request.old_object.unwrap().to_text(), r#"{"spec":{}}"#);
        assert_eq!(
            request.options.unwrap().to_text(),
            r#"{"kind":"UpdateOptions"}"#
        );
    }

    #[test]
    fn document_is_request_without_its_parts() {
        let request = decode_value(&review()).unwrap().request;
        let document = request.document.get();
        let names: Vec<&str> = document
            .as_object()
            .unwrap()
            .keys()
            .map(|name| &**name)
            .collect();
        let mut expected: Vec<String> = review()["request"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        expected.retain(|name| !is_part(name));
        assert_eq!(names, expected);
        assert_eq!(
            document
                .at("/userInfo/groups/0")
                .unwrap()
                .unwrap()
                .to_text(),
            "\"dev\""
        );
    }

    #[test]
    fn accepts_null_and_absent_alike() {
        for name in [
            "object",
            "oldObject",
            "options",
            "dryRun",
            "subResource",
            "name",
            "namespace",
            "userInfo",
        ] {
            let mut null = review();
            null["request"][name] = Value::Null;
            for request in [
                decode_value(&null).unwrap().request,
                without("/request", name).unwrap().request,
            ] {
                match name {
                    "object" => assert!(request.object.is_none()),
                    "oldObject" => assert!(request.old_object.is_none()),
                    "options" => assert!(request.options.is_none()),
                    "dryRun" => assert!(!request.dry_run),
                    "name" => assert_eq!(request.name, ""),
                    "namespace" => assert_eq!(request.namespace, None),
                    _ => assert_eq!(request.sub_resource, None),
                }
            }
        }
        assert_eq!(
            without("/request/kind", "group")
                .unwrap()
                .request
                .kind
                .group,
            ""
        );
    }

    #[test]
    fn empty_subresource_and_namespace_mean_absent() {
        let mut empty = review();
        empty["request"]["subResource"] = "".into();
        empty["request"]["namespace"] = "".into();
        let request = decode_value(&empty).unwrap().request;
        assert_eq!((request.sub_resource, request.namespace), (None, None));
    }

    #[test]
    fn reads_v1beta1() {
        let review = with("/apiVersion", "admission.k8s.io/v1beta1".into()).unwrap();
        assert_eq!(review.version.api_version(), "admission.k8s.io/v1beta1");
    }

    #[test]
    fn rejects_invalid_json_and_names_place() {
        let error = decode(br#"{"kind": oops}"#, 32).unwrap_err();
        insta::assert_snapshot!(error, @"the body is not a JSON document");
        insta::assert_snapshot!(error.source().unwrap(), @"not JSON: expected a value at byte 9");
        assert!(matches!(decode(b"", 32), Err(DecodeError::NotJson(_))));
    }

    #[test]
    fn rejects_too_deep_nesting() {
        let nested = format!("{{\"request\":{}1{}}}", "[".repeat(100), "]".repeat(100));
        insta::assert_snapshot!(decode(nested.as_bytes(), 32).unwrap_err(), @"the body is nested deeper than the limit of 32 levels, at byte 42");
    }

    #[test]
    fn rejects_json_that_is_not_an_admission_review() {
        for value in [json!("Pod"), Value::Null] {
            assert_eq!(with("/kind", value).unwrap_err(), DecodeError::NotAReview);
        }
        for value in [json!("admission.k8s.io/v2"), json!("v1"), Value::Null] {
            assert_eq!(
                with("/apiVersion", value).unwrap_err(),
                DecodeError::UnsupportedVersion
            );
        }
        assert_eq!(decode(b"[]", 32).unwrap_err(), DecodeError::NotAReview);
        assert_eq!(
            with("/request", Value::Null).unwrap_err(),
            DecodeError::NoRequest
        );
        assert_eq!(without("", "request").unwrap_err(), DecodeError::NoRequest);
    }

    #[test]
    fn rejects_incomplete_request() {
        for name in ["uid", "kind", "resource", "operation"] {
            assert!(
                matches!(without("/request", name), Err(DecodeError::Missing { .. })),
                "{name}"
            );
        }
        insta::assert_snapshot!(with("/request/uid", "".into()).unwrap_err(), @"`request.uid` is missing or empty: expected the uid of the request");
        assert_eq!(
            with("/request/operation", "PATCH".into()).unwrap_err(),
            DecodeError::UnknownOperation
        );
        let mut review = review();
        review["request"]["operation"] = "PATCH".into();
        review["request"]["kind"] = json!({});
        assert_eq!(
            decode_value(&review).unwrap_err(),
            DecodeError::UnknownOperation
        );
    }

    #[test]
    fn type_errors_do_not_reveal_value() {
        for pointer in [
            "/request",
            "/kind",
            "/request/uid",
            "/request/kind",
            "/request/resource/resource",
            "/request/object",
            "/request/oldObject",
            "/request/options",
            "/request/dryRun",
            "/request/name",
            "/request/namespace",
        ] {
            let error = with(pointer, json!([{"password": "marker"}])).unwrap_err();
            assert!(
                matches!(error, DecodeError::WrongType { found: "array", .. }),
                "{pointer}: {error}"
            );
            assert!(!format!("{error} {error:?}").contains("marker"));
        }
        insta::assert_snapshot!(with("/request/object", "marker".into()).unwrap_err(), @"`request.object` must be an object or null, but is string");
    }
}
