//! Reduces objects to what a lookup keeps, while their JSON is read.
//!
//! The text of the kept fields is written as the object is read. Everything else is skipped, and takes no memory.

mod output;
mod value;

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _};
use tollgate_config::lookup::{FieldPattern, Lookup};

use output::Output;
use value::ValueSeed;

/// The members of objects that a lookup keeps.
#[derive(Clone, Debug)]
pub struct Projection {
    rules: Vec<Rule>,
}

/// One object after projection.
#[derive(Clone, PartialEq, Eq)]
pub struct Projected {
    namespace: Option<String>,
    name: String,
    resource_version: Option<String>,
    fields: String,
    keys: Vec<(u8, String)>,
}

/// Why an object could not be read. The text has no value of the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON, or is nested too deeply.
    #[error("the object is not JSON, from column {column} of line {line} on")]
    Syntax {
        /// The line, from 1 on.
        line: usize,
        /// The column, from 1 on.
        column: usize,
    },
    /// The value is not an object with a name.
    #[error("expected {EXPECTED}")]
    NotAnObject,
}

/// A pattern, and what happens to the values that it leads to.
#[derive(Clone, Debug)]
struct Rule {
    tokens: Box<[Box<str>]>,
    effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The value is kept, with everything in it.
    Keep,
    /// A text, number or boolean is a key of this index.
    Key(u8),
    Name,
    Namespace,
    ResourceVersion,
}

/// Rules whose tokens have led to a place so far, as bits. A lookup has at most 64 fields and 8 indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Active(u128);

/// A place in an object, as far as the rules are concerned.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The rules that lead further.
    active: Active,
    /// The rules that end here, without [`Effect::Keep`].
    ended: Active,
    /// Whether the value is kept, with everything in it.
    keep: bool,
    /// The number of tokens that led here.
    depth: usize,
}

const EXPECTED: &str = "an object with `metadata.name`";

// === impl Projection ===

impl Projection {
    /// Creates the projection of a lookup.
    #[must_use]
    pub fn new(lookup: &Lookup) -> Self {
        let identity = [
            ("name", Effect::Name),
            ("namespace", Effect::Namespace),
            ("resourceVersion", Effect::ResourceVersion),
        ];
        let identity = identity.into_iter().map(|(member, effect)| Rule {
            tokens: [Box::from("metadata"), Box::from(member)].into(),
            effect,
        });
        let fields = lookup.fields.iter();
        let fields = fields.map(|field| Rule::new(field, Effect::Keep));
        // The numbers are those of `Table`: the indexes in the order of their names.
        let indexes = (0..).zip(lookup.indexes.values());
        let indexes = indexes.map(|(number, keys)| Rule::new(keys, Effect::Key(number)));
        Self {
            rules: identity.chain(indexes).chain(fields).take(128).collect(),
        }
    }

    /// Decodes one object's JSON and keeps only what the lookup names.
    ///
    /// # Errors
    /// When the text is not JSON, or not an object with `metadata.name`.
    pub fn decode(&self, json: &[u8]) -> Result<Projected, DecodeError> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let object = self.seed().deserialize(&mut deserializer);
        let object = object.and_then(|object| deserializer.end().map(|()| object));
        object.map_err(|error| match error.is_data() {
            true => DecodeError::NotAnObject,
            false => DecodeError::Syntax {
                line: error.line(),
                column: error.column(),
            },
        })
    }

    /// Returns a seed that decodes one object, so that a list is projected while it is read.
    ///
    /// The seed fails for a value that is not an object with `metadata.name`.
    #[must_use]
    pub fn seed(&self) -> ProjectionSeed<'_> {
        ProjectionSeed(self)
    }

    /// The place of a whole object.
    fn root(&self) -> Place {
        let all = u128::MAX >> (u128::BITS as usize - self.rules.len());
        Place {
            active: Active(all),
            ..Place::default()
        }
    }

    /// The place of a member, or of an element if there is no name.
    fn step(&self, from: Place, member: Option<&str>) -> Place {
        let mut to = Place {
            keep: from.keep,
            depth: from.depth + 1,
            ..Place::default()
        };
        for number in from.active.numbers() {
            let rule = &self.rules[number];
            let token = &*rule.tokens[from.depth];
            if token != "*" && member != Some(token) {
                continue;
            }
            if rule.tokens.len() > to.depth {
                to.active.insert(number);
            } else if rule.effect == Effect::Keep {
                to.keep = true;
            } else {
                to.ended.insert(number);
            }
        }
        to
    }
}

/// Decodes one object. See [`Projection::seed`].
#[derive(Clone, Copy, Debug)]
pub struct ProjectionSeed<'p>(&'p Projection);

impl<'de> DeserializeSeed<'de> for ProjectionSeed<'_> {
    type Value = Projected;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Projected, D::Error> {
        let mut output = Output::default();
        let seed = ValueSeed {
            projection: self.0,
            place: self.0.root(),
            output: &mut output,
        };
        seed.deserialize(deserializer)?;
        output
            .finish()
            .ok_or_else(|| D::Error::custom(format_args!("expected {EXPECTED}")))
    }
}

// === impl Rule ===

impl Rule {
    fn new(pattern: &FieldPattern, effect: Effect) -> Self {
        Self {
            tokens: pattern
                .tokens()
                .map(Cow::into_owned)
                .map(Box::from)
                .collect(),
            effect,
        }
    }
}

// === impl Active ===

impl Active {
    fn insert(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn numbers(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (number < u128::BITS as usize).then_some(number)
        })
    }
}

// === impl Place ===

impl Place {
    /// Whether nothing at this place or below it is of interest.
    fn is_skipped(self) -> bool {
        !self.keep && self.active.is_empty() && self.ended.is_empty()
    }
}

// === impl Projected ===

impl Projected {
    /// The namespace. None for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the object, if it has one.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.resource_version.as_deref()
    }

    /// The kept fields as JSON.
    #[must_use]
    pub fn fields(&self) -> &str {
        &self.fields
    }

    /// The distinct keys in the indexes, by the indexes' numbers.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (u8, &str)> {
        self.keys.iter().map(|(index, key)| (*index, key.as_str()))
    }
}

/// Shows the name, and the size of the fields. The fields may be a Secret's.
impl fmt::Debug for Projected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let (name, bytes) = (&self.name, self.fields.len());
        write!(f, "Projected({namespace}/{name}, {bytes} bytes)")
    }
}

#[cfg(test)]
mod tests;
