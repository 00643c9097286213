//! `tollgate review` has the same results as a running server, and its output tells a user what to do.

use std::path::Path;

use base64::Engine as _;
use serde_json::{Map, Value, json};
use tollgate_tests::cli::{self, Ran};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, config_map, pod, secret};
use tollgate_tests::server::Server;

/// Exit code: everything is allowed.
const ALLOWED: i32 = 0;
/// Exit code: something is denied.
const DENIED: i32 = 1;
/// Exit code: something could not be reviewed.
const ERROR: i32 = 2;

/// Configures mutators, a validator that denies, one that warns and one that is only counted.
fn configuration() -> Configuration {
    let mut configuration = Configuration::new();
    let rewrite = json!({"rewrite": [{"from": "k8s.gcr.io/", "to": "registry.k8s.io/"}]});
    configuration.plugin(
        "image-rewrite",
        &guests::build("image-rewrite"),
        json!({"settings": rewrite}),
    );
    configuration.plugin(
        "always-pull-images",
        &guests::build("always-pull-images"),
        json!({}),
    );
    let labels = guests::build("required-labels");
    let everything = json!({"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    for (name, mode, label) in [
        ("team", "enforce", "team"),
        ("owner", "warn", "owner"),
        ("cost", "audit", "cost-center"),
    ] {
        let more =
            json!({"mode": mode, "match": everything, "settings": {"labels": {label: null}}});
        configuration.plugin(name, &labels, more);
    }
    configuration
}

fn review(configuration: &Configuration, arguments: &[&str], stdin: &str) -> Ran {
    let mut command = cli::command(&["review", "--config"]);
    command.arg(configuration.write()).args(arguments);
    cli::run_with(&mut command, stdin)
}

fn labelled(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"team": "shop", "owner": "jane", "cost-center": "7"});
    object
}

/// Creates forty different manifests.
fn manifests() -> Vec<Value> {
    let mut manifests = Vec::new();
    for index in 0..30 {
        let mut object = pod(&format!("pod-{index}"));
        object["spec"]["containers"][0]["image"] = match index % 3 {
            0 => json!("k8s.gcr.io/pause:3.9"),
            _ => json!(format!("registry.example.com/<app&>:{index}")),
        };
        manifests.push(if index % 4 == 0 {
            object
        } else {
            labelled(object)
        });
    }
    let of = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {}});
    manifests.extend([
        of("v1", "Namespace", "shop"),
        of("v1", "Service", "web"),
        of("networking.k8s.io/v1", "Ingress", "web"),
        of("networking.k8s.io/v1", "NetworkPolicy", "closed"),
        of("rbac.authorization.k8s.io/v1", "ClusterRole", "reader"),
        of("example.com/v1", "Policy", "custom"),
        of("apps/v1", "Deployment", "web"),
        secret("loot", "aHVudGVyMg==", "hunter2", "{}"),
        config_map("settings", Map::new()),
        labelled(config_map("more", Map::new())),
    ]);
    manifests
}

/// Creates ten reviews as kube-apiserver could send them.
fn reviews() -> Vec<Value> {
    let mut changed = labelled(pod("web"));
    changed["spec"]["containers"][0]["image"] = json!("k8s.gcr.io/pause:3.10");
    let reviews = [
        Review::create(pod("web")),
        Review::create(pod("web")).v1beta1(),
        Review::update(changed.clone(), pod("web")),
        Review::update(changed.clone(), pod("web")).v1beta1(),
        Review::delete(pod("web")),
        Review::exec("web"),
        Review::create(changed.clone()),
        Review::update(pod("web"), changed),
        Review::create(secret("loot", "aHVudGVyMg==", "hunter2", "{}")),
        Review::create(config_map("settings", Map::new())),
    ];
    let with_uid = |(index, review): (usize, Review)| review.uid(&format!("uid-{index}")).build();
    reviews.into_iter().enumerate().map(with_uid).collect()
}

/// Returns the review that kube-apiserver sends after a mutation.
fn patched(review: &Value, response: &Value) -> Value {
    let mut review = review.clone();
    if let Some(patch) = response["response"]["patch"].as_str() {
        let patch = base64::engine::general_purpose::STANDARD.decode(patch);
        let patch = serde_json::from_slice(&patch.expect("a patch is in base64"));
        let patch: json_patch::Patch = patch.expect("a patch is a JSON Patch");
        json_patch::patch(&mut review["request"]["object"], &patch).expect("the patch applies");
    }
    review
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_documents_get_same_answers_as_from_server() {
    let configuration = configuration();
    let folder = configuration.folder().to_owned();
    let (manifests, reviews) = (manifests(), reviews());
    let write = |name: &str, documents: &[Value], separator: &str| {
        let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
        let path = folder.join(name);
        std::fs::write(&path, texts.join(separator)).expect("the folder is writable");
        path.display().to_string()
    };
    let manifest_file = write("manifests.yaml", &manifests, "\n---\n");
    let review_file = write("reviews.json", &reviews, "\n");
    let files = [manifest_file.as_str(), review_file.as_str()];

    let reviewed = review(&configuration, &[&files[..], &["-o", "json"]].concat(), "");
    reviewed.assert_clean(DENIED, &[]);
    let whole = reviewed.json();
    let documents = whole["documents"].as_array().expect("a list of documents");
    assert_eq!(documents.len(), 50);
    assert_eq!(whole["summary"]["errors"], 0);

    let text = review(&configuration, &files, "");
    text.assert_clean(
        DENIED,
        &["50 document(s)", "assumed for manifests: operation CREATE"],
    );

    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let (mut patches, mut denials, mut warnings) = (0, 0, 0);
    for (index, document) in documents.iter().enumerate() {
        let sent = match index.checked_sub(manifests.len()) {
            Some(index) => reviews[index].clone(),
            None => {
                let mut request = document["request"].clone();
                request["object"] = manifests[index].clone();
                if let Some(namespace) = request["namespace"].as_str().map(str::to_owned)
                    && request["kind"]["kind"] != "Namespace"
                {
                    request["object"]["metadata"]["namespace"] = json!(namespace);
                }
                request["oldObject"] = Value::Null;
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
            }
        };
        let mutated = server.mutate(&sent).await.json();
        assert_eq!(document["mutate"]["response"], mutated, "document {index}");
        patches += usize::from(mutated["response"]["patch"].is_string());
        if mutated["response"]["allowed"] == false {
            assert_eq!(document["validate"], Value::Null);
            continue;
        }
        let validated = server.validate(&patched(&sent, &mutated)).await.json();
        assert_eq!(
            document["validate"]["response"], validated,
            "document {index}"
        );
        denials += usize::from(validated["response"]["allowed"] == false);
        warnings += usize::from(validated["response"]["warnings"].is_array());
        assert_eq!(
            document["verdict"] == "allowed",
            validated["response"]["allowed"] == true
        );
    }
    // Empty answers would show nothing.
    assert!(
        patches > 20 && denials > 10 && warnings > 10,
        "{patches} {denials} {warnings}"
    );
    assert_eq!(whole["summary"]["denied"], denials);
    assert!(!text.stdout.contains("hunter2") && !text.stdout.contains("aHVudGVyMg"));
}

#[test]
fn prints_verdict_fields_changes_and_cost() {
    let mut object = pod("web");
    object["metadata"]["namespace"] = json!("shop");
    object["spec"]["containers"][0]["image"] = json!("k8s.gcr.io/pause:3.9");
    let denied = review(&configuration(), &["-"], &object.to_string());
    denied.assert_clean(
        DENIED,
        &[
            "denied   Pod shop/web",
            "(-, document 1)",
            "user tollgate-review in system:authenticated",
            "denied (403):",
            "metadata.labels[team]",
            "warning:",
            "in mode audit, cost:",
            "mutate    image-rewrite",
            "changed /spec/containers/0/image",
            "-   - image: k8s.gcr.io/pause:3.9",
            "+   - image: registry.k8s.io/pause:3.9",
            "1 document(s): 0 allowed (0 changed), 1 denied, 0 in error",
            "fuel/call",
        ],
    );
    let changed = review(
        &configuration(),
        &["-", "--verbose"],
        &labelled(object).to_string(),
    );
    changed.assert_clean(
        ALLOWED,
        &[
            "changed  Pod shop/web",
            "validate  team",
            "not called: it does not validate",
            "not called: it runs after the answer (mode audit)",
        ],
    );
    let nothing = review(
        &configuration(),
        &["-"],
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {team: a, owner: b, cost-center: c}}\n",
    );
    nothing.assert_clean(ALLOWED, &["allowed  Pod default/web"]);
}

#[test]
fn flags_set_request_fields_and_assumptions_are_printed() {
    let arguments = |more: &[&str]| {
        let arguments = [&["-", "-o", "json"], more].concat();
        review(
            &configuration(),
            &arguments,
            "{apiVersion: example.com/v1, kind: Policy, metadata: {name: p}}",
        )
        .json()
    };
    let document = &arguments(&[
        "--user",
        "jane",
        "--group",
        "dev",
        "--namespace",
        "bank",
        "--dry-run",
    ])["documents"][0];
    let request = &document["request"];
    assert_eq!(request["resource"]["resource"], "policies");
    assert_eq!(
        request["userInfo"],
        json!({"username": "jane", "groups": ["dev", "system:authenticated"]})
    );
    assert_eq!(
        (&request["namespace"], &request["dryRun"]),
        (&json!("bank"), &json!(true))
    );
    assert_eq!(request["options"]["dryRun"], json!(["All"]));
    let assumed = document["assumed"].to_string();
    assert!(
        assumed.contains("resource policies and scope Namespaced"),
        "{assumed}"
    );

    let document = &arguments(&["--operation", "delete"])["documents"][0];
    assert_eq!(document["request"]["operation"], "DELETE");
    assert_eq!(document["verdict"], "allowed", "the rules have no DELETE");
    let document = &arguments(&["--operation", "UPDATE"])["documents"][0];
    assert!(
        document["assumed"]
            .to_string()
            .contains("the old object is the same")
    );
}

#[test]
fn old_objects_make_an_update() {
    let configuration = configuration();
    let old = configuration.folder().join("old.yaml");
    std::fs::write(&old, pod("web").to_string()).expect("the folder is writable");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [labelled(pod("web")), labelled(pod("new"))]});
    let old = old.display().to_string();
    let reviewed = review(
        &configuration,
        &["--old", &old, "-o", "yaml", "-"],
        &list.to_string(),
    );
    reviewed.assert_clean(ALLOWED, &["operation: UPDATE", "operation: CREATE"]);
}

#[test]
fn delete_reviews_the_stored_object() {
    let mut configuration = Configuration::new();
    let match_all = json!({"rules": [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
        "matchConditions": [{"name": "kept", "expression": "has(oldObject.metadata.labels.keep)"}]});
    configuration.plugin(
        "kept",
        &guests::build("required-labels"),
        json!({"match": match_all, "settings": {"labels": {"team": null}}}),
    );
    let mut stored = pod("web");
    stored["metadata"]["labels"] = json!({"keep": "true"});
    let old = configuration.folder().join("old.yaml");
    std::fs::write(&old, stored.to_string()).expect("the folder is writable");
    let old = old.display().to_string();
    let mut named = pod("web");
    named["metadata"]["labels"] = json!({});
    let arguments = ["--operation", "DELETE", "--old", &old, "-v", "-"];
    let reviewed = review(&configuration, &arguments, &named.to_string());
    reviewed.assert_clean(ALLOWED, &["validate  kept  allowed"]);
    let reviewed = review(
        &configuration,
        &["--operation", "DELETE", "-v", "-"],
        &named.to_string(),
    );
    reviewed.assert_clean(
        ALLOWED,
        &["kept  not called: a rule matches, but its matchCondition `kept` is false"],
    );
    let arguments = ["--operation", "CREATE", "--old", &old, "-"];
    review(&configuration, &arguments, &named.to_string())
        .assert_clean(ERROR, &["--operation CREATE cannot have --old"]);
}

#[test]
fn names_why_plugins_are_not_called() {
    let mut configuration = Configuration::new();
    let labels = guests::build("required-labels");
    for (name, keys) in [
        (
            "selected",
            json!({"objectSelector": {"matchLabels": {"tier": "gold"}}}),
        ),
        (
            "second",
            json!({"matchConditions": [
                {"name": "one", "expression": "true"}, {"name": "two", "expression": "object.kind == 'Node'"},
            ]}),
        ),
        ("grouped", json!({"excludeGroups": ["dev"]})),
        ("named", json!({"excludeUsers": ["jane"]})),
        ("elsewhere", json!({"namespaces": ["bank"]})),
    ] {
        let mut matching = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
        for (key, value) in keys.as_object().expect("an object") {
            matching[key] = value.clone();
        }
        let settings = json!({"labels": {"team": null}});
        configuration.plugin(
            name,
            &labels,
            json!({"match": matching, "settings": settings}),
        );
    }
    let asks = |user: &str| {
        let arguments = ["-v", "--user", user, "--group", "dev", "-"];
        review(&configuration, &arguments, &pod("web").to_string())
    };
    asks("joe").assert_clean(
        DENIED,
        &[
            "selected   not called: a rule matches, but its `objectSelector` does not",
            "second     not called: a rule matches, but its matchCondition `two` is false",
            "grouped    not called: a rule matches, but `excludeGroups` lists a group of this user",
            "elsewhere  not called: a rule matches, but `namespaces` or `excludeNamespaces` excludes this namespace",
        ],
    );
    asks("jane").assert_clean(
        ALLOWED,
        &[
            "named      not called: a rule matches, but `excludeUsers` lists this user",
            "no plugin was called",
        ],
    );
}

#[test]
fn summary_counts_calls_and_changes() {
    let mut configuration = configuration();
    let labels = guests::build("required-labels");
    let excepted = json!({
        "settings": {"labels": {"never": null}},
        "exceptions": [{"reason": "moving house", "until": "2999-12-31", "namespaces": ["default"]}],
    });
    configuration.plugin("excepted", &labels, excepted);
    let mut object = pod("web");
    object["spec"]["containers"][0]["image"] = json!("k8s.gcr.io/pause:3.9");
    let text = review(&configuration, &["-"], &object.to_string());
    text.assert_clean(DENIED, &["team"]);
    let summary = text.stdout.split("document(s)").nth(1).unwrap_or_default();
    assert!(!summary.contains("excepted"), "{summary}");
    // The object is denied, and there is still a patch.
    let json = review(&configuration, &["-o", "json", "-"], &object.to_string()).json();
    assert_eq!(
        (
            &json["documents"][0]["verdict"],
            &json["documents"][0]["changed"]
        ),
        (&json!("denied"), &json!(true))
    );

    let mut audited = Configuration::new();
    let settings = json!({"mode": "audit", "settings": {"labels": {"team": null}}});
    audited.plugin("team", &labels, settings);
    let reviewed = review(&audited, &["-"], &pod("web").to_string());
    reviewed.assert_clean(
        ALLOWED,
        &[
            "in mode audit, team:",
            "in mode audit, team would have denied 1 document(s)",
        ],
    );
    assert!(
        !reviewed.stdout.contains("no plugin was called"),
        "{}",
        reviewed.stdout
    );

    let mut missing = Configuration::new();
    missing.plugin(
        "gone",
        Path::new("/nowhere/gone.wasm"),
        json!({"mode": "warn"}),
    );
    let reviewed = review(&missing, &["-"], &pod("web").to_string());
    reviewed.assert_clean(
        ALLOWED,
        &["the plugin gone is not loaded, and it denies nothing in mode warn"],
    );
}

#[test]
fn plugin_that_enforces_and_is_not_loaded_is_no_success() {
    let mut missing = Configuration::new();
    missing.plugin(
        "gone",
        Path::new("/nowhere/gone.wasm"),
        json!({"failurePolicy": "Ignore"}),
    );
    let reviewed = review(&missing, &["-"], &pod("web").to_string());
    reviewed.assert_clean(
        ERROR,
        &[
            "the plugin gone is not loaded, and its failurePolicy Ignore applies",
            "1 allowed",
        ],
    );
}

#[test]
fn kinds_that_kubernetes_does_not_serve_are_errors() {
    let configuration = configuration();
    for (api_version, kind, reason) in [
        ("v1", "Deployment", "did you mean Deployment in apps/v1?"),
        ("v1", "Pods", "did you mean Pod in v1?"),
        (
            "apps/v1beta1",
            "Deployment",
            "does not serve Deployment in apps/v1beta1",
        ),
    ] {
        let mut object = labelled(pod("web"));
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        review(&configuration, &["-"], &object.to_string())
            .assert_clean(ERROR, &[reason, "1 in error"]);
    }
}

#[test]
fn object_that_kube_apiserver_would_convert_is_an_error() {
    let mut configuration = Configuration::new();
    let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"]}]});
    configuration.plugin(
        "team",
        &guests::build("required-labels"),
        json!({"match": rules, "settings": {"labels": {"team": null}}}),
    );
    let scaler = |version: &str| {
        json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": {}})
            .to_string()
    };
    review(&configuration, &["-"], &scaler("v1")).assert_clean(
        ERROR,
        &["would convert the object from v1 to v2 and call team"],
    );
    review(&configuration, &["-"], &scaler("v2")).assert_clean(DENIED, &["team"]);
}

#[test]
fn reads_yaml_as_kubectl_and_withholds_secrets() {
    let mut configuration = Configuration::new();
    configuration.plugin(
        "required-labels",
        &guests::build("required-labels"),
        json!({"match": {"rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"]}]},
            "settings": {"labels": {"on": null}}}),
    );
    let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {on: x}}}";
    review(&configuration, &["-"], manifest).assert_clean(DENIED, &["label on is required"]);
    review(&configuration, &["-"], &manifest.replace("{on:", "{'on':")).assert_clean(ALLOWED, &[]);

    let mut patching = Configuration::new();
    let everything = json!({"rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"]}]});
    patching.plugin(
        "allow-annotation",
        &guests::build("allow-annotation"),
        json!({"match": everything}),
    );
    let manifest = "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {pin: 47114711, word: hunter2}}";
    let reviewed = review(&patching, &["-"], manifest);
    reviewed.assert_clean(ALLOWED, &["allow-annotation/allow: \"[withheld]\""]);
    for secret in ["47114711", "hunter2", "SHA-256", "bytes"] {
        assert!(!reviewed.stdout.contains(secret), "{}", reviewed.stdout);
    }
}

#[test]
fn reports_documents_that_cannot_be_reviewed() {
    let configuration = configuration();
    let good = labelled(pod("web")).to_string();
    for (input, words) in [
        ("kind: Pod\n", vec!["error", "missing `apiVersion`"]),
        (
            "- 1\n",
            vec!["got a JSON number, expected a Kubernetes object"],
        ),
        ("a: 1\na: 2\n", vec!["tollgate: -: line 2, column 1"]),
        ("# nothing\n", vec!["tollgate: -: contains no document"]),
        (
            "{kind: AdmissionReview, apiVersion: admission.k8s.io/v3}",
            vec!["the AdmissionReview's `apiVersion` is not supported"],
        ),
    ] {
        review(&configuration, &["-"], input).assert_clean(ERROR, &words);
    }
    // One bad document does not hide the results of the others.
    let mixed = review(&configuration, &["-"], &format!("kind: Pod\n---\n{good}\n"));
    mixed.assert_clean(
        ERROR,
        &["(-, document 1)", "changed  Pod default/web", "1 in error"],
    );
    let missing = review(&configuration, &["no-such-file.yaml"], "");
    missing.assert_clean(ERROR, &["cannot read no-such-file.yaml"]);
    assert!(Path::new(&configuration.folder()).is_dir());
}
