//! Decides when two array elements are the same thing although they differ.

use crate::document::Json;

/// The members by which Kubernetes (`x-kubernetes-list-map-keys`, `patchMergeKey`) and its users tell elements apart.
/// The most specific come first: a volume mount has a name too, but is identified by its path.
const SCHEMES: &[&[&str]] = &[
    &["mountPath"],
    &["devicePath"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["topologyKey", "whenUnsatisfiable"],
    &["uid"],
    &["name"],
    &["key", "operator", "effect"],
    &["type"],
    &["ip"],
    &["host"],
    &["path"],
    &["id"],
];

/// The identity of an array element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::patch) struct Identity<'j> {
    scheme: usize,
    values: [Key<'j>; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key<'j> {
    None,
    Text(&'j str),
    Integer(i64),
}

/// Returns an element's identity. None if the element is not an object or has none of the members.
pub(in crate::patch) fn identity(element: &Json) -> Option<Identity<'_>> {
    let members = element.as_object()?;
    SCHEMES.iter().enumerate().find_map(|(scheme, names)| {
        let first = key(members.get(names[0])?)?;
        let mut values = [first, Key::None, Key::None];
        for (value, name) in values.iter_mut().zip(*names).skip(1) {
            *value = match members.get(*name).map(key) {
                Some(key) => key?,
                // This is the only default that an API server fills in, so the member may appear or disappear.
                None if *name == "protocol" => Key::Text("TCP"),
                None => Key::None,
            };
        }
        Some(Identity { scheme, values })
    })
}

fn key(value: &Json) -> Option<Key<'_>> {
    match value {
        Json::Text(text) => Some(Key::Text(text)),
        Json::Number(crate::document::Number::Integer(integer)) => Some(Key::Integer(*integer)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn same(left: serde_json::Value, right: serde_json::Value) -> bool {
        let (left, right) = (Json::from(left), Json::from(right));
        identity(&left).is_some() && identity(&left) == identity(&right)
    }

    #[test]
    fn identifies_elements_like_kubernetes() {
        assert!(same(
            json!({"name": "a", "image": "x"}),
            json!({"image": "y", "name": "a"})
        ));
        assert!(!same(json!({"name": "a"}), json!({"name": "b"})));
        assert!(!same(
            json!({"name": "v", "mountPath": "/a"}),
            json!({"name": "v", "mountPath": "/b"})
        ));
        assert!(same(
            json!({"containerPort": 80}),
            json!({"containerPort": 80, "protocol": "TCP", "name": "http"})
        ));
        assert!(!same(
            json!({"containerPort": 53}),
            json!({"containerPort": 53, "protocol": "UDP"})
        ));
        assert!(!same(json!({"name": {}}), json!({"name": {}})));
        assert!(!same(json!("a"), json!("a")));
    }
}
