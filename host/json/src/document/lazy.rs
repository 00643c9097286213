//! Checks a text and finds its containers, in one pass and without building anything.
//!
//! The pass accepts a text only if [`parse`](super::parse) would accept it. Whatever it does not accept goes to
//! [`parse`](super::parse), which says what is wrong.

use std::sync::Arc;

use bytes::Bytes;

use super::index::{Container, Index, Open};
use super::level::Level;
use super::parse::{MAX_VALUES, ParseError, ParseErrorKind, parse_within};
use super::room::{self, Meter};
use super::scan::Window;
use super::{Account, Json, NoRoom};

/// Like [`parse_within`], but builds a container only when it is read. The document keeps `text` in memory.
///
/// The account is charged for the whole document at once, as if everything were built. So reading it later needs no
/// further memory, and whether a text is accepted does not depend on what is read. The memory of `text` itself is the
/// caller's matter.
///
/// A container with very many values is built at once, with those around it. So no later read takes long.
///
/// # Errors
/// When [`parse_within`] refuses the text.
pub fn index_within(text: &Bytes, max_depth: u32, account: &Account) -> Result<Json, ParseError> {
    if text.len() > LONGEST_BYTES {
        return parse_within(text, max_depth, account);
    }
    let mut pass = Pass::new(text, max_depth, account);
    match pass.document() {
        Ok(is_object) => {
            let index = Index::new(text.clone(), pass.containers);
            let document = match is_object {
                true => Json::Object(Arc::new(Level::unbuilt(&index, 0))),
                false => Json::Array(Arc::new(Level::unbuilt(&index, 0))),
            };
            if pass.is_wide {
                let wide: Vec<u32> = index.wider_than(MOST_LATER_VALUES).collect();
                build_around(&document, &wide);
            }
            Ok(document)
        }
        Err(refused) => {
            pass.meter.undo();
            drop(pass);
            match refused {
                Refused::NoRoom(no_room) => Err(ParseError {
                    kind: ParseErrorKind::NoRoom(no_room),
                    offset: 0,
                }),
                Refused::Unclear => parse_within(text, max_depth, account),
            }
        }
    }
}

/// Memory of the index itself.
const INDEX_BYTES: u64 = room::block(room::COUNTERS + size_of::<Index>());
/// Longest text with an index. Places in it fit into 32 bits.
const LONGEST_BYTES: usize = 1 << 30;
/// Longest number in a text with an index.
const LONGEST_NUMBER_BYTES: usize = 4_000;
/// The memory for resolving the escapes of a shorter string is not accounted for.
const ESCAPES_BYTES: usize = 16 << 10;

/// A container with more values is built at once. The caller may have moved other work out of the way for the pass, which
/// it does not do for a read.
const MOST_LATER_VALUES: usize = 4_096;

enum Refused {
    /// The text is not JSON, exceeds a limit, or is too unusual.
    Unclear,
    NoRoom(NoRoom),
}

/// What the pass reads next.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Next {
    /// A value.
    Value,
    /// What comes after a value.
    End,
}

struct Pass<'t> {
    text: &'t [u8],
    max_depth: u32,
    containers: Vec<Container>,
    /// Memory of everything when it is built.
    bytes: u64,
    /// The last place at which something is written as the host would not write it.
    last_loose: u32,
    /// Whether a container has so many values that it is built at once.
    is_wide: bool,
    window: Window,
    meter: Meter<'t>,
}

// === impl Pass ===

impl<'t> Pass<'t> {
    fn new(text: &'t [u8], max_depth: u32, account: &'t Account) -> Self {
        Self {
            text,
            max_depth,
            containers: Vec::new(),
            bytes: 0,
            last_loose: 0,
            is_wide: false,
            window: Window::NONE,
            meter: Meter::new(account),
        }
    }

    /// Reads the whole text. Returns whether it is an object.
    ///
    /// White space is rare, so it is only looked for where nothing else fits.
    fn document(&mut self) -> Result<bool, Refused> {
        let text = self.text;
        // Most reviews have one container in 80 bytes, or fewer.
        self.reserve((text.len() / 80 + 16).min(MAX_VALUES as usize))?;
        let mut at = self.space(0);
        let is_object = byte(text, at) == b'{';
        if !is_object && byte(text, at) != b'[' {
            return Err(Refused::Unclear);
        }
        let mut here = Open::default();
        let mut depth = 0;
        let mut all_values: u32 = 0;
        let mut next = Next::Value;
        'value: loop {
            if next == Next::Value {
                let first = byte(text, at);
                match first {
                    b'"' => at = self.string(at),
                    b'{' | b'[' => {
                        if depth == self.max_depth {
                            return Err(Refused::Unclear);
                        }
                        let start = at;
                        let is_object = first == b'{';
                        at += 1;
                        // The closing bracket is two after the opening one in ASCII.
                        let close = first + 2;
                        let mut after = byte(text, at);
                        if after <= b' ' {
                            at = self.space(at);
                            after = byte(text, at);
                        }
                        let mut values = 0;
                        if after != close {
                            let mut then = Next::Value;
                            if is_object {
                                (at, then) = self.members(at, &mut values)?;
                            }
                            if then == Next::Value || byte(text, at) != close {
                                depth += 1;
                                here = self.open(here, start, close, values)?;
                                next = then;
                                continue;
                            }
                            values += 1;
                        }
                        // Nothing is inside but strings, or nothing at all.
                        at += 1;
                        self.add(start, at, close, values)?;
                        all_values += values;
                        if depth == 0 {
                            break 'value;
                        }
                    }
                    b' ' | b'\t' | b'\n' | b'\r' => {
                        at = self.space(at);
                        continue;
                    }
                    _ => at = self.other(at)?,
                }
            }
            next = Next::Value;
            loop {
                here.values += 1;
                let mut after = byte(text, at);
                if !matches!(after, b',' | b'}' | b']') {
                    at = self.space(at);
                    after = byte(text, at);
                }
                at += 1;
                if after == b',' {
                    if here.close == b'}' {
                        (at, next) = self.members(at, &mut here.values)?;
                    }
                    continue 'value;
                }
                if after != here.close {
                    return Err(Refused::Unclear);
                }
                all_values += here.values;
                here = self.close(here, at);
                depth -= 1;
                if depth == 0 {
                    break 'value;
                }
            }
        }
        if all_values >= MAX_VALUES {
            return Err(Refused::Unclear);
        }
        if self.space(at) != text.len() {
            return Err(Refused::Unclear);
        }
        // Outside of strings, only ASCII fits.
        if self.window.has_seen_beyond_ascii() && str::from_utf8(text).is_err() {
            return Err(Refused::Unclear);
        }
        self.meter
            .take(INDEX_BYTES + Index::repeating_bytes(self.containers.len()) + self.bytes)
            .map_err(Refused::NoRoom)?;
        Ok(is_object)
    }

    /// Begins a container inside of `outer`.
    #[inline(always)]
    fn open(&mut self, outer: Open, at: usize, close: u8, values: u32) -> Result<Open, Refused> {
        let container = self.push(Container::begin(at as u32, outer))?;
        Ok(Open {
            container,
            values,
            close,
        })
    }

    /// Ends a container. Returns the one around it.
    #[inline(always)]
    fn close(&mut self, inner: Open, end: usize) -> Open {
        self.charge(inner.close, inner.values);
        let next = self.containers.len() as u32;
        let container = &mut self.containers[inner.container as usize];
        container.end(end as u32, next, inner.values, self.last_loose)
    }

    /// Adds a container without any container inside.
    #[inline(always)]
    fn add(&mut self, start: usize, end: usize, close: u8, values: u32) -> Result<(), Refused> {
        self.charge(close, values);
        let next = self.containers.len() as u32 + 1;
        let (start, end) = (start as u32, end as u32);
        self.push(Container::ended(start, end, next, values, self.last_loose))?;
        Ok(())
    }

    /// Charges for building a container with this closing bracket.
    #[inline(always)]
    fn charge(&mut self, close: u8, values: u32) {
        let length = values as usize;
        self.bytes += match close {
            b'}' => room::object_of(length),
            _ => room::array_of(length),
        };
        if length > MOST_LATER_VALUES {
            self.is_wide = true;
        }
    }

    #[inline(always)]
    fn push(&mut self, container: Container) -> Result<u32, Refused> {
        let count = self.containers.len();
        if count == self.containers.capacity() {
            // Each container is a value.
            if count >= MAX_VALUES as usize {
                return Err(Refused::Unclear);
            }
            self.reserve((2 * count).min(MAX_VALUES as usize))?;
        }
        self.containers.push(container);
        Ok(count as u32)
    }

    /// Reads members from the beginning of a name on: all whose values are strings, and the name of the next one. Returns the
    /// place at which it stopped, and what comes there.
    ///
    /// Most members of a review are such strings, and the host writes nothing between them. The registers of the processor
    /// suffice for this loop.
    #[inline(always)]
    fn members(&mut self, mut at: usize, values: &mut u32) -> Result<(usize, Next), Refused> {
        let text = self.text;
        if byte(text, at) != b'"' {
            return Ok((self.name(at)?, Next::Value));
        }
        let mut bytes = 0;
        let mut count = 0;
        let mut number = self.window.seek(at);
        let next = loop {
            let Some([start, end, value_start, value_end]) = self.window.four(number) else {
                break None;
            };
            if start != at {
                break None;
            }
            let Some([b'"', b':', first]) = three(text, end) else {
                break None;
            };
            bytes += room::text(end - at - 1);
            at = end + 2;
            number += 2;
            if *first != b'"' || value_start != at {
                break Some(Next::Value);
            }
            let Some([b'"', after, then]) = three(text, value_end) else {
                break Some(Next::Value);
            };
            bytes += room::text(value_end - at - 1);
            at = value_end + 1;
            number += 2;
            if [*after, *then] != [b',', b'"'] {
                break Some(Next::End);
            }
            count += 1;
            at += 1;
        };
        self.window.go_on(number);
        *values += count;
        self.bytes += bytes;
        match next {
            Some(next) => Ok((at, next)),
            None => Ok((self.name(at)?, Next::Value)),
        }
    }

    /// Reads a name and the colon after it. Returns the place after that.
    #[inline(always)]
    fn name(&mut self, mut at: usize) -> Result<usize, Refused> {
        if byte(self.text, at) != b'"' {
            at = self.space(at);
            if byte(self.text, at) != b'"' {
                return Err(Refused::Unclear);
            }
        }
        at = self.string(at);
        if byte(self.text, at) != b':' {
            at = self.space(at);
            if byte(self.text, at) != b':' {
                return Err(Refused::Unclear);
            }
        }
        Ok(at + 1)
    }

    /// Reads the string at this place. Returns the place after it. If the string does not end, that is beyond the end
    /// of the text, where nothing fits.
    #[inline(always)]
    fn string(&mut self, at: usize) -> usize {
        let mut end = self.window.plain_end(self.text, at + 1);
        if byte(self.text, end) != b'"' {
            end = self.string_with_escapes(at, end);
        }
        self.bytes += room::text(end - at - 1);
        end + 1
    }

    /// Reads on at a byte of a string that is not plain. Returns the place of the closing quote, or the end of the text.
    #[cold]
    fn string_with_escapes(&mut self, start: usize, mut end: usize) -> usize {
        let text = self.text;
        while let Some(b'\\') = text.get(end) {
            let Some((length, is_usual)) = escape(&text[end..]) else {
                return text.len();
            };
            if !is_usual {
                self.last_loose = end as u32;
            }
            end = self.window.plain_end(text, end + length);
        }
        if byte(text, end) != b'"' {
            return text.len();
        }
        if end - start > ESCAPES_BYTES {
            // A buffer that grew to twice the length, and a copy.
            self.bytes += 2 * room::block(end - start);
        }
        end
    }

    /// Reads a value that is neither a string nor a container. Returns the place after it.
    #[inline(never)]
    fn other(&mut self, at: usize) -> Result<usize, Refused> {
        let rest = self.text.get(at..).unwrap_or_default();
        for literal in ["null", "true", "false"] {
            if rest.starts_with(literal.as_bytes()) {
                return Ok(at + literal.len());
            }
        }
        let (length, is_integer) = number(rest).ok_or(Refused::Unclear)?;
        if length > LONGEST_NUMBER_BYTES {
            return Err(Refused::Unclear);
        }
        // A longer integer may not fit into 64 bits.
        if !is_integer || length > 18 {
            self.bytes += room::text(length);
        }
        Ok(at + length)
    }

    /// Skips white space, which the host does not write.
    #[cold]
    #[inline(never)]
    fn space(&mut self, mut at: usize) -> usize {
        while matches!(byte(self.text, at), b' ' | b'\t' | b'\n' | b'\r') {
            self.last_loose = at as u32;
            at += 1;
        }
        at
    }

    /// Accounts for more containers before there is memory for them.
    #[cold]
    fn reserve(&mut self, capacity: usize) -> Result<(), Refused> {
        let bytes = |capacity: usize| match capacity {
            0 => 0,
            _ => room::block(capacity * size_of::<Container>()),
        };
        let now = self.containers.capacity();
        self.meter.take(bytes(capacity)).map_err(Refused::NoRoom)?;
        self.containers
            .reserve_exact(capacity - self.containers.len());
        self.meter.give_back(bytes(now));
        Ok(())
    }
}

/// Builds the containers with these positions in the text, and those around them. All of them are in `json`.
fn build_around(json: &Json, positions: &[u32]) {
    if positions.is_empty() {
        return;
    }
    let inner = |value: &Json| {
        let Some(inside) = value.unbuilt_range() else {
            return;
        };
        let from = positions.partition_point(|position| *position < inside.start);
        let to = positions.partition_point(|position| *position < inside.end);
        build_around(value, &positions[from..to]);
    };
    match json {
        Json::Array(elements) => elements.iter().for_each(inner),
        Json::Object(members) => members.values().for_each(inner),
        _ => {}
    }
}

/// Returns the byte at this place. There is no zero byte outside of strings, so it stands for the end.
#[inline(always)]
fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or_default()
}

/// Returns the three bytes from this place on.
#[inline(always)]
fn three(text: &[u8], at: usize) -> Option<&[u8; 3]> {
    text.get(at..at.wrapping_add(3))?.first_chunk()
}

/// Reads an escape. Returns its length, and whether [`Json::write`] would write it so.
fn escape(text: &[u8]) -> Option<(usize, bool)> {
    match text.get(1)? {
        b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => Some((2, true)),
        b'/' => Some((2, false)),
        b'u' => match unit(text)? {
            0xdc00..=0xdfff => None,
            0xd800..=0xdbff => {
                let second = unit(text.get(6..)?)?;
                matches!(second, 0xdc00..=0xdfff).then_some((12, false))
            }
            unit => {
                let has_short_form = matches!(unit, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d);
                let is_lower_case = !text[2..6].iter().any(u8::is_ascii_uppercase);
                Some((6, unit < 0x20 && !has_short_form && is_lower_case))
            }
        },
        _ => None,
    }
}

/// Reads `\u` and four hexadecimal digits.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

/// Reads a number. Returns its length, and whether it is a canonical integer.
fn number(text: &[u8]) -> Option<(usize, bool)> {
    let digits = |from: usize| {
        let rest = text.get(from..)?;
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then_some(from + count)
    };
    let is_negative = text.first() == Some(&b'-');
    let start = usize::from(is_negative);
    let is_zero = byte(text, start) == b'0';
    let whole = if is_zero { start + 1 } else { digits(start)? };
    let mut end = whole;
    if byte(text, end) == b'.' {
        end = digits(end + 1)?;
    }
    if matches!(byte(text, end), b'e' | b'E') {
        let is_signed = matches!(byte(text, end + 1), b'+' | b'-');
        end = digits(end + 1 + usize::from(is_signed))?;
    }
    Some((end, end == whole && !(is_negative && is_zero)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the pass over a text that it accepts. Returns the text of each container, and whether it is loose.
    fn containers(text: &str) -> Vec<(&str, bool)> {
        let account = Account::unlimited();
        let mut pass = Pass::new(text.as_bytes(), 128, &account);
        assert!(pass.document().is_ok(), "{text}");
        let containers = pass.containers.iter();
        let text_of =
            |container: &Container| &text[container.start as usize..container.end as usize];
        containers
            .map(|container| (text_of(container), container.is_loose()))
            .collect()
    }

    #[test]
    fn containers_are_loose_if_something_inside_is() {
        let text = r#" {"a":[1],"b":[ 2],"c":["\/"],"d":{"e":"f"},"g":[{}, 3],"h":{ },"i":{"j" :"k"},"l":[]} "#;
        let loose = [
            (&text[1..text.len() - 1], true),
            ("[1]", false),
            ("[ 2]", true),
            (r#"["\/"]"#, true),
            (r#"{"e":"f"}"#, false),
            ("[{}, 3]", true),
            ("{}", false),
            ("{ }", true),
            (r#"{"j" :"k"}"#, true),
            ("[]", false),
        ];
        assert_eq!(containers(text), loose);
        assert_eq!(containers(r#" {"a":"b"} "#), [(r#"{"a":"b"}"#, false)]);
        assert_eq!(containers(r#"{"a":"b" }"#), [(r#"{"a":"b" }"#, true)]);
    }

    /// Objects of strings are read in another way than the others, as long as the window of the scan reaches.
    #[test]
    fn objects_at_the_end_of_a_window_are_found() {
        let objects = r#"{"a":"b","cd":"ef"},{"g":"h"},{},{"i":[]},{"j":"k"}"#;
        let expected = [
            "{\"a\":\"b\",\"cd\":\"ef\"}",
            "{\"g\":\"h\"}",
            "{}",
            "{\"i\":[]}",
            "[]",
            "{\"j\":\"k\"}",
        ];
        // The first window is dense, so that the places of a second one do not reach as far.
        for dense in [0, 100, 250] {
            for length in 900 - 3 * dense..1_100 - 3 * dense {
                let dense = "\"\",".repeat(dense);
                let text = format!("[{dense}\"{}\",{objects}]", "x".repeat(length));
                let found: Vec<&str> = containers(&text)[1..]
                    .iter()
                    .map(|(text, _)| *text)
                    .collect();
                assert_eq!(found, expected, "{text}");
            }
        }
    }

    #[test]
    fn index_has_no_more_containers_than_a_document_may_have_values() {
        let text = format!("[{}0]", "[0],".repeat(2_500_000));
        let account = Account::unlimited();
        let mut pass = Pass::new(text.as_bytes(), 128, &account);
        assert!(matches!(pass.document(), Err(Refused::Unclear)));
        assert!(pass.containers.capacity() <= MAX_VALUES as usize);
    }
}
