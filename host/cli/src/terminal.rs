//! Formats output for people: colours only where they are wanted, numbers that can be compared.
//!
//! `anstream` leaves colours out unless the output is a terminal, and honours NO_COLOR and CLICOLOR_FORCE.

use std::io;
use std::process::ExitCode;
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use tollgate_admission::text::{Limit, one_line};

use super::USAGE;

/// Prints a line on standard output. The reader may stop at any line, as `head` does, without changing the exit code.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        $crate::terminal::written(writeln!(anstream::stdout(), $($argument)*));
    }};
}

/// Prints a line on standard error, for people.
macro_rules! tell {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _: std::io::Result<()> = writeln!(anstream::stderr(), $($argument)*);
    }};
}

pub(super) use {say, tell};

/// The first error of standard output. Both belong to the whole process.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Records an output error, such as a full disk. A closed pipe is no error: the reader has all that it wanted.
pub(super) fn written(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Only the first error is kept.
        let _: Result<(), io::Error> = LOST.set(error);
    }
}

/// Returns the exit code of the process: the command's own, unless output was lost. Partial output must not look
/// complete.
pub(super) fn exit_code(of_command: ExitCode) -> ExitCode {
    let Some(error) = LOST.get() else {
        return of_command;
    };
    tell!("tollgate: cannot write to standard output: {error}");
    ExitCode::from(USAGE)
}

/// For text that has to be found first.
pub(super) const STRONG: Style = Style::new().bold();
/// For text that can be skipped.
pub(super) const FAINT: Style = Style::new().dimmed();
/// For good results and for added lines.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// For bad results and for removed lines.
pub(super) const BAD: Style = AnsiColor::Red.on_default();
/// For text that deserves attention.
pub(super) const NOTABLE: Style = AnsiColor::Yellow.on_default();

/// Maximum length of a line, whatever a document or a plugin contains.
const LONGEST_LINE_BYTES: usize = 4096;

/// Returns the style for the result of a review or a call.
pub(super) fn style_of(ended: &str) -> Style {
    match ended {
        "denied" | "error" | "fault" | "overloaded" => BAD,
        "patched" | "changed" | "excepted" => NOTABLE,
        _ => GOOD,
    }
}

/// Returns outside text on one line, without terminal control sequences.
pub(super) fn plain(text: &str) -> String {
    one_line(text, Limit::Bytes(LONGEST_LINE_BYTES))
}

/// Returns an outside line like [`plain`], with the space that it begins with.
pub(super) fn plain_indented(line: &str) -> String {
    let text = line.trim_start();
    format!("{}{}", &line[..line.len() - text.len()], plain(text))
}

/// Formats the kind of a fault and its text. Most texts begin with the kind in words, which is left out.
pub(super) fn fault_text(kind: &str, text: &str) -> String {
    let words = kind.replace('-', " ");
    match text.strip_prefix(&words) {
        Some("") => kind.to_owned(),
        Some(rest) if rest.starts_with(": ") => format!("{kind}{rest}"),
        _ => format!("{kind}: {text}"),
    }
}

/// Formats a number such as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration such as `0.35 ms`, `12.3 ms` or `450 ms`.
pub(super) fn milliseconds(milliseconds: f64) -> String {
    let decimals = match milliseconds {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{milliseconds:.decimals$} ms")
}

/// Returns `namespace/name`, such as `shop/web`, or only the name if there is no namespace.
pub(super) fn full_name(namespace: Option<&str>, name: &str) -> String {
    let name = if name.is_empty() {
        "(no name yet)"
    } else {
        name
    };
    plain(&match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234), "1,234");
        assert_eq!(grouped(100_000_000), "100,000,000");
    }

    #[test]
    fn kind_of_fault_is_said_once() {
        for (kind, text, expected) in [
            (
                "out-of-fuel",
                "out of fuel: all of it",
                "out-of-fuel: all of it",
            ),
            ("trap", "trap", "trap"),
            ("trap", "trapped: here", "trap: trapped: here"),
            (
                "trap",
                "the plugin aborted: no",
                "trap: the plugin aborted: no",
            ),
            ("deadline", "deadline passed", "deadline: deadline passed"),
        ] {
            assert_eq!(fault_text(kind, text), expected);
        }
    }

    #[test]
    fn short_times_have_more_decimals() {
        assert_eq!(milliseconds(0.346), "0.35 ms");
        assert_eq!(milliseconds(12.34), "12.3 ms");
        assert_eq!(milliseconds(450.4), "450 ms");
    }

    #[test]
    fn replaces_terminal_control_characters() {
        assert_eq!(plain("a\u{1b}[31mb\nc"), "a [31mb c");
        assert_eq!(full_name(None, ""), "(no name yet)");
    }
}
