//! Verdicts about tokens, for a short time. Holds digests of tokens and no token. Does no IO.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tollgate_admission::tokens::{Right, TokenVerdict};

/// How long a verdict counts, from the beginning of the review.
const LIFETIME: Duration = Duration::from_secs(10);
/// The most verdicts. Of more tokens within their lifetime, kube-apiserver is asked every time.
const MOST: usize = 1_000;

/// A token and a right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    token: [u8; 32],
    right: Right,
}

/// The verdicts of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Cache {
    verdicts: HashMap<Key, (Instant, TokenVerdict)>,
}

// === impl Key ===

impl Key {
    pub(super) fn of(token: &str, right: Right) -> Self {
        Self {
            token: Sha256::digest(token).into(),
            right,
        }
    }
}

// === impl Cache ===

impl Cache {
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<TokenVerdict> {
        let (began, verdict) = self.verdicts.get(key)?;
        (now < *began + LIFETIME).then(|| verdict.clone())
    }

    /// Remembers a verdict. One that says nothing about the token is not remembered.
    pub(super) fn remember(&mut self, key: Key, verdict: TokenVerdict, began: Instant) {
        if matches!(verdict, TokenVerdict::Unavailable { .. }) {
            return;
        }
        if self.verdicts.len() >= MOST {
            self.verdicts
                .retain(|_, (earlier, _)| began < *earlier + LIFETIME);
        }
        if self.verdicts.len() < MOST {
            self.verdicts.insert(key, (began, verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Right = Right {
        verb: "get",
        path: "/tollgate/decisions",
    };
    const RELOAD: Right = Right {
        verb: "post",
        path: "/tollgate/reload",
    };

    #[test]
    fn verdict_counts_for_ten_seconds_and_for_its_token_and_right() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut cache = Cache::default();
        cache.remember(Key::of("a", READ), TokenVerdict::Allowed, began);
        cache.remember(Key::of("b", READ), TokenVerdict::Forbidden, began);
        let get = |token, right, now| cache.get(&Key::of(token, right), now);
        assert_eq!(get("a", READ, after(9)), Some(TokenVerdict::Allowed));
        assert_eq!(get("a", READ, after(10)), None);
        assert_eq!(get("b", READ, after(9)), Some(TokenVerdict::Forbidden));
        assert_eq!(get("a", RELOAD, after(1)), None);
        assert_eq!(get("c", READ, after(1)), None);
    }

    #[test]
    fn failed_reviews_are_not_remembered() {
        let began = Instant::now();
        let mut cache = Cache::default();
        let verdict = TokenVerdict::Unavailable {
            reason: "kube-apiserver is away".into(),
        };
        cache.remember(Key::of("a", READ), verdict, began);
        assert_eq!(cache.get(&Key::of("a", READ), began), None);
    }

    #[test]
    fn many_tokens_take_bounded_room() {
        let began = Instant::now();
        let mut cache = Cache::default();
        for token in 0..2 * MOST {
            let key = Key::of(&token.to_string(), READ);
            cache.remember(key, TokenVerdict::NotAuthenticated, began);
        }
        assert_eq!(cache.verdicts.len(), MOST);
        assert_eq!(cache.get(&Key::of("1999", READ), began), None);
        // Expired ones make room.
        let later = began + LIFETIME;
        cache.remember(Key::of("new", READ), TokenVerdict::Allowed, later);
        assert_eq!(cache.verdicts.len(), 1);
    }
}
