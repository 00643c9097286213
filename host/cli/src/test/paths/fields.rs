//! The fields of kinds, and the check of a pointer against them.

use std::collections::{BTreeMap, HashMap};

/// A type of the API: what a pointer may name below a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A text, a number or a boolean.
    Scalar,
    /// Anything.
    Open,
    List(Box<Type>),
    /// An object with any names.
    Map(Box<Type>),
    Fields(Fields),
    /// A type of the catalogue.
    Named(String),
}

/// An object with certain names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) known: BTreeMap<String, Type>,
    /// Whether there may be other names.
    pub(super) is_open: bool,
}

/// A kind with its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) api_version: String,
    pub(super) kind: String,
}

/// The kinds that are known, and their types.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    types: HashMap<String, Type>,
    kinds: HashMap<Kind, Type>,
}

/// A pointer that names no field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The kind has no such field. `meant` is the whole pointer with the nearest field.
    Field {
        at: String,
        meant: Option<String>,
        known: Vec<String>,
    },
    /// The value at the place is a list, and the next token is no index.
    Index { list: String },
    /// The value at the place has no members.
    Members { value: String },
}

/// Field names that differ more are other words.
const SIMILAR: f32 = 0.7;
/// Longest token that is compared with names.
const LONGEST_BYTES: usize = 100;
const STAR: &str = "*";

// === impl Catalogue ===

impl Catalogue {
    /// Reads lines such as `apps.v1.Deployment apps/v1 Deployment: metadata=meta.v1.ObjectMeta spec=…`.
    pub(super) fn add_lines(&mut self, text: &str) {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let Some((head, fields)) = line.split_once(':') else {
                continue;
            };
            let known = fields.split_whitespace().map(|field| {
                let (name, of) = field.split_once('=').unwrap_or((field, ""));
                (name.to_owned(), Type::parse(of))
            });
            let fields = Fields {
                known: known.collect(),
                is_open: false,
            };
            let mut head = head.split(' ');
            let name = head.next().unwrap_or_default().to_owned();
            if let (Some(api_version), Some(kind)) = (head.next(), head.next()) {
                self.define(Kind::new(api_version, kind), Type::Named(name.clone()));
            }
            self.types.insert(name, Type::Fields(fields));
        }
    }

    /// Adds a kind. A later definition replaces an earlier one.
    pub(super) fn define(&mut self, kind: Kind, of: Type) {
        self.kinds.insert(kind, of);
    }

    pub(super) fn of_kind(&self, kind: &Kind) -> Option<&Type> {
        self.kinds.get(kind)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Type> {
        self.types.get(name)
    }

    /// Checks a well-formed pointer or pattern against a type.
    pub(super) fn check(&self, of: &Type, pointer: &str, is_pattern: bool) -> Result<(), Wrong> {
        let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
        self.walk(of, &tokens, 0, is_pattern)
    }

    /// Whether a type has the first member of a pointer by its name. A type that is open to any member does not name one.
    pub(super) fn names_first(&self, of: &Type, pointer: &str, is_pattern: bool) -> bool {
        let Some(first) = pointer.split('/').nth(1) else {
            return false;
        };
        match of {
            Type::Named(name) => {
                let of = self.types.get(name);
                of.is_some_and(|of| self.names_first(of, pointer, is_pattern))
            }
            Type::Fields(fields) if is_pattern && first == STAR => !fields.is_open,
            Type::Fields(fields) => fields.known.contains_key(&unescaped(first)),
            Type::Scalar | Type::Open | Type::List(_) | Type::Map(_) => false,
        }
    }

    /// Walks from the token with an index. The tokens before it lead to `of`.
    fn walk(
        &self,
        of: &Type,
        tokens: &[&str],
        index: usize,
        is_pattern: bool,
    ) -> Result<(), Wrong> {
        let Some(token) = tokens.get(index) else {
            return Ok(());
        };
        let is_star = is_pattern && *token == STAR;
        match of {
            Type::Open => Ok(()),
            Type::Named(name) => match self.types.get(name) {
                Some(of) => self.walk(of, tokens, index, is_pattern),
                None => Ok(()),
            },
            Type::Map(values) => self.walk(values, tokens, index + 1, is_pattern),
            Type::List(items) if is_star || is_index(token) => {
                self.walk(items, tokens, index + 1, is_pattern)
            }
            Type::List(_) => Err(Wrong::Index {
                list: joined(&tokens[..index]),
            }),
            Type::Scalar => Err(Wrong::Members {
                value: joined(&tokens[..index]),
            }),
            Type::Fields(fields) if is_star => self.walk_all(fields, tokens, index),
            Type::Fields(fields) => match fields.known.get(&unescaped(token)) {
                Some(of) => self.walk(of, tokens, index + 1, is_pattern),
                None if fields.is_open => Ok(()),
                None => Err(no_field(fields, tokens, index)),
            },
        }
    }

    /// A star stands for every field, so one that fits is enough.
    fn walk_all(&self, fields: &Fields, tokens: &[&str], index: usize) -> Result<(), Wrong> {
        if fields.is_open {
            return Ok(());
        }
        let mut first = None;
        for of in fields.known.values() {
            match self.walk(of, tokens, index + 1, true) {
                Ok(()) => return Ok(()),
                Err(wrong) => first = first.or(Some(wrong)),
            }
        }
        first.map_or(Ok(()), Err)
    }
}

fn no_field(fields: &Fields, tokens: &[&str], index: usize) -> Wrong {
    let names: Vec<&str> = fields.known.keys().map(String::as_str).collect();
    let token = tokens[index];
    let near = match token.len() <= LONGEST_BYTES {
        true => similar::get_close_matches(token, &names, 1, SIMILAR),
        false => Vec::new(),
    };
    let meant = near.first().map(|name| {
        let mut tokens = tokens.to_vec();
        tokens[index] = name;
        joined(&tokens)
    });
    Wrong::Field {
        at: joined(&tokens[..=index]),
        meant,
        known: fields.known.keys().cloned().collect(),
    }
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn is_index(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit())
}

fn joined(tokens: &[&str]) -> String {
    tokens
        .iter()
        .fold(String::new(), |text, token| format!("{text}/{token}"))
}

// === impl Type ===

impl Type {
    /// Reads a type such as `[{core.v1.Container}]`. An empty text is a value without members.
    fn parse(text: &str) -> Self {
        let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
        if let Some(items) = inner('[', ']') {
            return Self::List(Box::new(Self::parse(items)));
        }
        if let Some(values) = inner('{', '}') {
            return Self::Map(Box::new(Self::parse(values)));
        }
        match text {
            "" => Self::Scalar,
            STAR => Self::Open,
            name => Self::Named(name.to_owned()),
        }
    }
}

// === impl Kind ===

impl Kind {
    pub(super) fn new(api_version: &str, kind: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.api_version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "# a comment
apps.v1.Deployment apps/v1 Deployment: kind metadata=meta.v1.ObjectMeta spec=apps.v1.DeploymentSpec raw=*
apps.v1.DeploymentSpec: replicas containers=[core.v1.Container] paused
core.v1.Container: args=[] image name ports={[]}
meta.v1.ObjectMeta: labels={} name
";

    fn check(pointer: &str) -> Result<(), Wrong> {
        let mut catalogue = Catalogue::default();
        catalogue.add_lines(LINES);
        let kind = Kind::new("apps/v1", "Deployment");
        let of = catalogue.of_kind(&kind).expect("it is defined");
        catalogue.check(of, pointer, pointer.contains('*'))
    }

    #[test]
    fn fields_lists_maps_and_open_values_are_there() {
        for pointer in [
            "",
            "/spec/replicas",
            "/spec/containers",
            "/spec/containers/0/image",
            "/spec/containers/*/image",
            "/spec/containers/12/args/3",
            "/spec/containers/0/ports/any/0",
            "/metadata/labels/app.kubernetes.io~1name",
            "/raw/what/ever/0",
            "/*/name",
            "/*/*",
        ] {
            assert_eq!(check(pointer), Ok(()), "{pointer}");
        }
    }

    #[test]
    fn typing_mistake_is_named_with_the_nearest_field() {
        let wrong = check("/spec/replica").unwrap_err();
        let known = ["containers", "paused", "replicas"]
            .map(str::to_owned)
            .to_vec();
        let expected = Wrong::Field {
            at: "/spec/replica".to_owned(),
            meant: Some("/spec/replicas".to_owned()),
            known,
        };
        assert_eq!(wrong, expected);
        match check("/spec/container/*/image").unwrap_err() {
            Wrong::Field { at, meant, .. } => {
                assert_eq!(at, "/spec/container");
                assert_eq!(meant.as_deref(), Some("/spec/containers/*/image"));
            }
            other => panic!("{other:?}"),
        }
        match check("/spec/template").unwrap_err() {
            Wrong::Field { meant, .. } => assert_eq!(meant, None),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_need_an_index_and_values_have_no_members() {
        let list = "/spec/containers".to_owned();
        assert_eq!(check("/spec/containers/name"), Err(Wrong::Index { list }));
        let value = "/spec/replicas".to_owned();
        assert_eq!(check("/spec/replicas/0"), Err(Wrong::Members { value }));
        assert!(check("/spec/*/nothing").is_err());
    }

    #[test]
    fn open_type_names_only_the_members_that_it_lists() {
        let mut catalogue = Catalogue::default();
        catalogue.add_lines(LINES);
        let kind = Kind::new("apps/v1", "Deployment");
        let closed = catalogue.of_kind(&kind).expect("it is defined").clone();
        let known = [("metadata".to_owned(), Type::Open)].into();
        let open = Type::Fields(Fields {
            known,
            is_open: true,
        });
        for (pointer, by_closed, by_open) in [
            ("/spec/replicas", true, false),
            ("/metadata/name", true, true),
            ("/status/phase", false, false),
            ("/*/name", true, false),
            ("", false, false),
        ] {
            let names = |of| catalogue.names_first(of, pointer, pointer.contains('*'));
            assert_eq!(names(&closed), by_closed, "{pointer}");
            assert_eq!(names(&open), by_open, "{pointer}");
            assert!(!names(&Type::Open), "{pointer}");
        }
    }

    #[test]
    fn later_definition_replaces_an_earlier_one() {
        let mut catalogue = Catalogue::default();
        catalogue.add_lines(LINES);
        let kind = Kind::new("apps/v1", "Deployment");
        catalogue.define(kind.clone(), Type::Open);
        assert_eq!(catalogue.of_kind(&kind), Some(&Type::Open));
        assert_eq!(kind.to_string(), "apps/v1 Deployment");
    }
}
