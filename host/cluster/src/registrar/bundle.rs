//! The CAs to register while the CA of a certificate of others changes. Does no IO.
//!
//! cert-manager replaces the CA beside a certificate in one step, and kubelet delivers both to each node at another
//! time. A replica may serve a certificate of the previous CA for minutes. Therefore a CA stays registered for an hour
//! after it has left the file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The CAs of a file, and those that were in it before.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    current: BTreeSet<String>,
    /// CAs that are not in the file any more, with the time when that was found.
    retired: BTreeMap<String, Instant>,
    /// Whether the live CAs of the time before this replica led are known.
    has_adopted: bool,
}

/// How long a CA stays registered that is no longer in the file. kubelet delivers a changed Secret within two minutes.
const OVERLAP: Duration = Duration::from_secs(3_600);
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

// === impl Bundle ===

impl Bundle {
    /// Forgets everything, because another replica leads.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns the CAs to register: the file as it is, and behind it CAs that have retired within the last hour.
    ///
    /// `live` has the bundles that are registered. None means that they are not known. They count only in the first
    /// call, because an earlier leader registered them. A CA that somebody adds later is a foreign change.
    pub(super) fn with(
        &mut self,
        file: &[u8],
        live: Option<&BTreeSet<Vec<u8>>>,
        now: Instant,
    ) -> Vec<u8> {
        let mut gone = std::mem::replace(&mut self.current, authorities(file));
        if let Some(live) = live.filter(|_| !self.has_adopted) {
            gone.extend(live.iter().flat_map(|bundle| authorities(bundle)));
            self.has_adopted = true;
        }
        for authority in gone {
            self.retired.entry(authority).or_insert(now);
        }
        let current = &self.current;
        self.retired.retain(|authority, since| {
            !current.contains(authority) && now.duration_since(*since) < OVERLAP
        });
        let mut bundle = file.to_vec();
        for authority in self.retired.keys() {
            if bundle.last().is_some_and(|byte| *byte != b'\n') {
                bundle.push(b'\n');
            }
            bundle.extend_from_slice(authority.as_bytes());
            bundle.push(b'\n');
        }
        bundle
    }
}

/// Returns the certificates in a text, each as PEM without surrounding white space.
fn authorities(pem: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(pem);
    let mut found = BTreeSet::new();
    let mut rest = &*text;
    while let Some(begin) = rest.find(BEGIN) {
        rest = &rest[begin..];
        let Some(end) = rest.find(END) else {
            break;
        };
        let (authority, after) = rest.split_at(end + END.len());
        found.insert(authority.replace('\r', ""));
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> String {
        format!("{BEGIN}\n{name}\n{END}\n")
    }

    fn names(bundle: &[u8]) -> Vec<String> {
        let names = authorities(bundle).into_iter();
        let names = names.map(|authority| authority.lines().nth(1).unwrap().to_owned());
        names.collect()
    }

    #[test]
    fn file_that_stays_the_same_is_registered_as_it_is() {
        let mut bundle = Bundle::default();
        let file = format!("# by cert-manager\n{}", pem("a"));
        for _ in 0..2 {
            let registered = bundle.with(file.as_bytes(), None, Instant::now());
            assert_eq!(registered, file.as_bytes());
        }
    }

    #[test]
    fn previous_ca_stays_for_an_hour() {
        let mut bundle = Bundle::default();
        let begin = Instant::now();
        let after = |minutes: u64| begin + Duration::from_secs(60 * minutes);
        let mut register =
            |file: &str, minutes| names(&bundle.with(file.as_bytes(), None, after(minutes)));
        assert_eq!(register(&pem("a"), 0), ["a"]);
        // Without an end of line, too.
        assert_eq!(register(pem("b").trim_end(), 10), ["a", "b"]);
        assert_eq!(register(&pem("c"), 30), ["a", "b", "c"]);
        assert_eq!(register(&pem("c"), 69), ["a", "b", "c"]);
        assert_eq!(register(&pem("c"), 70), ["b", "c"]);
        // One that comes back is not retired.
        assert_eq!(register(&pem("b"), 80), ["b", "c"]);
        assert_eq!(register(&pem("b"), 140), ["b"]);
    }

    #[test]
    fn new_leader_keeps_what_the_last_one_registered_and_nothing_later() {
        let live = |name: &str| BTreeSet::from([pem(name).into_bytes()]);
        let mut bundle = Bundle::default();
        let now = Instant::now();
        let file = pem("new");
        let mut register =
            |live: Option<&BTreeSet<Vec<u8>>>| names(&bundle.with(file.as_bytes(), live, now));
        assert_eq!(register(None), ["new"]);
        assert_eq!(register(Some(&live("old"))), ["new", "old"]);
        assert_eq!(register(Some(&live("foreign"))), ["new", "old"]);
        bundle.forget();
        let bundle = bundle.with(file.as_bytes(), Some(&live("new")), now);
        assert_eq!(names(&bundle), ["new"]);
    }
}
