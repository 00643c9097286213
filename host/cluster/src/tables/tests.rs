use serde_json::json;
use tollgate_config::lookup::{FieldPattern, LookupResource};
use tollgate_lookups::Projected;
use tollgate_lookups::Projection;

use super::decode::{Change, Event, change, event, list};
use super::*;

fn lookup() -> Lookup {
    let host = FieldPattern::parse("/spec/rules/*/host").expect("a pattern");
    let mut lookup = Lookup::names_of(LookupResource::new("networking.k8s.io", "v1", "ingresses"));
    lookup.fields = vec![host.clone()];
    lookup.indexes = [(Box::from("host"), host)].into();
    lookup
}

fn ingress(name: &str, host: &str) -> serde_json::Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "7"},
        "spec": {"rules": [{"host": host, "http": {"paths": []}}], "tls": [{"hosts": ["never kept"]}]},
    })
}

#[test]
fn list_is_reduced_to_the_kept_fields() {
    let projection = Projection::new(&lookup());
    let text = json!({
        "kind": "IngressList",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"resourceVersion": "12", "continue": "more"},
        "items": [ingress("a", "a.example"), ingress("b", "b.example")],
    });
    let page = list(&projection, &text.to_string()).expect("a list");
    assert_eq!(page.resource_version, "12");
    assert_eq!(page.next.as_deref(), Some("more"));
    let names: Vec<&str> = page.objects.iter().map(Projected::name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(page.objects[0].namespace(), Some("shop"));

    let table = Arc::new(Table::new(&lookup()));
    let mut writer = table.writer();
    writer.begin();
    page.objects
        .into_iter()
        .for_each(|object| writer.add(object));
    writer.finish("12");
    let found = table.find("host", "b.example", None).expect("synchronised");
    assert_eq!(found.objects.len(), 1);
    assert_eq!(
        &*found.objects[0].fields,
        r#"{"spec":{"rules":[{"host":"b.example"}]}}"#
    );
}

#[test]
fn empty_lists_are_lists() {
    let projection = Projection::new(&lookup());
    for items in [json!([]), json!(null)] {
        let text = json!({"metadata": {"resourceVersion": "1", "continue": ""}, "items": items});
        let page = list(&projection, &text.to_string()).expect("a list");
        assert!(page.objects.is_empty());
        assert_eq!(page.next, None);
    }
    let nameless = json!({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]});
    let table = json!({"metadata": {"resourceVersion": "1"}, "rows": []});
    for text in [
        nameless.to_string(),
        table.to_string(),
        "{}".to_owned(),
        "[]".to_owned(),
    ] {
        list(&projection, &text).expect_err(&text);
    }
}

#[test]
fn events_of_a_watch_are_told_apart() {
    let projection = Projection::new(&lookup());
    let event = |kind: &str, object: serde_json::Value| {
        let line = json!({"type": kind, "object": object}).to_string();
        change(&projection, &line)
    };
    for kind in ["ADDED", "MODIFIED"] {
        match event(kind, ingress("a", "a.example")) {
            Ok(Change::Applied(object, version)) => {
                assert_eq!((object.name(), version.as_str()), ("a", "7"));
            }
            other => panic!("{kind}: {other:?}"),
        }
    }
    let deleted = event("DELETED", ingress("a", "a.example"));
    assert!(matches!(deleted, Ok(Change::Deleted(..))), "{deleted:?}");
    let bookmark = json!({"kind": "Ingress", "metadata": {"resourceVersion": "9"}});
    let bookmark = event("BOOKMARK", bookmark);
    assert!(matches!(bookmark, Ok(Change::Bookmark(version)) if version == "9"));
    let status = json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old"});
    let failed = event("ERROR", status);
    assert!(matches!(failed, Ok(Change::Failed(status)) if status.code == 410));
    event("RENAMED", ingress("a", "a.example")).expect_err("an unknown event");
}

/// Returns an event as kube-apiserver writes it.
fn line(kind: &str, object: &serde_json::Value) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

#[test]
fn event_is_read_in_one_pass() {
    let projection = Projection::new(&lookup());
    let bookmark = json!({"metadata": {"resourceVersion": "9"}});
    let status = json!({"kind": "Status", "code": 410, "message": "too old"});
    for (kind, object) in [
        ("ADDED", ingress("a", "a.example")),
        ("DELETED", ingress("a", "a.example")),
        ("BOOKMARK", bookmark),
        ("ERROR", status),
    ] {
        let line = line(kind, &object);
        // A reader gives its bytes once.
        let mut reader = serde_json::Deserializer::from_reader(line.as_bytes());
        let read = event(&projection, None, &mut reader);
        assert!(matches!(read, Ok(Event::Read(_))), "{kind}: {read:?}");
    }
}

#[test]
fn event_without_object_version_or_known_type_is_refused() {
    let projection = Projection::new(&lookup());
    let mut unversioned = ingress("a", "a.example");
    unversioned["metadata"]["resourceVersion"] = json!(null);
    for text in [
        line("ADDED", &unversioned),
        line("ADDED", &json!({"metadata": {"resourceVersion": "7"}})),
        line("BOOKMARK", &json!({"metadata": {}})),
        line("RENAMED", &ingress("a", "a.example")),
        line("ADDED", &ingress("a", "a.example")) + "{}",
        r#"{"type":"ADDED"}"#.to_owned(),
        r#"{"object":{}}"#.to_owned(),
        "[]".to_owned(),
    ] {
        change(&projection, &text).expect_err(&text);
    }
}

#[test]
fn collections_have_kubernetes_paths() {
    let ingresses = lookup();
    assert_eq!(
        path(&ingresses, None),
        "/apis/networking.k8s.io/v1/ingresses"
    );
    let maps = Lookup::names_of(LookupResource::new("", "v1", "configmaps"));
    assert_eq!(path(&maps, None), "/api/v1/configmaps");
    assert_eq!(
        path(&maps, Some("shop")),
        "/api/v1/namespaces/shop/configmaps"
    );
}

fn configuration_of(names: &[&str]) -> Vec<Projected> {
    let projection = Projection::new(&lookup());
    let object = |name: &&str| {
        let text = ingress(name, "a.example").to_string();
        projection.decode(text.as_bytes()).expect("an object")
    };
    names.iter().map(object).collect()
}

#[test]
fn table_begins_when_all_namespaces_have_young_lists() {
    let lists = FirstLists::of(2);
    let start = Instant::now();
    assert!(lists.put("a", configuration_of(&["old"]), start).is_none());
    // The first list is too old when the second comes.
    let late = start + Duration::from_secs(60);
    assert!(lists.put("b", configuration_of(&["b"]), late).is_none());
    let all = lists.put("a", configuration_of(&["new"]), late);
    let all = all.expect("both are young");
    let names: Vec<&str> = all.iter().map(Projected::name).collect();
    assert_eq!(names, ["new", "b"]);
    let again = lists.put("a", configuration_of(&["new"]), late);
    assert!(again.is_none(), "it begins once");
}

#[test]
fn table_follows_when_no_namespace_fails() {
    let table = Arc::new(Table::new(&lookup()));
    let mut writer = table.writer();
    writer.begin();
    writer.finish("1");
    let failing = Arc::default();
    let (mut one, mut other) = (Health::new(&failing), Health::new(&failing));
    let is_cut = || table.state().synchronisation != tollgate_lookups::Synchronisation::Following;
    one.fails(&mut writer, "forbidden");
    one.fails(&mut writer, "forbidden");
    other.fails(&mut writer, "reset");
    other.recovers(&mut writer);
    writer.progress("2");
    assert!(is_cut(), "the other one still fails");
    one.recovers(&mut writer);
    assert!(!is_cut());
    one.recovers(&mut writer);
    assert!(!is_cut());
}
