//! Runs kubectl, and returns its output.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::ADMIN_TOKEN;

/// A command that has not run yet.
#[derive(Debug)]
pub struct Kubectl {
    command: Command,
    typed: String,
    input: Option<String>,
}

/// A command that has run: what the user typed and saw.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
    typed: String,
}

/// Creates the file that tells kubectl the address of kube-apiserver.
pub(super) fn kubeconfig(url: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: suite
contexts: [{{ name: suite, context: {{ cluster: suite, user: administrator }} }}]
clusters: [{{ name: suite, cluster: {{ server: {url}, certificate-authority: ca.crt }} }}]
users: [{{ name: administrator, user: {{ token: {ADMIN_TOKEN} }} }}]
"
    )
}

// === impl Kubectl ===

impl Kubectl {
    pub(super) fn new(program: &Path, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("KUBECACHEDIR", folder.join("cache"))
            .env("HOME", folder)
            .stdin(Stdio::null());
        Self {
            command,
            typed: format!("kubectl {}", arguments.join(" ")),
            input: None,
        }
    }

    /// Passes a document on standard input. The arguments must include `-f -`.
    #[must_use]
    pub fn input(mut self, document: &Value) -> Self {
        self.input = Some(document.to_string());
        self
    }

    /// Passes text on standard input.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.input = Some(text.to_owned());
        self
    }

    /// Runs the command.
    ///
    /// # Panics
    /// Panics if the command cannot be run.
    #[must_use]
    pub fn run(mut self) -> Printed {
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be run: {error}", self.typed));
        if let (Some(input), Some(mut stdin)) = (self.input, child.stdin.take()) {
            // kubectl reads all of its input before it prints anything. On an error, the exit code tells enough.
            let _: std::io::Result<()> = stdin.write_all(input.as_bytes());
        }
        let output = child
            .wait_with_output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.typed));
        Printed {
            code: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
            typed: self.typed,
        }
    }

    /// Runs the command and returns its standard output.
    ///
    /// # Panics
    /// Panics if the command fails.
    #[track_caller]
    pub fn succeed(self) -> String {
        let printed = self.run();
        assert!(printed.succeeded(), "{printed}");
        printed.output
    }
}

impl From<Kubectl> for Command {
    fn from(kubectl: Kubectl) -> Self {
        kubectl.command
    }
}

// === impl Printed ===

impl Printed {
    /// Whether kubectl reports success.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Checks that the command failed with some words on standard error.
    ///
    /// # Panics
    /// Panics if it did not.
    #[track_caller]
    pub fn assert_failed(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{self}");
        for word in words {
            assert!(self.errors.contains(word), "`{word}` is not in:\n{self}");
        }
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$ {}\n{}{}", self.typed, self.output, self.errors)?;
        match self.code {
            Some(0) => Ok(()),
            Some(code) => write!(f, "(exit code {code})"),
            None => write!(f, "(ended by a signal)"),
        }
    }
}
