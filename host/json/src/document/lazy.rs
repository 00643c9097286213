//! Checks a text and finds its containers, in one pass and without building anything.
//!
//! The pass accepts a text only if [`parse`](super::parse) would accept it. Whatever it does not accept goes to
//! [`parse`](super::parse), which says what is wrong.

use std::sync::Arc;

use bytes::Bytes;

use super::index::{Container, Index};
use super::level::Level;
use super::names::{Names, Seen};
use super::parse::{MAX_VALUES, ParseError, ParseErrorKind, parse_within};
use super::room::{self, Meter};
use super::scan::plain_end;
use super::{Account, Json, NoRoom};

/// Like [`parse_within`], but builds a container only when it is read. The document keeps `text` in memory.
///
/// The account is charged for the whole document at once, as if everything were built. So reading it later needs no
/// further memory, and whether a text is accepted does not depend on what is read. The memory of `text` itself is the
/// caller's matter.
///
/// # Errors
/// When [`parse_within`] refuses the text.
pub fn index_within(text: &Bytes, max_depth: u32, account: &Account) -> Result<Json, ParseError> {
    if text.len() > LONGEST_BYTES || std::str::from_utf8(text).is_err() {
        return parse_within(text, max_depth, account);
    }
    let mut pass = Pass::new(text, max_depth, account);
    match pass.document() {
        Ok(()) => Ok(pass.finish(text)),
        Err(refused) => {
            let offset = pass.at;
            pass.meter.undo();
            drop(pass);
            match refused {
                Refused::NoRoom(no_room) => Err(ParseError {
                    kind: ParseErrorKind::NoRoom(no_room),
                    offset,
                }),
                Refused::Unclear => parse_within(text, max_depth, account),
            }
        }
    }
}

/// Memory of the index itself.
const INDEX_BYTES: u64 = room::block(room::COUNTERS + size_of::<Index>());
/// Longest text with an index.
const LONGEST_BYTES: usize = 1 << 30;
/// Longest number with an index.
const LONGEST_NUMBER_BYTES: usize = 4_000;
/// Resolving the escapes of a string up to this length is not accounted for.
const ESCAPES_BYTES: usize = 64 << 10;

enum Refused {
    /// The text is not JSON, exceeds a limit, or is too unusual.
    Unclear,
    NoRoom(NoRoom),
}

struct Pass<'t> {
    text: &'t [u8],
    at: usize,
    max_depth: usize,
    values: u32,
    containers: Vec<Container>,
    /// The container that is being read.
    here: Open,
    /// The containers around it.
    around: Vec<Open>,
    names: Names,
    /// Memory of everything when it is built.
    bytes: u64,
    meter: Meter<'t>,
}

/// A container that has not ended.
struct Open {
    container: u32,
    values: u32,
    is_object: bool,
    is_compact: bool,
    may_repeat: bool,
    names: Seen,
}

// === impl Pass ===

impl<'t> Pass<'t> {
    fn new(text: &'t [u8], max_depth: u32, account: &'t Account) -> Self {
        Self {
            text,
            at: 0,
            max_depth: max_depth as usize,
            values: 0,
            containers: Vec::new(),
            here: Open::document(),
            around: Vec::with_capacity(16),
            names: Names::default(),
            bytes: 0,
            meter: Meter::new(account),
        }
    }

    /// Returns the document, of which nothing is built.
    fn finish(self, text: &Bytes) -> Json {
        let first = text.iter().find(|byte| !is_space(**byte));
        match first {
            Some(b'{') => {
                let index = Index::new(text.clone(), self.containers);
                Json::Object(Arc::new(Level::unbuilt(&index, 0)))
            }
            Some(b'[') => {
                let index = Index::new(text.clone(), self.containers);
                Json::Array(Arc::new(Level::unbuilt(&index, 0)))
            }
            _ => unreachable!("a document without containers is not indexed"),
        }
    }

    fn document(&mut self) -> Result<(), Refused> {
        self.reserve(self.text.len() / 128 + 16)?;
        self.space();
        if !matches!(self.byte(), b'{' | b'[') {
            return Err(Refused::Unclear);
        }
        'value: loop {
            self.values += 1;
            self.here.values += 1;
            match self.byte() {
                b'"' => drop(self.string()?),
                b'{' => {
                    self.open(true)?;
                    if self.byte() != b'}' {
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.open(false)?;
                    if self.byte() != b']' {
                        continue;
                    }
                }
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.number()?,
            }
            loop {
                self.space();
                match (self.byte(), self.here.is_object) {
                    (b',', true) => {
                        self.step();
                        self.name()?;
                        continue 'value;
                    }
                    (b',', false) => {
                        self.step();
                        continue 'value;
                    }
                    (b'}', true) | (b']', false) => {
                        if self.close()? {
                            self.space();
                            break 'value;
                        }
                    }
                    _ => return Err(Refused::Unclear),
                }
            }
        }
        if self.at != self.text.len() || self.values > MAX_VALUES {
            return Err(Refused::Unclear);
        }
        self.meter
            .take(INDEX_BYTES + self.bytes)
            .map_err(Refused::NoRoom)
    }

    /// The next byte. There is no zero byte outside of strings, so it stands for the end.
    #[inline]
    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or_default()
    }

    /// Skips a byte and the white space after it.
    #[inline]
    fn step(&mut self) {
        self.at += 1;
        self.space();
    }

    #[inline]
    fn space(&mut self) {
        if self.byte() <= b' ' {
            self.skip_space();
        }
    }

    #[cold]
    fn skip_space(&mut self) {
        while is_space(self.byte()) {
            self.at += 1;
            self.here.is_compact = false;
        }
    }

    /// Begins a container, and goes to what is in it.
    #[inline]
    fn open(&mut self, is_object: bool) -> Result<(), Refused> {
        if self.around.len() >= self.max_depth {
            return Err(Refused::Unclear);
        }
        if self.containers.len() == self.containers.capacity() {
            self.reserve(2 * self.containers.len())?;
        }
        // No text is so long that one of the two does not fit.
        let (start, container) = (self.at as u32, self.containers.len() as u32);
        self.containers.push(Container {
            start,
            ..Container::default()
        });
        let inner = Open {
            container,
            values: 0,
            is_object,
            is_compact: true,
            may_repeat: false,
            names: self.names.begin(),
        };
        self.around.push(std::mem::replace(&mut self.here, inner));
        self.step();
        Ok(())
    }

    /// Ends a container. Returns whether it was the document.
    #[inline]
    fn close(&mut self) -> Result<bool, Refused> {
        if self.values > MAX_VALUES {
            return Err(Refused::Unclear);
        }
        self.at += 1;
        let Some(outer) = self.around.pop() else {
            return Err(Refused::Unclear);
        };
        let inner = std::mem::replace(&mut self.here, outer);
        let values = inner.values;
        self.bytes += if inner.is_object {
            room::object_of(values as usize)
        } else {
            room::array_of(values as usize)
        };
        let may_repeat = self.names.end(inner.names) | inner.may_repeat;
        let is_compact = inner.is_compact & !may_repeat;
        self.here.is_compact &= is_compact;
        self.here.may_repeat |= may_repeat;
        let next = self.containers.len() as u32;
        let container = &mut self.containers[inner.container as usize];
        container.end = self.at as u32;
        container.next = next;
        container.values = values;
        container.is_compact = is_compact;
        container.may_repeat = may_repeat;
        Ok(self.around.is_empty())
    }

    /// Reads a name and the colon after it, up to the value.
    #[inline]
    fn name(&mut self) -> Result<(), Refused> {
        if self.byte() != b'"' {
            return Err(Refused::Unclear);
        }
        let start = self.at + 1;
        // A name that is written unusually may be the same as one that looks different.
        self.here.may_repeat |= !self.string()?;
        let name = &self.text[start..self.at - 1];
        self.names.add(&mut self.here.names, name);
        self.space();
        if self.byte() != b':' {
            return Err(Refused::Unclear);
        }
        self.step();
        Ok(())
    }

    /// Reads a string. Returns whether [`Json::write`] would write it so.
    #[inline]
    fn string(&mut self) -> Result<bool, Refused> {
        let start = self.at + 1;
        let end = plain_end(self.text, start);
        if self.text.get(end) != Some(&b'"') {
            return self.string_with_escapes(start, end);
        }
        self.bytes += room::text(end - start);
        self.at = end + 1;
        Ok(true)
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize, mut end: usize) -> Result<bool, Refused> {
        let mut is_compact = true;
        loop {
            match self.text.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    let escape = Escape::read(&self.text[end..]).ok_or(Refused::Unclear)?;
                    is_compact &= escape.is_compact;
                    end = plain_end(self.text, end + escape.length);
                }
                _ => return Err(Refused::Unclear),
            }
        }
        let length = end - start;
        self.bytes += room::text(length);
        if length > ESCAPES_BYTES {
            self.bytes += room::block(length);
        }
        self.here.is_compact &= is_compact;
        self.at = end + 1;
        Ok(is_compact)
    }

    #[inline]
    fn literal(&mut self, literal: &[u8]) -> Result<(), Refused> {
        match self.text[self.at..].starts_with(literal) {
            true => {
                self.at += literal.len();
                Ok(())
            }
            false => Err(Refused::Unclear),
        }
    }

    #[inline]
    fn number(&mut self) -> Result<(), Refused> {
        let start = self.at;
        let is_negative = self.byte() == b'-';
        self.at += usize::from(is_negative);
        let is_zero = self.byte() == b'0';
        if is_zero {
            self.at += 1;
        } else {
            self.digits()?;
        }
        let mut is_integer = !(is_negative && is_zero);
        if self.byte() == b'.' {
            is_integer = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            is_integer = false;
            self.at += 1;
            if matches!(self.byte(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        let length = self.at - start;
        if length > LONGEST_NUMBER_BYTES {
            return Err(Refused::Unclear);
        }
        // A longer integer may not fit into 64 bits.
        if !is_integer || length > 18 {
            self.bytes += room::text(length);
        }
        Ok(())
    }

    /// Reads at least one digit.
    #[inline]
    fn digits(&mut self) -> Result<(), Refused> {
        let start = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        match self.at > start {
            true => Ok(()),
            false => Err(Refused::Unclear),
        }
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

// === impl Open ===

impl Open {
    /// What is around the document.
    fn document() -> Self {
        Self {
            container: 0,
            values: 0,
            is_object: false,
            is_compact: true,
            may_repeat: false,
            names: Seen::default(),
        }
    }
}

/// An escape in a string.
struct Escape {
    length: usize,
    /// Whether [`Json::write`] would write it so.
    is_compact: bool,
}

// === impl Escape ===

impl Escape {
    /// Reads the escape at the beginning of a text.
    fn read(text: &[u8]) -> Option<Self> {
        let short = |is_compact| {
            Some(Self {
                length: 2,
                is_compact,
            })
        };
        match text.get(1)? {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => short(true),
            b'/' => short(false),
            b'u' => match unit(text)? {
                0xdc00..=0xdfff => None,
                0xd800..=0xdbff => {
                    matches!(unit(text.get(6..)?)?, 0xdc00..=0xdfff).then_some(Self {
                        length: 12,
                        is_compact: false,
                    })
                }
                unit => Some(Self {
                    length: 6,
                    is_compact: is_written_in_hex(unit)
                        && !text[2..6].iter().any(u8::is_ascii_uppercase),
                }),
            },
            _ => None,
        }
    }
}

/// Whether [`Json::write`] writes this control character with four hexadecimal digits.
fn is_written_in_hex(unit: u16) -> bool {
    unit < 0x20 && !matches!(unit, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d)
}

/// Reads `\u` and four hexadecimal digits.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
