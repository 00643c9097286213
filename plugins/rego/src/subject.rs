//! The objects of a review: the few fields that `match` looks at, and the parts that the Rego reads as `input.review`.

use regorus::Value as Rego;
use tollgate_gatekeeper::{Constraint, Subject};
use tollgate_sdk::{Document, Review, Value};
use tollgate_shape::{Look, Reader, Shape};

/// The members of `input.review` with the Namespace of the object. The second one is older.
const NAMESPACE_MEMBERS: [&str; 2] = ["namespaceObject", "_unstable"];
const OBJECT: &str = "object";
const OLD_OBJECT: &str = "oldObject";
const OPTIONS: &str = "options";
/// The members of `input.review` that are no part of the host's document of the request.
const OTHERS: [&str; 5] = [
    OBJECT,
    OLD_OBJECT,
    OPTIONS,
    NAMESPACE_MEMBERS[0],
    NAMESPACE_MEMBERS[1],
];

/// What the plugin reads of a review.
pub(crate) struct Needs {
    /// Whether a constraint has a `match`.
    facts: bool,
    /// Whether a constraint selects by the labels of the object.
    labels: bool,
    /// Whether the Rego reads the Namespace of the object.
    pub(crate) namespace: bool,
    request: Shape,
    object: Option<Shape>,
    old_object: Option<Shape>,
    options: Option<Shape>,
}

/// The object and the old object, as far as they exist.
pub(crate) struct Subjects([Option<Subject>; 2]);

/// A document of the host.
struct Part(Document);

// === impl Needs ===

impl Needs {
    /// Finds out what constraints look at. `shape` is what the Rego reads of `input.review`.
    pub(crate) fn new<'a>(
        constraints: impl Iterator<Item = &'a Constraint> + Clone,
        shape: &Shape,
    ) -> Self {
        let shape = match shape.is_open() {
            true => Shape::whole(),
            false => shape.clone(),
        };
        let of = |name: &str| match shape.is_whole() {
            true => Some(Shape::whole()),
            false => shape.member(name).cloned(),
        };
        Self {
            facts: constraints.clone().any(|one| one.matching.needs_facts()),
            labels: constraints.clone().any(|one| one.matching.needs_labels()),
            namespace: NAMESPACE_MEMBERS
                .iter()
                .any(|name| of(name).is_some_and(|shape| !shape.is_unused())),
            object: of(OBJECT),
            old_object: of(OLD_OBJECT),
            options: of(OPTIONS),
            request: shape.without(&OTHERS),
        }
    }

    /// Returns the object and the old object. A constraint is about a review when its match selects either of them.
    pub(crate) fn subjects(&self, review: &Review) -> Subjects {
        let documents = [review.object(), review.old_object()];
        if !self.facts {
            return Subjects(documents.map(|one| one.exists().then(Subject::default)));
        }
        let request = review.request_document();
        let texts = request.get_many(["/kind/group", "/kind/kind", "/namespace"]);
        let mut texts = texts
            .into_iter()
            .map(|value| text(value).unwrap_or_default());
        let mut next = || texts.next().unwrap_or_default();
        let (group, kind, namespace) = (next(), next(), next());
        Subjects(documents.map(|document| {
            const PLACES: [&str; 4] = [
                "",
                "/metadata/namespace",
                "/metadata/name",
                "/metadata/generateName",
            ];
            let mut found = document.get_many(PLACES).into_iter();
            found.next().flatten()?;
            let texts: Vec<String> = found.map(|value| text(value).unwrap_or_default()).collect();
            let labels = match self.labels {
                true => document.read("/metadata/labels").ok().flatten(),
                false => None,
            };
            let place = |pointer: &str| PLACES.iter().position(|one| *one == pointer);
            Some(Subject::read(
                [&group, &kind],
                &namespace,
                labels,
                &|pointer| {
                    place(pointer).map_or_else(String::new, |index| texts[index - 1].clone())
                },
            ))
        }))
    }

    /// Returns what the Rego reads of `input.review`: the AdmissionRequest, with the Namespace under the names that
    /// Gatekeeper has for it.
    ///
    /// # Panics
    /// If the host's JSON is none.
    pub(crate) fn input(
        &self,
        review: &Review,
        subjects: &Subjects,
        namespace: Option<Rego>,
    ) -> Rego {
        let read = |document: Document, shape: &Option<Shape>| Part(document).read(shape.as_ref()?);
        let request = Part(review.request_document()).read(&self.request);
        let mut request = request.unwrap_or_else(Rego::new_object);
        let object = subjects.object(review);
        let members = request.as_object_mut().expect("a request is a JSON object");
        for (key, value) in [
            (OBJECT, read(object, &self.object)),
            (OLD_OBJECT, read(review.old_object(), &self.old_object)),
            (OPTIONS, read(review.options(), &self.options)),
            (NAMESPACE_MEMBERS[0], namespace.clone()),
        ] {
            members.insert(Rego::from(key), value.unwrap_or(Rego::Null));
        }
        if let Some(namespace) = namespace {
            let mut unstable = Rego::new_object();
            if let Ok(members) = unstable.as_object_mut() {
                members.insert(Rego::from("namespace"), namespace);
            }
            members.insert(Rego::from(NAMESPACE_MEMBERS[1]), unstable);
        }
        request
    }
}

// === impl Subjects ===

impl Subjects {
    /// Returns the object that the Rego reads as `object`. As in Gatekeeper, that is the object that is deleted, too.
    pub(crate) fn object(&self, review: &Review) -> Document {
        match &self.0 {
            [None, Some(_)] => review.old_object(),
            _ => review.object(),
        }
    }

    /// The objects that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subject> {
        self.0.iter().flatten()
    }
}

// === impl Part ===

impl Part {
    fn read(&self, shape: &Shape) -> Option<Rego> {
        if shape.is_unused() {
            return None;
        }
        tollgate_shape::read(self, &[("", shape)]).pop().flatten()
    }
}

impl Reader for Part {
    type Value = Rego;

    fn look(&self, pointers: &[String]) -> Vec<Option<Look<Rego>>> {
        let values = self.0.get_slice(pointers).into_iter();
        let look = |(value, pointer): (Option<Value>, &String)| {
            Some(Look::Scalar(match value? {
                Value::Array(length) => return Some(Look::Array(length as usize)),
                Value::Object(_) => return Some(Look::Object),
                Value::Null => Rego::Null,
                Value::Boolean(value) => Rego::Bool(value),
                Value::Integer(value) => Rego::from(value),
                Value::Text(text) => Rego::from(text),
                // The text has all digits.
                Value::Number(_) => return self.whole(pointer).map(Look::Scalar),
            }))
        };
        values.zip(pointers).map(look).collect()
    }

    fn keys(&self, pointer: &str) -> Vec<String> {
        self.0.keys(pointer).unwrap_or_default()
    }

    fn whole(&self, pointer: &str) -> Option<Rego> {
        let text = self.0.json(pointer)?;
        Some(Rego::from_json_str(&text).expect("the host gives valid JSON"))
    }

    fn null(&self) -> Rego {
        Rego::Null
    }

    fn list(&self, elements: Vec<Rego>) -> Rego {
        Rego::from(elements)
    }

    fn object(&self, members: Vec<(&str, Rego)>) -> Rego {
        let mut object = Rego::new_object();
        if let Ok(inner) = object.as_object_mut() {
            for (name, value) in members {
                inner.insert(Rego::from(name), value);
            }
        }
        object
    }
}

fn text(value: Option<Value>) -> Option<String> {
    value.and_then(Value::into_text)
}

/// Reads a document of the review as a whole. None if it is absent.
pub(crate) fn parse(document: Document) -> Option<Rego> {
    Part(document).whole("")
}
