//! Tests of projections.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_config::lookup::LookupResource;

use super::*;

fn projection(fields: &[&str], indexes: &[&str]) -> Projection {
    let pattern = |text: &&str| FieldPattern::parse(text).unwrap();
    let indexes = indexes.iter().enumerate();
    let indexes = indexes.map(|(number, text)| (format!("i{number}").into(), pattern(text)));
    Projection::new(&Lookup {
        fields: fields.iter().map(pattern).collect(),
        indexes: indexes.collect::<BTreeMap<_, _>>(),
        ..Lookup::names_of(LookupResource::new("", "v1", "pods"))
    })
}

fn ingress() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "name": "web", "namespace": "shop", "resourceVersion": "7", "labels": { "a": "1" } },
        "spec": {
            "rules": [{ "http": {} }, { "host": "a.example", "port": 80 }, { "host": "b.example", "tls": true }, "odd"],
            "tls": [{ "hosts": ["a.example", "a.example"] }],
        },
    })
}

#[test]
fn keeps_named_members_at_their_places() {
    for (fields, expected) in [
        (
            &["/spec/rules/*/host"][..],
            r#"{"spec":{"rules":[{},{"host":"a.example"},{"host":"b.example"},null]}}"#,
        ),
        (
            &["/metadata/labels", "/spec/tls"],
            r#"{"metadata":{"labels":{"a":"1"}},"spec":{"tls":[{"hosts":["a.example","a.example"]}]}}"#,
        ),
        (&["/spec/rules/1/host", "/spec/none"], "{}"),
        (&["/*/name"], r#"{"metadata":{"name":"web"}}"#),
        (
            &["/spec/tls/*/hosts/*", "/spec/tls/*/hosts"],
            r#"{"spec":{"tls":[{"hosts":["a.example","a.example"]}]}}"#,
        ),
        (&[], "{}"),
    ] {
        let text = ingress().to_string();
        let object = projection(fields, &[]).decode(text.as_bytes()).unwrap();
        assert_eq!(object.fields(), expected, "{fields:?}");
        assert_eq!((object.namespace(), object.name()), (Some("shop"), "web"));
        assert_eq!(object.resource_version(), Some("7"));
    }
}

#[test]
fn collects_distinct_keys_of_indexes_that_fields_do_not_cover() {
    let indexes = [
        "/spec/rules/*/host",
        "/spec/tls/*/hosts/*",
        "/spec/rules/*/port",
        "/spec/rules/*/tls",
    ];
    let text = ingress().to_string();
    let object = projection(&["/kind"], &indexes)
        .decode(text.as_bytes())
        .unwrap();
    let keys: Vec<_> = object.keys().collect();
    let expected = [
        (0, "a.example"),
        (0, "b.example"),
        (1, "a.example"),
        (2, "80"),
        (3, "true"),
    ];
    assert_eq!(keys, expected);
    assert_eq!(object.fields(), r#"{"kind":"Ingress"}"#);
}

#[test]
fn rejects_what_has_no_name() {
    let projection = projection(&["/spec"], &[]);
    for text in [
        "[]",
        "7",
        "\"secret\"",
        "{}",
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"name":""}}"#,
        r#"{"metadata":{"name":null}}"#,
    ] {
        assert_eq!(
            projection.decode(text.as_bytes()),
            Err(DecodeError::NotAnObject),
            "{text}"
        );
    }
    let deep = format!(
        "{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{}{}}}",
        "[".repeat(500),
        "]".repeat(500)
    );
    for text in [
        "",
        "{",
        r#"{"metadata":{"name":"a"}} x"#,
        "{\"metadata\":{\"name\":\"a\u{1}\"}}",
        &deep,
    ] {
        let error = projection.decode(text.as_bytes()).unwrap_err();
        assert!(
            matches!(error, DecodeError::Syntax { .. }),
            "{text} {error}"
        );
    }
}

#[test]
fn writes_texts_as_json() {
    let object = json!({ "metadata": { "name": "a" }, "data": { "\"q\\\u{1}": "line\n\ttab\r\u{7f}é\u{1f600}" } });
    let projected = projection(&["/data"], &[])
        .decode(object.to_string().as_bytes())
        .unwrap();
    let fields: Value = serde_json::from_str(projected.fields()).unwrap();
    assert_eq!(fields["data"], object["data"]);
}
