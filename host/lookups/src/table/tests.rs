//! Tests of tables.

use std::collections::BTreeMap;

use serde_json::json;
use tollgate_config::lookup::{FieldPattern, LookupResource};

use super::*;
use crate::page::{MOST_PAGE_BYTES, MOST_PAGE_OBJECTS};
use crate::projection::Projection;

type Read<'r> = &'r dyn Fn(Option<&str>) -> Page;

fn lookup() -> Lookup {
    let pattern = |text| FieldPattern::parse(text).unwrap();
    Lookup {
        fields: vec![pattern("/data")],
        indexes: BTreeMap::from([("team".into(), pattern("/metadata/labels/team"))]),
        ..Lookup::names_of(LookupResource::new("", "v1", "configmaps"))
    }
}

fn object(namespace: &str, name: &str, data: &str) -> Projected {
    let labels = json!({ "team": "blue" });
    let metadata = json!({ "namespace": namespace, "name": name, "labels": labels });
    let object = json!({ "metadata": metadata, "data": data });
    Projection::new(&lookup())
        .decode(object.to_string().as_bytes())
        .unwrap()
}

fn table(objects: impl IntoIterator<Item = Projected>) -> (Arc<Table>, Writer) {
    let table = Arc::new(Table::new(&lookup()));
    let mut writer = table.writer();
    writer.begin();
    objects.into_iter().for_each(|object| writer.add(object));
    writer.finish("1");
    (table, writer)
}

#[test]
fn answers_only_after_the_first_list() {
    let table = Arc::new(Table::new(&lookup()));
    let mut writer = table.writer();
    let silent = |text: &str| {
        let expected = Failure::NotSynchronised(text.to_owned());
        assert_eq!(table.get(Some("shop"), "a"), Err(expected.clone()));
        assert_eq!(table.find("team", "blue", None), Err(expected.clone()));
        assert_eq!(table.list(None, None), Err(expected));
    };
    silent("the objects have not been read yet");
    writer.begin();
    writer.add(object("shop", "a", "1"));
    silent("the objects have not been read yet");
    writer.fail("forbidden");
    silent("the objects have not been read yet: forbidden");
    writer.begin();
    writer.add(object("shop", "b", "1"));
    writer.finish("7");
    assert_eq!(
        table.get(Some("shop"), "a"),
        Ok(None),
        "the first list was given up"
    );
    assert!(table.get(Some("shop"), "b").unwrap().is_some());
    assert_eq!(table.state().resource_version.as_deref(), Some("7"));
}

#[test]
fn old_content_stays_until_a_list_ends_and_while_the_watch_is_cut() {
    let (table, mut writer) = table([object("shop", "a", "1")]);
    writer.fail("connection reset");
    assert!(matches!(
        table.state().synchronisation,
        Synchronisation::Cut { .. }
    ));
    assert!(table.get(Some("shop"), "a").unwrap().is_some());
    writer.begin();
    writer.add(object("shop", "b", "1"));
    assert!(table.get(Some("shop"), "a").unwrap().is_some());
    assert!(table.get(Some("shop"), "b").unwrap().is_none());
    writer.finish("2");
    assert!(table.get(Some("shop"), "a").unwrap().is_none());
    assert!(table.get(Some("shop"), "b").unwrap().is_some());
    assert_eq!(table.state().synchronisation, Synchronisation::Following);
}

#[test]
fn tells_what_is_not_granted() {
    let mut lookup = lookup();
    lookup.namespaces = LookupNamespaces::Named(vec!["shop".into()]);
    let table = Table::new(&lookup);
    let text = |failure: Option<Failure>| match failure {
        Some(Failure::NotGranted(text)) => text,
        other => panic!("{other:?}"),
    };
    let refused = text(table.get(Some("bank"), "a").err());
    assert_eq!(refused, "it does not cover the namespace \"bank\"");
    let refused = text(table.list(Some("bank"), None).err());
    assert_eq!(refused, "it does not cover the namespace \"bank\"");
    let refused = text(table.get(None, "a").err());
    assert_eq!(
        refused,
        "it covers objects in some namespaces only, so name a namespace"
    );
    let refused = text(table.find("host", "a", None).err());
    assert_eq!(refused, "it has no index \"host\", only team");
}

#[test]
fn pages_are_bounded_by_number_and_size() {
    let names = |page: &Page| -> Vec<String> {
        page.objects
            .iter()
            .map(|entry| entry.name.to_string())
            .collect()
    };
    let count = MOST_PAGE_OBJECTS + 1;
    let (many, _writer) =
        table((0..count).map(|number| object("shop", &format!("n{number:04}"), "1")));
    let reads: [Read<'_>; 3] = [
        &|after| many.list(None, after).unwrap(),
        &|after| many.list(Some("shop"), after).unwrap(),
        &|after| many.find("team", "blue", after).unwrap(),
    ];
    for read in reads {
        let page = read(None);
        assert_eq!(page.objects.len(), MOST_PAGE_OBJECTS);
        assert_eq!(page.next.as_deref(), Some("shop/n0499"));
        let page = read(page.next.as_deref());
        assert_eq!((names(&page), page.next), (vec!["n0500".to_owned()], None));
    }
    let large = "x".repeat(MOST_PAGE_BYTES / 2);
    let huge = "x".repeat(MOST_PAGE_BYTES * 2);
    let texts = [("a", &large), ("b", &large), ("c", &huge), ("d", &large)];
    let (large, _writer) = table(texts.map(|(name, data)| object("shop", name, data)));
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = large.list(None, after.as_deref()).unwrap();
        pages.push(names(&page));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [["a"], ["b"], ["c"], ["d"]]);
}

#[test]
fn pages_survive_changes_between_them() {
    let (table, mut writer) = table(["a", "b", "c"].map(|name| object("shop", name, "1")));
    writer.delete(Some("shop"), "b", "2");
    writer.apply(object("shop", "bb", "1"), "3");
    let page = table.list(None, Some("shop/b")).unwrap();
    let names: Vec<&str> = page.objects.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["bb", "c"]);
    assert!(
        table
            .list(Some("shop"), Some("zoo/a"))
            .unwrap()
            .objects
            .is_empty()
    );
    assert_eq!(
        table.list(Some("shop"), Some("a/z")).unwrap().objects.len(),
        3
    );
}

#[test]
fn memory_follows_the_objects() {
    let (table, mut writer) = table([]);
    let empty = table.size();
    for number in 0..5_000 {
        writer.apply(
            object("shop", &format!("n{number}"), &format!("data {number}")),
            "2",
        );
    }
    let full = table.size();
    assert_eq!(full.objects, 5_000);
    for number in 0..5_000 {
        writer.delete(Some("shop"), &format!("n{number}"), "3");
    }
    writer.begin();
    writer.finish("4");
    let emptied = table.size();
    assert_eq!(emptied.objects, 0);
    assert!(
        emptied.bytes < full.bytes / 20 + empty.bytes,
        "{full:?} {emptied:?}"
    );
}
