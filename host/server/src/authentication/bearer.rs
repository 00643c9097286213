//! Bearer tokens: kept only as SHA-256 hashes, and compared in constant time.

use std::path::{Path, PathBuf};

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{AuthenticationError, lines, read};

type Hash = [u8; 32];

/// The accepted tokens.
pub(super) struct Tokens {
    path: PathBuf,
    live: ArcSwap<Vec<Hash>>,
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn load(path: &Path) -> Result<Self, AuthenticationError> {
        Ok(Self {
            path: path.to_owned(),
            live: ArcSwap::from_pointee(parse(path)?),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.live.load().len()
    }

    pub(super) fn refresh(&self) -> Result<bool, AuthenticationError> {
        let tokens = parse(&self.path)?;
        if tokens == **self.live.load() {
            return Ok(false);
        }
        tracing::info!(file = %self.path.display(), tokens = tokens.len(), "loaded changed bearer tokens");
        self.live.store(tokens.into());
        Ok(true)
    }

    /// Compares with all tokens, so that the time does not reveal which one matched.
    pub(super) fn accept(&self, token: &str) -> bool {
        let given: Hash = Sha256::digest(token).into();
        let accepted = |found: Choice, hash: &Hash| found | hash.ct_eq(&given);
        self.live
            .load()
            .iter()
            .fold(Choice::from(0), accepted)
            .into()
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tokens")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

fn parse(path: &Path) -> Result<Vec<Hash>, AuthenticationError> {
    let refused = |line, problem| AuthenticationError::Bearer {
        path: path.to_owned(),
        line,
        problem,
    };
    let bytes = read("authentication.bearer.file", path)?;
    let mut tokens = Vec::new();
    for (line, token) in lines(&bytes) {
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(refused(Some(line), "is not a token"));
        }
        tokens.push(Sha256::digest(token).into());
    }
    if tokens.is_empty() {
        return Err(refused(None, "holds no token"));
    }
    Ok(tokens)
}
