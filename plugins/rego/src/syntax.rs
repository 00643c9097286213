//! Rewrites Rego that regorus does not read like OPA. Lines stay as they are, so that errors name the right one.

use std::borrow::Cow;

/// Builtins that admission policies must not have, or that this plugin does not bring, with the reason.
const UNSUPPORTED: [(&str, &str); 6] = [
    (
        "external_data",
        "external data is not supported; use a plugin of your own, or put the data into parameters",
    ),
    ("http.send", "a plugin has no network"),
    ("opa.runtime", "there is no OPA process"),
    ("time.", "the builtins of time are not available"),
    ("io.jwt.", "the builtins of tokens are not available"),
    ("crypto.", "the builtins of cryptography are not available"),
];

/// Returns the calls of builtins that are not available, by line from 1.
pub(crate) fn unsupported(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = without_strings(line);
        for (name, reason) in UNSUPPORTED {
            let mut places = code.match_indices(name);
            let is_called = places.any(|(at, _)| {
                let before = code[..at].chars().next_back();
                let starts = before.is_none_or(|c| !(c.is_alphanumeric() || "_.".contains(c)));
                let after = code[at + name.len()..].trim_start_matches(|c: char| {
                    name.ends_with('.') && (c.is_alphanumeric() || "_.".contains(c))
                });
                starts && after.starts_with('(')
            });
            if is_called {
                let name = name.trim_end_matches('.');
                found.push((index + 1, format!("{name}: {reason}")));
            }
        }
    }
    found
}

/// Rewrites the text for regorus.
pub(crate) fn adapted(text: &str) -> String {
    let text = with_heads(text);
    crate::negation::adapted(&separated(&text))
}

/// Repeats the head of a set rule before each of its further bodies: `a[x] {…} {…}`. regorus takes such a body for an
/// `else`, which a set rule cannot have.
fn with_heads(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut depth, mut head, mut repeated) = (0_usize, String::new(), None);
    let mut quote: Option<char> = None;
    let (mut is_escaped, mut is_comment) = (false, false);
    for character in text.chars() {
        let is_code = quote.is_none() && !is_comment;
        match (quote, character) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some('"'), '\\') => is_escaped = true,
            (Some(end), _) if character == end => quote = None,
            (Some(_), _) => {}
            (None, '\n') => is_comment = false,
            (None, _) if is_comment => {}
            (None, '#') => is_comment = true,
            (None, '"' | '`') => quote = Some(character),
            (None, '{') if depth == 0 => {
                let own = head.trim();
                if !own.is_empty() {
                    repeated = is_set_rule(own).then(|| own.to_owned());
                } else if let Some(head) = &repeated {
                    out.push_str(head);
                    out.push(' ');
                }
                depth = 1;
            }
            (None, '{' | '[' | '(') => depth += 1,
            (None, '}' | ']' | ')') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        let closes_body = is_code && depth == 0 && character == '}';
        if closes_body || (is_code && depth == 0 && character == '\n') {
            head.clear();
        } else if !is_comment {
            head.push(character);
        }
        out.push(character);
    }
    out
}

/// Whether a head is `name[value]` and nothing more.
fn is_set_rule(head: &str) -> bool {
    let name = head.find('[').map_or("", |at| &head[..at]);
    !name.is_empty() && head.ends_with(']') && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// regorus reads `(` at the beginning of a line as the arguments of a call of the line before. OPA reads two expressions.
/// A semicolon at the end of the line before keeps them apart.
fn separated(text: &str) -> Cow<'_, str> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut out = String::new();
    let mut is_raw = false;
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        // A raw string may have several lines, whose content must stay.
        let was_raw = is_raw;
        is_raw ^= line.matches('`').count() % 2 == 1;
        let code = without_strings(line);
        let end = code.trim_end().len();
        let before = code.trim_end().chars().next_back();
        let may_be_called =
            before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ']' | '"' | '`'));
        let next = lines[index + 1..]
            .iter()
            .map(|line| without_strings(line))
            .find(|code| !code.trim().is_empty());
        let is_call = next.is_some_and(|next| next.trim_start().starts_with('('));
        if may_be_called && is_call && !was_raw && !is_raw {
            let bytes = code_bytes(line, end);
            out.push_str(&line[..bytes]);
            out.push(';');
            out.push_str(&line[bytes..]);
        } else {
            out.push_str(line);
        }
    }
    match out == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(out),
    }
}

/// Returns the length of the beginning of a line that has this length without strings.
fn code_bytes(line: &str, end: usize) -> usize {
    let characters = without_strings(line)[..end].chars().count();
    let at = line.char_indices().nth(characters);
    at.map_or(line.len(), |(at, _)| at)
}

/// Replaces strings and the comment of a line by spaces.
fn without_strings(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let mut quote = None;
    let mut is_escaped = false;
    for character in line.chars() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some('"') if character == '\\' => is_escaped = true,
            Some(end) if character == end => quote = None,
            Some(_) => {}
            None if character == '#' => break,
            None if character == '"' || character == '`' => quote = Some(character),
            None => {
                code.push(character);
                continue;
            }
        }
        code.push(' ');
    }
    code
}
