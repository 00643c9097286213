//! The lookups of a test review: objects that the test gives, by the host's rules.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::host::read;
use crate::bindings::cluster::tollgate::admission::cluster::{Failure, Object, Page};
use crate::tree;

/// The most objects on one page, as in the host.
const PAGE: usize = 500;

/// The lookups by name. None for one that is not synchronised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookups(BTreeMap<String, Option<Lookup>>);

#[derive(Clone, Debug)]
struct Lookup {
    namespaces: Option<Vec<String>>,
    /// The tokens of each pattern, by the index's name.
    indexes: BTreeMap<String, Vec<String>>,
    /// The objects by namespace and name.
    objects: BTreeMap<(Option<String>, String), Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    whole: Json,
    kept: Json,
}

/// The keys of a lookup in the configuration.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Configured {
    name: String,
    #[serde(default)]
    namespaces: Option<Json>,
    #[serde(default)]
    fields: Vec<String>,
    #[serde(default)]
    indexes: BTreeMap<String, String>,
    #[serde(default, rename = "resource")]
    _resource: Json,
    #[serde(default, rename = "labelSelector")]
    _label_selector: Json,
    #[serde(default, rename = "secrets")]
    _secrets: bool,
}

pub(crate) fn get(
    lookup: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Object>, Failure> {
    in_lookup(lookup, |found| {
        found.cover(lookup, Some(namespace.unwrap_or_default()))?;
        let key = (namespace.map(str::to_owned), name.to_owned());
        Ok(found.objects.get_key_value(&key).map(shown))
    })
}

pub(crate) fn find(
    lookup: &str,
    index: &str,
    key: &str,
    after: Option<&str>,
) -> Result<Page, Failure> {
    in_lookup(lookup, |found| {
        let pattern = found.indexes.get(index).ok_or_else(|| {
            Failure::NotGranted(format!("the lookup `{lookup}` has no index `{index}`"))
        })?;
        let has_key = |entry: &Entry| {
            tree::select(&entry.whole, pattern)
                .iter()
                .any(|node| text(&node.value).as_deref() == Some(key))
        };
        Ok(page(
            found.objects.iter().filter(|(_, entry)| has_key(entry)),
            after,
        ))
    })
}

pub(crate) fn list(
    lookup: &str,
    namespace: Option<&str>,
    after: Option<&str>,
) -> Result<Page, Failure> {
    in_lookup(lookup, |found| {
        found.cover(lookup, namespace)?;
        let is_listed = |of: &Option<String>| namespace.is_none() || of.as_deref() == namespace;
        Ok(page(
            found.objects.iter().filter(|((of, _), _)| is_listed(of)),
            after,
        ))
    })
}

fn in_lookup<T>(
    name: &str,
    answer: impl FnOnce(&Lookup) -> Result<T, Failure>,
) -> Result<T, Failure> {
    read(|review| match review.lookups.0.get(name) {
        Some(Some(lookup)) => answer(lookup),
        Some(None) => Err(Failure::NotSynchronised(format!("the lookup `{name}`"))),
        None => Err(Failure::NotGranted(format!(
            "there is no lookup `{name}`; a test adds it: TestReview::lookup"
        ))),
    })
}

/// Returns the page after `after`, which is the position of its first object.
fn page<'l>(
    entries: impl Iterator<Item = (&'l (Option<String>, String), &'l Entry)>,
    after: Option<&str>,
) -> Page {
    let begin: usize = after.map_or(0, |after| {
        after
            .parse()
            .expect("`after` is the `next` of the page before")
    });
    let mut rest = entries.skip(begin);
    let objects: Vec<Object> = rest.by_ref().take(PAGE).map(shown).collect();
    let next = rest.next().map(|_| (begin + PAGE).to_string());
    Page { objects, next }
}

fn shown(((namespace, name), entry): (&(Option<String>, String), &Entry)) -> Object {
    Object {
        namespace: namespace.clone(),
        name: name.clone(),
        fields: entry.kept.to_string(),
    }
}

/// Returns the key of a value in an index.
fn text(value: &crate::Value) -> Option<String> {
    match value {
        crate::Value::Text(text) => Some(text.clone()),
        crate::Value::Integer(integer) => Some(integer.to_string()),
        crate::Value::Number(number) => Some(number.to_string()),
        crate::Value::Boolean(boolean) => Some(boolean.to_string()),
        _ => None,
    }
}

/// Returns the part of a value that the patterns keep. None if they keep nothing of it. The elements of a list keep
/// their places: an element of which nothing is kept becomes `{}`, `[]` or null.
fn keep(value: &Json, patterns: &[&[String]]) -> Option<Json> {
    if patterns.iter().any(|pattern| pattern.is_empty()) {
        return Some(value.clone());
    }
    let below = |name: Option<&str>| -> Vec<&[String]> {
        patterns
            .iter()
            .filter_map(|pattern| pattern.split_first())
            .filter(|(first, _)| *first == "*" || Some(first.as_str()) == name)
            .map(|(_, rest)| rest)
            .collect()
    };
    match value {
        Json::Object(members) => {
            let kept: Map<String, Json> = members
                .iter()
                .filter_map(|(name, member)| {
                    Some((name.clone(), keep(member, &below(Some(name)))?))
                })
                .collect();
            (!kept.is_empty()).then_some(Json::Object(kept))
        }
        Json::Array(elements) => {
            let patterns = below(None);
            let kept: Vec<Option<Json>> = elements
                .iter()
                .map(|element| keep(element, &patterns))
                .collect();
            let whole = elements.iter().zip(&kept);
            kept.iter().any(Option::is_some).then(|| {
                whole
                    .map(|(element, kept)| kept.clone().unwrap_or_else(|| nothing_of(element)))
                    .collect()
            })
        }
        _ => None,
    }
}

/// Returns what holds the place of an element of which nothing is kept.
fn nothing_of(element: &Json) -> Json {
    match element {
        Json::Object(_) => Map::new().into(),
        Json::Array(_) => Vec::<Json>::new().into(),
        _ => Json::Null,
    }
}

// === impl Lookups ===

impl Lookups {
    pub(super) fn add(&mut self, lookup: Json, objects: impl IntoIterator<Item = Json>) {
        let configured: Configured = serde_json::from_value(lookup)
            .unwrap_or_else(|error| panic!("the test's lookup is malformed: {error}"));
        let fields: Vec<Vec<String>> = configured
            .fields
            .iter()
            .map(|at| tree::tokens(at))
            .collect();
        let fields: Vec<&[String]> = fields.iter().map(Vec::as_slice).collect();
        let entry = |whole: Json| {
            let text = |at: &str| whole.pointer(at).and_then(Json::as_str).map(str::to_owned);
            let name = text("/metadata/name").expect("an object of a lookup has a name");
            let kept = keep(&whole, &fields).unwrap_or_else(|| Map::new().into());
            ((text("/metadata/namespace"), name), Entry { whole, kept })
        };
        let lookup = Lookup {
            // The word `all` is the default.
            namespaces: configured
                .namespaces
                .and_then(|namespaces| serde_json::from_value(namespaces).ok()),
            indexes: configured
                .indexes
                .iter()
                .map(|(name, pattern)| (name.clone(), tree::tokens(pattern)))
                .collect(),
            objects: objects.into_iter().map(entry).collect(),
        };
        self.0.insert(configured.name, Some(lookup));
    }

    pub(super) fn add_not_synchronised(&mut self, name: &str) {
        self.0.insert(name.to_owned(), None);
    }
}

// === impl Lookup ===

impl Lookup {
    fn cover(&self, name: &str, namespace: Option<&str>) -> Result<(), Failure> {
        let (Some(covered), Some(namespace)) = (&self.namespaces, namespace) else {
            return Ok(());
        };
        if covered.iter().any(|one| one == namespace) {
            return Ok(());
        }
        Err(Failure::NotGranted(format!(
            "the lookup `{name}` does not cover the namespace `{namespace}`"
        )))
    }
}
