//! `tollgate doctor`, and `tollgate manifests` when it compares, prunes and writes files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::{binary, hostile};

const SERVICE: [&str; 2] = ["--service", "tollgate-system/tollgate"];

struct Printed {
    code: Option<i32>,
    output: String,
    errors: String,
}

fn tollgate(arguments: &[&str]) -> Printed {
    let output = Command::new(binary::tollgate()).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    Printed {
        code: output.status.code(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A configuration with one plugin, and certificates from files, so that no server has to be started.
fn configuration() -> (Configuration, String) {
    let mut configuration =
        Configuration::new().with("tls", json!({"certificate": "tls.crt", "key": "tls.key"}));
    let rules = json!({"match": {"rules": [{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]}});
    configuration.plugin_of("labels", &hostile::harmless(), rules);
    let path = configuration.write().display().to_string();
    (configuration, path)
}

fn manifests(path: &str, more: &[&str]) -> Printed {
    tollgate(&[&["manifests", "--config", path], &SERVICE[..], more].concat())
}

fn write(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("written");
    path.display().to_string()
}

/// A kubectl that prints the given files for webhook configurations, and nothing for other objects.
fn kubectl(folder: &Path, webhooks: &str) -> String {
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*auth*can-i*update*) echo no; exit 1;;\n*auth*can-i*) echo yes;;\n\
         *get*webhookconfigurations*) cat {webhooks};;\n*get*secrets*) echo Forbidden >&2; exit 1;;\n\
         *) echo '{{\"kind\": \"List\", \"items\": []}}';;\nesac\n"
    );
    let path = PathBuf::from(write(folder, "kubectl", &script));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("allowed");
    path.display().to_string()
}

#[test]
fn check_finds_nothing_in_what_was_printed_and_differences_after_changes() {
    let (configuration, path) = configuration();
    let folder = configuration.folder();
    let printed = manifests(&path, &[]);
    assert_eq!(printed.code, Some(0), "{}", printed.errors);
    let live = write(folder, "live.yaml", &printed.output);
    let same = manifests(&path, &["--check", "--live", &live]);
    assert_eq!(same.code, Some(0), "{}{}", same.output, same.errors);
    assert_eq!(same.output, "");

    let wider = printed.output.replace("    - pods\n", "    - \"*\"\n");
    let wider = wider.replace("failurePolicy: Fail", "failurePolicy: Ignore");
    assert_ne!(wider, printed.output);
    let live = write(folder, "wider.yaml", &wider);
    let differs = manifests(&path, &["--check", "--live", &live]);
    assert_eq!(differs.code, Some(1), "{}", differs.errors);
    for text in [
        "ValidatingWebhookConfiguration tollgate, webhook validate.tollgate.dev: too wide: rules\n- CREATE UPDATE \
         core/v1 *\n",
        "different: failurePolicy\n- \"Ignore\"\n+ \"Fail\"\n",
    ] {
        assert!(differs.output.contains(text), "{text}\n{}", differs.output);
    }
}

#[test]
fn check_and_prune_read_cluster_with_kubectl() {
    let (configuration, path) = configuration();
    let folder = configuration.folder();
    let printed = manifests(&path, &[]).output;
    let old = printed.replace(
        "metadata:\n  name: tollgate\n",
        "metadata:\n  name: tollgate-old\n",
    );
    assert_ne!(old, printed);
    let webhooks = write(folder, "webhooks.yaml", &format!("{printed}---\n{old}"));
    let kubectl = kubectl(folder, &webhooks);
    let differs = manifests(&path, &["--check", "--kubectl", &kubectl]);
    assert_eq!(differs.code, Some(1), "{}", differs.errors);
    let lines: Vec<&str> = differs.output.lines().collect();
    assert_eq!(
        lines,
        [
            "MutatingWebhookConfiguration tollgate-old: left over",
            "ValidatingWebhookConfiguration tollgate-old: left over",
        ]
    );
    let pruned = manifests(&path, &["--prune", "--kubectl", &kubectl]);
    assert_eq!(pruned.code, Some(0), "{}", pruned.errors);
    assert_eq!(
        pruned.output,
        "kubectl delete mutatingwebhookconfiguration tollgate-old\n\
         kubectl delete validatingwebhookconfiguration tollgate-old\n"
    );
    let missing = manifests(&path, &["--check", "--kubectl", "/nowhere/kubectl"]);
    assert_eq!(missing.code, Some(2));
    assert!(
        missing.errors.contains("pass --kubectl"),
        "{}",
        missing.errors
    );
}

#[test]
fn static_writes_file_for_each_admission_plugin() {
    let (configuration, path) = configuration();
    let folder = configuration.folder().join("static");
    let target = folder.display().to_string();
    let refused = manifests(&path, &["--static", &target]);
    assert_eq!(
        refused.code,
        Some(2),
        "a Service cannot be called: {}",
        refused.output
    );
    let url = "https://gate.example.com:8443";
    let written = tollgate(&[
        "manifests",
        "--config",
        &path,
        "--url",
        url,
        "--static",
        &target,
    ]);
    assert_eq!(written.code, Some(0), "{}", written.errors);
    for (of_plugin, kind) in [
        ("mutating", "MutatingWebhookConfiguration"),
        ("validating", "ValidatingWebhookConfiguration"),
    ] {
        let file = folder.join(of_plugin).join("tollgate.static.k8s.io.yaml");
        assert!(written.output.contains(&file.display().to_string()));
        let text = std::fs::read_to_string(&file).expect("the file is there");
        for part in [
            format!("kind: {kind}\n"),
            "  name: tollgate.static.k8s.io\n".to_owned(),
            format!("    url: {url}/"),
        ] {
            assert!(text.contains(&part), "{part}\n{text}");
        }
        assert_eq!(text.matches("kind: ").count(), 1, "{text}");
    }
}

#[test]
fn doctor_names_problems_and_their_fixes() {
    let (configuration, path) = configuration();
    let folder = configuration.folder();
    let printed = manifests(&path, &[]).output;
    let narrow = printed.replace("    - UPDATE\n", "");
    assert_ne!(narrow, printed);
    let other = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "policies"},
        "webhooks": [{
            "name": "validate.policies.svc",
            "clientConfig": {"service": {"namespace": "policies", "name": "svc"}},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
        }],
    });
    let webhooks = write(folder, "webhooks.yaml", &format!("{narrow}---\n{other}\n"));
    let kubectl = kubectl(folder, &webhooks);
    let arguments = [
        "doctor",
        "--config",
        &path,
        "--kubectl",
        &kubectl,
        "--service-account",
        "tollgate",
    ];
    let found = tollgate(&arguments);
    assert_eq!(found.code, Some(1), "{}{}", found.output, found.errors);
    for text in [
        "validate.policies.svc [blocks-nodes]",
        "validate.policies.svc [blocks-tollgate]",
        "values: [tollgate-system]",
        "[service-missing]",
        "[ca-missing]",
        "[rules-too-narrow]",
        "ServiceAccount tollgate-system/tollgate [right-missing]",
        "not examined: kubectl cannot get secrets: Forbidden",
        "kubectl delete validatingwebhookconfiguration tollgate\n",
        "--as-group=tollgate:break-glass",
    ] {
        assert!(found.output.contains(text), "{text}\n{}", found.output);
    }
    let json = tollgate(&[&arguments[..], &["--json"]].concat());
    assert_eq!(json.code, Some(1), "{}", json.errors);
    let report: Value = serde_json::from_str(&json.output).expect("JSON");
    let checks: Vec<&str> = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|finding| finding["check"].as_str())
        .collect();
    assert!(checks.contains(&"blocks-nodes"), "{checks:?}");
    assert_eq!(report["unread"].as_array().map(Vec::len), Some(1));

    let empty = write(folder, "empty.yaml", "");
    let healthy = tollgate(&["doctor", "--live", &empty]);
    assert_eq!(
        healthy.code,
        Some(0),
        "{}{}",
        healthy.output,
        healthy.errors
    );
    let wrong = write(folder, "wrong.yaml", "- a\n- b\n");
    let wrong = tollgate(&["doctor", "--live", &wrong]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.output);
}

#[test]
fn lists_expired_exceptions_as_notices() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let exception = |name: &str, expires: &str| {
        json!({
            "apiVersion": "tollgate.dev/v1alpha1", "kind": "PluginException",
            "metadata": {"name": name, "namespace": "tollgate-system"},
            "spec": {"plugins": ["labels"], "names": ["web"], "reason": "legacy", "expires": expires},
        })
    };
    let items = [
        exception("over", "2020-01-01"),
        exception("active", "2999-12-31"),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let live = write(folder.path(), "live.json", &list);
    let listed = tollgate(&["doctor", "--live", &live]);
    assert_eq!(listed.code, Some(0), "{}{}", listed.output, listed.errors);
    assert!(
        listed
            .output
            .contains("PluginException tollgate-system/over"),
        "{}",
        listed.output
    );
    assert!(
        !listed.output.contains("tollgate-system/active"),
        "{}",
        listed.output
    );

    let mut configuration =
        Configuration::new().with("tls", json!({"certificate": "tls.crt", "key": "tls.key"}));
    let exceptions =
        json!([{"name": "late", "names": ["a"], "until": "2020-01-01", "reason": "legacy"}]);
    let more = json!({"exceptions": exceptions, "match": {"rules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]}});
    configuration.plugin_of("labels", &hostile::harmless(), more);
    let path = configuration.write().display().to_string();
    let configured = tollgate(&["doctor", "--live", &live, "--config", &path]);
    assert!(
        configured.output.contains("plugin labels, late"),
        "{}",
        configured.output
    );
}

#[test]
fn names_exceptions_that_reports_show_as_not_needed() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let result = |exception: &str, without: &str| {
        let properties = json!({"mode": "enforce", "exception": exception, "without": without});
        json!({"policy": "labels", "rule": "validate", "result": "skip", "properties": properties})
    };
    let report = json!({
        "apiVersion": "openreports.io/v1alpha1", "kind": "Report",
        "metadata": {
            "name": "tollgate", "namespace": "shop", "labels": {"tollgate.dev/scan": "tollgate"},
            "annotations": {"tollgate.dev/omitted-results": "0"},
        },
        "results": [result("fixed", "pass"), result("legacy", "fail")],
    });
    let live = write(folder.path(), "live.json", &report.to_string());
    let listed = tollgate(&["doctor", "--live", &live]);
    assert_eq!(listed.code, Some(0), "{}{}", listed.output, listed.errors);
    let output = &listed.output;
    assert!(output.contains("plugin labels, fixed"), "{output}");
    assert!(!output.contains("legacy"), "{output}");
}
