//! `tollgate check` reports everything that is wrong with a configuration at once, and signals errors by its exit code.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::{binary, guests, hostile};

/// Exit code: the configuration and its plugins are good.
const GOOD: i32 = 0;
/// Exit code: the configuration is good, but a plugin is not.
const PLUGIN: i32 = 1;
/// Exit code: the configuration or the command line is not good.
const CONFIGURATION: i32 = 2;

struct Checked {
    code: Option<i32>,
    said: String,
}

fn check(arguments: &[&str]) -> Checked {
    let output = Command::new(binary::tollgate())
        .arg("check")
        .args(arguments)
        .output();
    let output = output.unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!(
        "tollgate check {}: {:?}\n{said}",
        arguments.join(" "),
        output.status.code()
    );
    Checked {
        code: output.status.code(),
        said,
    }
}

fn check_file(path: &Path) -> Checked {
    check(&["--config", &path.to_string_lossy()])
}

fn check_text(text: &str) -> Checked {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let path = folder.path().join("tollgate.yaml");
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    check_file(&path)
}

impl Checked {
    #[track_caller]
    fn assert(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.said);
        for word in words {
            assert!(
                self.said.contains(word),
                "`{word}` is not in:\n{}",
                self.said
            );
        }
        assert!(!self.said.contains("panicked"), "{}", self.said);
    }
}

#[test]
fn accepts_valid_configuration_and_plugins() {
    let mut configuration = Configuration::new();
    configuration.plugin("images", &guests::build("always-pull-images"), json!({}));
    configuration.plugin_of("harmless", &hostile::harmless(), json!({"mode": "audit"}));
    check_file(&configuration.write()).assert(
        GOOD,
        &["2 plugin(s)", "images: ok", "harmless: ok", "sha256:"],
    );
}

#[test]
fn shows_settings_schema_once_for_each_file() {
    let images = guests::build("always-pull-images");
    let mut configuration = Configuration::new();
    configuration.plugin("first", &images, json!({}));
    configuration.plugin("second", &images, json!({}));
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    let checked = check_file(&configuration.write());
    let title = "\n  settings of always-pull-images, version ";
    checked.assert(GOOD, &[title, "\n    {\n", "\n      \"type\": \"object\""]);
    assert_eq!(checked.said.matches(title).count(), 1, "{}", checked.said);
    assert_eq!(checked.said.matches("  settings of ").count(), 1);
}

#[test]
fn reports_plugins_that_do_not_load() {
    let modules = hostile::all();
    let mut configuration = Configuration::new();
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    configuration.plugin_of("hostile", &modules["configure-rejects"], json!({}));
    configuration.plugin("absent", Path::new("/nowhere/absent.wasm"), json!({}));
    let checked = check_file(&configuration.write());
    checked.assert(
        PLUGIN,
        &[
            "harmless: ok",
            "hostile: NOT LOADED",
            "settings.colour: must be red or green",
            "absent: NOT LOADED",
            "/nowhere/absent.wasm",
        ],
    );
}

#[test]
fn warns_of_ways_to_bypass_a_plugin() {
    let mut configuration = Configuration::new();
    let images = guests::build("always-pull-images");
    let expired = json!([
        {"users": ["jane"], "until": "2020-02-28", "reason": "long ago"},
        {"users": ["jane"], "until": "2999-12-31", "reason": "for long"},
    ]);
    configuration.plugin(
        "open",
        &images,
        json!({"failurePolicy": "Ignore", "exceptions": expired}),
    );
    configuration.plugin(
        "rewrites",
        &guests::build("image-rewrite"),
        json!({"failurePolicy": "Ignore"}),
    );
    configuration.plugin(
        "trial",
        &images,
        json!({"failurePolicy": "Ignore", "mode": "warn"}),
    );
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    configuration.plugin(
        "labelled",
        &images,
        json!({"match": {"rules": rules, "objectSelector": {"matchLabels": {"stage": "prod"}}}}),
    );
    configuration.plugin(
        "off",
        Path::new("/nowhere/absent.wasm"),
        json!({"enabled": false}),
    );
    let checked = check_file(&configuration.write());
    checked.assert(
        GOOD,
        &[
            "open: ok",
            "warning: it validates under failurePolicy Ignore",
            "warning: an exception has expired and has no effect: long ago (until 2020-02-28)",
            "warning: it validates only objects with certain labels (stage=prod)",
            "off: disabled, not loaded",
        ],
    );
    assert_eq!(
        checked.said.matches("warning:").count(),
        3,
        "{}",
        checked.said
    );
}

#[test]
fn reads_certificates_and_credentials() {
    let mut configuration = Configuration::new();
    let tokens = configuration.folder().join("tokens");
    std::fs::write(&tokens, "Xq7HunterTwoZebra42 and more\n")
        .expect("the folder can be written to");
    configuration = configuration
        .with(
            "tls",
            json!({"certificate": "/nowhere/tls.crt", "key": "/nowhere/tls.key"}),
        )
        .with("authentication", json!({"bearer": {"file": tokens}}));
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    let path = configuration.write().to_string_lossy().into_owned();
    let checked = check(&["--config", &path]);
    checked.assert(
        PLUGIN,
        &[
            "tls: NOT USABLE: cannot read /nowhere/tls.crt (tls.certificate): No such file or directory",
            "authentication.bearer: NOT USABLE:",
            "line 1, is not a token",
            "--no-credentials",
            "harmless: ok",
        ],
    );
    assert!(!checked.said.contains("HunterTwo"), "{}", checked.said);

    check(&["--config", &path, "--no-credentials"]).assert(GOOD, &["harmless: ok"]);

    std::fs::write(&tokens, "Xq7HunterTwoZebra42\n").expect("the folder can be written to");
    let configuration = configuration.with("tls", json!({"selfSigned": {}}));
    check_file(&configuration.write()).assert(GOOD, &["authentication.bearer: ok, 1 token\n"]);
}

#[test]
fn skips_plugins_with_no_plugins_flag() {
    let mut configuration = Configuration::new();
    configuration.plugin("absent", Path::new("/nowhere/absent.wasm"), json!({}));
    let path = configuration.write();
    check(&["--config", &path.to_string_lossy(), "--no-plugins"]).assert(GOOD, &["valid"]);
}

#[test]
fn reports_all_problems_by_key() {
    let text = "
listen: nowhere
requests: {maxBody: lots}
limits: {fuel: -1, memory: 1Ki, timeout: 5}
unknown: key
plugins:
  - name: Not A Name
    source: https://registry.example.com/policy:1
    mode: sometimes
    failurePolicy: Maybe
    limits: {concurrency: 100000}
    capabilities: [network]
    match: {rules: [], namespaceSelector: [], matchConditions: [{name: a, expression: authorizer.allowed()}]}
    exceptions: [{until: soon}]
  - source: file:./x.wasm
    match: {}
";
    check_text(text).assert(
        CONFIGURATION,
        &[
            "listen",
            "requests.maxBody",
            "limits.fuel",
            "limits.memory",
            "limits.timeout",
            "unknown",
            "plugins[0].name",
            "plugins[0].source",
            "plugins[0].mode",
            "plugins[0].failurePolicy",
            "plugins[0].limits.concurrency",
            "plugins[0].capabilities[0]",
            "plugins[0].match.rules",
            "plugins[0].match.namespaceSelector: got an empty list, expected an object",
            "plugins[0].match.matchConditions[0].expression: line 1, column 1: `authorizer`",
            "plugins[0].exceptions[0].until",
            "plugins[0].exceptions[0].reason",
            "plugins[1].name",
            "plugins[1].match",
        ],
    );
}

#[test]
fn rejects_files_that_are_not_configurations() {
    for (what, text) in [
        ("no YAML", "plugins: [}\n"),
        ("a list", "[1, 2]\n"),
        ("a text", "plugins\n"),
        (
            "one key twice",
            "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n",
        ),
        (
            "one plugin twice",
            "plugins: [{name: a, source: file:a.wasm}, {name: a, source: file:b.wasm}]\n",
        ),
    ] {
        let checked = check_text(text);
        assert_eq!(
            checked.code,
            Some(CONFIGURATION),
            "{what}: {}",
            checked.said
        );
        assert!(
            checked.said.lines().count() > 0 && !checked.said.contains("panicked"),
            "{what}: {}",
            checked.said
        );
    }
}

#[test]
fn unusable_cache_hides_no_problem_and_is_not_created() {
    let mut configuration = Configuration::new();
    configuration.plugin("images", &guests::build("always-pull-images"), json!({}));
    let file = configuration.folder().join("a-file");
    std::fs::write(&file, "").expect("the folder is writable");
    let pulled = configuration.folder().join("pulled/here");
    let configuration = configuration
        .with("engine", json!({"cacheDirectory": file.join("code")}))
        .with("registries", json!({"cacheDirectory": pulled}));
    check_file(&configuration.write()).assert(
        PLUGIN,
        &[
            "engine.cacheDirectory: NOT USABLE:",
            "`serve` does not start with it",
            "registries.cacheDirectory: ok,",
            "does not exist yet; `serve` creates it",
            "images: ok",
        ],
    );
    assert!(!configuration.folder().join("pulled").exists());
    std::fs::create_dir_all(&pulled).expect("the folder is writable");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&pulled, open).expect("it is this user's");
    check_file(&configuration.write()).assert(
        PLUGIN,
        &[
            "registries.cacheDirectory: NOT USABLE:",
            "run `chmod go-w` on it",
            "images: ok",
        ],
    );
}

#[test]
fn leaves_compiled_code_for_the_server() {
    let mut configuration = Configuration::new();
    configuration.plugin("images", &guests::build("always-pull-images"), json!({}));
    let code = configuration.folder().join("cache/code-of-plugins");
    let configuration = configuration.with("engine", json!({"cacheDirectory": code}));
    check_file(&configuration.write())
        .assert(GOOD, &["engine.cacheDirectory: ok, created", "images: ok"]);
    let kept = || std::fs::read_dir(code.join("code")).map(Iterator::count);
    let before = kept().expect("`check` has stored the code");
    assert!(before > 0);
    check_file(&configuration.write()).assert(GOOD, &["engine.cacheDirectory: ok,", "images: ok"]);
    assert_eq!(kept().ok(), Some(before), "the second check found the code");
}

#[test]
fn names_limit_that_is_too_low_and_needed_value() {
    for (limit, words) in [
        (
            "instances",
            "core instances; the limit is 1 (limits.instances)",
        ),
        ("tables", "tables; the limit is 1 (limits.tables)"),
        (
            "tableElements",
            "elements in a table; the limit is 1 (limits.tableElements)",
        ),
    ] {
        let mut configuration = Configuration::new();
        configuration.plugin(
            "images",
            &guests::build("always-pull-images"),
            json!({"limits": {limit: 1}}),
        );
        let checked = check_file(&configuration.write());
        checked.assert(PLUGIN, &["images: NOT LOADED", words]);
        assert!(
            !checked.said.contains("contract-violation"),
            "{}",
            checked.said
        );
    }
}

#[test]
fn expands_aliases_repeatedly() {
    let uses: String = (0..300)
        .map(|n| format!("  - {{<<: *common, name: p{n}}}\n"))
        .collect();
    let text = format!("x: &common {{source: 'file:p.wasm', enabled: false}}\nplugins:\n{uses}");
    check_text(&text).assert(CONFIGURATION, &["x: unknown key", "1 problem"]);
    let entries = "1, ".repeat(150_000);
    check_text(&format!(
        "plugins: [{{name: a, source: 'file:p.wasm', enabled: false, settings: {{list: [{entries}]}}}}]"
    ))
    .assert(GOOD, &["a: disabled"]);
    let deep = "[".repeat(70) + &"]".repeat(70);
    check_text(&format!("plugins: {deep}"))
        .assert(CONFIGURATION, &["nested deeper than 64 levels"]);
}

#[test]
fn rejects_alias_bomb_without_expanding_it() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        let aliases = vec![format!("*a{before}"); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let started = std::time::Instant::now();
    check_text(&text).assert(
        CONFIGURATION,
        &["more than 1000000 keys and values, including those of aliases"],
    );
    assert!(
        started.elapsed().as_secs() < 10,
        "it took {:?}",
        started.elapsed()
    );
}

#[test]
fn names_missing_file() {
    check(&["--config", "/nowhere/tollgate.yaml"])
        .assert(CONFIGURATION, &["/nowhere/tollgate.yaml"]);
    check(&["--plugins", "/nowhere"]).assert(CONFIGURATION, &["/nowhere"]);
    check(&[]).assert(CONFIGURATION, &["--config"]);
}

#[test]
fn checks_folder_of_plugins_without_configuration() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    put("harmless.wasm", &hostile::harmless());
    put("with_underscores.wasm", &hostile::harmless());
    put("notes.txt", b"not a plugin");
    let path = folder.path().to_string_lossy().into_owned();
    check(&["--plugins", &path]).assert(GOOD, &["harmless: ok", "with-underscores: ok"]);
    put("broken.wasm", b"no WebAssembly");
    check(&["--plugins", &path]).assert(PLUGIN, &["harmless: ok", "broken: NOT LOADED"]);
    put("Not A Name.wasm", &hostile::harmless());
    check(&["--plugins", &path]).assert(CONFIGURATION, &["Not A Name.wasm"]);
}

#[test]
fn does_not_print_secrets_in_settings() {
    let text = "
plugins:
  - name: a
    source: file:a.wasm
    settings: {password: Xq7HunterTwoZebra42
";
    let checked = check_text(text);
    assert_eq!(checked.code, Some(CONFIGURATION));
    assert!(
        !checked.said.contains("HunterTwo"),
        "the settings are in the error:\n{}",
        checked.said
    );
    let checked =
        check_text("plugins: [{name: a, source: 'file:a.wasm', settings: Xq7HunterTwoZebra42}]\n");
    checked.assert(CONFIGURATION, &["plugins[0].settings"]);
    assert!(
        !checked.said.contains("HunterTwo"),
        "the settings are in the error:\n{}",
        checked.said
    );
}

#[test]
fn checks_shadows_like_plugins() {
    let images = guests::build("always-pull-images");
    let mut configuration = Configuration::new();
    let shadow = |source: String| json!({"shadow": {"source": source}});
    let there = format!("file:{}", images.display());
    configuration.plugin("one", &images, shadow(there));
    let gone = configuration.folder().join("gone.wasm");
    let gone = format!("file:{}", gone.display());
    configuration.plugin("other", &images, shadow(gone));
    let checked = check_file(&configuration.write());
    checked.assert(
        PLUGIN,
        &[
            "valid, 2 plugin(s)",
            "one: ok",
            "one.shadow: ok",
            "other: ok",
            "other.shadow: NOT LOADED",
        ],
    );
}

fn ruled(rules: &[Value]) -> Configuration {
    let mut configuration = Configuration::new();
    configuration.plugin_of(
        "ruled",
        &hostile::harmless(),
        json!({"match": {"rules": rules}}),
    );
    configuration
}

fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!({"operations": ["CREATE"], "apiGroups": groups, "apiVersions": versions, "resources": resources})
}

#[test]
fn suggests_corrections_for_rules_that_match_nothing() {
    for (rule, meant) in [
        (rule(&[""], &["v1"], &["pod"]), "expected the plural, pods"),
        (rule(&["app"], &["v1"], &["deployments"]), "expected apps"),
        (
            rule(&[""], &["v1"], &["deployments"]),
            "expected apps in apiGroups",
        ),
        (
            rule(&["apps"], &["v1beta1"], &["deployments"]),
            "not served in v1beta1 any more: expected v1",
        ),
        (
            rule(&[""], &["v1"], &["pods/exec"]),
            "has only the operation CONNECT",
        ),
        (rule(&[""], &["v1"], &["pods/log"]), "logs can only be read"),
        (
            rule(&[""], &["v1"], &["pods/resizes"]),
            "expected pods/resize",
        ),
    ] {
        let configuration = ruled(std::slice::from_ref(&rule));
        let path = configuration.write().display().to_string();
        for more in [&[][..], &["--no-plugins"]] {
            check(&[&["--config", &path], more].concat())
                .assert(PLUGIN, &["RULE MATCHES NOTHING: match.rules[0].", meant]);
        }
    }
    // A custom resource, and a resource that a later release of Kubernetes may have.
    let configuration = ruled(&[
        rule(&["argoproj.io"], &["v1alpha1"], &["rollouts"]),
        rule(&["apps"], &["v1"], &["deployments", "rollouts"]),
    ]);
    let path = configuration.write().display().to_string();
    check(&["--config", &path]).assert(
        GOOD,
        &["ruled: ok", "warning: match.rules[1].resources: rollouts"],
    );
}

#[test]
fn reports_length_of_short_digest() {
    let configuration = Configuration::new().with(
        "plugins",
        json!([{"name": "short", "source": "oci://registry.example.com/a@sha256:0123456789ab"}]),
    );
    let path = configuration.write().display().to_string();
    check(&["--config", &path]).assert(
        CONFIGURATION,
        &[
            "plugins[0].source",
            "found 12 digits; write the whole digest",
        ],
    );
}

/// Checks an empty configuration with these custom resources.
fn check_resources(text: &str) -> Checked {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a folder can be written to");
        path.display().to_string()
    };
    let config = write("tollgate.yaml", "allowEmpty: true\n");
    let resources = write("resources.yaml", text);
    check(&["--config", &config, "--resources", &resources])
}

#[test]
fn resources_from_files_are_those_of_tollgate() {
    let plugin = guests::build("always-pull-images").display().to_string();
    let resource = |api_version: &str, kind: &str| {
        format!(
            "{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: pull}}, spec: {{source: 'file:{plugin}'}}}}"
        )
    };
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: a}}";
    let good = resource("tollgate.dev/v1alpha1", "ClusterAdmissionPlugin");
    check_resources(&format!("{namespace}\n---\n{good}")).assert(
        GOOD,
        &[
            "pull: ok",
            "does not read custom resources, because cluster.enabled is false",
        ],
    );
    for (api_version, kind) in [
        ("tollgate.dev/v1", "ClusterAdmissionPlugin"),
        ("tollgate.dev/v1alpha1", "ClusterAdmissionPlugins"),
        ("example.com/v1alpha1", "PluginException"),
    ] {
        check_resources(&resource(api_version, kind)).assert(
            CONFIGURATION,
            &[
                "resources.yaml, document 1: there is no",
                "expected ClusterAdmissionPlugin, AdmissionPlugin, PluginException in tollgate.dev/v1alpha1",
            ],
        );
    }
    check_resources(namespace).assert(CONFIGURATION, &["no custom resource of Tollgate"]);
    // A resource without effect does not hide what there is to say about the others.
    let wrong = "{apiVersion: tollgate.dev/v1alpha1, kind: ClusterAdmissionPlugin, metadata: {name: wrong}, spec: {source: x}}";
    check_resources(&format!("{good}\n---\n{wrong}")).assert(
        CONFIGURATION,
        &[
            "plugin wrong: Invalid",
            "pull: ok",
            "1 custom resource(s) have no effect",
        ],
    );
}

#[test]
fn misspelt_place_of_a_lookup_fails() {
    let plugin = guests::build("unique-ingress-host").display().to_string();
    let checked = |place: &str| {
        check_text(&format!(
            "plugins:\n- name: hosts\n  source: 'file:{plugin}'\n  lookups:\n  - name: ingresses\n    resource: {{ group: \
             networking.k8s.io, version: v1, resource: ingresses }}\n    indexes: {{ host: '{place}' }}\n"
        ))
    };
    checked("/spec/rules/*/host").assert(GOOD, &["hosts: ok"]);
    checked("/spec/rule/*/host").assert(
        PLUGIN,
        &[
            "lookup ingresses: indexes.host: /spec/rule/*/host:",
            "did you mean /spec/rules/*/host?",
        ],
    );
}
