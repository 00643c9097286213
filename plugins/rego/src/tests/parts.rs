//! A document in memory, read by a shape as the plugin reads one of the host.

use regorus::Value as Rego;
use serde_json::Value as Json;
use tollgate_shape::{Look, Reader, Shape};

struct Memory<'a>(&'a Json);

/// Returns the parts of a review that a shape names.
pub(super) fn read(review: &Json, shape: &Shape) -> Rego {
    let found = tollgate_shape::read(&Memory(review), &[("", shape)]);
    found
        .into_iter()
        .next()
        .flatten()
        .unwrap_or_else(Rego::new_object)
}

fn rego(value: &Json) -> Rego {
    Rego::from_json_str(&value.to_string()).unwrap()
}

impl Reader for Memory<'_> {
    type Value = Rego;

    fn look(&self, pointers: &[String]) -> Vec<Option<Look<Rego>>> {
        let values = pointers.iter().map(|pointer| self.0.pointer(pointer));
        let look = |value: Option<&Json>| {
            Some(match value? {
                Json::Array(elements) => Look::Array(elements.len()),
                Json::Object(_) => Look::Object,
                scalar => Look::Scalar(rego(scalar)),
            })
        };
        values.map(look).collect()
    }

    fn keys(&self, pointer: &str) -> Vec<String> {
        let members = self.0.pointer(pointer).and_then(Json::as_object);
        members.map_or_else(Vec::new, |members| members.keys().cloned().collect())
    }

    fn whole(&self, pointer: &str) -> Option<Rego> {
        self.0.pointer(pointer).map(rego)
    }

    fn null(&self) -> Rego {
        Rego::Null
    }

    fn list(&self, elements: Vec<Rego>) -> Rego {
        Rego::from(elements)
    }

    fn object(&self, members: Vec<(&str, Rego)>) -> Rego {
        let mut object = Rego::new_object();
        for (name, value) in members {
            object
                .as_object_mut()
                .unwrap()
                .insert(Rego::from(name), value);
        }
        object
    }
}
