//! Objects from kube-apiserver, for as long as they count. Does no IO, and takes the time as a value.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Fetched, Key, Object};

/// What has been read.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Key, (Instant, Fetched)>,
}

/// How long a Secret or a service account counts. A new password takes effect after this time.
const FOUND_FOR: Duration = Duration::from_secs(30);
/// How long an object counts as missing, and kube-apiserver is not asked again after a failure.
const MISSING_FOR: Duration = Duration::from_secs(5);
/// The most objects. A Secret takes at most some hundred KiB, and few take more than one.
const MOST: usize = 512;

impl Cache {
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Fetched> {
        let (at, fetched) = self.entries.get(key)?;
        counts(*at, fetched, now).then(|| fetched.clone())
    }

    pub(super) fn remember(&mut self, key: Key, fetched: Fetched, now: Instant) {
        if self.entries.len() >= MOST && !self.entries.contains_key(&key) {
            self.entries
                .retain(|_, (at, fetched)| counts(*at, fetched, now));
        }
        if self.entries.len() >= MOST && !self.entries.contains_key(&key) {
            // A user can name many Secrets that do not exist, and must not displace those that do.
            let oldest = self.entries.iter().min_by_key(|(_, (at, fetched))| {
                let is_found = matches!(fetched, Ok(Object::Secret(_) | Object::Names(_)));
                (is_found, *at)
            });
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.map(|key| self.entries.remove(&key));
        }
        self.entries.insert(key, (now, fetched));
    }
}

fn counts(at: Instant, fetched: &Fetched, now: Instant) -> bool {
    let lifetime = match fetched {
        Ok(Object::Secret(_) | Object::Names(_)) => FOUND_FOR,
        Ok(Object::Nothing) | Err(_) => MISSING_FOR,
    };
    now.saturating_duration_since(at) < lifetime
}
