//! Policies for signatures, with a real registry: what `verify` explains, and what a server loads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::binary;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::registry::{Key, Registry, statement};
use tollgate_tests::server::Server;
use tollgate_tests::wat::marker;

const SIGN: &str = "https://sigstore.dev/cosign/sign/v1";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command about an artifact. Returns the exit code and the output.
fn tollgate(registry: &Registry, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary::tollgate())
        .args(arguments)
        .arg("--ca")
        .arg(registry.ca())
        .arg("--credentials")
        .arg(registry.credentials())
        .output()
        .expect("tollgate can be run");
    let streams = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    (output.status.code(), streams.concat())
}

/// Pushes a plugin with a version, and returns the artifact's digest.
fn push(registry: &Registry, colour: &str, version: &str, reference: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("plugin.wasm");
    std::fs::write(&file, marker("colour", colour)).expect("a file can be written");
    let version = format!("org.opencontainers.image.version={version}");
    let file = file.display().to_string();
    let (code, said) = tollgate(
        registry,
        &["push", &file, reference, "--annotation", &version],
    );
    assert_eq!(code, Some(0), "{said}");
    let digest = said.trim_end().rsplit('@').next().unwrap_or_default();
    digest.to_owned()
}

/// A policy with these two keys as signers, and more rules.
fn policy(registry: &Registry, keys: [&Key; 2], more: Value) -> Value {
    let mut policy = json!({
        "name": "guards",
        "repositories": [format!("{}/policies/*", registry.host())],
        "signers": [
            {"name": "release", "key": keys[0].public()},
            {"name": "review", "key": keys[1].public()},
        ],
    });
    let rules = policy.as_object_mut().expect("it is an object");
    rules.extend(more.as_object().cloned().unwrap_or_default());
    json!({"policies": [policy]})
}

fn write(folder: &Path, signatures: &Value) -> PathBuf {
    let path = folder.join("tollgate.yaml");
    let text = json!({"signatures": signatures}).to_string();
    std::fs::write(&path, text).expect("a file can be written");
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_explains_every_rule_of_a_policy() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let (release, review, stranger) = (Key::p256(), Key::p256(), Key::p256());
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let reference = format!("oci://{}/policies/guard:1", registry.host());
    let digest = push(&registry, "red", "1.4.2", &reference);
    let verify = |what: &str, more: Value, code: i32, parts: &[&str]| {
        let file = write(folder.path(), &policy(&registry, [&release, &review], more));
        let file = file.display().to_string();
        let (found, said) = tollgate(&registry, &["verify", &reference, "--config", &file]);
        println!("{what} | {}", said.lines().collect::<Vec<_>>().join(" / "));
        assert_eq!(found, Some(code), "{what}: {said}");
        for part in parts {
            assert!(said.contains(part), "{what}: `{part}` is not in\n{said}");
        }
    };
    let bare = json!({});
    verify(
        "unsigned",
        bare.clone(),
        1,
        &["none, under the tag sha256-"],
    );

    // One signs in the format of cosign 2, and the other in that of cosign 3.
    registry.sign("policies/guard", &digest, &release).await;
    verify(
        "one signer",
        bare.clone(),
        0,
        &["policy    guards", "one by a key of"],
    );
    let two = json!({"threshold": 2});
    verify(
        "one of two",
        two.clone(),
        1,
        &["signers: expected signatures of 2 signers", "found 1"],
    );
    let attest = async |statement: &Value, key: &Key| {
        registry
            .attest("policies/guard", &digest, statement, key)
            .await;
    };
    attest(&statement(&digest, "https://cyclonedx.org/bom"), &review).await;
    verify(
        "an attestation is no signature",
        two.clone(),
        1,
        &["which is not a signature"],
    );
    let sbom = json!({"attestations": {"sbom": true}});
    verify("attested SBOM", sbom.clone(), 0, &["an attested SBOM"]);
    attest(&statement(&digest, SIGN), &stranger).await;
    verify("a stranger", two.clone(), 1, &["one made with another key"]);
    verify("no SBOM", sbom, 1, &["attestations.sbom: expected an SBOM"]);
    attest(&statement(&digest, SIGN), &review).await;
    verify("two signers", two, 0, &["verified"]);

    verify(
        "new enough",
        json!({"minimumVersion": "1.4.0"}),
        0,
        &["verified"],
    );
    verify(
        "too old",
        json!({"minimumVersion": "1.5.0"}),
        1,
        &["minimumVersion: expected 1.5.0 or later, found 1.4.2"],
    );
    let bound = json!({"bindRepository": true});
    verify(
        "not bound",
        bound.clone(),
        1,
        &[
            "for no repository (docker-reference)",
            "for no repository (dev.tollgate.repository)",
        ],
    );
    let mut named = statement(&digest, SIGN);
    let repository = format!("{}/policies/guard", registry.host());
    named["subject"][0]["annotations"] = json!({"dev.tollgate.repository": repository});
    attest(&named, &review).await;
    verify("bound", bound, 0, &["verified"]);
    verify(
        "another repository",
        json!({"repositories": ["registry.example.com/*"]}),
        1,
        &["repositories: no policy covers"],
    );
    let (code, said) = tollgate(&registry, &["verify", &reference]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nothing is required"), "{said}");
    let (code, said) = tollgate(&registry, &["verify", &reference, "--bind-repository"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--key <FILE>|--identity"), "{said}");
}

/// Waits until the status of the plugin satisfies a condition.
async fn until(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let status = server.plugin_status("colour").await;
        if is_so(&status) {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {status:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_version_under_the_tag_replaces_nothing() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let (release, review) = (Key::p256(), Key::p256());
    let reference = format!("oci://{}/policies/guard:stable", registry.host());
    let new = push(&registry, "red", "1.4.0", &reference);
    registry.sign("policies/guard", &new, &release).await;
    let hosts = json!([{"host": registry.host(), "ca": registry.ca()}]);
    let registries =
        json!({"pollInterval": "1s", "credentials": registry.credentials(), "hosts": hosts});
    let rules = json!({"minimumVersion": "1.4.0"});
    let mut configuration = Configuration::new()
        .with("registries", registries)
        .with("signatures", policy(&registry, [&release, &review], rules));
    configuration.plugin("colour", Path::new("unused"), json!({"source": reference}));
    let server = Server::start(configuration);
    let status = until(&server, "loaded", |status| status["digest"] == new.as_str()).await;
    assert_eq!(status["state"], "loaded", "{status:#}");

    // The registry moves the tag back to a version with a valid signature.
    let old = push(&registry, "green", "1.3.0", &reference);
    registry.sign("policies/guard", &old, &release).await;
    let status = until(&server, "refused", |status| status["state"] == "degraded").await;
    let reason = status["desired"]["reason"].as_str().unwrap_or_default();
    println!("older | {reason}");
    for part in [
        old.as_str(),
        "is not signed as the policy guards requires",
        "minimumVersion: expected 1.4.0 or later, found 1.3.0",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(status["digest"], new.as_str(), "{status:#}");
}
