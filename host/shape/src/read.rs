//! Reads a value by its shape.

use std::borrow::Cow;

use crate::{Need, Shape, is_index};

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

/// A place with its members, whose names the shape has. One question asks about all of them.
struct Asked<'s> {
    shape: &'s Shape,
    pointer: Pointer,
    members: Vec<(&'s str, Asked<'s>)>,
}

/// The pointer of a place.
enum Pointer {
    /// The question asks about it. This is its number, and that of the answer.
    Asked(usize),
    /// The place is only the way to its members.
    Way(String),
}

/// A value whose elements are not read yet.
enum Part<'s, V> {
    Ready(Option<V>),
    /// A place of which no member was there, which is asked about again.
    Again,
    List(usize),
    /// An object, all of whose members are read.
    Members(Vec<String>),
    /// The object's members, and whether it exists without them.
    Object(Vec<(&'s str, Part<'s, V>)>, bool),
}

/// Elements and members whose number the first answer has told, and places that are asked about again.
type Below<'s> = Vec<(String, &'s Shape, Which)>;

/// Which places of a shape a question is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that tell about the others: whatever has a member is an object.
    Telling,
    /// The others, after none of their members was there.
    Others,
}

/// Returns the values at several places, each with the parts that its shape names. Other parts are left out. A list has all of
/// its elements, and an object whose members are read by computed names has all of its members. A place whose shape needs
/// nothing but parts is absent if it has none of them.
pub fn read<R: Reader>(reader: &R, wanted: &[(&str, &Shape)]) -> Vec<Option<R::Value>> {
    let wanted = wanted.iter();
    let wanted: Below<'_> = wanted
        .map(|(pointer, shape)| ((*pointer).to_owned(), *shape, Which::Telling))
        .collect();
    level(reader, wanted)
}

/// Returns the value at a place that the host has been asked about before, with the parts that its shape names.
pub fn complete<R: Reader>(
    reader: &R,
    pointer: &str,
    shape: &Shape,
    look: Look<R::Value>,
) -> Option<R::Value> {
    // The first answer is known.
    let mut pointers = vec![pointer.to_owned()];
    let asked = Asked::at(Pointer::Asked(0), shape, Which::Telling, &mut pointers);
    let mut answers = vec![Some(look)];
    if matches!(answers[0], Some(Look::Object)) && pointers.len() > 1 {
        answers.extend(reader.look(&pointers[1..]));
    } else {
        answers.resize_with(pointers.len(), || None);
    }
    let mut below = Vec::new();
    let part = asked.part(reader, &pointers, &mut answers, &mut below);
    let mut below = level(reader, below).into_iter();
    part.finished(reader, &mut below)
}

fn level<R: Reader>(reader: &R, wanted: Below<'_>) -> Vec<Option<R::Value>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut pointers = Vec::with_capacity(wanted.len());
    let asked: Vec<Asked<'_>> = wanted
        .into_iter()
        .map(|(pointer, shape, which)| Asked::new(pointer, shape, which, &mut pointers))
        .collect();
    let mut answers = match pointers.is_empty() {
        true => Vec::new(),
        false => reader.look(&pointers),
    };
    let mut below = Vec::new();
    let parts: Vec<Part<'_, R::Value>> = asked
        .iter()
        .map(|one| one.part(reader, &pointers, &mut answers, &mut below))
        .collect();
    let mut below = level(reader, below).into_iter();
    let parts = parts.into_iter();
    parts
        .map(|part| part.finished(reader, &mut below))
        .collect()
}

// === impl Asked ===

impl<'s> Asked<'s> {
    fn new(pointer: String, shape: &'s Shape, which: Which, pointers: &mut Vec<String>) -> Self {
        let asks = match which {
            Which::Telling => tells_itself(shape),
            Which::Others => shape.need == Need::Kind,
        };
        let pointer = match asks {
            true => {
                pointers.push(pointer);
                Pointer::Asked(pointers.len() - 1)
            }
            false => Pointer::Way(pointer),
        };
        Self::at(pointer, shape, which, pointers)
    }

    /// Adds the pointers of the members.
    fn at(pointer: Pointer, shape: &'s Shape, which: Which, pointers: &mut Vec<String>) -> Self {
        let mut members = Vec::new();
        if shape.each.is_none() {
            members.reserve_exact(shape.members.len());
            for (name, shape) in &shape.members {
                // What has been asked about before is not there.
                if which == Which::Others && tells_itself(shape) {
                    continue;
                }
                let pointer = joined(pointer.text(pointers), &escaped(name));
                members.push((&**name, Self::new(pointer, shape, which, pointers)));
            }
        }
        Self {
            shape,
            pointer,
            members,
        }
    }

    /// Whether one of the members exists.
    fn has_any<V>(&self, answers: &[Option<Look<V>>]) -> bool {
        self.members.iter().any(|(_, member)| match member.pointer {
            Pointer::Asked(answer) => answers.get(answer).is_some_and(Option::is_some),
            Pointer::Way(_) => member.has_any(answers),
        })
    }

    fn part<R: Reader>(
        &self,
        reader: &R,
        pointers: &[String],
        answers: &mut [Option<Look<R::Value>>],
        below: &mut Below<'s>,
    ) -> Part<'s, R::Value> {
        let shape = self.shape;
        let look = match &self.pointer {
            Pointer::Asked(answer) => answers.get_mut(*answer).and_then(Option::take),
            Pointer::Way(pointer) if shape.need == Need::Kind && !self.has_any(answers) => {
                below.push((pointer.clone(), shape, Which::Others));
                return Part::Again;
            }
            Pointer::Way(_) => Some(Look::Object),
        };
        let pointer = self.pointer.text(pointers);
        match look {
            None => Part::Ready(None),
            Some(Look::Scalar(value)) => Part::Ready(Some(value)),
            Some(_) if shape.need == Need::Whole => Part::Ready(reader.whole(pointer)),
            Some(Look::Array(length)) => match &shape.each {
                None => Part::Ready(Some(reader.list(vec![reader.null(); length]))),
                Some(_) if below.len() + length > MOST => Part::Ready(reader.whole(pointer)),
                Some(each) => {
                    below.reserve(length);
                    for index in 0..length {
                        below.push((element(pointer, index), &**each, Which::Telling));
                    }
                    Part::List(length)
                }
            },
            Some(Look::Object) => match &shape.each {
                None => {
                    let members = self.members.iter();
                    let members = members
                        .map(|(name, member)| {
                            (*name, member.part(reader, pointers, answers, below))
                        })
                        .collect();
                    let is_asked = matches!(self.pointer, Pointer::Asked(_));
                    let exists = is_asked || shape.need == Need::Kind;
                    Part::Object(members, exists)
                }
                Some(each) => {
                    let names = reader.keys(pointer);
                    if below.len() + names.len() > MOST {
                        return Part::Ready(reader.whole(pointer));
                    }
                    for name in &names {
                        let shape = shape.members.get(name).unwrap_or(each);
                        let pointer = joined(pointer, &escaped(name));
                        below.push((pointer, shape, Which::Telling));
                    }
                    Part::Members(names)
                }
            },
        }
    }
}

// === impl Pointer ===

impl Pointer {
    fn text<'p>(&'p self, pointers: &'p [String]) -> &'p str {
        match self {
            Self::Asked(number) => &pointers[*number],
            Self::Way(pointer) => pointer,
        }
    }
}

// === impl Part ===

impl<V: Clone> Part<'_, V> {
    fn finished<R: Reader<Value = V>>(
        self,
        reader: &R,
        below: &mut impl Iterator<Item = Option<V>>,
    ) -> Option<V> {
        match self {
            Self::Ready(value) => value,
            Self::Again => below.next().flatten(),
            Self::List(length) => {
                let elements = below.by_ref().take(length);
                // Every element exists, even if nothing of it is read.
                let elements =
                    elements.map(|value| value.unwrap_or_else(|| reader.object(Vec::new())));
                Some(reader.list(elements.collect()))
            }
            Self::Members(names) => {
                let values = below.by_ref().take(names.len());
                // Every member exists, too.
                let values = values.map(|value| value.unwrap_or_else(|| reader.object(Vec::new())));
                let members = names.iter().map(|name| &**name).zip(values);
                Some(reader.object(members.collect()))
            }
            Self::Object(members, exists) => {
                let mut found = Vec::with_capacity(members.len());
                for (name, member) in members {
                    found.extend(member.finished(reader, below).map(|value| (name, value)));
                }
                (exists || !found.is_empty()).then(|| reader.object(found))
            }
        }
    }
}

/// Whether a place is asked about, and not only its members.
fn tells_itself(shape: &Shape) -> bool {
    let has_members = shape.need == Need::Kind
        && !shape.members.is_empty()
        && !shape.members.keys().any(|name| is_index(name));
    shape.each.is_some() || shape.need != Need::Below && !has_members
}

fn joined(pointer: &str, token: &str) -> String {
    let mut joined = String::with_capacity(pointer.len() + 1 + token.len());
    joined.push_str(pointer);
    joined.push('/');
    joined.push_str(token);
    joined
}

/// Returns the pointer of an element. A policy reads many of them, so the number is written without the formatter.
fn element(pointer: &str, index: usize) -> String {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = index;
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let digits = str::from_utf8(&digits[first..]);
    joined(pointer, digits.expect("digits are ASCII"))
}

pub(crate) fn escaped(token: &str) -> Cow<'_, str> {
    match token.contains(['~', '/']) {
        true => token.replace('~', "~0").replace('/', "~1").into(),
        false => token.into(),
    }
}
