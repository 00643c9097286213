//! Trusted roots without their repository: after a restart, after their expiry, and from a damaged cache.

use time::Duration as Span;

use super::*;

#[test]
fn a_kept_root_needs_no_network() {
    let (_, first, server, client) = followed();
    let client = client.restarted();
    let before = server.requests.load(Ordering::Relaxed);
    for _ in 0..10 {
        assert!(client.roots.current(&client.tuf).is_ok());
    }
    let ready = client
        .roots
        .ready(std::iter::once(&client.tuf), Duration::from_secs(5));
    client.runtime.block_on(ready);
    assert_eq!(server.requests.load(Ordering::Relaxed), before);
    server.set(Answers::Away);
    let report = client.refresh();
    assert!(
        matches!(report.refreshed, Refreshed::Failed(_)),
        "{report:?}"
    );
    let described = report.in_use.unwrap();
    println!("in use: {described}");
    for text in [
        "root 1, timestamp 1",
        "; the refresh failed, and this one counts until",
        "(168h after its",
    ] {
        assert!(described.contains(text), "{described}");
    }
    assert_eq!(client.in_use(), Ok(first));
    let (expires, is_degraded) = client.roots.summary(std::slice::from_ref(&client.tuf));
    assert!(expires.is_some() && is_degraded);
}

#[test]
fn without_a_kept_root_the_first_use_asks_and_later_ones_wait() {
    let repository = Repository::new(&trusted_root());
    let server = Server::start(&repository.published);
    let client = Client::of(&repository, &server);
    server.set(Answers::Away);
    let ready = |client: &Client| {
        let ready = client
            .roots
            .ready(std::iter::once(&client.tuf), Duration::from_secs(5));
        client.runtime.block_on(ready);
    };
    ready(&client);
    let reason = client.in_use().unwrap_err();
    println!("no root: {reason}");
    for text in [
        &*client.tuf.url,
        "nothing is kept of it in registries.cacheDirectory, and ",
    ] {
        assert!(reason.contains(text), "{reason}");
    }
    // The repository has just failed, so loads do not ask it again.
    let before = server.requests.load(Ordering::Relaxed);
    ready(&client);
    assert_eq!(server.requests.load(Ordering::Relaxed), before);
    let (expires, is_degraded) = client.roots.summary(std::slice::from_ref(&client.tuf));
    assert!(expires.is_none() && is_degraded);
    server.publish(&repository.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert!(client.in_use().is_ok());
}

#[test]
fn an_expired_root_counts_for_the_configured_time() {
    let mut repository = Repository::new(&trusted_root());
    repository.valid.insert("timestamp", Span::seconds(2));
    repository.publish_timestamp(1);
    let server = Server::start(&repository.published);
    let client = Client::of(&repository, &server);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    let source = client.roots.source(&client.tuf);
    let expires = source
        .in_use(OffsetDateTime::now_utc())
        .unwrap()
        .verified
        .expires;
    let week = Span::days(7);
    for (now, is_used) in [
        (expires, true),
        (expires + week, true),
        (expires + week + Span::seconds(1), false),
    ] {
        assert_eq!(source.in_use(now).is_ok(), is_used, "{now}");
    }
    let expired = chain(&source.in_use(expires + week * 2).unwrap_err());
    println!("{expired}");
    assert!(
        expired.contains("its timestamp metadata expired at")
            && expired.contains("counted for 168h"),
        "{expired}"
    );
    let client = client.with(|tuf| tuf.last_known_good_for = Duration::ZERO);
    let source = client.roots.source(&client.tuf);
    assert!(source.in_use(expires).is_ok());
    assert!(source.in_use(expires + Span::seconds(1)).is_err());
}

#[test]
fn half_a_refresh_replaces_nothing_and_counts_against_older_versions() {
    let (mut repository, first, server, client) = followed();
    let old = repository.published.clone();
    repository.publish(&trusted_root());
    let mut published = repository.published.clone();
    published.remove("2.snapshot.json");
    server.publish(&published);
    client.fails(&["2.snapshot.json not found"]);
    let client = client.restarted();
    assert_eq!(client.in_use(), Ok(first));
    server.publish(&old);
    client.fails(&["rollback detected for timestamp"]);
}

#[test]
fn trusts_nothing_in_the_cache() {
    let (repository, first, server, client) = followed();
    let path = client.path("kept.json");
    let kept = std::fs::read_to_string(&path).unwrap();
    for (changed, reason) in [
        (kept.replace("example", "exbmple"), "not found"),
        (
            kept.replace("timestamp.json", "timestamp.jsom"),
            "not found",
        ),
        ("{}".to_owned(), "not found"),
        ("{".to_owned(), "nothing is kept"),
    ] {
        std::fs::write(&path, &changed).unwrap();
        let fresh = TrustedRoots::new(Registries::default());
        let source = fresh.source(&client.tuf);
        let error = chain(&source.in_use(OffsetDateTime::now_utc()).unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
    // Another pinned root, from which nothing in the cache follows.
    std::fs::write(&path, &kept).unwrap();
    let stranger = Repository::new(&first);
    let client = client.restarted();
    std::fs::write(&client.tuf.root, stranger.pinned()).unwrap();
    assert!(
        client
            .in_use()
            .unwrap_err()
            .contains("threshold not met for role timestamp")
            || client.in_use().is_err()
    );
    server.publish(&stranger.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    drop(repository);
}

#[test]
fn a_folder_that_cannot_be_written_still_leaves_the_root_in_memory() {
    let first = trusted_root();
    let repository = Repository::new(&first);
    let server = Server::start(&repository.published);
    let client = Client::of(&repository, &server);
    std::fs::write(client.folder.path().join("cache").join("tuf"), "a file").unwrap();
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert_eq!(client.in_use().as_deref(), Ok(first.as_str()));
    let is_degraded = |client: &Client| client.roots.summary(std::slice::from_ref(&client.tuf)).1;
    assert!(is_degraded(&client), "a restart would lack the root");
    let client = client.restarted();
    assert!(client.in_use().is_err());
    // When the disk takes files again, the next refresh writes them, although the root is the same.
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert!(is_degraded(&client));
    std::fs::remove_file(client.folder.path().join("cache").join("tuf")).unwrap();
    assert_eq!(client.refresh().refreshed, Refreshed::Unchanged);
    assert!(!is_degraded(&client));
    assert_eq!(client.restarted().in_use(), Ok(first));
}

#[test]
fn unchanged_files_are_not_verified_again() {
    let (mut repository, first, server, client) = followed();
    let source = client.roots.source(&client.tuf);
    let in_use = || source.in_use(OffsetDateTime::now_utc()).unwrap();
    let before = in_use();
    assert!(Arc::ptr_eq(&before, &in_use()));
    // A changed file on disk is read, and so is another pinned root.
    let path = client.path("kept.json");
    let kept = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!(" {kept}")).unwrap();
    let after = in_use();
    assert!(!Arc::ptr_eq(&before, &after) && Arc::ptr_eq(&after, &in_use()));
    assert_eq!(after.verified.text, first);
    let stranger = Repository::new(&first).pinned();
    std::fs::write(&client.tuf.root, stranger).unwrap();
    assert!(source.in_use(OffsetDateTime::now_utc()).is_err());
    std::fs::write(&client.tuf.root, repository.pinned()).unwrap();
    // A refresh replaces it at once.
    repository.publish(&trusted_root());
    server.publish(&repository.published);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert_ne!(in_use().verified.text, first);
}

#[test]
fn metadata_for_thousands_of_years_has_an_end() {
    let mut repository = Repository::new(&trusted_root());
    let valid =
        OffsetDateTime::from_unix_timestamp(253_402_171_200).unwrap() - OffsetDateTime::now_utc();
    for role in ["root", "timestamp", "snapshot", "targets"] {
        repository.valid.insert(role, valid);
    }
    repository.rotate();
    repository.publish(&trusted_root());
    let server = Server::start(&repository.published);
    let client = Client::of(&repository, &server);
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    assert!(client.in_use().is_ok());
    server.set(Answers::Away);
    let described = client.refresh().in_use.unwrap();
    assert!(
        described.contains("this one counts until 9999-12-31T"),
        "{described}"
    );
}

#[test]
fn the_kept_set_does_not_grow() {
    let (mut repository, _, server, client) = followed();
    let files = |client: &Client| Files::read(&Kept::of(&client.tuf).complete().unwrap()).unwrap();
    let before: Vec<String> = files(&client)
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    for _ in 0..3 {
        repository.publish(&trusted_root());
        server.publish(&repository.published);
        assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    }
    assert_eq!(files(&client).names(), before);
}
