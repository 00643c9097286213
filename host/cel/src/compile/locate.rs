//! Finds the place of a problem in an expression.

use super::Problem;
use crate::error::CompileError;

/// Returns the error at the first place where the expression has the problem's word outside of string literals.
pub(super) fn error(source: &str, problem: Problem) -> CompileError {
    let at = find(source, &problem.word).unwrap_or(0);
    let before = &source[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    CompileError {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        message: problem.message,
    }
}

fn find(source: &str, word: &str) -> Option<usize> {
    if word.is_empty() {
        return None;
    }
    let is_of_name = |character: char| character.is_alphanumeric() || character == '_';
    let word_is_name = word.starts_with(is_of_name);
    let mut quote = None;
    let mut previous = ' ';
    let mut skip = false;
    for (at, character) in source.char_indices() {
        if skip {
            skip = false;
        } else if let Some(open) = quote {
            skip = character == '\\';
            if character == open {
                quote = None;
            }
        } else if source[at..].starts_with(word) {
            let behind = source[at + word.len()..].chars().next();
            let is_whole =
                !word_is_name || !is_of_name(previous) && !behind.is_some_and(is_of_name);
            if is_whole {
                return Some(at);
            }
        } else if matches!(character, '"' | '\'') {
            quote = Some(character);
        }
        previous = character;
    }
    None
}
