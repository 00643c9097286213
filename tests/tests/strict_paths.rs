//! `tollgate test --strict-paths`: finds the places that a plugin reads and no object can have.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::{cli, wat};

/// Exit code: everything is as expected.
const PASSED: i32 = 0;
/// Exit code: something is not as expected.
const FAILED: i32 = 1;
/// Exit code: something could not be done.
const ERROR: i32 = 2;

/// A validator that reads places of the object, by `get`, or by `select` if there is a star.
fn reader(pointers: &[&str]) -> Vec<u8> {
    let mut data = String::new();
    let mut calls = String::new();
    let mut address = 2048;
    for pointer in pointers {
        let function = if pointer.contains('*') {
            "select"
        } else {
            "get"
        };
        data.push_str(&format!("(data (i32.const {address}) \"{pointer}\")\n"));
        calls.push_str(&format!(
            "(call ${function} (i32.const 0) (i32.const {address}) (i32.const {}) (i32.const 1024))\n",
            pointer.len()
        ));
        address += pointer.len();
    }
    let text = format!(
        r#"(import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
(import "tollgate:admission/review@0.1.0" "select" (func $select (param i32 i32 i32 i32)))
{data}
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
{calls}
    (i32.const 256))"#
    );
    wat::plugin("validator", &text)
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 3}})
}

fn cart() -> Value {
    json!({"apiVersion": "shop.example/v1", "kind": "Cart", "metadata": {"name": "a"}, "spec": {"size": 3}})
}

/// A folder with a plugin that reads some places, and a suite with some objects. Every review is allowed.
fn project(pointers: &[&str], objects: &[Value]) -> TempDir {
    let folder = tempfile::Builder::new().prefix("tollgate-paths-").tempdir();
    let folder = folder.expect("a temporary folder can be made: is TMPDIR writable?");
    let cases = objects.iter().enumerate().map(|(index, object)| {
        json!({"name": format!("case {index}"), "object": object, "expect": "allow"})
    });
    let suite = json!({
        "plugins": [{"name": "reader", "source": "file:reader.wasm"}],
        "cases": cases.collect::<Vec<Value>>(),
    });
    let write = |name: &str, content: &[u8]| {
        fs::write(folder.path().join(name), content).expect("a folder can be written to");
    };
    write("reader.wasm", &reader(pointers));
    write("policy.test.yaml", suite.to_string().as_bytes());
    folder
}

#[track_caller]
fn run(folder: &TempDir, arguments: &[&str], code: i32, words: &[&str]) -> String {
    let mut command = cli::command(&["test"]);
    let ran = cli::run(command.args(arguments).current_dir(folder.path()));
    ran.assert(code, words);
    ran.said()
}

#[test]
fn misspelt_field_fails_the_first_case_that_reads_it() {
    let objects = [deployment("a"), deployment("b")];
    let folder = project(&["/spec/replica", "/metadata/labels/any~1name"], &objects);
    // Without the option, the field is absent, and nothing shows that it cannot be there.
    run(&folder, &[], PASSED, &["2 passed"]);
    let said = run(
        &folder,
        &["--strict-paths"],
        FAILED,
        &[
            "FAIL   case 0",
            "policy.test.yaml: cases[0]",
            "reader reads /spec/replica of the object, and apps/v1 Deployment has no field /spec/replica; did you mean \
             /spec/replicas?",
            "ok     case 1",
            "1 passed, 1 failed",
        ],
    );
    assert!(!said.contains("any~1name"), "{said}");
}

#[test]
fn case_that_sets_a_misspelt_field_fails() {
    let folder = project(&["/spec/replicas"], &[deployment("a")]);
    let cases = |pointer: &str| {
        json!({
            "plugins": [{"name": "reader", "source": "file:reader.wasm"}],
            "cases": [{"name": "many", "object": deployment("a"), "set": {pointer: []}, "expect": "allow"}],
        })
        .to_string()
    };
    let suite = folder.path().join("policy.test.yaml");
    let wrong = "/spec/template/spec/initContainer";
    fs::write(&suite, cases(wrong)).expect("a folder can be written to");
    run(&folder, &[], PASSED, &["1 passed"]);
    let words = [
        "strict paths: set /spec/template/spec/initContainer: apps/v1 Deployment has no field",
        "did you mean /spec/template/spec/initContainers?",
    ];
    run(&folder, &["--strict-paths"], FAILED, &words);
    for right in [
        "/spec/template/spec/initContainers",
        "/spec/template/spec/tolerations/-",
    ] {
        let suite_text = cases(right).replace(
            "\"spec\":{\"replicas\":3}",
            "\"spec\":{\"replicas\":3,\"template\":{\"spec\":{\"tolerations\":[]}}}",
        );
        fs::write(&suite, suite_text).expect("a folder can be written to");
        run(&folder, &["--strict-paths"], PASSED, &["1 passed"]);
    }
}

#[test]
fn patterns_and_fields_of_other_kinds_are_understood() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
    let pointers = [
        "/spec/containers/*/image",
        "/spec/template/spec/containers/*/image",
    ];
    let folder = project(&pointers, &[pod.clone(), deployment("a")]);
    run(&folder, &["--strict-paths"], PASSED, &["2 passed"]);
    let alone = project(&pointers, &[pod]);
    let words = ["v1 Pod has no field /spec/template"];
    run(&alone, &["--strict-paths"], FAILED, &words);
}

/// A CustomResourceDefinition of carts.
fn definition(schema: &Value) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "carts.shop.example"},
        "spec": {
            "group": "shop.example", "names": {"kind": "Cart", "plural": "carts"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
        },
    })
    .to_string()
}

#[test]
fn open_kind_hides_no_mistake_about_a_closed_one() {
    let folder = project(&["/spec/replica"], &[deployment("a"), cart()]);
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    fs::write(folder.path().join("crd.yaml"), definition(&open))
        .expect("a folder can be written to");
    let words = [
        "FAIL   case 0",
        "did you mean /spec/replicas?",
        "ok     case 1",
    ];
    let arguments = ["--strict-paths", "--crds", "crd.yaml"];
    run(&folder, &arguments, FAILED, &words);
}

#[test]
fn place_that_is_too_long_to_check_fails_the_case() {
    let long = format!("/metadata/labels/{}", "a".repeat(5000));
    let folder = project(&[&long], &[deployment("a")]);
    run(&folder, &[], PASSED, &["1 passed"]);
    let words = [
        "strict paths: reader reads more than 10000 places in this case, or a place of more than 4096 bytes",
        "1 failed",
    ];
    run(&folder, &["--strict-paths"], FAILED, &words);
}

#[test]
fn suites_of_gator_alone_are_an_error() {
    let folder = project(&["/spec/replica"], &[deployment("a")]);
    let suite = "kind: Suite\napiVersion: test.gatekeeper.sh/v1alpha1\n";
    fs::write(folder.path().join("suite.yaml"), suite).expect("a folder can be written to");
    let words = [
        "--strict-paths has nothing to check: all of the 1 suite(s) are gator's",
        "or leave --strict-paths out",
    ];
    run(&folder, &["--strict-paths", "suite.yaml"], ERROR, &words);
}

#[test]
fn custom_kinds_come_from_files() {
    let folder = project(&["/spec/size", "/metadata/name"], &[cart()]);
    let unknown = "the fields of shop.example/v1 Cart are not known; pass the file";
    run(&folder, &["--strict-paths"], FAILED, &[unknown]);
    let with_field = |field: &str| {
        let properties = json!({field: {"type": "integer"}});
        let spec = json!({"type": "object", "properties": properties});
        definition(&json!({"type": "object", "properties": {"spec": spec}}))
    };
    for (field, code) in [("size", PASSED), ("sizes", FAILED)] {
        let text = with_field(field);
        fs::write(folder.path().join("crd.yaml"), text).expect("a folder can be written to");
        run(
            &folder,
            &["--strict-paths", "--crds", "crd.yaml"],
            code,
            &[],
        );
    }
    run(&folder, &["--crds", "crd.yaml"], ERROR, &["--strict-paths"]);
    let suite = ["--strict-paths", "--crds", "policy.test.yaml"];
    run(
        &folder,
        &suite,
        ERROR,
        &["contains no CustomResourceDefinition"],
    );
}
