//! The values of CEL, with the types that Kubernetes adds.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::functions::{
    authz::Authz, format::NamedFormat, net, quantity::Quantity, semver::Version, url::Url,
};

/// A value. Clones share lists, maps and text.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`.
    Double(f64),
    /// `string`.
    String(Arc<str>),
    /// `bytes`.
    Bytes(Arc<[u8]>),
    /// `list`.
    List(Arc<Vec<Value>>),
    /// `map`.
    Map(Arc<Map>),
    /// `google.protobuf.Timestamp`.
    Timestamp(jiff::Timestamp),
    /// `google.protobuf.Duration`.
    Duration(jiff::SignedDuration),
    /// A type, such as the result of `type(1)`.
    Type(Arc<str>),
    /// `optional_type`.
    Optional(Option<Arc<Value>>),
    /// An object that an expression constructs: `Object{…}` or `JSONPatch{…}`.
    Struct(Arc<Struct>),
    /// `kubernetes.URL`.
    Url(Arc<Url>),
    /// `net.IP`.
    Ip(std::net::IpAddr),
    /// `net.CIDR`.
    Cidr(net::Cidr),
    /// `kubernetes.Quantity`.
    Quantity(Arc<Quantity>),
    /// `kubernetes.Semver`.
    Semver(Arc<Version>),
    /// `kubernetes.NamedFormat`.
    Format(NamedFormat),
    /// A value of the library for rights, such as `kubernetes.authorization.Decision`.
    Authz(Arc<Authz>),
}

/// A key of a map.
#[derive(Clone, Debug)]
pub enum Key {
    /// A boolean key.
    Bool(bool),
    /// An integer key.
    Int(i64),
    /// An unsigned key.
    Uint(u64),
    /// A string key.
    String(Arc<str>),
}

/// A map, sorted by key. The order of CEL's maps is not specified, and this one is the same in every run.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: Vec<(Key, Value)>,
}

/// A constructed object.
#[derive(Clone, Debug)]
pub struct Struct {
    /// The type's name, such as `Object.spec`.
    pub name: Arc<str>,
    /// The fields, in the written order.
    pub fields: Vec<(Arc<str>, Value)>,
}

// === impl Key ===

impl Key {
    /// Returns the key as a value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Bool(key) => Value::Bool(*key),
            Self::Int(key) => Value::Int(*key),
            Self::Uint(key) => Value::Uint(*key),
            Self::String(key) => Value::String(Arc::clone(key)),
        }
    }

    /// Returns the key that a value stands for. None if a value of this type cannot be a key.
    #[must_use]
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(key) => Some(Self::Bool(*key)),
            Value::Int(key) => Some(Self::Int(*key)),
            Value::Uint(key) => Some(Self::Uint(*key)),
            Value::String(key) => Some(Self::String(Arc::clone(key))),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the comparison with the cast value finds what does not fit"
            )]
            Value::Double(number) if (*number as i64) as f64 == *number => {
                Some(Self::Int(*number as i64))
            }
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Uint(_) => 1,
            Self::String(_) => 2,
        }
    }

    /// Returns the number of an integer key. Keys of both integer types with the same number are equal.
    fn number(&self) -> i128 {
        match self {
            Self::Int(key) => i128::from(*key),
            Self::Uint(key) => i128::from(*key),
            Self::Bool(key) => i128::from(*key),
            Self::String(_) => 0,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(left), Self::String(right)) => left.cmp(right),
            _ => (self.rank(), self.number()).cmp(&(other.rank(), other.number())),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

// === impl Map ===

impl Map {
    /// Creates a map. Of entries with the same key, the last one stays.
    #[must_use]
    pub fn new(mut entries: Vec<(Key, Value)>) -> Self {
        // A stable sort: entries with the same key keep their order.
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        entries.reverse();
        entries.dedup_by(|later, earlier| later.0 == earlier.0);
        entries.reverse();
        Self { entries }
    }

    /// Returns the value of a string key.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        let found = self.entries.binary_search_by(|(key, _)| match key {
            Key::String(key) => (**key).cmp(name),
            _ => Ordering::Less,
        });
        found.ok().map(|index| &self.entries[index].1)
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Value> {
        let found = self.entries.binary_search_by(|(known, _)| known.cmp(key));
        found.ok().map(|index| &self.entries[index].1)
    }

    /// Returns a mutable reference to the value of a string key, which is inserted as null if it is missing.
    pub fn entry(&mut self, name: &str) -> &mut Value {
        let found = self.entries.binary_search_by(|(key, _)| match key {
            Key::String(key) => (**key).cmp(name),
            _ => Ordering::Less,
        });
        let index = found.unwrap_or_else(|index| {
            let entry = (Key::String(Arc::from(name)), Value::Null);
            self.entries.insert(index, entry);
            index
        });
        &mut self.entries[index].1
    }

    /// Returns a mutable reference to the value of a string key.
    pub fn field_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.field(name)?;
        Some(self.entry(name))
    }

    /// Removes a string key and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self
            .entries
            .iter()
            .position(|(key, _)| matches!(key, Key::String(key) if **key == *name))?;
        Some(self.entries.remove(at).1)
    }

    /// The entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &(Key, Value)> {
        self.entries.iter()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

// === impl Value ===

impl Value {
    /// Creates a string.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// Creates a list.
    #[must_use]
    pub fn list(elements: Vec<Self>) -> Self {
        Self::List(Arc::new(elements))
    }

    /// Creates a map.
    #[must_use]
    pub fn map(entries: Vec<(Key, Self)>) -> Self {
        Self::Map(Arc::new(Map::new(entries)))
    }

    /// Creates an optional value.
    #[must_use]
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns the string. None for another type.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a member of a map or a constructed object.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(map) => map.field(name),
            Self::Struct(object) => object.field(name),
            _ => None,
        }
    }

    /// Returns the names of the members of a map. Empty for another type.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let Self::Map(map) = self else {
            return Vec::new();
        };
        let names = map.iter().filter_map(|(key, _)| match key {
            Key::String(name) => Some(name.to_string()),
            _ => None,
        });
        names.collect()
    }

    /// Returns the value at a JSON pointer.
    #[must_use]
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        let mut value = self;
        for token in pointer.split('/').skip(1) {
            let token = unescaped(token);
            value = match value {
                Self::List(list) => list.get(token.parse::<usize>().ok()?)?,
                other => other.field(&token)?,
            };
        }
        Some(value)
    }

    /// Returns the name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Struct(object) => &object.name,
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authz(authz) => match **authz {
                Authz::Authorizer(_) => "kubernetes.authorization.Authorizer",
                Authz::Path(..) => "kubernetes.authorization.PathCheck",
                Authz::Group(..) => "kubernetes.authorization.GroupCheck",
                Authz::Resource(..) => "kubernetes.authorization.ResourceCheck",
                Authz::Decision(_) => "kubernetes.authorization.Decision",
            },
        }
    }

    /// The size that drives the cost of operations: characters, bytes, elements or entries.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            _ => 1,
        }
    }

    /// Whether this is the zero value of its type.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Optional(None) => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Duration(duration) => duration.is_zero(),
            Self::Struct(object) => object.fields.is_empty(),
            _ => false,
        }
    }
}

impl Struct {
    /// Returns the value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter();
        fields
            .find(|(known, _)| **known == *name)
            .map(|(_, value)| value)
    }
}

/// CEL's equality: numbers of all types are compared by their number, and values of other types are unequal.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::String(left), Self::String(right)) | (Self::Type(left), Self::Type(right)) => {
                left == right
            }
            (Self::Bytes(left), Self::Bytes(right)) => left == right,
            (Self::List(left), Self::List(right)) => left == right,
            (Self::Map(left), Self::Map(right)) => {
                left.len() == right.len()
                    && left
                        .iter()
                        .all(|(key, value)| right.get(key).is_some_and(|other| value == other))
            }
            (Self::Timestamp(left), Self::Timestamp(right)) => left == right,
            (Self::Duration(left), Self::Duration(right)) => left == right,
            (Self::Optional(left), Self::Optional(right)) => left == right,
            (Self::Struct(left), Self::Struct(right)) => {
                left.name == right.name
                    && left.fields.len() == right.fields.len()
                    && left
                        .fields
                        .iter()
                        .all(|(name, value)| right.field(name) == Some(value))
            }
            (Self::Url(left), Self::Url(right)) => left == right,
            (Self::Ip(left), Self::Ip(right)) => left == right,
            (Self::Cidr(left), Self::Cidr(right)) => left == right,
            (Self::Quantity(left), Self::Quantity(right)) => left.compare(right) == Ordering::Equal,
            (Self::Semver(left), Self::Semver(right)) => left.compare(right) == Ordering::Equal,
            (Self::Format(left), Self::Format(right)) => left == right,
            _ => compare_numbers(self, other) == Some(Ordering::Equal),
        }
    }
}

/// Compares numbers of any type. None for other values and for NaN.
#[must_use]
pub(crate) fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(*left).cmp(&i128::from(*right))),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Double(left), Value::Int(right)) => compare_double(*left, i128::from(*right)),
        (Value::Double(left), Value::Uint(right)) => compare_double(*left, i128::from(*right)),
        (Value::Int(left), Value::Double(right)) => {
            compare_double(*right, i128::from(*left)).map(Ordering::reverse)
        }
        (Value::Uint(left), Value::Double(right)) => {
            compare_double(*right, i128::from(*left)).map(Ordering::reverse)
        }
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and an i128 holds every integer of 64 bits"
)]
fn compare_double(left: f64, right: i128) -> Option<Ordering> {
    if left.is_nan() {
        return None;
    }
    let whole = left.floor();
    let order = (whole as i128).cmp(&right);
    Some(order.then(if left > whole {
        Ordering::Greater
    } else {
        Ordering::Equal
    }))
}

/// Unescapes a token of a JSON pointer.
pub(crate) fn unescaped(token: &str) -> String {
    if token.contains('~') {
        token.replace("~1", "/").replace("~0", "~")
    } else {
        token.to_owned()
    }
}

/// Escapes a token of a JSON pointer.
pub(crate) fn escaped(token: &str) -> String {
    if token.contains(['~', '/']) {
        token.replace('~', "~0").replace('/', "~1")
    } else {
        token.to_owned()
    }
}
