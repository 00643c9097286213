//! Output for people: colours only where they are wanted, and times in comparable units.
//!
//! `anstream` omits colours unless the output is a terminal, and honours NO_COLOR and CLICOLOR_FORCE.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

/// Style of headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// Style of text that can be skipped.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Style of correct results and added lines.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of wrong results and removed lines.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Style of text that the user should notice.
pub(crate) const NOTABLE: Style = AnsiColor::Yellow.on_default();

/// Width of the text, including the indentation.
const WIDTH: usize = 100;

/// Prints a horizontal rule with a title.
pub(crate) fn heading(title: &str) {
    let rest = WIDTH.saturating_sub(title.chars().count() + 4);
    anstream::println!("\n{STRONG}── {title} {}{STRONG:#}", "─".repeat(rest));
}

/// Prints text in lines of readable length, each after `indentation`.
pub(crate) fn paragraph(indentation: &str, text: &str) {
    for line in wrapped(text, WIDTH.saturating_sub(indentation.len())) {
        anstream::println!("{indentation}{line}");
    }
}

/// Prints a wrong property of something shown.
pub(crate) fn problem(text: &str) {
    anstream::println!("  {BAD}✗ {text}{BAD:#}");
}

/// Prints that a command failed.
pub(crate) fn failure(text: &str) {
    anstream::eprintln!("{BAD}xtask: {text}{BAD:#}");
}

/// Formats a duration: `0.3 s`, `12.3 s`, `3 min 20 s`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let seconds = seconds.round();
    format!("{} min {:02} s", (seconds / 60.0).floor(), seconds % 60.0)
}

/// Formats a number: `1,234,567`.
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
    fn formats_times_in_fitting_unit() {
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
    fn keeps_all_words_when_breaking_lines() {
        assert_eq!(wrapped("a bb ccc dddddd", 4), ["a bb", "ccc", "dddddd"]);
    }
}
