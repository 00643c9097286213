//! Answers about rights, for a short time. Holds digests of questions and no user. Does no IO.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tollgate_admission::access::{Action, Decision, Question};

/// How long an answer counts, from the beginning of the review.
const LIFETIME: Duration = Duration::from_secs(10);
/// The most answers. The oldest one makes room for the next.
const MOST: usize = 4_096;
/// The most bytes of the texts of all answers.
const MOST_BYTES: usize = 1 << 20;

/// The digest of a question: of the user with uid, groups and extra, and of the action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

/// The answers of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Cache {
    answers: HashMap<Key, Remembered>,
    /// The keys in the order in which they were remembered, with the number of the answer. A key is in it as often as it
    /// was remembered.
    order: VecDeque<(Instant, u64, Key)>,
    /// The number of the next answer.
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Remembered {
    number: u64,
    began: Instant,
    decision: Decision,
}

// === impl Key ===

impl Key {
    pub(super) fn of(question: &Question) -> Self {
        let mut digest = Sha256::new();
        // The length in front of each text and each list keeps different questions apart.
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        let user = &question.user;
        add(&user.name);
        add(&user.uid);
        add(&user.groups.len().to_string());
        user.groups.iter().for_each(|group| add(group));
        add(&user.extra.len().to_string());
        for (key, values) in &user.extra {
            add(key);
            add(&values.len().to_string());
            values.iter().for_each(|value| add(value));
        }
        add(match &question.action {
            Action::Resource { .. } => "resource",
            Action::Path { .. } => "path",
        });
        question.action.texts().for_each(&mut add);
        Self(digest.finalize().into())
    }
}

// === impl Cache ===

impl Cache {
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Decision> {
        let remembered = self.answers.get(key)?;
        (now < remembered.began + LIFETIME).then(|| remembered.decision.clone())
    }

    /// Remembers an answer. An answer with an error is not remembered, because the error may be over in a moment.
    pub(super) fn remember(&mut self, key: Key, decision: Decision, began: Instant) {
        if decision.error.is_some() {
            return;
        }
        self.forget(&key);
        self.bytes += decision.text_bytes();
        let number = self.next;
        self.next += 1;
        let remembered = Remembered {
            number,
            began,
            decision,
        };
        self.answers.insert(key.clone(), remembered);
        self.order.push_back((began, number, key));
        while let Some((oldest, ..)) = self.order.front() {
            let is_full = self.answers.len() > MOST || self.bytes > MOST_BYTES;
            let has_expired = began >= *oldest + LIFETIME;
            if !is_full && !has_expired && self.order.len() <= 2 * MOST {
                return;
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, number, key)) = self.order.pop_front() else {
            return;
        };
        // The key may have been remembered again since then.
        let known = self.answers.get(&key);
        if known.is_some_and(|known| known.number == number) {
            self.forget(&key);
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some(known) = self.answers.remove(key) {
            self.bytes -= known.decision.text_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_admission::access::User;

    use super::*;

    fn user(name: &str) -> User {
        User {
            name: name.to_owned(),
            ..User::default()
        }
    }

    fn key(user: User, verb: &str) -> Key {
        Key::of(&Question {
            user: Arc::new(user),
            action: Action::Path {
                verb: verb.to_owned(),
                path: "/metrics".to_owned(),
            },
        })
    }

    fn allowed() -> Decision {
        Decision::new(true, "because", None)
    }

    #[test]
    fn keys_distinguish_everything_that_authorizers_see() {
        let anna = user("anna");
        let variants = [
            key(anna.clone(), "get"),
            key(anna.clone(), "put"),
            key(user("bert"), "get"),
            key(
                User {
                    uid: "7".to_owned(),
                    ..anna.clone()
                },
                "get",
            ),
            key(
                User {
                    groups: vec!["a".to_owned()],
                    ..anna.clone()
                },
                "get",
            ),
            key(
                User {
                    groups: vec!["b".to_owned()],
                    ..anna.clone()
                },
                "get",
            ),
            key(
                User {
                    groups: vec!["a".to_owned(), "b".to_owned()],
                    ..anna.clone()
                },
                "get",
            ),
            key(
                User {
                    groups: vec!["ab".to_owned()],
                    ..anna.clone()
                },
                "get",
            ),
            key(
                User {
                    extra: [("a".to_owned(), vec!["b".to_owned()])].into(),
                    ..anna.clone()
                },
                "get",
            ),
            key(
                User {
                    extra: [("a".to_owned(), vec!["c".to_owned()])].into(),
                    ..anna.clone()
                },
                "get",
            ),
        ];
        for (index, one) in variants.iter().enumerate() {
            for other in &variants[index + 1..] {
                assert_ne!(one, other);
            }
        }
        assert_eq!(key(anna.clone(), "get"), key(anna, "get"));
    }

    #[test]
    fn answer_counts_for_ten_seconds() {
        let began = Instant::now();
        let mut cache = Cache::default();
        cache.remember(key(user("anna"), "get"), allowed(), began);
        let get = |seconds| {
            cache.get(
                &key(user("anna"), "get"),
                began + Duration::from_secs(seconds),
            )
        };
        assert_eq!(get(9), Some(allowed()));
        assert_eq!(get(10), None);
        assert_eq!(cache.get(&key(user("bert"), "get"), began), None);
    }

    #[test]
    fn answers_with_errors_are_not_remembered() {
        let began = Instant::now();
        let mut cache = Cache::default();
        let failed = Decision::new(false, "", Some("the webhook does not answer"));
        cache.remember(key(user("anna"), "get"), failed, began);
        assert_eq!(cache.get(&key(user("anna"), "get"), began), None);
    }

    #[test]
    fn many_users_take_bounded_room() {
        let began = Instant::now();
        let mut cache = Cache::default();
        let of = |index: usize| key(user(&index.to_string()), "get");
        for index in 0..2 * MOST {
            cache.remember(of(index), allowed(), began);
        }
        assert_eq!(cache.answers.len(), MOST);
        assert_eq!(cache.get(&of(0), began), None);
        assert_eq!(cache.get(&of(2 * MOST - 1), began), Some(allowed()));
        // Expired ones make room.
        cache.remember(of(0), allowed(), began + LIFETIME);
        assert_eq!(cache.answers.len(), 1);
        assert_eq!(cache.bytes, allowed().text_bytes());
    }

    #[test]
    fn long_reasons_take_bounded_room() {
        let began = Instant::now();
        let mut cache = Cache::default();
        let long = Decision::new(false, &"a".repeat(1024), None);
        for index in 0..2_000_usize {
            cache.remember(key(user(&index.to_string()), "get"), long.clone(), began);
        }
        assert!(cache.bytes <= MOST_BYTES, "{}", cache.bytes);
    }

    #[test]
    fn remembering_one_key_again_takes_no_more_room() {
        let began = Instant::now();
        let mut cache = Cache::default();
        for _ in 0..10 * MOST {
            cache.remember(key(user("anna"), "get"), allowed(), began);
        }
        assert!(cache.order.len() <= 2 * MOST + 1);
        assert_eq!(cache.bytes, allowed().text_bytes());
    }
}
