//! Checks whether an answer is correct.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::documents::UID;

/// The expected content of every answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Expected {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Number of operations in the patch. 0 means that there is no patch.
    pub operations: usize,
}

/// An operation of a patch.
pub type PatchOperation = Value;

/// An answer that was found correct. All other answers to the same review must equal it.
pub(super) struct Reference {
    body: Vec<u8>,
    patch: Vec<PatchOperation>,
}

// === impl Reference ===

impl Reference {
    pub(super) fn read(body: &[u8], expected: &Expected) -> anyhow::Result<Self> {
        let shown = || String::from_utf8_lossy(&body[..body.len().min(2_000)]).into_owned();
        let review: Value =
            serde_json::from_slice(body).with_context(|| format!("not JSON: {}", shown()))?;
        let response = &review["response"];
        anyhow::ensure!(
            response["uid"] == UID,
            "the answer has another uid than the review: {}",
            shown()
        );
        anyhow::ensure!(
            response["allowed"] == expected.allowed,
            "expected `allowed` to be {}: {}",
            expected.allowed,
            shown()
        );
        let patch = patch(&response["patch"])?;
        anyhow::ensure!(
            patch.len() == expected.operations,
            "expected a patch with {} operations, found {}: {}",
            expected.operations,
            patch.len(),
            shown()
        );
        Ok(Self {
            body: body.to_vec(),
            patch,
        })
    }

    pub(super) fn check(&self, body: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.body == body,
            "the same review got different answers: {} and {}",
            String::from_utf8_lossy(&self.body),
            String::from_utf8_lossy(body)
        );
        Ok(())
    }

    pub(super) fn into_patch(self) -> Vec<PatchOperation> {
        self.patch
    }
}

fn patch(text: &Value) -> anyhow::Result<Vec<PatchOperation>> {
    let Some(text) = text.as_str() else {
        return Ok(Vec::new());
    };
    let json = STANDARD.decode(text).context("the patch is not base64")?;
    serde_json::from_slice(&json).context("the patch is not a list of operations")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(allowed: bool, patch: Option<&Value>) -> Vec<u8> {
        let mut response = json!({ "uid": UID, "allowed": allowed });
        if let Some(patch) = patch {
            response["patch"] = STANDARD.encode(patch.to_string()).into();
        }
        json!({ "response": response }).to_string().into_bytes()
    }

    fn read(body: &[u8], allowed: bool, operations: usize) -> Result<Reference, String> {
        let expected = Expected {
            allowed,
            operations,
        };
        Reference::read(body, &expected).map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_answer_with_expected_verdict_and_patch() {
        let patch = json!([{ "op": "remove", "path": "/a" }]);
        let body = answer(true, Some(&patch));
        let reference = read(&body, true, 1).unwrap();
        assert!(reference.check(&body).is_ok());
        assert!(reference.check(&answer(true, None)).is_err());
        assert_eq!(json!(reference.into_patch()), patch);
    }

    #[test]
    fn rejects_wrong_verdict_or_patch() {
        assert!(read(&answer(false, None), false, 0).is_ok());
        assert!(read(&answer(false, None), true, 0).is_err());
        assert!(read(&answer(true, None), true, 1).is_err());
        assert!(read(b"overloaded", true, 0).is_err());
        assert!(read(br#"{"response":{"uid":"1","allowed":true}}"#, true, 0).is_err());
    }
}
