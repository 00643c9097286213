//! The credentials that answers about images are for.

use std::fmt;

use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use tollgate_admission::images::Login;

/// The credentials with which an answer about an image was found. Only requests with the same credentials get the answer.
///
/// The digest of the logins is part of every cache key. A request without the login therefore misses the cache, and so does a
/// request with a changed password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The host's own credentials, or none.
    OfHost,
    /// Logins of a Pod.
    OfLogins([u8; 32]),
}

/// Makes digests of logins. Nobody can try passwords against such a digest without the random bytes of the process.
pub(super) struct Salt([u8; 32]);

// === impl Access ===

impl Access {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::OfHost => &[],
            Self::OfLogins(digest) => digest,
        }
    }
}

// === impl Salt ===

impl Salt {
    /// Creates the random bytes. None if the system gives none.
    pub(super) fn new() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The access that logins give, of which there is at least one.
    pub(super) fn access(&self, logins: &[Login]) -> Access {
        let mut digest = Sha256::new();
        digest.update(self.0);
        for login in logins {
            for text in [&login.username, &login.password] {
                // The length in front of each text keeps different lists apart.
                digest.update((text.len() as u64).to_le_bytes());
                digest.update(text.as_bytes());
            }
        }
        Access::OfLogins(digest.finalize().into())
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(username: &str, password: &str) -> Login {
        Login {
            username: username.into(),
            password: password.into(),
        }
    }

    #[test]
    fn access_is_that_of_the_logins() {
        let salt = Salt::new().unwrap();
        let one = salt.access(&[login("a", "bc")]);
        assert_eq!(one, salt.access(&[login("a", "bc")]));
        for other in [
            vec![login("ab", "c")],
            vec![login("a", "bd")],
            vec![login("a", "bc"), login("a", "bc")],
            vec![login("a", ""), login("bc", "")],
        ] {
            assert_ne!(one, salt.access(&other), "{other:?}");
        }
        assert_ne!(one, Salt::new().unwrap().access(&[login("a", "bc")]));
    }
}
