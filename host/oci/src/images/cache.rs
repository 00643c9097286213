//! Answers about images, for as long as the configuration lets them count. Does no IO, and takes the time as a value.
//!
//! The keys are digests, so an entry is small whatever a user names. Verified digests, refusals and tags have room of
//! their own: many unsigned images cannot displace what is known about signed ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tollgate_admission::images::{Answer, Failure, Verified};
use tollgate_config::Reference;

use super::access::Access;

/// The most entries of each kind. The oldest one makes room for the next.
pub(super) const MOST: usize = 10_000;
/// The most bytes of the texts of each kind.
const MOST_BYTES: usize = 4 << 20;
/// How long a registry that has not answered is not asked again about the same.
const PAUSE: Duration = Duration::from_secs(2);

/// The digest of a tag's name, or of a repository, a digest in it, a policy and a trusted root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

/// How long answers count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) verified: Duration,
    pub(super) refused: Duration,
    pub(super) resolved: Duration,
    pub(super) last_known_good: Duration,
}

/// An image and a policy, as the cache knows them.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The key of the tag. None for an image with a digest.
    pub(super) tag: Option<Key>,
    /// The digest that the image has.
    pub(super) pinned: Option<Arc<str>>,
    /// Registry and repository.
    pub(super) repository: Arc<str>,
    /// Who may know the answers.
    pub(super) access: Access,
    pub(super) rules: Rules,
}

/// The rules that an image is verified by, as digests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The policy, with its keys.
    pub(super) policy: [u8; 32],
    /// The trusted root in use. An answer that was found with another one does not count. None if the policy needs none.
    pub(super) root: Option<[u8; 32]>,
}

/// Everything that is known about images.
#[derive(Debug)]
pub(super) struct Cache {
    tags: Bounded<Arc<str>>,
    verified: Bounded<Arc<[Box<str>]>>,
    refused: Bounded<Failure>,
    /// The registries that have not answered lately, by what they were asked about.
    away: Bounded<Arc<str>>,
}

/// A map that forgets its oldest entries. The room that it takes is bounded in entries and bytes.
#[derive(Debug)]
struct Bounded<V> {
    entries: HashMap<Key, Entry<V>>,
    /// The keys in the order in which they were added, with the number of the entry.
    order: VecDeque<(u64, Key)>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    number: u64,
    bytes: usize,
    at: Instant,
    value: V,
}

// === impl Key ===

impl Key {
    fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        // The length in front of each part keeps different lists apart.
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

// === impl Subject ===

impl Subject {
    pub(super) fn new(image: &Reference, rules: Rules, access: Access) -> Self {
        let tag = image.digest.is_none().then(|| {
            let tag = image.tag.as_deref().unwrap_or_default();
            Key::of(&[
                b"tag",
                access.bytes(),
                image.registry.as_bytes(),
                image.repository.as_bytes(),
                tag.as_bytes(),
            ])
        });
        Self {
            tag,
            pinned: image.digest.as_deref().map(Arc::from),
            repository: Arc::from(format!("{}/{}", image.registry, image.repository)),
            access,
            rules,
        }
    }

    /// The key of a digest under the policy and the trusted root.
    pub(super) fn of_digest(&self, digest: &str) -> Key {
        Key::of(&[
            b"digest",
            self.access.bytes(),
            self.repository.as_bytes(),
            digest.as_bytes(),
            &self.rules.policy,
            self.rules.root.as_ref().map_or(&[], |root| &root[..]),
        ])
    }
}

// === impl Cache ===

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            tags: Bounded::new(),
            verified: Bounded::new(),
            refused: Bounded::new(),
            away: Bounded::new(),
        }
    }

    /// Returns the answer, if it counts now without asking a registry.
    pub(super) fn answer(
        &self,
        subject: &Subject,
        lifetimes: Lifetimes,
        now: Instant,
    ) -> Option<Answer> {
        let digest = match self.digest(subject, lifetimes, now) {
            Some(digest) => digest,
            None => {
                let tag = subject.tag.as_ref()?;
                if let Some(missing) = self.refused.within(tag, lifetimes.refused, now) {
                    return Some(Err(missing.clone()));
                }
                let reason = self.away.within(tag, PAUSE, now)?;
                return Some(self.last_known_good(subject, lifetimes, reason, now));
            }
        };
        let key = subject.of_digest(&digest);
        if let Some(signers) = self.verified.within(&key, lifetimes.verified, now) {
            return Some(Ok(Verified {
                digest,
                signers: signers.clone(),
                last_known_good: false,
            }));
        }
        if let Some(refusal) = self.refused.within(&key, lifetimes.refused, now) {
            return Some(Err(refusal.clone()));
        }
        let reason = self.away.within(&key, PAUSE, now)?;
        Some(self.last_known_good(subject, lifetimes, reason, now))
    }

    /// Returns the digest of an image, if the registry need not be asked.
    pub(super) fn digest(
        &self,
        subject: &Subject,
        lifetimes: Lifetimes,
        now: Instant,
    ) -> Option<Arc<str>> {
        if let Some(pinned) = &subject.pinned {
            return Some(pinned.clone());
        }
        let found = self
            .tags
            .within(subject.tag.as_ref()?, lifetimes.resolved, now);
        found.cloned()
    }

    /// Whether a digest need not be judged.
    pub(super) fn is_judged(&self, key: &Key, lifetimes: Lifetimes, now: Instant) -> bool {
        self.verified.within(key, lifetimes.verified, now).is_some()
            || self.refused.within(key, lifetimes.refused, now).is_some()
    }

    /// Returns the answer for when the registry does not give one.
    pub(super) fn last_known_good(
        &self,
        subject: &Subject,
        lifetimes: Lifetimes,
        reason: &str,
        now: Instant,
    ) -> Answer {
        let of_tag = || {
            self.tags
                .within(subject.tag.as_ref()?, lifetimes.last_known_good, now)
        };
        let digest = subject.pinned.as_ref().or_else(of_tag);
        let known = digest.and_then(|digest| {
            let key = subject.of_digest(digest);
            let signers = self.verified.within(&key, lifetimes.last_known_good, now)?;
            Some(Verified {
                digest: digest.clone(),
                signers: signers.clone(),
                last_known_good: true,
            })
        });
        known.ok_or_else(|| Failure::unavailable(reason))
    }

    pub(super) fn resolved(&mut self, tag: Key, digest: Arc<str>, now: Instant) {
        self.refused.remove(&tag);
        self.away.remove(&tag);
        let bytes = digest.len();
        self.tags.insert(tag, digest, bytes, now);
    }

    pub(super) fn verified(&mut self, key: Key, signers: Vec<Box<str>>, now: Instant) {
        self.refused.remove(&key);
        self.away.remove(&key);
        let bytes = signers.iter().map(|signer| signer.len()).sum();
        self.verified.insert(key, signers.into(), bytes, now);
    }

    /// Remembers that a digest is refused, or that a tag is missing. What was good before is not any more.
    pub(super) fn refused(&mut self, key: Key, failure: Failure, now: Instant) {
        self.verified.remove(&key);
        self.tags.remove(&key);
        self.away.remove(&key);
        let bytes = failure.text_bytes();
        self.refused.insert(key, failure, bytes, now);
    }

    pub(super) fn away(&mut self, key: Key, reason: &str, now: Instant) {
        let reason = &reason[..reason.floor_char_boundary(1024)];
        self.away.insert(key, Arc::from(reason), reason.len(), now);
    }
}

// === impl Bounded ===

impl<V> Bounded<V> {
    fn new() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
            bytes: 0,
        }
    }

    /// Returns a value that is younger than `lifetime`.
    fn within(&self, key: &Key, lifetime: Duration, now: Instant) -> Option<&V> {
        let entry = self.entries.get(key)?;
        (now.saturating_duration_since(entry.at) < lifetime).then_some(&entry.value)
    }

    fn insert(&mut self, key: Key, value: V, bytes: usize, at: Instant) {
        self.remove(&key);
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        let entry = Entry {
            number,
            bytes,
            at,
            value,
        };
        self.entries.insert(key, entry);
        self.order.push_back((number, key));
        while self.entries.len() > MOST || self.bytes > MOST_BYTES || self.order.len() > 2 * MOST {
            let Some((number, key)) = self.order.pop_front() else {
                return;
            };
            // The key may have been added again since then.
            if self
                .entries
                .get(&key)
                .is_some_and(|entry| entry.number == number)
            {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests;
