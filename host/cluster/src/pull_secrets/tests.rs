use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::LocalObjectReference;
use tollgate_admission::images::logins;

use super::*;

const AUTHS: &str = r#"{"auths": {"a.example": {"username": "u", "password": "the-secret"}}}"#;

/// A cluster of some objects, which counts requests.
#[derive(Default)]
struct Fixed {
    objects: BTreeMap<String, Fetched>,
    requests: Arc<AtomicUsize>,
}

impl Source for Fixed {
    fn fetch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Fetched> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let found = self.objects.get(&key.to_string()).cloned();
        async move {
            tokio::task::yield_now().await;
            found.unwrap_or(Ok(Object::Nothing))
        }
        .boxed()
    }
}

fn secret(kind: &str, member: &str, content: &str) -> Secret {
    let content = ByteString(content.as_bytes().to_vec());
    Secret {
        type_: Some(kind.to_owned()),
        data: Some([(member.to_owned(), content)].into()),
        ..Secret::default()
    }
}

fn key(kind: Kind, name: &str) -> Key {
    Key {
        kind,
        namespace: Arc::from("shop"),
        name: Box::from(name),
    }
}

fn read(secret: &Secret) -> Object {
    read_secret(&key(Kind::Secret, "a"), secret)
}

fn puller(secrets: &[&str]) -> Puller {
    Puller {
        namespace: Arc::from("shop"),
        secrets: secrets.iter().map(|name| Box::from(*name)).collect(),
        service_account: Arc::from("robot"),
    }
}

fn cluster(
    objects: impl IntoIterator<Item = (&'static str, Fetched)>,
) -> (ClusterPullSecrets, Arc<AtomicUsize>) {
    let fixed = Fixed {
        objects: objects
            .into_iter()
            .map(|(name, fetched)| (name.to_owned(), fetched))
            .collect(),
        ..Fixed::default()
    };
    let requests = fixed.requests.clone();
    (ClusterPullSecrets::with(Box::new(fixed)), requests)
}

fn usual() -> Object {
    read(&secret(CONFIG_JSON.0, CONFIG_JSON.1, AUTHS))
}

#[test]
fn only_the_types_of_the_kubelet_are_read() {
    let old = AUTHS
        .trim_start_matches(r#"{"auths": "#)
        .trim_end_matches('}');
    let old = format!("{old}}}}}");
    for (secret, is_read) in [
        (secret(CONFIG_JSON.0, CONFIG_JSON.1, AUTHS), true),
        (secret(CONFIG.0, CONFIG.1, &old), true),
        (secret("Opaque", CONFIG_JSON.1, AUTHS), false),
        (secret(CONFIG_JSON.0, "config.json", AUTHS), false),
        (secret(CONFIG_JSON.0, CONFIG_JSON.1, "the-secret"), false),
        (Secret::default(), false),
    ] {
        let object = read(&secret);
        assert_eq!(matches!(object, Object::Secret(_)), is_read, "{secret:?}");
        assert!(!format!("{object:?}").contains("the-secret"));
    }
}

#[tokio::test]
async fn secrets_of_the_pod_come_before_those_of_its_account() {
    let names = |names: &[&str]| {
        let secrets = names.iter().map(|name| LocalObjectReference {
            name: (*name).to_owned(),
        });
        Ok(read_account(&ServiceAccount {
            image_pull_secrets: Some(secrets.collect()),
            ..ServiceAccount::default()
        }))
    };
    let (cluster, requests) = cluster([
        ("the Secret shop/a", Ok(usual())),
        ("the Secret shop/b", Ok(usual())),
        ("the ServiceAccount shop/robot", names(&["b", "../c"])),
    ]);
    assert_eq!(cluster.known(&puller(&["a"])), None);
    let own = cluster
        .read(&puller(&["a", "missing"]))
        .await
        .expect("it can be read");
    assert_eq!(logins(&own, "a.example", "app").len(), 1);
    assert_eq!(own.len(), 1);
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    assert_eq!(cluster.known(&puller(&["missing", "a"])), Some(Ok(own)));
    let of_account = cluster.read(&puller(&[])).await.expect("it can be read");
    assert_eq!((of_account.len(), requests.load(Ordering::Relaxed)), (1, 4));
    assert!(cluster.known(&puller(&[])).is_some());
}

#[tokio::test]
async fn equal_reads_share_one_request() {
    let (cluster, requests) = cluster([("the Secret shop/a", Ok(usual()))]);
    let asked = puller(&["a"]);
    let all = join_all((0..20).map(|_| cluster.read(&asked))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    assert!(cluster.asked.lock().unwrap().is_empty());
}

#[test]
fn objects_count_for_a_while() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    for (name, fetched, seconds) in [
        ("found", Ok(usual()), 30),
        ("names", Ok(Object::Names(Arc::default())), 30),
        ("missing", Ok(Object::Nothing), 5),
        ("forbidden", Err(Unreadable::because("forbidden")), 5),
    ] {
        let key = key(Kind::Secret, name);
        cache.remember(key.clone(), fetched, now);
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(cache.get(&key, at(seconds - 1)).is_some(), "{name}");
        assert!(cache.get(&key, at(seconds)).is_none(), "{name}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_and_not_nothing() {
    let forbidden = kube::Error::Api(Box::new(kube::core::Status {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "secrets \"a\" is forbidden: User …".to_owned(),
        ..kube::core::Status::default()
    }));
    let reason = reason(&key(Kind::Secret, "a"), &forbidden);
    assert!(
        reason.contains("forbids the host to get the Secret shop/a")
            && reason.contains("tollgate check"),
        "{reason}"
    );
    let (cluster, _) = cluster([("the Secret shop/a", Err(Unreadable::because(&reason)))]);
    let found = cluster.read(&puller(&["a", "b"])).await;
    assert_eq!(found, Err(Unreadable::because(&reason)));
    assert_eq!(cluster.known(&puller(&["a"])), Some(found));
}

#[test]
fn names_that_do_not_exist_displace_no_secret() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    cache.remember(key(Kind::Secret, "a"), Ok(usual()), now);
    for index in 0..2_000 {
        let missing = key(Kind::Secret, &format!("missing-{index}"));
        let later = now + Duration::from_micros(index);
        cache.remember(missing, Ok(Object::Nothing), later);
    }
    assert!(cache.get(&key(Kind::Secret, "a"), now).is_some());
    assert!(cache.get(&key(Kind::Secret, "missing-0"), now).is_none());
    assert!(cache.get(&key(Kind::Secret, "missing-1999"), now).is_some());
}
