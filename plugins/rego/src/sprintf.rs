//! `sprintf` as Go formats: a verb without an argument, or with one of another type, is text and no error.
//!
//! regorus ends the evaluation in these cases. OPA writes `%!d(MISSING)`, and templates in use depend on it.

use regorus::Value;

use crate::numbers::shortest;

/// Formats like OPA's `sprintf`. Undefined where the arguments are not a string and a list.
pub(crate) fn sprintf(mut arguments: Vec<Value>) -> Value {
    let (Some(values), Some(format)) = (arguments.pop(), arguments.pop()) else {
        return Value::Undefined;
    };
    let (Ok(format), Ok(values)) = (format.as_string(), values.as_array()) else {
        return Value::Undefined;
    };
    let values: Vec<Value> = values.iter().cloned().collect();
    Value::from(formatted(format, &values))
}

/// The flags, width and precision of a verb.
#[derive(Default)]
struct Spec {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// The largest width and precision. A template must not fill the memory with spaces.
const WIDEST: usize = 1024;

fn formatted(format: &str, values: &[Value]) -> String {
    let mut out = String::with_capacity(format.len());
    let mut next = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (spec, after) = Spec::read(&rest[at + 1..]);
        let Some(verb) = after.chars().next() else {
            out.push_str("%!(NOVERB)");
            rest = "";
            break;
        };
        rest = &after[verb.len_utf8()..];
        if verb == '%' {
            out.push('%');
            continue;
        }
        match values.get(next) {
            Some(value) => spec.write(verb, value, &mut out),
            None => out.push_str(&format!("%!{verb}(MISSING)")),
        }
        next += 1;
    }
    out.push_str(rest);
    if let Some(extra) = values.get(next..).filter(|extra| !extra.is_empty()) {
        let extra: Vec<String> = extra.iter().map(typed).collect();
        out.push_str(&format!("%!(EXTRA {})", extra.join(", ")));
    }
    out
}

/// Writes a value as `%v` does: a string without quotes at the top, and with quotes inside of a list.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Number(number) if !number.is_integer() => number
            .as_f64()
            .map_or_else(|| number.format_decimal(), shortest),
        other => nested(other),
    }
}

fn nested(value: &Value) -> String {
    let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(", ");
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(boolean) => boolean.to_string(),
        Value::Number(number) => number.format_decimal(),
        Value::String(text) => serde_json::Value::from(&**text).to_string(),
        Value::Array(elements) => format!("[{}]", list(&mut elements.iter().map(nested))),
        Value::Set(elements) if elements.is_empty() => "set()".to_owned(),
        Value::Set(elements) => format!("{{{}}}", list(&mut elements.iter().map(nested))),
        Value::Object(members) => {
            let mut members = members
                .iter_sorted()
                .map(|(key, value)| format!("{}: {}", nested(key), nested(value)));
            format!("{{{}}}", list(&mut members))
        }
        Value::Undefined => String::new(),
    }
}

/// Writes a value with the type that Go's OPA hands to its formatter.
fn typed(value: &Value) -> String {
    let kind = match value {
        Value::Number(number) if number.is_integer() => "int",
        Value::Number(_) => "float64",
        _ => "string",
    };
    format!("{kind}={}", plain(value))
}

// === impl Spec ===

impl Spec {
    fn read(text: &str) -> (Self, &str) {
        let mut spec = Self::default();
        let mut rest = text;
        while let Some(flag) = rest.chars().next() {
            match flag {
                '-' => spec.minus = true,
                '+' => spec.plus = true,
                '#' => spec.sharp = true,
                ' ' => spec.space = true,
                '0' => spec.zero = true,
                _ => break,
            }
            rest = &rest[1..];
        }
        (spec.width, rest) = digits(rest);
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = digits(after);
            (spec.precision, rest) = (Some(precision), after);
        }
        (spec, rest)
    }

    fn write(&self, verb: char, value: &Value, out: &mut String) {
        let integer = match value {
            Value::Number(number) if number.is_integer() => number.as_i128(),
            _ => None,
        };
        let number = match value {
            Value::Number(number) => number.as_f64(),
            _ => None,
        };
        let text = match (verb, integer, number) {
            ('v' | 's', _, _) if !value_is_number_for(verb, value) => self.cut(plain(value)),
            ('v', _, _) => self.signed(plain(value)),
            ('d', Some(integer), _) => self.signed(integer.to_string()),
            ('b', Some(integer), _) => self.based(integer, "0b", |n| format!("{n:b}")),
            ('o', Some(integer), _) => self.based(integer, "0", |n| format!("{n:o}")),
            ('O', Some(integer), _) => format!("0o{integer:o}"),
            ('x', Some(integer), _) => self.based(integer, "0x", |n| format!("{n:x}")),
            ('X', Some(integer), _) => self.based(integer, "0X", |n| format!("{n:X}")),
            ('c', Some(integer), _) => u32::try_from(integer)
                .ok()
                .and_then(char::from_u32)
                .unwrap_or(char::REPLACEMENT_CHARACTER)
                .to_string(),
            ('f' | 'F', None, Some(number)) => {
                let precision = self.precision.unwrap_or(6);
                self.signed(format!("{number:.precision$}"))
            }
            ('e' | 'E', None, Some(number)) => self.signed(self.scientific(verb, number)),
            ('g' | 'G', None, Some(number)) => self.signed(number.to_string()),
            ('q', _, _) if !matches!(value, Value::Number(_)) => {
                serde_json::Value::from(plain(value)).to_string()
            }
            ('x' | 'X', _, _) if !matches!(value, Value::Number(_)) => hex(&plain(value), verb),
            ('T', _, _) => typed(value)
                .split_once('=')
                .map_or_else(String::new, |(kind, _)| kind.to_owned()),
            _ => format!("%!{verb}({})", typed(value)),
        };
        self.pad(&text, out);
    }

    /// Cuts a string to the precision.
    fn cut(&self, text: String) -> String {
        match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        }
    }

    fn signed(&self, text: String) -> String {
        match text.starts_with('-') {
            false if self.plus => format!("+{text}"),
            false if self.space => format!(" {text}"),
            _ => text,
        }
    }

    fn based(&self, integer: i128, prefix: &str, digits: impl Fn(u128) -> String) -> String {
        let sign = if integer < 0 { "-" } else { "" };
        let prefix = if self.sharp { prefix } else { "" };
        self.signed(format!("{sign}{prefix}{}", digits(integer.unsigned_abs())))
    }

    fn scientific(&self, verb: char, number: f64) -> String {
        let precision = self.precision.unwrap_or(6);
        let text = format!("{number:.precision$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        format!("{mantissa}{verb}{sign}{exponent:0>2}")
    }

    fn pad(&self, text: &str, out: &mut String) {
        let missing = self.width.saturating_sub(text.chars().count());
        match (self.minus, self.zero) {
            (true, _) => {
                out.push_str(text);
                out.extend(std::iter::repeat_n(' ', missing));
            }
            (false, true) => {
                let (sign, digits) = match text.strip_prefix(['-', '+']) {
                    Some(digits) => text.split_at(text.len() - digits.len()),
                    None => ("", text),
                };
                out.push_str(sign);
                out.extend(std::iter::repeat_n('0', missing));
                out.push_str(digits);
            }
            (false, false) => {
                out.extend(std::iter::repeat_n(' ', missing));
                out.push_str(text);
            }
        }
    }
}

/// Whether the verb writes the value as a number. `%s` of a number is a wrong type for Go.
fn value_is_number_for(verb: char, value: &Value) -> bool {
    matches!(value, Value::Number(_)) && matches!(verb, 'v' | 's')
}

fn digits(text: &str) -> (usize, &str) {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let number = text[..end].parse().unwrap_or(0);
    (usize::min(number, WIDEST), &text[end..])
}

fn hex(text: &str, verb: char) -> String {
    let byte = |byte: u8| match verb {
        'X' => format!("{byte:02X}"),
        _ => format!("{byte:02x}"),
    };
    text.bytes().map(byte).collect()
}
