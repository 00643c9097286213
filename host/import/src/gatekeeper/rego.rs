//! A text in Rego, as far as its bodies matter. It is not parsed: in doubt, a body has fewer statements than it seems.

use std::ops::Range;

/// A text without its comments.
pub(super) struct Rego {
    text: String,
    /// Whether a byte is in no string.
    is_code: Vec<bool>,
}

/// What stands between the braces of a rule.
pub(super) struct Body<'r> {
    /// The first word of the rule's head.
    pub(super) rule: &'r str,
    pub(super) range: Range<usize>,
    /// The statements that must all hold. Those of comprehensions are not among them.
    pub(super) statements: Vec<&'r str>,
}

// === impl Rego ===

impl Rego {
    pub(super) fn new(text: &str) -> Self {
        let mut out = String::with_capacity(text.len());
        let mut is_code = Vec::with_capacity(text.len());
        let mut quote = None;
        let (mut is_escaped, mut is_comment) = (false, false);
        for character in text.chars() {
            let was_code = quote.is_none();
            match quote {
                Some(_) if is_escaped => is_escaped = false,
                Some('"') if character == '\\' => is_escaped = true,
                Some(end) if character == end => quote = None,
                Some(_) => {}
                None if character == '\n' => is_comment = false,
                None if is_comment => continue,
                None if character == '#' => {
                    is_comment = true;
                    continue;
                }
                None if matches!(character, '"' | '`') => quote = Some(character),
                None => {}
            }
            out.push(character);
            is_code.resize(out.len(), was_code && quote.is_none());
        }
        Self { text: out, is_code }
    }

    /// The text after a place.
    pub(super) fn after(&self, place: usize) -> &str {
        &self.text[place..]
    }

    /// The text of a range.
    pub(super) fn part(&self, range: Range<usize>) -> &str {
        &self.text[range]
    }

    /// Returns the places of a word that is no member of something.
    pub(super) fn words<'r>(&'r self, word: &'r str) -> impl Iterator<Item = usize> + 'r {
        let places = self.text.match_indices(word).map(|(at, _)| at);
        places.filter(move |at| {
            let before = self.text[..*at].chars().next_back();
            let after = self.text[at + word.len()..].chars().next();
            let is_whole = !before.is_some_and(|c| is_of_name(c) || c == '.')
                && !after.is_some_and(is_of_name);
            self.is_code[*at] && is_whole
        })
    }

    /// Returns the bodies of all rules.
    pub(super) fn bodies(&self) -> Vec<Body<'_>> {
        let mut bodies = Vec::new();
        let (mut depth, mut head, mut start) = (0_usize, 0, 0);
        let mut rule = "";
        for (at, character) in self.code() {
            match character {
                '{' | '[' | '(' => {
                    if depth == 0 && character == '{' {
                        let words = self.text[head..at].split(|c: char| !is_of_name(c));
                        let first = words.into_iter().find(|word| !word.is_empty());
                        // A further body of the same rule has no head.
                        rule = first.filter(|word| *word != "if").unwrap_or(rule);
                        start = at + 1;
                    }
                    depth += 1;
                }
                '}' | ']' | ')' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && character == '}' {
                        bodies.push(Body {
                            rule,
                            range: start..at,
                            statements: self.statements(start..at),
                        });
                        head = at + 1;
                    }
                }
                _ => {}
            }
        }
        bodies
    }

    /// The characters that are in no string.
    fn code(&self) -> impl Iterator<Item = (usize, char)> {
        let all = self.text.char_indices();
        all.filter(|(at, _)| self.is_code[*at])
    }

    fn statements(&self, body: Range<usize>) -> Vec<&str> {
        let mut statements = Vec::new();
        let (mut depth, mut start) = (0_usize, body.start);
        for (at, character) in self.code().filter(|(at, _)| body.contains(at)) {
            match character {
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth = depth.saturating_sub(1),
                '\n' if goes_on(&self.text[start..at], &self.text[at..body.end]) => {}
                ';' | '\n' if depth == 0 => {
                    statements.push(self.text[start..at].trim());
                    start = at + 1;
                }
                _ => {}
            }
        }
        statements.push(self.text[start..body.end].trim());
        statements.retain(|statement| !statement.is_empty());
        statements
    }
}

// === impl Body ===

impl<'r> Body<'r> {
    /// Returns what the body assigns to a variable, if it assigns to it once and declares it nowhere else.
    pub(super) fn assigned(&self, rego: &'r Rego, variable: &str) -> Option<&'r str> {
        let part = |range: Range<usize>| rego.part(range);
        let mut assignments = 0;
        for at in rego.words(variable).filter(|at| self.range.contains(at)) {
            let before = part(self.range.start..at).trim_end();
            let after = rego.after(at + variable.len());
            // Also in patterns, and in comprehensions, where another variable of this name begins.
            let end = after.find(['\n', ';', '|', '(']).unwrap_or(after.len());
            let is_declared = before.ends_with("some") || before.ends_with("every");
            if is_declared || after[..end].contains(":=") {
                assignments += 1;
            }
        }
        let value = self.statements.iter().find_map(|statement| {
            let (left, right) = statement.split_once(":=")?;
            (left.trim() == variable).then_some(right.trim())
        });
        value.filter(|_| assignments == 1)
    }
}

/// Whether a statement goes on behind the end of a line: an operator or a word needs what follows, or an operator follows.
fn goes_on(line: &str, rest: &str) -> bool {
    const OPERATORS: &[char] = &[
        '=', '<', '>', '!', '+', '-', '*', '/', '%', '&', '|', ',', ':',
    ];
    const WORDS: [&str; 5] = ["not", "some", "every", "in", "if"];
    let line = line.trim_end();
    let last = line.rsplit(|c: char| !is_of_name(c)).next();
    line.ends_with(OPERATORS)
        || last.is_some_and(|last| WORDS.contains(&last))
        || rest.trim_start().starts_with(OPERATORS)
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
