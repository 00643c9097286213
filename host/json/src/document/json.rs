//! The JSON value type.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;

use super::Level;

/// One JSON value. Cloning it copies no content.
///
/// Equality is exact: `1` and `1.0` differ. The order of members does not matter. For RFC 6902's numeric equality,
/// see [`Json::equivalent`].
#[derive(Clone)]
pub enum Json {
    /// The value `null`.
    Null,
    /// The value `true` or `false`.
    Bool(bool),
    /// A number, with the digits that it was written with.
    Number(Number),
    /// A string.
    Text(Arc<str>),
    /// An array.
    Array(Arc<Level<Vec<Json>>>),
    /// An object.
    Object(Arc<Level<Object>>),
}

/// A number with its exact text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Number {
    /// An integer whose text is the canonical text of this value.
    Integer(i64),
    /// Any other number, as written.
    Text(Arc<str>),
}

/// The members of a JSON object, in document order.
///
/// The hasher is seeded per process, because the names come from any user who may write to the cluster.
pub type Object = IndexMap<Arc<str>, Json, foldhash::fast::RandomState>;

/// Returns a safe capacity for a container whose size was claimed by somebody else: 1024 at most.
#[must_use]
pub fn sensible_capacity(claimed: usize) -> usize {
    claimed.min(1024)
}

// === impl Json ===

impl Json {
    /// Creates an empty object.
    #[must_use]
    pub fn empty_object() -> Self {
        Self::Object(Arc::default())
    }

    /// Creates a string.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }

    /// Returns the members if this is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the elements if this is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the text if this is a string.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the boolean if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the member with that name if this is an object that has it.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json> {
        self.as_object()?.get(name)
    }

    /// Returns the name of the value's type in JSON.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Whether both are the same allocation, or equal scalars. True means that they are equal. False means that the
    /// caller has to compare them.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Number(left), Self::Number(right)) => left == right,
            (Self::Text(left), Self::Text(right)) => Arc::ptr_eq(left, right),
            (Self::Array(left), Self::Array(right)) => Arc::ptr_eq(left, right),
            (Self::Object(left), Self::Object(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }

    /// Whether both are equal as defined by RFC 6902 section 4.6, which compares numbers by value.
    #[must_use]
    pub fn equivalent(&self, other: &Self) -> bool {
        if self.is_same(other) {
            return true;
        }
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => left.equivalent(right),
            (Self::Text(left), Self::Text(right)) => left == right,
            (Self::Array(left), Self::Array(right)) if left.has_same_text(right) => true,
            (Self::Array(left), Self::Array(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right.iter()).all(|(l, r)| l.equivalent(r))
            }
            (Self::Object(left), Self::Object(right)) => {
                have_same_members(left, right, Self::equivalent)
            }
            _ => false,
        }
    }

    /// Returns the number of nested containers at the deepest place. A scalar has depth 0.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self {
            Self::Array(elements) => 1 + elements.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(members) => 1 + members.values().map(Self::depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// The positions of this container and of those inside among the containers of its text, if it is still text.
    pub(crate) fn unbuilt_range(&self) -> Option<Range<u32>> {
        match self {
            Self::Array(elements) => elements.unbuilt_range(),
            Self::Object(members) => members.unbuilt_range(),
            _ => None,
        }
    }

    /// Counts the values in this tree, including itself. Stops counting beyond `limit`. In a part that was not changed,
    /// all members of the same name count.
    #[must_use]
    pub fn count_nodes(&self, limit: usize) -> usize {
        let mut count = 1;
        match self {
            Self::Array(elements) => {
                if let Some(inside) = elements.count_in_text(limit) {
                    return count + inside;
                }
                for element in elements.iter() {
                    if count > limit {
                        break;
                    }
                    count += element.count_nodes(limit - count);
                }
            }
            Self::Object(members) => {
                if let Some(inside) = members.count_in_text(limit) {
                    return count + inside;
                }
                for value in members.values() {
                    if count > limit {
                        break;
                    }
                    count += value.count_nodes(limit - count);
                }
            }
            _ => {}
        }
        count
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        if self.is_same(other) {
            return true;
        }
        match (self, other) {
            (Self::Text(left), Self::Text(right)) => left == right,
            (Self::Array(left), Self::Array(right)) => left == right,
            (Self::Object(left), Self::Object(right)) => have_same_members(left, right, Self::eq),
            _ => false,
        }
    }
}

impl Eq for Json {}

/// Whether two objects have the same names with the same values, in any order. Most have them in the same order, and then no
/// name is looked up.
fn have_same_members(
    left: &Level<Object>,
    right: &Level<Object>,
    are_same: impl Fn(&Json, &Json) -> bool,
) -> bool {
    if left.has_same_text(right) {
        return true;
    }
    let (left, right): (&Object, &Object) = (left, right);
    let in_right = |index, name: &Arc<str>| match right.get_index(index) {
        Some((other, value)) if is_same_name(name, other) => Some(value),
        _ => right.get(name),
    };
    left.len() == right.len()
        && left.iter().enumerate().all(|(index, (name, value))| {
            in_right(index, name).is_some_and(|other| are_same(value, other))
        })
}

/// Whether two names are equal. Copies of an object share their names.
pub(crate) fn is_same_name(left: &Arc<str>, right: &Arc<str>) -> bool {
    Arc::ptr_eq(left, right) || left == right
}

/// Shows the type and the size of the value, never its content: `{:?}` must not carry a value into a log.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(elements) => write!(f, "array of {}", elements.len()),
            Self::Object(members) => write!(f, "object of {}", members.len()),
            Self::Text(text) => write!(f, "string of {} bytes", text.len()),
            other => f.write_str(other.type_name()),
        }
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => {
                Self::Number(Number::from_text(&number.to_string()))
            }
            serde_json::Value::String(text) => Self::Text(Arc::from(text)),
            serde_json::Value::Array(elements) => elements
                .into_iter()
                .map(Self::from)
                .collect::<Vec<_>>()
                .into(),
            serde_json::Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| (Arc::from(name), Self::from(value)))
                .collect::<Object>()
                .into(),
        }
    }
}

impl From<Object> for Json {
    fn from(members: Object) -> Self {
        Self::Object(Arc::new(members.into()))
    }
}

impl From<Vec<Json>> for Json {
    fn from(elements: Vec<Json>) -> Self {
        Self::Array(Arc::new(elements.into()))
    }
}

// === impl Number ===

impl Number {
    /// Creates a number from text that is a valid JSON number.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let canonical = matches!(
            text.as_bytes(),
            [b'0'] | [b'-', b'1'..=b'9', ..] | [b'1'..=b'9', ..]
        );
        match text.parse() {
            Ok(integer) if canonical => Self::Integer(integer),
            _ => Self::Text(Arc::from(text)),
        }
    }

    /// Returns the nearest double.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the nearest double is what is asked for"
            )]
            Self::Integer(integer) => *integer as f64,
            Self::Text(text) => text.parse().unwrap_or(f64::NAN),
        }
    }

    /// Whether both are the same number, however they are written: `1`, `1.0` and `10e-1` are equal.
    #[must_use]
    pub fn equivalent(&self, other: &Self) -> bool {
        self == other || self.decimal() == other.decimal()
    }

    /// Returns the sign, the significant digits without leading or trailing zeros, and the exponent of the last
    /// digit. An exponent beyond 64 bits saturates, which only affects numbers written to provoke it.
    fn decimal(&self) -> (bool, Vec<u8>, i64) {
        let text = match self {
            Self::Integer(integer) => integer.to_string(),
            Self::Text(text) => text.to_string(),
        };
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let saturated = if exponent.starts_with('-') {
                    i64::MIN / 2
                } else {
                    i64::MAX / 2
                };
                (mantissa, exponent.parse().unwrap_or(saturated))
            }
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let mut exponent: i64 =
            exponent.saturating_sub(i64::try_from(fraction.len()).unwrap_or(i64::MAX));
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent = exponent.saturating_add(1);
        }
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..leading);
        if digits.is_empty() {
            (false, digits, 0)
        } else {
            (negative, digits, exponent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        Number::from_text(text)
    }

    #[test]
    fn numbers_keep_their_text_and_compare_by_value() {
        assert!(number("1") != number("1.0"));
        for (left, right) in [
            ("1", "1.0"),
            ("10e-1", "1"),
            ("-0", "0"),
            ("1e3", "1000"),
            ("0.10", "1E-1"),
        ] {
            assert!(number(left).equivalent(&number(right)), "{left} {right}");
        }
        for (left, right) in [
            ("9007199254740993", "9007199254740992"),
            ("1", "-1"),
            ("1e400", "1e401"),
        ] {
            assert!(!number(left).equivalent(&number(right)), "{left} {right}");
        }
    }

    #[test]
    fn debug_shows_no_value() {
        let json = Json::from(serde_json::json!(["marker"]));
        assert_eq!(
            format!("{json:?} {:?}", json.as_array().unwrap()),
            "array of 1 [string of 6 bytes]"
        );
    }
}
