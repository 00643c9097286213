//! Names and passwords: bcrypt hashes in the file, and SHA-256 hashes in memory for passwords that proved correct.
//!
//! A hash that is slow to guess is also slow to check. A correct password is therefore checked only once per version of
//! the file. Slow checks run one at a time, off the threads that serve.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use tollgate_telemetry::metrics::AuthenticationFailure;

use super::{AuthenticationError, Refused, lines, read};

/// Highest accepted bcrypt cost. A check of this cost takes about a second, and nothing can interrupt it.
pub(super) const HIGHEST_COST: u32 = 14;

/// Longest accepted password. bcrypt ignores later bytes, so a longer password would match with any ending.
const LONGEST_PASSWORD_BYTES: usize = 72;

/// The names and passwords that may call.
pub(super) struct Passwords {
    path: PathBuf,
    live: ArcSwap<Accounts>,
    /// Permits one slow check at a time, so that guessing passwords cannot use every processor.
    slow: Semaphore,
}

/// The content of one version of the file.
struct Accounts {
    hashes: HashMap<String, String>,
    /// The SHA-256 of each name's password, once it has proved correct.
    proved: Mutex<HashMap<String, [u8; 32]>>,
}

// === impl Passwords ===

impl Passwords {
    pub(super) fn load(path: &Path) -> Result<Self, AuthenticationError> {
        Ok(Self {
            path: path.to_owned(),
            live: ArcSwap::from_pointee(Accounts::parse(path)?),
            slow: Semaphore::new(1),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.live.load().hashes.len()
    }

    pub(super) fn refresh(&self) -> Result<bool, AuthenticationError> {
        let accounts = Accounts::parse(&self.path)?;
        if accounts.hashes == self.live.load().hashes {
            return Ok(false);
        }
        tracing::info!(file = %self.path.display(), names = accounts.hashes.len(), "loaded changed passwords");
        self.live.store(Arc::new(accounts));
        Ok(true)
    }

    /// Checks `credential`, the Base64 of `name:password`.
    pub(super) async fn admit(&self, credential: &str, deadline: Instant) -> Result<(), Refused> {
        let wrong = Refused::Client(AuthenticationFailure::Basic);
        let decoded = STANDARD.decode(credential).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let (name, password) = decoded
            .as_deref()
            .and_then(|text| text.split_once(':'))
            .filter(|(_, password)| password.len() <= LONGEST_PASSWORD_BYTES)
            .ok_or(wrong)?;
        let accounts = self.live.load_full();
        if accounts.has_proved(name, password) {
            return Ok(());
        }
        let permit = timeout_at(deadline, self.slow.acquire()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Refused::Busy);
        };
        let (name, password) = (name.to_owned(), password.to_owned());
        let checked = spawn_blocking(move || accounts.prove(&name, &password)).await;
        drop(permit);
        if checked.unwrap_or(false) {
            Ok(())
        } else {
            Err(wrong)
        }
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Passwords")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

// === impl Accounts ===

impl Accounts {
    fn parse(path: &Path) -> Result<Self, AuthenticationError> {
        let refused = |line, problem| AuthenticationError::Basic {
            path: path.to_owned(),
            line,
            problem,
        };
        let bytes = read("authentication.basic.file", path)?;
        let mut hashes = HashMap::new();
        for (line, text) in lines(&bytes) {
            let (name, hash) = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.split_once(':'))
                .ok_or_else(|| {
                    refused(
                        Some(line),
                        "is not a name and a hash with a colon between them",
                    )
                })?;
            let parts: bcrypt::HashParts = hash
                .parse()
                .map_err(|_| refused(Some(line), "has a hash that is not bcrypt"))?;
            if parts.get_cost() > HIGHEST_COST {
                return Err(refused(Some(line), "has a hash whose cost is too high"));
            }
            if hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                return Err(refused(Some(line), "repeats the name of an earlier line"));
            }
        }
        if hashes.is_empty() {
            return Err(refused(None, "holds no name with a hash"));
        }
        Ok(Self {
            hashes,
            proved: Mutex::default(),
        })
    }

    fn has_proved(&self, name: &str, password: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(password).into();
        let proved = self.proved.lock().unwrap_or_else(PoisonError::into_inner);
        proved
            .get(name)
            .is_some_and(|hash| hash.ct_eq(&given).into())
    }

    fn prove(&self, name: &str, password: &str) -> bool {
        // Another request may have proved the same password in the meantime.
        if self.has_proved(name, password) {
            return true;
        }
        let known = self.hashes.get(name);
        // Checks a hash for an unknown name too, so that it takes as long as for a known one.
        let Some(hash) = known.or_else(|| self.hashes.values().next()) else {
            return false;
        };
        let right = bcrypt::verify(password, hash).unwrap_or(false) && known.is_some();
        if right {
            let mut proved = self.proved.lock().unwrap_or_else(PoisonError::into_inner);
            proved.insert(name.to_owned(), Sha256::digest(password).into());
        }
        right
    }
}
