//! Writes the AdmissionReview that is sent back.
//!
//! The response is written straight into the body, in the version of the review. If the uid, the version, or the
//! pairing of patch and patchType is wrong, kube-apiserver treats the response as a failed call. For this reason, a
//! single writer makes all responses.
//!
//! The message of a denial ends with the review's uid: of a UUID, its first group. If there are audit annotations,
//! one more annotation holds the uid. kube-apiserver shows the uid nowhere else. With it, an operator gets from a
//! user's complaint to the log records and to the decision.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollgate_admission::Endpoint;
use tollgate_admission::text::{Limit, one_line};
use tollgate_json::patch::Operation;

use tollgate_admission::review::decode::ReviewVersion;

use crate::pipeline::outcome::{Outcome, Status, StatusDetails};

/// Key of the annotation with the uid. No plugin's key is the same, because those start with the plugin's name and a
/// dot.
const REVIEW: &str = "review";
/// The reason with which kubectl shows the causes instead of the message.
const INVALID: &str = "Invalid";
/// Length of the first group of a UUID.
const SHORT_UID_BYTES: usize = 8;
const UUID_BYTES: usize = 36;
const LONGEST_UID: Limit = Limit::Bytes(64);

/// Returns the response body for a decoded review.
///
/// On [`Endpoint::Validate`] the patch is left out, whatever the outcome holds.
#[must_use]
pub fn respond(
    version: ReviewVersion,
    uid: &str,
    outcome: &Outcome,
    endpoint: Endpoint,
) -> Vec<u8> {
    let mut body = open(version, uid, outcome.allowed);
    if let Some(status) = outcome.status.as_ref().filter(|_| !outcome.allowed) {
        write_status(status, &suffix(uid), &mut body);
    }
    if endpoint == Endpoint::Mutate && outcome.allowed && !outcome.patch.is_empty() {
        write_patch(&outcome.patch, &mut body);
    }
    if !outcome.warnings.is_empty() {
        body.extend_from_slice(b",\"warnings\":[");
        separated(outcome.warnings.iter(), &mut body, |warning, body| {
            write_text(warning, body)
        });
        body.push(b']');
    }
    if !outcome.audit_annotations.is_empty() {
        body.extend_from_slice(b",\"auditAnnotations\":{");
        let own = outcome.audit_annotations.iter();
        let own = own.map(|(key, value)| (key.as_str(), Cow::Borrowed(value.as_str())));
        let all = own.chain([(REVIEW, one_line_uid(uid))]);
        separated(all, &mut body, |(key, value), body| {
            write_text(key, body);
            body.push(b':');
            write_text(&value, body);
        });
        body.push(b'}');
    }
    close(body)
}

fn open(version: ReviewVersion, uid: &str, allowed: bool) -> Vec<u8> {
    let mut body = Vec::with_capacity(512);
    body.extend_from_slice(b"{\"kind\":\"AdmissionReview\",\"apiVersion\":");
    write_text(version.api_version(), &mut body);
    body.extend_from_slice(b",\"response\":{\"uid\":");
    write_text(uid, &mut body);
    body.extend_from_slice(if allowed {
        b",\"allowed\":true"
    } else {
        b",\"allowed\":false"
    });
    body
}

fn close(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(b"}}");
    body
}

/// Returns ` (review 705ab4f5)`. Empty without a uid.
fn suffix(uid: &str) -> String {
    let uid = short_uid(uid);
    if uid.is_empty() {
        return String::new();
    }
    format!(" (review {uid})")
}

/// Returns the first group of a UUID, which is enough to find the review. Any other uid is returned whole.
fn short_uid(uid: &str) -> Cow<'_, str> {
    let is_uuid = uid.len() == UUID_BYTES
        && uid
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if is_uuid {
        Cow::Borrowed(&uid[..SHORT_UID_BYTES])
    } else {
        one_line_uid(uid)
    }
}

/// Returns the uid on one line. kube-apiserver sends UUIDs, but other clients may send anything.
fn one_line_uid(uid: &str) -> Cow<'_, str> {
    let is_plain = uid.len() <= UUID_BYTES && uid.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        Cow::Borrowed(uid)
    } else {
        Cow::Owned(one_line(uid, LONGEST_UID))
    }
}

fn write_status(status: &Status, suffix: &str, body: &mut Vec<u8>) {
    body.extend_from_slice(b",\"status\":{\"metadata\":{},\"status\":\"Failure\",\"message\":");
    write_text(&format!("{}{suffix}", status.message), body);
    body.extend_from_slice(b",\"reason\":");
    write_text(status.reason, body);
    if let Some(details) = &status.details {
        let shown = if status.reason == INVALID { suffix } else { "" };
        write_details(details, shown, body);
    }
    body.extend_from_slice(b",\"code\":");
    body.extend_from_slice(status.code.to_string().as_bytes());
    body.push(b'}');
}

/// Writes the details. `suffix` is appended to the message of the last cause.
fn write_details(details: &StatusDetails, suffix: &str, body: &mut Vec<u8>) {
    body.extend_from_slice(b",\"details\":{");
    let named = [
        ("name", &details.name),
        ("group", &details.group),
        ("kind", &details.kind),
        ("uid", &details.uid),
    ];
    let named = named.into_iter().filter(|(_, text)| !text.is_empty());
    let first = body.len();
    separated(named, body, |(name, text), body| {
        write_text(name, body);
        body.push(b':');
        write_text(text, body);
    });
    if !details.causes.is_empty() {
        if body.len() > first {
            body.push(b',');
        }
        body.extend_from_slice(b"\"causes\":[");
        let last = details.causes.len() - 1;
        separated(
            details.causes.iter().enumerate(),
            body,
            |(index, cause), body| {
                let suffix = if index == last { suffix } else { "" };
                body.extend_from_slice(b"{\"reason\":");
                write_text(cause.reason, body);
                body.extend_from_slice(b",\"message\":");
                write_text(&format!("{}{suffix}", cause.message), body);
                if let Some(field) = &cause.field {
                    body.extend_from_slice(b",\"field\":");
                    write_text(field, body);
                }
                body.push(b'}');
            },
        );
        body.push(b']');
    }
    body.push(b'}');
}

fn write_patch(patch: &[Operation], body: &mut Vec<u8>) {
    let mut json = Vec::with_capacity(patch.len() * 64);
    json.push(b'[');
    separated(patch.iter(), &mut json, |operation, json| {
        operation.write(json)
    });
    json.push(b']');
    body.extend_from_slice(b",\"patchType\":\"JSONPatch\",\"patch\":\"");
    body.extend_from_slice(STANDARD.encode(json).as_bytes());
    body.push(b'"');
}

fn separated<T>(
    items: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string always serialises into a Vec");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::outcome::StatusCause;
    use tollgate_json::document::{Json, Pointer};

    fn text(body: Vec<u8>) -> String {
        let text = String::from_utf8(body).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        text
    }

    fn patch() -> Vec<Operation> {
        vec![
            Operation::Add {
                path: Pointer::parse("/a").unwrap(),
                value: Json::text("ä\""),
            },
            Operation::Remove {
                path: Pointer::parse("/b").unwrap(),
            },
        ]
    }

    fn denied() -> Outcome {
        Outcome {
            allowed: false,
            status: Some(Status {
                code: 403,
                reason: "Forbidden",
                message: "labels: says \"no\"".to_owned(),
                details: Some(StatusDetails {
                    name: "nginx".to_owned(),
                    kind: "Pod".to_owned(),
                    causes: vec![
                        StatusCause {
                            reason: "FieldValueRequired",
                            message: "labels: missing".to_owned(),
                            field: Some("metadata.labels[app]".to_owned()),
                        },
                        StatusCause {
                            reason: "FieldValueForbidden",
                            message: "labels: no".to_owned(),
                            field: None,
                        },
                    ],
                    ..StatusDetails::default()
                }),
            }),
            ..Outcome::default()
        }
    }

    #[test]
    fn answers_in_version_of_request() {
        let outcome = Outcome {
            allowed: true,
            ..Outcome::default()
        };
        insta::assert_snapshot!(text(respond(ReviewVersion::V1, "u-1", &outcome, Endpoint::Validate)), @r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1","allowed":true}}"#);
        insta::assert_snapshot!(text(respond(ReviewVersion::V1Beta1, "u-\"1", &outcome, Endpoint::Mutate)), @r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"u-\"1","allowed":true}}"#);
    }

    #[test]
    fn only_mutating_webhook_returns_patch_with_its_type() {
        let outcome = Outcome {
            allowed: true,
            patch: patch(),
            ..Outcome::default()
        };
        let body = text(respond(ReviewVersion::V1, "u", &outcome, Endpoint::Mutate));
        insta::assert_snapshot!(body, @r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6IsOkXCIifSx7Im9wIjoicmVtb3ZlIiwicGF0aCI6Ii9iIn1d"}}"#);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let patch = STANDARD
            .decode(body["response"]["patch"].as_str().unwrap())
            .unwrap();
        insta::assert_snapshot!(text(patch), @r#"[{"op":"add","path":"/a","value":"ä\""},{"op":"remove","path":"/b"}]"#);
        assert!(
            !text(respond(
                ReviewVersion::V1,
                "u",
                &outcome,
                Endpoint::Validate
            ))
            .contains("atch")
        );
        let denied = Outcome {
            patch: outcome.patch,
            ..denied()
        };
        assert!(!text(respond(ReviewVersion::V1, "u", &denied, Endpoint::Mutate)).contains("atch"));
    }

    #[test]
    fn denial_has_status() {
        insta::assert_snapshot!(text(respond(ReviewVersion::V1, "u", &denied(), Endpoint::Validate)), @r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":false,"status":{"metadata":{},"status":"Failure","message":"labels: says \"no\" (review u)","reason":"Forbidden","details":{"name":"nginx","kind":"Pod","causes":[{"reason":"FieldValueRequired","message":"labels: missing","field":"metadata.labels[app]"},{"reason":"FieldValueForbidden","message":"labels: no"}]},"code":403}}}"#);
    }

    #[test]
    fn kubectl_shows_uid_for_invalid_object() {
        let mut outcome = denied();
        outcome.status.as_mut().unwrap().reason = INVALID;
        let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
        let body = text(respond(
            ReviewVersion::V1,
            uid,
            &outcome,
            Endpoint::Validate,
        ));
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let status = &body["response"]["status"];
        assert_eq!(status["message"], "labels: says \"no\" (review 705ab4f5)");
        let causes = &status["details"]["causes"];
        assert_eq!(causes[0]["message"], "labels: missing");
        assert_eq!(causes[1]["message"], "labels: no (review 705ab4f5)");
    }

    #[test]
    fn shortens_only_uids_of_kube_apiserver() {
        assert_eq!(
            short_uid("705ab4f5-6393-11e8-b7cc-42010a800002"),
            "705ab4f5"
        );
        assert_eq!(short_uid("u-1"), "u-1");
        assert_eq!(short_uid("a\nb"), "a b");
        assert_eq!(suffix(""), "");
        assert!(short_uid(&"x".repeat(1000)).len() <= 64);
    }

    #[test]
    fn writes_warnings_and_annotations() {
        let outcome = Outcome {
            allowed: true,
            warnings: vec!["a: old".to_owned(), "b: \"older\"".to_owned()],
            audit_annotations: vec![
                ("plugins".to_owned(), "a,b".to_owned()),
                ("a.x".to_owned(), String::new()),
            ],
            ..Outcome::default()
        };
        insta::assert_snapshot!(text(respond(ReviewVersion::V1, "u", &outcome, Endpoint::Validate)), @r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"warnings":["a: old","b: \"older\""],"auditAnnotations":{"plugins":"a,b","a.x":"","review":"u"}}}"#);
    }
}
