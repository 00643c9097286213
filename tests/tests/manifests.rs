//! `tollgate manifests` prints the registration of the host, and refuses to print one that would do harm.

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::server::Server;
use tollgate_tests::{binary, hostile};

struct Printed {
    code: Option<i32>,
    output: String,
    errors: String,
}

fn manifests(configuration: &Configuration, arguments: &[&str]) -> Printed {
    let output = Command::new(binary::tollgate())
        .arg("manifests")
        .arg("--config")
        .arg(configuration.write())
        .args(arguments)
        .output();
    let output = output.unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    Printed {
        code: output.status.code(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Printed {
    #[track_caller]
    fn assert_refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.errors);
        assert_eq!(self.output, "");
        for word in words {
            assert!(
                self.errors.contains(word),
                "`{word}` is not in:\n{}",
                self.errors
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_whose_rollout_ends_in_enforce_is_registered_as_such() {
    let printed = |more| {
        let mut configuration = Configuration::new();
        configuration.plugin_of("harmless", &hostile::harmless(), more);
        let cache = configuration.folder().join("artifacts");
        let configuration = configuration.with("registries", json!({"cacheDirectory": cache}));
        let server = with_authority(configuration);
        let url = format!("https://localhost:{}", server.address().port());
        manifests(server.configuration(), &["--url", &url]).output
    };
    let rollout = json!({"steps": [{"mode": "enforce", "for": "1h"}]});
    let with = printed(json!({"mode": "warn", "rollout": rollout}));
    assert!(with.contains("failurePolicy: Fail\n"), "{with}");
    let without = printed(json!({"mode": "warn"}));
    assert!(!without.contains("failurePolicy: Fail\n"), "{without}");
}

/// Creates a CA in the configuration's folder, as the first start of a server does.
fn with_authority(configuration: Configuration) -> Server {
    Server::start(configuration)
}

#[tokio::test(flavor = "multi_thread")]
async fn registers_server_with_its_rules_and_ca() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    let server = with_authority(configuration);
    let configuration = server.configuration();
    let url = format!("https://localhost:{}", server.address().port());
    let printed = manifests(configuration, &["--url", &url]);
    assert_eq!(printed.code, Some(0), "{}", printed.errors);
    let ca = std::fs::read(configuration.folder().join("tls/ca.crt")).expect("the CA");
    let ca_bundle = format!("    caBundle: {}\n", STANDARD.encode(ca));
    for text in [
        "kind: MutatingWebhookConfiguration\n",
        "\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n",
        &format!("    url: {url}/mutate\n"),
        &format!("    url: {url}/validate\n"),
        &ca_bundle,
        "    - \"*/*\"\n",
        "      - kube-node-lease\n      - kube-system\n",
        "  - name: exclude-break-glass\n",
        "  - name: exclude-leases\n",
        "  - name: exclude-nodes\n",
    ] {
        assert!(
            printed.output.contains(text),
            "`{text}` is not in:\n{}",
            printed.output
        );
    }
    assert!(!printed.errors.contains("nodes need"), "{}", printed.errors);
    let alone = manifests(configuration, &["--url", &url, "--per-plugin"]);
    let path = format!("    url: {url}/validate/harmless\n");
    assert!(alone.output.contains(&path), "{}", alone.output);
    // The server's certificate does not cover this name, so kube-apiserver would report an error to every user.
    manifests(configuration, &["--service", "gate-system/gate"]).assert_refused(
        2,
        &[
            "not valid for gate.gate-system.svc",
            "set tls.selfSigned.service: gate.gate-system",
        ],
    );
}

#[test]
fn separates_webhooks_of_hidden_plugins_and_says_why() {
    let mut configuration = Configuration::new();
    for (name, versions) in [("hpa-limit", json!(["v2"])), ("labels", json!(["*"]))] {
        let rules = json!([{
            "operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": versions,
            "resources": ["horizontalpodautoscalers"],
        }]);
        let keys = json!({"match": {"rules": rules}});
        configuration.plugin_of(name, &hostile::harmless(), keys);
    }
    let authority = configuration.folder().join("ca.pem");
    std::fs::write(&authority, CA).expect("written");
    let ca = authority.display().to_string();
    let printed = manifests(&configuration, &["--url", "https://localhost", "--ca", &ca]);
    assert_eq!(printed.code, Some(0), "{}", printed.errors);
    for path in [
        "mutate/hpa-limit",
        "mutate/labels",
        "validate/hpa-limit",
        "validate/labels",
    ] {
        let url = format!("    url: https://localhost/{path}\n");
        assert!(printed.output.contains(&url), "{url}{}", printed.output);
    }
    for plugins in ["mutating", "validating"] {
        let why = format!(
            "tollgate: each of the {plugins} plugins gets its own webhook: in a shared webhook, hpa-limit would not be \
             called for horizontalpodautoscalers.autoscaling in every version"
        );
        assert!(printed.errors.contains(&why), "{}", printed.errors);
    }
}

#[test]
fn warns_of_rules_that_name_resources_of_nodes() {
    let mut configuration = Configuration::new();
    for (name, resource) in [("node-labels", "nodes"), ("everything", "*")] {
        let rules = json!([{
            "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource],
        }]);
        let keys = json!({"match": {"rules": rules}});
        configuration.plugin_of(name, &hostile::harmless(), keys);
    }
    let authority = configuration.folder().join("ca.pem");
    std::fs::write(&authority, CA).expect("written");
    let ca = authority.display().to_string();
    let printed = manifests(&configuration, &["--url", "https://localhost", "--ca", &ca]);
    assert_eq!(printed.code, Some(0), "{}", printed.errors);
    assert!(
        !printed.output.contains("exclude-nodes"),
        "{}",
        printed.output
    );
    for webhook in ["mutating", "validating"] {
        let warning = format!(
            "tollgate: warning: a {webhook} webhook under failurePolicy Fail is registered for resources that nodes \
             need: nodes (named in the rules of node-labels);"
        );
        assert!(printed.errors.contains(&warning), "{}", printed.errors);
    }
}

#[test]
fn does_not_print_registration_that_cannot_work() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    let url = ["--url", "https://localhost"];
    manifests(&configuration, &[]).assert_refused(2, &["--service NAMESPACE/NAME"]);
    manifests(&configuration, &url).assert_refused(2, &["tls/ca.crt", "tollgate serve", "--ca"]);
    let no_certificate = configuration.folder().join("tollgate.yaml");
    let ca = no_certificate.display().to_string();
    manifests(&configuration, &[url[0], url[1], "--ca", &ca])
        .assert_refused(2, &["contains no certificate"]);
    let authority = configuration.folder().join("ca.pem");
    std::fs::write(&authority, CA).expect("written");
    let ca = authority.display().to_string();
    let arguments = [url[0], url[1], "--ca", &ca];
    configuration.plugin_of(
        "slow",
        &hostile::harmless(),
        json!({"limits": {"timeout": "27s"}}),
    );
    manifests(&configuration, &arguments).assert_refused(
        2,
        &[
            "may take 27500ms (harmless 500ms + slow 27s)",
            "only 27s are left",
            "--per-plugin",
        ],
    );
    configuration.plugin("absent", Path::new("/nowhere/absent.wasm"), json!({}));
    manifests(&configuration, &arguments)
        .assert_refused(1, &["absent: NOT LOADED", "/nowhere/absent.wasm"]);
}

/// A CA with arbitrary content, because only kube-apiserver reads it.
const CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
