//! Patterns for repositories and identities.

use std::fmt;

/// A pattern for a text. `*` stands for any characters except `/`, and `**` for any characters.
///
/// `*` stops at `/`, because parts of an identity are chosen by others. A branch may be named `x@refs/tags/v1`, and the
/// pattern `…/release.yml@refs/tags/*` must not match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPattern(Box<str>);

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Character(char),
    Segment,
    Everything,
}

// === impl TextPattern ===

impl TextPattern {
    /// Creates a pattern. A text without `*` matches itself.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The pattern that matches every text.
    #[must_use]
    pub fn everything() -> Self {
        Self("**".into())
    }

    /// Returns whether the whole text matches. The time is at most the product of both lengths.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let tokens = self.tokens();
        // For each length of the pattern: whether it matches the text so far.
        let mut states = vec![false; tokens.len() + 1];
        states[0] = true;
        follow_stars(&tokens, &mut states);
        for character in text.chars() {
            let mut next = vec![false; states.len()];
            for (index, token) in tokens
                .iter()
                .enumerate()
                .filter(|(index, _)| states[*index])
            {
                match token {
                    Token::Character(wanted) => next[index + 1] |= *wanted == character,
                    Token::Segment => next[index] |= character != '/',
                    Token::Everything => next[index] = true,
                }
            }
            follow_stars(&tokens, &mut next);
            states = next;
        }
        states.last().copied().unwrap_or_default()
    }

    fn tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        for character in self.0.chars() {
            match (character, tokens.last()) {
                ('*', Some(Token::Segment | Token::Everything)) => {
                    tokens.pop();
                    tokens.push(Token::Everything);
                }
                ('*', _) => tokens.push(Token::Segment),
                (character, _) => tokens.push(Token::Character(character)),
            }
        }
        tokens
    }
}

/// Steps over stars, which may stand for nothing.
fn follow_stars(tokens: &[Token], states: &mut [bool]) {
    for (index, token) in tokens.iter().enumerate() {
        if states[index] && !matches!(token, Token::Character(_)) {
            states[index + 1] = true;
        }
    }
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
