//! Tests of tables from files.

use serde_json::json;

use super::*;
use crate::page::Failure;
use crate::{Granted, Lookups, NoTables};

fn objects() -> Vec<Json> {
    let map = |namespace: &str, name: &str, team: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" },
            "metadata": { "namespace": namespace, "name": name, "labels": { "team": team } } })
    };
    let crd = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "mice.example.com" },
        "spec": { "group": "example.com", "scope": "Cluster", "names": { "kind": "Mouse", "plural": "mice" } } });
    let mouse =
        json!({ "apiVersion": "example.com/v1", "kind": "Mouse", "metadata": { "name": "jerry" } });
    [
        map("shop", "a", "blue"),
        map("shop", "b", "red"),
        map("bank", "a", "blue"),
        mouse,
        crd,
    ]
    .map(Json::from)
    .into()
}

fn lookups(text: &str) -> Lookups {
    let text = format!("plugins:\n- name: a\n  source: file:a.wasm\n  lookups: {text}");
    let config = tollgate_config::Config::parse(&text, std::path::Path::new("/"));
    config
        .unwrap_or_else(|error| panic!("{error}"))
        .plugins
        .remove(0)
        .lookups
}

#[test]
fn answers_from_objects_that_the_lookup_selects() {
    let objects = objects();
    let tables = FileTables::from_objects("in dump.yaml", &objects).unwrap();
    let lookups = lookups(
        "
  - { name: all, resource: { group: '', version: v1, resource: configmaps }, indexes: { team: /metadata/labels/team } }
  - { name: some, resource: { group: '', version: v1, resource: configmaps }, namespaces: [shop], fields: [/data],
      labelSelector: { matchLabels: { team: blue } } }
  - { name: mice, resource: { group: example.com, version: v1, resource: mice } }
  - { name: none, resource: { group: '', version: v1, resource: pods } }
  - { name: older, resource: { group: example.com, version: v1beta1, resource: mice } }",
    );
    let granted = Granted::bind(&lookups, &tables);
    let names = |lookup: &str| -> Vec<String> {
        let page = granted.list(lookup, None, None).unwrap();
        page.objects
            .iter()
            .map(|entry| entry.name.to_string())
            .collect()
    };
    assert_eq!(names("all"), ["a", "a", "b"]);
    assert_eq!(names("some"), ["a"]);
    assert_eq!(names("mice"), ["jerry"]);
    assert!(names("none").is_empty());
    assert_eq!(
        granted
            .find("all", "team", "blue", None)
            .unwrap()
            .objects
            .len(),
        2
    );
    let entry = granted.get("some", Some("shop"), "a").unwrap().unwrap();
    assert_eq!(&*entry.fields, r#"{"data":{"a":"b"}}"#);
    let failure = granted.list("older", None, None).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "not synchronised: the lookup `older` of mice.v1beta1.example.com: the mice in dump.yaml have the version v1, \
         and the lookup names v1beta1: give the objects in that version"
    );
    assert_eq!(granted.waits_for(), None);
    let same = tables.table(&lookups["all"]).unwrap();
    assert!(Arc::ptr_eq(&same, &tables.table(&lookups["all"]).unwrap()));
}

#[test]
fn unknown_lookups_are_not_granted_and_missing_sources_not_synchronised() {
    let lookups = lookups("[{ name: pods, resource: { group: '', version: v1, resource: pods } }]");
    let granted = Granted::bind(&lookups, &NoTables::because("there is no cluster"));
    let failure = granted.get("nodes", None, "a").unwrap_err();
    let text = "there is no lookup \"nodes\": the plugin's configuration has pods";
    assert_eq!(failure, Failure::NotGranted(text.to_owned()));
    let failure = granted.get("pods", None, "a").unwrap_err();
    let text = "the lookup `pods` of pods: there is no cluster";
    assert_eq!(failure, Failure::NotSynchronised(text.to_owned()));
    assert_eq!(granted.waits_for(), None, "there will never be a table");
}

#[test]
fn rejects_documents_that_are_no_objects() {
    let objects = [Json::from(
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {} }),
    )];
    let error = FileTables::from_objects("in dump.yaml", &objects).unwrap_err();
    assert!(
        error.contains("the object at index 0 in dump.yaml"),
        "{error}"
    );
}
