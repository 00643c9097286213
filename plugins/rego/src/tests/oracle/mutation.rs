//! Random changes of documents: dropped, added, renamed and copied members, wrong types, and values of neighbours.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::random::Random;

/// The values under each key in the objects of a suite.
#[derive(Default)]
pub(in crate::tests) struct Pool(BTreeMap<String, Vec<Json>>);

/// A step into a document.
#[derive(Clone)]
enum Step {
    Member(String),
    Element(usize),
}

/// Texts that templates take apart: quantities, images, hosts, versions, globs.
const TEXTS: [&str; 26] = [
    "",
    " ",
    "*",
    "*.example.com",
    "0",
    "-1",
    "1",
    "100m",
    "0.5",
    "1.5Gi",
    "1e3",
    "2E",
    "10Mi",
    "1Ki ",
    "Gi",
    "abc",
    "true",
    "null",
    "nginx",
    "docker.io/nginx:latest",
    "nginx@sha256:0123",
    "a/b:c@d",
    "[",
    "é€",
    "v1",
    "a.b.c",
];

// === impl Pool ===

impl Pool {
    /// Adds the values of a document.
    pub(in crate::tests) fn add(&mut self, document: &Json) {
        match document {
            Json::Object(members) => {
                for (key, value) in members {
                    let values = self.0.entry(key.clone()).or_default();
                    if !values.contains(value) {
                        values.push(value.clone());
                    }
                    self.add(value);
                }
            }
            Json::Array(elements) => elements.iter().for_each(|element| self.add(element)),
            _ => {}
        }
    }

    fn key(&self, random: &mut Random) -> Option<String> {
        let nth = random.below(self.0.len().max(1));
        self.0.keys().nth(nth).cloned()
    }

    fn value(&self, key: &str, random: &mut Random) -> Option<Json> {
        random.pick(self.0.get(key)?).cloned()
    }
}

/// Changes a document at one to six places.
pub(in crate::tests) fn mutate(document: &mut Json, pool: &Pool, random: &mut Random) {
    let mut changes = 1;
    while changes < 6 && random.percent(45) {
        changes += 1;
    }
    for _ in 0..changes {
        change(document, pool, random);
    }
}

fn change(document: &mut Json, pool: &Pool, random: &mut Random) {
    let mut places = Vec::new();
    collect(document, &mut Vec::new(), &mut places);
    let Some(mut steps) = random.pick(&places).cloned() else {
        *document = odd(random);
        return;
    };
    let Some(last) = steps.pop() else { return };
    let Some(parent) = steps.iter().try_fold(document, step) else {
        return;
    };
    match (parent, last) {
        (Json::Object(members), Step::Member(key)) => change_member(members, &key, pool, random),
        (Json::Array(elements), Step::Element(index)) => {
            change_element(elements, index, pool, random);
        }
        _ => {}
    }
}

fn step<'a>(value: &'a mut Json, step: &Step) -> Option<&'a mut Json> {
    match step {
        Step::Member(key) => value.get_mut(key),
        Step::Element(index) => value.get_mut(index),
    }
}

/// Collects the place of every value below the root.
fn collect(value: &Json, at: &mut Vec<Step>, into: &mut Vec<Vec<Step>>) {
    let children: Vec<(Step, &Json)> = match value {
        Json::Object(members) => members
            .iter()
            .map(|(key, member)| (Step::Member(key.clone()), member))
            .collect(),
        Json::Array(elements) => elements
            .iter()
            .enumerate()
            .map(|(index, element)| (Step::Element(index), element))
            .collect(),
        _ => return,
    };
    for (step, child) in children {
        at.push(step);
        into.push(at.clone());
        collect(child, at, into);
        at.pop();
    }
}

fn change_member(members: &mut Map<String, Json>, key: &str, pool: &Pool, random: &mut Random) {
    match random.below(10) {
        0 | 1 => {
            members.remove(key);
        }
        2 | 3 => {
            if let Some(value) = pool.value(key, random) {
                members.insert(key.to_owned(), value);
            }
        }
        4 => {
            let added = pool.key(random);
            let added = added.and_then(|key| Some((pool.value(&key, random)?, key)));
            if let Some((value, key)) = added {
                members.insert(key, value);
            }
        }
        5 => {
            if let (Some(value), Some(name)) = (members.remove(key), pool.key(random)) {
                members.insert(name, value);
            }
        }
        6 => {
            members.insert(key.to_owned(), odd(random));
        }
        _ => tweak(&mut members[key], random),
    }
}

fn change_element(elements: &mut Vec<Json>, index: usize, pool: &Pool, random: &mut Random) {
    match random.below(8) {
        0 => {
            elements.remove(index);
        }
        1 => elements.push(elements[index].clone()),
        2 => {
            let other = random.below(elements.len());
            elements.swap(index, other);
        }
        3 => elements[index] = odd(random),
        4 => {
            let key = pool.key(random);
            if let Some(value) = key.and_then(|key| pool.value(&key, random)) {
                elements.insert(index, value);
            }
        }
        _ => tweak(&mut elements[index], random),
    }
}

/// Changes a value into a similar one.
fn tweak(value: &mut Json, random: &mut Random) {
    match value {
        Json::Bool(boolean) => *boolean = !*boolean,
        Json::Number(number) => {
            let number = number.as_i64().unwrap_or(7);
            *value = match random.below(6) {
                0 => json!(0),
                1 => json!(-number),
                2 => json!(number + 1),
                3 => json!(number.wrapping_mul(1_000_003)),
                4 => json!(f64::from(i32::try_from(number).unwrap_or(3)) + 0.5),
                _ => json!(number.to_string()),
            };
        }
        Json::String(text) => {
            *value = Json::from(match random.below(7) {
                0 => (*random.pick(&TEXTS).unwrap()).to_owned(),
                1 => format!("{text}{}", random.pick(&TEXTS).unwrap()),
                2 => format!("{}{text}", random.pick(&TEXTS).unwrap()),
                3 => text.to_uppercase(),
                4 => text.chars().skip(1).collect(),
                5 => text.chars().take(text.chars().count() / 2).collect(),
                _ => text.replace(['/', '.', ':'], "-"),
            });
        }
        Json::Array(elements) => elements.clear(),
        Json::Object(members) => members.clear(),
        Json::Null => *value = odd(random),
    }
}

/// Returns a value of any type.
fn odd(random: &mut Random) -> Json {
    match random.below(12) {
        0 => Json::Null,
        1 => json!(true),
        2 => json!(false),
        3 => json!(0),
        4 => json!(-3),
        5 => json!(1_000_000_007_i64),
        6 => json!(0.25),
        7 => json!([]),
        8 => json!({}),
        9 => json!(["a", 1, null]),
        10 => json!({ "name": "x", "0": false }),
        _ => Json::from(*random.pick(&TEXTS).unwrap()),
    }
}
