//! An AdmissionReview answer, read as kube-apiserver reads it.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The host's answer.
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) code: Option<u64>,
    pub(super) reason: String,
    pub(super) message: String,
    /// Field and message of each cause.
    pub(super) causes: Vec<(String, String)>,
    pub(super) operations: Vec<Value>,
    /// The object with the patch applied.
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

// === impl Answer ===

impl Answer {
    /// Reads the body of an answer to `review`.
    pub(super) fn read(body: &str, review: &Value) -> anyhow::Result<Self> {
        let answer: Value = serde_json::from_str(body).context("the answer is not JSON")?;
        for key in ["apiVersion", "kind"] {
            anyhow::ensure!(
                answer[key] == review[key],
                "the answer has another {key} than the review: {}",
                answer[key]
            );
        }
        let response = &answer["response"];
        anyhow::ensure!(
            response["uid"] == review["request"]["uid"],
            "the answer has another uid than the review: {}",
            response["uid"]
        );
        let allowed = response["allowed"]
            .as_bool()
            .context("the answer has no verdict")?;
        let operations = operations(response)?;
        let status = &response["status"];
        let causes = status["details"]["causes"].as_array().into_iter().flatten();
        let annotations = response["auditAnnotations"]
            .as_object()
            .into_iter()
            .flatten();
        Ok(Self {
            allowed,
            code: status["code"].as_u64(),
            reason: text(&status["reason"]),
            message: text(&status["message"]),
            causes: causes
                .map(|cause| (text(&cause["field"]), text(&cause["message"])))
                .collect(),
            object: patched(&review["request"]["object"], &operations)?,
            operations,
            warnings: response["warnings"]
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect(),
            annotations: annotations
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
        })
    }

    /// Returns the audit annotation with this key, or an empty text.
    pub(super) fn annotation(&self, key: &str) -> &str {
        let found = self.annotations.iter().find(|(known, _)| known == key);
        found.map_or("", |(_, value)| value.as_str())
    }
}

fn operations(response: &Value) -> anyhow::Result<Vec<Value>> {
    let Some(patch) = response["patch"].as_str() else {
        anyhow::ensure!(
            response["patchType"].is_null(),
            "the answer has a patchType and no patch"
        );
        return Ok(Vec::new());
    };
    anyhow::ensure!(
        response["patchType"] == "JSONPatch",
        "the patchType is {}",
        response["patchType"]
    );
    let patch = STANDARD.decode(patch).context("the patch is not base64")?;
    serde_json::from_slice(&patch).context("the patch is not a JSON array")
}

/// Applies the patch with another implementation than the host's own.
fn patched(object: &Value, operations: &[Value]) -> anyhow::Result<Value> {
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations.to_vec()))
        .context("the patch is not a JSON Patch")?;
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).context("the patch does not apply to the object")?;
    Ok(object)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
