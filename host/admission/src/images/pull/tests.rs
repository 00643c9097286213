use serde_json::{Value, json};

use super::*;
use crate::review::decode::decode;

fn secret(auths: &Value) -> Arc<PullSecret> {
    let content = json!({ "auths": auths }).to_string();
    let read = PullSecret::read(PullSecretKind::DockerConfigJson, content.as_bytes());
    Arc::new(read.unwrap())
}

/// A Secret with a login for one place.
fn of(key: &str, username: &str) -> Arc<PullSecret> {
    secret(&json!({ key: {"username": username, "password": "p"} }))
}

fn users(secrets: &[Arc<PullSecret>], image: &str) -> Vec<String> {
    let (registry, repository) = image.split_once('/').unwrap();
    let found = logins(secrets, registry, repository);
    found
        .iter()
        .map(|login| login.username.to_string())
        .collect()
}

/// The cases of Kubernetes' `keyring_test.go`.
#[test]
fn matches_like_the_kubelet() {
    for (key, image, expected) in [
        // TestURLsMatch, TestDockerKeyringForGlob
        ("*.kubernetes.io", "prefix.kubernetes.io/a", true),
        ("prefix.*.io", "prefix.kubernetes.io/a", true),
        ("prefix.kubernetes.*", "prefix.kubernetes.io/a", true),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io/a", true),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
        ("*.*.kubernetes.io", "a.b.kubernetes.io/a", true),
        ("*.kubernetes.io", "kubernetes.io/a", false),
        ("*.kubernetes.io", "kubernetes.com/a", false),
        ("*.kubernetes.io", "prefix.kubernetes.com/a", false),
        ("kubernetes.io", "kubernetes.com/a", false),
        ("*.kubernetes.io:8080", "prefix.kubernetes.io:8080/a", true),
        ("*.kubernetes.io:8080", "prefix.kubernetes.io/a", false),
        ("*.kubernetes.io", "prefix.kubernetes.io:1111/a", false),
        ("https://hello.kubernetes.io", "hello.kubernetes.io/a", true),
        ("https://*.docker.io", "prefix.docker.io/a", true),
        ("https://*.docker.io/", "prefix.docker.io/a", true),
        ("http://*.docker.io/v1/", "prefix.docker.io/a", true),
        ("https://*.docker.io/v2/", "prefix.docker.io/a", true),
        ("a.*.io", "a.b.c.io/a", false),
        ("foo.*.io/b", "foo.bar.io/a", false),
        // The beginning of a path is a text, not a list of components.
        ("foo.bar.io/team", "foo.bar.io/teams/app", true),
        ("foo.bar.io/team/", "foo.bar.io/teams/app", false),
        ("foo.bar.io/v1/team", "foo.bar.io/team/app", true),
        ("localhost:5000", "localhost:5000/a", true),
        ("*", "localhost/a", true),
        ("*", "registry.example.com/a", false),
        ("[::1]:5000", "[::1]:5000/a", true),
        ("user@foo.bar.io", "foo.bar.io/a", false),
        // TestDockerKeyringLookup: Docker Hub.
        (
            "https://index.docker.io/v1/",
            "docker.io/library/nginx",
            true,
        ),
        ("index.docker.io", "docker.io/team/app", true),
        ("docker.io", "docker.io/team/app", true),
        ("docker.io/team", "docker.io/library/nginx", false),
        (
            "https://index.docker.io/v1/",
            "registry.example.com/a",
            false,
        ),
    ] {
        let found = users(&[of(key, "user")], image);
        assert_eq!(!found.is_empty(), expected, "{key} {image}");
    }
}

#[test]
fn the_most_specific_login_is_tried_first() {
    let secrets = [
        of("registry.example.com", "whole"),
        of("registry.example.com/team", "team"),
        of("*.example.com", "wild"),
        of("registry.example.com/team", "second"),
        of("registry.example.com/other", "other"),
    ];
    let found = users(&secrets, "registry.example.com/team/app");
    assert_eq!(found, ["team", "second", "whole", "wild"]);
    // Docker Hub's own entry is for what no other one matches.
    let hub = [of("index.docker.io", "hub"), of("docker.io/team", "team")];
    assert_eq!(users(&hub, "docker.io/team/app"), ["team"]);
    assert_eq!(users(&hub, "docker.io/library/nginx"), ["hub"]);
    let many: Vec<_> = (0..20)
        .map(|index| of("a.example", &format!("u{index}")))
        .collect();
    assert_eq!(users(&many, "a.example/app").len(), 8);
    let same = [of("a.example", "one"), of("a.example/app", "one")];
    assert_eq!(users(&same, "a.example/app").len(), 1);
}

#[test]
fn reads_both_types_and_both_forms_of_a_login() {
    let auth = json!({"auth": "dXNlcjpzZWM6cmV0", "username": "ignored"});
    let unpadded = json!({"auth": "dXNlcjpzZWNyZQ"});
    for (entry, password) in [(&auth, "sec:ret"), (&unpadded, "secre")] {
        let found = logins(&[secret(&json!({"a.example": entry}))], "a.example", "app");
        let login = (&*found[0].username, &*found[0].password);
        assert_eq!(login, ("user", password));
    }
    let config = json!({"a.example": auth}).to_string();
    let old = PullSecret::read(PullSecretKind::DockerCfg, config.as_bytes()).unwrap();
    assert_eq!(logins(&[Arc::new(old)], "a.example", "app").len(), 1);
    // A token of docker is no login for the kubelet.
    let token = secret(&json!({"a.example": {"identitytoken": "t"}}));
    assert_eq!(logins(&[token], "a.example", "app"), []);
}

#[test]
fn content_that_cannot_be_used_is_not_shown() {
    let read = |text: &str| PullSecret::read(PullSecretKind::DockerConfigJson, text.as_bytes());
    let large = format!(r#"{{"auths": {{}}, "x": "{}"}}"#, "y".repeat(64 << 10));
    assert_eq!(read(&large), Err(PullSecretError::TooLarge));
    let many: Vec<String> = (0..257)
        .map(|index| format!(r#""h{index}": {{}}"#))
        .collect();
    let many = format!(r#"{{"auths": {{{}}}}}"#, many.join(","));
    assert_eq!(read(&many), Err(PullSecretError::TooMany));
    for text in [
        r#"{"auths": {"a.example": "the-secret"}}"#,
        r#"{"auths": {"a.example": {"auth": "the-secret!"}}}"#,
        r#"{"auths": {"a.example": {"auth": "dGhlLXNlY3JldA=="}}}"#,
        "the-secret",
    ] {
        let error = read(text).unwrap_err();
        assert!(!error.to_string().contains("the-secret"), "{error}");
    }
    // JSON that is nested deeply is refused, and not followed.
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    assert!(matches!(read(&deep), Err(PullSecretError::Json { .. })));
    let login = logins(&[of("a.example", "the-user")], "a.example", "app");
    assert_eq!(format!("{login:?}"), "[Login]");
    assert_eq!(format!("{:?}", of("a.example", "the-user")), "PullSecret");
}

fn puller(namespace: Option<&str>, object: &Value) -> Option<Puller> {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web", "namespace": namespace, "object": object,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    Puller::of(&review.request, review.request.object.as_ref())
}

#[test]
fn the_object_says_which_secrets_count() {
    let spec = json!({
        "containers": [], "serviceAccountName": "robot",
        "imagePullSecrets": [{"name": "b"}, {"name": "a"}, {"name": "b"}, {"name": "../../x"}, {"name": ""}, {}, {"name": 5}],
    });
    let expected = Puller {
        namespace: Arc::from("shop"),
        secrets: Arc::from([Box::from("b"), Box::from("a")]),
        service_account: Arc::from("robot"),
    };
    for object in [
        json!({ "spec": spec }),
        json!({"spec": {"template": {"spec": spec}}}),
        json!({"template": {"spec": spec}}),
        json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
    ] {
        let found = puller(Some("shop"), &object);
        assert_eq!(found, Some(expected.clone()), "{object}");
    }
    let plain = puller(Some("shop"), &json!({"spec": {"containers": []}}));
    let plain = plain.unwrap();
    assert_eq!(
        (&*plain.service_account, plain.secrets.len()),
        ("default", 0)
    );
    for (namespace, object) in [
        (None, json!({ "spec": spec })),
        (Some("shop"), json!({"spec": {"replicas": 1}})),
        (Some("shop"), json!({"spec": {"containers": 5}})),
    ] {
        let found = puller(namespace, &object);
        assert_eq!(found, None, "{namespace:?} {object}");
    }
    let many: Vec<Value> = (0..40)
        .map(|index| json!({"name": format!("s{index}")}))
        .collect();
    let many = json!({"spec": {"containers": [], "imagePullSecrets": many}});
    let found = puller(Some("shop"), &many).unwrap();
    assert_eq!(found.secrets.len(), MOST_SECRETS);
}
