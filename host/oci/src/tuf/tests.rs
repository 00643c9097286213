//! The refresh of trusted roots: what a repository may do wrong, and what stays in use then.

mod credentials;
mod interoperation;
mod offline;
mod recorded;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use rcgen::KeyPair;
use tokio::runtime::Runtime;

use super::kept::Kept;
use super::testing::{Answers, Published, Repository, Server, TARGET};
use super::*;
use crate::signature::testing::Sigstore;

/// A client with an own cache, and the repository that it follows.
struct Client {
    folder: tempfile::TempDir,
    roots: Arc<TrustedRoots>,
    tuf: Arc<TufSource>,
    runtime: Runtime,
}

// === impl Client ===

impl Client {
    /// A client of this server. The root that is published first is pinned.
    fn of(repository: &Repository, server: &Server) -> Self {
        Self::pinning(&repository.pinned(), server)
    }

    /// A client of this server, with a pinned root.
    fn pinning(root: &[u8], server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pinned = folder.path().join("root.json");
        std::fs::write(&pinned, root).unwrap();
        let cache = folder.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        Self {
            roots: TrustedRoots::new(Registries::default()),
            tuf: Arc::new(TufSource::new(&cache, &server.url, pinned, TARGET)),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            folder,
        }
    }

    /// The same client after a restart: only the disk is left.
    fn restarted(self) -> Self {
        Self {
            roots: TrustedRoots::new(Registries::default()),
            ..self
        }
    }

    fn with(self, change: impl FnOnce(&mut TufSource)) -> Self {
        let mut tuf = TufSource::clone(&self.tuf);
        change(&mut tuf);
        Self {
            tuf: Arc::new(tuf),
            ..self
        }
    }

    fn refresh(&self) -> RootReport {
        let sources = [self.tuf.clone()];
        let reports = self.runtime.block_on(self.roots.refresh(&sources));
        reports.into_iter().next().unwrap()
    }

    /// Refreshes, and expects a failure with these texts.
    #[track_caller]
    fn fails(&self, texts: &[&str]) {
        let report = self.refresh();
        let Refreshed::Failed(reason) = &report.refreshed else {
            panic!("{report:?}");
        };
        println!("refused: {reason}");
        for text in texts {
            assert!(reason.contains(text), "`{text}` is not in: {reason}");
        }
    }

    /// The text of the trusted root in use.
    fn in_use(&self) -> Result<String, String> {
        let source = self.roots.source(&self.tuf);
        let in_use = source.in_use(OffsetDateTime::now_utc());
        in_use
            .map(|in_use| in_use.verified.text.clone())
            .map_err(|error| chain(&error))
    }

    /// The file that the reconciler watches.
    fn watched(&self) -> Option<String> {
        std::fs::read_to_string(&self.tuf.in_effect).ok()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tuf.folder.join(name)
    }
}

/// Trusted roots that Tollgate can read, each different from all others.
fn trusted_root() -> String {
    Sigstore::new().root().to_string()
}

/// A repository with one trusted root, a server that publishes it, and a client that has it.
fn followed() -> (Repository, String, Server, Client) {
    let first = trusted_root();
    let repository = Repository::new(&first);
    let server = Server::start(&repository.published);
    let client = Client::of(&repository, &server);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert_eq!(client.in_use().as_deref(), Ok(first.as_str()));
    (repository, first, server, client)
}

#[test]
fn follows_a_root_that_was_rotated_twice() {
    let (mut repository, first, server, client) = followed();
    assert_eq!(client.refresh().refreshed, Refreshed::Unchanged);
    repository.rotate();
    repository.rotate();
    let second = trusted_root();
    repository.publish(&second);
    server.publish(&repository.published);
    let report = client.refresh();
    assert_eq!(report.refreshed, Refreshed::Changed);
    let described = report.in_use.unwrap();
    assert!(
        described.contains("root 3, timestamp 2, snapshot 2, targets 2, expires "),
        "{described}"
    );
    assert_ne!(first, second);
    assert_eq!(client.in_use().as_deref(), Ok(second.as_str()));
    assert_eq!(client.watched(), Some(second.clone()));
    // The pinned root is still the first one. A restart follows the chain in the cache.
    let client = client.restarted();
    server.set(Answers::Away);
    assert_eq!(client.in_use(), Ok(second));
}

#[test]
fn refuses_a_root_that_too_few_keys_have_signed() {
    let (mut repository, first, server, client) = followed();
    let old = std::mem::replace(
        &mut repository.root_keys,
        vec![KeyPair::generate().unwrap()],
    );
    repository.root_keys.push(KeyPair::generate().unwrap());
    // One of the old keys, where two must sign.
    repository.publish_root(&[&old[0]]);
    repository.publish(&trusted_root());
    server.publish(&repository.published);
    client.fails(&["signature threshold not met for role root: 1/2 valid signatures"]);
    assert_eq!(client.in_use(), Ok(first));
}

#[test]
fn refuses_a_root_that_skips_a_version_or_pretends_to_be_another() {
    let (repository, first, server, client) = followed();
    let mut published = repository.published.clone();
    published.insert("2.root.json".to_owned(), published["1.root.json"].clone());
    server.publish(&published);
    client.fails(&["root version must increment by one: trusted 1, got 1"]);
    assert_eq!(client.in_use(), Ok(first));
}

#[test]
fn refuses_expired_metadata_and_keeps_the_last_set() {
    for role in ["root", "timestamp", "snapshot", "targets"] {
        let (mut repository, first, server, client) = followed();
        repository.valid.insert(role, time::Duration::seconds(-60));
        repository.rotate();
        repository.publish(&trusted_root());
        server.publish(&repository.published);
        client.fails(&[&format!("{role} metadata expired at")]);
        assert_eq!(client.in_use().as_deref(), Ok(first.as_str()), "{role}");
        assert_eq!(client.watched(), Some(first));
    }
}

#[test]
fn refuses_rolled_back_versions_after_a_restart_too() {
    let (mut repository, _, server, client) = followed();
    let old = repository.published.clone();
    let second = trusted_root();
    repository.publish(&second);
    server.publish(&repository.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    let client = client.restarted();
    // The whole repository of yesterday.
    server.publish(&old);
    client.fails(&["rollback detected for timestamp: trusted version 2 > new version 1"]);
    // A new timestamp for the snapshot of yesterday.
    repository.publish_timestamp(1);
    server.publish(&repository.published);
    client.fails(&[
        "rollback detected for snapshot (via timestamp): trusted version 2 > new version 1",
    ]);
    // A new snapshot of the targets of yesterday.
    repository.versions.targets = 1;
    repository.publish_snapshot();
    server.publish(&repository.published);
    client.fails(&[
        "rollback detected for targets.json (via snapshot): trusted version 2 > new version 1",
    ]);
    assert_eq!(client.in_use(), Ok(second));
}

#[test]
fn refuses_rolled_back_versions_when_the_disk_did_not_take_the_newer_ones() {
    let (mut repository, _, server, client) = followed();
    let old = repository.published.clone();
    let names = ["seen.json", "kept.json", "trusted_root.json"];
    let all = |client: &Client| names.map(|name| std::fs::read(client.path(name)).unwrap());
    let before = all(&client);
    let second = trusted_root();
    repository.publish(&second);
    server.publish(&repository.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    let after = all(&client);
    // As if the disk had been full since then.
    for (name, bytes) in names.iter().zip(&before) {
        std::fs::write(client.path(name), bytes).unwrap();
    }
    server.publish(&old);
    client.fails(&["rollback detected for timestamp: trusted version 2 > new version 1"]);
    assert_eq!(client.in_use().as_deref(), Ok(second.as_str()));
    // What the disk lacks is written again.
    server.publish(&repository.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Unchanged);
    assert_eq!(all(&client), after);
    // Only the complete set is left of it, which another process has kept.
    let client = client.restarted();
    std::fs::write(client.path("seen.json"), &before[0]).unwrap();
    server.publish(&old);
    client.fails(&["rollback detected for timestamp: trusted version 2 > new version 1"]);
    assert_eq!(client.in_use(), Ok(second));
}

#[test]
fn refuses_mixed_files_and_wrong_targets() {
    let (mut repository, first, server, _) = followed();
    let before = repository.published.clone();
    let second = trusted_root();
    repository.publish(&second);
    let target = |published: &Published| {
        let ours = |path: &&String| published[path.as_str()] == second.as_bytes();
        published.keys().find(ours).unwrap().clone()
    };
    let target = target(&repository.published);
    let wrong = second.replacen("example", "exbmple", 1).into_bytes();
    let shorter = second.as_bytes()[1..].to_vec();
    let other_snapshot = repository.published["1.snapshot.json"].clone();
    let other_targets = repository.published["1.targets.json"].clone();
    for (path, text, reason) in [
        (target.as_str(), Some(wrong), "sha256 mismatch"),
        (&target, Some(shorter), "length"),
        (&target, None, "not found"),
        ("2.snapshot.json", Some(other_snapshot), "snapshot.json"),
        (
            "2.targets.json",
            Some(other_targets),
            "does not match snapshot pin 2",
        ),
        ("timestamp.json", None, "timestamp.json not found"),
        (
            "2.targets.json",
            Some(b"{\"signed\": {}".to_vec()),
            "failed to parse JSON",
        ),
    ] {
        let mut published = repository.published.clone();
        match text {
            Some(text) => drop(published.insert(path.to_owned(), text)),
            None => drop(published.remove(path)),
        }
        // A client that has seen none of the files before.
        let client = Client::of(&repository, &server);
        server.publish(&before);
        assert_eq!(client.refresh().refreshed, Refreshed::Changed);
        server.publish(&published);
        client.fails(&[reason]);
        assert_eq!(client.in_use().as_deref(), Ok(first.as_str()), "{path}");
        server.publish(&repository.published);
        assert_eq!(client.refresh().refreshed, Refreshed::Changed);
        assert_eq!(client.in_use().as_deref(), Ok(second.as_str()));
    }
}

#[test]
fn refuses_a_target_that_is_no_trusted_root() {
    let (mut repository, first, server, client) = followed();
    repository.publish("{}");
    server.publish(&repository.published);
    client.fails(&["expected a trusted_root.json of Sigstore (signatures.tuf.target)"]);
    assert_eq!(client.in_use(), Ok(first));
}

#[test]
fn reads_no_endless_body() {
    let (mut repository, first, server, client) = followed();
    repository.rotate();
    repository.publish(&trusted_root());
    for ending in [
        "timestamp.json",
        "root.json",
        "snapshot.json",
        "targets.json",
        TARGET,
    ] {
        let before = server.sent_bytes.load(Ordering::Relaxed);
        server.set(Answers::Endless(repository.published.clone(), ending));
        client.fails(&["a file of the TUF repository has more than"]);
        let sent = server.sent_bytes.load(Ordering::Relaxed) - before;
        // The largest limit is 5 MB, for targets. Sockets hold some more.
        assert!(
            sent < 32 << 20,
            "{ending}: {sent} of 1073741824 bytes were sent"
        );
        println!("{ending}: {sent} of 1073741824 bytes were sent");
        assert_eq!(client.in_use().as_deref(), Ok(first.as_str()));
    }
}

#[test]
fn dials_no_address_that_a_repository_may_not_lead_to() {
    let (_, first, server, client) = followed();
    server.set(Answers::Redirect(
        "http://169.254.169.254/latest/meta-data/",
    ));
    client.fails(&["which Tollgate never dials"]);
    assert_eq!(client.in_use(), Ok(first));
}
