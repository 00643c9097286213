//! The declarations of the functions.

use std::collections::BTreeMap;

use crate::types::Type;

/// The declarations as text, one per line, by library.
pub const TEXT: &str = include_str!("signatures.txt");

/// The first parts of functions with a qualified name, such as `sets` in `sets.contains`.
const NAMESPACES: [&str; 8] = [
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "optional",
    "sets",
    "strings",
    "authz",
];

/// One overload of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The types of the arguments. The target of a member function is the first one.
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// The declarations, by name and whether the function is a member.
pub(crate) type Table = BTreeMap<(String, bool), Vec<Overload>>;

/// Whether a name is the first part of functions with a qualified name.
pub(crate) fn is_namespace(name: &str) -> bool {
    NAMESPACES.contains(&name)
}

/// Reads all declarations.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    for line in TEXT.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '[']) {
            continue;
        }
        let (name, is_member, overload) = declaration(line);
        table.entry((name, is_member)).or_default().push(overload);
    }
    table
}

/// Reads one declaration.
fn declaration(line: &'static str) -> (String, bool, Overload) {
    let (head, result) = line
        .rsplit_once(" -> ")
        .expect("a declaration has a result");
    let head = head.strip_suffix(')').expect("a declaration has arguments");
    // The arguments begin at the bracket that the last one closes.
    let mut depth = 1;
    let open = head
        .char_indices()
        .rev()
        .find(|(_, character)| {
            match character {
                ')' => depth += 1,
                '(' => depth -= 1,
                _ => {}
            }
            depth == 0
        })
        .map(|(at, _)| at)
        .expect("a declaration has an opening bracket");
    let (name, arguments) = (&head[..open], &head[open + 1..]);
    let mut types: Vec<Type> = split(arguments).into_iter().map(parse).collect();
    let (target, name) = match name.rsplit_once('.') {
        Some((target, _)) if is_namespace(target) => (None, name),
        Some((target, name)) => (Some(target), name),
        None => (None, name),
    };
    if let Some(target) = target {
        types.insert(0, parse(target));
    }
    let overload = Overload {
        arguments: types,
        result: parse(result),
    };
    (name.to_owned(), target.is_some(), overload)
}

/// Splits at the commas that are in no brackets.
fn split(text: &'static str) -> Vec<&'static str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

fn parse(text: &'static str) -> Type {
    let inner = |name: &str| {
        text.strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('('))
            .and_then(|rest| rest.strip_suffix(')'))
    };
    match text {
        "dyn" => return Type::Dyn,
        "A" | "B" => return Type::Parameter(text.chars().next().unwrap_or('A')),
        "timestamp" => return Type::Named("google.protobuf.Timestamp"),
        "duration" => return Type::Named("google.protobuf.Duration"),
        _ => {}
    }
    if let Some(element) = inner("list") {
        return Type::List(Box::new(parse(element)));
    }
    if let Some(content) = inner("optional") {
        return Type::Optional(Box::new(parse(content)));
    }
    if let Some(parameters) = inner("map")
        && let [key, value] = split(parameters)[..]
    {
        return Type::Map(Box::new(parse(key)), Box::new(parse(value)));
    }
    Type::Named(text)
}
