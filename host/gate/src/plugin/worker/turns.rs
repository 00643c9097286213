//! Lets one caller at a time do the same work, so that the others find its result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// One turn at a time for each key. Callers with different keys do not wait for each other.
#[derive(Debug)]
pub(super) struct Turns<K>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

// === impl Turns ===

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Turns<K> {
    /// Waits until no other caller has the turn for this key.
    pub(super) async fn enter(&self, key: K) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            match turns.get(&key).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    let turn = Arc::default();
                    turns.insert(key, Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn second_caller_waits_for_the_first() {
        let turns = Turns::default();
        let first = turns.enter(1).await;
        assert!(timeout(SOON, turns.enter(1)).await.is_err());
        drop(first);
        assert!(timeout(SOON, turns.enter(1)).await.is_ok());
    }

    #[tokio::test]
    async fn other_keys_do_not_wait() {
        let turns = Turns::default();
        let _first = turns.enter(1).await;
        assert!(timeout(SOON, turns.enter(2)).await.is_ok());
    }
}
