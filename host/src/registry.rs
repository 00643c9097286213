//! Plugins as artifacts in OCI registries: pulled by digest, within bounds, and kept for when the registry is away.
//!
//! ```text
//! reference ─ tag? ─▶ manifest: read within bounds, its digest is what runs from here on
//!   → signed with one of the keys, where keys are configured
//!   → one layer of WebAssembly, not larger than allowed
//!   → its bytes, from the cache or the registry, counted while they come, and compared with their digest
//! ```
//!
//! A registry is not trusted with anything but what the digest proves: not to be quick, not to be truthful about sizes,
//! not to lead to harmless addresses. Which is why this speaks HTTP itself: with the crate `oci-client` a manifest or a
//! token has whatever size the registry likes, and nobody can look at the address that a redirect dials.

mod address;
mod cache;
mod credentials;
#[doc(hidden)]
pub mod fuzzing;
mod helper;
mod last_good;
mod manifest;
mod patience;
mod session;
mod signature;
mod transport;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use tokio::time::timeout;

pub use cache::Hold;
pub use last_good::{LastGood, Served};
pub(crate) use patience::{Patience, Start};

use crate::config::{Reference, Registries, Source};
use crate::stamp::Stamp;
use cache::{Cache, digest_of};
use helper::Helpers;
use manifest::{Descriptor, Manifest, OCI_MANIFEST, WASM_CONFIG, WASM_LAYER};
use session::{Host, Session};
use signature::PublicKey;

/// Registries, as they are configured.
pub struct Registry {
    config: Registries,
    cache: Option<Cache>,
    /// Whether it has been said that the cache may not be as large as it has to be.
    told_exceeded: AtomicBool,
    hosts: Mutex<HashMap<String, Known>>,
    /// One at a time for each registry, whatever becomes of its CAs.
    helpers: Helpers,
    progress: Option<Arc<dyn Progress>>,
}

/// A registry as its CAs were when it was set up.
type Known = (Option<Stamp>, Arc<Host>);

/// Somebody who wants to know how far a transfer is.
pub trait Progress: Send + Sync {
    /// So many bytes are to come.
    fn pulling(&self, total_bytes: u64);
    /// So many bytes are on their way out.
    fn pushing(&self, total_bytes: u64);
    /// So many more have come.
    fn came(&self, bytes: u64);
    /// It is over, one way or the other.
    fn done(&self);
}

/// Who has signed an artifact.
#[derive(Debug)]
pub struct Signed {
    /// Of the manifest.
    pub digest: String,
    /// The tag that signatures are under.
    pub tag: String,
    /// The keys that were expected: the beginning of their SHA-256, and the file.
    pub keys: Vec<(String, PathBuf)>,
    /// Each signature: by which of the keys, or what is wrong with it.
    pub found: Vec<Result<String, String>>,
}

/// What is to be pulled.
#[derive(Clone, Copy, Debug)]
pub struct Order<'o> {
    /// From where.
    pub reference: &'o Reference,
    /// PEM files with keys, by one of which it has to be signed; none where it need not be.
    pub keys: &'o [PathBuf],
    /// The digest that the caller has already, under the same keys: nothing more is pulled where it is still that one.
    pub have: Option<&'o str>,
    /// What it may have at most.
    pub limit_bytes: u64,
}

/// What a reference stands for.
#[derive(Debug)]
pub struct Pulled {
    /// Of the manifest: it names the bytes by their digest.
    pub digest: String,
    /// The plugin; none where it is what the caller has already.
    pub bytes: Option<Vec<u8>>,
    /// Why this comes from the cache, as it was when the registry last answered.
    pub stale: Option<String>,
    /// Keeps it in the cache.
    pub hold: Hold,
}

/// What the cache has of a reference.
enum Cached {
    /// All of it, under this digest.
    Whole { digest: String, bytes: Vec<u8> },
    /// None of the keys of today has signed it.
    Unsigned { digest: String },
    /// Nothing, or too little.
    Nothing,
}

/// Why something cannot be pulled or pushed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry cannot be reached, or broke off.
    #[error("{host}: {what}")]
    Unreachable {
        /// Which.
        host: String,
        /// What happened.
        what: String,
    },
    /// It took too long.
    #[error("{host}: it took more than {seconds} s (registries.timeout)")]
    TooSlow {
        /// Which.
        host: String,
        /// The limit.
        seconds: u64,
    },
    /// It took longer than a start waits for what it can do without.
    #[error(
        "{host}: it took more than {seconds} s, and a start waits no longer where something else can serve meanwhile"
    )]
    Later {
        /// Which.
        host: String,
        /// The limit.
        seconds: u64,
    },
    /// What was asked of it for another plugin has failed.
    #[error("{0}")]
    Away(String),
    /// It would have led to an address that is not dialled.
    #[error("{host}: {why}")]
    Refused {
        /// Which registry led there.
        host: String,
        /// To where, and why not.
        why: String,
    },
    /// The registry answered, and not with what was asked for.
    #[error("{host}: it answered {status} to {method} {path}{hint}")]
    Status {
        /// Which.
        host: String,
        /// With what.
        status: StatusCode,
        /// What was asked.
        method: Method,
        /// Of what.
        path: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// It wants to be shown who asks in a way that is not known, or dangerous.
    #[error("{host}: it asks for credentials in a way that cannot be followed: {why}")]
    Challenge {
        /// Which.
        host: String,
        /// What about it.
        why: String,
    },
    /// The credentials cannot be read.
    #[error("the credentials for the registry cannot be read: {0}")]
    Credentials(String),
    /// A certificate of `registries.hosts[].ca` cannot be read, or the client not be set up.
    #[error("{host}: {why}")]
    Setup {
        /// Which.
        host: String,
        /// Why.
        why: String,
    },
    /// What is there is no plugin.
    #[error("it is not a plugin's artifact: {0}")]
    Artifact(String),
    /// More than may be.
    #[error("{what} has more than {limit_bytes} bytes ({setting})")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The limit.
        limit_bytes: u64,
        /// Where it is set.
        setting: &'static str,
    },
    /// A file of keys cannot be used.
    #[error("{}: {why} (signatures.keys)", .path.display())]
    Keys {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It was to come from the cache.
    #[error("{digest} is not in the cache (registries.cacheDirectory)")]
    NotCached {
        /// What.
        digest: String,
    },
    /// Nobody who is trusted has signed it.
    #[error(
        "it is not signed as it has to be: expected a signature of {digest} by one of the keys {keys} (signatures.keys), \
         found {found}"
    )]
    Unsigned {
        /// The manifest's.
        digest: String,
        /// The beginnings of their SHA-256.
        keys: String,
        /// What is there.
        found: String,
    },
    /// The registry does not have it ready, and what the cache has is not to be trusted any more.
    #[error(
        "{error}; the cache has {digest}, which is not signed as it has to be: expected a signature by one of the keys \
         {keys} (signatures.keys)"
    )]
    UnsignedInCache {
        /// What is wrong with the registry.
        error: Box<Self>,
        /// The manifest's.
        digest: String,
        /// The beginnings of their SHA-256.
        keys: String,
    },
    /// Bytes that are not what was asked for.
    #[error(
        "{what} is {found}, and {wanted} was asked for: it was damaged or exchanged on the way"
    )]
    Digest {
        /// What.
        what: &'static str,
        /// What should have come.
        wanted: String,
        /// What came.
        found: String,
    },
}

/// The distribution specification's own bound.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;
/// The config of an artifact that has no more to say.
const EMPTY_CONFIG: &[u8] = b"{}";

// === impl Registry ===

impl Registry {
    /// Registries under a configuration.
    #[must_use]
    pub fn new(config: Registries) -> Self {
        let cache = config
            .cache_directory
            .clone()
            .map(|folder: PathBuf| Cache::new(folder, config.max_cache_bytes));
        Self {
            config,
            cache,
            told_exceeded: AtomicBool::new(false),
            hosts: Mutex::default(),
            helpers: Helpers::default(),
            progress: None,
        }
    }

    /// Tells somebody how far transfers are.
    #[must_use]
    pub fn with_progress(self, progress: Option<Arc<dyn Progress>>) -> Self {
        Self { progress, ..self }
    }

    /// Has everything from the registry itself, and keeps nothing.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Self {
            cache: None,
            ..self
        }
    }

    /// Who has signed an artifact. The artifact itself is not pulled.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub async fn signatures(
        &self,
        reference: &Reference,
        keys: &[PathBuf],
    ) -> Result<Signed, RegistryError> {
        let keys = PublicKey::read(keys)?;
        let looking = self.look_for_signatures(reference, &keys);
        let looked = timeout(self.config.timeout, looking).await;
        looked.unwrap_or_else(|_elapsed| Err(self.too_slow(&reference.registry)))
    }

    async fn look_for_signatures(
        &self,
        reference: &Reference,
        keys: &[PublicKey],
    ) -> Result<Signed, RegistryError> {
        let mut session = self.session(reference)?;
        let (digest, _) = session.manifest(session.name(), MAX_MANIFEST_BYTES).await?;
        if let Some(wanted) = reference
            .digest
            .as_ref()
            .filter(|wanted| **wanted != digest)
        {
            return Err(RegistryError::Digest {
                what: "the manifest",
                wanted: wanted.clone(),
                found: digest,
            });
        }
        let tag = signature::tag(&digest);
        let signatures = match session.manifest(&tag, MAX_MANIFEST_BYTES).await {
            Ok((_, manifest)) => signature::signatures(&manifest)?,
            Err(RegistryError::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut found = Vec::with_capacity(signatures.len());
        for (layer, signature) in signatures {
            if layer.size > signature::MAX_PAYLOAD_BYTES {
                found.push(Err("over a text that is too long".to_owned()));
                continue;
            }
            let payload = session.blob(&layer).await?;
            let verified = signature::verify(keys, &digest, &payload, &signature);
            found.push(verified.map(str::to_owned));
        }
        let keys = keys
            .iter()
            .map(|key| (key.fingerprint.clone(), key.path.clone()));
        Ok(Signed {
            digest,
            tag,
            keys: keys.collect(),
            found,
        })
    }

    fn session<'r>(&'r self, reference: &'r Reference) -> Result<Session<'r>, RegistryError> {
        let host = self.host(&reference.registry)?;
        let progress = self.progress.as_deref();
        let (config, helpers) = (&self.config, &self.helpers);
        Ok(Session::new(host, config, helpers, reference, progress))
    }

    /// Pulls a plugin.
    ///
    /// # Errors
    /// When it cannot be had from the registry, and was not had before either; or when nobody who is trusted has signed it.
    pub async fn pull(&self, order: Order<'_>) -> Result<Pulled, RegistryError> {
        let keys = PublicKey::read(order.keys)?;
        let reference = order.reference;
        let hold = self.hold();
        let pulled = timeout(self.config.timeout, self.try_pull(order, &keys, &hold)).await;
        let error = match pulled {
            Ok(Ok(pulled)) => return Ok(pulled),
            Ok(Err(error)) => error,
            Err(_elapsed) => self.too_slow(&reference.registry),
        };
        self.fall_back(order, &keys, error, hold)
    }

    /// Pulls a plugin of the first set. Where something else can serve meanwhile, its registry is given a short time,
    /// and none when it was waited for already.
    pub(crate) async fn pull_at_start(
        &self,
        order: Order<'_>,
        start: Start<'_>,
    ) -> Result<Pulled, RegistryError> {
        let keys = PublicKey::read(order.keys)?;
        let (host, limit) = (&order.reference.registry, self.config.timeout);
        let short = patience::SHORT.min(limit);
        let lost = start.patience.is_lost(host, short);
        // What needs nothing of the registry is there in no time.
        let wait = if lost.is_some() {
            Duration::ZERO
        } else {
            short
        };
        let hold = self.hold();
        let pulling = self.try_pull(order, &keys, &hold);
        tokio::pin!(pulling);
        let error = match timeout(wait, &mut pulling).await {
            Ok(Ok(pulled)) => return Ok(pulled),
            Ok(Err(error)) => {
                if matches!(error, RegistryError::Unreachable { .. }) {
                    start.patience.lose(host, short, &error);
                }
                return self.fall_back(order, &keys, error, hold.clone());
            }
            Err(_elapsed) => lost.unwrap_or_else(|| RegistryError::Later {
                host: host.clone(),
                seconds: short.as_secs(),
            }),
        };
        start.patience.lose(host, short, &error);
        let fallen_back = self.fall_back(order, &keys, error, hold.clone());
        if fallen_back.is_ok() || start.replaceable {
            return fallen_back;
        }
        let error = match start.patience.is_lost(host, limit) {
            Some(error) => error,
            None => match timeout(limit.saturating_sub(wait), pulling).await {
                Ok(Ok(pulled)) => return Ok(pulled),
                Ok(Err(error)) => {
                    if matches!(
                        error,
                        RegistryError::Unreachable { .. } | RegistryError::Credentials(_)
                    ) {
                        start.patience.lose(host, limit, &error);
                    }
                    error
                }
                Err(_elapsed) => {
                    let error = self.too_slow(host);
                    start.patience.lose(host, limit, &error);
                    error
                }
            },
        };
        self.fall_back(order, &keys, error, hold.clone())
    }

    fn too_slow(&self, host: &str) -> RegistryError {
        RegistryError::TooSlow {
            host: host.to_owned(),
            seconds: self.config.timeout.as_secs(),
        }
    }

    async fn try_pull(
        &self,
        order: Order<'_>,
        keys: &[PublicKey],
        hold: &Hold,
    ) -> Result<Pulled, RegistryError> {
        let Order {
            reference,
            have,
            limit_bytes,
            ..
        } = order;
        let cached = reference
            .digest
            .as_deref()
            .and_then(|digest| Some((digest, self.cached(hold, digest, MAX_MANIFEST_BYTES)?)));
        let unchanged = |digest: &str| Pulled {
            digest: digest.to_owned(),
            bytes: None,
            stale: None,
            hold: hold.clone(),
        };
        if have.is_some() && reference.digest.as_deref() == have {
            return Ok(unchanged(have.unwrap_or_default()));
        }
        let mut session = self.session(reference)?;
        let (digest, manifest) = match cached {
            Some((digest, manifest)) => (digest.to_owned(), manifest),
            None => {
                if let Some(have) = have
                    && session.manifest_digest(session.name()).await?.as_deref() == Some(have)
                {
                    return Ok(unchanged(have));
                }
                session.manifest(session.name(), MAX_MANIFEST_BYTES).await?
            }
        };
        if let Some(wanted) = &reference.digest
            && *wanted != digest
        {
            return Err(RegistryError::Digest {
                what: "the manifest",
                wanted: wanted.clone(),
                found: digest,
            });
        }
        let bytes = if have == Some(&digest) {
            None
        } else {
            if !keys.is_empty() {
                self.verify(&mut session, keys, &digest, hold).await?;
            }
            let layer = self.plugin_layer(&manifest, limit_bytes)?;
            let bytes = match self.cached(hold, &layer.digest, limit_bytes) {
                Some(bytes) => bytes,
                None => session.blob(&layer).await?,
            };
            if let Some(cache) = &self.cache {
                cache.put(hold, &layer.digest, &bytes);
                cache.put(hold, &digest, &manifest);
                cache.shrink();
            }
            Some(bytes)
        };
        if let Some(cache) = &self.cache {
            cache.resolve(&reference.to_string(), &digest);
        }
        Ok(Pulled {
            digest,
            bytes,
            stale: None,
            hold: hold.clone(),
        })
    }

    fn plugin_layer(&self, manifest: &[u8], limit_bytes: u64) -> Result<Descriptor, RegistryError> {
        let manifest = Manifest::read(manifest)?;
        let layer = manifest.plugin()?;
        if layer.size > limit_bytes {
            return Err(too_large(limit_bytes));
        }
        Ok(layer.clone())
    }

    /// Whether one of the keys has signed the manifest of this digest. Its bytes need not have been read for that: what it
    /// names, it names by digests.
    async fn verify(
        &self,
        session: &mut Session<'_>,
        keys: &[PublicKey],
        digest: &str,
        hold: &Hold,
    ) -> Result<(), RegistryError> {
        let tag = signature::tag(digest);
        let (kept, manifest) = match session.manifest(&tag, MAX_MANIFEST_BYTES).await {
            Ok(manifest) => manifest,
            Err(RegistryError::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }) => {
                return Err(unsigned(keys, digest, format!("none, under the tag {tag}")));
            }
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for (layer, signature) in signature::signatures(&manifest)? {
            if layer.size > signature::MAX_PAYLOAD_BYTES {
                found.push("one over a text that is too long".to_owned());
                continue;
            }
            let payload = match self.cached(hold, &layer.digest, layer.size) {
                Some(payload) => payload,
                None => session.blob(&layer).await?,
            };
            match signature::verify(keys, digest, &payload, &signature) {
                Ok(_) => {
                    if let Some(cache) = &self.cache {
                        cache.put(hold, &layer.digest, &payload);
                        cache.put(hold, &kept, &manifest);
                        cache.resolve(&signature_of(session.reference(), digest), &kept);
                    }
                    return Ok(());
                }
                Err(what) => found.push(format!("one {what}")),
            }
        }
        if found.is_empty() {
            found.push(format!("none in what is under the tag {tag}"));
        }
        Err(unsigned(keys, digest, found.join(", ")))
    }

    /// The same by what the cache has, for when the registry is away; none where it has no signature.
    fn is_signed_in(
        cache: &Cache,
        reference: &Reference,
        keys: &[PublicKey],
        digest: &str,
        hold: &Hold,
    ) -> Option<bool> {
        if keys.is_empty() {
            return Some(true);
        }
        let held = |digest: &str, limit_bytes: u64| {
            hold.add(digest);
            cache.get(digest, limit_bytes)
        };
        let kept = cache.resolved(&signature_of(reference, digest))?;
        let manifest = held(&kept, MAX_MANIFEST_BYTES)?;
        let signatures = signature::signatures(&manifest).ok()?;
        let verified = signatures.iter().any(|(layer, signature)| {
            let payload = held(&layer.digest, signature::MAX_PAYLOAD_BYTES);
            payload
                .is_some_and(|payload| signature::verify(keys, digest, &payload, signature).is_ok())
        });
        Some(verified)
    }

    /// What the reference was when the registry last answered; else, the error and what is wrong with that.
    fn fall_back(
        &self,
        order: Order<'_>,
        keys: &[PublicKey],
        error: RegistryError,
        hold: Hold,
    ) -> Result<Pulled, RegistryError> {
        match self.in_cache(order, keys, &hold) {
            Cached::Whole { digest, bytes } => Ok(Pulled {
                digest,
                bytes: Some(bytes),
                stale: Some(error.to_string()),
                hold,
            }),
            Cached::Unsigned { digest } if !matches!(error, RegistryError::Unsigned { .. }) => {
                Err(RegistryError::UnsignedInCache {
                    error: Box::new(error),
                    digest,
                    keys: signature::names(keys),
                })
            }
            Cached::Unsigned { .. } | Cached::Nothing => Err(error),
        }
    }

    /// What is there of it without the registry, signed where it has to be.
    fn in_cache(&self, order: Order<'_>, keys: &[PublicKey], hold: &Hold) -> Cached {
        let Order {
            reference,
            limit_bytes,
            ..
        } = order;
        let find = || -> Option<Cached> {
            let cache = self.cache.as_ref()?;
            let digest = match &reference.digest {
                Some(digest) => digest.clone(),
                None => cache.resolved(&reference.to_string())?,
            };
            if !Self::is_signed_in(cache, reference, keys, &digest, hold)? {
                return Some(Cached::Unsigned { digest });
            }
            let manifest = self.cached(hold, &digest, MAX_MANIFEST_BYTES)?;
            let layer = self.plugin_layer(&manifest, limit_bytes).ok()?;
            let bytes = self.cached(hold, &layer.digest, limit_bytes)?;
            Some(Cached::Whole { digest, bytes })
        };
        find().unwrap_or(Cached::Nothing)
    }

    /// What an artifact was by its digest: from the cache at once, from the registry only where the cache lacks
    /// something. The keys are those of today in either case.
    pub(crate) async fn recall(
        &self,
        order: Order<'_>,
        digest: &str,
        start: Start<'_>,
    ) -> Result<(Vec<u8>, Hold), RegistryError> {
        let reference = by_digest(order.reference, digest);
        let order = Order {
            reference: &reference,
            ..order
        };
        if let Some(found) = self.at_hand(order, digest)? {
            return Ok(found);
        }
        let Pulled { bytes, hold, .. } = self.pull_at_start(order, start).await?;
        let bytes = bytes.ok_or_else(|| RegistryError::NotCached {
            digest: digest.to_owned(),
        })?;
        Ok((bytes, hold))
    }

    /// What the cache has of an artifact, signed as it has to be today.
    pub(crate) fn at_hand(
        &self,
        order: Order<'_>,
        digest: &str,
    ) -> Result<Option<(Vec<u8>, Hold)>, RegistryError> {
        let keys = PublicKey::read(order.keys)?;
        let reference = by_digest(order.reference, digest);
        let order = Order {
            reference: &reference,
            ..order
        };
        let hold = self.hold();
        Ok(match self.in_cache(order, &keys, &hold) {
            Cached::Whole { bytes, .. } => Some((bytes, hold)),
            Cached::Unsigned { .. } | Cached::Nothing => None,
        })
    }

    /// Keeps the bytes of a file, for when the file is gone.
    pub(crate) fn keep(&self, hold: &Hold, digest: &str, bytes: &[u8]) {
        if let Some(cache) = &self.cache {
            cache.keep(hold, digest, bytes);
            cache.shrink();
        }
    }

    /// What was kept of a file.
    pub(crate) fn kept(
        &self,
        digest: &str,
        limit_bytes: u64,
    ) -> Result<(Vec<u8>, Hold), RegistryError> {
        let hold = self.hold();
        let kept = self.cached(&hold, digest, limit_bytes);
        let bytes = kept.ok_or_else(|| RegistryError::NotCached {
            digest: digest.to_owned(),
        })?;
        Ok((bytes, hold))
    }

    /// Keeps what will be added to it in the cache.
    pub(crate) fn hold(&self) -> Hold {
        self.cache.as_ref().map(Cache::hold).unwrap_or_default()
    }

    /// Brings the cache back within its bound, after what served has been replaced, and says once where that cannot be.
    pub(crate) fn tidy(&self) {
        let Some(cache) = &self.cache else {
            return;
        };
        cache.shrink();
        let exceeded = cache.exceeded();
        let told = self
            .told_exceeded
            .swap(exceeded.is_some(), Ordering::Relaxed);
        if let Some((needed_bytes, max_bytes)) = exceeded.filter(|_| !told) {
            tracing::warn!(
                needed_bytes,
                max_bytes,
                "what a start may fall back to is more than registries.maxCache, and is kept all the same: raise it"
            );
        }
    }

    /// The artifacts by which this can be served again, signatures included.
    pub(crate) fn needs(&self, served: &Served) -> Vec<String> {
        let mut needs = vec![served.digest.clone()];
        let (Source::Oci(reference), Some(cache)) = (&served.source, &self.cache) else {
            return needs;
        };
        let layers = |digest: &str| -> Vec<String> {
            let manifest = cache.get(digest, MAX_MANIFEST_BYTES);
            let manifest = manifest.and_then(|bytes| Manifest::read(&bytes).ok());
            let layers = manifest.map(|manifest| manifest.layers).unwrap_or_default();
            layers.into_iter().map(|layer| layer.digest).collect()
        };
        needs.extend(layers(&served.digest));
        if let Some(signatures) = cache.resolved(&signature_of(reference, &served.digest)) {
            needs.extend(layers(&signatures));
            needs.push(signatures);
        }
        needs
    }

    /// From the cache, where it stays.
    fn cached(&self, hold: &Hold, digest: &str, limit_bytes: u64) -> Option<Vec<u8>> {
        hold.add(digest);
        self.cache.as_ref()?.get(digest, limit_bytes)
    }

    /// Pushes a plugin in the layout that the CNCF's artifact guidance for WebAssembly has, and says its digest.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub async fn push(
        &self,
        reference: &Reference,
        wasm: Vec<u8>,
    ) -> Result<String, RegistryError> {
        let mut session = self.session(reference)?;
        let part = |media_type: &str, bytes: &[u8]| Descriptor {
            media_type: media_type.to_owned(),
            digest: digest_of(bytes),
            size: bytes.len() as u64,
            annotations: std::collections::BTreeMap::new(),
        };
        let config = serde_json::json!({
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [digest_of(&wasm)],
        });
        let config = serde_json::to_vec(&config).unwrap_or_else(|_| EMPTY_CONFIG.to_vec());
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            config: Some(part(WASM_CONFIG, &config)),
            layers: vec![part(WASM_LAYER, &wasm)],
        };
        let manifest = serde_json::to_vec(&manifest)
            .map_err(|error| RegistryError::Artifact(error.to_string()))?;
        for bytes in [config, wasm] {
            session
                .push_blob(&digest_of(&bytes), Bytes::from(bytes))
                .await?;
        }
        let digest = digest_of(&manifest);
        session
            .push_manifest(&digest, Bytes::from(manifest))
            .await?;
        Ok(digest)
    }

    /// How a registry is reached, by the CAs of now.
    fn host(&self, registry: &str) -> Result<Arc<Host>, RegistryError> {
        let settings = self.config.host(registry);
        // Before the file is read: what is written meanwhile is seen the next time.
        let stamp = Host::authorities(settings).and_then(|path| Stamp::of(&path));
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((earlier, host)) = hosts.get(registry)
            && *earlier == stamp
        {
            return Ok(host.clone());
        }
        let host = Arc::new(Host::new(registry, settings)?);
        hosts.insert(registry.to_owned(), (stamp, host.clone()));
        Ok(host)
    }
}

// === impl Signed ===

impl Signed {
    /// Whether one of the keys has signed it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.found.iter().any(Result::is_ok)
    }
}

fn unsigned(keys: &[PublicKey], digest: &str, found: String) -> RegistryError {
    RegistryError::Unsigned {
        digest: digest.to_owned(),
        keys: signature::names(keys),
        found,
    }
}

fn by_digest(reference: &Reference, digest: &str) -> Reference {
    Reference {
        digest: Some(digest.to_owned()),
        ..reference.clone()
    }
}

/// What the cache knows the signatures of a manifest by.
fn signature_of(reference: &Reference, digest: &str) -> String {
    let Reference {
        registry,
        repository,
        ..
    } = reference;
    format!("{registry}/{repository}:{}", signature::tag(digest))
}

fn too_large(limit_bytes: u64) -> RegistryError {
    RegistryError::TooLarge {
        what: "the plugin",
        limit_bytes,
        setting: "engine.maxPlugin",
    }
}
