//! What people read: colours only where they are wanted, times in units that can be compared.
//!
//! `anstream` leaves colours out unless the output is a terminal, and honours NO_COLOR and CLICOLOR_FORCE.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

/// For headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// For what can be skipped.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// For what is as it should be, and for what was added.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// For what is not, and for what was removed.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// For what the user should notice.
pub(crate) const NOTABLE: Style = AnsiColor::Yellow.on_default();

/// What a terminal is wide by default, with room for an indentation.
const WIDTH: usize = 100;

/// A rule across the page with a title in it.
pub(crate) fn heading(title: &str) {
    let rest = WIDTH.saturating_sub(title.chars().count() + 4);
    anstream::println!("\n{STRONG}── {title} {}{STRONG:#}", "─".repeat(rest));
}

/// Text in lines of readable length, each behind `indentation`.
pub(crate) fn paragraph(indentation: &str, text: &str) {
    for line in wrapped(text, WIDTH.saturating_sub(indentation.len())) {
        anstream::println!("{indentation}{line}");
    }
}

/// Says that something shown is not what it should be.
pub(crate) fn problem(text: &str) {
    anstream::println!("  {BAD}✗ {text}{BAD:#}");
}

/// Says that a command did not do what it was asked.
pub(crate) fn failure(text: &str) {
    anstream::eprintln!("{BAD}xtask: {text}{BAD:#}");
}

/// `0.3 s`, `12.3 s`, `3 min 20 s`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let seconds = seconds.round();
    format!("{} min {:02} s", (seconds / 60.0).floor(), seconds % 60.0)
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
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

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_unit_that_fits() {
        assert_eq!(time(Duration::from_millis(340)), "0.3 s");
        assert_eq!(time(Duration::from_millis(59_940)), "59.9 s");
        assert_eq!(time(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(time(Duration::from_millis(119_700)), "2 min 00 s");
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234), "1,234");
        assert_eq!(grouped(100_000_000), "100,000,000");
    }

    #[test]
    fn no_word_is_lost_where_lines_are_broken() {
        assert_eq!(wrapped("a bb ccc dddddd", 4), ["a bb", "ccc", "dddddd"]);
    }
}
