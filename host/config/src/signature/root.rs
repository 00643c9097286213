//! The trusted root of keyless signatures: a file, or a TUF repository that Tollgate follows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::limit;
use crate::read::{Fields, Node};

/// Where the trusted root of keyless signatures comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedRoot {
    /// A `trusted_root.json` of Sigstore.
    File(PathBuf),
    /// A TUF repository that publishes one.
    Tuf(Arc<TufSource>),
}

/// A TUF repository that publishes a trusted root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TufSource {
    /// The URL of the repository, with a slash at its end. The metadata is there, and the targets are below `targets/`.
    pub url: Box<str>,
    /// The pinned `root.json`, from which every later root must follow.
    pub root: PathBuf,
    /// The name of the target that is the trusted root.
    pub target: Box<str>,
    /// How often Tollgate asks the repository.
    pub refresh_interval: Duration,
    /// How long the trusted root counts after its metadata has expired.
    pub last_known_good_for: Duration,
    /// The folder in the cache that keeps the metadata.
    pub folder: PathBuf,
    /// The file in this folder with the trusted root in effect. It changes when the trusted root does.
    pub in_effect: PathBuf,
}

const DEFAULT_TARGET: &str = "trusted_root.json";
/// The file with the trusted root in effect, in the folder of a source.
const IN_EFFECT: &str = "trusted_root.json";
/// Maximum length of a URL and of a target's name.
const LONGEST: usize = 1024;

const SOURCE_EXPECTED: &str = "an object with url and root";
const URL_EXPECTED: &str = "the URL of a TUF repository, such as https://tuf.example.com/";
const ROOT_EXPECTED: &str = "the path of a root.json that you have verified; Tollgate trusts no root that it has only \
     downloaded";
const TARGET_EXPECTED: &str = "the name of a target, such as trusted_root.json";
const NEEDS_CACHE: &str = "needs registries.cacheDirectory, which keeps the metadata over a restart: without it, an \
     older trusted root could come back";

// === impl TrustedRoot ===

impl TrustedRoot {
    /// Reads `trustedRoot` and `tuf` of a section.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        folder: &Path,
        cache: Option<&Path>,
    ) -> Option<Self> {
        let file = fields.optional("trustedRoot");
        let file = file.and_then(|node| node.path_in(folder));
        let tuf = fields.optional("tuf");
        let tuf = tuf.map(|node| TufSource::read(&node, folder, cache));
        if cache.is_none() && fields.has("tuf") {
            fields.problem("tuf", NEEDS_CACHE);
        }
        if fields.has("trustedRoot") && fields.has("tuf") {
            fields.problem(
                "tuf",
                "expected either trustedRoot or tuf: the trusted root has one source",
            );
        }
        match tuf {
            Some(tuf) => tuf.map(Arc::new).map(Self::Tuf),
            None => file.map(Self::File),
        }
    }

    /// Lists the files whose change is a change of the trusted root.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let (own, in_effect) = match self {
            Self::File(path) => (path, None),
            Self::Tuf(source) => (&source.root, Some(&source.in_effect)),
        };
        std::iter::once(own).chain(in_effect)
    }
}

// === impl TufSource ===

impl TufSource {
    fn read(node: &Node<'_>, folder: &Path, cache: Option<&Path>) -> Option<Self> {
        let mut fields = node.object()?;
        if fields.is_empty() {
            fields.reject(SOURCE_EXPECTED);
        }
        let url = fields
            .required("url", URL_EXPECTED)
            .and_then(|node| read_url(&node));
        let root = fields
            .required("root", ROOT_EXPECTED)
            .and_then(|node| node.path_in(folder));
        let target = match fields.optional("target") {
            Some(node) => read_target(&node),
            None => Some(DEFAULT_TARGET.into()),
        };
        let refresh_interval =
            fields.duration(&limit::TUF_REFRESH, limit::TUF_REFRESH.default_duration());
        let last_known_good_for = fields.duration(
            &limit::TUF_LAST_KNOWN_GOOD,
            limit::TUF_LAST_KNOWN_GOOD.default_duration(),
        );
        fields.finish();
        let source = Self::new(cache?, &url?, root?, &target?);
        Some(source.within(refresh_interval, last_known_good_for))
    }

    /// A repository with the default times, whose metadata is kept in this cache folder.
    #[must_use]
    pub fn new(cache: &Path, url: &str, root: PathBuf, target: &str) -> Self {
        let url = format!("{}/", url.trim_end_matches('/'));
        // The same repository has the same folder, whichever root is pinned: versions must not go back.
        let name = format!("{:x}", Sha256::digest(format!("{url}\n{target}")));
        let folder = cache.join("tuf").join(&name[..32]);
        Self {
            url: url.into(),
            root,
            target: target.into(),
            refresh_interval: limit::TUF_REFRESH.default_duration(),
            last_known_good_for: limit::TUF_LAST_KNOWN_GOOD.default_duration(),
            in_effect: folder.join(IN_EFFECT),
            folder,
        }
    }

    fn within(self, refresh_interval: Duration, last_known_good_for: Duration) -> Self {
        Self {
            refresh_interval,
            last_known_good_for,
            ..self
        }
    }

    /// Returns the host of the URL, with its port if it has one.
    #[must_use]
    pub fn host(&self) -> &str {
        let (_, rest) = self.url.split_once("://").unwrap_or_default();
        rest.split('/').next().unwrap_or_default()
    }

    /// Whether the URL has no TLS. The metadata is signed, so nobody can forge it. Credentials would go over the network in
    /// clear.
    #[must_use]
    pub fn is_plain_http(&self) -> bool {
        self.url.starts_with("http://")
    }
}

fn read_url(node: &Node<'_>) -> Option<Box<str>> {
    let text = node.text(URL_EXPECTED)?;
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split('/').next());
    let is_host = host.is_some_and(crate::registry::is_host_name);
    let is_plain = text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_host || !is_plain || text.contains(['?', '#', '\\']) {
        node.reject(URL_EXPECTED);
        return None;
    }
    Some(text.into())
}

fn read_target(node: &Node<'_>) -> Option<Box<str>> {
    let text = node.text(TARGET_EXPECTED)?;
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let fits = text.len() <= LONGEST && text.bytes().all(is_plain) && text.split('/').all(is_name);
    if !fits {
        node.reject(TARGET_EXPECTED);
    }
    fits.then(|| text.into())
}
