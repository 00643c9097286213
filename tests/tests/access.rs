//! Rights of users: what plugins are told, and what they are told when nobody knows.

use std::path::Path;

use serde_json::{Value, json};
use tollgate_tests::cli::{Ran, command, run};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::pod;
use tollgate_tests::wat;

/// Exit code: everything is allowed.
const ALLOWED: i32 = 0;
/// Exit code: something is denied.
const DENIED: i32 = 1;

/// Asks whether the user may delete the Deployment `web` in the namespace `shop`. Warns with the text of the answer, and
/// with `allowed` if the user may. The words in capitals are replaced.
///
/// The arguments are too many for parameters, so they are in memory at 1600: the action, and at 1652 the service account.
const ASKS: &str = r#"
    (import "tollgate:admission/access@0.1.0" "check" (func $check (param i32 i32)))
    (import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
    (data (i32.const 1024) "deleteappsdeploymentsshopweballowed")
    (data (i32.const 1604) "\00\04\00\00\06\00\00\00" "\06\04\00\00\04\00\00\00" "\0a\04\00\00\0b\00\00\00"
        "\00\04\00\00\00\00\00\00" "\15\04\00\00\04\00\00\00" "\19\04\00\00\03\00\00\00")
    (data (i32.const 1652) "ACCOUNT\00\00\00" "\15\04\00\00\04\00\00\00" "\19\04\00\00\03\00\00\00")
    (func (export "tollgate:admission/FUNCTION") RESULT
        (call $check (i32.const 1600) (i32.const 2048))
        ;; The reason of a decision and the text of a failure are at the same place.
        (call $warn (i32.load (i32.const 2056)) (i32.load (i32.const 2060)))
        (if (i32.and (i32.eqz (i32.load8_u (i32.const 2048))) (i32.load8_u (i32.const 2052)))
            (then (call $warn (i32.const 1052) (i32.const 7))))
        (i32.const 256))"#;
const VALIDATE: [(&str, &str); 2] = [
    ("FUNCTION", "validating@0.1.0#validate"),
    ("RESULT", "(result i32)"),
];
const CONFIGURE: [(&str, &str); 2] = [
    ("FUNCTION", "lifecycle@0.1.0#configure"),
    ("RESULT", "(param i32 i32) (result i32)"),
];

/// Warns with whether access is granted.
const SAYS_WHETHER: &str = r#"
    (import "tollgate:admission/access@0.1.0" "check" (func $check (param i32 i32)))
    (import "tollgate:admission/grants@0.1.0" "access" (func $granted (result i32)))
    (import "tollgate:admission/review@0.1.0" "warn" (func $warn (param i32 i32)))
    (data (i32.const 1024) "get/metrics")
    ;; The action on a path, and no service account.
    (data (i32.const 1600) "\01\00\00\00" "\00\04\00\00\03\00\00\00" "\03\04\00\00\08\00\00\00")
    (data (i32.const 1100) "granted" "missing")
    (func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
        (call $warn (select (i32.const 1100) (i32.const 1107) (call $granted)) (i32.const 7))
        (call $check (i32.const 1600) (i32.const 2048))
        (call $warn (i32.load (i32.const 2056)) (i32.load (i32.const 2060)))
        (i32.const 256))"#;

fn tollgate(arguments: &[&str]) -> Ran {
    run(&mut command(arguments))
}

fn asks(function: [(&str, &str); 2], about_service_account: bool, more: Value) -> Configuration {
    let account = if about_service_account {
        "\\01"
    } else {
        "\\00"
    };
    let mut text = ASKS.replace("ACCOUNT", account);
    for (mark, replacement) in function {
        text = text.replace(mark, replacement);
    }
    configuration("with-access", &text, more)
}

fn configuration(world: &str, text: &str, more: Value) -> Configuration {
    let mut configuration = Configuration::new();
    configuration.plugin_of("asks", &wat::plugin(world, text), more);
    configuration
}

/// Reviews a Pod of the user `anna`, who may do what these rules say.
fn review(configuration: &Configuration, rules: Option<Value>) -> Ran {
    let folder = configuration.folder();
    let write = |name: &str, value: &Value| {
        let path = folder.join(name);
        std::fs::write(&path, value.to_string()).expect("the file can be written");
        text(&path)
    };
    let mut arguments = vec![
        "review".to_owned(),
        "--config".to_owned(),
        text(&configuration.write()),
        "--user".to_owned(),
        "anna".to_owned(),
        write("pod.json", &pod("web")),
    ];
    if let Some(rules) = rules {
        let file = write("access.json", &json!({"access": rules}));
        arguments.extend(["--access".to_owned(), file]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tollgate(&arguments)
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

fn rule(user: &str) -> Value {
    json!({"user": user, "verb": "delete", "apiGroup": "apps", "resource": "deployments", "namespace": "shop"})
}

fn granted() -> Value {
    json!({"capabilities": ["access"]})
}

#[test]
fn plugin_is_told_what_the_user_may_do() {
    let asks = asks(VALIDATE, false, granted());
    let ran = review(&asks, Some(json!([rule("bert"), rule("anna")])));
    ran.assert(ALLOWED, &["access[1] allows it", "asks: allowed"]);
    let ran = review(&asks, Some(json!([rule("bert")])));
    ran.assert(ALLOWED, &["no rule of access allows it"]);
    assert!(!ran.said().contains("asks: allowed"), "{}", ran.said());
}

#[test]
fn without_rules_nothing_is_allowed() {
    let ran = review(&asks(VALIDATE, false, granted()), None);
    ran.assert(ALLOWED, &["this host has no authorizer", "--access FILE"]);
    assert!(!ran.said().contains("asks: allowed"), "{}", ran.said());
}

#[test]
fn service_accounts_need_a_grant_of_their_own() {
    let rules = json!([rule("system:serviceaccount:shop:web")]);
    let ran = review(&asks(VALIDATE, true, granted()), Some(rules.clone()));
    ran.assert(ALLOWED, &["may not ask about service accounts"]);
    assert!(!ran.said().contains("asks: allowed"), "{}", ran.said());
    let granted = json!({"access": {"serviceAccounts": true}});
    let ran = review(&asks(VALIDATE, true, granted), Some(rules));
    ran.assert(ALLOWED, &["asks: allowed"]);
}

#[test]
fn plugin_without_the_grant_is_not_loaded() {
    let ran = review(&asks(VALIDATE, false, json!({})), Some(json!([])));
    ran.assert(
        DENIED,
        &[
            "a capability that is not granted",
            "add `capabilities: [access]` to its configuration",
        ],
    );
}

#[test]
fn plugin_that_asks_in_configure_is_not_loaded() {
    let ran = review(&asks(CONFIGURE, false, granted()), Some(json!([])));
    ran.assert(DENIED, &["configure: contract-violation"]);
}

#[test]
fn plugin_that_can_do_without_is_loaded_and_told_so() {
    let world = "with-access-and-grants";
    let rules = json!([{"user": "anna", "verb": "get", "path": "/metrics"}]);
    let without = configuration(world, SAYS_WHETHER, json!({}));
    let ran = review(&without, Some(rules.clone()));
    ran.assert(
        ALLOWED,
        &[
            "asks: missing",
            "the plugin does not have the capability: add `capabilities: [access]`",
        ],
    );
    let with = configuration(world, SAYS_WHETHER, granted());
    review(&with, Some(rules)).assert(ALLOWED, &["asks: granted", "access[0] allows it"]);
}

#[test]
fn cases_of_suites_have_their_own_rules() {
    let configuration = asks(VALIDATE, false, granted());
    let config = configuration.write();
    let case = |name: &str, access: Option<Value>, warnings: Value| {
        let expect = json!({"verdict": "allow", "warnings": warnings});
        let mut case =
            json!({"name": name, "object": pod("web"), "user": "anna", "expect": expect});
        if let Some(access) = access {
            case["access"] = access;
        }
        case
    };
    let suite = json!({
        "config": config.file_name().and_then(|name| name.to_str()),
        "cases": [
            case("allowed", Some(json!([rule("anna")])), json!(["access[0] allows it", "allowed"])),
            case("denied", Some(json!([])), json!(["no rule of access allows it"])),
            case("unknown", None, json!(["this host has no authorizer: list what users may do under `access`"])),
        ],
    });
    let path = configuration.folder().join("access.test.yaml");
    std::fs::write(&path, suite.to_string()).expect("the file can be written");
    tollgate(&["test", &text(&path)]).assert(ALLOWED, &["3 passed"]);
}

#[test]
fn check_prints_the_role() {
    let configuration = asks(VALIDATE, false, granted());
    let ran = tollgate(&["check", "--config", &text(&configuration.write())]);
    ran.assert(
        ALLOWED,
        &["resources: [subjectaccessreviews], verbs: [create]"],
    );
}
