//! An authority over simulated years.

use super::*;

fn at(days: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::days(20_000 + days)
}

fn stored(authority: &Authority) -> (String, String, Option<String>) {
    (
        authority.bundle_pem(),
        authority.key_pem(),
        authority.next_key_pem(),
    )
}

fn advance_to(authority: &mut Authority, now: OffsetDateTime) -> Vec<Step> {
    std::iter::from_fn(|| authority.advance(now).expect("random numbers")).collect()
}

#[test]
fn bundle_always_covers_what_signs_for_a_month() {
    let mut authority = Authority::create(at(0)).expect("an authority");
    let mut bundles: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut signers = Vec::new();
    for day in 0..12_000 {
        advance_to(&mut authority, at(day));
        let texts = stored(&authority);
        if day % 500 == 0 {
            authority = Authority::read(&texts.0, &texts.1, texts.2.as_deref()).expect("readable");
        }
        let bundle = authority.bundle.iter();
        bundles.push(bundle.map(|member| member.certificate.to_vec()).collect());
        let signer = authority.certificate().to_vec();
        let registered = &bundles[usize::try_from(day).expect("positive").saturating_sub(29)];
        assert!(
            day < 30 || registered.contains(&signer),
            "day {day}: the bundle of a month ago does not cover the signer"
        );
        assert!(authority.expiry() > at(day), "day {day}");
        if signers.last() != Some(&signer) {
            signers.push(signer);
        }
    }
    assert_eq!(signers.len(), 4, "one authority in 3,500 days");
}

#[test]
fn makes_all_steps_at_once_after_years_without_a_process() {
    let mut authority = Authority::create(at(0)).expect("an authority");
    let steps = advance_to(&mut authority, at(5_000));
    assert!(
        matches!(
            steps[..],
            [
                Step::SuccessorAdded { .. },
                Step::SuccessorSigns,
                Step::ExpiredRemoved
            ]
        ),
        "{steps:?}"
    );
    assert_eq!(authority.bundle.len(), 1);
    assert_eq!(advance_to(&mut authority, at(5_000)), []);
}

#[test]
fn replaces_a_leaf_a_month_before_its_end() {
    let authority = Authority::create(at(0)).expect("an authority");
    let due = |expiry, now| is_leaf_due(at(expiry), authority.expiry(), at(now));
    assert!(!due(90, 59));
    assert!(due(90, 61));
    // No new leaf could outlive the authority.
    assert!(!due(3_650, 3_640));
}

#[test]
fn rejects_texts_that_do_not_belong_together() {
    let authority = Authority::create(at(0)).expect("an authority");
    let other = Authority::create(at(0)).expect("an authority");
    let leaf = authority
        .issue(&["localhost".to_owned()], at(0))
        .expect("a leaf");
    let (bundle, key, _) = stored(&authority);
    let error = |bundle: &str, key: &str, next: Option<&str>| {
        Authority::read(bundle, key, next).expect_err("unreadable")
    };
    assert_eq!(error("", &key, None), Unreadable::Bundle);
    assert_eq!(error(&bundle, "nonsense", None), Unreadable::Key);
    assert_eq!(error(&bundle, &key, Some("x")), Unreadable::NextKey);
    assert_eq!(error(&bundle, &other.key_pem(), None), Unreadable::Mismatch);
    assert_eq!(
        error(&leaf.certificate_pem(), &leaf.key_pem(), None),
        Unreadable::NoAuthority
    );
    let orphan = Authority::read(&bundle, &key, Some(&other.key_pem())).expect("readable");
    assert_eq!(orphan.next_key_pem(), None);
}
