use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use super::*;

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn settings(more: Json) -> Json {
    let mut settings = json!({"rules": [
        {"images": ["registry.example.com"], "policy": "release"},
        {"images": ["registry.example.com/base", "docker.io/library"], "policy": "base"},
        {"images": ["registry.example.com/tools"], "exempt": true},
    ]});
    let members = settings.as_object_mut().unwrap();
    members.extend(more.as_object().cloned().unwrap_or_default());
    settings
}

fn pod(image: &str) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "image": image}]}
    })
}

fn deployment(image: &str) -> Json {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}
    })
}

fn signed(image: &str) -> Json {
    json!({"image": image, "policy": "release", "result": "verified", "digest": DIGEST, "signers": ["release"]})
}

fn create(object: Json, images: &[Json]) -> TestReview {
    TestReview::create(object)
        .settings(settings(json!({})))
        .images(images.to_vec())
}

/// The text of the only cause.
#[track_caller]
fn refusal(review: &TestReview) -> String {
    let outcome = review.validate::<VerifyImages>();
    let causes = outcome.causes();
    assert_eq!(causes.len(), 1, "{causes:?}");
    causes[0].1.to_owned()
}

const APP: &str = "registry.example.com/app:1";

#[test]
fn tag_in_a_pod_is_replaced_by_the_verified_digest() {
    let review = create(pod(APP), &[signed(APP)]);
    let mutated = review.mutate::<VerifyImages>();
    let pinned = format!("{APP}@{DIGEST}");
    assert_eq!(mutated.object(), &pod(&pinned));
    // The result is admitted, and not changed again.
    let review = create(pod(&pinned), &[signed(APP)]);
    assert!(review.validate::<VerifyImages>().is_allowed());
    assert!(!review.mutate::<VerifyImages>().is_changed());
}

#[test]
fn unverified_images_are_denied_with_their_reason() {
    for (result, text) in [
        ("unsigned", "is not signed (policy release)"),
        ("untrusted", "is not signed as the policy release requires"),
        ("not-found", "not found"),
        ("not-granted", "not granted"),
        ("unavailable", "cannot be verified now"),
    ] {
        let review = create(pod(APP), &[json!({"image": APP, "result": result})]);
        assert!(!review.mutate::<VerifyImages>().is_changed(), "{result}");
        let refusal = refusal(&review);
        assert!(
            refusal.starts_with(APP) && refusal.contains(text),
            "{refusal}"
        );
    }
}

#[test]
fn every_kind_of_container_is_verified() {
    let mut object = pod(APP);
    object["spec"]["initContainers"] = json!([{"name": "a", "image": "registry.example.com/a:1"}]);
    object["spec"]["ephemeralContainers"] =
        json!([{"name": "b", "image": "registry.example.com/b:1"}]);
    object["spec"]["volumes"] =
        json!([{"name": "c"}, {"name": "d", "image": {"reference": "registry.example.com/d:1"}}]);
    let outcome = create(object, &[]).validate::<VerifyImages>();
    let causes = outcome.causes();
    let places: Vec<&str> = causes.iter().map(|(place, _)| *place).collect();
    let expected = [
        "/spec/initContainers/0/image",
        "/spec/containers/0/image",
        "/spec/ephemeralContainers/0/image",
        "/spec/volumes/1/image/reference",
    ];
    assert_eq!(places, expected);
}

#[test]
fn templates_are_verified_and_keep_their_tags() {
    let review = create(deployment(APP), &[signed(APP)]);
    assert!(review.validate::<VerifyImages>().is_allowed());
    assert!(!review.mutate::<VerifyImages>().is_changed());
    let review = create(deployment(APP), &[]);
    let outcome = review.validate::<VerifyImages>();
    assert_eq!(
        outcome.causes()[0].0,
        "/spec/template/spec/containers/0/image"
    );
    let job = json!({"spec": {"template": {"spec": {"containers": [{"image": APP}]}}}});
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": {"jobTemplate": job}});
    let outcome = create(cron, &[]).validate::<VerifyImages>();
    assert_eq!(
        outcome.causes()[0].0,
        "/spec/jobTemplate/spec/template/spec/containers/0/image"
    );
}

#[test]
fn longest_prefix_decides() {
    let base = json!({"image": "nginx", "policy": "base", "result": "verified", "digest": DIGEST});
    assert!(
        create(deployment("nginx"), &[base])
            .validate::<VerifyImages>()
            .is_allowed()
    );
    assert!(
        create(pod("registry.example.com/tools/a:1"), &[])
            .validate::<VerifyImages>()
            .is_allowed()
    );
    let review = create(
        deployment("registry.example.com/base/a:1"),
        &[signed("registry.example.com/base/a:1")],
    );
    assert!(
        refusal(&review).contains("not found"),
        "the policy is another one"
    );
    for image in ["ghcr.io/a/b:1", "registry.example.com.evil.io/tools/a:1"] {
        let refusal = refusal(&create(pod(image), &[]));
        assert!(
            refusal.contains("no rule of the settings covers"),
            "{refusal}"
        );
    }
    assert!(refusal(&create(pod("registry.example.com/A:1"), &[])).contains("no valid image"));
}

#[test]
fn tags_can_be_refused_or_allowed() {
    let review =
        |tags: &str| create(pod(APP), &[signed(APP)]).settings(settings(json!({"tags": tags})));
    for tags in ["replace", "refuse"] {
        let refusal = refusal(&review(tags));
        assert!(refusal.contains(&format!("{APP}@{DIGEST}")), "{refusal}");
    }
    assert!(!review("refuse").mutate::<VerifyImages>().is_changed());
    assert!(!review("allow").mutate::<VerifyImages>().is_changed());
    assert!(review("allow").validate::<VerifyImages>().is_allowed());
}

#[test]
fn last_known_good_counts_for_digests_only() {
    let good = json!({"image": APP, "result": "last-known-good", "digest": DIGEST});
    let pinned = format!("{APP}@{DIGEST}");
    assert!(
        create(pod(&pinned), std::slice::from_ref(&good))
            .validate::<VerifyImages>()
            .is_allowed()
    );
    let mutated = create(pod(APP), std::slice::from_ref(&good)).mutate::<VerifyImages>();
    assert_eq!(mutated.object(), &pod(&pinned));
    let allowing = create(pod(APP), &[good]).settings(settings(json!({"tags": "allow"})));
    assert!(refusal(&allowing).contains("the tag may have moved"));
}

#[test]
fn registry_that_does_not_answer_can_be_a_warning() {
    let away = json!({"image": APP, "result": "unavailable"});
    let review = create(pod(APP), &[away]).settings(settings(json!({"unavailable": "warn"})));
    let outcome = review.validate::<VerifyImages>();
    assert!(outcome.is_allowed());
    assert!(
        outcome.warnings()[0].contains("was not verified"),
        "{:?}",
        outcome.warnings()
    );
    let unsigned = json!({"image": APP, "result": "unsigned"});
    let review = create(pod(APP), &[unsigned]).settings(settings(json!({"unavailable": "warn"})));
    assert!(!review.validate::<VerifyImages>().is_allowed());
}

#[test]
fn update_verifies_new_images_only() {
    let update = |old: &str, new: &str| {
        TestReview::update(deployment(old), deployment(new))
            .settings(settings(json!({})))
            .images([signed(APP)])
    };
    let unsigned = "registry.example.com/old:1";
    assert!(
        update(unsigned, unsigned)
            .validate::<VerifyImages>()
            .is_allowed()
    );
    assert!(
        update(unsigned, APP)
            .validate::<VerifyImages>()
            .is_allowed()
    );
    assert!(
        !update(APP, unsigned)
            .validate::<VerifyImages>()
            .is_allowed()
    );
    let strict = update(unsigned, unsigned).settings(settings(json!({"verifyUnchanged": true})));
    assert!(!strict.validate::<VerifyImages>().is_allowed());
}

#[test]
fn update_leaves_tags_that_are_there() {
    let review = TestReview::update(pod(APP), pod(APP))
        .settings(settings(json!({"verifyUnchanged": true})))
        .images([signed(APP)]);
    assert!(!review.mutate::<VerifyImages>().is_changed());
    assert!(review.validate::<VerifyImages>().is_allowed());
}

#[test]
fn mirror_pods_are_left_alone() {
    let mut object = pod("ghcr.io/a/b:1");
    object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "a"});
    assert!(create(object, &[]).validate::<VerifyImages>().is_allowed());
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    for (rules, at) in [
        (json!([]), "/rules"),
        (json!([{"images": ["*"]}]), "/rules/0"),
        (
            json!([{"images": ["*"], "policy": "a", "exempt": true}]),
            "/rules/0",
        ),
        (json!([{"images": [], "policy": "a"}]), "/rules/0/images"),
        (
            json!([{"images": ["nginx"], "policy": "a"}]),
            "/rules/0/images/0",
        ),
        (
            json!([{"images": ["*", "*"], "policy": "a"}]),
            "/rules/0/images/1",
        ),
    ] {
        let errors = configure::<VerifyImages>(json!({"rules": rules}))
            .err()
            .unwrap();
        assert!(errors.to_string().starts_with(at), "{rules}: {errors}");
    }
    assert!(configure::<VerifyImages>(json!({})).is_err());
    assert!(
        configure::<VerifyImages>(json!({"rules": [{"images": ["*"], "policy": "a"}]})).is_ok()
    );
}

#[test]
fn rules_cover_every_workload() {
    let rules = manifest::<VerifyImages>().rules;
    let resources: Vec<String> = rules.into_iter().flat_map(|rule| rule.resources).collect();
    for resource in [
        "pods",
        "pods/ephemeralcontainers",
        "deployments",
        "cronjobs",
        "jobs",
    ] {
        assert!(resources.iter().any(|own| own == resource), "{resource}");
    }
}
