//! Verified images: what plugins are told, and what the plugin `verify-images` makes of it with a real registry.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::registry::{Key, Registry, statement};
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, metric, until};
use tollgate_tests::{binary, guests, wat};

const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// Asks about `a.example/app:1` under the policy `release`. Warns with the digest of a verified image, or with the text of a
/// failure.
///
/// The list of requests is at 1600. The list of results is at the place that the result at 2048 names. Of a verified image,
/// the first text is the digest, behind the discriminant. A failure has one more discriminant in front of its text.
const ASKS: &str = r#"
    (import "tollgate:admission/images@0.1.0" "verify" (func $verify (param i32 i32 i32)))
    (import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
    (data (i32.const 1024) "a.example/app:1release")
    (data (i32.const 1600) "\00\04\00\00\0f\00\00\00" "\0f\04\00\00\07\00\00\00")
    (func (export "tollgate:admission/FUNCTION") RESULT
        (local $at i32)
        (call $verify (i32.const 1600) (i32.const 1) (i32.const 2048))
        (local.set $at (i32.load (i32.const 2048)))
        (if (i32.load8_u (local.get $at))
            (then (local.set $at (i32.add (local.get $at) (i32.const 4)))))
        (call $warn (i32.load offset=4 (local.get $at)) (i32.load offset=8 (local.get $at)))
        (i32.const 256))"#;
const VALIDATE: [(&str, &str); 2] = [
    ("FUNCTION", "validating@0.1.0#validate"),
    ("RESULT", "(result i32)"),
];
const CONFIGURE: [(&str, &str); 2] = [
    ("FUNCTION", "lifecycle@0.1.0#configure"),
    ("RESULT", "(param i32 i32) (result i32)"),
];

fn tollgate(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary::tollgate()).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let streams = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let said = streams.concat();
    println!("{:?}\n{said}", output.status.code());
    (output.status.code(), said)
}

fn asks(function: [(&str, &str); 2], more: Value) -> Configuration {
    let mut text = ASKS.to_owned();
    for (mark, replacement) in function {
        text = text.replace(mark, replacement);
    }
    let mut configuration = Configuration::new();
    configuration.plugin_of("asks", &wat::plugin("with-images", &text), more);
    configuration
}

fn granted(registry: &str, key: &Key) -> Value {
    let policy = json!({"name": "release", "signers": [{"name": "release", "key": key.public()}]});
    json!({"images": {"registries": [registry], "policies": [policy]}})
}

/// Reviews a Pod with these images.
fn review(configuration: &Configuration, images: Option<Value>) -> (Option<i32>, String) {
    let write = |name: &str, value: &Value| {
        let path = configuration.folder().join(name);
        std::fs::write(&path, value.to_string()).expect("the file can be written");
        path.display().to_string()
    };
    let config = configuration.write().display().to_string();
    let pod = write("pod.json", &pod("web"));
    let mut arguments = vec!["review", "--config", &config, &pod];
    let file = images.map(|images| write("images.json", &json!({"images": images})));
    if let Some(file) = &file {
        arguments.extend(["--images", file]);
    }
    tollgate(&arguments)
}

#[test]
fn plugin_is_told_what_a_file_says() {
    let key = Key::p256();
    let asks = asks(VALIDATE, granted("a.example", &key));
    let digest = format!("sha256:{}", "c".repeat(64));
    let image =
        |result: &str| json!([{"image": "a.example/app:1", "result": result, "digest": digest}]);
    let (code, said) = review(&asks, Some(image("verified")));
    assert_eq!(code, Some(0));
    assert!(said.contains(&digest), "{said}");
    let (_, said) = review(&asks, Some(image("not-found")));
    assert!(said.contains("the registry has no such tag"), "{said}");
    let (_, said) = review(&asks, Some(json!([])));
    assert!(
        said.contains("no entry of images is about a.example/app:1"),
        "{said}"
    );
    let (_, said) = review(&asks, None);
    assert!(
        said.contains("give it a file with `--images FILE`"),
        "{said}"
    );
}

#[test]
fn only_what_is_granted_is_answered() {
    let key = Key::p256();
    let verified = json!([{"image": "a.example/app:1", "result": "verified"}]);
    let (_, said) = review(
        &asks(VALIDATE, granted("b.example", &key)),
        Some(verified.clone()),
    );
    assert!(
        said.contains("a.example is not in images.registries"),
        "{said}"
    );
    let (_, said) = review(
        &asks(VALIDATE, json!({"capabilities": ["images"]})),
        Some(verified.clone()),
    );
    assert!(said.contains("add `images` to its configuration"), "{said}");
    let (code, said) = review(&asks(VALIDATE, json!({})), Some(verified));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a capability that is not granted"), "{said}");
}

#[test]
fn plugin_that_asks_in_configure_is_not_loaded() {
    let (code, said) = review(
        &asks(CONFIGURE, granted("a.example", &Key::p256())),
        Some(json!([])),
    );
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("configure: contract-violation"), "{said}");
}

#[test]
fn plugin_without_its_keys_is_not_loaded() {
    let mut grant = granted("a.example", &Key::p256());
    grant["images"]["policies"][0]["signers"][0]["key"] = json!("/nonexistent/release.pub");
    let (code, said) = review(&asks(VALIDATE, grant), Some(json!([])));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("images.policies") && said.contains("/nonexistent/release.pub"),
        "{said}"
    );
}

#[test]
fn suite_of_the_plugin_passes() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let of_plugin = binary::workspace().join("plugins/verify-images");
    let copy = |from: PathBuf, to: &str| {
        let to = folder.path().join(to);
        std::fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    std::fs::create_dir(folder.path().join("dist")).expect("a folder can be made");
    copy(guests::build("verify-images"), "dist/verify-images.wasm");
    for file in ["tollgate.yaml", "policy.test.yaml", "release.pub"] {
        copy(of_plugin.join(file), file);
    }
    let suite = folder.path().join("policy.test.yaml").display().to_string();
    let (code, said) = tollgate(&["test", &suite]);
    assert_eq!(code, Some(0), "{said}");
}

/// A registry with artifacts in place of images, and a server that verifies them.
struct Verifying {
    registry: Registry,
    server: Server,
    key: Key,
}

impl Verifying {
    async fn start(more: Value) -> Option<Self> {
        let registry = Registry::start()?;
        let key = Key::p256();
        let host = registry.host();
        let mut entry = granted(&host, &key);
        entry["limits"] = json!({"timeout": "10s"});
        entry["settings"] = json!({"rules": [{"images": [host], "policy": "release"}]});
        for (name, value) in more.as_object().into_iter().flatten() {
            entry["images"][name] = value.clone();
        }
        let hosts = json!([{"host": registry.host(), "ca": registry.ca()}]);
        let registries = json!({"credentials": registry.credentials(), "hosts": hosts});
        let mut configuration = Configuration::new().with("registries", registries);
        configuration.plugin("verify-images", &guests::build("verify-images"), entry);
        let server = Server::start(configuration);
        server.assert_all_loaded().await;
        Some(Self {
            registry,
            server,
            key,
        })
    }

    /// Pushes an image. Returns its name with the tag, and its digest.
    fn push(&self, repository: &str) -> (String, String) {
        let image = format!("{}/{repository}:1", self.registry.host());
        let wasm = wat::marker("image", repository);
        let digest = self.registry.push(&wasm, &format!("oci://{image}"));
        (image, digest)
    }

    async fn mutated(&self, image: &str) -> Checked {
        let review = Review::create(of(image)).build();
        let answer = self.server.mutate(&review).await;
        answer.checked(Endpoint::Mutate, &review)
    }

    async fn validated(&self, image: &str) -> Checked {
        let review = Review::create(of(image)).build();
        let answer = self.server.validate(&review).await;
        answer.checked(Endpoint::Validate, &review)
    }

    #[track_caller]
    fn assert_refused(checked: &Checked, words: &str) {
        assert!(!checked.allowed, "{words}");
        let status = checked.status.as_ref().expect("a refusal has a status");
        let message = status["message"].as_str().unwrap_or_default();
        println!("{message}");
        assert!(message.contains(words), "`{words}` is not in {message}");
    }

    async fn requests(&self) -> f64 {
        metric(
            &self.server.metrics().await,
            "tollgate_image_registry_requests_total",
            &[],
        )
    }
}

fn of(image: &str) -> Value {
    let mut pod = pod("web");
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod["spec"]["containers"]
        .as_array_mut()
        .expect("a list")
        .truncate(1);
    pod["spec"]["initContainers"] = json!([]);
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_verified_with_a_registry() {
    let Some(it) = Verifying::start(json!({"refusedFor": "1s"})).await else {
        return;
    };
    let (signed, digest) = it.push("apps/signed");
    it.registry.sign("apps/signed", &digest, &it.key).await;
    let (bundled, of_bundled) = it.push("apps/bundled");
    it.registry
        .attest(
            "apps/bundled",
            &of_bundled,
            &statement(&of_bundled, SIGN),
            &it.key,
        )
        .await;
    let (unsigned, _) = it.push("apps/unsigned");
    let (stranger, of_stranger) = it.push("apps/stranger");
    it.registry
        .sign("apps/stranger", &of_stranger, &Key::p256())
        .await;

    for (image, digest) in [(&signed, &digest), (&bundled, &of_bundled)] {
        let checked = it.mutated(image).await;
        let changed = checked.patched_object.as_ref().expect("it is changed");
        let pinned = format!("{image}@{digest}");
        assert_eq!(changed["spec"]["containers"][0]["image"], pinned.as_str());
        assert!(it.validated(&pinned).await.allowed);
        Verifying::assert_refused(&it.validated(image).await, "must name its digest");
    }
    Verifying::assert_refused(
        &it.validated(&unsigned).await,
        "is not signed (policy release)",
    );
    Verifying::assert_refused(&it.validated(&stranger).await, "made with another key");
    let missing = format!("{}/apps/signed:2", it.registry.host());
    Verifying::assert_refused(&it.validated(&missing).await, "no such tag");
    Verifying::assert_refused(
        &it.validated("ghcr.io/a/b:1").await,
        "no rule of the settings covers",
    );
    let of_other = format!("{}/apps/signed@{of_stranger}", it.registry.host());
    Verifying::assert_refused(&it.validated(&of_other).await, "is not signed");

    // A verified digest is not asked about again, whatever the number of reviews.
    let (pinned, before) = (format!("{signed}@{digest}"), it.requests().await);
    for _ in 0..50 {
        assert!(it.validated(&pinned).await.allowed);
    }
    assert!(before > 0.0);
    assert_eq!(it.requests().await, before);

    // An image that is signed later is admitted when the refusal has expired.
    let (later, of_later) = it.push("apps/later");
    let pinned = format!("{later}@{of_later}");
    assert!(!it.validated(&pinned).await.allowed);
    it.registry.sign("apps/later", &of_later, &it.key).await;
    until("the refusal has expired", async || {
        it.validated(&pinned).await.allowed
    })
    .await;
}

/// A key that is withdrawn counts no more, although its images were verified a moment ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_key_refuses_images_that_were_verified() {
    let lifetimes = json!({"verifiedFor": "720h", "lastKnownGoodFor": "720h", "refusedFor": "1s"});
    let Some(it) = Verifying::start(lifetimes).await else {
        return;
    };
    let (image, digest) = it.push("apps/withdrawn");
    it.registry.sign("apps/withdrawn", &digest, &it.key).await;
    let pinned = format!("{image}@{digest}");
    assert!(it.validated(&pinned).await.allowed);

    let file = it.key.public();
    let before = std::fs::read(&file).expect("the key can be read");
    std::fs::copy(Key::p256().public(), &file).expect("the key can be replaced");
    until("the image is refused", async || {
        !it.validated(&pinned).await.allowed
    })
    .await;
    Verifying::assert_refused(&it.validated(&pinned).await, "made with another key");

    std::fs::write(&file, before).expect("the key can be replaced");
    until("the image is admitted again", async || {
        it.validated(&pinned).await.allowed
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_reviews_of_a_new_image_share_one_look() {
    let Some(it) = Verifying::start(json!({})).await else {
        return;
    };
    let (image, digest) = it.push("apps/shared");
    it.registry.sign("apps/shared", &digest, &it.key).await;
    let pinned = format!("{image}@{digest}");
    let reviews = (0..40).map(|_| it.validated(&pinned));
    for checked in futures_util::future::join_all(reviews).await {
        assert!(checked.allowed);
    }
    let page = it.server.metrics().await;
    let verified = metric(
        &page,
        "tollgate_image_verifications_total",
        &[("result", "verified")],
    );
    assert_eq!(verified, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_known_good_counts_while_the_registry_is_away() {
    let lifetimes = json!({"verifiedFor": "1s", "resolvedFor": "1s", "lastKnownGoodFor": "1h"});
    let Some(mut it) = Verifying::start(lifetimes).await else {
        return;
    };
    let (image, digest) = it.push("apps/known");
    it.registry.sign("apps/known", &digest, &it.key).await;
    let (other, of_other) = it.push("apps/other");
    it.registry.sign("apps/other", &of_other, &it.key).await;
    let pinned = format!("{image}@{digest}");
    assert!(it.mutated(&image).await.patched_object.is_some());
    assert!(it.validated(&pinned).await.allowed);

    it.registry.kill();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(it.validated(&pinned).await.allowed);
    let checked = it.mutated(&image).await;
    let changed = checked
        .patched_object
        .as_ref()
        .expect("the tag is replaced");
    assert_eq!(changed["spec"]["containers"][0]["image"], pinned.as_str());
    let page = it.server.metrics().await;
    assert!(metric(&page, "tollgate_image_last_known_good_total", &[]) > 0.0);
    // Nobody knows anything good about the other one.
    let unknown = format!("{other}@{of_other}");
    Verifying::assert_refused(&it.validated(&unknown).await, "cannot be verified now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_registry_delays_only_who_asks_it() {
    const SLOW: Duration = Duration::from_secs(2);
    const WAITING: usize = 60;
    let Some(it) = Verifying::start(json!({})).await else {
        return;
    };
    let (known, digest) = it.push("apps/known");
    it.registry.sign("apps/known", &digest, &it.key).await;
    let known = format!("{known}@{digest}");
    assert!(it.validated(&known).await.allowed);
    let (new, digest) = it.push("apps/new");
    it.registry.sign("apps/new", &digest, &it.key).await;
    let new = format!("{new}@{digest}");

    it.registry.pause();
    let began = Instant::now();
    // More reviews wait than the engine has places for.
    let unknown = |index| format!("{}/apps/new@{}", it.registry.host(), digest_of(index));
    let reviews = futures_util::future::join_all((0..WAITING).map(|index| {
        let image = unknown(index);
        let it = &it;
        async move { it.validated(&image).await }
    }));
    let new = async { (it.validated(&new).await, began.elapsed()) };
    let others = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut longest = Duration::ZERO;
        while began.elapsed() < SLOW {
            let asked = Instant::now();
            assert!(it.validated(&known).await.allowed);
            longest = longest.max(asked.elapsed());
        }
        it.registry.resume();
        longest
    };
    let (reviews, (new, waited), longest) = tokio::join!(reviews, new, others);
    println!("a known image: at most {longest:?}; a new image: {waited:?}");
    assert!(new.allowed);
    assert!(waited >= SLOW - Duration::from_millis(100), "{waited:?}");
    assert!(longest < SLOW / 4, "{longest:?}");
    for checked in &reviews {
        assert!(!checked.allowed);
    }
}

/// Returns how many images [`many_digests_take_bounded_memory`] asks about. CONTRIBUTING.md names the variable.
fn digests() -> usize {
    const WITHOUT: usize = 2_000;
    std::env::var("TOLLGATE_DIGESTS").map_or(WITHOUT, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("TOLLGATE_DIGESTS is not a number: {text}"))
    })
}

/// A digest that no image has.
fn digest_of(index: usize) -> String {
    format!("sha256:{index:064x}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_digests_take_bounded_memory() {
    const PER_POD: usize = 50;
    const SLACK_KIB: u64 = 8 * 1024;
    let digests = digests();
    // One KiB for each refusal that is remembered.
    let allowed_kib = SLACK_KIB + digests.min(10_000) as u64;
    let Some(it) = Verifying::start(json!({})).await else {
        return;
    };
    let (image, digest) = it.push("apps/known");
    it.registry.sign("apps/known", &digest, &it.key).await;
    let known = format!("{image}@{digest}");
    let review = |first: usize| {
        let mut object = of("");
        let containers = (first..first + PER_POD).map(|index| {
            let image = format!("{}/apps/known@{}", it.registry.host(), digest_of(index));
            json!({"name": format!("c{index}"), "image": image})
        });
        object["spec"]["containers"] = containers.collect();
        Review::create(object).build()
    };
    for first in (0..4 * PER_POD).step_by(PER_POD) {
        it.server.validate(&review(first)).await;
    }
    let before = it.server.resident_kib();
    let began = Instant::now();
    for first in (0..digests).step_by(PER_POD) {
        let review = review(first);
        let checked = it
            .server
            .validate(&review)
            .await
            .checked(Endpoint::Validate, &review);
        assert!(!checked.allowed);
    }
    let after = it.server.resident_kib();
    println!(
        "{digests} digests in {:?} with {} requests: resident {before} -> {after} KiB",
        began.elapsed(),
        it.requests().await
    );
    assert!(after < before + allowed_kib, "{before} -> {after} KiB");
    assert!(it.validated(&known).await.allowed);
}
