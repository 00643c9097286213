//! Reads and writes amounts in their usual forms: `100M`, `32Mi`, `1m30s`.
//!
//! Counts and bytes follow Kubernetes' quantities. Durations follow Go's `time.ParseDuration`, because kube-apiserver
//! uses that format in `?timeout=`.

use std::fmt::Write as _;
use std::time::Duration;

const DECIMAL: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];
const BINARY: &[(&str, u64)] = &[
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// Longest duration. Go counts durations in signed 64-bit nanoseconds.
const LONGEST_NANOSECONDS: u128 = i64::MAX as u128;

/// The error for text that is not a duration in Go's syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number is missing.
    #[error("a duration is numbers with units, such as 500ms, 1.5s or 1m30s")]
    Malformed,
    /// A number has no unit: `ns`, `us`, `ms`, `s`, `m` or `h`.
    #[error(
        "every number of a duration needs one of the units ns, us, ms, s, m, h: write 10s, not 10"
    )]
    Unit,
    /// The duration is negative.
    #[error("a duration cannot be negative here")]
    Negative,
    /// The duration is longer than Go's longest, about 292 years.
    #[error("the duration is too long")]
    TooLong,
}

/// Reads a duration in Go's syntax, such as `10s`, `1.5s`, `1m30s` or `0`. Negative durations are refused.
///
/// # Errors
///
/// When the text is not such a duration.
pub fn parse_go_duration(text: &str) -> Result<Duration, DurationError> {
    let (text, negative) = match text.as_bytes().first() {
        Some(b'-') => (&text[1..], true),
        Some(b'+') => (&text[1..], false),
        _ => (text, false),
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(DurationError::Malformed);
    }
    let mut rest = text;
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len()),
        );
        let (unit, after) = after.split_at(
            after
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(after.len()),
        );
        let scale = match unit {
            "ns" => 1,
            // Both are the micro sign: U+00B5, and the Greek letter U+03BC.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ if number.is_empty() => return Err(DurationError::Malformed),
            _ => return Err(DurationError::Unit),
        };
        let (numerator, denominator) =
            scaled(number, scale).ok_or_else(|| too_long_or_malformed(number))?;
        nanoseconds += numerator / denominator;
        if nanoseconds > LONGEST_NANOSECONDS {
            return Err(DurationError::TooLong);
        }
        rest = after;
    }
    if negative && nanoseconds > 0 {
        return Err(DurationError::Negative);
    }
    // This cannot fail after the comparison above.
    u64::try_from(nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|_| DurationError::TooLong)
}

/// Writes a duration the way it is written in a configuration file.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".to_owned();
    }
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    match nanoseconds {
        0 if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        0 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        0 => format!("{seconds}s"),
        _ if nanoseconds.is_multiple_of(1_000_000) => format!("{}ms", duration.as_millis()),
        _ if nanoseconds.is_multiple_of(1_000) => format!("{}us", duration.as_micros()),
        _ => format!("{}ns", duration.as_nanos()),
    }
}

/// Reads a count such as `100M`, `5k` or `250`.
pub(crate) fn parse_count(text: &str) -> Option<u64> {
    parse_quantity(text, DECIMAL)
}

/// Writes a count with the largest suffix that keeps it exact.
#[must_use]
pub fn format_count(count: u64) -> String {
    format_quantity(count, DECIMAL)
}

/// Reads a number of bytes such as `32Mi`, `10M` or `65536`.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    parse_quantity(text, BINARY).or_else(|| parse_quantity(text, DECIMAL))
}

/// Writes a number of bytes with the largest binary suffix that keeps it exact.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    format_quantity(bytes, BINARY)
}

fn parse_quantity(text: &str, suffixes: &[(&str, u64)]) -> Option<u64> {
    let (number, suffix) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    );
    let (_, scale) = suffixes.iter().find(|(name, _)| *name == suffix)?;
    let (numerator, denominator) = scaled(number, u128::from(*scale))?;
    // A fraction of a byte is a mistake and is not rounded.
    if !numerator.is_multiple_of(denominator) {
        return None;
    }
    u64::try_from(numerator / denominator).ok()
}

fn format_quantity(value: u64, suffixes: &[(&str, u64)]) -> String {
    let best = suffixes
        .iter()
        .rev()
        .find(|(_, scale)| value >= *scale && value.is_multiple_of(*scale));
    let (suffix, scale) = best.copied().unwrap_or(("", 1));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write!(text, "{}{suffix}", value / scale);
    text
}

/// Returns a number such as `1.5` times the scale, as an exact fraction. None if it is not a number, or far too large.
fn scaled(number: &str, scale: u128) -> Option<(u128, u128)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // Further digits are smaller than a nanosecond, and smaller than a byte of a terabyte.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let denominator = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        u128::from(whole.parse::<u64>().ok()?)
    };
    let fraction: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    Some((
        (whole * denominator + fraction).checked_mul(scale)?,
        denominator,
    ))
}

fn too_long_or_malformed(number: &str) -> DurationError {
    let is_number =
        number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    if is_number {
        DurationError::TooLong
    } else {
        DurationError::Malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_durations_as_go_writes_them() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("0s", 0),
            ("-0", 0),
            ("5s", 5_000_000_000),
            ("30s", 30_000_000_000),
            ("+5s", 5_000_000_000),
            ("1478s", 1_478_000_000_000),
            ("5.0s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("1m30s", 90_000_000_000),
            ("3h30m", 12_600_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(
                parse_go_duration(text),
                Ok(Duration::from_nanos(nanoseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn rejects_durations_that_go_rejects() {
        for (text, error) in [
            ("", DurationError::Malformed),
            ("-", DurationError::Malformed),
            ("s", DurationError::Malformed),
            (".", DurationError::Unit),
            (".s", DurationError::Malformed),
            ("+.s", DurationError::Malformed),
            ("1.2.3s", DurationError::Malformed),
            (" 1s", DurationError::Malformed),
            ("soon", DurationError::Malformed),
            ("3", DurationError::Unit),
            ("1s5", DurationError::Unit),
            ("1 s", DurationError::Unit),
            ("1d", DurationError::Unit),
            ("1S", DurationError::Unit),
            ("1é", DurationError::Unit),
            ("-1s", DurationError::Negative),
            ("9223372036854775808ns", DurationError::TooLong),
            ("3000000h", DurationError::TooLong),
            ("99999999999999999999999h", DurationError::TooLong),
        ] {
            assert_eq!(parse_go_duration(text), Err(error), "{text}");
        }
    }

    #[test]
    fn accepts_counts_and_bytes_as_kubernetes_writes_them() {
        for (text, count) in [
            ("0", 0),
            ("250", 250),
            ("5k", 5_000),
            ("1.5k", 1_500),
            ("100M", 100_000_000),
        ] {
            assert_eq!(parse_count(text), Some(count), "{text}");
        }
        for (text, bytes) in [
            ("65536", 65_536),
            ("512Ki", 524_288),
            ("32Mi", 33_554_432),
            ("1.5Gi", 1_610_612_736),
            ("10M", 10_000_000),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn rejects_quantities_that_are_not_whole_or_not_numbers() {
        for text in [
            "",
            "M",
            "-1",
            "1.5",
            "1K",
            "1m",
            "1 M",
            "1e6",
            "1..5k",
            "99999999999999999999",
            "18446744073710M",
        ] {
            assert_eq!(parse_count(text), None, "{text}");
        }
        for text in ["32mi", "32MB", "0.3Ki", "Mi", "16777216Ti"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        assert_eq!(parse_count("1Mi"), None);
    }

    #[test]
    fn written_amounts_read_back_unchanged() {
        for count in [
            0,
            1,
            999,
            1_000,
            1_500,
            100_000_000,
            5_000_000_000,
            1_000_000_000_000,
        ] {
            assert_eq!(parse_count(&format_count(count)), Some(count));
        }
        for bytes in [0, 1, 1_023, 1_024, 40 << 20, 3 << 30, 1_000_000] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes));
        }
        for milliseconds in [0, 1, 250, 1_000, 1_500, 60_000, 90_000, 3_600_000] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse_go_duration(&format_duration(duration)), Ok(duration));
        }
    }
}
