//! How the host authenticates to a real registry: tokens, and the credentials that docker and podman store.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::binary;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::registry::Registry;
use tollgate_tests::registry::tokens::{IDENTITY, Tokens};
use tollgate_tests::server::Server;
use tollgate_tests::wat::marker;

/// `user:secret`, a wrong password, and the error for wrong or missing credentials.
const SECRET: &str = "dXNlcjpzZWNyZXQ=";
const WRONG: &str = "dXNlcjp3cm9uZw==";
const REFUSED: &str = "the credentials are missing, wrong or not valid for this repository";

/// A folder with a config file and, in some tests, a helper `docker-credential-tests`.
struct User(TempDir);

// === impl User ===

impl User {
    fn new(config: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        std::fs::write(folder.path().join("config.json"), config.to_string())
            .expect("a file can be written");
        Self(folder)
    }

    fn with_helper(self, script: &str) -> Self {
        let path = self.0.path().join("docker-credential-tests");
        std::fs::write(&path, format!("#!/bin/sh\nread server\n{script}\n"))
            .expect("a file can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
            .expect("a file of one's own can be made a program");
        self
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("config.json")
    }

    /// Runs `tollgate`. Returns whether it succeeded, and its output.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(binary::tollgate())
            .args(arguments)
            .args([Path::new("--plain-http"), Path::new("--credentials")])
            .arg(self.config())
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .current_dir(self.0.path())
            .output()
            .expect("tollgate can be run");
        let streams = [output.stdout, output.stderr];
        let text = streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    fn push(&self, reference: &str) -> (bool, String) {
        std::fs::write(self.0.path().join("plugin.wasm"), marker("colour", "red"))
            .expect("a file can be written");
        self.run(&["push", "plugin.wasm", reference])
    }

    fn pull(&self, reference: &str) -> (bool, String) {
        self.run(&["pull", reference, "-o", "pulled.wasm"])
    }
}

fn refused((success, text): (bool, String), part: &str) {
    println!("refused | {}", text.trim());
    assert!(!success && text.contains(part), "{text}");
    assert!(!text.contains("secret") && !text.contains(SECRET), "{text}");
}

fn done((success, text): (bool, String)) {
    assert!(success, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_registry_serves_only_what_token_grants() {
    let tokens = Tokens::start().await;
    let Some(registry) = Registry::with_tokens(&tokens) else {
        return;
    };
    let host = registry.host();
    let entry = |entry: Value| User::new(&json!({"auths": {&host: entry}}));
    let user = entry(json!({"auth": SECRET}));
    let reference = format!("oci://{host}/policies/colour:1");
    done(user.push(&reference));
    done(user.pull(&reference));
    done(entry(json!({"identitytoken": IDENTITY, "auth": WRONG})).pull(&reference));

    refused(entry(json!({})).pull(&reference), REFUSED);
    refused(entry(json!({"auth": WRONG})).pull(&reference), REFUSED);
    refused(
        entry(json!({"identitytoken": "another"})).pull(&reference),
        REFUSED,
    );
    refused(
        user.push(&format!("oci://{host}/of-others/colour:1")),
        REFUSED,
    );

    let registries = json!({
        "credentials": user.config(),
        "hosts": [{"host": host, "plainHTTP": true}],
    });
    let mut configuration = Configuration::new().with("registries", registries);
    let source = json!({"source": reference});
    configuration.plugin("colour", Path::new("unused"), source);
    Server::start(configuration).assert_all_loaded().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_anonymously_when_helper_has_no_credential() {
    let tokens = Tokens::start().await;
    let Some(registry) = Registry::with_tokens(&tokens) else {
        return;
    };
    let host = registry.host();
    let public = format!("oci://{host}/public/colour:1");
    done(User::new(&json!({"auths": {&host: {"auth": SECRET}}})).push(&public));

    let store = || User::new(&json!({"auths": {&host: {}}, "credsStore": "tests"}));
    let not_found = "echo 'credentials not found in native keychain'; exit 1";
    let nobody = store().with_helper(not_found);
    done(nobody.pull(&public));
    refused(
        nobody.pull(&format!("oci://{host}/policies/colour:1")),
        REFUSED,
    );
    let locked = store().with_helper("echo 'the keychain is locked: secret'; exit 1");
    refused(locked.pull(&public), "docker-credential-tests failed for");
    let knows = r#"printf '{"Username": "user", "Secret": "secret"}'"#;
    done(store().with_helper(knows).push(&public));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn podman_entries_apply_to_their_part_of_registry() {
    let tokens = Tokens::start().await;
    let Some(registry) = Registry::with_tokens(&tokens) else {
        return;
    };
    let host = registry.host();
    let reference = format!("oci://{host}/policies/team/colour:1");
    let entries = |entries: Value| User::new(&json!({"auths": entries}));
    for good in ["", "/", "/policies", "/policies/", "/policies/team/colour"] {
        let key = format!("{host}{good}");
        done(entries(json!({ key: {"auth": SECRET} })).push(&reference));
    }
    let (team, whole) = (format!("{host}/policies/team"), host.clone());
    let both = entries(json!({team.clone(): {"auth": SECRET}, whole.clone(): {"auth": WRONG}}));
    done(both.pull(&reference));
    let both = entries(json!({team: {"auth": WRONG}, whole: {"auth": SECRET}}));
    refused(both.pull(&reference), REFUSED);
    let other = format!("{host}/policies/team/colour-of-others");
    refused(
        entries(json!({ other: {"auth": SECRET} })).pull(&reference),
        REFUSED,
    );
}
