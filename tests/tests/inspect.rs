//! The output and the exit codes of `tollgate inspect` and `tollgate verify`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate_tests::registry::misbehaving::{Behaviour, Fault, Misbehaving};
use tollgate_tests::registry::{Key, Registry};
use tollgate_tests::wat::{self, marker};
use tollgate_tests::{binary, guests, hostile};

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(binary::tollgate()).args(arguments).output();
    output.expect("tollgate can be run")
}

fn text(output: &Output) -> String {
    let streams =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    streams.concat()
}

/// Runs a command on an artifact of the real registry.
fn about(registry: &Registry, command: &[&str], keys: &[&Key]) -> Output {
    let path = |path: std::path::PathBuf| path.display().to_string();
    let mut arguments: Vec<String> = command.iter().map(ToString::to_string).collect();
    arguments.extend(["--ca".to_owned(), path(registry.ca())]);
    arguments.extend(["--credentials".to_owned(), path(registry.credentials())]);
    for key in keys {
        arguments.extend(["--key".to_owned(), path(key.public())]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&arguments)
}

fn push(registry: &Registry, wasm: &[u8], reference: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("plugin.wasm");
    std::fs::write(&file, wasm).expect("a file can be written");
    let output = about(
        registry,
        &["push", &file.display().to_string(), reference],
        &[],
    );
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        output.stderr.is_empty(),
        "no bar where nobody looks: {}",
        text(&output)
    );
    let text = text(&output);
    let digest = text.trim_end().rsplit('@').next().unwrap_or_default();
    digest.to_owned()
}

#[test]
fn prints_file_as_text_and_json() {
    let file = guests::build("required-labels");
    let wasm = std::fs::read(&file).expect("the plugin has been built");
    let file = file.display().to_string();
    let output = run(&["inspect", &file]);
    let said = text(&output);
    println!("{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let digest = format!("sha256:{:x}", Sha256::digest(&wasm));
    for part in [
        digest.as_str(),
        "core module, which is converted to a component",
        "contract     tollgate:admission@0.1.0",
        "tollgate:admission/validating@0.1.0",
        "name         required-labels",
        "rules        ",
        "      \"properties\": {",
    ] {
        assert!(said.contains(part), "`{part}` is not in\n{said}");
    }

    let output = run(&["inspect", &file, "-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(told["digest"], digest);
    assert_eq!(told["size"], wasm.len());
    assert_eq!(told["contract"][0], "tollgate:admission@0.1.0");
    assert_eq!(told["manifest"]["name"], "required-labels");
    assert!(
        told["manifest"]["rules"][0]["operations"].is_array(),
        "{told:#}"
    );
    assert!(told["settingsSchema"]["properties"].is_object(), "{told:#}");
    assert_eq!(told.get("signatures"), None, "a file has none");

    // A plugin that also imports the clock.
    let file = guests::build("deploy-window").display().to_string();
    let output = run(&["inspect", &file, "-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let imports = told["imports"].to_string();
    assert!(imports.contains("tollgate:admission/clock@"), "{imports}");
}

#[test]
fn signature_of_a_file_cannot_be_checked() {
    let plugin = guests::build("always-pull-images");
    let plugin = plugin.display().to_string();
    let output = run(&["inspect", &plugin, "--key", "cosign.pub"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        text(&output).contains("a file has no signatures"),
        "{}",
        text(&output)
    );
}

#[test]
fn describes_files_that_are_not_plugins() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let modules = hostile::all();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        path.display().to_string()
    };
    let rows = [
        (write("script", b"#!/bin/sh"), 1, "it is not WebAssembly"),
        (
            write("other", &modules["unknown-import"]),
            1,
            "REJECTED BY THE HOST: compile: it imports",
        ),
        (
            folder.path().join("none").display().to_string(),
            2,
            "no such file",
        ),
        (
            format!("file:{}/none", folder.path().display()),
            2,
            "cannot read",
        ),
    ];
    for (plugin, code, part) in rows {
        let output = run(&["inspect", &plugin]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(part), "`{part}` is not in\n{said}");
    }
    // A plugin that needs settings can be inspected too, because it is not configured.
    let rejects = write("rejects", &modules["configure-rejects"]);
    assert_eq!(run(&["inspect", &rejects]).status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifies_signature_and_prints_expected_and_found() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let (trusted, next, stranger) = (Key::p256(), Key::p256(), Key::p256());
    let reference = |tag: &str| format!("oci://{}/signed/colour:{tag}", registry.host());
    let red = push(&registry, &marker("colour", "red"), &reference("1"));
    let verify = |what: &str, reference: &str, keys: &[&Key], code: i32, part: &str| {
        let output = about(&registry, &["verify", reference], keys);
        let said = text(&output);
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        println!("{what} | {} | {}", output.status, lines.join(" / "));
        assert_eq!(output.status.code(), Some(code), "{what}: {said}");
        assert!(said.contains(part), "{what}: `{part}` is not in\n{said}");
    };

    verify(
        "no signature",
        &reference("1"),
        &[&trusted],
        1,
        "none, under the tag sha256-",
    );
    registry.sign("signed/colour", &red, &stranger).await;
    verify(
        "wrong key",
        &reference("1"),
        &[&trusted],
        1,
        "one made with another key",
    );
    registry.sign("signed/colour", &red, &trusted).await;
    verify("right key", &reference("1"), &[&trusted], 0, "one by ");
    verify(
        "one of two keys",
        &reference("1"),
        &[&next, &trusted],
        0,
        "verified",
    );
    registry.sign("signed/colour", &red, &next).await;
    verify(
        "rotated key, old one",
        &reference("1"),
        &[&trusted],
        1,
        "one made with another key",
    );
    verify(
        "rotated key, new one",
        &reference("1"),
        &[&next],
        0,
        "verified",
    );
    verify(
        "no such tag",
        &reference("none"),
        &[&next],
        2,
        "there is no such repository, tag or digest",
    );
    let output = about(
        &registry,
        &["verify", &reference("1"), "--key", "/none.pub"],
        &[],
    );
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));

    let output = about(&registry, &["inspect", &reference("1")], &[&next]);
    let said = text(&output);
    println!("{said}");
    assert!(
        said.contains("signature    by ") && said.contains(&red),
        "{said}"
    );
    let output = about(&registry, &["inspect", &reference("1")], &[]);
    assert!(
        text(&output).contains("signatures   1, not verified"),
        "{}",
        text(&output)
    );

    // The registry itself becomes malicious: its stored content changes.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let pulled = folder.path().join("plugin.wasm");
    let pull = ["pull", &reference("1"), "-o", &pulled.display().to_string()];
    assert!(about(&registry, &pull, &[]).status.success());
    let wasm = std::fs::read(&pulled).expect("it has been pulled");
    let layer = format!("sha256:{:x}", Sha256::digest(&wasm));
    let mut other = wasm.clone();
    other.reverse();
    registry.tamper(&layer, |_| other);
    verify(
        "tampered layer",
        &reference("1"),
        &[&next],
        1,
        "it was damaged or replaced in the registry",
    );
    registry.tamper(&layer, |_| wasm);
    verify("as it was", &reference("1"), &[&next], 0, "verified");
    registry.tamper(&red, |mut manifest| {
        manifest.push(b' ');
        manifest
    });
    verify(
        "tampered manifest, by tag",
        &reference("1"),
        &[&next],
        1,
        "none, under the tag sha256-",
    );
    let pinned = reference("1").replace(":1", &format!("@{red}"));
    let output = about(&registry, &["verify", &pinned], &[&next]);
    let said = text(&output);
    println!(
        "tampered manifest, by digest | {} | {}",
        output.status,
        said.trim()
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the manifest has the digest sha256:"),
        "{said}"
    );
    assert!(
        !Path::new("colour.wasm").exists(),
        "verify leaves nothing behind"
    );
}

/// Annotations as a plugin's author may write them, with what a terminal must not get.
fn annotations() -> Value {
    json!({
        "org.opencontainers.image.title": "colours",
        "org.opencontainers.image.description": "Paints \u{1b}[31mobjects",
        "org.opencontainers.image.licenses": "MIT",
        "dev.tollgate.rules": r#"[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"],"scope":null}]"#,
        "dev.tollgate.settings-schema": r#"{"type":"object","properties":{"colour":{"type":"string"}}}"#,
        "com.example.team": "platform",
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shows_metadata_and_catalogue_without_pulling_the_layer() {
    // The registry cuts every layer.
    let mut behaviour = Behaviour::of(marker("colour", "red")).with(Fault::Truncated);
    behaviour.manifest["annotations"] = annotations();
    let registry = Misbehaving::start(behaviour).await;
    let reference = format!("oci://{}/policies/colour:1", registry.host());
    let pulled = run(&["inspect", &reference, "--plain-http"]);
    assert_eq!(pulled.status.code(), Some(2), "{}", text(&pulled));

    let output = run(&["inspect", &reference, "--plain-http", "--metadata"]);
    let said = text(&output);
    println!("{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "title        colours",
        "licence      MIT",
        "rules        operations=CREATE apiGroups=apps",
        "      \"properties\": {",
        "annotation   com.example.team: platform",
        "digest       sha256:",
    ] {
        assert!(said.contains(part), "`{part}` is not in\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "{said}");
    let output = run(&[
        "inspect",
        &reference,
        "--plain-http",
        "--metadata",
        "-o",
        "json",
    ]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(told["annotations"], annotations());
    assert_eq!(told["settingsSchema"]["type"], "object");

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let list = folder.path().join("policies.txt");
    std::fs::write(&list, format!("# ours\n{reference}\n")).expect("a file can be written");
    let (list, page) = (
        list.display().to_string(),
        folder.path().join("CATALOGUE.md"),
    );
    let to = page.display().to_string();
    let output = run(&["catalogue", &list, "--plain-http", "--output", &to]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let page = std::fs::read_to_string(page).expect("the page has been written");
    println!("{page}");
    for part in ["| colours |", "## colours", "- Licence: MIT", "@sha256:"] {
        assert!(page.contains(part), "`{part}` is not in\n{page}");
    }
    let output = run(&["inspect", "/dev/null", "--metadata"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_writes_what_is_known_as_annotations() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let reference = format!("oci://{}/described/labels:1", registry.host());
    let file = guests::build("required-labels").display().to_string();
    let command = [
        "push",
        &file,
        &reference,
        "--license",
        "Apache-2.0",
        "--revision",
        "abc",
    ];
    let pushed = about(&registry, &command, &[]);
    assert!(pushed.status.success(), "{}", text(&pushed));
    let output = about(
        &registry,
        &["inspect", &reference, "--metadata", "-o", "json"],
        &[],
    );
    let told: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let annotation = |key: &str| {
        told["annotations"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        annotation("org.opencontainers.image.title"),
        "required-labels"
    );
    assert_eq!(
        annotation("org.opencontainers.image.licenses"),
        "Apache-2.0"
    );
    assert_eq!(annotation("org.opencontainers.image.revision"), "abc");
    assert!(
        annotation("dev.tollgate.phases").contains("validate"),
        "{told:#}"
    );
    assert!(
        told["rules"][0]
            .as_str()
            .is_some_and(|rule| rule.starts_with("operations=")),
        "{told:#}"
    );
    assert!(told["settingsSchema"]["properties"].is_object(), "{told:#}");
    // What is pushed twice has one digest.
    assert_eq!(text(&about(&registry, &command, &[])), text(&pushed));

    // A plugin that the host rejects can be pushed, and says less about itself.
    let digest = push(&registry, &wat::binary("(component)"), &reference);
    assert!(digest.starts_with("sha256:"), "{digest}");
    let output = about(&registry, &["inspect", &reference, "--metadata"], &[]);
    assert!(
        output.status.success() && !text(&output).contains("title"),
        "{}",
        text(&output)
    );
}
