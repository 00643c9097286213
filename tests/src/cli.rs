//! Runs the `tollgate` binary to its end, and keeps what it has said.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::binary;

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code. None if a signal has ended the command.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

/// Returns the binary with its first arguments, to which more can be added.
#[must_use]
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::tollgate());
    command.args(arguments);
    command
}

/// Runs a command without input.
///
/// # Panics
/// Panics if the command cannot be run.
pub fn run(command: &mut Command) -> Ran {
    run_with(command, "")
}

/// Runs a command with this standard input, and prints what it has said.
///
/// # Panics
/// Panics if the command cannot be run.
pub fn run_with(command: &mut Command, stdin: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    let mut input = child.stdin.take().expect("standard input was asked for");
    // A command that has found an error need not have read all of its input.
    let _: std::io::Result<()> = input.write_all(stdin.as_bytes());
    drop(input);
    let output = child.wait_with_output();
    let output = output.unwrap_or_else(|error| panic!("tollgate did not end: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    let typed: Vec<_> = arguments.collect();
    println!(
        "tollgate {}: {:?}\n{}",
        typed.join(" "),
        ran.code,
        ran.said()
    );
    ran
}

// === impl Ran ===

impl Ran {
    /// Returns the standard output, and the standard error after it.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Checks the exit code, and that the command has said these words.
    ///
    /// # Panics
    /// Panics if it has not.
    #[track_caller]
    pub fn assert(&self, code: i32, words: &[&str]) {
        let said = self.said();
        assert_eq!(self.code, Some(code), "{said}");
        for word in words {
            assert!(said.contains(word), "`{word}` is not in:\n{said}");
        }
    }

    /// Checks the same, and that there is neither a panic nor an escape code.
    ///
    /// # Panics
    /// Panics if it is otherwise.
    #[track_caller]
    pub fn assert_clean(&self, code: i32, words: &[&str]) {
        self.assert(code, words);
        let said = self.said();
        let is_clean = !said.contains("panicked") && !said.contains('\u{1b}');
        assert!(is_clean, "{said}");
    }

    /// Returns the standard output as JSON.
    ///
    /// # Panics
    /// Panics if it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}:\n{}", self.said()))
    }
}
