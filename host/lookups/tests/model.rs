//! Tables and projections against a naive model, which holds objects whole and searches through all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tollgate_config::lookup::{FieldPattern, Lookup, LookupResource};
use tollgate_lookups::{Entry, Failure, Page, Projection, Table, Writer};

/// Names of members and tokens of patterns. Some need escapes in one of the two.
const NAMES: [&str; 7] = ["a", "b", "0", "x/y", "~", "\"", "é\n"];

type Name = (String, String);

/// A change of a table.
#[derive(Clone, Debug)]
enum Change {
    Apply(Value),
    Delete(Name),
    List(Vec<Value>),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000_i32..1000).prop_map(|number| Value::from(f64::from(number) / 8.0)),
        "[a-c]?".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let member = (prop::sample::select(&NAMES[..]), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let members = members.into_iter();
                Value::from_iter(members.map(|(name, value)| (name.to_owned(), value)))
            }),
        ]
    })
}

fn name() -> impl Strategy<Value = Name> {
    ("[xy]?", "[a-e]{1,2}")
}

fn object() -> impl Strategy<Value = Value> {
    (name(), value(), value()).prop_map(|((namespace, name), spec, labels)| {
        let mut metadata = json!({ "name": name, "labels": labels });
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        json!({ "metadata": metadata, "spec": spec })
    })
}

fn pattern() -> impl Strategy<Value = FieldPattern> {
    let token = prop_oneof![
        2 => Just("*".to_owned()),
        3 => prop::sample::select(&NAMES[..]).prop_map(|name| name.replace('~', "~0").replace('/', "~1")),
    ];
    let first = prop::sample::select(vec!["spec", "metadata", "*", "metadata/labels"]);
    (first, prop::collection::vec(token, 0..4)).prop_map(|(first, tokens)| {
        let text = tokens
            .iter()
            .fold(format!("/{first}"), |text, token| format!("{text}/{token}"));
        FieldPattern::parse(&text).expect("it is a pattern")
    })
}

fn lookup() -> impl Strategy<Value = Lookup> {
    let indexes = prop::collection::btree_map("[ij]".prop_map(Box::from), pattern(), 0..3);
    (prop::collection::vec(pattern(), 0..4), indexes).prop_map(|(mut fields, indexes)| {
        fields.sort_unstable();
        fields.dedup();
        Lookup {
            fields,
            indexes,
            ..Lookup::names_of(LookupResource::new("example.com", "v1", "things"))
        }
    })
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        6 => object().prop_map(Change::Apply),
        2 => name().prop_map(Change::Delete),
        1 => prop::collection::vec(object(), 0..8).prop_map(Change::List),
    ];
    prop::collection::vec(change, 0..24)
}

fn name_of(object: &Value) -> Name {
    let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
    (text("namespace").to_owned(), text("name").to_owned())
}

fn tokens(pattern: &FieldPattern) -> Vec<String> {
    pattern.tokens().map(String::from).collect()
}

/// Reduces a value to the places that patterns lead to.
fn project(value: &Value, patterns: &[&[String]]) -> Option<Value> {
    if patterns.iter().any(|pattern| pattern.is_empty()) {
        return Some(value.clone());
    }
    let below = |name: Option<&str>| -> Vec<&[String]> {
        let leads = |pattern: &&&[String]| pattern[0] == "*" || Some(pattern[0].as_str()) == name;
        patterns
            .iter()
            .filter(leads)
            .map(|pattern| &pattern[1..])
            .collect()
    };
    match value {
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| {
                Some((name.clone(), project(value, &below(Some(name)))?))
            });
            let members: Map<String, Value> = members.collect();
            (!members.is_empty()).then(|| members.into())
        }
        Value::Array(elements) => {
            let below = below(None);
            let kept: Vec<_> = elements
                .iter()
                .map(|element| project(element, &below))
                .collect();
            let placed = kept.iter().zip(elements).map(|(kept, element)| {
                kept.clone().unwrap_or_else(|| match element {
                    Value::Object(_) => json!({}),
                    Value::Array(_) => json!([]),
                    _ => Value::Null,
                })
            });
            kept.iter().any(Option::is_some).then(|| placed.collect())
        }
        _ => None,
    }
}

/// Collects the keys at the places that a pattern leads to.
fn keys(value: &Value, pattern: &[String], keys: &mut BTreeSet<String>) {
    match (value, pattern) {
        (Value::String(text), []) => drop(keys.insert(text.clone())),
        (Value::Number(_) | Value::Bool(_), []) => drop(keys.insert(value.to_string())),
        (Value::Array(elements), [token, rest @ ..]) if token == "*" => {
            elements
                .iter()
                .for_each(|element| self::keys(element, rest, keys));
        }
        (Value::Object(members), [token, rest @ ..]) => {
            let members = members
                .iter()
                .filter(|(name, _)| token == "*" || *name == token);
            members.for_each(|(_, value)| self::keys(value, rest, keys));
        }
        _ => {}
    }
}

fn expected(lookup: &Lookup, object: &Value) -> (Name, Value) {
    let patterns: Vec<Vec<String>> = lookup.fields.iter().map(tokens).collect();
    let patterns: Vec<&[String]> = patterns.iter().map(Vec::as_slice).collect();
    let fields = project(object, &patterns).unwrap_or_else(|| json!({}));
    (name_of(object), fields)
}

fn seen(entry: &Entry) -> (Name, Value) {
    let namespace = entry.namespace.as_deref().unwrap_or_default().to_owned();
    let fields = serde_json::from_str(&entry.fields).expect("the fields are JSON");
    ((namespace, entry.name.to_string()), fields)
}

/// Reads all pages.
fn all(mut read: impl FnMut(Option<&str>) -> Result<Page, Failure>) -> Vec<(Name, Value)> {
    let mut objects = Vec::new();
    let mut after = None;
    loop {
        let page = read(after.as_deref()).expect("the table answers");
        objects.extend(page.objects.iter().map(seen));
        after = page.next;
        if after.is_none() {
            return objects;
        }
    }
}

fn carry_out(
    change: &Change,
    projection: &Projection,
    writer: &mut Writer,
    model: &mut BTreeMap<Name, Value>,
) {
    let projected = |object: &Value| {
        projection
            .decode(object.to_string().as_bytes())
            .expect("it is an object")
    };
    match change {
        Change::Apply(object) => {
            writer.apply(projected(object), "1");
            model.insert(name_of(object), object.clone());
        }
        Change::Delete(name) => {
            let namespace = Some(name.0.as_str()).filter(|namespace| !namespace.is_empty());
            writer.delete(namespace, &name.1, "1");
            model.remove(name);
        }
        Change::List(objects) => {
            writer.begin();
            objects
                .iter()
                .for_each(|object| writer.add(projected(object)));
            writer.finish("1");
            *model = objects
                .iter()
                .map(|object| (name_of(object), object.clone()))
                .collect();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn table_answers_like_a_search_through_whole_objects(lookup in lookup(), changes in changes()) {
        let projection = Projection::new(&lookup);
        let table = Arc::new(Table::new(&lookup));
        let mut writer = table.writer();
        writer.begin();
        writer.finish("0");
        let mut model = BTreeMap::new();
        for change in &changes {
            carry_out(change, &projection, &mut writer, &mut model);
            prop_assert_eq!(table.size().objects, model.len());
        }
        let whole: Vec<_> = model.values().map(|object| expected(&lookup, object)).collect();
        prop_assert_eq!(&all(|after| table.list(None, after)), &whole);
        for namespace in ["", "x", "y", "z"] {
            // As in Kubernetes, the empty name stands for all namespaces.
            let is_here = |name: &str| namespace.is_empty() || name == namespace;
            let here: Vec<_> = whole.iter().filter(|(name, _)| is_here(&name.0)).cloned().collect();
            prop_assert_eq!(&all(|after| table.list(Some(namespace), after)), &here);
        }
        for ((namespace, name), fields) in &whole {
            let found = table.get(Some(namespace), name).unwrap();
            prop_assert_eq!(&seen(&found.unwrap()).1, fields);
        }
        prop_assert_eq!(table.get(Some("x"), "unknown"), Ok(None));
        for (index, pattern) in &lookup.indexes {
            let keys_of = |object: &Value| {
                let mut found = BTreeSet::new();
                keys(object, &tokens(pattern), &mut found);
                found
            };
            let known: BTreeSet<String> = model.values().flat_map(keys_of).collect();
            for key in known.iter().map(String::as_str).chain(["", "unknown"]) {
                let with = model.values().filter(|object| keys_of(object).contains(key));
                let with: Vec<_> = with.map(|object| expected(&lookup, object)).collect();
                prop_assert_eq!(&all(|after| table.find(index, key, after)), &with, "{} {}", index, key);
            }
        }
    }
}
