//! Plugins as artifacts in OCI registries: pulled by digest, within limits, and cached for when the registry is
//! unavailable.
//!
//! ```text
//! reference ─ tag? ─▶ manifest: read up to a limit; from here on its digest decides which plugin runs
//!   → signed as the policy of its repository requires, if there are policies
//!   → one layer of WebAssembly, not larger than allowed
//!   → its bytes, from the cache or the registry, counted on arrival and compared with their digest
//! ```
//!
//! Tollgate trusts a registry only as far as digests prove its answers. A registry may be slow, may lie about sizes,
//! and may lead to harmful addresses. For this reason Tollgate does not use the crate `oci-client`, and speaks HTTP to
//! registries itself. With `oci-client`, the registry decides how large a manifest or a token is, and Tollgate cannot
//! check the address that a redirect dials.

mod address;
mod cache;
mod causes;
mod credentials;
mod describe;
#[doc(hidden)]
pub mod fuzzing;
mod helper;
mod images;
mod last_good;
mod link;
mod manifest;
mod patience;
mod private;
mod referrers;
mod session;
mod signature;
mod transport;
mod tuf;
mod verification;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use tokio::time::timeout;
use tollgate_admission::chain;
use tollgate_config::stamp::Stamp;
use tollgate_config::{Reference, Registries, SignatureRequirement, Signatures, Source, TufSource};

pub use address::AddressError;
pub use cache::Hold;
pub use causes::{
    AuthoritiesProblem, ChallengeError, ConnectionError, KeysProblem, RootProblem, SetupError,
    TufProblem,
};
pub use describe::Described;
pub use images::{BoundImages, ImageObserver, Images};
pub use last_good::{LastGood, Served};
pub use manifest::ArtifactError;
pub use patience::{Patience, Start};
pub use signature::Found;
pub use tuf::{Refreshed, RootReport, TrustedRoots};
pub use verification::Signed;

use cache::{Cache, digest_of};
use helper::Helpers;
use manifest::{Descriptor, Manifest, OCI_MANIFEST, WASM_CONFIG, WASM_LAYER};
use session::{Host, Session};
use signature::Trust;

/// A client for registries, with its configuration and its cache.
pub struct Registry {
    config: Registries,
    cache: Option<Cache>,
    /// Whether the log already says that the cache has to exceed its limit.
    logged_exceeded: AtomicBool,
    hosts: Mutex<HashMap<String, Known>>,
    /// The running credential helpers. A change of a registry's CAs does not affect them.
    helpers: Helpers,
    progress: Option<Arc<dyn Progress>>,
    roots: Arc<TrustedRoots>,
}

/// A registry's host, with the stamp of the CA file that it was set up with.
type Known = (Option<Stamp>, Arc<Host>);

/// Receives the progress of transfers.
pub trait Progress: Send + Sync {
    /// A request is about to be sent, to the registry or to where it leads.
    fn requested(&self) {}
    /// A download of this many bytes begins.
    fn pulling(&self, total_bytes: u64);
    /// An upload of this many bytes begins.
    fn pushing(&self, total_bytes: u64);
    /// This many further bytes have arrived.
    fn received(&self, bytes: u64);
    /// The transfer has ended, with or without success.
    fn done(&self);
}

/// An order to pull a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Order<'o> {
    /// The reference of the plugin.
    pub reference: &'o Reference,
    /// The signatures and attestations that the artifact must have.
    pub signatures: &'o Signatures,
    /// The digest that the caller already has, under the same policies. If it is still current, nothing more is pulled.
    pub have: Option<&'o str>,
    /// Maximum size of the plugin, in bytes.
    pub limit_bytes: u64,
}

/// The result of a pull.
#[derive(Debug)]
pub struct Pulled {
    /// Digest of the manifest, which names the plugin's bytes by their digest.
    pub digest: String,
    /// The bytes of the plugin; `None` if the caller already has them.
    pub bytes: Option<Vec<u8>>,
    /// The reason why the plugin comes from the cache. In that case it is the version of the registry's last answer.
    pub stale: Option<String>,
    /// Keeps the artifact in the cache.
    pub hold: Hold,
}

/// The part of an artifact that the cache has.
enum Cached {
    /// The whole artifact, under this digest.
    Whole { digest: String, bytes: Vec<u8> },
    /// An artifact that does not meet its current policy.
    Unsigned(Box<RegistryError>),
    /// No artifact, or an incomplete one.
    Nothing,
}

/// An error of a pull or a push.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry cannot be reached, or it broke off the connection.
    #[error("{host}")]
    Unreachable {
        /// The registry.
        host: String,
        /// The problem.
        source: ConnectionError,
    },
    /// The transfer took longer than `registries.timeout`.
    #[error("{host}: no complete answer within {seconds} s (registries.timeout)")]
    TooSlow {
        /// The registry.
        host: String,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The list of referrers took too long, and what was read of it does not meet the policy.
    #[error("{host}: no signature that meets the policy was found in time: {unread}")]
    ListTooSlow {
        /// The registry.
        host: String,
        /// How much of the list was read.
        unread: String,
    },
    /// The pull took longer than a start waits if another version can serve meanwhile.
    #[error(
        "{host}: no complete answer within {seconds} s; a start waits no longer if another version can serve"
    )]
    Later {
        /// The registry.
        host: String,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// An earlier request to the registry, for another plugin, has failed.
    #[error("{0}")]
    Away(String),
    /// The registry led to an address that Tollgate does not dial.
    #[error("{host}")]
    Refused {
        /// The registry that led to the address.
        host: String,
        /// The address, and the reason why it is not dialled.
        source: AddressError,
    },
    /// The registry answered with an error status.
    #[error("{host}: answered {status} to {method} {path}{hint}")]
    Status {
        /// The registry.
        host: String,
        /// The status of the answer.
        status: StatusCode,
        /// The method of the request.
        method: Method,
        /// The path of the request.
        path: String,
        /// Advice on how to solve the problem; empty if there is none.
        hint: &'static str,
    },
    /// The registry asks for credentials in an unknown or dangerous way.
    #[error("{host}: cannot authenticate")]
    Challenge {
        /// The registry.
        host: String,
        /// The problem.
        source: ChallengeError,
    },
    /// The credentials cannot be read.
    #[error("failed to read the credentials for the registry: {0}")]
    Credentials(String),
    /// A certificate of `registries.hosts[].ca` cannot be read, or the HTTP client cannot be set up.
    #[error("{host}")]
    Setup {
        /// The registry.
        host: String,
        /// The problem.
        source: SetupError,
    },
    /// The artifact is not a plugin.
    #[error("the artifact is not a plugin")]
    Artifact(#[source] ArtifactError),
    /// A part is larger than allowed.
    #[error("{what} has more than {limit_bytes} bytes ({setting})")]
    TooLarge {
        /// The part that is too large, such as the manifest.
        what: &'static str,
        /// The limit, in bytes.
        limit_bytes: u64,
        /// The setting or the rule that sets the limit.
        setting: &'static str,
    },
    /// A file with keys cannot be used.
    #[error("{}: {problem} (signatures.keys)", .path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: KeysProblem,
    },
    /// The bytes should have come from the cache, which does not have them.
    #[error("{digest} is not in the cache (registries.cacheDirectory)")]
    NotCached {
        /// The digest of the missing bytes.
        digest: String,
    },
    /// A file with a trusted root cannot be used.
    #[error("{}: {problem} (signatures.trustedRoot)", .path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: RootProblem,
    },
    /// The trusted root of a TUF repository cannot be used.
    #[error("the trusted root of {url}: {problem}")]
    Tuf {
        /// The URL of the repository.
        url: String,
        /// The problem.
        problem: TufProblem,
    },
    /// The artifact does not meet the policy of its repository.
    #[error(
        "the artifact {digest} is not signed as the policy {policy} requires: {missing}; found {found}"
    )]
    Unsigned {
        /// Digest of the manifest.
        digest: String,
        /// The name of the policy.
        policy: String,
        /// The rules that are not met, each with its expectation.
        missing: String,
        /// The signatures and attestations that were found.
        found: String,
    },
    /// The registry cannot supply the artifact, and the cached one does not meet its policy.
    #[error("{}; in the cache, {}", chain(.error), chain(.refusal))]
    UnsignedInCache {
        /// The error of the registry.
        error: Box<Self>,
        /// The requirements that the cached artifact does not meet.
        refusal: Box<Self>,
    },
    /// The bytes do not have the requested digest.
    #[error(
        "{what} has the digest {found}, expected {wanted}: it was damaged or replaced in the registry or on the way"
    )]
    Digest {
        /// The part that was requested, such as the manifest.
        what: &'static str,
        /// The requested digest.
        wanted: String,
        /// The digest of the bytes that arrived.
        found: String,
    },
}

/// Maximum size of a manifest, in bytes: the limit of the distribution specification.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;
/// The config of an artifact if the proper config cannot be written.
const EMPTY_CONFIG: &[u8] = b"{}";

// === impl Registry ===

impl Registry {
    /// A client with this configuration.
    #[must_use]
    pub fn new(config: Registries) -> Self {
        let cache = config
            .cache_directory
            .clone()
            .map(|folder: PathBuf| Cache::new(folder, config.max_cache_bytes));
        Self {
            roots: TrustedRoots::new(config.clone()),
            config,
            cache,
            logged_exceeded: AtomicBool::new(false),
            hosts: Mutex::default(),
            helpers: Helpers::default(),
            progress: None,
        }
    }

    /// Reports the progress of transfers to `progress`.
    #[must_use]
    pub fn with_progress(self, progress: Option<Arc<dyn Progress>>) -> Self {
        Self { progress, ..self }
    }

    /// Turns the cache off: everything comes from the registry, and nothing is kept.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Self {
            cache: None,
            ..self
        }
    }

    /// Shares the trusted roots of another client.
    #[must_use]
    pub fn with_roots(self, roots: Arc<TrustedRoots>) -> Self {
        Self { roots, ..self }
    }

    /// The trusted roots that come from TUF repositories.
    #[must_use]
    pub fn roots(&self) -> &Arc<TrustedRoots> {
        &self.roots
    }

    /// Asks the TUF repositories of trusted roots of which nothing usable is kept.
    pub async fn ready_roots(&self, tufs: impl Iterator<Item = &Arc<TufSource>>) {
        self.roots.ready(tufs, self.config.timeout).await;
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
    /// When neither the registry nor the cache has the plugin, or when it does not meet its policy.
    pub async fn pull(&self, order: Order<'_>) -> Result<Pulled, RegistryError> {
        let limit = self.config.timeout;
        let trust = self.trust(order.signatures, order.reference, limit).await?;
        let reference = order.reference;
        let hold = self.hold();
        let pulled = timeout(self.config.timeout, self.try_pull(order, &trust, &hold)).await;
        let error = match pulled {
            Ok(Ok(pulled)) => return Ok(pulled),
            Ok(Err(error)) => error,
            Err(_elapsed) => self.too_slow(&reference.registry),
        };
        self.fall_back(order, &trust, error, hold)
    }

    /// Pulls a plugin during the start, with less patience for the registry.
    ///
    /// 1. The registry gets a short time. If another plugin has already waited that long without success, it gets none.
    /// 2. If the registry fails or the time is over, the cached version is used.
    /// 3. If the time is over, the cache lacks the plugin and no other version can serve meanwhile, the pull continues
    ///    for up to `registries.timeout`.
    pub async fn pull_at_start(
        &self,
        order: Order<'_>,
        start: Start<'_>,
    ) -> Result<Pulled, RegistryError> {
        let (host, limit) = (&order.reference.registry, self.config.timeout);
        let short = patience::SHORT.min(limit);
        let trust = self.trust(order.signatures, order.reference, short).await?;
        let lost = start.patience.is_lost(host, short);
        // A pull that needs no answer from the registry ends without waiting.
        let wait = if lost.is_some() {
            Duration::ZERO
        } else {
            short
        };
        let hold = self.hold();
        let pulling = self.try_pull(order, &trust, &hold);
        tokio::pin!(pulling);
        let error = match timeout(wait, &mut pulling).await {
            Ok(Ok(pulled)) => return Ok(pulled),
            Ok(Err(error)) => {
                if matches!(error, RegistryError::Unreachable { .. }) {
                    start.patience.lose(host, short, &error);
                }
                return self.fall_back(order, &trust, error, hold.clone());
            }
            Err(_elapsed) => lost.unwrap_or_else(|| RegistryError::Later {
                host: host.clone(),
                seconds: short.as_secs(),
            }),
        };
        start.patience.lose(host, short, &error);
        let fallen_back = self.fall_back(order, &trust, error, hold.clone());
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
        self.fall_back(order, &trust, error, hold.clone())
    }

    /// The requirements for an artifact. If the trusted root comes from a TUF repository and nothing usable is kept of it,
    /// asks the repository for up to `limit`.
    async fn trust(
        &self,
        signatures: &Signatures,
        reference: &Reference,
        limit: Duration,
    ) -> Result<Trust, RegistryError> {
        let tuf = match signatures.requirement(reference) {
            SignatureRequirement::Policy(policy) => policy.tuf_source(),
            SignatureRequirement::Nothing | SignatureRequirement::Uncovered => None,
        };
        self.roots.ready(tuf.into_iter(), limit).await;
        Trust::read(signatures, reference, &self.roots)
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
        trust: &Trust,
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
        if let Some(pinned) = reference.digest.as_deref().filter(|pin| have == Some(*pin)) {
            return Ok(unchanged(pinned));
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
            self.verify(&mut session, trust, &digest, &manifest, hold)
                .await?;
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

    /// Returns the cached version of the registry's last answer. If there is none that may serve, returns the error,
    /// and says if the cached version is not signed.
    fn fall_back(
        &self,
        order: Order<'_>,
        trust: &Trust,
        error: RegistryError,
        hold: Hold,
    ) -> Result<Pulled, RegistryError> {
        match self.in_cache(order, trust, &hold) {
            Cached::Whole { digest, bytes } => Ok(Pulled {
                digest,
                bytes: Some(bytes),
                stale: Some(chain(&error)),
                hold,
            }),
            Cached::Unsigned(refusal) if !matches!(error, RegistryError::Unsigned { .. }) => {
                Err(RegistryError::UnsignedInCache {
                    error: Box::new(error),
                    refusal,
                })
            }
            Cached::Unsigned(_) | Cached::Nothing => Err(error),
        }
    }

    /// The cached artifact, if it is signed as required.
    fn in_cache(&self, order: Order<'_>, trust: &Trust, hold: &Hold) -> Cached {
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
            if let Err(refusal) = Self::is_signed_in(cache, reference, trust, &digest, hold)? {
                return Some(Cached::Unsigned(Box::new(refusal)));
            }
            let manifest = self.cached(hold, &digest, MAX_MANIFEST_BYTES)?;
            let layer = self.plugin_layer(&manifest, limit_bytes).ok()?;
            let bytes = self.cached(hold, &layer.digest, limit_bytes)?;
            Some(Cached::Whole { digest, bytes })
        };
        find().unwrap_or(Cached::Nothing)
    }

    /// Loads the artifact with this digest again. The cache is used first, and the registry only if the cache is
    /// incomplete. The current policies apply in both cases.
    pub async fn recall(
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

    /// The cached artifact with this digest; `None` if it is incomplete or not signed as required today.
    pub fn at_hand(
        &self,
        order: Order<'_>,
        digest: &str,
    ) -> Result<Option<(Vec<u8>, Hold)>, RegistryError> {
        let trust = Trust::read(order.signatures, order.reference, &self.roots)?;
        let reference = by_digest(order.reference, digest);
        let order = Order {
            reference: &reference,
            ..order
        };
        let hold = self.hold();
        Ok(match self.in_cache(order, &trust, &hold) {
            Cached::Whole { bytes, .. } => Some((bytes, hold)),
            Cached::Unsigned(_) | Cached::Nothing => None,
        })
    }

    /// Keeps the bytes of a plugin's file, in case the file is removed.
    pub fn keep(&self, hold: &Hold, digest: &str, bytes: &[u8]) {
        if let Some(cache) = &self.cache {
            cache.keep(hold, digest, bytes);
            cache.shrink();
        }
    }

    /// The bytes that were kept of a plugin's file.
    pub fn kept(&self, digest: &str, limit_bytes: u64) -> Result<(Vec<u8>, Hold), RegistryError> {
        let hold = self.hold();
        let kept = self.cached(&hold, digest, limit_bytes);
        let bytes = kept.ok_or_else(|| RegistryError::NotCached {
            digest: digest.to_owned(),
        })?;
        Ok((bytes, hold))
    }

    /// A hold, which keeps in the cache all digests that are added to it.
    pub fn hold(&self) -> Hold {
        self.cache.as_ref().map(Cache::hold).unwrap_or_default()
    }

    /// Brings the cache back within its limit after other plugins have started to serve. If that is impossible, the log
    /// says so once.
    pub fn tidy(&self) {
        let Some(cache) = &self.cache else {
            return;
        };
        cache.shrink();
        let exceeded = cache.exceeded();
        let was_logged = self
            .logged_exceeded
            .swap(exceeded.is_some(), Ordering::Relaxed);
        if let Some((needed_bytes, max_bytes)) = exceeded.filter(|_| !was_logged) {
            tracing::warn!(
                needed_bytes,
                max_bytes,
                "the artifacts that a restart may need take more than registries.maxCache; keeping them anyway; raise registries.maxCache"
            );
        }
    }

    /// The digests that are needed to serve this version again, including its signatures.
    pub fn needs(&self, served: &Served) -> Vec<String> {
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
        for proof in Self::proofs(cache, reference, &served.digest) {
            needs.extend(layers(&proof));
            needs.push(proof);
        }
        needs
    }

    /// Reads from the cache, and holds the digest there.
    fn cached(&self, hold: &Hold, digest: &str, limit_bytes: u64) -> Option<Vec<u8>> {
        hold.add(digest);
        self.cache.as_ref()?.get(digest, limit_bytes)
    }

    /// Pushes a plugin in the layout of the CNCF's artifact guidance for WebAssembly, with annotations in its manifest.
    /// Returns the digest of the manifest.
    ///
    /// # Errors
    /// When the registry does not accept the plugin.
    pub async fn push(
        &self,
        reference: &Reference,
        wasm: Vec<u8>,
        annotations: BTreeMap<String, String>,
    ) -> Result<String, RegistryError> {
        let mut session = self.session(reference)?;
        let part = |media_type: &str, bytes: &[u8]| Descriptor {
            media_type: media_type.to_owned(),
            digest: digest_of(bytes),
            size: bytes.len() as u64,
            annotations: BTreeMap::new(),
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
            annotations,
        };
        let manifest = serde_json::to_vec(&manifest)
            .map_err(|error| RegistryError::Artifact(ArtifactError::Write(error)))?;
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

    /// The host of a registry. If the CA file has changed, the host is set up again.
    fn host(&self, registry: &str) -> Result<Arc<Host>, RegistryError> {
        let settings = self.config.host(registry);
        // Stamp the file before reading it, so that a change during the read is seen next time.
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

fn by_digest(reference: &Reference, digest: &str) -> Reference {
    Reference {
        digest: Some(digest.to_owned()),
        ..reference.clone()
    }
}

fn too_large(limit_bytes: u64) -> RegistryError {
    RegistryError::TooLarge {
        what: "the plugin",
        limit_bytes,
        setting: "engine.maxPlugin",
    }
}
