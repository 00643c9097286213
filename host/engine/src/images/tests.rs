use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_admission::images::{Pending, Verified};
use tollgate_admission::review::decode::decode;
use tollgate_config::Config;

use super::*;

/// A verifier that knows nothing without waiting, verifies everything, and counts the questions.
#[derive(Debug, Default)]
struct Slow {
    asked: AtomicUsize,
    delay: Duration,
    /// Whether an earlier verification counts.
    was_good: bool,
}

fn good(last_known_good: bool) -> Answer {
    Ok(Verified {
        digest: Arc::from("sha256:a"),
        signers: Arc::from(["release".into()]),
        last_known_good,
    })
}

impl ImageVerifier for Slow {
    fn known(&self, _question: &Question) -> Option<Answer> {
        None
    }

    fn ask<'a>(&'a self, _question: &'a Question) -> Pending<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::time::sleep(self.delay).await;
            good(false)
        })
    }

    fn last_known_good(&self, _question: &Question, reason: &str) -> Answer {
        match self.was_good {
            true => good(true),
            false => Err(Failure::unavailable(reason)),
        }
    }
}

fn images() -> Arc<Images> {
    let text = "plugins: [{ name: a, source: 'file:a.wasm', images: { registries: [a.example], pullSecretNamespaces: [shop], policies: [{ name: \
                release, signers: [{ key: a.pem }] }] } }]";
    let config = Config::parse(text, Path::new("/")).unwrap();
    config.plugins[0].images.clone().unwrap()
}

fn asking(verifier: Slow) -> (Asking, Arc<Slow>) {
    let verifier = Arc::new(verifier);
    let grant = Grant::default().with(Some(images()), Some(verifier.clone()));
    (Asking::new(&grant, None), verifier)
}

/// A review of a Pod with a Secret for its images.
fn pod_in(namespace: &str) -> Subject {
    let review = serde_json::json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web", "namespace": namespace,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"spec": {"containers": [], "imagePullSecrets": [{"name": "login"}]}},
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).unwrap();
    Subject {
        object: review.request.object.clone(),
        request: Arc::new(review.request),
    }
}

fn request(image: &str) -> contract::Request {
    contract::Request {
        image: image.to_owned(),
        policy: "release".to_owned(),
    }
}

fn in_ms(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

#[test]
fn only_what_the_configuration_grants_is_asked() {
    let (mut asking, slow) = asking(Slow::default());
    for (image, policy, kind) in [
        ("b.example/app:1", "release", "not-granted"),
        ("nginx", "release", "not-granted"),
        ("a.example/app:1", "other", "not-granted"),
        ("a.example/App:1", "release", "malformed"),
        ("a.example/app@sha512:00", "release", "malformed"),
    ] {
        let request = contract::Request {
            policy: policy.to_owned(),
            ..request(image)
        };
        let failure = asking.check(&request).expect("nobody waits").unwrap_err();
        let found = match failure {
            contract::Failure::NotGranted(_) => "not-granted",
            contract::Failure::Malformed(_) => "malformed",
            other => panic!("{other:?}"),
        };
        assert_eq!(found, kind, "{image} {policy}");
    }
    assert_eq!(slow.asked.load(Ordering::Relaxed), 0);
    for grant in [
        Grant::default(),
        Grant::of_tenant(true).with(Some(images()), None),
    ] {
        let failure = Asking::new(&grant, None).check(&request("a.example/app:1"));
        assert!(matches!(
            failure,
            Some(Err(contract::Failure::NotGranted(_)))
        ));
    }
}

#[test]
fn credentials_of_pods_count_in_listed_namespaces_only() {
    for (namespace, counts) in [("shop", true), ("blog", false)] {
        let (mut asking, _) = asking(Slow::default());
        asking.is_about(&pod_in(namespace));
        assert!(asking.check(&request("a.example/app:1")).is_none());
        let puller = asking.awaited().remove(0).puller;
        let secrets = puller.as_ref().map(|puller| &puller.secrets[..]);
        let expected: &[Box<str>] = &["login".into()];
        assert_eq!(secrets, counts.then_some(expected), "{namespace}");
    }
}

#[tokio::test]
async fn all_images_of_a_call_are_asked_at_once() {
    let delay = Duration::from_millis(50);
    let (mut asking, slow) = asking(Slow {
        delay,
        ..Slow::default()
    });
    for index in 0..20 {
        let request = request(&format!("a.example/app-{index}:1"));
        assert!(asking.check(&request).is_none());
        // The same image again is the same question.
        assert!(asking.check(&request).is_none());
    }
    let awaited = asking.awaited();
    assert_eq!(awaited.len(), 20);
    // One after another, they would take more than the deadline.
    await_answers(Some(&mut asking), awaited, in_ms(900)).await;
    let answer = asking
        .check(&request("a.example/app-7:1"))
        .expect("it is known now");
    assert!(answer.is_ok_and(|verified| !verified.pinned && verified.signers == ["release"]));
    assert_eq!(slow.asked.load(Ordering::Relaxed), 20);
    assert!(asking.awaited().is_empty());
}

#[tokio::test]
async fn plugin_is_told_in_time_that_a_registry_does_not_answer() {
    for was_good in [false, true] {
        let (mut asking, _) = asking(Slow {
            delay: Duration::from_secs(60),
            was_good,
            ..Slow::default()
        });
        assert!(asking.check(&request("a.example/app:1")).is_none());
        let (awaited, deadline) = (asking.awaited(), in_ms(80));
        await_answers(Some(&mut asking), awaited, deadline).await;
        let answer = asking
            .check(&request("a.example/app:1"))
            .expect("it has an answer");
        match answer {
            Ok(verified) => assert!(was_good && verified.last_known_good),
            Err(contract::Failure::Unavailable(reason)) => {
                assert!(!was_good && reason.contains("within"), "{reason}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn questions_of_a_call_are_bounded() {
    let (mut asking, _) = asking(Slow::default());
    for index in 0..MOST_QUESTIONS {
        assert!(
            asking
                .check(&request(&format!("a.example/app-{index}:1")))
                .is_none()
        );
    }
    let more = asking
        .check(&request("a.example/one-more:1"))
        .expect("nobody waits");
    assert!(
        matches!(more, Err(contract::Failure::NotGranted(_))),
        "{more:?}"
    );
}

#[test]
fn host_without_a_verifier_never_verifies() {
    let grant = Grant::default().with(Some(images()), None);
    let answer = Asking::new(&grant, None).check(&request("a.example/app:1"));
    assert!(
        matches!(answer, Some(Err(contract::Failure::Unavailable(_)))),
        "{answer:?}"
    );
}

#[test]
fn image_with_a_digest_is_pinned() {
    use tollgate_admission::images::{FixedImage, FixedImages, FixedResult};
    let image = format!("a.example/app@sha256:{}", "a".repeat(64));
    let fixed: Arc<dyn ImageVerifier> = Arc::new(FixedImages::new([FixedImage {
        image: image.clone(),
        policy: None,
        result: FixedResult::Verified,
        digest: None,
        signers: Vec::new(),
        reason: None,
    }]));
    let grant = Grant::default().with(Some(images()), None);
    let answer = Asking::new(&grant, Some(&fixed)).check(&request(&image));
    assert!(answer.is_some_and(|answer| answer.is_ok_and(|verified| verified.pinned)));
}
