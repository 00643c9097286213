//! Reads a value by its shape.

use std::borrow::Cow;

use crate::{Need, Shape};

/// What is at a place.
pub enum Look<V> {
    /// A scalar, as a whole.
    Scalar(V),
    /// An array, with the number of its elements.
    Array(usize),
    /// An object.
    Object,
}

/// The host, and the kind of values that a policy works with.
pub trait Reader {
    /// A value.
    type Value: Clone;

    /// Looks at several places, with one question to the host. None for a place where nothing is.
    fn look(&self, pointers: &[String]) -> Vec<Option<Look<Self::Value>>>;

    /// Returns the member names of the object at a place, as they are.
    fn keys(&self, pointer: &str) -> Vec<String>;

    /// Returns the whole value at a place. None where nothing is.
    fn whole(&self, pointer: &str) -> Option<Self::Value>;

    /// Makes null.
    fn null(&self) -> Self::Value;

    /// Makes a list.
    fn list(&self, elements: Vec<Self::Value>) -> Self::Value;

    /// Makes an object.
    fn object(&self, members: Vec<(&str, Self::Value)>) -> Self::Value;
}

/// The most places that one question may ask for. Beyond that, the host sends the values around them as a whole.
const MOST: usize = 512;

/// A value whose parts are not read yet.
enum Part<'s, V> {
    Ready(Option<V>),
    List(usize),
    /// The names of the object's members, and whether the object exists without them.
    Object(Vec<Cow<'s, str>>, bool),
}

/// Returns the values at several places, each with the parts that its shape names. Of other parts there is nothing, except
/// that a list has all of its elements. A place whose shape needs nothing but parts is absent if it has none of them.
pub fn read<R: Reader>(reader: &R, wanted: &[(&str, &Shape)]) -> Vec<Option<R::Value>> {
    let wanted = wanted.iter();
    level(
        reader,
        &wanted
            .map(|(pointer, shape)| ((*pointer).to_owned(), *shape))
            .collect::<Vec<_>>(),
    )
}

/// Returns the value at a place that the host has been asked about before, with the parts that its shape names.
pub fn complete<R: Reader>(
    reader: &R,
    pointer: &str,
    shape: &Shape,
    look: Look<R::Value>,
) -> Option<R::Value> {
    let wanted = [(pointer.to_owned(), shape)];
    resolved(reader, &wanted, vec![Some(look)]).pop().flatten()
}

fn level<R: Reader>(reader: &R, wanted: &[(String, &Shape)]) -> Vec<Option<R::Value>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let asked = wanted.iter().filter(|(_, shape)| asks(shape));
    let asked: Vec<String> = asked.map(|(pointer, _)| pointer.clone()).collect();
    let mut seen = match asked.is_empty() {
        true => Vec::new(),
        false => reader.look(&asked),
    }
    .into_iter();
    // A value of which only parts are read counts as an object, until one of its parts exists.
    let seen = wanted.iter().map(|(_, shape)| match asks(shape) {
        true => seen.next().flatten(),
        false => Some(Look::Object),
    });
    resolved(reader, wanted, seen.collect())
}

/// Whether the host has to be asked about a value before its parts.
fn asks(shape: &Shape) -> bool {
    shape.need != Need::Below || shape.each.is_some()
}

fn resolved<R: Reader>(
    reader: &R,
    wanted: &[(String, &Shape)],
    seen: Vec<Option<Look<R::Value>>>,
) -> Vec<Option<R::Value>> {
    let mut parts = Vec::with_capacity(wanted.len());
    let mut below: Vec<(String, &Shape)> = Vec::new();
    for ((pointer, shape), found) in wanted.iter().zip(seen) {
        parts.push(match found {
            None => Part::Ready(None),
            Some(Look::Scalar(value)) => Part::Ready(Some(value)),
            Some(_) if shape.need == Need::Whole => Part::Ready(reader.whole(pointer)),
            Some(Look::Array(length)) => match &shape.each {
                None => Part::Ready(Some(reader.list(vec![reader.null(); length]))),
                Some(_) if below.len() + length > MOST => Part::Ready(reader.whole(pointer)),
                Some(each) => {
                    let element = |index| (format!("{pointer}/{index}"), &**each);
                    below.extend((0..length).map(element));
                    Part::List(length)
                }
            },
            Some(Look::Object) => {
                let names = names(reader, pointer, shape);
                if below.len() + names.len() > MOST {
                    Part::Ready(reader.whole(pointer))
                } else {
                    for name in &names {
                        let shape = shape.member(name);
                        let shape = shape.expect("names come from the shape, or it has each");
                        below.push((format!("{pointer}/{}", escaped(name)), shape));
                    }
                    Part::Object(names, asks(shape))
                }
            }
        });
    }
    let mut below = level(reader, &below).into_iter();
    let finish = |part| match part {
        Part::Ready(value) => value,
        Part::List(length) => {
            let elements = below.by_ref().take(length);
            // Every element exists, even if nothing of it is read.
            let elements = elements.map(|value| value.unwrap_or_else(|| reader.object(Vec::new())));
            Some(reader.list(elements.collect()))
        }
        Part::Object(names, exists) => {
            let values = below.by_ref().take(names.len());
            let members = names.iter().zip(values);
            let members = members.filter_map(|(name, value)| Some((&**name, value?)));
            let members: Vec<_> = members.collect();
            (exists || !members.is_empty()).then(|| reader.object(members))
        }
    };
    parts.into_iter().map(finish).collect()
}

/// The names of the members to read.
fn names<'s, R: Reader>(reader: &R, pointer: &str, shape: &'s Shape) -> Vec<Cow<'s, str>> {
    match &shape.each {
        Some(_) => {
            let keys = reader.keys(pointer).into_iter();
            keys.map(Cow::Owned).collect()
        }
        None => {
            let names = shape.members.keys();
            names.map(|name| (&**name).into()).collect()
        }
    }
}

pub(crate) fn escaped(token: &str) -> String {
    if token.contains(['~', '/']) {
        token.replace('~', "~0").replace('/', "~1")
    } else {
        token.to_owned()
    }
}
