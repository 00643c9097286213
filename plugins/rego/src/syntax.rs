//! Rewrites Rego that regorus does not read like OPA. Lines stay as they are, so that errors name the right one.

use std::borrow::Cow;

use regorus::Engine;

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

/// Most brackets that may be open at the same time. regorus reads them recursively, and a plugin's stack ends at some
/// hundreds.
pub(crate) const MOST_OPEN_BRACKETS: usize = 100;

/// Tells the code of a text from its strings and comments, character by character.
#[derive(Default)]
struct Scanner {
    quote: Option<char>,
    is_escaped: bool,
    is_comment: bool,
}

/// Returns the first line, from 1, on which too many brackets are open.
pub(crate) fn too_deep(text: &str) -> Option<usize> {
    let (mut scanner, mut line, mut depth) = (Scanner::default(), 1, 0_usize);
    for character in text.chars() {
        let is_code = scanner.read(character);
        match character {
            '\n' => line += 1,
            '{' | '[' | '(' if is_code => depth += 1,
            '}' | ']' | ')' if is_code => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_OPEN_BRACKETS {
            return Some(line);
        }
    }
    None
}

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
    let mut scanner = Scanner::default();
    for character in text.chars() {
        let is_code = scanner.read(character);
        match character {
            '{' if is_code && depth == 0 => {
                let own = head.trim();
                if !own.is_empty() {
                    repeated = is_set_rule(own).then(|| own.to_owned());
                } else if let Some(head) = &repeated {
                    out.push_str(head);
                    out.push(' ');
                }
                depth = 1;
            }
            '{' | '[' | '(' if is_code => depth += 1,
            '}' | ']' | ')' if is_code => depth = depth.saturating_sub(1),
            _ => {}
        }
        let closes_body = is_code && depth == 0 && character == '}';
        if closes_body || (is_code && depth == 0 && character == '\n') {
            head.clear();
        } else if !scanner.is_comment {
            head.push(character);
        }
        out.push(character);
    }
    out
}

/// Parses a module. None if the text cannot be parsed.
pub(crate) fn parsed(text: &str, is_v1: bool) -> Option<Engine> {
    let mut engine = Engine::new();
    engine.set_rego_v0(!is_v1);
    engine.add_policy("text".to_owned(), text.to_owned()).ok()?;
    Some(engine)
}

/// Returns a text without its comments. Lines stay.
pub(crate) fn without_comments(text: &str) -> String {
    let mut scanner = Scanner::default();
    let mut is_kept = |character: &char| {
        scanner.read(*character);
        !scanner.is_comment
    };
    text.chars().filter(|one| is_kept(one)).collect()
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

// === impl Scanner ===

impl Scanner {
    /// Reads the next character. Returns whether it was in neither a string nor a comment before it.
    fn read(&mut self, character: char) -> bool {
        let is_code = self.quote.is_none() && !self.is_comment;
        match self.quote {
            Some(_) if self.is_escaped => self.is_escaped = false,
            Some('"') if character == '\\' => self.is_escaped = true,
            Some(end) if character == end => self.quote = None,
            Some(_) => {}
            None if character == '\n' => self.is_comment = false,
            None if self.is_comment => {}
            None if character == '#' => self.is_comment = true,
            None if matches!(character, '"' | '`') => self.quote = Some(character),
            None => {}
        }
        is_code
    }
}
