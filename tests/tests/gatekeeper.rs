//! Gatekeeper's policies through the real plugins: suites of `gator verify`, and `tollgate import`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::{binary, guests};

fn run(folder: &Path, arguments: &[&str]) -> Ran {
    cli::run(cli::command(arguments).current_dir(folder))
}

fn own_suites() -> PathBuf {
    binary::workspace().join("tests/gatekeeper")
}

fn engine() -> String {
    format!("rego={}", guests::build("rego").display())
}

fn engine_of_cel() -> String {
    format!("cel={}", guests::build("cel-policy").display())
}

#[test]
fn runs_suites_of_gator() {
    let folder = tempfile::tempdir().unwrap();
    let suites = own_suites();
    let ran = run(
        folder.path(),
        &[
            "test",
            "--engine",
            &engine(),
            "--engine",
            &engine_of_cel(),
            &suites.to_string_lossy(),
        ],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.said());
    assert!(
        ran.said().contains("14 case(s) in 3 suite(s): 14 passed"),
        "{}",
        ran.said()
    );
}

#[test]
fn suite_runs_the_language_that_it_has_a_plugin_for() {
    let folder = tempfile::tempdir().unwrap();
    let suite = own_suites().join("labels");
    let only_rego = run(
        folder.path(),
        &["test", "--engine", &engine(), &suite.to_string_lossy()],
    );
    assert_eq!(only_rego.code, Some(1), "{}", only_rego.said());
    assert!(
        only_rego.said().contains("the Rego ran"),
        "{}",
        only_rego.said()
    );
    let suite = own_suites().join("owner");
    let only_cel = run(
        folder.path(),
        &[
            "test",
            "--engine",
            &engine_of_cel(),
            &suite.to_string_lossy(),
        ],
    );
    assert_eq!(only_cel.code, Some(2), "{}", only_cel.said());
    assert!(
        only_cel
            .said()
            .contains("the template has Rego, and no plugin for it is known"),
        "{}",
        only_cel.said()
    );
}

#[test]
fn imports_cel_of_a_template() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("cel_policy.wasm");
    std::fs::copy(guests::build("cel-policy"), plugin).unwrap();
    let policies = own_suites().join("labels");
    let template = policies.join("template.yaml");
    let constraint = policies.join("constraint.yaml");
    let ran = run(
        folder.path(),
        &[
            "import",
            &template.to_string_lossy(),
            &constraint.to_string_lossy(),
            "-o",
            "tollgate.yaml",
        ],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.said());
    assert!(
        ran.said().contains("1 constraint(s), with its CEL"),
        "{}",
        ran.said()
    );
    let inventory = policies.join("inventory.yaml");
    let reviewed = run(
        folder.path(),
        &[
            "review",
            "--config",
            "tollgate.yaml",
            "--namespaces",
            &inventory.to_string_lossy(),
            &policies.join("forbidden.yaml").to_string_lossy(),
        ],
    );
    assert!(
        reviewed.said().contains("[blue] 2 violations"),
        "{}",
        reviewed.said()
    );
}

#[test]
fn names_a_wrong_expectation() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(own_suites().join("owner")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("violations: 1", "violations: 4");
        std::fs::write(folder.path().join(path.file_name().unwrap()), text).unwrap();
    }
    let ran = run(
        folder.path(),
        &["test", "--engine", &engine(), "--filter", "owner: pod"],
    );
    assert_eq!(ran.code, Some(1), "{}", ran.said());
    for word in [
        "FAIL   owner: pod without owner",
        "expected 4 violation(s) with a message like \"^web has no label owner$\", got 1 of: web has no label owner",
        "1 passed, 1 failed",
    ] {
        assert!(ran.said().contains(word), "{word}: {}", ran.said());
    }
}

#[test]
fn asks_for_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["test", &own_suites().to_string_lossy()]);
    assert_eq!(ran.code, Some(2), "{}", ran.said());
    assert!(
        ran.said().contains("--engine rego=./rego.wasm"),
        "{}",
        ran.said()
    );
}

#[test]
fn imports_policies_that_are_then_enforced() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(guests::build("rego"), folder.path().join("rego.wasm")).unwrap();
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    for name in ["owner", "replicas"] {
        for file in ["template.yaml", "constraint.yaml"] {
            let from = own_suites().join(name).join(file);
            std::fs::copy(from, policies.join(format!("{name}-{file}"))).unwrap();
        }
    }
    std::fs::write(
        policies.join("others.yaml"),
        "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: { name: policy }\n---\nkind: [\n",
    )
    .unwrap();
    let broken = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: { name: wrong }\nspec:\n  crd: { spec: { names: { kind: Wrong } } }\n  targets:\n  - target: admission.k8s.gatekeeper.sh\n    rego: |\n      package wrong\n      violation[{\"msg\": msg}] { msg := }\n---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Wrong\nmetadata: { name: wrong }\nspec: {}\n";
    std::fs::write(policies.join("wrong.yaml"), broken).unwrap();
    let ran = run(
        folder.path(),
        &["import", "policies", "-o", "tollgate.yaml"],
    );
    assert_eq!(ran.code, Some(1), "{}", ran.said());
    for word in [
        "translated  policies/owner-template.yaml:2: ConstraintTemplate requiredowner: plugin requiredowner",
        "cannot      policies/others.yaml:1: Assign policy: /spec: missing field `location`",
        "broken      policies/others.yaml:",
        "cannot      policies/wrong.yaml:1: plugin wrong: the plugin does not accept the policy",
        "line 2, column ",
        "differs     policies/replicas-template.yaml:",
        "2 plugin(s); 4 translated",
    ] {
        assert!(ran.said().contains(word), "{word}: {}", ran.said());
    }
    let checked = run(folder.path(), &["check", "--config", "tollgate.yaml"]);
    assert_eq!(checked.code, Some(0), "{}", checked.said());
    let many = own_suites().join("replicas/deployment-9.yaml");
    let reviewed = run(
        folder.path(),
        &[
            "review",
            "--config",
            "tollgate.yaml",
            &many.to_string_lossy(),
        ],
    );
    assert!(
        reviewed.said().contains("[apps] web: at most 3 replicas"),
        "{}",
        reviewed.said()
    );
}

#[test]
fn import_of_no_policy_keeps_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, "plugins: [] # mine\n").unwrap();
    let deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}";
    for (name, text) in [
        ("deploy.yaml", deployment),
        ("none.yaml", "{apiVersion: v1, kind: List, items: []}"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        let ran = run(folder.path(), &["import", name, "-o", "tollgate.yaml"]);
        assert_eq!(ran.code, Some(2), "{}", ran.said());
        let words = "no configuration was written; tollgate.yaml is as it was";
        assert!(ran.said().contains(words), "{}", ran.said());
    }
    let kept = std::fs::read_to_string(&file).unwrap();
    assert_eq!(kept, "plugins: [] # mine\n");
}

#[test]
fn constraint_with_an_unknown_action_is_left_out_alone() {
    let folder = tempfile::tempdir().unwrap();
    let owner = own_suites().join("owner");
    let constraint = std::fs::read_to_string(owner.join("constraint.yaml")).unwrap();
    let wrong = constraint
        .replace("enforcementAction: warn", "enforcementAction: deney")
        .replacen("name: ", "name: wrong-", 1);
    assert_ne!(wrong, constraint);
    let both = format!("{constraint}\n---\n{wrong}");
    std::fs::write(folder.path().join("constraints.yaml"), both).unwrap();
    let template = owner.join("template.yaml").display().to_string();
    let arguments = ["import", &template, "constraints.yaml", "--no-check"];
    let ran = run(folder.path(), &arguments);
    assert_eq!(ran.code, Some(1), "{}", ran.said());
    for word in [
        "cannot      constraints.yaml:",
        "got \"deney\", expected deny, warn, dryrun, scoped",
        "1 plugin(s); 2 translated, 0 differ, 1 cannot be expressed",
    ] {
        assert!(ran.said().contains(word), "{word}: {}", ran.said());
    }
    assert!(!ran.stdout.contains("deney"), "{}", ran.stdout);
}

#[test]
fn gatekeepers_library_passes() {
    let Some(library) = binary::gatekeeper_library() else {
        println!("SKIPPED: the suites of gatekeeper-library are not here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.json");
    let ran = run(
        folder.path(),
        &[
            "test",
            "--engine",
            &engine(),
            "--json",
            &results.to_string_lossy(),
            &library.to_string_lossy(),
        ],
    );
    let results: Value = serde_json::from_slice(&std::fs::read(&results).unwrap()).unwrap();
    let summary = &results["summary"];
    assert_eq!(
        (&summary["failed"], &summary["errors"]),
        (&json!(0), &json!(0)),
        "{}",
        ran.said()
    );
    assert!(
        summary["passed"]
            .as_u64()
            .is_some_and(|passed| passed > 100),
        "{summary}"
    );
    assert!(ran.stdout.contains("30 suite(s)"), "{}", ran.said());
}

/// Gatekeeper's policy for uniqueness in short, with the kinds that it needs.
const UNIQUE: &str = r#"
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata:
  name: uniquehost
  annotations:
    metadata.gatekeeper.sh/requires-sync-data: |
      "[[
        { "groups": ["extensions"], "versions": ["v1beta1"], "kinds": ["Ingress"] },
        { "groups": ["networking.k8s.io"], "versions": ["v1beta1", "v1"], "kinds": ["Ingress"] }
      ]]"
spec:
  crd: { spec: { names: { kind: UniqueHost } } }
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package uniquehost
        identical(obj, review) {
          obj.metadata.namespace == review.object.metadata.namespace
          obj.metadata.name == review.object.metadata.name
        }
        violation[{"msg": msg}] {
          input.review.kind.kind == "Ingress"
          host := input.review.object.spec.rules[_].host
          other := data.inventory.namespace[_][version]["Ingress"][name]
          regex.match("^(extensions|networking.k8s.io)/.+$", version)
          other.spec.rules[_].host == host
          not identical(other, input.review)
          msg := sprintf("ingress host conflicts with an existing ingress <%v>", [host])
        }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: UniqueHost
metadata: { name: unique }
spec: { match: { kinds: [{ apiGroups: [networking.k8s.io], kinds: [Ingress] }] } }
"#;

fn ingress(name: &str, host: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": name, "port": {"number": 80}}}}]}}]},
    })
}

/// Reviews an Ingress beside others, and returns the exit code with the fuel.
fn reviewed_beside(folder: &Path, config: &str, count: usize, host: &str) -> (Option<i32>, u64) {
    let others: Vec<Value> = (0..count)
        .map(|index| ingress(&format!("web-{index}"), &format!("h{index}.example")))
        .collect();
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": others});
    std::fs::write(folder.join("dump.json"), dump.to_string()).unwrap();
    std::fs::write(folder.join("new.json"), ingress("new", host).to_string()).unwrap();
    let ran = run(
        folder,
        &[
            "review",
            "--config",
            config,
            "--objects",
            "dump.json",
            "new.json",
        ],
    );
    let said = ran.said();
    // The last table has a line for the plugin: name, phase, calls, patched, denied, faults, fuel.
    let row = said.lines().find(|line| line.starts_with("uniquehost"));
    let row = row.unwrap_or_else(|| panic!("no costs: {said}"));
    let fuel = row.split_whitespace().nth(6).unwrap_or_default();
    let fuel = fuel.replace(',', "");
    if ran.code == Some(1) {
        assert!(said.contains("ingress host conflicts"), "{said}");
    }
    (ran.code, fuel.parse().unwrap())
}

/// The objects of the cluster reach the Rego through lookups. A rule for uniqueness reads only those with the same key, so
/// its fuel does not depend on the number of objects.
#[test]
fn imported_template_reads_its_inventory_from_lookups() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("unique.yaml"), UNIQUE).unwrap();
    let source = format!("file:{}", guests::build("rego").display());
    let ran = run(
        folder,
        &[
            "import",
            "unique.yaml",
            "--rego",
            &source,
            "-o",
            "tollgate.yaml",
        ],
    );
    println!("{}", ran.said());
    assert_eq!(ran.code, Some(0), "{}", ran.said());
    let note = "reads data.inventory: lookups of Ingress with the same key as the object, which keep /spec";
    assert!(ran.said().contains(note), "{}", ran.said());

    let (code, few) = reviewed_beside(folder, "tollgate.yaml", 10, "new.example");
    assert_eq!(code, Some(0));
    let (code, _) = reviewed_beside(folder, "tollgate.yaml", 10, "h3.example");
    assert_eq!(code, Some(1));
    let (code, many) = reviewed_beside(folder, "tollgate.yaml", 10_000, "new.example");
    assert_eq!(code, Some(0));
    println!("fuel with the same key only: {few} beside 10 objects, {many} beside 10,000");
    assert!(many < few + few / 10, "{few} {many}");

    // Without `only`, each object costs the same.
    let text = std::fs::read_to_string(folder.join("tollgate.yaml")).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    let entry = &mut config["plugins"][0];
    entry["settings"]["inventoryFrom"][0]
        .as_object_mut()
        .unwrap()
        .remove("only");
    entry["limits"] = json!({"fuel": "2G", "cpuTime": "20s", "timeout": "20s", "memory": "256Mi", "output": "64Mi"});
    std::fs::write(folder.join("all.yaml"), config.to_string()).unwrap();
    let fuels = [10, 510].map(|count| {
        let (code, fuel) = reviewed_beside(folder, "all.yaml", count, "new.example");
        assert_eq!(code, Some(0));
        fuel
    });
    let each = (fuels[1] - fuels[0]) / 500;
    println!("fuel of each object without `only`: {each}");
    assert!((1_000..3_000_000).contains(&each), "{fuels:?}");
    let (code, _) = reviewed_beside(folder, "all.yaml", 20, "h3.example");
    assert_eq!(code, Some(1));
}
