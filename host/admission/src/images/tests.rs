use super::*;

fn image(image: &str, result: FixedResult) -> FixedImage {
    FixedImage {
        image: image.to_owned(),
        policy: None,
        result,
        digest: None,
        signers: vec!["release".to_owned()],
        reason: None,
    }
}

fn ask(images: &FixedImages, image: &str, policy: &str) -> Answer {
    let question = Question {
        image: Arc::from(image),
        policy: Arc::from(policy),
        puller: None,
    };
    images.known(&question).expect("a list knows every answer")
}

#[test]
fn list_answers_by_image_and_policy() {
    let images = FixedImages::new([
        FixedImage {
            policy: Some("release".to_owned()),
            ..image("a.example/app:1", FixedResult::Verified)
        },
        image("a.example/app:1", FixedResult::Unsigned),
        image("a.example/old:1", FixedResult::LastKnownGood),
    ]);
    let verified = ask(&images, "a.example/app:1", "release").expect("it is verified");
    assert_eq!(&*verified.signers[0], "release");
    assert_eq!(verified.digest.len(), "sha256:".len() + 64);
    assert!(!verified.last_known_good);
    let other = ask(&images, "a.example/app:1", "other");
    assert!(matches!(other, Err(Failure::Unsigned(_))), "{other:?}");
    let old = ask(&images, "a.example/old:1", "release").expect("it counts");
    assert!(old.last_known_good);
    let unknown = ask(&images, "a.example/else:1", "release");
    assert!(matches!(unknown, Err(Failure::NotFound(_))), "{unknown:?}");
}

#[test]
fn digest_of_the_image_is_its_own() {
    let pinned = format!("a.example/app@sha256:{}", "a".repeat(64));
    let images = FixedImages::new([image(&pinned, FixedResult::Verified)]);
    let verified = ask(&images, &pinned, "release").expect("it is verified");
    assert!(pinned.ends_with(&*verified.digest));
}

#[test]
fn entry_of_a_tag_is_about_its_digest() {
    let digest = format!("sha256:{}", "b".repeat(64));
    let images = FixedImages::new([FixedImage {
        digest: Some(digest.clone()),
        ..image("a.example:5000/app:1", FixedResult::Verified)
    }]);
    let is_verified = |image: String| ask(&images, &image, "release").is_ok();
    assert!(is_verified(format!("a.example:5000/app:1@{digest}")));
    assert!(is_verified(format!("a.example:5000/app@{digest}")));
    assert!(!is_verified(format!("a.example:5000/other@{digest}")));
    let other = format!("a.example:5000/app:1@sha256:{}", "c".repeat(64));
    assert!(!is_verified(other));
}

#[test]
fn texts_are_cut() {
    let failure = Failure::unavailable(&"ä".repeat(1024));
    assert_eq!(failure.text_bytes(), 1024);
    let refusal = Refusal::new("sha256:a", &"a".repeat(5000));
    assert_eq!(Failure::Untrusted(refusal).text_bytes(), 1024 + 8);
}

#[test]
fn nobody_never_verifies() {
    let answer = NoImages::because("no registry").known(&Question {
        image: Arc::from("a.example/app:1"),
        policy: Arc::from("release"),
        puller: None,
    });
    assert_eq!(answer, Some(Err(Failure::unavailable("no registry"))));
}
