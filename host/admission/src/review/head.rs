//! Reads the head of a review: the beginning of its body, up to the object.
//!
//! A body may be larger than the limit, or hold an object that is nested too deep. With the head, Tollgate still
//! answers such a review with its uid, and considers only the plugins that match the request. The head is enough,
//! because kube-apiserver writes kind, apiVersion and the request's metadata before the object.

use std::sync::Arc;

use tollgate_json::document::{Account, Json, Level, Object, parse_prefix_member};

use super::decode::{ReviewVersion, read_request};
use super::request::{AdmissionRequest, is_part};

/// Deeper than anything that kube-apiserver writes before the object: `request.userInfo.extra` lists are at level 5.
const MAX_DEPTH: u32 = 16;

/// A review whose object could not be read.
#[derive(Clone, Debug)]
pub struct Head {
    /// The version to answer in.
    pub version: ReviewVersion,
    /// The request without object, old object and options, even if it had them.
    ///
    /// Members after the object are not known and have their defaults. The most important one is `dryRun`.
    pub request: AdmissionRequest,
}

/// Decodes the head of an AdmissionReview, whatever follows it. Returns none if version, uid, kind, resource or
/// operation cannot be read before the text ends.
#[must_use]
pub fn decode_head(head: &[u8], account: &Account) -> Option<Head> {
    let mut version = None;
    let mut is_review = false;
    let mut request = Object::default();
    let mut in_request = false;
    parse_prefix_member(head, "request", MAX_DEPTH, account, |name, value| {
        // A name without a value announces a member of the request. A name that was not announced is a top-level
        // member, and all of those come before the members of the request.
        let Some(value) = value else {
            in_request = true;
            return !(is_part(name) && has_what_matching_needs(&request));
        };
        if in_request {
            if !is_part(name) {
                request.insert(Arc::from(name), value);
            }
            return true;
        }
        match name {
            "kind" => is_review = value.as_text() == Some("AdmissionReview"),
            "apiVersion" => version = value.as_text().and_then(ReviewVersion::from_api_version),
            _ => {}
        }
        true
    });
    let version = version.filter(|_| is_review)?;
    let request = read_request(Arc::new(Level::from(request))).ok()?;
    Some(Head { version, request })
}

/// Whether the members that matching needs were read. If the object comes earlier, it is read too, because they may
/// follow.
fn has_what_matching_needs(request: &Object) -> bool {
    ["uid", "kind", "resource", "operation"]
        .iter()
        .all(|name| request.get(*name).is_some_and(|value| *value != Json::Null))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::request::Operation;

    const HEAD: &str = concat!(
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","#,
        r#""kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"#,
        r#""subResource":"status","requestKind":{"group":"","version":"v1","kind":"Pod"},"name":"n","namespace":"d","#,
        r#""operation":"UPDATE","userInfo":{"username":"jane","extra":{"a":["b"]}},"#,
    );

    fn head_of(head: &[u8]) -> Option<Head> {
        decode_head(head, &Account::unlimited())
    }

    fn check(head: &str) {
        let Head { version, request } = head_of(head.as_bytes()).unwrap();
        assert_eq!(version, ReviewVersion::V1);
        assert_eq!(
            (request.uid.as_str(), request.operation),
            ("u-1", Operation::Update)
        );
        assert_eq!(
            (
                request.kind.kind.as_str(),
                request.resource.resource.as_str()
            ),
            ("Pod", "pods")
        );
        assert_eq!(request.sub_resource.as_deref(), Some("status"));
        assert_eq!(
            (request.name.as_str(), request.namespace.as_deref()),
            ("n", Some("d"))
        );
        assert!(
            request.object.is_none() && request.old_object.is_none() && request.options.is_none()
        );
    }

    #[test]
    fn reads_body_truncated_within_object() {
        check(&format!(r#"{HEAD}"object":{{"data":"aaaa"#));
        check(&format!(r#"{HEAD}"obj"#));
        check(HEAD);
    }

    #[test]
    fn reads_body_with_too_deep_object() {
        check(&format!(
            r#"{HEAD}"object":{}{}}}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        ));
    }

    #[test]
    fn skips_object_when_head_is_complete() {
        check(&format!(
            r#"{HEAD}"object":{{}},"uid":"another","oldObject":{{"#
        ));
    }

    #[test]
    fn reads_past_small_object_if_members_are_sorted() {
        let sorted = concat!(
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"kind":{"kind":"Pod"},"name":"n","#,
            r#""object":{"a":1},"oldObject":null,"operation":"DELETE","options":{},"resource":{"resource":"pods"},"uid":"u","#,
            r#""userInfo":{"us"#,
        );
        let request = head_of(sorted.as_bytes()).unwrap().request;
        assert_eq!(
            (request.uid.as_str(), request.operation),
            ("u", Operation::Delete)
        );
        assert!(request.object.is_none());
    }

    #[test]
    fn gives_up_if_head_is_incomplete() {
        for cut in [0, 1, 20, 60, 90, 150, HEAD.len() - 60] {
            assert!(head_of(&HEAD.as_bytes()[..cut]).is_none(), "{cut}");
        }
        for (known, other) in [
            ("AdmissionReview", "Pod"),
            ("admission.k8s.io/v1", "admission.k8s.io/v3"),
            ("\"u-1\"", "\"\""),
            ("\"u-1\"", "1"),
            ("UPDATE", "PATCH"),
        ] {
            assert!(
                head_of(HEAD.replace(known, other).as_bytes()).is_none(),
                "{other}"
            );
        }
        let without_version = HEAD.replace(r#""apiVersion":"admission.k8s.io/v1","#, "");
        assert!(head_of(without_version.as_bytes()).is_none());
        assert!(head_of(b"\xff\xfe").is_none());
        assert!(head_of(b"[[[[[").is_none());
    }
}
