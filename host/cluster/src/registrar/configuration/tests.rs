//! The objects, and the differences that are noticed.

use std::time::Duration;

use tollgate_config::Margin;
use tollgate_registration::Address;

use super::super::fixtures::{matching, plugin, rule};
use super::super::record::Recorded;
use super::*;

fn registration() -> Registration {
    Registration {
        name: "gate".to_owned(),
        address: Address::Service {
            namespace: "system".to_owned(),
            name: "gate".to_owned(),
            port: 443,
        },
        ca_bundle: Some(b"PEM".to_vec()),
        per_plugin: true,
        timeout_seconds: None,
        reinvocation_policy: None,
        excluded_namespaces: ["system".to_owned()].into(),
        break_glass_groups: ["tollgate:break-glass".to_owned()].into(),
        margin: Margin {
            percent: 10,
            at_least: Duration::from_millis(50),
        },
    }
}

fn owner(uid: &str) -> OwnerReference {
    OwnerReference::new("v1", "Namespace", "system", uid)
}

fn expected() -> Value {
    let installation = Installation {
        name: "gate".to_owned(),
        namespace: "system".to_owned(),
        replica: "gate-0".to_owned(),
    };
    let plugins = [
        plugin("pods", matching(&[rule("", "pods")])),
        plugin("services", matching(&[rule("", "services")])),
    ];
    let record = plugins
        .iter()
        .map(|plugin| (plugin.name.clone(), Recorded::of(plugin, true)));
    let record = Record(record.collect());
    configuration(
        Endpoint::Validate,
        &registration(),
        &installation,
        &owner("u"),
        &plugins,
        &record,
    )
    .expect("fast enough")
    .expect("a configuration")
}

/// The object as kube-apiserver would return it: with defaults, without empty values.
fn live() -> Value {
    let mut live = expected();
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["labels"]["foreign"] = json!("label");
    for webhook in live["webhooks"].as_array_mut().expect("webhooks") {
        webhook["futureField"] = json!("default");
    }
    live
}

#[test]
fn names_carry_the_installation() {
    let expected = expected();
    let names: Vec<&str> = webhooks(&expected)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "pods.validate.gate.tollgate.dev",
            "services.validate.gate.tollgate.dev"
        ]
    );
    assert_eq!(expected["metadata"]["name"], "gate");
    assert_eq!(expected["metadata"]["ownerReferences"][0]["uid"], "u");
    let record = expected["metadata"]["annotations"][RECORD_ANNOTATION].as_str();
    let record = Record::read(record.expect("a record")).expect("readable");
    assert_eq!(record.0.keys().collect::<Vec<_>>(), ["pods", "services"]);
}

#[test]
fn ignores_defaults_and_fields_of_later_versions() {
    assert_eq!(differences(&expected(), &live()), Vec::<String>::new());
}

/// A foreign change of a webhook configuration.
type Change = fn(&mut Value);

#[test]
fn notices_every_change_that_matters() {
    let changes: [(&str, Change); 13] = [
        ("pods.validate.gate.tollgate.dev: rules", |live| {
            live["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
        }),
        ("pods.validate.gate.tollgate.dev: failurePolicy", |live| {
            live["webhooks"][0]["failurePolicy"] = json!("Ignore");
        }),
        ("pods.validate.gate.tollgate.dev: clientConfig", |live| {
            live["webhooks"][0]["clientConfig"]["caBundle"] = json!("b3RoZXI=");
        }),
        (
            "pods.validate.gate.tollgate.dev: namespaceSelector",
            |live| {
                live["webhooks"][0]["namespaceSelector"] = json!({});
            },
        ),
        ("pods.validate.gate.tollgate.dev: objectSelector", |live| {
            live["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
        }),
        ("pods.validate.gate.tollgate.dev: matchConditions", |live| {
            let conditions = live["webhooks"][0]["matchConditions"].as_array_mut();
            conditions
                .expect("conditions")
                .push(json!({"name": "never", "expression": "false"}));
        }),
        ("pods.validate.gate.tollgate.dev: timeoutSeconds", |live| {
            live["webhooks"][0]["timeoutSeconds"] = json!(1);
        }),
        ("pods.validate.gate.tollgate.dev: missing", |live| {
            live["webhooks"].as_array_mut().expect("webhooks").remove(0);
        }),
        ("foreign: unexpected", |live| {
            let webhooks = live["webhooks"].as_array_mut().expect("webhooks");
            webhooks.push(json!({"name": "foreign"}));
        }),
        ("the order of the webhooks", |live| {
            live["webhooks"].as_array_mut().expect("webhooks").reverse();
        }),
        ("metadata.labels", |live| {
            live["metadata"]["labels"]["app.kubernetes.io/name"] = json!("other");
        }),
        ("metadata.annotations", |live| {
            live["metadata"]["annotations"] = json!({});
        }),
        ("metadata.ownerReferences", |live| {
            live["metadata"]["ownerReferences"] = json!([]);
        }),
    ];
    for (difference, change) in changes {
        let mut live = live();
        change(&mut live);
        assert_eq!(differences(&expected(), &live), [difference]);
    }
}
