//! Verifies the files of a repository, with the network or without.

use futures_util::FutureExt as _;
use jiff::Timestamp;
use sigstore_tuf::transport::FetchFuture;
use sigstore_tuf::{
    Error, MetadataStore as _, Repository, Role as _, TrustedMetadataSet, Updater, UpdaterConfig,
};
use time::OffsetDateTime;
use tollgate_config::{TufSource, format_duration};

use super::kept::{Files, Shelf};
use super::timestamp;
use crate::signature;

/// A trusted root that follows from the pinned root of its repository.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The trusted root.
    pub(super) text: String,
    /// When the first role expires.
    pub(super) expires: OffsetDateTime,
    /// The role that expires first.
    pub(super) expires_first: &'static str,
    versions: Versions,
}

/// The versions of the roles, in the order in which they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Versions {
    pub(super) root: u64,
    pub(super) timestamp: u64,
    pub(super) snapshot: u64,
    pub(super) targets: u64,
}

/// Answers with kept files, as their repository would.
struct Offline(Shelf);

/// Maximum size of a trusted root, in bytes. That of Sigstore's public instance has about ten thousand.
const MAX_TARGET_BYTES: u64 = 4 << 20;

/// Gets newer files from a repository, and verifies them.
pub(super) async fn update(
    repository: impl Repository + 'static,
    pinned: &[u8],
    files: &Shelf,
    target: &str,
) -> Result<(), Error> {
    updated(repository, pinned, files, target, Timestamp::now())
        .await
        .map(drop)
}

/// Refreshes all roles and gets the target, at this time. Returns the roles and the target.
async fn updated(
    repository: impl Repository + 'static,
    pinned: &[u8],
    files: &Shelf,
    target: &str,
    now: Timestamp,
) -> Result<(Updater, Vec<u8>), Error> {
    signature::install_provider();
    let mut updater = Updater::new(repository, pinned)?
        .with_config(limits())
        .with_store(files.clone());
    updater.refresh(now).await?;
    let bytes = updater.get_target(target, now).await?;
    Ok((updater, bytes))
}

fn limits() -> UpdaterConfig {
    let mut limits = UpdaterConfig::default();
    limits.target_max_length = MAX_TARGET_BYTES;
    limits
}

// === impl Offline ===

impl Repository for Offline {
    /// Kept files have no version in their names. The caller compares the version in the file with the requested one.
    fn fetch_metadata<'a>(&'a self, name: &'a str, _: u64) -> FetchFuture<'a> {
        let versioned = name.split_once('.');
        let versioned =
            versioned.filter(|(version, _)| version.bytes().all(|byte| byte.is_ascii_digit()));
        let name = versioned.map_or(name, |(_, name)| name);
        // The chain of roots was followed already, from the kept files.
        let file = match name {
            "root.json" => Ok(None),
            name => self.0.load(name),
        };
        Box::pin(std::future::ready(file))
    }

    /// A target is kept under its own name, where it was looked for already.
    fn fetch_target<'a>(&'a self, _: &'a str, _: u64) -> FetchFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

// === impl Verified ===

impl Verified {
    /// Verifies kept files from the pinned root. The time of expiry is not checked here: the caller decides how long an
    /// expired set counts.
    pub(super) fn of(files: &Files, pinned: &[u8], target: &str) -> Result<Self, Error> {
        let shelf = Shelf::of(files.clone());
        let updating = updated(
            Offline(shelf.clone()),
            pinned,
            &shelf,
            target,
            Timestamp::MIN,
        );
        let (updater, bytes) = updating
            .now_or_never()
            .unwrap_or_else(|| Err(Error::transport("a kept file is not at hand")))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::Malformed(format!("{target} is not UTF-8 text")))?;
        let roles = updater.trusted();
        let (expires_first, expires) = first_to_expire(roles)?;
        let expires = OffsetDateTime::from_unix_timestamp(expires.as_second())
            .map_err(|error| Error::Malformed(error.to_string()))?;
        Ok(Self {
            text,
            expires,
            expires_first,
            versions: Versions {
                root: roles.root().version,
                timestamp: roles.timestamp().map_or(0, |role| role.version),
                snapshot: roles.snapshot().map_or(0, |role| role.version),
                targets: roles.targets_role("targets").map_or(0, |role| role.version),
            },
        })
    }

    pub(super) fn is_older(&self, other: &Self) -> bool {
        self.versions < other.versions
    }

    /// Checks that no role of another set has an older version than here. Under a newer root, versions may begin anew.
    pub(super) fn check_older_than(&self, other: &Self) -> Result<(), Error> {
        let (own, other) = (self.versions, other.versions);
        let roles = [
            ("root", own.root, other.root),
            ("timestamp", own.timestamp, other.timestamp),
            ("snapshot", own.snapshot, other.snapshot),
            ("targets.json", own.targets, other.targets),
        ];
        let counted = match other.root > own.root {
            true => &roles[..1],
            false => &roles[..],
        };
        match counted.iter().find(|(_, trusted, new)| new < trusted) {
            None => Ok(()),
            Some((role, trusted, new)) => Err(Error::Rollback {
                role: (*role).to_owned(),
                trusted: *trusted,
                new: *new,
            }),
        }
    }

    /// The time until which the set counts, with `signatures.tuf.lastKnownGoodFor`.
    pub(super) fn counts_until(&self, tuf: &TufSource) -> OffsetDateTime {
        let after = time::Duration::try_from(tuf.last_known_good_for);
        self.expires
            .saturating_add(after.unwrap_or(time::Duration::MAX))
    }

    /// Names the source, the versions and the expiry. Completes "the trusted root is …".
    pub(super) fn describe(&self, tuf: &TufSource, failure: Option<&str>) -> String {
        let (url, target) = (&tuf.url, &tuf.target);
        let Versions {
            root,
            timestamp: time,
            snapshot,
            targets,
        } = self.versions;
        let expires = timestamp(self.expires);
        let mut text = format!(
            "{target} of {url}, root {root}, timestamp {time}, snapshot {snapshot}, targets {targets}, expires {expires}"
        );
        if let Some(failure) = failure {
            let until = timestamp(self.counts_until(tuf));
            let after = format_duration(tuf.last_known_good_for);
            text.push_str(&format!(
                "; the refresh failed, and this one counts until {until} ({after} after its {} expires): {failure}",
                self.expires_first
            ));
        }
        text
    }
}

/// The role that expires first, and its time. Delegated roles count as `targets`.
fn first_to_expire(roles: &TrustedMetadataSet) -> Result<(&'static str, Timestamp), Error> {
    let timestamp = roles.timestamp().ok_or(Error::NotRefreshed)?;
    let snapshot = roles.snapshot().ok_or(Error::NotRefreshed)?;
    let mut all = vec![
        ("root", roles.root().expires()),
        ("timestamp", timestamp.expires()),
        ("snapshot", snapshot.expires()),
    ];
    let (mut names, mut known) = (vec!["targets"], 0);
    while let Some(name) = names.get(known).copied() {
        known += 1;
        // A role that was not needed for the target is not loaded.
        let Some(role) = roles.targets_role(name) else {
            continue;
        };
        all.push(("targets", role.expires()));
        let delegated = role.delegations.iter().flat_map(|all| &all.roles);
        for role in delegated {
            if !names.contains(&role.name.as_str()) {
                names.push(&role.name);
            }
        }
    }
    let first = all.into_iter().min_by_key(|(_, expires)| *expires);
    first.ok_or(Error::NotRefreshed)
}
