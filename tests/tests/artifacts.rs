//! Pulled artifacts over time: the cache, retries of a bad version, and changes of a CA.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::registry::{Key, Registry};
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::{Server, until};
use tollgate_tests::wat::{self, marker};
use tollgate_tests::{binary, guests, left_out};

async fn labels(server: &Server) -> Value {
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).build();
    let checked = server
        .mutate(&review)
        .await
        .checked(Endpoint::Mutate, &review);
    assert!(checked.allowed, "{:?}", checked.status);
    checked
        .patched_object
        .map_or(json!({}), |object| object["metadata"]["labels"].clone())
}

fn configuration(registry: &Registry) -> Configuration {
    let registries = json!({
        "pollInterval": "1s",
        "credentials": registry.credentials(),
        "hosts": [{"host": registry.host(), "ca": registry.ca()}],
    });
    Configuration::new().with("registries", registries)
}

/// Creates a plugin of 0.8 MB that sets a label.
fn large(label: &str, version: &str) -> Vec<u8> {
    let filling = format!("{label} {version} ").repeat(800_000 / (label.len() + version.len()));
    guests::with_section(
        &marker(label, version),
        "filling",
        &filling.as_bytes()[..800_000],
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_cache_keeps_artifacts_of_serving_plugins() {
    let Some(mut registry) = Registry::start() else {
        return;
    };
    let host = registry.host();
    let reference = |name: &str| format!("oci://{host}/large/{name}:1");
    registry.push(&large("colour", "red"), &reference("colour"));
    let round = registry.push(&large("shape", "round"), &reference("shape"));
    let key = Key::p256();
    registry.sign("large/shape", &round, &key).await;
    let first = configuration(&registry);
    let cache = first.folder().join("artifacts");
    let plugins = json!([
        {"name": "colour", "source": reference("colour")},
        {"name": "shape", "source": reference("shape"), "signatures": {"keys": [key.public()]}},
    ]);
    let first = first
        .with("registries.cacheDirectory", json!(cache))
        .with("registries.maxCache", "1Mi")
        .with("plugins", plugins);
    let server = Server::start(first);
    let before = json!({"colour": "red", "shape": "round"});
    assert_eq!(labels(&server).await, before);
    let warned = |line: &String| line.contains("more than registries.maxCache");
    until("the warning about maxCache is logged", async || {
        server.logs().iter().any(warned)
    })
    .await;

    // The plugins are the same as after the first start, although the registry is down.
    registry.kill();
    let server = Server::start(server.kill());
    assert_eq!(labels(&server).await, before);

    // The same holds after one of them got a new version. Its previous version then leaves the cache.
    let registry = registry.again();
    let square = registry.push(&large("shape", "square"), &reference("shape"));
    registry.sign("large/shape", &square, &key).await;
    let after = json!({"colour": "red", "shape": "square"});
    until("the new version", async || labels(&server).await == after).await;
    let (mut registry, killed) = (registry, server.kill());
    registry.kill();
    let server = Server::start(killed);
    assert_eq!(labels(&server).await, after);
    let blobs = std::fs::read_dir(cache.join("blobs/sha256")).expect("the cache is there");
    let large = blobs
        .flatten()
        .filter(|entry| entry.metadata().is_ok_and(|data| data.len() > 100_000));
    assert_eq!(large.count(), 2, "the replaced version has left the cache");
}

/// The current time, in the format of `/plugins`.
fn now() -> String {
    let output = Command::new("date").args(["-u", "+%FT%TZ"]).output();
    let output = output.expect("date is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_bad_version_on_schedule_and_loads_good_one_at_once() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let reference = format!("oci://{}/policies/colour:stable", registry.host());
    registry.push(&marker("colour", "red"), &reference);
    let mut followed = configuration(&registry);
    followed.plugin("colour", Path::new("unused"), json!({"source": reference}));
    let server = Server::start(followed);
    server.assert_all_loaded().await;

    let bad = registry.push(&wat::binary("(component)"), &reference);
    let mut said: Vec<(u64, String)> = Vec::new();
    println!("attempts | at | next attempt as /plugins has it");
    until("five attempts", async || {
        let wanted = server.plugin_status("colour").await["desired"].take();
        let (attempts, next) = (wanted["attempts"].as_u64(), wanted["nextAttempt"].as_str());
        if let (Some(attempts), Some(next)) = (attempts, next)
            && said.last().is_none_or(|(before, _)| *before != attempts)
        {
            let at = now();
            println!("{attempts} | {at} | {next}");
            assert_eq!(wanted["digest"], bad.as_str());
            if let Some((before, promised)) = said.last() {
                assert_eq!(attempts, before + 1);
                assert!(
                    at >= *promised,
                    "the next attempt was at {at}, before the promised {promised}"
                );
            }
            said.push((attempts, next.to_owned()));
        }
        attempts >= Some(5)
    })
    .await;

    // The next attempt for the bad version is more than ten seconds away. Tollgate still polls the tag meanwhile.
    registry.push(&marker("colour", "green"), &reference);
    let took = until("green", async || {
        labels(&server).await == json!({"colour": "green"})
    })
    .await;
    println!("the good version was in force {took:?} after its push");
    assert!(
        took < Duration::from_secs(8),
        "the good version waited for the retry of the bad one"
    );
    let status = server.plugin_status("colour").await;
    assert_eq!(status["state"], "loaded", "{status:#}");

    // A bad version that was replaced is no longer reported.
    registry.push(&wat::binary("(component)"), &reference);
    let state = async || server.plugin_status("colour").await["state"].clone();
    until("the bad version is reported", async || {
        state().await == "degraded"
    })
    .await;
    registry.push(&marker("colour", "green"), &reference);
    until("no trouble is reported", async || state().await == "loaded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_registry_ca_needs_no_restart() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let reference = format!("oci://{}/policies/colour:stable", registry.host());
    registry.push(&marker("colour", "red"), &reference);
    let mut followed = configuration(&registry);
    followed.plugin("colour", Path::new("unused"), json!({"source": reference}));
    let server = Server::start(followed);
    assert_eq!(labels(&server).await, json!({"colour": "red"}));
    let registry = registry.with_another_ca();
    registry.push(&marker("colour", "green"), &reference);
    let took = until("green", async || {
        labels(&server).await == json!({"colour": "green"})
    })
    .await;
    println!("in force {took:?} after the push, by the new CA");
}

/// Finds `cosign` by `TOLLGATE_COSIGN` or the search path. If it is missing, reports that and returns none.
fn cosign() -> Option<PathBuf> {
    let named = std::env::var_os("TOLLGATE_COSIGN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("cosign"));
    let found = named.or_else(|| found.find(|program| program.is_file()));
    if found.is_none() {
        left_out(
            "signatures were NOT tested against cosign's own: put it into the search path or into TOLLGATE_COSIGN",
        );
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepts_cosign_signatures() {
    let (Some(cosign), Some(registry)) = (cosign(), Registry::start()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    std::fs::copy(registry.credentials(), folder.path().join("config.json"))
        .expect("a file can be copied");
    let run = |arguments: &[&str]| {
        let output = Command::new(&cosign)
            .args(arguments)
            .current_dir(folder.path())
            .env("COSIGN_PASSWORD", "")
            .env("DOCKER_CONFIG", folder.path())
            .env("SSL_CERT_FILE", registry.ca())
            .output();
        let output = output.expect("cosign can be run");
        let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        let said = said.concat();
        assert!(output.status.success(), "cosign {arguments:?}: {said}");
        said
    };
    let help = run(&["sign", "--help"]);
    let understands = |flag: &str| help.contains(flag);
    let mut offline = vec!["--tlog-upload=false"];
    // Since version 3, a signing configuration says where signatures are logged.
    let is_new = understands("--use-signing-config");
    if is_new {
        offline.push("--use-signing-config=false");
    }
    // Version 3 understands the flag, and its help does not show it.
    let formats: &[(&str, &[&str])] = match is_new || understands("--new-bundle-format") {
        true => &[
            ("tag", &["--new-bundle-format=false"]),
            ("bundle", &["--new-bundle-format=true"]),
        ],
        false => &[("tag", &[])],
    };
    let curve = |curve: &str| Key::new(&["EC", "-pkeyopt", &format!("ec_paramgen_curve:{curve}")]);
    for (kind, key) in [
        ("p-256", curve("P-256")),
        ("p-384", curve("P-384")),
        (
            "rsa",
            Key::new(&["RSA", "-pkeyopt", "rsa_keygen_bits:3072"]),
        ),
    ] {
        let private = key.private().display().to_string();
        run(&[
            "import-key-pair",
            "--key",
            &private,
            "--output-key-prefix",
            kind,
            "-y",
        ]);
        let key_file = format!("{kind}.key");
        for (format, flags) in formats {
            let reference = format!("{}/signed/{kind}-{format}:1", registry.host());
            let digest = registry.push(&marker("colour", kind), &format!("oci://{reference}"));
            let what = format!("{reference}@{digest}");
            let sign = ["sign", "--key", &key_file, "-y", &what];
            run(&[&sign[..], &offline, flags].concat());
            let output = Command::new(binary::tollgate())
                .args(["verify", &reference, "--key", &format!("{kind}.pub")])
                .args([Path::new("--ca"), &registry.ca()])
                .args([Path::new("--credentials"), &registry.credentials()])
                .current_dir(folder.path())
                .output()
                .expect("tollgate can be run");
            let said = String::from_utf8_lossy(&output.stdout);
            println!("{said}");
            assert!(output.status.success(), "{kind}, {format}: {said}");
        }
    }
}
