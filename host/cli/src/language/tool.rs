//! Runs the languages' own tools. The author sees each command, and gets a hint if a tool is missing.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{anyhow, ensure};

use crate::terminal::{FAINT, plain, tell};

/// A tool of a language.
pub(super) struct Tool {
    /// The command with its arguments.
    pub(super) command: Command,
    /// The hint to print if the tool cannot be run.
    pub(super) install: &'static str,
}

// === impl Tool ===

impl Tool {
    /// Creates a tool that runs in the project's folder.
    pub(super) fn new(
        program: impl AsRef<std::ffi::OsStr>,
        folder: &Path,
        install: &'static str,
    ) -> Self {
        let mut command = Command::new(program);
        command.current_dir(folder).stdin(Stdio::null());
        Self { command, install }
    }

    pub(super) fn args<S: AsRef<std::ffi::OsStr>>(
        mut self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        self.command.args(arguments);
        self
    }

    pub(super) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Prints the command on standard error and runs it. The tool's standard error goes to the author unchanged.
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let typed = self.typed();
        tell!("{FAINT}$ {typed}{FAINT:#}");
        let status = self.command.stdout(Stdio::null()).status();
        let status = status.map_err(|error| self.missing(error))?;
        ensure!(
            status.success(),
            "`{typed}` failed with {status}; see its output above"
        );
        Ok(())
    }

    /// Prints the command and runs it, for a tool that writes errors to its standard output. If the tool fails, shows
    /// the output.
    pub(super) fn check(mut self) -> anyhow::Result<()> {
        let typed = self.typed();
        tell!("{FAINT}$ {typed}{FAINT:#}");
        let output = self.command.stderr(Stdio::inherit()).output();
        let Output { status, stdout, .. } = output.map_err(|error| self.missing(error))?;
        if !status.success() {
            for line in String::from_utf8_lossy(&stdout).lines() {
                tell!("{}", plain(line));
            }
        }
        ensure!(
            status.success(),
            "`{typed}` failed with {status}; see its output above"
        );
        Ok(())
    }

    /// Runs the tool and returns its standard output, or None if the tool fails.
    pub(super) fn ask(mut self) -> anyhow::Result<Option<String>> {
        let Output { status, stdout, .. } =
            self.command.output().map_err(|error| self.missing(error))?;
        let text = String::from_utf8_lossy(&stdout).trim().to_owned();
        Ok(status.success().then_some(text))
    }

    /// Returns whether the tool can be run successfully.
    pub(super) fn works(mut self) -> bool {
        let status = self
            .command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    fn missing(&self, error: std::io::Error) -> anyhow::Error {
        let program = self.command.get_program().to_string_lossy().into_owned();
        anyhow!(error).context(format!("cannot run {program}: {}", self.install))
    }

    fn typed(&self) -> String {
        let program = Path::new(self.command.get_program());
        let folder = self.command.get_current_dir().unwrap_or(Path::new(""));
        let program = program.strip_prefix(folder).unwrap_or(program);
        let words = std::iter::once(program.as_os_str()).chain(self.command.get_args());
        let words: Vec<String> = words.map(|word| plain(&word.to_string_lossy())).collect();
        words.join(" ")
    }
}

/// Returns whether a version such as `go1.24.3` or `v20.1` is at least the wanted one.
pub(super) fn is_at_least(version: &str, wanted: [u32; 2]) -> bool {
    let numbers = version.trim_start_matches(|first: char| !first.is_ascii_digit());
    let mut numbers = numbers
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_versions_as_numbers() {
        assert!(is_at_least("go1.24", [1, 24]));
        assert!(is_at_least("go1.100.2", [1, 24]));
        assert!(is_at_least("v20.20.2", [20, 0]));
        assert!(!is_at_least("3.9.2", [3, 11]));
        assert!(!is_at_least("go1.9rc1", [1, 24]));
        assert!(!is_at_least("", [1, 0]));
    }

    #[test]
    fn says_how_to_install_missing_tool() {
        let tool = Tool::new(
            "none-such",
            Path::new("."),
            "install it: https://example.com",
        );
        let error = format!("{:#}", tool.run().unwrap_err());
        assert!(
            error.starts_with("cannot run none-such: install it: https://example.com: "),
            "{error}"
        );
    }
}
