//! Makes a recording from the audit log of kube-apiserver.
//!
//! An event of level `RequestResponse` has the object as the user sent it, and as it was stored. It has no old object,
//! and no review: the result is similar to what kube-apiserver asked, but not the same.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;

use serde_json::{Value, json};
use tollgate_json::document::Json;

use crate::format::{Endpoint, Origin, Record, parse_timestamp};
use crate::redact::Redactor;
use crate::segment::{Ring, RingOptions};

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of reviews in the new recording.
    pub reviews: u64,
    /// Number of events that were left out, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// Why an audit log cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log cannot be read.
    #[error("cannot read the audit log")]
    Read(#[source] io::Error),
    /// The recording cannot be written.
    #[error("cannot write the recording")]
    Write(#[source] io::Error),
    /// A configured place is not a JSON Pointer.
    #[error(transparent)]
    Pattern(#[from] crate::redact::PatternError),
}

/// The parts of a record that come from one event.
struct Rebuilt {
    review: Value,
    answer: Value,
    time: std::time::SystemTime,
}

/// The codes by which a policy denies.
const DENIED: [u64; 4] = [400, 403, 422, 429];
/// The beginning of the message of every denial by a webhook.
const BY_WEBHOOK: &str = "admission webhook ";

/// Reads an audit log in JSON lines, and writes a recording to a folder. `redact` are further confidential places.
///
/// # Errors
/// When the log cannot be read or the recording cannot be written.
pub fn import(
    log: impl BufRead,
    folder: &Path,
    max_bytes: u64,
    host: &str,
    redact: &[String],
) -> Result<Imported, ImportError> {
    let redactor = Redactor::new(redact)?;
    let options = RingOptions {
        max_bytes,
        origin: Origin::AuditLog,
        host: host.to_owned(),
    };
    let mut ring = Ring::open(folder, options).map_err(ImportError::Write)?;
    let mut imported = Imported::default();
    for line in log.lines() {
        let line = line.map_err(ImportError::Read)?;
        if line.trim().is_empty() {
            continue;
        }
        let rebuilt = match rebuild(&line) {
            Ok(rebuilt) => rebuilt,
            Err(reason) => {
                *imported.skipped.entry(reason).or_default() += 1;
                continue;
            }
        };
        let (review, answer) = (Json::from(rebuilt.review), Json::from(rebuilt.answer));
        let Some(redacted) = redactor.redact(&review, &answer) else {
            *imported.skipped.entry("too large to redact").or_default() += 1;
            continue;
        };
        let record = Record {
            time: rebuilt.time,
            endpoint: Endpoint::Both,
            only: None,
            set: None,
            calls: Vec::new(),
            answer: redacted.answer,
            review: redacted.review,
        };
        ring.add(record, None).map_err(ImportError::Write)?;
        imported.reviews += 1;
    }
    ring.flush().map_err(ImportError::Write)?;
    Ok(imported)
}

/// Rebuilds a review from an event, or says why there is none.
fn rebuild(line: &str) -> Result<Rebuilt, &'static str> {
    let event: Value = serde_json::from_str(line).map_err(|_| "not JSON")?;
    if event["kind"] != "Event" || !is_audit(&event["apiVersion"]) {
        return Err("not an event of an audit log");
    }
    if event["stage"] != "ResponseComplete" {
        return Err("not the last stage of a request");
    }
    let operation = match event["verb"].as_str().unwrap_or_default() {
        "create" => "CREATE",
        "update" | "patch" => "UPDATE",
        "delete" => "DELETE",
        _ => return Err("a verb without admission"),
    };
    if event["level"] != "RequestResponse" {
        return Err("not of level RequestResponse");
    }
    let reference = &event["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) = (text(&reference["apiGroup"]), text(&reference["apiVersion"]));
    let resource = text(&reference["resource"]);
    if resource.is_empty() || version.is_empty() {
        return Err("without objectRef");
    }
    // The request of a patch is the patch, so the stored object takes its place.
    let is_patch = event["verb"] == "patch";
    let given = if is_patch {
        &event["responseObject"]
    } else {
        &event["requestObject"]
    };
    let is_object = |value: &Value| value.is_object() && value["kind"] != "Status";
    let object = match operation {
        "DELETE" => &event["responseObject"],
        _ => given,
    };
    let answer = answer(&event)?;
    if !is_object(object) {
        return Err(if operation == "DELETE" {
            "a deletion without the object"
        } else if is_patch {
            "a patch without its result"
        } else {
            "without the object"
        });
    }
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // kube-apiserver fills in managed fields after admission.
        metadata.remove("managedFields");
        if let Some(namespace) = reference["namespace"].as_str() {
            metadata
                .entry("namespace")
                .or_insert_with(|| namespace.into());
        }
    }
    let kind = json!({ "group": group, "version": version, "kind": object["kind"] });
    let of_resource = json!({ "group": group, "version": version, "resource": resource });
    let user = match &event["impersonatedUser"] {
        Value::Null => &event["user"],
        user => user,
    };
    let (new, old) = match operation {
        "DELETE" => (Value::Null, object),
        _ => (object, Value::Null),
    };
    let name = match &reference["name"] {
        Value::Null => new["metadata"]["name"].clone(),
        name => name.clone(),
    };
    let mut request = json!({
        "uid": event["auditID"],
        "kind": kind,
        "resource": of_resource,
        "requestKind": kind,
        "requestResource": of_resource,
        "operation": operation,
        "userInfo": user,
        "object": new,
        "oldObject": old,
        "dryRun": text(&event["requestURI"]).contains("dryRun=All"),
        "options": null,
    });
    for (key, value) in [
        ("name", name),
        ("namespace", reference["namespace"].clone()),
        ("subResource", reference["subresource"].clone()),
    ] {
        if !value.is_null() {
            request[key] = value;
        }
    }
    let time = parse_timestamp(event["requestReceivedTimestamp"].as_str());
    Ok(Rebuilt {
        review: json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": request,
        }),
        answer,
        time: time.ok_or("without requestReceivedTimestamp")?,
    })
}

/// Returns the answer that the event tells about, or why nothing is known about admission.
fn answer(event: &Value) -> Result<Value, &'static str> {
    let status = &event["responseStatus"];
    let code = status["code"].as_u64().unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    let uid = &event["auditID"];
    if code < 300 {
        return Ok(json!({ "uid": uid, "allowed": true }));
    }
    if DENIED.contains(&code) && message.starts_with(BY_WEBHOOK) {
        return Ok(json!({
            "uid": uid,
            "allowed": false,
            "status": { "code": code, "message": message },
        }));
    }
    Err("failed for another reason than admission")
}

fn is_audit(version: &Value) -> bool {
    version
        .as_str()
        .is_some_and(|version| version.starts_with("audit.k8s.io/"))
}

#[cfg(test)]
mod tests;
