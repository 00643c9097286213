use tollgate_admission::images::Refusal;

use super::*;

const TIMES: Lifetimes = Lifetimes {
    verified: Duration::from_secs(3600),
    refused: Duration::from_secs(30),
    resolved: Duration::from_secs(10),
    last_known_good: Duration::from_secs(7200),
};

const RULES: Rules = Rules {
    policy: [7; 32],
    root: Some([1; 32]),
};

fn subject(image: &str) -> Subject {
    Subject::new(&Reference::of_image(image).unwrap(), RULES, Access::OfHost)
}

fn digest(byte: char) -> Arc<str> {
    Arc::from(format!("sha256:{}", byte.to_string().repeat(64)))
}

fn refusal() -> Failure {
    Failure::Unsigned(Refusal::new(&digest('a'), "none"))
}

/// A cache that knows a verified tag, and the time.
fn known() -> (Cache, Subject, Instant) {
    let (mut cache, subject, now) = (Cache::new(), subject("a.example/app:1"), Instant::now());
    let tag = subject.tag.expect("it has a tag");
    cache.resolved(tag, digest('a'), now);
    cache.verified(subject.of_digest(&digest('a')), vec!["release".into()], now);
    (cache, subject, now)
}

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn answers_count_for_their_lifetimes() {
    let (mut cache, tagged, now) = known();
    let pinned = subject(&format!("a.example/app@{}", digest('a')));
    let answer = |cache: &Cache, subject: &Subject, seconds| {
        cache.answer(subject, TIMES, now + after(seconds))
    };
    assert!(answer(&cache, &tagged, 9).is_some_and(|answer| answer.is_ok()));
    // The tag may have moved, but the digest is still verified.
    assert_eq!(answer(&cache, &tagged, 10), None);
    assert!(
        answer(&cache, &pinned, 3599)
            .is_some_and(|answer| answer.is_ok_and(|good| !good.last_known_good))
    );
    assert_eq!(answer(&cache, &pinned, 3600), None);
    cache.refused(pinned.of_digest(&digest('a')), refusal(), now);
    assert_eq!(answer(&cache, &pinned, 29), Some(Err(refusal())));
    assert_eq!(answer(&cache, &pinned, 30), None);
}

#[test]
fn answer_is_for_those_who_have_the_login() {
    let image = Reference::of_image("a.example/app:1").unwrap();
    let with = |byte| Subject::new(&image, RULES, Access::OfLogins([byte; 32]));
    let (mut cache, of_host, now) = known();
    assert!(cache.answer(&of_host, TIMES, now).is_some());
    let (one, other) = (with(1), with(2));
    assert_eq!(cache.answer(&one, TIMES, now), None);
    let later = now + after(3_000);
    cache.resolved(one.tag.unwrap(), digest('b'), later);
    cache.verified(one.of_digest(&digest('b')), Vec::new(), later);
    let found = cache.answer(&one, TIMES, later).unwrap().unwrap();
    assert_eq!(found.digest, digest('b'));
    for stranger in [&other, &of_host] {
        let answer = cache.answer(stranger, TIMES, later);
        assert!(answer.is_none(), "{answer:?}");
        let fallen_back = cache.last_known_good(stranger, TIMES, "away", later);
        let digests = fallen_back.map(|verified| verified.digest);
        assert_ne!(digests, Ok(digest('b')));
    }
    // A refusal for one login says nothing about another one.
    cache.refused(other.of_digest(&digest('b')), refusal(), later);
    assert!(cache.answer(&one, TIMES, later).unwrap().is_ok());
}

#[test]
fn answer_is_for_one_repository_one_policy_and_one_root() {
    let (cache, _, now) = known();
    let of = |image: &str, rules| {
        let image = Reference::of_image(&format!("{image}@{}", digest('a'))).unwrap();
        Subject::new(&image, rules, Access::OfHost)
    };
    let at = |image: &str, rules| cache.answer(&of(image, rules), TIMES, now);
    assert!(at("a.example/app", RULES).is_some());
    assert_eq!(at("a.example/other", RULES), None);
    assert_eq!(at("b.example/app", RULES), None);
    let policy = [8; 32];
    for rules in [
        Rules { policy, ..RULES },
        Rules {
            root: Some([2; 32]),
            ..RULES
        },
        Rules {
            root: None,
            ..RULES
        },
    ] {
        assert_eq!(at("a.example/app", rules), None);
        let subject = of("a.example/app", rules);
        let fallen_back = cache.last_known_good(&subject, TIMES, "away", now);
        assert_eq!(fallen_back, Err(Failure::unavailable("away")));
    }
}

#[test]
fn verified_digest_counts_when_its_registry_is_away() {
    let (mut cache, tagged, now) = known();
    let later = now + after(7000);
    assert_eq!(cache.answer(&tagged, TIMES, later), None);
    cache.away(tagged.tag.unwrap(), "connection refused", later);
    let good = cache.answer(&tagged, TIMES, later).unwrap().unwrap();
    assert!(good.last_known_good && good.digest == digest('a'));
    // After a pause, the registry is asked again.
    assert_eq!(cache.answer(&tagged, TIMES, later + PAUSE), None);
    let too_late = now + after(7200);
    cache.away(tagged.tag.unwrap(), "connection refused", too_late);
    let answer = cache.answer(&tagged, TIMES, too_late);
    assert_eq!(
        answer,
        Some(Err(Failure::unavailable("connection refused")))
    );
}

#[test]
fn another_digest_has_no_last_known_good() {
    let (mut cache, _, now) = known();
    let other = subject(&format!("a.example/app@{}", digest('b')));
    cache.away(other.of_digest(&digest('b')), "away", now);
    assert_eq!(
        cache.answer(&other, TIMES, now),
        Some(Err(Failure::unavailable("away")))
    );
    // A tag that leads to another digest by now counts as that.
    let moved = subject("a.example/app:1");
    cache.resolved(moved.tag.unwrap(), digest('b'), now);
    let answer = cache.last_known_good(&moved, TIMES, "away", now);
    assert_eq!(answer, Err(Failure::unavailable("away")));
}

#[test]
fn refusal_ends_the_last_known_good() {
    let (mut cache, tagged, now) = known();
    let key = tagged.of_digest(&digest('a'));
    cache.refused(key, refusal(), now);
    let later = now + after(60);
    cache.away(key, "away", later);
    let answer = cache.last_known_good(&tagged, TIMES, "away", later);
    assert_eq!(answer, Err(Failure::unavailable("away")));
}

#[test]
fn no_last_known_good_counts_for_no_time() {
    let (cache, tagged, now) = known();
    let never = Lifetimes {
        last_known_good: Duration::ZERO,
        ..TIMES
    };
    let answer = cache.last_known_good(&tagged, never, "away", now);
    assert_eq!(answer, Err(Failure::unavailable("away")));
}

#[test]
fn missing_tag_is_remembered_shortly() {
    let (mut cache, tagged, now) = known();
    let missing = Failure::not_found("no such tag");
    cache.refused(tagged.tag.unwrap(), missing.clone(), now);
    assert_eq!(cache.answer(&tagged, TIMES, now), Some(Err(missing)));
    assert_eq!(cache.answer(&tagged, TIMES, now + after(30)), None);
}

#[test]
fn many_images_take_bounded_room_and_displace_no_signed_one() {
    let (mut cache, tagged, now) = known();
    for index in 0..3 * MOST {
        let other = subject(&format!("a.example/app-{index}:1"));
        cache.refused(other.of_digest(&digest('c')), refusal(), now);
        cache.away(other.tag.unwrap(), "away", now);
    }
    assert_eq!(
        (cache.refused.entries.len(), cache.away.entries.len()),
        (MOST, MOST)
    );
    assert!(cache.refused.order.len() <= 2 * MOST && cache.refused.bytes <= MOST_BYTES);
    assert!(
        cache
            .answer(&tagged, TIMES, now)
            .is_some_and(|answer| answer.is_ok())
    );
    for index in 0..2 * MOST {
        cache.verified(
            Key::of(&[&index.to_le_bytes()]),
            vec!["release".into()],
            now,
        );
    }
    assert_eq!(cache.verified.entries.len(), MOST);
}

#[test]
fn long_refusals_take_bounded_room() {
    let (mut cache, now) = (Cache::new(), Instant::now());
    let long = Failure::Untrusted(Refusal::new(&digest('a'), &"a".repeat(1024)));
    for index in 0..MOST {
        cache.refused(Key::of(&[&index.to_le_bytes()]), long.clone(), now);
    }
    assert!(cache.refused.bytes <= MOST_BYTES, "{}", cache.refused.bytes);
    // The same key again takes no more room.
    let key = Key::of(&[b"one"]);
    for _ in 0..5 * MOST {
        cache.refused(key, refusal(), now);
    }
    assert!(cache.refused.order.len() <= 2 * MOST);
}
