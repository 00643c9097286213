//! Reads a value, and writes the parts that are kept.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::output::{Output, Scalar, write_text};
use super::{Place, Projection};

/// Reads the value at a place.
pub(super) struct ValueSeed<'p, 'o> {
    pub(super) projection: &'p Projection,
    pub(super) place: Place,
    pub(super) output: &'o mut Output,
}

/// The effect of a value on the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The value is written, whole or in part.
    Written,
    /// No part of the value is kept. In a list, this text takes its place.
    Left(&'static str),
}

/// A name of a member, borrowed if it has no escapes.
struct MemberName<'de>(Cow<'de, str>);

const OBJECT: Outcome = Outcome::Left("{}");
const LIST: Outcome = Outcome::Left("[]");
const SCALAR: Outcome = Outcome::Left("null");

// === impl ValueSeed ===

impl<'p> ValueSeed<'p, '_> {
    fn child(&mut self, place: Place) -> ValueSeed<'p, '_> {
        ValueSeed {
            projection: self.projection,
            place,
            output: self.output,
        }
    }

    fn scalar(self, value: Scalar<'_>) -> Outcome {
        self.output.take(self.projection, self.place.ended, value);
        if !self.place.keep {
            return SCALAR;
        }
        value.write(&mut self.output.text);
        Outcome::Written
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = Outcome;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Outcome, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = Outcome;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Outcome, E> {
        Ok(self.scalar(Scalar::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Outcome, E> {
        Ok(self.scalar(Scalar::Bool(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Outcome, E> {
        Ok(self.scalar(Scalar::Unsigned(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Outcome, E> {
        Ok(self.scalar(Scalar::Signed(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Outcome, E> {
        Ok(self.scalar(Scalar::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Outcome, E> {
        Ok(self.scalar(Scalar::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<Outcome, A::Error> {
        let place = self.projection.step(self.place, None);
        if place.is_skipped() {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(LIST);
        }
        let start = self.output.text.len();
        self.output.text.push('[');
        let first = self.output.text.len();
        let mut is_written = self.place.keep;
        loop {
            let before = self.output.text.len();
            if before > first {
                self.output.text.push(',');
            }
            match elements.next_element_seed(self.child(place))? {
                Some(Outcome::Written) => is_written = true,
                Some(Outcome::Left(text)) => self.output.text.push_str(text),
                None => {
                    self.output.text.truncate(before);
                    break;
                }
            }
        }
        self.output.text.push(']');
        Ok(self.ended(start, is_written, LIST))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Outcome, A::Error> {
        let start = self.output.text.len();
        self.output.text.push('{');
        let first = self.output.text.len();
        let mut is_written = self.place.keep;
        while let Some(MemberName(name)) = members.next_key()? {
            let place = self.projection.step(self.place, Some(&name));
            if place.is_skipped() {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let before = self.output.text.len();
            if before > first {
                self.output.text.push(',');
            }
            write_text(&mut self.output.text, &name);
            self.output.text.push(':');
            match members.next_value_seed(self.child(place))? {
                Outcome::Written => is_written = true,
                Outcome::Left(_) => self.output.text.truncate(before),
            }
        }
        self.output.text.push('}');
        Ok(self.ended(start, is_written, OBJECT))
    }
}

impl ValueSeed<'_, '_> {
    /// Ends a list or an object that began at `start`. If nothing of it is kept, removes the bytes that were
    /// written.
    fn ended(self, start: usize, is_written: bool, otherwise: Outcome) -> Outcome {
        if is_written {
            return Outcome::Written;
        }
        self.output.text.truncate(start);
        otherwise
    }
}

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = MemberName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(MemberName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(MemberName(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Name)
    }
}
