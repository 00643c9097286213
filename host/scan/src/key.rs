//! Keys: short hashes of what a result depends on.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The first half of a SHA-256 over texts. The keys of a plugin's results change when anything changes that they depend
/// on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key([u8; Key::BYTES]);

// === impl Key ===

impl Key {
    const BYTES: usize = 16;

    /// Hashes texts. Their lengths are part of the hash, so two lists of texts never run into each other.
    #[must_use]
    pub fn of(texts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for text in texts {
            hash.update(text.len().to_le_bytes());
            hash.update(text.as_bytes());
        }
        let mut key = Self([0; Self::BYTES]);
        for (own, byte) in key.0.iter_mut().zip(hash.finalize()) {
            *own = byte;
        }
        key
    }

    /// Returns the first eight bytes as a number.
    #[must_use]
    pub fn number(self) -> u64 {
        let bytes = self.0.iter().take(8);
        bytes.fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }
}

/// Writes hexadecimal digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digit = |index: usize| text.as_bytes().get(index).map(|&digit| char::from(digit));
        let value = |index: usize| digit(index)?.to_digit(16);
        let mut key = Self([0; Self::BYTES]);
        let mut is_valid = text.len() == 2 * Self::BYTES;
        for (index, byte) in key.0.iter_mut().enumerate() {
            match (value(2 * index), value(2 * index + 1)) {
                (Some(high), Some(low)) => {
                    *byte = u8::try_from(high * 16 + low).unwrap_or_default()
                }
                _ => is_valid = false,
            }
        }
        is_valid
            .then_some(key)
            .ok_or_else(|| format!("expected {} hexadecimal digits", 2 * Self::BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_digits_and_read_again() {
        let key = Key::of(&["a", "b"]);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text.len(), 34);
        assert_eq!(serde_json::from_str::<Key>(&text).unwrap(), key);
        for wrong in ["\"\"", "\"zz\"", "7"] {
            assert!(serde_json::from_str::<Key>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_do_not_run_into_each_other() {
        assert_ne!(Key::of(&["ab", "c"]), Key::of(&["a", "bc"]));
        assert_ne!(Key::of(&["a"]), Key::of(&["a", ""]));
    }
}
