//! The whole plugin, with small templates.

use serde_json::{Value as Json, json};
use tollgate_sdk::testing::{TestReview, configure, manifest};

use crate::Gatekeeper;

const OWNER: &str = r#"
package owner
violation[{"msg": msg, "details": {"missing": ["owner"]}}] {
  not input.review.object.metadata.labels.owner
  msg := sprintf("%v has no owner", [input.parameters.what])
}
"#;

fn template(rego: &str) -> Json {
    json!({
        "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate",
        "metadata": { "name": "owner" },
        "spec": {
            "crd": { "spec": {
                "names": { "kind": "Owner" },
                "validation": { "openAPIV3Schema": { "type": "object", "properties": {
                    "what": { "type": "string", "default": "it" },
                } } },
            } },
            "targets": [{ "target": "admission.k8s.gatekeeper.sh", "rego": rego }],
        },
    })
}

fn constraint(name: &str, spec: Json) -> Json {
    json!({
        "apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Owner",
        "metadata": { "name": name }, "spec": spec,
    })
}

fn settings(rego: &str, constraints: &[Json]) -> Json {
    json!({ "template": template(rego), "constraints": constraints })
}

fn pod() -> Json {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "shop" } })
}

fn create(settings: Json) -> TestReview {
    TestReview::create(pod()).settings(settings)
}

#[track_caller]
fn refused(settings: Json) -> String {
    configure::<Gatekeeper>(settings).err().unwrap().to_string()
}

#[test]
fn violation_denies_with_message_and_details() {
    let outcome = create(settings(OWNER, &[constraint("all", json!({}))])).validate::<Gatekeeper>();
    let denial = outcome.denial();
    assert_eq!(denial.message, "[all] it has no owner");
    assert_eq!(denial.causes[0].message, "it has no owner");
    assert_eq!(
        outcome.annotations()["details"],
        r#"[{"missing":["owner"]}]"#
    );
}

#[test]
fn parameters_belong_to_their_constraint() {
    let constraints = [
        constraint("a", json!({ "parameters": { "what": "a pod" } })),
        constraint("b", json!({})),
    ];
    let outcome = create(settings(OWNER, &constraints)).validate::<Gatekeeper>();
    let denial = outcome.denial();
    assert_eq!(denial.message, "2 violations");
    let causes: Vec<&str> = denial.causes.iter().map(|cause| &*cause.message).collect();
    assert_eq!(causes, ["[a] a pod has no owner", "[b] it has no owner"]);
}

#[test]
fn warn_and_dryrun_deny_nothing() {
    let constraints = [
        constraint("w", json!({ "enforcementAction": "warn" })),
        constraint("d", json!({ "enforcementAction": "dryrun" })),
    ];
    let outcome = create(settings(OWNER, &constraints)).validate::<Gatekeeper>();
    assert!(outcome.is_allowed());
    assert_eq!(outcome.warnings(), ["[w] it has no owner"]);
    assert_eq!(outcome.annotations()["dryrun"], "[d] it has no owner");
}

#[test]
fn scoped_actions_count_for_their_enforcement_point() {
    let scoped = |action: &str, point: &str| {
        constraint(
            "s",
            json!({ "enforcementAction": "scoped", "scopedEnforcementActions": [
                { "action": action, "enforcementPoints": [{ "name": point }] },
            ] }),
        )
    };
    for (action, point, is_allowed) in [
        ("deny", "validation.gatekeeper.sh", false),
        ("deny", "*", false),
        ("deny", "audit.gatekeeper.sh", true),
        ("warn", "validation.gatekeeper.sh", true),
    ] {
        let outcome = create(settings(OWNER, &[scoped(action, point)])).validate::<Gatekeeper>();
        assert_eq!(outcome.is_allowed(), is_allowed, "{action} {point}");
    }
}

#[test]
fn deletion_shows_the_object_that_goes() {
    let rego = r#"
package owner
violation[{"msg": input.review.object.metadata.name}] { input.review.operation == "DELETE" }
"#;
    let review = TestReview::delete(pod()).settings(settings(rego, &[constraint("a", json!({}))]));
    assert_eq!(review.validate::<Gatekeeper>().denial().message, "[a] web");
}

#[test]
fn rego_v1_and_libraries_are_understood() {
    let mut template = template("");
    template["spec"]["targets"][0] = json!({
        "target": "admission.k8s.gatekeeper.sh",
        "code": [{ "engine": "Rego", "source": {
            "version": "v1",
            "rego": "package owner\nimport data.lib.names\nviolation contains {\"msg\": msg} if {\n  some msg in names.of(input.review)\n}\n",
            "libs": ["package lib.names\nof(review) := {review.object.metadata.name} if review.object\n"],
        } }],
    });
    let settings = json!({ "template": template, "constraints": [constraint("a", json!({}))] });
    let outcome = create(settings).validate::<Gatekeeper>();
    assert_eq!(outcome.denial().message, "[a] web");
}

#[test]
fn inventory_and_namespace_are_read_from_the_settings() {
    let rego = r#"
package owner
violation[{"msg": name}] { data.inventory.namespace["shop"]["v1"]["Service"][name] }
violation[{"msg": name}] { data.inventory.cluster["v1"]["Namespace"][name] }
violation[{"msg": team}] { team := input.review._unstable.namespace.metadata.labels.team }
"#;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "shop", "labels": { "team": "blue" } },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "db", "namespace": "shop" },
    });
    let selector =
        json!({ "match": { "namespaceSelector": { "matchLabels": { "team": "blue" } } } });
    let mut settings = settings(rego, &[constraint("a", selector)]);
    settings["inventory"] = json!([namespace, service]);
    settings["namespaces"] = json!([namespace]);
    let outcome = create(settings).validate::<Gatekeeper>();
    let causes = &outcome.denial().causes;
    let causes: Vec<&str> = causes.iter().map(|cause| &*cause.message).collect();
    assert_eq!(causes, ["blue", "db", "shop"]);
}

#[test]
fn constraint_that_cannot_be_evaluated_is_violated() {
    let rego = r#"
package owner
which(x) = 1 { x }
which(x) = 2 { x }
violation[{"msg": "never"}] { which(true) == 3 }
"#;
    for (action, is_allowed) in [("deny", false), ("warn", true), ("dryrun", true)] {
        let spec = json!({ "enforcementAction": action });
        let outcome = create(settings(rego, &[constraint("a", spec)])).validate::<Gatekeeper>();
        assert_eq!(outcome.is_allowed(), is_allowed, "{action}");
    }
    let outcome = create(settings(rego, &[constraint("a", json!({}))])).validate::<Gatekeeper>();
    let message = &outcome.denial().message;
    assert!(
        message.starts_with("[a] the template cannot be evaluated: "),
        "{message}"
    );
}

#[test]
fn constraint_whose_namespace_is_unknown_is_violated() {
    let other = json!({ "match": { "namespaceSelector": { "matchLabels": { "team": "a" } } } });
    let constraints = [
        constraint("a", other),
        constraint("b", json!({ "match": { "namespaces": ["elsewhere"] } })),
    ];
    let review = create(settings(OWNER, &constraints));
    let unknown = json!({ "metadata": { "name": "elsewhere" } });
    let outcome = review.namespace_object(unknown).validate::<Gatekeeper>();
    let message = &outcome.denial().message;
    assert!(
        message.starts_with("[a] namespaceSelector: the host does not know the Namespace shop"),
        "{message}"
    );
}

fn shop(team: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "shop", "labels": { "team": team }, "annotations": { "owner": "b" } },
    })
}

#[test]
fn namespace_selector_reads_labels_of_the_live_namespace() {
    let selector = json!({ "match": { "namespaceSelector": { "matchLabels": { "team": "a" } } } });
    let settings = settings(OWNER, &[constraint("a", selector)]);
    for (team, is_allowed) in [("a", false), ("b", true)] {
        let review = create(settings.clone()).namespace_object(shop(team));
        assert_eq!(review.validate::<Gatekeeper>().is_allowed(), is_allowed);
    }
    // The settings replace the Namespace of the cluster.
    let mut fixed = settings;
    fixed["namespaces"] = json!([shop("b")]);
    let outcome = create(fixed)
        .namespace_object(shop("a"))
        .validate::<Gatekeeper>();
    assert!(outcome.is_allowed());
}

#[test]
fn rego_reads_the_live_namespace() {
    let rego = r#"
package owner
violation[{"msg": msg}] { msg := input.review.namespaceObject.metadata.annotations.owner }
violation[{"msg": "none"}] { input.review.namespaceObject == null }
"#;
    let settings = settings(rego, &[constraint("a", json!({}))]);
    let review = create(settings.clone()).namespace_object(shop("a"));
    assert_eq!(review.validate::<Gatekeeper>().denial().message, "[a] b");
    // Gatekeeper takes a Namespace for cluster-scoped.
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } });
    for object in [node, shop("a")] {
        let review = TestReview::create(object).settings(settings.clone());
        assert_eq!(review.validate::<Gatekeeper>().denial().message, "[a] none");
    }
}

#[test]
fn namespace_is_read_however_the_rego_names_it() {
    for body in [
        "input.review._unstable.namespace.metadata.annotations.owner == \"b\"",
        "k := \"namespaceObject\"; input.review[k].metadata.annotations.owner == \"b\"",
        "r := input[\"review\"]; r[\"namespaceObject\"].metadata.annotations.owner == \"b\"",
        "x := object.get(input.review, \"namespaceObject\", {}); x.metadata.annotations.owner == \"b\"",
        "contains(json.marshal(input.review), \"owner\\\":\\\"b\")",
    ] {
        let rego = format!("package owner\nviolation[{{\"msg\": \"b\"}}] {{ {body} }}");
        let review = create(settings(&rego, &[constraint("a", json!({}))]));
        let review = review.namespace_object(shop("a"));
        let outcome = review.validate::<Gatekeeper>();
        assert!(!outcome.is_allowed(), "{body}");
    }
}

#[test]
fn same_instance_gives_the_same_answer_again() {
    let review = create(settings(OWNER, &[constraint("all", json!({}))]));
    let first = review.validate::<Gatekeeper>().denial().clone();
    assert_eq!(
        review.validate::<Gatekeeper>().denial().message,
        first.message
    );
}

#[test]
fn load_errors_name_the_place() {
    let error = refused(settings(
        "package owner\nviolation[{\"msg\": msg}] {\n  msg := \n}\n",
        &[],
    ));
    assert!(
        error.starts_with("/template/spec/targets/0/rego: line "),
        "{error}"
    );
    let error = refused(settings("package owner\nallowed { true }\n", &[]));
    assert!(error.contains("has no rule `violation`"), "{error}");
    let bad = constraint("a", json!({ "parameters": { "what": 3 } }));
    assert_eq!(
        refused(settings(OWNER, &[bad])),
        "/constraints/0/spec/parameters/what: expected a string, got a number"
    );
    let bad = constraint("a", json!({ "enforcementAction": "block" }));
    assert_eq!(
        refused(settings(OWNER, &[bad])),
        "/constraints/0/spec/enforcementAction: expected deny, warn, dryrun or scoped"
    );
    let error = refused(settings(
        "package owner\nviolation[{\"msg\": x}] { x := external_data({}) }\n",
        &[],
    ));
    assert!(
        error.contains("line 2: external_data: external data is not supported"),
        "{error}"
    );
}

#[test]
fn template_without_constraints_is_rejected() {
    assert_eq!(
        refused(settings(OWNER, &[])),
        "/constraints: is empty, so the template would allow everything; expected at least one constraint"
    );
}

#[test]
fn other_documents_are_rejected() {
    let error = refused(json!({ "template": { "kind": "Pod" }, "constraints": [] }));
    assert_eq!(
        error,
        "/template: is no ConstraintTemplate of templates.gatekeeper.sh"
    );
    let mut other = constraint("a", json!({}));
    other["kind"] = json!("Other");
    let error = refused(settings(OWNER, &[other]));
    assert!(error.starts_with("/constraints/0: is no Owner"), "{error}");
}

#[test]
fn the_settings_schema_is_json() {
    let schema = manifest::<Gatekeeper>().settings_schema.unwrap();
    let schema: Json = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
}
