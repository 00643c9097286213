//! Errors of compilation and of evaluation.

use std::borrow::Cow;
use std::fmt;

/// An evaluation failed. The text is that of cel-go.
#[derive(Clone, Debug, PartialEq)]
pub enum EvalError {
    /// The expression cannot be evaluated for this input.
    Message(Cow<'static, str>),
    /// The expression costs more than a single expression may.
    CostLimit,
}

/// An expression cannot be compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileError {
    /// The line in the expression, from 1.
    pub line: usize,
    /// The column in the line, in characters from 1.
    pub column: usize,
    /// The problem.
    pub message: String,
}

pub(crate) type Result<T> = std::result::Result<T, EvalError>;

// === impl EvalError ===

impl EvalError {
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Message(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(crate) fn no_such_key(name: &str) -> Self {
        Self::Message(format!("no such key: {name}").into())
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => f.write_str(message),
            Self::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

impl std::error::Error for EvalError {}

// === impl CompileError ===

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for CompileError {}
