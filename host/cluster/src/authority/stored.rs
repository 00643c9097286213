//! The content of the Secret, and the changes that are due by the clock. Does no IO.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use time::OffsetDateTime;
use tollgate_authority::{Authority, IssueError, Leaf, Step, Unreadable, is_leaf_due};

/// The keys of the Secret.
const BUNDLE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_KEY: &str = "next.key";
const LEAF: &str = "tls.crt";
const LEAF_KEY: &str = "tls.key";

/// The data of a Secret.
pub(super) type Data = BTreeMap<String, ByteString>;

/// The content of the Secret.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) authority: Authority,
    pub(super) leaf: Leaf,
}

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoredError {
    /// The Secret does not hold an authority.
    #[error(
        "the Secret holds no usable certificate authority ({0}); delete the Secret, so that Tollgate creates a new one \
         and registers it"
    )]
    Unreadable(#[from] Unreadable),
    /// No certificate can be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// A change of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The authority was created.
    Created,
    /// The authority made a step.
    Authority(Step),
    /// A new certificate was issued.
    Leaf,
}

// === impl Stored ===

impl Stored {
    /// Reads the Secret and makes the change that is due, or creates an authority if there is none.
    pub(super) fn tend(
        data: Option<&Data>,
        names: &[String],
        now: OffsetDateTime,
    ) -> Result<(Self, Vec<Change>), StoredError> {
        let mut changes = Vec::new();
        let data = data.filter(|data| data.contains_key(BUNDLE) || data.contains_key(KEY));
        let (mut authority, leaf) = match data {
            Some(data) => {
                let text = |key| data.get(key).map(|bytes| String::from_utf8_lossy(&bytes.0));
                let bundle = text(BUNDLE).unwrap_or_default();
                let key = text(KEY).unwrap_or_default();
                let authority = Authority::read(&bundle, &key, text(NEXT_KEY).as_deref())?;
                let leaf = text(LEAF).zip(text(LEAF_KEY));
                let leaf = leaf.and_then(|(leaf, key)| Leaf::read(&leaf, &key).ok());
                (authority, leaf)
            }
            None => {
                changes.push(Change::Created);
                (Authority::create(now)?, None)
            }
        };
        while let Some(step) = authority.advance(now)? {
            changes.push(Change::Authority(step));
        }
        // The successor's first certificate is issued at once, so that it is proven long before it must be used.
        let signs_anew = changes.contains(&Change::Authority(Step::SuccessorSigns));
        let leaf = leaf.filter(|leaf| {
            !signs_anew
                && leaf.covers(names)
                && authority.has_issued(leaf)
                && leaf.expiry() > now
                && !is_leaf_due(leaf.expiry(), authority.expiry(), now)
        });
        let leaf = match leaf {
            Some(leaf) => leaf,
            None => {
                changes.push(Change::Leaf);
                authority.issue(names, now)?
            }
        };
        Ok((Self { authority, leaf }, changes))
    }

    /// Writes the content of the Secret.
    pub(super) fn data(&self) -> Data {
        let texts = [
            (BUNDLE, Some(self.authority.bundle_pem())),
            (KEY, Some(self.authority.key_pem())),
            (NEXT_KEY, self.authority.next_key_pem()),
            (LEAF, Some(self.leaf.certificate_pem())),
            (LEAF_KEY, Some(self.leaf.key_pem())),
        ];
        let present = texts
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), ByteString(text?.into_bytes()))));
        present.collect()
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    fn at(days: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::days(20_000 + days)
    }

    fn names() -> Vec<String> {
        ["tollgate.system.svc", "localhost", "127.0.0.1"]
            .map(str::to_owned)
            .into()
    }

    fn tend(data: Option<&Data>, days: i64) -> (Stored, Vec<Change>) {
        Stored::tend(data, &names(), at(days)).expect("usable")
    }

    #[test]
    fn whoever_comes_later_uses_what_is_there() {
        let (stored, changes) = tend(None, 0);
        assert_eq!(changes, [Change::Created, Change::Leaf]);
        let data = stored.data();
        let (again, changes) = tend(Some(&data), 1);
        assert_eq!((again.data(), changes), (data, Vec::new()));
        // A Secret that the chart made without content counts as none.
        assert_eq!(
            tend(Some(&Data::new()), 0).1,
            [Change::Created, Change::Leaf]
        );
    }

    #[test]
    fn serves_a_valid_certificate_of_a_registered_authority_for_twenty_years() {
        let mut data = tend(None, 0).0.data();
        let mut bundles = Vec::new();
        let mut leaves = 0;
        for day in 0..7_300 {
            let (stored, changes) = tend(Some(&data), day);
            leaves += changes
                .iter()
                .filter(|change| **change == Change::Leaf)
                .count();
            assert!(
                stored.leaf.expiry() - at(day) >= Duration::days(29),
                "day {day}"
            );
            data = stored.data();
            bundles.push(data[BUNDLE].clone());
            // The bundle that was registered weeks ago covers the certificate that is served today.
            let before = usize::try_from(day).expect("positive").saturating_sub(25);
            let registered = String::from_utf8_lossy(&bundles[before].0).into_owned();
            assert!(
                registered.contains(&certificate_of_signer(&stored)),
                "day {day}"
            );
        }
        assert!((120..130).contains(&leaves), "{leaves} certificates");
    }

    /// The certificate of the bundle that signs, as PEM.
    fn certificate_of_signer(stored: &Stored) -> String {
        let signer = Authority::read(
            &stored.authority.bundle_pem(),
            &stored.authority.key_pem(),
            None,
        );
        let signer = signer.expect("readable").certificate().clone();
        let leaf = stored.authority.issue(&names(), at(0)).expect("a leaf");
        Leaf {
            certificate: signer,
            key: leaf.key,
        }
        .certificate_pem()
    }

    #[test]
    fn issues_a_certificate_for_other_names_and_for_another_authority() {
        let (stored, _) = tend(None, 0);
        let data = stored.data();
        let more = [names(), vec!["other.system.svc".to_owned()]].concat();
        let (_, changes) = Stored::tend(Some(&data), &more, at(1)).expect("usable");
        assert_eq!(changes, [Change::Leaf]);
        let mut mixed = tend(None, 0).0.data();
        for key in [LEAF, LEAF_KEY] {
            mixed.insert(key.to_owned(), data[key].clone());
        }
        assert_eq!(tend(Some(&mixed), 1).1, [Change::Leaf]);
        mixed.remove(LEAF);
        assert_eq!(tend(Some(&mixed), 1).1, [Change::Leaf]);
    }

    #[test]
    fn refuses_a_broken_authority() {
        let mut data = tend(None, 0).0.data();
        data.insert(KEY.to_owned(), ByteString(b"nonsense".to_vec()));
        let error = Stored::tend(Some(&data), &names(), at(0)).expect_err("refused");
        assert!(error.to_string().contains("delete the Secret"), "{error}");
    }
}
