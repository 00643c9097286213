//! `record`: which reviews the server writes to a folder, for `tollgate replay`.

use std::path::{Path, PathBuf};

use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::Pointer;

use super::Match;
use super::limit;
use super::problem::Collector;
use super::read::{Fields, Node};
use super::rule::read_recorded;

/// The recording of reviews. Off unless the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Folder of the recording.
    pub directory: PathBuf,
    /// Maximum size of all segments in the folder together.
    pub max_bytes: u64,
    /// Maximum size of the reviews that wait to be written.
    pub max_queue_bytes: u64,
    /// Share of the reviews that is recorded, in percent.
    pub share_percent: u32,
    /// Confidential places in objects, in addition to the content of Secrets: JSON Pointers with `*`.
    pub redact: Vec<String>,
    /// The reviews that are recorded, before the share is taken.
    pub matching: Match,
}

const REDACT_EXPECTED: &str =
    "a JSON Pointer into the object, such as /spec/token or /spec/containers/*/env/*/value";

// === impl Record ===

impl Record {
    pub(crate) fn read(node: &Node<'_>, folder: &Path, problems: &Collector) -> Option<Self> {
        let mut fields = node.object()?;
        let directory = fields
            .required("directory", "a folder for the recording")
            .and_then(|node| node.path_in(folder));
        let matching = read_recorded(&mut fields, problems);
        let redact = fields
            .optional("redact")
            .and_then(|node| node.elements("JSON Pointers into the object"));
        let redact = redact.unwrap_or_default();
        let redact = redact.iter().filter_map(|node| {
            let pointer = node.text(REDACT_EXPECTED)?;
            if pointer.is_empty() || Pointer::check(pointer).is_err() {
                node.reject(REDACT_EXPECTED);
                return None;
            }
            Some(pointer.to_owned())
        });
        let redact = redact.collect();
        let record = Self {
            directory: directory.clone().unwrap_or_default(),
            max_bytes: fields.amount(&limit::MAX_RECORDING, limit::MAX_RECORDING.default),
            max_queue_bytes: fields
                .amount(&limit::MAX_RECORD_QUEUE, limit::MAX_RECORD_QUEUE.default),
            share_percent: fields
                .amount_u32(&limit::RECORD_SHARE, limit::RECORD_SHARE.default_u32()),
            redact,
            matching: matching?,
        };
        fields.finish();
        directory.map(|_| record)
    }

    /// Whether a review is recorded. The share goes by a hash of the uid, so it does not depend on the object.
    #[must_use]
    pub fn selects(&self, request: &AdmissionRequest) -> bool {
        self.matching.matching_rule(request).is_some()
            && self.matching.leaves_out(request).is_none()
            && is_in_share(&request.uid, self.share_percent)
    }
}

/// FNV-1a. The uid is random, so any spread of its bytes will do.
pub(crate) fn is_in_share(uid: &str, percent: u32) -> bool {
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) % 100 < u64::from(percent)
}

pub(crate) fn read_record(
    fields: &mut Fields<'_>,
    folder: &Path,
    problems: &Collector,
) -> Option<Record> {
    let node = fields.optional("record")?;
    Record::read(&node, folder, problems)
}

#[cfg(test)]
mod tests {
    use crate::Config;

    use super::*;

    fn parse(record: &str) -> Result<Config, crate::ConfigError> {
        Config::parse(
            &format!("allowEmpty: true\nrecord: {record}"),
            Path::new("/etc/tollgate"),
        )
    }

    fn request(namespace: &str, resource: &str, uid: &str) -> AdmissionRequest {
        let body = serde_json::json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": uid, "operation": "CREATE", "namespace": namespace,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": resource},
            },
        });
        let body = body.to_string();
        let review = tollgate_admission::review::decode::decode(body.as_bytes(), 20);
        review.unwrap().request
    }

    #[test]
    fn records_nothing_unless_told_to() {
        let config = Config::parse("allowEmpty: true", Path::new("."));
        assert_eq!(config.unwrap().record, None);
    }

    #[test]
    fn reads_every_key() {
        let record = parse(
            "{ directory: rec, maxBytes: 1Gi, maxQueue: 4Mi, share: 10, redact: [/spec/token, /spec/a/*/b],
              rules: [{ operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] }],
              namespaces: [shop] }",
        );
        let record = record.unwrap().record.unwrap();
        assert_eq!(record.directory, Path::new("/etc/tollgate/rec"));
        assert_eq!(
            (record.max_bytes, record.max_queue_bytes),
            (1 << 30, 4 << 20)
        );
        assert_eq!(record.redact, ["/spec/token", "/spec/a/*/b"]);
        let chosen = (0..1000).filter(|index| {
            let uid = format!("705ab4f5-6393-11e8-b7cc-{index:012}");
            record.selects(&request("shop", "pods", &uid))
        });
        let chosen = chosen.count();
        assert!((50..150).contains(&chosen), "{chosen}");
        let all = Record {
            share_percent: 100,
            ..record
        };
        assert!(all.selects(&request("shop", "pods", "u")));
        assert!(!all.selects(&request("bank", "pods", "u")));
        assert!(!all.selects(&request("shop", "services", "u")));
    }

    #[test]
    fn records_everything_by_default_except_excluded_namespaces() {
        let record = parse("{ directory: /rec, excludeNamespaces: [kube-system] }");
        let record = record.unwrap().record.unwrap();
        assert!(record.selects(&request("shop", "pods/status", "u")));
        assert!(!record.selects(&request("kube-system", "pods", "u")));
    }

    #[test]
    fn rejects_unusable_keys() {
        let error = parse("{ redact: [spec], share: 0, folder: x }").unwrap_err();
        let text = tollgate_admission::chain(&error);
        for part in [
            "record.directory: missing",
            "record.redact[0]: got \"spec\"",
            "record.share: got 0, expected 1 to 100",
            "record.folder: unknown key",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
