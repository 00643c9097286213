//! Shapes, and what is read by them.

use std::cell::RefCell;

use serde_json::{Value, json};

use crate::{Look, Place, Places, Reader, Shape, read};

/// A document in memory, which notes the questions.
struct Memory {
    document: Value,
    asked: RefCell<Vec<String>>,
}

impl Reader for Memory {
    type Value = Value;

    fn look(&self, pointers: &[String]) -> Vec<Option<Look<Value>>> {
        self.asked.borrow_mut().push(pointers.join(" "));
        let values = pointers.iter().map(|at| self.document.pointer(at));
        let look = |value: Option<&Value>| {
            Some(match value? {
                Value::Array(elements) => Look::Array(elements.len()),
                Value::Object(_) => Look::Object,
                scalar => Look::Scalar(scalar.clone()),
            })
        };
        values.map(look).collect()
    }

    fn keys(&self, pointer: &str) -> Vec<String> {
        self.asked.borrow_mut().push(format!("keys {pointer}"));
        let members = self.document.pointer(pointer).and_then(Value::as_object);
        members.map_or_else(Vec::new, |members| members.keys().cloned().collect())
    }

    fn whole(&self, pointer: &str) -> Option<Value> {
        self.asked.borrow_mut().push(format!("whole {pointer}"));
        self.document.pointer(pointer).cloned()
    }

    fn null(&self) -> Value {
        Value::Null
    }

    fn list(&self, elements: Vec<Value>) -> Value {
        Value::Array(elements)
    }

    fn object(&self, members: Vec<(&str, Value)>) -> Value {
        let members = members.into_iter();
        members
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

fn pod() -> Value {
    json!({
        "metadata": { "name": "web", "labels": { "a/b": "1", "c": "2" } },
        "spec": {
            "containers": [
                { "image": "one", "name": "a", "ports": [{ "containerPort": 80, "name": "http" }] },
                { "name": "b", "resources": { "limits": { "cpu": "1" } } },
                "no object",
            ],
        },
    })
}

/// Reads the pod by a shape. Returns the value and the questions.
fn answered(build: impl Fn(&mut Places, Place)) -> (Option<Value>, Vec<String>) {
    let mut places = Places::new();
    let root = places.root();
    build(&mut places, root);
    let memory = Memory {
        document: pod(),
        asked: RefCell::default(),
    };
    let shape = places.shape(root);
    let value = read(&memory, &[("", &shape)]).pop().flatten();
    (value, memory.asked.into_inner())
}

fn member(places: &mut Places, at: Place, names: &[&str]) -> Place {
    names.iter().fold(at, |at, name| places.member(at, name))
}

#[test]
fn one_question_reads_members_of_different_places() {
    let (value, asked) = answered(|places, root| {
        for names in [
            ["metadata", "name"],
            ["metadata", "uid"],
            ["spec", "nodeName"],
        ] {
            let at = member(places, root, &names);
            places.take(at);
        }
    });
    assert_eq!(value, Some(json!({ "metadata": { "name": "web" } })));
    assert_eq!(asked, ["/metadata/name /metadata/uid /spec/nodeName"]);
}

#[test]
fn lists_keep_all_elements_and_the_types_that_matter() {
    let (value, asked) = answered(|places, root| {
        let containers = member(places, root, &["spec", "containers"]);
        let each = places.each(containers);
        places.look(each);
        let image = places.member(each, "image");
        places.take(image);
    });
    let containers = json!([{ "image": "one" }, {}, "no object"]);
    assert_eq!(value, Some(json!({ "spec": { "containers": containers } })));
    assert_eq!(
        asked,
        [
            "/spec/containers",
            "/spec/containers/0/image /spec/containers/1/image /spec/containers/2/image",
            "/spec/containers/1 /spec/containers/2",
        ]
    );
}

#[test]
fn elements_are_not_asked_about_where_only_their_parts_matter() {
    let (value, asked) = answered(|places, root| {
        let containers = member(places, root, &["spec", "containers"]);
        let each = places.each(containers);
        let image = places.member(each, "image");
        places.take(image);
    });
    let containers = json!([{ "image": "one" }, {}, {}]);
    assert_eq!(value, Some(json!({ "spec": { "containers": containers } })));
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[test]
fn members_exist_where_only_their_names_or_parts_matter() {
    let labels = json!({ "a/b": {}, "c": {} });
    let expected = json!({ "metadata": { "labels": labels } });
    for part in [None, Some("absent")] {
        let (value, _) = answered(|places, root| {
            let labels = member(places, root, &["metadata", "labels"]);
            let each = places.each(labels);
            if let Some(part) = part {
                let part = places.member(each, part);
                places.take(part);
            }
        });
        assert_eq!(value, Some(expected.clone()), "{part:?}");
    }
}

#[test]
fn computed_names_read_every_member() {
    let (value, asked) = answered(|places, root| {
        let labels = member(places, root, &["metadata", "labels"]);
        let each = places.each(labels);
        places.take(each);
    });
    let labels = json!({ "a/b": "1", "c": "2" });
    assert_eq!(value, Some(json!({ "metadata": { "labels": labels } })));
    assert_eq!(
        asked,
        [
            "/metadata/labels",
            "keys /metadata/labels",
            "/metadata/labels/a~1b /metadata/labels/c"
        ]
    );
}

#[test]
fn whole_values_come_as_they_are() {
    let (value, asked) = answered(|places, root| {
        let ports = member(places, root, &["spec", "containers"]);
        places.take(ports);
        // Whatever else is read below a whole value comes with it.
        let each = places.each(ports);
        places.look(each);
    });
    assert_eq!(
        value.unwrap()["spec"]["containers"],
        pod()["spec"]["containers"]
    );
    assert_eq!(asked, ["/spec/containers", "whole /spec/containers"]);
}

#[test]
fn absent_values_are_absent() {
    let (value, _) = answered(|places, root| {
        let at = member(places, root, &["status", "phase"]);
        places.take(at);
    });
    assert_eq!(value, None);
    let (value, _) = answered(|places, root| {
        places.look(root);
        let at = member(places, root, &["status", "phase"]);
        places.take(at);
    });
    assert_eq!(value, Some(json!({})));
}

#[test]
fn object_without_the_members_that_matter_exists() {
    let (value, asked) = answered(|places, root| {
        for names in [&["spec"][..], &["spec", "containers"], &["metadata"]] {
            let at = member(places, root, names);
            places.look(at);
        }
        for names in [["spec", "nodeName"], ["metadata", "name"]] {
            let at = member(places, root, &names);
            places.take(at);
        }
        // Nothing of what is read of the labels is there. They are, and so is what they are in.
        for names in [&["metadata", "labels"][..], &["metadata", "labels", "x"]] {
            let at = member(places, root, names);
            places.look(at);
        }
        let deep = member(places, root, &["status", "a"]);
        places.look(deep);
        let deep = member(places, root, &["status"]);
        places.look(deep);
    });
    let containers = json!([null, null, null]);
    assert_eq!(
        value,
        Some(
            json!({ "metadata": { "name": "web", "labels": {} }, "spec": { "containers": containers } })
        )
    );
    assert_eq!(asked[1..], ["/metadata/labels /status"]);
}

#[test]
fn object_in_an_object_exists_without_their_members() {
    let mut places = Places::new();
    let root = places.root();
    for names in [&["spec"][..], &["spec", "first"]] {
        let at = member(&mut places, root, names);
        places.look(at);
    }
    let image = member(&mut places, root, &["spec", "first", "image"]);
    places.take(image);
    let each = member(&mut places, root, &["labels"]);
    let each = places.each(each);
    let x = places.member(each, "x");
    places.look(x);
    let memory = Memory {
        document: json!({ "spec": { "first": {}, "other": 1 }, "labels": { "a": "1" } }),
        asked: RefCell::default(),
    };
    let shape = places.shape(root);
    let value = read(&memory, &[("", &shape)]).pop().flatten();
    // Every member of the labels exists, even if nothing of it is read.
    assert_eq!(
        value,
        Some(json!({ "spec": { "first": {} }, "labels": { "a": {} } }))
    );
}

#[test]
fn values_that_were_looked_at_are_completed() {
    let mut places = Places::new();
    let root = places.root();
    places.look(root);
    let labels = places.member(root, "labels");
    let each = places.each(labels);
    places.take(each);
    let name = places.member(root, "name");
    places.take(name);
    let shape = places.shape(root);
    let memory = Memory {
        document: pod(),
        asked: RefCell::default(),
    };
    let value = crate::complete(&memory, "/metadata", &shape, Look::Object);
    assert_eq!(value, Some(pod()["metadata"].clone()));
    assert_eq!(memory.asked.borrow()[0], "/metadata/labels /metadata/name");
    let value = crate::complete(&memory, "/metadata", &shape, Look::Scalar(json!(1)));
    assert_eq!(value, Some(json!(1)));
    let value = crate::complete(&memory, "/spec/containers", &shape, Look::Array(3));
    assert_eq!(value, Some(json!([null, null, null])));
}

#[test]
fn long_lists_come_as_a_whole() {
    let mut places = Places::new();
    let root = places.root();
    let each = places.each(root);
    let name = places.member(each, "name");
    places.take(name);
    let long = vec![json!({ "name": "a", "value": "b" }); 600];
    let memory = Memory {
        document: json!(long),
        asked: RefCell::default(),
    };
    let shape = places.shape(root);
    let value = read(&memory, &[("", &shape)]).pop().flatten();
    assert_eq!(value, Some(json!(long)));
    assert_eq!(*memory.asked.borrow(), ["", "whole "]);
}

#[test]
fn names_of_digits_lead_to_no_element() {
    let (value, asked) = answered(|places, root| {
        let at = member(places, root, &["spec", "containers", "0", "image"]);
        places.take(at);
    });
    let nothing = json!([null, null, null]);
    assert_eq!(value, Some(json!({ "spec": { "containers": nothing } })));
    assert_eq!(asked, ["/spec/containers /spec/containers/0/image"]);
}

#[test]
fn endless_references_end_in_the_whole_value() {
    let mut places = Places::new();
    let root = places.root();
    let mut at = root;
    for _ in 0..1_000 {
        at = places.member(at, "next");
    }
    let patterns = format!("{:?}", places.shape(root));
    assert_eq!(patterns, format!("[{:?}]", "/next".repeat(24)));
    assert!(Shape::whole().is_whole());
}

#[test]
fn document_with_too_many_places_is_read_as_a_whole() {
    let mut places = Places::new();
    let (root, other) = (places.root(), places.root());
    let name = places.member(other, "name");
    for index in 0..10_000 {
        let at = places.member(root, &format!("x{index}"));
        let at = places.member(at, "y");
        places.look(at);
    }
    assert!(places.shape(root).is_whole());
    places.take(name);
    assert_eq!(format!("{:?}", places.shape(other)), "[\"/name\"]");
}
