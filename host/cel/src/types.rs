//! The static types of expressions, as far as they are known before evaluation.
//!
//! `object`, `oldObject` and `params` have the type `dyn`, as in kube-apiserver. The evaluator checks the types of
//! values that are computed from them.

use std::fmt;

/// A static type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Any type.
    Dyn,
    /// A type without parameters, by its name.
    Named(&'static str),
    /// `list(T)`.
    List(Box<Type>),
    /// `map(K, V)`.
    Map(Box<Type>, Box<Type>),
    /// `optional_type(T)`.
    Optional(Box<Type>),
    /// A constructed object, such as `Object.spec`.
    Struct(String),
    /// One of the types of `request`.
    Record(&'static Record),
    /// A parameter of a generic function.
    Parameter(char),
}

/// A type with known fields.
#[derive(Debug)]
pub struct Record {
    /// The type's name in kube-apiserver.
    pub name: &'static str,
    /// The fields.
    pub fields: &'static [(&'static str, Field)],
}

/// The type of a field of a record.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    /// `string`.
    Text,
    /// `bool`.
    Bool,
    /// `dyn`.
    Dyn,
    /// `list(string)`.
    Texts,
    /// `map(string, list(string))`.
    TextsByName,
    /// Another record.
    Record(&'static Record),
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

static GROUP_VERSION_KIND: Record = Record {
    name: "kubernetes.GroupVersionKind",
    fields: &[
        ("group", Field::Text),
        ("version", Field::Text),
        ("kind", Field::Text),
    ],
};

static GROUP_VERSION_RESOURCE: Record = Record {
    name: "kubernetes.GroupVersionResource",
    fields: &[
        ("group", Field::Text),
        ("version", Field::Text),
        ("resource", Field::Text),
    ],
};

static USER_INFO: Record = Record {
    name: "kubernetes.UserInfo",
    fields: &[
        ("username", Field::Text),
        ("uid", Field::Text),
        ("groups", Field::Texts),
        ("extra", Field::TextsByName),
    ],
};

/// The type of the variable `request`.
pub(crate) static REQUEST: Record = Record {
    name: "kubernetes.AdmissionRequest",
    fields: &[
        ("kind", Field::Record(&GROUP_VERSION_KIND)),
        ("resource", Field::Record(&GROUP_VERSION_RESOURCE)),
        ("subResource", Field::Text),
        ("requestKind", Field::Record(&GROUP_VERSION_KIND)),
        ("requestResource", Field::Record(&GROUP_VERSION_RESOURCE)),
        ("requestSubResource", Field::Text),
        ("name", Field::Text),
        ("namespace", Field::Text),
        ("operation", Field::Text),
        ("userInfo", Field::Record(&USER_INFO)),
        ("dryRun", Field::Bool),
        ("options", Field::Dyn),
    ],
};

/// The name of the boolean type.
pub(crate) const BOOL: Type = Type::Named("bool");
/// The name of the string type.
pub(crate) const STRING: Type = Type::Named("string");
/// The name of the integer type.
pub(crate) const INT: Type = Type::Named("int");

// === impl Field ===

impl Field {
    /// Returns the static type.
    #[must_use]
    pub fn to_type(self) -> Type {
        match self {
            Self::Text => STRING,
            Self::Bool => BOOL,
            Self::Dyn => Type::Dyn,
            Self::Texts => Type::List(Box::new(STRING)),
            Self::TextsByName => {
                Type::Map(Box::new(STRING), Box::new(Type::List(Box::new(STRING))))
            }
            Self::Record(record) => Type::Record(record),
        }
    }
}

/// The types that the parameters of a generic function stand for in one call.
#[derive(Debug, Default)]
pub(crate) struct Bindings(Vec<(char, Type)>);

// === impl Bindings ===

impl Bindings {
    /// Whether a value of the type `given` can be passed for the type `wanted`.
    pub(crate) fn accept(&mut self, wanted: &Type, given: &Type) -> bool {
        match (wanted, given) {
            (Type::Parameter(name), given) => {
                match self.0.iter().position(|(known, _)| known == name) {
                    None => {
                        self.0.push((*name, given.clone()));
                        true
                    }
                    Some(at) => {
                        let known = self.0[at].1.clone();
                        if known == Type::Dyn {
                            return true;
                        }
                        if *given == Type::Dyn {
                            self.0[at].1 = Type::Dyn;
                            return true;
                        }
                        Self::default().accept(&known, given)
                            || Self::default().accept(given, &known)
                    }
                }
            }
            (Type::Dyn, _) | (_, Type::Dyn) => {
                // The parameters in it are unknown.
                self.bind_to_dyn(wanted);
                true
            }
            (Type::List(wanted), Type::List(given))
            | (Type::Optional(wanted), Type::Optional(given)) => self.accept(wanted, given),
            (Type::Map(wanted_key, wanted), Type::Map(given_key, given)) => {
                self.accept(wanted_key, given_key) && self.accept(wanted, given)
            }
            (wanted, given) => wanted == given,
        }
    }

    fn bind_to_dyn(&mut self, of: &Type) {
        match of {
            Type::Parameter(name) if !self.0.iter().any(|(known, _)| known == name) => {
                self.0.push((*name, Type::Dyn));
            }
            Type::List(inner) | Type::Optional(inner) => self.bind_to_dyn(inner),
            Type::Map(key, value) => {
                self.bind_to_dyn(key);
                self.bind_to_dyn(value);
            }
            _ => {}
        }
    }

    /// Replaces parameters by the types that they stand for.
    pub(crate) fn resolve(&self, of: &Type) -> Type {
        match of {
            Type::Parameter(name) => self
                .0
                .iter()
                .find(|(known, _)| known == name)
                .map_or(Type::Dyn, |(_, bound)| bound.clone()),
            Type::List(inner) => Type::List(Box::new(self.resolve(inner))),
            Type::Optional(inner) => Type::Optional(Box::new(self.resolve(inner))),
            Type::Map(key, value) => {
                Type::Map(Box::new(self.resolve(key)), Box::new(self.resolve(value)))
            }
            other => other.clone(),
        }
    }
}

// === impl Type ===

impl Type {
    /// Returns a type that both types fit.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        match (self, other) {
            (left, right) if left == right => left,
            (Self::List(left), Self::List(right)) => Self::List(Box::new(left.join(*right))),
            (Self::Map(left_key, left), Self::Map(right_key, right)) => Self::Map(
                Box::new(left_key.join(*right_key)),
                Box::new(left.join(*right)),
            ),
            (Self::Optional(left), Self::Optional(right)) => {
                Self::Optional(Box::new(left.join(*right)))
            }
            _ => Self::Dyn,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Named("null_type") => f.write_str("null"),
            Self::Named(name) => f.write_str(name),
            Self::List(inner) => write!(f, "list({inner})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Struct(name) => f.write_str(name),
            Self::Record(record) => f.write_str(record.name),
            Self::Parameter(name) => write!(f, "{name}"),
        }
    }
}
